"""Notebooks are kept without outputs, two of them run here, and the documentation shows what was recorded of each."""

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOL = runpy.run_path(str(ROOT / "tools" / "notebooks.py"))
RECORD = json.loads(TOOL["RECORD"].read_text("utf-8"))


def test_every_notebook_is_named() -> None:
    assert {path.stem for path in TOOL["FOLDER"].glob("*.ipynb")} == set(TOOL["NAMES"])
    index = (ROOT / "docs" / "notebooks" / "index.md").read_text("utf-8")
    assert all(f"_generated/notebooks/{name}\n" in index for name in TOOL["NAMES"])


@pytest.mark.parametrize("name", TOOL["NAMES"])
def test_git_keeps_no_outputs(name: str) -> None:
    document = json.loads((TOOL["FOLDER"] / f"{name}.ipynb").read_text("utf-8"))
    cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


@pytest.mark.parametrize("name", TOOL["NAMES"])
def test_the_recorded_outputs_are_of_the_code_as_it_is(name: str) -> None:
    cells = TOOL["cells_of"](name)
    assert RECORD[name]["hash"] == TOOL["hash_of"](cells), f"run python tools/notebooks.py {name}"
    assert len(RECORD[name]["outputs"]) == sum(cell.kind == "code" for cell in cells)


@pytest.mark.parametrize("name", ["from_gcn", "confused_neighbourhoods"])
def test_a_notebook_runs(name: str) -> None:
    found = TOOL["run"](name)
    assert [sorted(output) for output in found["outputs"]] == [sorted(output) for output in RECORD[name]["outputs"]]


def test_a_cell_gives_what_it_prints_and_its_last_value() -> None:
    names: dict[str, object] = {}
    assert TOOL["output_of"]("a = 2", names) == {}
    assert TOOL["output_of"]("print(a)\na * 2", names) == {"text": "2\n4"}
    assert TOOL["output_of"]("import pandas\npandas.DataFrame({'a': [1]})", names)["html"].startswith("<div>")
    with pytest.raises(ZeroDivisionError):
        TOOL["output_of"]("a / 0", names)


def test_a_page_shows_no_output_of_other_code() -> None:
    record = {"from_gcn": {**RECORD["from_gcn"], "hash": "another"}}
    assert "SIRConv(8, 16" in TOOL["page"]("from_gcn", RECORD)
    assert "SIRConv(8, 16" not in TOOL["page"]("from_gcn", record)
