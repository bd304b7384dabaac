"""Every format gives the same graph, keeps the ids, and refuses what is broken; nothing that is read runs code."""

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from sirgcn.data import archives
from sirgcn.data.graphs import Graphs
from sirgcn.data.tables import load_tables, text
from sirgcn.data.tables.columns import MISSING, Dropped
from sirgcn.data.tables.read import read_tables
from sirgcn.data.tables.roles import Tables
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError

pa = pytest.importorskip("pyarrow")

IDS = ["b", "a", "007", "NA", "7"]
NODES = pd.DataFrame({"id": IDS, "size": [1.0, 2.0, 3.0, 4.0, 6.0], "label": ["x", "y", "x", "y", "x"]})
EDGES = pd.DataFrame({"source": ["a", "007", "NA"], "target": ["b", "7", "NA"], "weight": [0.5, 1.5, 1.0]})
SPLIT = {"split": "split", "standardise": False}


def tables(nodes: Any, edges: Any = None, graphs: Any = None) -> Tables:
    return read_tables(nodes, edges, graphs, None, MISSING, Dropped())


def with_split(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(split=["train", "train", "val", "test", "test"])


def expect(task: Task) -> None:
    """The one graph that all formats of this test hold."""
    graphs = task.graphs
    assert list(task.details["ids"]) == IDS
    assert graphs.x.tolist() == [[1], [2], [3], [4], [6]]
    assert task.classes == ("x", "y")
    assert graphs.y.tolist() == [0, 1, 0, 1, 0]
    dense = torch.zeros(5, 5).index_put(tuple(graphs.edge_index), graphs.edge_attr[:, 0], accumulate=True)  # type: ignore[index]
    expected = torch.zeros(5, 5)
    expected[0, 1] = expected[1, 0] = 0.5
    expected[2, 4] = expected[4, 2] = 1.5
    expected[3, 3] = 1.0
    assert torch.equal(dense, expected)
    assert [part.tolist() for part in (task.splits[0].train, task.splits[0].val, task.splits[0].test)] == [
        [0, 1],
        [2],
        [3, 4],
    ]


class Interchange:
    """Nothing but the interchange protocol."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.table = pa.Table.from_pandas(frame)

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        return self.table.__dataframe__(nan_as_null, allow_copy)


class Stream:
    """Nothing but the Arrow stream."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.table = pa.Table.from_pandas(frame)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def written(folder: Path, form: str, frame: pd.DataFrame, name: str) -> Any:
    path = folder / f"{name}.{form}"
    if form in ("csv", "csv.gz"):
        frame.to_csv(path, index=False)
    elif form == "tsv":
        frame.to_csv(path, index=False, sep="\t")
    elif form == "parquet":
        frame.to_parquet(path)
    else:
        return {"frame": lambda f: f, "table": pa.Table.from_pandas, "interchange": Interchange, "stream": Stream}[
            form
        ](frame)
    return path


FORMS = ["csv", "csv.gz", "tsv", "parquet", "frame", "table", "interchange", "stream"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_gives_the_same_graph(tmp_path: Path, form: str) -> None:
    nodes, edges = written(tmp_path, form, with_split(NODES), "nodes"), written(tmp_path, form, EDGES, "edges")
    expect(load_tables(nodes, edges, target="label", **SPLIT))  # type: ignore[arg-type]


def graph_of_networkx() -> nx.Graph:
    graph = nx.Graph()
    for row in with_split(NODES).to_dict("records"):
        graph.add_node(row["id"], **{str(name): value for name, value in row.items() if name != "id"})
    for row in EDGES.to_dict("records"):
        graph.add_edge(row["source"], row["target"], weight=row["weight"])
    return graph


def test_a_networkx_graph_gives_the_same_graph() -> None:
    expect(load_tables(graph_of_networkx(), target="label", **SPLIT))  # type: ignore[arg-type]


def test_a_graphml_file_gives_the_same_graph(tmp_path: Path) -> None:
    nx.write_graphml_xml(graph_of_networkx(), tmp_path / "g.graphml")
    expect(load_tables(tmp_path / "g.graphml", target="label", **SPLIT))  # type: ignore[arg-type]


def test_networkx_nodes_of_any_type_keep_their_ids() -> None:
    graph = nx.DiGraph()
    graph.add_node((0, 1), label=True)
    graph.add_node("a", label=False)
    graph.add_node(5)
    graph.add_edge(5, (0, 1))
    task = load_tables(graph, target="label")
    assert list(task.details["ids"]) == [(0, 1), "a", 5]
    assert task.graphs.edge_index.tolist() == [[2], [0]]
    assert task.graphs.y.tolist() == [1, 0, -1]
    # An attribute that is called id does not replace the node.
    nx.set_node_attributes(graph, dict.fromkeys(graph, 9), "id")
    assert list(load_tables(graph, target="label").details["ids"]) == [(0, 1), "a", 5]


def test_networkx_nodes_that_read_alike_are_refused() -> None:
    graph = nx.Graph([(1, "1")])
    nx.set_node_attributes(graph, {1: "a", "1": "b"}, "label")
    with pytest.raises(DataError, match="id, row 2: expected every id once, got '1' in row 1 too"):
        load_tables(graph, target="label")


def data_of_pyg() -> Data:
    edge_index = torch.tensor([[0, 1, 2, 4, 3], [1, 0, 4, 2, 3]])
    masks = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1]], dtype=torch.bool)
    return Data(
        x=torch.tensor([[1.0], [2], [3], [4], [6]]),
        edge_index=edge_index,
        edge_attr=torch.tensor([[0.5], [0.5], [1.5], [1.5], [1.0]]),
        y=torch.tensor([0, 1, 0, 1, 0]),
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
    )


