"""Graphs, tasks and tables, most of them broken in one or two ways. This module does not import the package."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch

Rng = np.random.Generator


@dataclass
class Case:
    """The input of a reader: tensors (`graphs`, `task`), files by name (`text`, `npz`, `graphml`), or frames."""

    source: str
    given: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


SHARES = {"graphs": 0.49, "task": 0.25, "text": 0.13, "frames": 0.05, "many": 0.03, "npz": 0.03, "graphml": 0.02}


def draw_cases(count: int, seed: int) -> Iterator[Case]:
    """Yield this many cases; the same seed gives the same cases."""
    rng = np.random.default_rng(seed)
    draw = {
        "graphs": draw_graphs,
        "task": draw_task,
        "text": draw_text,
        "frames": draw_frames,
        "many": draw_many,
        "npz": draw_npz,
        "graphml": draw_graphml,
    }
    for _ in range(count):
        yield draw[rng.choice(list(SHARES), p=list(SHARES.values()))](rng)


def one_of(rng: Rng, values: Any) -> Any:
    """Return one of the values, whatever its type."""
    return values[int(rng.integers(len(values)))]


Ways = Mapping[str, Callable[[Rng, dict[str, Any]], None]]
"""Ways to break what is given, by name."""


def break_often(rng: Rng, case: Case, ways: Ways) -> Case:
    """Break nothing in three cases of ten, break one thing in five, and two in two."""
    for _ in range(int(rng.choice(3, p=[0.3, 0.5, 0.2]))):
        name = one_of(rng, list(ways))
        ways[name](rng, case.given)
        case.broken.append(name)
    return case


# Tensors


def plain_graphs(rng: Rng, level: str | None = None) -> dict[str, Any]:
    """Return the arguments of valid graphs."""
    sizes = rng.integers(1, 5, int(rng.integers(1, 4)))
    counts = rng.integers(0, 6, len(sizes))
    first = np.concatenate([[0], sizes.cumsum()])
    ends = [rng.integers(low, low + size, (2, n)) for low, size, n in zip(first, sizes, counts, strict=False)]
    nodes, edges = int(sizes.sum()), int(counts.sum())
    level = level or one_of(rng, ["node", "edge", "graph"])
    rows = {"node": nodes, "edge": edges, "graph": len(sizes)}[level]
    given: dict[str, Any] = {
        "x": inputs(rng, nodes),
        "edge_index": torch.from_numpy(np.concatenate(ends, axis=1)),
        "y": targets(rng, rows),
        "level": level,
    }
    if rng.random() < 0.4:
        given["edge_attr"] = inputs(rng, edges)
    if rng.random() < 0.3:
        given["pe"] = torch.from_numpy(rng.normal(size=(nodes, 2))).float()
    if len(sizes) > 1 or rng.random() < 0.2:
        given["node_ptr"] = torch.from_numpy(first)
        given["edge_ptr"] = torch.from_numpy(np.concatenate([[0], counts.cumsum()]))
    return given


def inputs(rng: Rng, rows: int) -> torch.Tensor:
    """Return features or categories."""
    if rng.random() < 0.5:
        return torch.from_numpy(rng.integers(0, 3, (rows, 2)))
    return torch.from_numpy(rng.normal(size=(rows, 2))).to(one_of(rng, [torch.float32, torch.float64]))


def targets(rng: Rng, rows: int) -> torch.Tensor:
    """Return classes, numbers or several numbers, some of them missing."""
    form = int(rng.integers(3))
    if form == 0:
        return torch.from_numpy(rng.integers(-1, 3, rows))
    y = rng.normal(size=(rows, 2) if form == 2 else rows)
    y[rng.random(y.shape) < 0.2] = np.nan
    return torch.from_numpy(y).float()


TENSORS = ("x", "edge_index", "y", "edge_attr", "pe", "node_ptr", "edge_ptr")
DTYPES = (torch.float16, torch.int32, torch.bool, torch.complex64, torch.float64, torch.int64, torch.uint8)
ENTRIES = (-1, -2, 0, 1, 4, 99, 2**40, 2**62, float("nan"), float("inf"), -float("inf"))


def some_tensor(rng: Rng, given: dict[str, Any]) -> str:
    """Return the name of a tensor that is set."""
    return one_of(rng, [name for name in TENSORS if isinstance(given.get(name), torch.Tensor)] or ["x"])


def change_dtype(rng: Rng, given: dict[str, Any]) -> None:
    name = some_tensor(rng, given)
    if isinstance(given[name], torch.Tensor) and not given[name].is_complex():
        given[name] = torch.nan_to_num(given[name].float()).to(one_of(rng, DTYPES))


def change_shape(rng: Rng, given: dict[str, Any]) -> None:
    name = some_tensor(rng, given)
    tensor = given[name]
    if isinstance(tensor, torch.Tensor) and tensor.dim():
        ways = (tensor[None], tensor[:-1], tensor[1:], torch.cat([tensor, tensor]), tensor.reshape(-1), tensor.sum())
        given[name] = one_of(rng, [*ways, tensor.mT if tensor.dim() > 1 else tensor[:0]])


def change_entry(rng: Rng, given: dict[str, Any]) -> None:
    name = some_tensor(rng, given)
    tensor = given[name]
    if (
        isinstance(tensor, torch.Tensor)
        and tensor.numel()
        and tensor.dtype in (torch.int64, torch.float32, torch.float64)
    ):
        value = one_of(rng, ENTRIES)
        if tensor.is_floating_point() or np.isfinite(value):
            tensor = tensor.clone(memory_format=torch.contiguous_format)
            tensor.view(-1)[int(rng.integers(tensor.numel()))] = value
            given[name] = tensor


def no_tensor(rng: Rng, given: dict[str, Any]) -> None:
    name = one_of(rng, TENSORS)
    given[name] = one_of(rng, [None, "x", 3, [1, 2], np.ones((2, 2)), object()])


def change_level(rng: Rng, given: dict[str, Any]) -> None:
    given["level"] = one_of(rng, ["node", "edge", "graph", "nodes", "", None, 3, ["node"]])


TENSOR_WAYS = {
    "dtype": change_dtype,
    "shape": change_shape,
    "entry": change_entry,
    "no tensor": no_tensor,
    "level": change_level,
}


def draw_graphs(rng: Rng) -> Case:
    """Draw arguments of `Graphs`."""
    return break_often(rng, Case("graphs", plain_graphs(rng)), TENSOR_WAYS)


def draw_task(rng: Rng) -> Case:
    """Draw arguments of `Graphs`, and those of `Task`."""
    given = plain_graphs(rng)
    y = given["y"]
    over_graphs = len(given.get("node_ptr", [0, 0])) > 2 or given["level"] == "graph"
    rows = len(given["node_ptr"]) - 1 if over_graphs and "node_ptr" in given else 1 if over_graphs else len(y)
    order = torch.from_numpy(rng.permutation(rows))
    classes = not y.is_floating_point()
    given |= {
        "schema": {
            **width("", given["x"]),
            **width("edge_", given.get("edge_attr")),
            "encodings": 2 if "pe" in given else 0,
            "outputs": 3 if classes else 2 if y.dim() == 2 else 1,
        },
        "splits": [
            [order[: (rows + 1) // 2], order[(rows + 1) // 2 : (3 * rows + 3) // 4], order[(3 * rows + 3) // 4 :]]
        ],
        "loss": "cross_entropy" if classes else "l1",
        "metric": "accuracy" if classes else "mae",
    }
    return break_often(rng, Case("task", given), {"schema": change_schema, "split": change_split, "name": change_name})


def width(prefix: str, tensor: torch.Tensor | None) -> dict[str, Any]:
    """Return the width of inputs in a schema."""
    if tensor is None:
        return {}
    return {f"{prefix}features": 2} if tensor.is_floating_point() else {f"{prefix}vocabularies": (3, 3)}


def change_schema(rng: Rng, given: dict[str, Any]) -> None:
    name = one_of(rng, ["features", "vocabularies", "edge_features", "edge_vocabularies", "encodings", "outputs"])
    given["schema"][name] = one_of(rng, [(), (3,), (3, 3), (2, 3)] if "vocab" in name else [0, 1, 2, 3])


def change_split(rng: Rng, given: dict[str, Any]) -> None:
    if not given["splits"] or rng.random() < 0.1:
        given["splits"] = []
        return
    part = int(rng.integers(3))
    tensor = given["splits"][0][part]
    if not isinstance(tensor, torch.Tensor):
        return
    ways = [tensor.float(), tensor[None], torch.cat([tensor, tensor]), tensor[:0], tensor + 1, tensor - 1, None, [0]]
    given["splits"][0][part] = one_of(rng, ways)


def change_name(rng: Rng, given: dict[str, Any]) -> None:
    name = one_of(rng, ["loss", "metric"])
    given[name] = one_of(rng, ["", "cross_entropy", "l1", "mae", "accuracy", "binary_cross_entropy", None, 1])


# Tables

IDS = ["a", "b", "7", "007", "NA", "Ä", "x y", "1e3", "n,1", 'q"q']
CELLS = [
    *("", "NA", " ", "inf", "nan", "1e39", "1e400", "-1e-400", "abc", "007", "١٢", "1_000", "0x1F", "+5", "5.", ".5"),
    *("[1, 2]", "2024-01-31", "true", "False", "1.0", "zz", "a", "9" * 40, "x" * 3000, "a,b", 'a"b', "a\nb", "ü"),
    *("red ", "\u00a0blue", "a ", "\u00a0", "\u200b ", "3,14", "-1,5", "5 €", "7 % "),
]


def node_rows(rng: Rng) -> list[dict[str, str]]:
    """Return valid rows of nodes: an id, numbers, categories, a label, and in some cases a split."""
    count = int(rng.integers(3, 9))
    ids = rng.permutation(IDS)[:count].tolist()
    rows = [
        {
            "id": name,
            "num": repr(round(float(rng.normal()), 3)),
            "cat": one_of(rng, ["red", "blue", "green"]),
            "label": "ab"[place % 2] if place < 2 else one_of(rng, ["a", "b", "c", ""]),
        }
        for place, name in enumerate(ids)
    ]
    if rng.random() < 0.3:
        for row in rows:
            row["num"] = row["num"] if rng.random() < 0.7 else one_of(rng, ["", "NA"])
    if rng.random() < 0.4:
        for place, row in enumerate(rows):
            row["split"] = "train" if place < 2 else one_of(rng, ["train", "Valid", "test", ""])
    return rows


def edge_rows(rng: Rng, ids: list[str]) -> list[dict[str, str]]:
    """Return valid rows of edges."""
    weighted = rng.random() < 0.5
    rows = [{"source": one_of(rng, ids), "target": one_of(rng, ids)} for _ in range(int(rng.integers(0, 9)))]
    return [row | ({"weight": str(int(rng.integers(9)))} if weighted else {}) for row in rows]


def written(rows: list[list[str]], delimiter: str = ",", newline: str = "\n") -> bytes:
    """Return the rows as a text file."""
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=newline).writerows(rows)
    return out.getvalue().encode()


def some_file(rng: Rng, given: dict[str, Any]) -> str:
    return one_of(rng, list(given))


def change_cell(rng: Rng, given: dict[str, Any]) -> None:
    rows = given[some_file(rng, given)]
    if isinstance(rows, list) and len(rows) > 1 and rows[0]:
        row = one_of(rng, rows[1:])
        if row:
            row[int(rng.integers(len(row)))] = one_of(rng, CELLS)


def change_row(rng: Rng, given: dict[str, Any]) -> None:
    rows = given[some_file(rng, given)]
    if isinstance(rows, list) and len(rows) > 1:
        place = int(rng.integers(1, len(rows)))
        way = int(rng.integers(6))
        if way == 0:
            rows[place] = rows[place][:-1]
        elif way == 1:
            rows[place] = [*rows[place], "extra"]
        elif way == 2:
            rows.insert(place, list(rows[place]))
        elif way == 3:
            rows.insert(place, [])
        elif way == 4:
            del rows[place]
        else:
            del rows[1:]


def change_header(rng: Rng, given: dict[str, Any]) -> None:
    rows = given[some_file(rng, given)]
    if isinstance(rows, list) and rows and rows[0]:
        place = int(rng.integers(len(rows[0])))
        word = rows[0][place]
        rows[0][place] = one_of(rng, ["", rows[0][0], word.upper(), f" {word}", "zz", "1", "Ö"])
        if rng.random() < 0.1:
            rows[0][:] = [str(number) for number in range(len(rows[0]))]


def change_bytes(rng: Rng, given: dict[str, Any]) -> None:
    """Change bytes of a file, which is bytes from here on."""
    name = some_file(rng, given)
    data = bytearray(given[name] if isinstance(given[name], bytes) else written(given[name]))
    way = int(rng.integers(8))
    place = int(rng.integers(len(data))) if data else 0
    if way == 0:
        data[:0] = b"\xef\xbb\xbf"
    elif way == 1 and data:
        data[place] = int(rng.integers(256))
    elif way == 2:
        del data[place:]
    elif way == 3:
        data[:] = data.decode("utf-8", "replace").encode("utf-16")
    elif way == 4:
        data[place:place] = one_of(rng, [b"\0", b"\xff", b'"', b"\n", b"\r", b",", b"\xc3", b'""', b'"\n'])
    elif way == 5:
        data[:] = bytes(data).replace(b"\n", one_of(rng, [b"\r\n", b"\r", b"\n\n"]))
    elif way == 6:
        data.clear()
    else:
        data[:] = bytes(rng.integers(0, 256, 40, dtype=np.uint8))
    given[name] = bytes(data)


def draw_text(rng: Rng) -> Case:
    """Draw two text files."""
    nodes = node_rows(rng)
    edges = edge_rows(rng, [row["id"] for row in nodes])
    given: dict[str, Any] = {
        "nodes.csv": [list(nodes[0]), *(list(row.values()) for row in nodes)],
        "edges.csv": [list(edges[0]) if edges else ["source", "target"], *(list(row.values()) for row in edges)],
    }
    ways = {"cell": change_cell, "row": change_row, "header": change_header, "bytes": change_bytes}
    case = break_often(rng, Case("text", given, {"directed": bool(rng.random() < 0.5)}), ways)
    case.given = {name: data if isinstance(data, bytes) else written(data) for name, data in given.items()}
    return case


OBJECTS = [
    None,
    float("nan"),
    float("inf"),
    10**400,
    1e39,
    True,
    3,
    2.5,
    "3",
    "",
    "zz",
    " zz\u00a0",
    " ",
    "3,14",
    "5 €",
    (1, 2),
    [1, 2],
    {"a": 1},
    b"x",
    1j,
]


def change_object(rng: Rng, given: dict[str, Any]) -> None:
    columns = given[some_file(rng, given)]
    name = one_of(rng, list(columns))
    if columns[name]:
        columns[name][int(rng.integers(len(columns[name])))] = one_of(rng, OBJECTS)


def change_column(rng: Rng, given: dict[str, Any]) -> None:
    columns = given[some_file(rng, given)]
    name = one_of(rng, list(columns))
    way = int(rng.integers(3))
    if way == 0:
        columns[name] = [one_of(rng, OBJECTS)] * len(columns[name])
    elif way == 1:
        del columns[name]
    else:
        for values in columns.values():
            values[:] = values + values[:1]


def draw_frames(rng: Rng) -> Case:
    """Draw two pandas frames of Python objects."""
    rows = node_rows(rng)
    ids: list[Any] = [row["id"] for row in rows]
    if rng.random() < 0.5:
        ids = rng.permutation(20)[: len(rows)].tolist()
    ends = [[one_of(rng, ids) for _ in range(5)] for _ in range(2)]
    nodes = {"id": ids, "num": [float(row["num"]) if row["num"] not in ("", "NA") else None for row in rows]}
    nodes |= {name: [row[name] or None for row in rows] for name in ("cat", "label")}
    given = {"nodes": nodes, "edges": {"source": ends[0], "target": ends[1], "flag": [True, False, True, True, False]}}
    ways = {"object": change_object, "column": change_column}
    case = break_often(rng, Case("frames", given, {"directed": bool(rng.random() < 0.5)}), ways)
    case.given = {name: as_frame(columns) for name, columns in given.items()}
    return case


def draw_many(rng: Rng) -> Case:
    """Draw frames of several graphs, with the target in a table of graphs."""
    names = rng.permutation(["p", "q", "r", "s"])[: int(rng.integers(2, 5))].tolist()
    graph = [*names, *(one_of(rng, names) for _ in range(4))]
    seen: dict[str, int] = {}
    ids = [seen.setdefault(name, 0) or seen[name] for name in graph]
    for place, name in enumerate(graph):
        ids[place] = seen[name]
        seen[name] += 1
    edges = [(name, int(rng.integers(seen[name])), int(rng.integers(seen[name]))) for name in graph]
    order = rng.permutation(len(graph)).tolist()
    given: dict[str, Any] = {
        "nodes": {"graph": [graph[i] for i in order], "id": [ids[i] for i in order], "num": [float(i) for i in order]},
        "edges": {"graph": [e[0] for e in edges], "source": [e[1] for e in edges], "target": [e[2] for e in edges]},
        "graphs": {"graph": names, "label": ["ab"[place % 2] for place in range(len(names))]},
    }
    ways = {"object": change_object, "column": change_column}
    case = break_often(rng, Case("many", given, {"directed": bool(rng.random() < 0.5)}), ways)
    case.given = {name: as_frame(columns) for name, columns in given.items()}
    return case


def as_frame(columns: dict[str, list[Any]]) -> pd.DataFrame:
    """Return a frame of Python objects without converting them."""
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})


# Whole graphs in files


def draw_npz(rng: Rng) -> Case:
    """Draw a saved graph; in some cases, bytes of the file are changed."""
    given = {name: value for name, value in plain_graphs(rng, "node").items() if name not in ("level", "pe")}
    given["x"] = given["x"].double()
    given["y"] = torch.from_numpy(rng.integers(0, 3, len(given["x"])))
    ways = {name: TENSOR_WAYS[name] for name in ("dtype", "shape", "entry")}
    case = break_often(rng, Case("npz", given), ways)
    arrays: dict[str, Any] = {
        name: tensor.numpy() for name, tensor in case.given.items() if isinstance(tensor, torch.Tensor)
    }
    out = io.BytesIO()
    (np.savez_compressed if rng.random() < 0.5 else np.savez)(out, **arrays)
    data = bytearray(out.getvalue())
    if rng.random() < 0.3:
        case.broken.append("bytes")
        if rng.random() < 0.3:
            del data[int(rng.integers(len(data))) :]
        else:
            data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    case.given = {"arrays": arrays, "g.npz": bytes(data)}
    return case


GRAPHML_CELLS = [
    "",
    " ",
    "3,14",
    "<",
    "&amp;",
    "&x;",
    "NaN",
    "1e400",
    "true",
    "<data/>",
    "x",
    "</node>",
    "&#0;",
    "<!-- c -->2",
]


def draw_graphml(rng: Rng) -> Case:
    """Draw a GraphML file whose text is changed in places."""
    rows = node_rows(rng)
    ids = [row["id"] for row in rows]
    if rng.random() < 0.1:
        ids[-1] = ids[0]
    declared = one_of(rng, ["double", "int", "float", "string", "boolean", "date"]) if rng.random() < 0.2 else "double"
    escape = {"&": "&amp;", '"': "&quot;", "<": "&lt;"}
    names = ["".join(escape.get(letter, letter) for letter in name) for name in ids]
    numbers = [row["num"] for row in rows]
    if rng.random() < 0.3:
        numbers[0] = one_of(rng, GRAPHML_CELLS)
    ends = [(one_of(rng, names), one_of(rng, names)) for _ in range(int(rng.integers(0, 6)))]
    if rng.random() < 0.1:
        ends.append((names[0], "nobody"))
    head = '<!DOCTYPE g [<!ENTITY x "1">]>' if rng.random() < 0.1 else ""
    nodes = "".join(
        f'<node id="{name}"><data key="l">{row["label"]}</data><data key="n">{number}</data></node>'
        for name, row, number in zip(names, rows, numbers, strict=True)
    )
    edges = "".join(f'<edge source="{u}" target="{v}"/>' for u, v in ends)
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>{head}<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        f'<key id="l" for="node" attr.name="label" attr.type="string"/>'
        f'<key id="n" for="node" attr.name="num" attr.type="{declared}"/>'
        f'<graph edgedefault="{one_of(rng, ["directed", "undirected"])}">{nodes}{edges}</graph></graphml>'
    )
    data = bytearray(text.encode())
    if rng.random() < 0.3:
        place = int(rng.integers(len(data)))
        if rng.random() < 0.5:
            data[place] = int(rng.integers(256))
        else:
            del data[place : place + int(rng.integers(1, 20))]
    return Case("graphml", {"g.graphml": bytes(data)})
