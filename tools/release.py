"""Record what a release was tried with: `python tools/release.py try PYTHON`, then `python tools/release.py render`.

`try` runs the layer with another interpreter, in which a wheel of sirgcn is installed, and adds what it found to
`results/release.json`: versions, the machine, whether the C code works, and that forward and backward equal the
reference. `--without-torch FOLDER` only loads the C code of an unpacked wheel and compiles the modules beside it: for a
Python for which no build of PyTorch is at hand. PYTHON may be several words. `sizes` records the installed sizes, and
`imports` how long the layer takes to import beside PyG's layers.
`render` writes the tables of docs/installation.md from the record.
"""

import argparse
import importlib.metadata
import json
import re
import shlex
import statistics
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "results" / "release.json"
PAGE = ROOT / "docs" / "installation.md"

WHOLE = """
import json, platform, sys, warnings
warnings.simplefilter("ignore")
import torch, torch_geometric, numpy, sirgcn
from sirgcn import SIRConv
from sirgcn.ops import backends
torch.manual_seed(0)
edge_index = torch.randint(0, 50, (2, 400))
x = torch.randn(50, 19, dtype=torch.float64, requires_grad=True)
layer, plain = (SIRConv(19, 11, activation="gelu", backend=name).double() for name in (None, "reference"))
plain.load_state_dict(layer.state_dict())
found = []
for module in (layer, plain):
    out = module(x, edge_index)
    found.append([out, *torch.autograd.grad(out.square().sum(), [x, *module.parameters()])])
torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)
about = {module.__name__: module.__version__ for module in (torch, torch_geometric, numpy, sirgcn)}
about |= {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
print(json.dumps(about | {"kernels": backends()["native"] is None, "tried": "forward and backward"}))
"""

WITHOUT_TORCH = """
import importlib.machinery, importlib.util, json, pathlib, platform, sys
folder = pathlib.Path(sys.argv[1])
for file in (folder / "sirgcn").rglob("*.py"):
    compile(file.read_text("utf-8"), str(file), "exec")
path = str(folder / "sirgcn" / "ops" / "native" / "_kernels.abi3.so")
loader = importlib.machinery.ExtensionFileLoader("_kernels", path)
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("_kernels", loader))
loader.exec_module(module)
assert "relu" in module.activations(), module.activations()
about = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
(folder,) = folder.glob("sirgcn-*.dist-info")
about["sirgcn"] = folder.name.removeprefix("sirgcn-").removesuffix(".dist-info")
print(json.dumps(about | {"kernels": True, "tried": "the C code loads, every module compiles"}))
"""


