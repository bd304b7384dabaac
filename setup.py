"""The C extension; everything else about the package stands in pyproject.toml.

With `SIRGCN_PURE=1` the package is built without it: that wheel runs on every platform, on plain PyTorch.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/sirgcn/ops/native")
IS_PURE = os.environ.get("SIRGCN_PURE") == "1"

KERNELS = Extension(
    "sirgcn.ops.native._kernels",
    sources=[str(path) for path in sorted(NATIVE.glob("*.c"))],
    depends=[str(path) for path in sorted([*NATIVE.glob("*.h"), *NATIVE.glob("*.def")])],
    # The instruction set is chosen at run time; wide vectors in arguments stay inside a file.
    extra_compile_args=["-O3", "-g0", "-std=gnu11", "-Wno-psabi", *os.environ.get("SIRGCN_CFLAGS", "").split()],
    libraries=["m", "dl"] if os.name == "posix" and os.uname().sysname == "Linux" else [],
    py_limited_api=True,
    # Without a compiler the package installs all the same, with one warning, and runs on plain PyTorch.
    optional=True,
)

setup(
    ext_modules=[] if IS_PURE else [KERNELS],
    options={} if IS_PURE else {"bdist_wheel": {"py_limited_api": "cp311"}},
)
