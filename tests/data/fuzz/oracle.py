"""The plainest reader of a case: it returns dense float64 matrices, uses loops over Python values, or refuses the case.

It is written from the documentation and does not import the package. A difference is a mistake in one of them.
"""

import itertools
import math
import re
from dataclasses import dataclass, field
from typing import Any
from xml.dom import minidom
from xml.parsers.expat import ExpatError

import numpy as np
import torch

MISSING = frozenset(["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"])
SPACE = "".join(filter(str.isspace, map(chr, range(0x110000)))) + "\u200b\u200e\u200f\u2060\ufeff"
ODD = re.compile(r"-?[0-9]+,[0-9]+|5 €|7 %")  # all that are drawn
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
LARGEST = float(np.finfo(np.float32).max)
FLOATS = (torch.float32, torch.float64)


class Refused(Exception):
    """The case must be refused."""


class Unsure(Exception):
    """The case may be refused or not: the oracle does not decide it."""


@dataclass
class Expected:
    """A dense graph: the number of edges between any two nodes, features, classes by name (None: no label), and ids.

    Features depend on the training rows, which a reader draws: `features(training)`.
    """

    adjacency: np.ndarray[Any, Any]
    columns: list[tuple[str, list[Any]]]
    labels: list[str | None]
    ids: list[str]
    graphs: list[int] | None = None
    splits: list[str | None] | None = None


# Tensors


def graph_problems(given: dict[str, Any]) -> set[str]:
    """Return the fields of `Graphs` that are wrong."""
    bad = set()
    level: Any = given.get("level")
    if not isinstance(level, str) or level not in ("node", "edge", "graph"):
        bad.add("level")
    x: Any = given.get("x")
    edge_index: Any = given.get("edge_index")
    nodes = edges = graphs = None
    if not is_tensor(x, 2, (*FLOATS, torch.int64)) or len(x) == 0 or not_finite(x):
        bad.add("x")
    if is_tensor(x, 2):
        nodes = len(x)
    if not is_tensor(edge_index, 2, (torch.int64,)) or len(edge_index) != 2:
        bad.add("edge_index")
    else:
        edges = edge_index.size(1)
        if nodes is None or any(not 0 <= end < nodes for end in edge_index.reshape(-1).tolist()):
            bad.add("edge_index")
    for name, rows, dtypes in (("edge_attr", edges, (*FLOATS, torch.int64)), ("pe", nodes, FLOATS)):
        tensor = given.get(name)
        if tensor is not None and (not is_tensor(tensor, 2, dtypes) or len(tensor) != rows or not_finite(tensor)):
            bad.add(name)
    node_ptr, edge_ptr = given.get("node_ptr"), given.get("edge_ptr")
    if node_ptr is None and edge_ptr is None:
        graphs = 1
    elif node_ptr is None or edge_ptr is None:
        bad.add("node_ptr")
    else:
        bad |= {
            name for name, total in (("node_ptr", nodes), ("edge_ptr", edges)) if not is_pointer(given[name], total)
        }
        if not {"node_ptr", "edge_ptr"} & bad:
            graphs = len(node_ptr) - 1
            if len(edge_ptr) != len(node_ptr):
                bad.add("edge_ptr")
            elif "edge_index" not in bad:
                bad |= crossing(edge_index.tolist(), node_ptr.tolist(), edge_ptr.tolist())
    rows = {"node": nodes, "edge": edges, "graph": graphs}.get(level) if "level" not in bad else None
    if not is_target(given.get("y"), rows):
        bad.add("y")
    return bad


def is_tensor(value: Any, dim: int, dtypes: tuple[torch.dtype, ...] | None = None) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == dim and (dtypes is None or value.dtype in dtypes)