def test_a_graph_of_pyg_is_kept_as_it_is() -> None:
    data = data_of_pyg()
    task = load_tables(data, standardise=False)
    assert torch.equal(task.graphs.x, data.x)
    assert torch.equal(task.graphs.edge_index, data.edge_index)
    assert torch.equal(task.graphs.edge_attr, data.edge_attr)  # type: ignore[arg-type]
    assert torch.equal(task.graphs.y, data.y)
    assert task.classes == ("0", "1")
    assert task.splits[0].test.tolist() == [3, 4]


def test_whole_numbers_of_pyg_are_categories_and_minus_one_is_no_label() -> None:
    data = Data(
        x=torch.tensor([[5, 0], [7, 0], [5, 1]]), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([2, -1, 4])
    )
    task = load_tables(data, fractions=(1.0, 0.0, 0.0))
    assert task.schema.vocabularies == (2, 3)
    # The category 7 is not in training: it is the last, of other and missing values.
    assert task.graphs.x.tolist() == [[0, 0], [1, 0], [0, 1]]
    assert task.graphs.y.tolist() == [0, -1, 1]
    assert task.classes == ("2", "4")


def test_several_masks_are_several_splits() -> None:
    data = data_of_pyg()
    for name in ("train_mask", "val_mask", "test_mask"):
        data[name] = torch.stack([data[name], data[name].roll(1)], dim=1)
    task = load_tables(data)
    assert [split.val.tolist() for split in task.splits] == [[2], [3]]


def many_graphs() -> list[Data]:
    generator = torch.Generator().manual_seed(0)
    return [
        Data(
            x=torch.rand(size, 2, generator=generator),
            edge_index=torch.randint(size, (2, 4), generator=generator),
            y=torch.tensor([float(size)]),
        )
        for size in (3, 1, 2, 5)
    ]


def test_graphs_of_pyg_are_many_graphs() -> None:
    graphs = many_graphs()
    task = load_tables(graphs, task="regression", standardise=False)
    expected = Graphs.from_data(graphs, "graph")
    for name, tensor in expected.tensors().items():
        assert torch.equal(task.graphs.tensors()[name], tensor), name


@pytest.mark.parametrize("compressed", [False, True])
def test_a_saved_npz_gives_the_same_graph(tmp_path: Path, compressed: bool) -> None:
    data = data_of_pyg().to_dict()
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / "g.npz", **{name: tensor.numpy() for name, tensor in data.items()})
    first, second = load_tables(data_of_pyg()), load_tables(tmp_path / "g.npz")
    assert second.graphs.sha256() == first.graphs.sha256()
    assert torch.equal(second.splits[0].train, first.splits[0].train)


