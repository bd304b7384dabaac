"""A stream gives the graphs of a whole read, chunk by chunk, goes on where it stopped, and no bad row stops it."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sirgcn.data import Chunk, DataError, Preprocessing, apply_tables, load_tables, stream_tables

SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "CCN", "c1ccncc1", "CCCC", "C1CC1", "CCCl", "C=O", "CC#N"]


def molecules(count: int = 23) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    smiles = [SMILES[place % len(SMILES)] for place in range(count)]
    columns = {"id": [f"m{place}" for place in range(count)], "smiles": smiles, "dose": rng.normal(size=count).round(3)}
    return pd.DataFrame(columns | {"acid": ["yes", "no"] * (count // 2) + ["yes"] * (count % 2)})


def of_molecules() -> Preprocessing:
    pytest.importorskip("rdkit")
    frame = molecules(20).assign(y=[0, 1] * 10)
    found: Preprocessing = load_tables(frame, target="y", fractions=(1, 0, 0)).details["preprocessing"]
    return found


def written(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    else:
        frame.to_csv(path, index=False)
    return path


def joined(chunks: list[Chunk]) -> dict[str, Any]:
    inputs = [chunk.inputs for chunk in chunks if chunk.inputs is not None]
    names = ("x", "edge_attr", "graph_attr")
    found: dict[str, Any] = {name: torch.cat([getattr(one.graphs, name) for one in inputs]) for name in names}
    return found | {"ids": [name for one in inputs for name in one.graph_ids]}  # type: ignore[union-attr]


def equal(chunks: list[Chunk], whole: Any) -> bool:
    found = joined(chunks)
    ids = found.pop("ids")
    return ids == list(whole.graph_ids) and all(
        torch.equal(value, getattr(whole.graphs, name)) for name, value in found.items()
    )


@pytest.mark.parametrize("ending", ["csv", "parquet", "csv.gz", None])
def test_chunks_are_the_molecules_of_the_whole_table_from_any_row_on(tmp_path: Path, ending: str | None) -> None:
    preprocessing, frame = of_molecules(), molecules()
    source = frame if ending is None else written(frame, tmp_path / f"m.{ending}")
    chunks = list(stream_tables(preprocessing, source, size=5))
    assert equal(chunks, apply_tables(preprocessing, frame))
    assert [(chunk.start, chunk.end) for chunk in chunks] == [(0, 5), (5, 10), (10, 15), (15, 20), (20, 23)]
    assert np.concatenate([chunk.rows for chunk in chunks]).tolist() == list(range(1, 24))
    rest = list(stream_tables(preprocessing, source, size=7, start=chunks[1].end))
    assert equal(chunks[:2] + rest, apply_tables(preprocessing, frame))
    assert list(stream_tables(preprocessing, source, start=23)) == []


def test_bad_rows_are_listed_and_the_others_are_read(tmp_path: Path) -> None:
    preprocessing, frame = of_molecules(), molecules(30)
    lines = frame.to_csv(index=False).splitlines()
    lines[3] = "m2,no molecule,1.0,yes"
    lines[8] = "m7,CCO,much,yes"
    lines[9] = "m8,CCO"
    lines[17] = "m16,CCO,1e99,no"
    lines[21:26] = [f"m{row},xx,1.0,yes" for row in range(20, 25)]
    data = "\n".join(lines).encode() + b"\nm30,CC\xe9O,1.0,yes\n"
    (tmp_path / "m.csv").write_bytes(data)
    chunks = list(stream_tables(preprocessing, tmp_path / "m.csv", size=5))
    bad = [found for chunk in chunks for found in chunk.bad]
    assert [row for _, row, *_ in bad] == [3, 8, 9, 17, 21, 22, 23, 24, 25, 31]
    reasons = {row: reason for _, row, _, _, reason in bad}
    assert reasons[3] == "expected a molecule as SMILES, got 'no molecule'"
    assert reasons[8] == "expected a number, got 'much'"
    assert reasons[9] == "expected 4 fields, got 2"
    assert "expected a number within" in reasons[17]
    assert reasons[31] == "expected text in UTF-8, got other bytes"
    kept = np.concatenate([chunk.rows for chunk in chunks])
    assert kept.tolist() == [row for row in range(1, 31) if row not in reasons]
    assert chunks[4].inputs is None
    assert chunks[-1].end == 31
    good = [chunk for chunk in chunks if chunk.inputs is not None]
    assert equal(good, apply_tables(preprocessing, frame.iloc[kept - 1]))


def test_values_that_training_does_not_know_are_read_as_other_and_counted() -> None:
    preprocessing, frame = of_molecules(), molecules(20)
    frame.loc[[2, 3, 12], "acid"] = "perhaps"
    chunks = list(stream_tables(preprocessing, frame, size=10))
    assert [chunk.unseen for chunk in chunks] == [{"graph acid": 2}, {"graph acid": 1}]
    strict = list(stream_tables(preprocessing, frame, size=10, unknown="raise"))
    assert [row for chunk in strict for _, row, *_ in chunk.bad] == [3, 4, 13]


def test_what_is_wrong_with_the_whole_table_is_raised_at_once(tmp_path: Path) -> None:
    preprocessing = of_molecules()
    with pytest.raises(DataError, match="dose: expected this column"):
        next(stream_tables(preprocessing, molecules().drop(columns="dose")))
    with pytest.raises(DataError, match="smiles: expected a column"):
        next(stream_tables(preprocessing, written(molecules().drop(columns="smiles"), tmp_path / "m.csv")))
    with pytest.raises(DataError, match="edges: expected only one table"):
        stream_tables(preprocessing, molecules(), molecules())
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(DataError, match="got an empty file"):
        next(stream_tables(preprocessing, tmp_path / "empty.csv"))
    with pytest.raises(DataError, match="expected a file that can be read"):
        next(stream_tables(preprocessing, tmp_path / "none.csv"))


def tables(count: int = 12, within: bool = True) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Graphs of one to four nodes; some have no edge."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 5, count)
    graph = np.repeat([f"g{place}" for place in range(count)], sizes)
    ids = np.concatenate([np.arange(size) for size in sizes])
    if not within:
        ids = np.arange(len(ids))
    nodes = pd.DataFrame({"graph": graph, "id": ids, "weight": rng.normal(size=len(ids)).round(3)})
    first = nodes.groupby("graph", sort=False)["id"].first()
    pairs = [
        (name, first[name] + place, first[name] + place + 1)
        for name, size in zip(first.index, sizes, strict=True)
        for place in range(size - 1)
    ]
    edges = pd.DataFrame(pairs, columns=["graph", "source", "target"]).assign(length=1.0)
    graphs = pd.DataFrame({"graph": first.index, "dose": rng.normal(size=count), "y": rng.normal(size=count)})
    return nodes, edges if within else edges.drop(columns="graph"), graphs


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("ending", ["csv", "parquet", None])
def test_chunks_are_the_graphs_of_the_whole_tables(tmp_path: Path, within: bool, ending: str | None) -> None:
    nodes, edges, graphs = tables(within=within)
    preprocessing = load_tables(nodes, edges, graphs=graphs, target="y").details["preprocessing"]
    whole = apply_tables(preprocessing, nodes, edges, graphs=graphs)
    parts: list[Any] = [nodes, edges]
    if ending is not None:
        parts = [written(part, tmp_path / f"{name}.{ending}") for name, part in (("n", nodes), ("e", edges))]
    for size in (1, 3, 7, 100):
        chunks = list(stream_tables(preprocessing, *parts, graphs=graphs, size=size))
        assert equal(chunks, whole)
        assert np.concatenate([chunk.rows for chunk in chunks]).tolist() == list(range(1, 13))
        middle = chunks[len(chunks) // 2]
        rest = list(stream_tables(preprocessing, *parts, graphs=graphs, size=5, start=middle.end))
        assert equal(chunks[: len(chunks) // 2 + 1] + rest, whole)


def test_a_bad_graph_is_listed_and_the_others_are_read() -> None:
    nodes, edges, graphs = tables()
    preprocessing = load_tables(nodes, edges, graphs=graphs, target="y").details["preprocessing"]
    nodes["weight"] = nodes["weight"].astype(object)
    row = int((nodes["graph"] == "g3").to_numpy().argmax())
    nodes.loc[row, "weight"] = 1e99
    chunks = list(stream_tables(preprocessing, nodes, edges, graphs=graphs, size=8))
    assert [found[1] for chunk in chunks for found in chunk.bad] == [row + 1]
    assert np.concatenate([chunk.rows for chunk in chunks]).tolist() == [1, 2, 3, *range(5, 13)]


def test_tables_that_are_not_in_the_order_of_graphs_are_refused() -> None:
    nodes, edges, graphs = tables()
    preprocessing = load_tables(nodes, edges, graphs=graphs, target="y").details["preprocessing"]
    with pytest.raises(DataError, match=r"graph, row .*expected the rows of a graph together, got 'g0' again; sort"):
        list(stream_tables(preprocessing, pd.concat([nodes, nodes[:1]]), edges, graphs=graphs, size=4))
    with pytest.raises(DataError, match=r"expected edges of the graphs of the nodes, .* sort both tables alike"):
        list(stream_tables(preprocessing, nodes, edges[::-1], graphs=graphs, size=4))
    one = load_tables(
        nodes.drop(columns="graph").assign(id=range(len(nodes))), edges[["source", "target"]][:0], target="weight"
    ).details["preprocessing"]
    with pytest.raises(DataError, match="nodes: expected tables of many graphs"):
        stream_tables(one, nodes, edges)


def test_a_long_table_is_read_in_little_memory(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    preprocessing = of_molecules()
    frame = molecules(20)
    text = frame.to_csv(index=False)
    head, body = text.split("\n", 1)
    path = tmp_path / "long.csv"
    path.write_text(head + "\n" + body * 500)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = sum(len(chunk.rows) for chunk in stream_tables(preprocessing, path, size=500))
    assert count == 10_000
    # The graphs of all rows together take more than a hundred MB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
