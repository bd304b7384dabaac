"""Where people stumble, the table is read as they meant it, or one line says what to do."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sirgcn.data import DataError, Task, apply_tables, load, load_tables
from sirgcn.strict import ConfigError

NODES = "id,size,label\na,1.5,x\nb,2.5,y\nc,0.5,x\nd,3.25,y\n"
EDGES = "source,target\na,b\nb,c\nc,d\n"


def load_files(folder: Path, nodes: str | bytes = NODES, edges: str | bytes = EDGES, **options: Any) -> Task:
    for name, content in (("nodes.csv", nodes), ("edges.csv", edges)):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    given: dict[str, Any] = {"target": "label", "standardise": False}
    return load_tables(folder / "nodes.csv", folder / "edges.csv", **given | options)


def refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises((DataError, ConfigError)) as caught:
        load_files(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_another_separator_is_read_and_told(tmp_path: Path, separator: str) -> None:
    plain = load_files(tmp_path)
    task = load_files(tmp_path, NODES.replace(",", separator), EDGES.replace(",", separator))
    assert torch.equal(task.graphs.x, plain.graphs.x)
    assert torch.equal(task.graphs.edge_index, plain.graphs.edge_index)
    assert "fields separated by" in task.details["inferred"]["nodes.csv"]


def test_decimal_commas_are_read_where_semicolons_separate(tmp_path: Path) -> None:
    plain = load_files(tmp_path)
    task = load_files(tmp_path, NODES.replace(",", ";").replace(".", ","))
    assert torch.equal(task.graphs.x, plain.graphs.x)
    assert task.details["inferred"]["nodes.csv"] == "fields separated by semicolons; decimal commas in 'size'"
    new = apply_tables(task.details["preprocessing"], tmp_path / "nodes.csv", tmp_path / "edges.csv")
    assert torch.equal(new.graphs.x, plain.graphs.x)
    quoted = NODES.replace("1.5", '"1,5"')
    assert "write 1.5" in refusal(tmp_path, quoted)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path, encoding: str) -> None:
    assert torch.equal(load_files(tmp_path, NODES.encode(encoding)).graphs.x, load_files(tmp_path).graphs.x)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (NODES.encode("utf-16-le"), "this looks like UTF-16: save the file as UTF-8"),
        (NODES.replace("x", "é").encode("latin-1"), "got byte 0xe9; save the file as UTF-8"),
        (b"PK\x03\x04 and so on", "an Excel file or another archive: save the sheet as CSV"),
        (b"PAR1 and so on", "let its name end in .parquet"),
        (b"\x1f\x8b and so on", "let its name end in .csv.gz"),
        (b"a,b\n1,\0\n", "this is no text file"),
        (b"", "expected a header, got an empty file"),
        (b"\n\n", "expected a header, got an empty file"),
        (b"id,size,label\n", "expected at least one node, got none"),
    ],
)
def test_a_file_of_another_sort_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    assert message in refusal(tmp_path, content)


def indexed(text: str) -> str:
    head, *rows = text.splitlines()
    return "\n".join(["," + head, *(f"{place},{row}" for place, row in enumerate(rows))]) + "\n"


def test_an_index_that_pandas_has_written_is_no_feature(tmp_path: Path) -> None:
    task = load_files(tmp_path, indexed(NODES), indexed(EDGES))
    assert [column.name for column in task.details["columns"]["node"]] == ["size"]
    assert task.details["columns"]["edge"] == ()
    assert task.details["left_out"]["Unnamed: 0"] == "it is an index that pandas has written"
    frame = load_tables(pd.read_csv(tmp_path / "nodes.csv"), pd.read_csv(tmp_path / "edges.csv"), target="label")
    assert [column.name for column in frame.details["columns"]["node"]] == ["size"]


def test_an_index_that_pandas_has_written_holds_the_ids_where_no_other_column_does(tmp_path: Path) -> None:
    nodes = indexed("size,label\n1,x\n2,y\n3,x\n")
    task = load_files(tmp_path, nodes, "source,target\n0,1\n1,2\n")
    assert task.graphs.edge_index.tolist() == [[0, 1, 1, 2], [1, 2, 0, 1]]
    assert task.details["inferred"]["id"] == "Unnamed: 0"
    message = refusal(tmp_path, ",label\na,x\nb,y\n")
    assert "expected a name for column 1, got none; if it holds ids, call it id" in message


SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "CCN(C)C", "C1CC1", "N#N"]


@pytest.mark.parametrize("name", ["canonical_smiles", "Molecule", "drug"])
def test_molecules_are_found_whatever_their_column_is_called(name: str) -> None:
    pytest.importorskip("rdkit")
    frame = pd.DataFrame({"name": ["a", "b", "CO", "d", "NO", "f"], name: SMILES, "y": [0, 1] * 3})
    task = load_tables(frame, target="y")
    assert task.details["inferred"]["smiles"] == name
    assert task.schema.vocabularies
    new = apply_tables(task.details["preprocessing"], frame.drop(columns="y"), unknown="other")
    assert torch.equal(new.graphs.x, task.graphs.x)


def test_words_that_are_molecules_by_chance_are_no_column_of_molecules() -> None:
    pytest.importorskip("rdkit")
    frame = pd.DataFrame({"state": ["CO", "NO", "CA", "OH", "IN", "C"], "y": [0, 1] * 3})
    with pytest.raises(DataError, match=r"edges: expected a table of edges, got none; .*smiles= names their column"):
        load_tables(frame, target="y")
    two = pd.DataFrame({"one": SMILES, "two": SMILES, "y": [0, 1] * 3})
    with pytest.raises(DataError, match="smiles: expected one column of molecules, got one, two: name one"):
        load_tables(two, target="y")


@pytest.mark.parametrize(
    ("nodes", "edges", "options", "message"),
    [
        (NODES, EDGES, {"target": "lable"}, "did you mean label?"),
        (NODES, EDGES, {"id": "ids"}, "did you mean id?"),
        (NODES.replace("label", "outcome"), EDGES, {"target": []}, "name it: target= with one of id, size, outcome"),
        (NODES, EDGES, {"split": "lable"}, "did you mean label?"),
        (NODES, EDGES.replace("a,b", "A,b"), {}, "there is 'a', which differs by letter case"),
        ("id,label\n1,x\n2,y\n3,x\n", "source,target\n1.0,2\n", {}, "there is '1', which differs by the way a number"),
        ("id,label\n7,x\n2,y\n3,x\n", "source,target\n007,2\n", {}, "there is '7', which differs by the way a number"),
        (NODES, EDGES.replace("a,b", "a ,b"), {}, "differs from it by white space alone"),
        (NODES, EDGES.replace("a,b", "zz,b"), {}, "on_error='skip' with dropped=FILE leaves such rows out"),
        (NODES.replace("b,2", "a,2"), EDGES, {}, "got 'a' in row 1 too; keep one of these rows"),
        ("id,label\na,\nb,\n", "source,target\na,b\n", {}, "expected labels, got none; fill in the rows"),
        ("id,label\na,x\nb,x\n", "source,target\na,b\n", {}, "got x; a model needs rows of another class"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(
    tmp_path: Path, nodes: str, edges: str, options: dict[str, Any], message: str
) -> None:
    assert message in refusal(tmp_path, nodes, edges, **options)


def test_more_classes_than_rows_can_teach_are_refused(tmp_path: Path) -> None:
    rows = "".join(f"n{place},{place % 40}-{place}\n" for place in range(60))
    message = refusal(tmp_path, "id,label\n" + rows, "source,target\nn0,n1\n")
    assert "at least 2 rows of a class on average, got 60 classes in 60 rows; is this an id or a text?" in message


def test_a_split_column_with_another_name_is_no_feature_and_its_use_is_named() -> None:
    rng = np.random.default_rng(0)
    nodes = pd.DataFrame({"id": range(20), "size": rng.normal(size=20), "label": ["a", "b"] * 10})
    nodes["fold"] = ["Train"] * 12 + ["valid"] * 4 + ["test"] * 4
    edges = pd.DataFrame({"source": range(19), "target": range(1, 20)})
    task = load_tables(nodes, edges, target="label")
    assert [column.name for column in task.details["columns"]["node"]] == ["size"]
    (warning,) = [text for text in task.describe().warnings if "fold" in text]
    assert "split='fold' uses it as the split" in warning
    assert load_tables(nodes, edges, target="label", split="fold").splits[0].train.tolist() == list(range(12))


@pytest.mark.parametrize("name", ["hetero_edge_count", "dictionary_lookup"])
def test_a_task_fits_a_screen(name: str) -> None:
    options: dict[str, Any] = {"c": 2, "num_graphs": 10} if name == "hetero_edge_count" else {"n": 3, "num_graphs": 10}
    task = load(name, **options)
    shown = repr(task)
    assert len(shown.splitlines()) == 4
    assert max(map(len, shown.splitlines())) <= 100
    assert f"{task.graphs.num_nodes:,} nodes" in shown
    assert len(repr(task.graphs)) < 300
