"""Check a built sdist and its wheels: `python tools/check_wheel.py DIST`.

DIST holds one sdist and the two wheels built from it: one with the C code, and one for every other platform. Each wheel
is installed into a new environment without a compiler. There the C code must work, or the backend in plain torch. The
sdist is installed without a compiler too. The dependencies are those of the environment that runs this script.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SMOKE = """
import sys, warnings
from pathlib import Path
import torch
import sirgcn
from sirgcn import SIRConv
from sirgcn.ops import Neighbors, backends, sir_aggregate

folder, native = Path(sys.argv[1]), sys.argv[2] == "native"
assert Path(sirgcn.__file__).is_relative_to(folder), sirgcn.__file__
reason = backends()["native"]
assert (reason is None) == native, reason
torch.manual_seed(0)
edge_index = torch.randint(0, 50, (2, 400))
x = torch.randn(50, 19, dtype=torch.float64, requires_grad=True)
layer, plain = (SIRConv(19, 11, activation="gelu", backend=backend).double() for backend in (None, "reference"))
plain.load_state_dict(layer.state_dict())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    results = []
    for module in (layer, layer, plain):
        out = module(x, edge_index)
        results.append([out, *torch.autograd.grad(out.square().sum(), [x, *module.parameters()])])
for found in results[:2]:
    torch.testing.assert_close(found, results[2], rtol=1e-12, atol=1e-12)
ours = [str(w.message) for w in caught if "sirgcn" in str(w.message)]
assert len(ours) == (0 if native else 1), ours
assert native or (reason in ours[0] and "compiler" in ours[0]), ours
from sirgcn.engine.experiment import load, names
from sirgcn.report import compare, load_claims, render_html

assert {load(name).table for name in names()} - {None} == {*range(1, 9), "sinc_scores", "sinc_unique_signature"}
assert len(load_claims()) == 10
assert "<html" in render_html(compare([]))
print("forward and backward equal the reference;", "native: available" if native else ours[0])
"""


def run(command: list[str], folder: Path = Path("/"), **env: str) -> str:
    """Run a command in a folder, without a compiler, and return what it prints."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SIRGCN_"))}
    clean |= {"CC": "/bin/false", "CXX": "/bin/false", "PATH": str(Path(command[0]).parent), **env}
    done = subprocess.run(command, env=clean, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def is_pure(wheel: Path) -> bool:
    """Whether it is the wheel without compiled code."""
    return wheel.stem.endswith("-any")


def check_contents(wheel: Path) -> None:
    """The wheel with C code serves every Python from 3.11 on, the other one every platform. Neither has tests."""
    _, _, python, abi, platform = wheel.stem.split("-")
    names = zipfile.ZipFile(wheel).namelist()
    if is_pure(wheel):
        assert (python, abi) == ("py3", "none"), wheel.name
        assert not [name for name in names if name.endswith(".so")], wheel.name
    else:
        assert (python, abi) == ("cp311", "abi3"), wheel.name
        assert platform.startswith("manylinux_") or sys.platform != "linux", wheel.name
        assert "sirgcn/ops/native/_kernels.abi3.so" in names, wheel.name
    for needed in ("sirgcn/py.typed", "sirgcn/ops/native/_kernels.pyi"):
        assert needed in names, f"{wheel.name} lacks {needed}"
    others = [name for name in names if not name.startswith(("sirgcn/", "sirgcn-"))]
    others += [name for name in names if "/test_" in name or "/tests/" in name]
    assert not others, f"{wheel.name} holds {others}"
    print(f"{wheel.name}: {len(names)} files, {wheel.stat().st_size / 2**10:.0f} KiB")


def check_wheel(wheel: Path, folder: Path) -> None:
    """A wheel works in a new environment without a compiler."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "-c", f"{ROOT}/constraints.txt", str(wheel)])
    site = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    # Written after the install, so that pip does not find the sirgcn of this environment. The wheel comes first on the
    # path and is the one that is imported.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    works_with = "torch" if is_pure(wheel) else "native"
    print("wheel:", run([python, "-I", "-c", SMOKE, str(folder), works_with]).strip())
    if not is_pure(wheel):
        try_first_screen(folder)


def first_screen() -> list[str]:
    """The commands of the README's first block, as a stranger pastes them; the wheel is installed already."""
    block = (ROOT / "README.md").read_text("utf-8").partition("```bash\n")[2].partition("```")[0]
    lines = [line.partition("  #")[0].strip() for line in block.splitlines()]
    installed, also = lines[0].split(" && ")
    assert installed == "pip install sirgcn", installed
    return [also, *lines[1:]]


def try_first_screen(folder: Path) -> None:
    """The README's first commands work, and leave a report and a prediction for every row."""
    place = folder / "first_screen"
    place.mkdir()
    for line in first_screen():
        command, *arguments = shlex.split(line)
        run([str(folder / "bin" / command), *arguments], place)
    predicted = (place / "predictions.csv").read_text("utf-8").splitlines()
    assert len(predicted) == 2709, len(predicted)
    assert "<html" in (place / "model" / "report.html").read_text("utf-8")
    print("first screen:", "; ".join(first_screen()))


def check_source(sdist: Path, folder: Path) -> None:
    """The package installs from source without a compiler, works, and warns once."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    target = folder / "target"
    pip = [sys.executable, "-m", "pip", "install", "-v", "--no-deps", "--no-build-isolation", "--target", str(target)]
    log = run([*pip, str(source)])
    said = [line for line in log.splitlines() if "building extension" in line and "failed" in line]
    assert len(said) == 1, log
    assert not list(target.rglob("*.so"))
    print("source:", said[0].strip())
    print("source:", run([sys.executable, "-c", SMOKE, str(target), "torch"], PYTHONPATH=str(target)).strip())


def main() -> None:
    dist = Path(sys.argv[1]).resolve()
    wheels, (sdist,) = sorted(dist.glob("*.whl")), dist.glob("*.tar.gz")
    assert [is_pure(wheel) for wheel in wheels] == [False, True], [wheel.name for wheel in wheels]
    with tempfile.TemporaryDirectory() as name:
        for wheel in wheels:
            check_contents(wheel)
            check_wheel(wheel, Path(name) / wheel.stem)
        check_source(sdist, Path(name) / "plain")


if __name__ == "__main__":
    main()