def trial(python: str, folder: Path | None = None) -> dict[str, Any]:
    """What another interpreter found: versions, the machine, whether the C code works."""
    command = [*shlex.split(python), "-c", WHOLE if folder is None else WITHOUT_TORCH]
    command += [] if folder is None else [str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def same_place(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two trials are of the same versions on the same kind of machine."""
    return all(one.get(name) == other.get(name) for name in ("python", "machine", "system", "torch", "kernels"))


def needed(name: str) -> set[str]:
    """The distributions that one needs here, without itself, torch, extras, and what other platforms need."""
    found: set[str] = set()
    left = [name]
    while left:
        for line in requirements(left.pop()):
            wanted, _, marker = line.partition(";")
            other = re.split(r"[\s<>=!~\[(]", wanted.strip(), maxsplit=1)[0].lower().replace("_", "-")
            if "extra" not in marker and other not in found | {"torch"} and is_installed(other):
                found.add(other)
                left.append(other)
    return found


def requirements(name: str) -> list[str]:
    """What an installed distribution says that it needs."""
    return importlib.metadata.requires(name) or []


def is_installed(name: str) -> bool:
    """Whether a distribution is installed here."""
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def size_of(names: Iterable[str]) -> int:
    """The bytes of the installed files of some distributions, without compiled Python."""
    files = [file for name in names for file in importlib.metadata.files(name) or []]
    paths = {Path(str(file.locate())) for file in files}
    return sum(path.stat().st_size for path in paths if path.is_file() and path.suffix != ".pyc")


def sizes(wheel: Path) -> dict[str, Any]:
    """The sizes of the package and of all that it needs besides PyTorch."""
    own = sum(member.file_size for member in zipfile.ZipFile(wheel).infolist())
    others = needed("sirgcn")
    return {"sirgcn": own, "others": size_of(others), "distributions": sorted(others)}


IMPORT = """
import time
start = time.process_time()
import torch_geometric.nn
between = time.process_time()
from sirgcn import SIRConv
print(between - start, time.process_time() - between)
"""


def imports(repeats: int = 9) -> dict[str, Any]:
    """The median CPU seconds of importing PyG's layers, and of importing ours after them, in processes of their own."""
    found = []
    for _ in range(repeats):
        done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, cwd="/", check=True)
        found.append([float(word) for word in done.stdout.split()])
    pyg, more = (statistics.median(column) for column in zip(*found, strict=True))
    return {"pyg": pyg, "more": more, "repeats": repeats}


def table(record: dict[str, Any]) -> str:
    """What was tried, a row for each interpreter."""
    lines = ["| Python | PyTorch | PyG | machine | kernels | what was tried |", "|---|---|---|---|---|---|"]
    for found in record["tried"]:
        kernels = "C" if found["kernels"] else "plain PyTorch"
        versions = f"{found['python']} | {found.get('torch', 'none')} | {found.get('torch_geometric', 'none')}"
        note = f"; {found['note']}" if found.get("note") else ""
        lines.append(f"| {versions} | {found['system']}, {found['machine']} | {kernels} | {found['tried']}{note} |")
    return "\n".join(lines)


def size_line(record: dict[str, Any]) -> str:
    """The installed sizes in a sentence."""
    found = record["sizes"]
    return (
        f"Installed, the package takes {found['sirgcn'] / 1e6:.0f} MB, and the {len(found['distributions'])} packages "
        f"that it needs besides PyTorch {found['others'] / 1e6:.0f} MB."
    )


def import_line(record: dict[str, Any]) -> str:
    """What the layer takes to import, in a sentence."""
    found = record["imports"]
    return (
        f"`import torch_geometric.nn` takes {found['pyg']:.2f} s of the processor, and `from sirgcn import SIRConv` "
        f"{found['more']:.2f} s more (medians of {found['repeats']} processes)."
    )


def rendered(text: str, record: dict[str, Any]) -> str:
    """The page with its marked parts written from the record."""
    for name, block in (("tried", table(record)), ("sizes", size_line(record)), ("imports", import_line(record))):
        start, middle, rest = text.partition(f"<!-- release: {name} -->\n")
        _, end, rest = rest.partition("<!-- /release -->")
        text = f"{start}{middle}{block}\n{end}{rest}"
    return text


def main() -> None:
    """Record a trial, the sizes or the times of imports, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["try", "sizes", "imports", "render"])
    parser.add_argument("argument", nargs="?", help="the interpreter, or the wheel whose sizes are recorded")
    parser.add_argument("--note", help="what a reader should know of this trial")
    parser.add_argument("--without-torch", type=Path, metavar="FOLDER", help="an unpacked wheel")
    given = parser.parse_args()
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {"tried": []}
    if given.what == "try":
        found = trial(given.argument, given.without_torch) | ({"note": given.note} if given.note else {})
        kept = [other for other in record["tried"] if not same_place(found, other)]
        record["tried"] = sorted([*kept, found], key=lambda one: (one["machine"] != "x86_64", one["python"]))
        print(json.dumps(found))
    elif given.what == "sizes":
        record["sizes"] = sizes(Path(given.argument))
    elif given.what == "imports":
        record["imports"] = imports()
    else:
        PAGE.write_text(rendered(PAGE.read_text("utf-8"), record), "utf-8")
    if given.what != "render":
        RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