def test_a_saved_npz_of_many_graphs_has_pointers(tmp_path: Path) -> None:
    expected = Graphs.from_data(many_graphs(), "graph")
    (tmp_path / "g.npz").write_bytes(npz(**{name: tensor.numpy() for name, tensor in expected.tensors().items()}))
    task = load_tables(tmp_path / "g.npz", task="regression", standardise=False)
    assert task.graphs.sha256() == expected.sha256()


def test_the_heterophilous_layout_lists_an_edge_once(tmp_path: Path) -> None:
    masks = np.array([[1, 0, 0], [0, 1, 0]], dtype=bool)
    np.savez(
        tmp_path / "g.npz",
        node_features=np.array([[1, 0], [0, 1], [1, 1]]),
        node_labels=np.array([0, 1, 1]),
        edges=np.array([[0, 1], [1, 2]]),
        train_masks=masks,
        val_masks=np.roll(masks, 1, axis=1),
        test_masks=np.roll(masks, 2, axis=1),
    )
    task = load_tables(tmp_path / "g.npz", standardise=False)
    assert task.graphs.x.dtype == torch.float32
    assert task.graphs.edge_index.tolist() == [[0, 1, 1, 2], [1, 2, 0, 1]]
    assert [split.train.tolist() for split in task.splits] == [[0], [1]]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"edge_index": torch.tensor([[0], [5]])}, "edge_index"),
        ({"edge_index": torch.tensor([[0], [-1]])}, "edge_index"),
        ({"edge_index": torch.tensor([0, 1])}, "edge_index"),
        ({"edge_index": torch.tensor([[0.0], [1.0]])}, "edge_index"),
        ({"x": torch.full((5, 1), torch.nan)}, "x"),
        ({"x": torch.ones(5, 1, 1)}, "x"),
        ({"x": torch.tensor(1.0)}, "x"),
        ({"y": torch.ones(4)}, "y"),
        ({"y": "label"}, "y"),
        ({"edge_attr": torch.ones(3, 1)}, "edge_attr"),
        ({"train_mask": torch.ones(4, dtype=torch.bool)}, "train_mask"),
        ({"train_mask": torch.ones(5)}, "train_mask"),
        ({"train_mask": torch.ones(5, 2, dtype=torch.bool)}, "train_mask"),
    ],
)
def test_a_broken_graph_of_pyg_is_refused(change: dict[str, Any], field: str) -> None:
    data = data_of_pyg()
    for name, value in change.items():
        data[name] = value
    with pytest.raises(DataError) as refusal:
        load_tables(data)
    assert refusal.value.field == field


def npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def fail() -> None:
    raise AssertionError("a pickle ran")


class Boom:
    def __reduce__(self) -> Any:
        return fail, ()


def zip_of(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return out.getvalue()


def test_a_broken_npz_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "ARRAYS", archives.Limits(ratio=200, harmless=10**6))
    path = tmp_path / "g.npz"
    good = npz(x=np.ones((3, 1)), edge_index=np.zeros((2, 1), np.int64), y=np.array([0, 1, 1]))
    cases = {
        "empty": (b"", "npz"),
        "no zip": (b"x" * 100, "npz"),
        "cut": (good[:-30], "npz"),
        "a pickle": (npz(x=np.array([Boom()], dtype=object)), "npz"),
        "a bare pickle": (zip_of("x.npy", pickle.dumps(Boom())), "x"),
        "no arrays": (zip_of("a.txt", b"hello"), "x"),
        "a bomb": (zip_of("x.npy", bytes(10**7)), "size"),
        "no edges": (npz(x=np.ones((3, 1))), "edge_index"),
        "text": (npz(x=np.array(["a"]), edge_index=np.zeros((2, 0), np.int64)), "x"),
        "too large": (npz(x=np.ones((1, 1)), edge_index=np.full((2, 1), 2**63, np.uint64)), "edge_index"),
    }
    for name, (data, field) in cases.items():
        path.write_bytes(data)
        with pytest.raises(DataError) as refusal:
            load_tables(path)
        assert refusal.value.field == field, name
        assert refusal.value.source == str(path), name


