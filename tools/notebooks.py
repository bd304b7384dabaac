"""Run the notebooks in examples/notebooks: `python tools/notebooks.py [NAME ...] [--out results/notebooks.json]`.

Git keeps the notebooks without outputs. What their cells print is kept in the record, from which the documentation
shows them. A cell is plain Python: what it prints, and the value of its last line, are its output, as in Jupyter.
"""

import argparse
import ast
import hashlib
import io
import json
import re
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "notebooks"
RECORD = ROOT / "results" / "notebooks.json"
# The order in which a reader meets them.
NAMES = ("quickstart", "own_csv", "molecules", "confused_neighbourhoods", "from_gcn", "scaling_up")


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook.

    Args:
        kind: "markdown" or "code".
        source: its text.
    """

    kind: str
    source: str


def cells_of(name: str) -> list[Cell]:
    """The cells of a notebook."""
    document = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))
    return [Cell(cell["cell_type"], "".join(cell["source"])) for cell in document["cells"]]


def hash_of(cells: Sequence[Cell]) -> str:
    """A hash that changes with the code."""
    code = [cell.source for cell in cells if cell.kind == "code"]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


def output_of(source: str, names: dict[str, Any]) -> dict[str, str]:
    """Run a cell, and return what it printed (`text`) and its last value, as HTML where it has such a form."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    found = {"text": printed.getvalue()}
    as_html = getattr(value, "_repr_html_", None)
    if as_html is not None and as_html():
        found["html"] = as_html()
    elif value is not None:
        found["text"] += repr(value)
    return {form: output for form, output in found.items() if output}


def run(name: str) -> dict[str, Any]:
    """Run a notebook, and return the outputs of its code cells with the hash of the code."""
    cells, names, started = cells_of(name), {"__name__": "__main__"}, time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs = [output_of(cell.source, names) for cell in cells if cell.kind == "code"]
    return {"hash": hash_of(cells), "outputs": outputs, "cpu_seconds": round(time.process_time() - started)}


def page(name: str, record: dict[str, Any]) -> str:
    """A notebook as a page of the documentation, with the outputs of the record where the code is still the same."""
    cells = cells_of(name)
    known = record.get(name, {})
    outputs = iter(known.get("outputs", ()) if known.get("hash") == hash_of(cells) else ())
    parts = []
    for cell in cells:
        if cell.kind == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```{{code-block}} python\n{cell.source}\n```")
        output: dict[str, str] = next(outputs, {})
        if "text" in output:
            parts.append(f"```{{code-block}} text\n{output['text'].rstrip()}\n```")
        if "html" in output:
            parts.append(f"```{{raw}} html\n{in_style(output['html'])}\n```")
    place = f"`examples/notebooks/{name}.ipynb`"
    return "\n\n".join([*parts, f"This page is the notebook {place} of the repository."]) + "\n"


def in_style(html: str) -> str:
    """The table of a frame in the style of the pages, in place of its own."""
    plain = re.sub(r"<style scoped>.*?</style>", "", html, flags=re.DOTALL)
    return plain.replace('<table border="1" class="dataframe">', '<table class="docutils">')


def write_pages(folder: Path) -> None:
    """Write all notebooks as pages into a folder."""
    record = json.loads(RECORD.read_text("utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (folder / f"{name}.md").write_text(page(name, record), "utf-8")


def main() -> None:
    """Run notebooks and keep what they print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(NAMES), metavar="NAME", help=f"among {', '.join(NAMES)}")
    parser.add_argument("--out", type=Path, default=RECORD, help="the file of the outputs; default: %(default)s")
    given = parser.parse_args()
    for name in given.names:
        found = run(name)
        before = json.loads(given.out.read_text("utf-8")) if given.out.exists() else {}
        given.out.write_text(json.dumps({**before, name: found}, indent=1) + "\n", "utf-8")
        print(f"{name}: {found['cpu_seconds']} CPU seconds", file=sys.stderr)
    print(json.dumps({"notebooks": len(given.names)}))


if __name__ == "__main__":
    main()
