"""`sirgcn explain` and `sirgcn export` as a user types them, mistakes included."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
import torch

from sirgcn import cli
from sirgcn.data import load_tables
from sirgcn.model import Member, Model, Problem, save
from sirgcn.nn import NetConfig, build_net
from tests.model.hub_server import running_hub
from tests.model.small import tables, with_statistics

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and the tables that it was made for."""
    place = tmp_path_factory.mktemp("commands")
    given = tables()
    for name, frame in given.items():
        frame.to_csv(place / f"{name}.csv", index=False)
    task = load_tables(place / "nodes.csv", place / "edges.csv", target="label")
    config = NetConfig.of(task.schema.features, 16, 2, 2, aggr="mean")
    torch.manual_seed(0)
    network = with_statistics(build_net(config))
    save(Model(Problem.of(task), (Member(config, network),), None, task.details["preprocessing"]), place / "model")
    return place


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Types a command in that folder, and gives its exit code, what it printed, and its errors."""
    monkeypatch.chdir(folder)

    def typed(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sirgcn", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return code or 0, printed.out, printed.err

    return typed


EXPLAIN = ("explain", "model", "nodes.csv", "edges.csv", "--row")


def test_the_example_of_explain_works(run: Run, folder: Path) -> None:
    code, out, err = run(*EXPLAIN, "A017", "--out", "A017.svg")
    assert code == 0
    assert "A017" in out
    assert "deletion test: " in out
    assert err == "written: A017.svg\n"
    ElementTree.parse(folder / "A017.svg")


def test_explain_prints_json_and_nothing_else(run: Run) -> None:
    code, out, _ = run(*EXPLAIN, "A017", "--json", "--no-masks")
    found = json.loads(out)
    assert code == 0
    assert found["row"] == "A017"
    assert {"source", "effect", "without", "message_norm", "contextual"} <= found["edges"][0].keys()


@pytest.mark.parametrize("ending", ["html", "json", "csv"])
def test_explain_writes_the_form_of_the_ending(run: Run, folder: Path, ending: str) -> None:
    name = f"A017.{ending}"
    assert run(*EXPLAIN, "A017", "--no-masks", "--out", name)[0] == 0
    text = (folder / name).read_text()
    if ending == "json":
        assert json.loads(text)["row"] == "A017"
    elif ending == "csv":
        assert "effect" in pd.read_csv(folder / name).columns
    else:
        assert text.startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((*EXPLAIN, "A01"), "nearest ids are A010, A011, A012"),
        ((*EXPLAIN, "A017", "--target", "yess"), "did you mean yes"),
        ((*EXPLAIN, "A017", "--out", "A017.pdf"), "--out: expected a name that ends in .svg"),
        ((*EXPLAIN, "A017", "--out", "nowhere/A017.svg"), "nowhere"),
        (("explain", "none", "nodes.csv", "edges.csv", "--row", "A017"), "none"),
        (("explain", "model", "nodes.csv", "none.csv", "--row", "A017"), "none.csv"),
        (("export", "model", "--to", "script", "--out", "model.txt"), ".py"),
        (("export", "model", "--to", "pt2", "--out", "x.pt2", "--private"), "--private"),
        (("export", "model", "--to", "hub", "--out", "cora"), "user/cora"),
        (("export", "none", "--to", "pt2", "--out", "x.pt2"), "none"),
        (("export", "model", "--to", "pt2", "--out", "nowhere/x.pt2"), "nowhere"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value[:1] + value[-2:]),
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(
    run: Run, folder: Path, arguments: tuple[str, ...], told: str
) -> None:
    before = sorted(path.name for path in folder.iterdir())
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert told in err
    assert sorted(path.name for path in folder.iterdir()) == before


def test_an_unknown_form_is_refused_by_the_known_ones(run: Run) -> None:
    code, _, err = run("export", "model", "--to", "onx", "--out", "x")
    assert code == 2
    assert "onnx" in err


def test_export_writes_a_program_and_says_what_it_reads(run: Run, folder: Path) -> None:
    code, out, _ = run("export", "model", "--to", "pt2", "--out", "model.pt2", "--json")
    about = json.loads(out)
    assert code == 0
    assert about["inputs"] == ["x", "edge_index"]
    assert about["classes"] == ["no", "yes"]
    program = torch.export.load(folder / "model.pt2").module()
    found = program(x=torch.zeros(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]]))
    assert found["probabilities"].shape == (3, 2)


def test_export_writes_a_script_with_its_weights(run: Run, folder: Path) -> None:
    code, out, _ = run("export", "model", "--to", "script", "--out", "ejected.py")
    assert code == 0
    assert "written: ejected.py" in out
    assert {"ejected.py", "ejected.safetensors"} <= {path.name for path in folder.iterdir()}


def test_export_uploads_to_a_hub(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with running_hub() as hub:
        code, out, _ = run("export", "model", "--to", "hub", "--out", "user/small", "--endpoint", hub.address)
        assert code == 0
        assert out.startswith(f"uploaded: {hub.address}/user/small")
        assert "model.safetensors" in hub.repositories["user/small"]


@pytest.mark.parametrize("command", ["explain", "export"])
def test_the_help_has_an_example_and_fits_a_screen(run: Run, command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"Example: sirgcn {command} model" in out
    assert out.count("\n") < 50