GRAPHML = """<?xml version="1.0"?>{doctype}
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="k0" for="node" attr.name="label" attr.type="{type}"/>
<key id="k1" for="node" attr.name="size" attr.type="double"><default>2.5</default></key>
<key id="k2" for="node" yfiles.type="nodegraphics"/>
<graph edgedefault="directed">
<node id="a"><data key="k0">{label}</data><data key="{key}">1</data></node>
<node id="{second}"><data key="k0">y</data><data key="k2"><shape/></data></node>
{edge}
</graph></graphml>"""


def graphml(path: Path, **change: str) -> Path:
    values = {"doctype": "", "type": "string", "label": "x", "key": "k1", "second": "b"}
    values["edge"] = '<edge source="a" target="b"/>'
    (path / "g.graphml").write_text(GRAPHML.format(**values | change))
    return path / "g.graphml"


def test_graphml_keeps_types_defaults_and_direction(tmp_path: Path) -> None:
    task = load_tables(graphml(tmp_path), standardise=False, fractions=(1.0, 0.0, 0.0))
    assert task.graphs.x.tolist() == [[1.0], [2.5]]
    assert task.graphs.edge_index.tolist() == [[0], [1]]
    assert task.classes == ("x", "y")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"doctype": '<!DOCTYPE g [<!ENTITY a "aaaa">]>', "label": "&a;"}, "DOCTYPE"),
        ({"label": "&a;"}, "graphml"),
        ({"label": "<"}, "graphml"),
        ({"type": "double"}, "label"),
        ({"type": "nonsense"}, "label"),
        ({"key": "k9"}, "key"),
        ({"second": "a"}, "id"),
        ({"edge": '<edge source="a" target="c"/>'}, "target"),
        ({"edge": '<edge source="a"/>'}, "target"),
        ({"edge": '<edge source="a" target="b" directed="false"/>'}, "directed"),
        ({"edge": "<hyperedge/>"}, "hyperedge"),
        ({"edge": "<graph/>"}, "graph"),
        ({"edge": "</graph><graph>"}, "graph"),
    ],
)
def test_broken_graphml_is_refused(tmp_path: Path, change: dict[str, str], field: str) -> None:
    path = graphml(tmp_path, **change)
    with pytest.raises(DataError) as refusal:
        load_tables(path, target="label")
    assert refusal.value.field == field
    assert str(path) in str(refusal.value)


def test_many_entities_cost_nothing(tmp_path: Path) -> None:
    bomb = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10 if i else "ha"}">' for i in range(30))
    with pytest.raises(DataError, match="document type"):
        tables(graphml(tmp_path, doctype=f"<!DOCTYPE g [{bomb}]>", label="&a29;"))


def test_a_broken_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nodes.parquet"
    path.write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(DataError, match="expected a Parquet file"):
        tables(path)


def test_parquet_keeps_large_ids_beside_a_gap_and_lists(tmp_path: Path) -> None:
    table = pa.table({"id": [2**62 + 1, 2**62], "v": [[1.0, 2.0], None], "n": pa.array([1, None], pa.int64())})
    pa.parquet.write_table(table, tmp_path / "n.parquet")
    nodes = tables(tmp_path / "n.parquet").nodes
    assert nodes is not None
    assert nodes.ids("id")[0].objects().tolist() == [str(2**62 + 1), str(2**62)]
    assert nodes.kind("v") == "list"
    np.testing.assert_array_equal(nodes.numbers("n"), [1, np.nan])


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(TypeError, match="nodes: expected a path, a data frame or a graph, got int"):
        tables(5)
    with pytest.raises(DataError, match=r"ends in one of \.csv"):
        tables("nodes.xlsx")
    with pytest.raises(DataError, match="edges: expected none beside a source"):
        tables(data_of_pyg(), EDGES)
    with pytest.raises(DataError, match="nodes: expected at least one graph"):
        tables([])


def test_without_pyarrow_what_needs_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    NODES.to_parquet(tmp_path / "n.parquet")
    monkeypatch.setattr(text, "pa", None)
    for source in (tmp_path / "n.parquet", Interchange(NODES), Stream(NODES)):
        with pytest.raises(DataError, match=r"needs pyarrow: pip install 'sirgcn\[data\]'"):
            tables(source)
    expect(load_tables(with_split(NODES), EDGES, target="label", **SPLIT))  # type: ignore[arg-type]
