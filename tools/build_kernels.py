"""Build the C code of the package with other flags, in another folder: `python tools/build_kernels.py FOLDER FLAG...`.

The folder gets a copy of the Python files of the package, and the C extension built with the flags. If the folder comes
first on PYTHONPATH, Python imports it instead of the installed package. A file that is newer than its sources is not
built again.

`--isa NAME` (repeatable) compiles only these instruction sets, and always scalar, which replaces the others.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "sirgcn"
NATIVE = Path("ops") / "native"
ISAS = ("avx512", "avx2", "baseline", "scalar")


def compile_extension(folder: Path, isas: set[str], flags: list[str]) -> None:
    """Compile the files in parallel and link them. The extension is moved into the folder when it is complete."""
    compiler = os.environ.get("CC", "gcc")
    with tempfile.TemporaryDirectory() as name:
        objects = Path(name)

        def compile_file(stem: str) -> Path:
            made = objects / f"{stem}.o"
            include = sysconfig.get_paths()["include"]
            command = [compiler, "-std=gnu11", "-fPIC", "-Wno-psabi", f"-I{include}", *flags, "-c"]
            subprocess.run([*command, f"{SOURCE / NATIVE / stem}.c", "-o", str(made)], check=True)
            return made

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            stems = sorted(path.stem for path in (SOURCE / NATIVE).glob("*.c"))
            left_out = {f"isa_{isa}" for isa in ISAS if isa not in isas}
            files = list(pool.map(compile_file, [stem for stem in stems if stem not in left_out]))
        absent = [
            f"-Wl,--defsym,{isa}_{table}=scalar_{table}"
            for isa in ISAS
            if isa not in isas
            for table in ("kernels", "gated", "network", "product", "softmax")
        ]
        made = objects / "_kernels.abi3.so"
        subprocess.run([compiler, "-shared", *flags, *absent, *map(str, files), "-o", str(made), "-lm"], check=True)
        shutil.copy2(made, folder / "_kernels.new")
    (folder / "_kernels.new").replace(folder / "_kernels.abi3.so")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--isa", action="append", choices=ISAS)
    arguments, flags = parser.parse_known_args()
    isas = {*(arguments.isa or ISAS), "scalar"}
    package = arguments.folder / "sirgcn"
    shutil.copytree(
        SOURCE, package, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.so", "*.c", "*.h", "*.def", "__pycache__")
    )
    made, recipe = package / NATIVE / "_kernels.abi3.so", package / NATIVE / "recipe.txt"
    wanted = " ".join([*sorted(isas), *flags])
    sources = [*(SOURCE / NATIVE).glob("*.[ch]"), *(SOURCE / NATIVE).glob("*.def"), Path(__file__)]
    as_wanted = made.exists() and recipe.exists() and recipe.read_text() == wanted
    if as_wanted and made.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return
    print(f"compiling {made}: {wanted}", file=sys.stderr)
    recipe.unlink(missing_ok=True)
    compile_extension(package / NATIVE, isas, flags)
    recipe.write_text(wanted)


if __name__ == "__main__":
    main()