def not_finite(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and any(not math.isfinite(value) for value in tensor.reshape(-1).tolist())


def is_pointer(pointer: Any, total: int | None) -> bool:
    if not is_tensor(pointer, 1, (torch.int64,)) or len(pointer) < 2:
        return False
    values = pointer.tolist()
    return values[0] == 0 and values[-1] == total and all(a <= b for a, b in itertools.pairwise(values))


def crossing(edge_index: list[list[int]], node_ptr: list[int], edge_ptr: list[int]) -> set[str]:
    for graph, (first, last) in enumerate(itertools.pairwise(edge_ptr)):
        for edge in range(first, last):
            if any(not node_ptr[graph] <= ends[edge] < node_ptr[graph + 1] for ends in edge_index):
                return {"edge_index"}
    return set()


def is_target(y: Any, rows: int | None) -> bool:
    if not isinstance(y, torch.Tensor) or y.dim() not in (1, 2) or len(y) != rows:
        return False
    if y.dtype in FLOATS:
        return not any(math.isinf(value) for value in y.reshape(-1).tolist())
    return y.dtype == torch.int64 and y.dim() == 1 and all(value >= -1 for value in y.tolist())


LOSSES = {"cross_entropy", "weighted_cross_entropy", "log_cross_entropy"}, {"binary_cross_entropy", "l1", "mse"}
METRICS = {"accuracy", "class_accuracy", "f1", "roc_auc", "average_precision"}, {"mae", "mse"}


def task_problems(given: dict[str, Any]) -> set[str]:
    """Return the fields of `Task` that are wrong, for valid graphs."""
    bad = set()
    schema, y = given["schema"], given["y"]
    classes = not y.is_floating_point()
    if given["loss"] not in LOSSES[0 if classes else 1]:
        bad.add("loss")
    bad |= metric_problems(given["metric"], y, schema["outputs"])
    for name, prefix in (("x", ""), ("edge_attr", "edge_")):
        width, sizes = schema.get(f"{prefix}features", 0), schema.get(f"{prefix}vocabularies", ())
        if not fits_schema(given.get(name), width, sizes):
            bad.add(name)
    if schema["encodings"] != (2 if "pe" in given else 0):
        bad.add("pe")
    outputs = schema["outputs"]
    if any(value >= outputs for value in y.tolist()) if classes else outputs != (2 if y.dim() == 2 else 1):
        bad.add("y")
    return bad | split_problems(given)


def metric_problems(metric: Any, y: torch.Tensor, outputs: int) -> set[str]:
    classes = not y.is_floating_point()
    if metric not in METRICS[0]:
        return set() if metric in METRICS[1] and not classes else {"metric"}
    known = {value for value in y.reshape(-1).tolist() if (value >= 0 if classes else not math.isnan(value))}
    bad = {"y"} if len(known) == 1 or (not classes and not known <= {0, 1}) else set()
    return bad | ({"metric"} if classes and outputs != 2 and metric in ("roc_auc", "average_precision") else set())


def fits_schema(tensor: Any, width: int, sizes: tuple[int, ...]) -> bool:
    if tensor is None:
        return not width and not sizes
    if tensor.is_floating_point():
        return bool(tensor.size(1) == width and not sizes)
    return (
        not width
        and tensor.size(1) == len(sizes)
        and all(v < size for row in tensor.tolist() for v, size in zip(row, sizes, strict=True))
    )


def split_problems(given: dict[str, Any]) -> set[str]:
    if not given["splits"]:
        return {"splits"}
    labelled = label_rows(given)
    bad: set[str] = set()
    seen: set[int] = set()
    for name, part in zip(("train", "val", "test"), given["splits"][0], strict=True):
        where = f"splits[0].{name}"
        if not is_tensor(part, 1, (torch.int64,)) or any(not 0 <= item < len(labelled) for item in part.tolist()):
            bad.add(where)
            continue
        items = part.tolist()
        if len(set(items)) < len(items) or seen & set(items):
            bad.add("splits[0]")
        seen |= set(items)
        if (name == "train" and not items) or (items and not any(labelled[item] for item in items)):
            bad.add(where)
    return bad


def label_rows(given: dict[str, Any]) -> list[bool]:
    """Return which items of a split have a label."""
    y = given["y"]
    values = [row if isinstance(row, list) else [row] for row in y.tolist()]
    rows = [any(not math.isnan(v) if y.is_floating_point() else v >= 0 for v in row) for row in values]
    pointer = given.get({"node": "node_ptr", "edge": "edge_ptr"}.get(given["level"], ""))
    if pointer is None or len(pointer) <= 2:
        return rows
    ends = pointer.tolist()
    return [any(rows[a:b]) for a, b in itertools.pairwise(ends)]


# Tables: rows of Python's strings (of a text file) or objects


@dataclass
class Table:
    """A table. With `text`, its values are the texts of a file, and `words` and blanks stand for missing values."""

    columns: dict[str, list[Any]]
    rows: int
    text: bool
    words: frozenset[str] = frozenset()
    types: dict[str, str] = field(default_factory=dict)

    def missing(self, value: Any) -> bool:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return True
        return isinstance(value, str) and value.strip(SPACE) in {"", *self.words}

    def called(self, *names: str) -> str | None:
        """Return the first column with such a name; letter case and white space around it make no difference."""
        return next((column for name in names for column in self.columns if column.strip().lower() == name), None)


def read_text(data: bytes) -> Table:
    """Read a text file by RFC 4180, one character at a time."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            data = data.decode("utf-16").encode("utf-8")
        except UnicodeError:
            raise Refused from None
    if b"\0" in data:
        raise Refused
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused from None
    found = records(text)
    if not found:
        raise Refused
    header, *rows = found
    names = [name.strip() for name in header]
    counts = all(row[0] == str(place) for place, row in enumerate(rows))
    if len(names) > 1 and names[0] == "" and "Unnamed: 0" not in names and counts:
        # An index that pandas has written.
        names[0] = "Unnamed: 0"
    if "" in names or len(set(names)) < len(names) or all(NUMBER.fullmatch(name) for name in names):
        raise Refused
    if any(len(row) != len(names) for row in rows):
        raise Refused
    return Table({name: [row[place] for row in rows] for place, name in enumerate(names)}, len(rows), True, MISSING)


def records(text: str) -> list[list[str]]:
    found: list[list[str]] = []
    row: list[str] = []
    place = 0
    while place < len(text):
        if text[place] == '"':
            end, value = place + 1, ""
            while True:
                close = text.find('"', end)
                if close < 0:
                    raise Refused
                value += text[end:close]
                if text[close + 1 : close + 2] != '"':
                    break
                value, end = value + '"', close + 2
            place, quoted = close + 1, True
            if text[place : place + 1] not in ("", ",", "\n", "\r"):
                raise Refused
        else:
            end = place
            while text[end : end + 1] not in ("", ",", "\n", "\r"):
                end += 1
            value, place, quoted = text[place:end], end, False
            if '"' in value:
                raise Refused
        row.append(value)
        if text[place : place + 1] == ",":
            place += 1
            if place < len(text):
                continue
            row.append("")
        else:
            place += 2 if text[place : place + 2] == "\r\n" else 1
        if row != [""] or quoted:
            found.append(row)
        row = []
    return found


def as_id(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def ids_of(table: Table, column: str | None) -> list[str]:
    if column is None:
        if table.text:
            raise Refused
        return [str(row) for row in range(table.rows)]
    values = table.columns[column]
    if any(value is None or (isinstance(value, float) and math.isnan(value)) for value in values):
        raise Refused
    found = [as_id(value) for value in values]
    if any(not value.strip(SPACE) for value in found):
        raise Refused
    return found


def type_of(table: Table, column: str) -> str | None:
    """Return numeric, boolean or categorical; None if there is no value."""
    if column in table.types:
        return table.types[column]
    here = [value for value in table.columns[column] if not table.missing(value)]
    if not here:
        return None
    if not table.text:
        types = {bool if isinstance(v, bool) else float if isinstance(v, int | float) else type(v) for v in here}
        if types <= {list, tuple}:
            raise Unsure
        if len(types) > 1 or not types <= {bool, float, str}:
            raise Refused
        if types == {str} and looks_like_numbers([value.strip(SPACE) for value in here], True):
            raise Refused
        return {bool: "boolean", float: "numeric", str: "categorical"}[types.pop()]
    stripped = [value.strip(SPACE) for value in here]
    numbers = [NUMBER.fullmatch(value) is not None for value in stripped]
    if all(numbers):
        return "numeric"
    if all(value in ("true", "True", "TRUE", "false", "False", "FALSE") for value in stripped):
        return "boolean"
    if all(value.startswith("[") for value in stripped) or all(
        value[:2] == "20" and "-" in value for value in stripped
    ):
        raise Unsure
    if looks_like_numbers(stripped, False):
        raise Refused
    others = {value.lstrip("+-") for value, fits in zip(stripped, numbers, strict=True) if not fits}
    if any(numbers) and others <= {"inf", "Inf", "INF", "infinity", "Infinity", "INFINITY"}:
        raise Refused
    return "categorical"


def looks_like_numbers(values: list[str], is_typed: bool) -> bool:
    """Return whether nearly all texts are numbers, in any form; in a typed column, plain numbers alone are codes."""
    numbers, odd = (sum(form.fullmatch(value) is not None for value in values) for form in (NUMBER, ODD))
    return numbers + odd >= 0.9 * len(values) and (odd > 0 or not is_typed)


def number(table: Table, value: Any, column_type: str) -> float | None:
    if table.missing(value):
        return None
    if column_type == "boolean":
        word = str(value).strip(SPACE).lower()
        if word not in ("true", "false", "0", "1"):
            raise Refused
        return float(word in ("true", "1"))
    if isinstance(value, str) and not NUMBER.fullmatch(value.strip(SPACE)):
        raise Refused
    try:
        found = float(value.strip(SPACE) if isinstance(value, str) else value)
    except OverflowError:
        raise Refused from None
    if abs(found) > LARGEST:
        raise Refused
    return found


def name(table: Table, value: Any) -> str | None:
    if table.missing(value):
        return None
    if not isinstance(value, str):
        if isinstance(value, float) and math.isinf(value):
            raise Refused
        return as_id(value)
    stripped = value.strip(SPACE)
    if stripped in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return stripped.lower()
    whole = re.fullmatch(r"(-?[1-9][0-9]*|0)\.0+", stripped)
    return whole[1] if whole else stripped


def columns_of(table: Table, used: set[str | None]) -> list[tuple[str, list[Any]]]:
    found: list[tuple[str, list[Any]]] = []
    for column, values in table.columns.items():
        if column not in used and (column_type := type_of(table, column)) is not None:
            read = name if column_type == "categorical" else None
            found.append((column_type, [read(table, v) if read else number(table, v, column_type) for v in values]))
    return found


def features(columns: list[tuple[str, list[Any]]], training: list[bool]) -> list[list[float]]:
    """Return a row per item: numbers, one-hot rows, or numbers of categories if there are only categories."""
    types = {column_type for column_type, _ in columns}
    indices = "categorical" in types and types <= {"categorical", "boolean"}
    rows: list[list[float]] = [[] for _ in training]
    for column_type, values in columns:
        known = [value for value, chosen in zip(values, training, strict=True) if chosen and value is not None]
        gaps = any(value is None for value, chosen in zip(values, training, strict=True) if chosen)
        if column_type == "boolean" and indices:
            known, column_type = [0.0, 1.0], "categorical"
        elif column_type == "categorical":
            known = in_order(set(known))
        for row, value in zip(rows, values, strict=True):
            if column_type != "categorical":
                row.extend([0.0 if value is None else value] + [float(value is None)] * gaps)
                continue
            code = known.index(value) if value in known else len(known)
            row.extend([code] if indices else [float(code == place) for place in range(len(known) + 1)])
    return rows if columns else [[1.0] for _ in training]


def in_order(names: set[str]) -> list[str]:
    try:
        return sorted(names, key=lambda value: (float(value), value))
    except ValueError:
        return sorted(names)


def read_tables(nodes: Table, edges: Table, graphs: Table | None, directed: bool) -> tuple[Expected, Any]:
    """Return the graph that the tables describe, and the columns of its edges as a function of their order."""
    first, second = ends_of(edges)
    graph = nodes.called("graph_id", "graph")
    if graphs is not None and graph is None:
        raise Refused
    identity = nodes.called("id", "node_id", "node", "nodeid")
    ids = ids_of(nodes, identity)
    if not ids:
        raise Refused
    within = graph if graph is not None and graph in edges.columns else None
    group, order, keys = [0] * len(ids), list(range(len(ids))), None
    graph_names: list[str] = []
    if graph is not None:
        assert graphs is not None
        keys = graph if graph in graphs.columns else graphs.called("graph_id", "graph", "id")
        graph_names = ids_of(graphs, keys)
        members = ids_of(nodes, graph)
        if len(set(graph_names)) < len(graph_names) or set(members) != set(graph_names):
            raise Refused
        if has_twins([(0, member) for member in members]):
            raise Refused
        group = [graph_names.index(member) for member in members]
        order = sorted(order, key=lambda place: group[place])
    scoped = [(group[place] if within is not None else 0, ids[place]) for place in range(len(ids))]
    if len(set(scoped)) < len(scoped) or has_twins(scoped):
        raise Refused
    places = {scoped[place]: rank for rank, place in enumerate(order)}
    scopes = [0] * edges.rows
    if within is not None:
        owners = ids_of(edges, within)
        if not set(owners) <= set(graph_names):
            raise Refused
        scopes = [graph_names.index(owner) for owner in owners]
    pairs = []
    for scope, u, v in zip(scopes, ids_of(edges, first), ids_of(edges, second), strict=True):
        if (scope, u) not in places or (scope, v) not in places:
            raise Refused
        pairs.append((places[scope, u], places[scope, v]))
    ranked = [group[place] for place in order]
    if any(ranked[a] != ranked[b] for a, b in pairs):
        raise Refused
    adjacency = np.zeros((len(ids), len(ids)))
    for a, b in pairs:
        adjacency[a, b] += 1
    if not directed:
        adjacency = np.maximum(adjacency, adjacency.T)
    holder = graphs or nodes
    if "label" not in holder.columns or (graphs is not None and "label" in nodes.columns):
        raise Refused
    if "label" in edges.columns:
        raise Refused
    if type_of(holder, "label") is None:
        raise Refused
    labels = [name(holder, value) for value in holder.columns["label"]]
    if len({label for label in labels if label is not None}) < 2:
        raise Refused
    split = holder.called("split")
    words = None if split is None else [split_word(holder, value) for value in holder.columns[split]]
    if words is not None:
        parts = [word for word, label in zip(words, labels, strict=True) if label is not None]
        if "train" not in parts or any(word is not None and word not in parts for word in words):
            raise Refused
    unused: set[str | None] = {split, "Unnamed: 0"}
    if split is None:
        # Columns with the words of a split are no features, whatever they are called.
        unused |= {column for table in (graphs, nodes) if table is not None for column in split_like(table)}
    columns = columns_of(nodes, unused | {identity, graph} | ({"label"} if graphs is None else set()))
    edge_columns = columns_of(edges, {first, second, within} | unused)
    ranked_columns = [(column_type, [values[place] for place in order]) for column_type, values in columns]
    expected = Expected(
        adjacency, ranked_columns, labels, [ids[i] for i in order], ranked if graphs is not None else None, words
    )
    return expected, (edge_columns, pairs)


def split_like(table: Table) -> set[str]:
    """Return the columns of a table that hold train and another word of a split, and no other word."""
    found = set()
    for column, values in table.columns.items():
        try:
            words = {split_word(table, value) for value in values if not table.missing(value)}
            if "train" in words and len(words) > 1 and type_of(table, column) == "categorical":
                found.add(column)
        except Refused:
            continue
    return found - {"label"}


def has_twins(ids: list[tuple[int, str]]) -> bool:
    """Return whether two ids of a graph differ only by white space."""
    return len({(scope, value.strip(SPACE)) for scope, value in ids}) < len(set(ids))


def split_word(table: Table, value: Any) -> str | None:
    word = (name(table, value) or "").strip().lower()
    known = {"train": "train", "training": "train", "test": "test", "testing": "test", "": None}
    known |= dict.fromkeys(("val", "valid", "validation", "dev"), "val")
    if word not in known:
        raise Refused
    return known[word]


def ends_of(edges: Table) -> tuple[str, str]:
    first, second = edges.called("source"), edges.called("target")
    if first is not None and second is not None:
        return first, second
    if len(edges.columns) == 2:
        first, second = edges.columns
        return first, second
    raise Refused


# Whole graphs


def read_graphml(data: bytes) -> tuple[Table, Table, bool]:
    """Return the tables of a GraphML file, read through the document object model."""
    if b"<!DOCTYPE" in data:
        raise Refused
    try:
        root: Any = minidom.parseString(data).documentElement
    except (ExpatError, ValueError, LookupError):
        raise Refused from None
    graphs = children(root, "graph")
    if root.localName != "graphml" or len(graphs) != 1:
        raise Refused
    graph = graphs[0]
    if any(graph.getElementsByTagNameNS("*", tag) for tag in ("graph", "hyperedge")):
        raise Refused
    if graph.getAttribute("edgedefault") not in ("directed", "undirected"):
        raise Refused
    keys = {key.getAttribute("id"): key for key in children(root, "key")}
    nodes, edges = children(graph, "node"), children(graph, "edge")
    table = elements(nodes, "node", keys, {})
    table.columns["id"] = [node.getAttribute("id") for node in nodes]
    ends = {end: [edge.getAttribute(end) for edge in edges] for end in ("source", "target")}
    return table, elements(edges, "edge", keys, ends), graph.getAttribute("edgedefault") == "directed"


def children(element: Any, tag: str) -> list[Any]:
    return [child for child in element.childNodes if getattr(child, "localName", None) == tag]


def elements(found: list[Any], tag: str, keys: dict[str, Any], columns: dict[str, list[Any]]) -> Table:
    held, named = {}, {}
    for key, element in keys.items():
        if (not element.hasAttribute("for") or element.getAttribute("for") in (tag, "all")) and element.hasAttribute(
            "attr.name"
        ):
            column = element.getAttribute("attr.name")
            declared = element.getAttribute("attr.type") if element.hasAttribute("attr.type") else "string"
            types = {"boolean": "boolean", "string": None} | dict.fromkeys(
                ("int", "long", "float", "double"), "numeric"
            )
            if column in columns or not column or declared not in types:
                raise Refused
            columns[column], named[key] = [""] * len(found), column
            if (said := types[declared]) is not None:
                held[column] = said
    for row, element in enumerate(found):
        read = set()
        for data in children(element, "data"):
            key = data.getAttribute("key")
            if key not in keys or key in read:
                raise Refused
            read.add(key)
            if key in named:
                if any(child.nodeType == child.ELEMENT_NODE for child in data.childNodes):
                    raise Refused
                columns[named[key]][row] = "".join(child.data for child in data.childNodes if child.nodeType in (3, 4))
    return Table(columns, len(found), False, frozenset([""]), held)
