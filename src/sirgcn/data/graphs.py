"""Graphs in flat tensors, so that a batch takes a few slices and gathers, however many graphs it holds."""

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn.data.validate import DataError, check_choice, check_finite, check_pointer, check_range, check_shape
from sirgcn.strict import read

Level = Literal["node", "edge", "graph"]
"""What a target belongs to."""

FLOATS = (torch.float32, torch.float64)
INTEGERS = (torch.int64,)
# The tensors that a model reads besides the edges.
_INPUTS = ("x", "edge_attr", "pe", "edge_pe")


@dataclass(frozen=True, eq=False)
class Graphs:
    r"""One graph or many, with all nodes in one tensor and all edges in another. The constructor checks them.

    Graph :math:`g` has the nodes :math:`p_g, \dots, p_{g+1} - 1` with :math:`p` = ``node_ptr``, and likewise for its
    edges. Node numbers run through all graphs, so a single graph is stored as in PyG.

    Args:
        x: node features, float `[V, F]`, or categories, int64 `[V, C]`.
        edge_index: int64 `[2, E]`, sources first.
        y: the targets, one row per node, edge or graph, depending on `level`. They are classes, int64 `[rows]`
            (-1: no label), or numbers, float `[rows]` or `[rows, T]` (NaN: no label).
        level: what the targets belong to.
        edge_attr: edge features, float `[E, F]`, or categories, int64 `[E, C]`.
        pe: positional or structural encodings, float `[V, P]`.
        edge_pe: the same of edges, float `[E, P]`.
        graph_attr: features of whole graphs, float `[G, F]`.
        node_ptr: int64 `[G + 1]`; None for a single graph.
        edge_ptr: int64 `[G + 1]`; None for a single graph.

    >>> graphs = Graphs(
    ...     x=torch.ones(5, 1),
    ...     edge_index=torch.tensor([[0, 1, 2, 3], [1, 0, 3, 4]]),
    ...     y=torch.tensor([0, 1]),
    ...     level="graph",
    ...     node_ptr=torch.tensor([0, 2, 5]),
    ...     edge_ptr=torch.tensor([0, 2, 4]),
    ... )
    >>> len(graphs), graphs.num_nodes, graphs[1].edge_index.tolist()
    (2, 5, [[0, 1], [1, 2]])
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    level: Level
    edge_attr: Tensor | None = None
    pe: Tensor | None = None
    edge_pe: Tensor | None = None
    node_ptr: Tensor | None = None
    edge_ptr: Tensor | None = None
    graph_attr: Tensor | None = None

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def from_data(cls, graphs: Data | Sequence[Data], level: Level) -> "Graphs":
        """Return PyG's graphs in flat form.

        Every graph has `x`, `edge_index` and `y`. Either all graphs have `edge_attr`, or none has it; the same holds
        for `pe`, `edge_pe` and `graph_attr`. A single column of categories may have shape `[V]`. The target of a graph
        may be a number, `[1]` or `[1, T]`, and its `graph_attr` is `[F]` or `[1, F]`.
        """
        check_choice("level", level, get_args(Level))
        many = [graphs] if isinstance(graphs, Data) else list(graphs)
        if not many:
            raise DataError("expected at least one graph, got none", "graphs")
        counts = torch.tensor([_counts(graph, f"graph {place}") for place, graph in enumerate(many)]).T
        node_ptr, edge_ptr = torch.nn.functional.pad(counts.cumsum(1), (1, 0))
        nodes, edges = counts
        # A single graph is stored without pointers.
        pointers = {"node_ptr": node_ptr, "edge_ptr": edge_ptr} if len(many) > 1 else {}
        return cls(
            x=_cat("x", [_column(graph.x) for graph in many], nodes),
            edge_index=torch.cat([graph.edge_index for graph in many], dim=1)
            + torch.repeat_interleave(node_ptr[:-1], edges),
            y=_targets(many, level, {"node": nodes, "edge": edges, "graph": torch.ones_like(nodes)}[level]),
            level=level,
            edge_attr=_optional("edge_attr", many, edges),
            pe=_optional("pe", many, nodes),
            edge_pe=_optional("edge_pe", many, edges),
            graph_attr=_optional("graph_attr", many, torch.ones_like(nodes)),
            **pointers,
        )

    @property
    def num_graphs(self) -> int:
        """G, the number of graphs."""
        return 1 if self.node_ptr is None else len(self.node_ptr) - 1

    @property
    def num_nodes(self) -> int:
        """V, the number of nodes of all graphs."""
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        """E, the number of directed edges of all graphs."""
        return self.edge_index.size(1)

    def __len__(self) -> int:
        return self.num_graphs

    def __repr__(self) -> str:
        """Return the shapes, not the values, which would fill a screen."""
        shapes = ", ".join(f"{name}={list(tensor.shape)}" for name, tensor in self.tensors().items())
        return f"Graphs({shapes}, level={self.level!r})"

    def __getitem__(self, index: int) -> Data:
        """Return one graph with its nodes numbered from 0."""
        index = read(int, index, "graph")
        if not -len(self) <= index < len(self):
            raise IndexError(f"graph {index}: there are {len(self)}")
        return self.batch(torch.tensor([index % len(self)]))

    def __iter__(self) -> Iterator[Data]:
        return (self[i] for i in range(len(self)))

    def batch(self, index: Tensor | None = None) -> Data:
        """Return the graphs `index` (int64 `[B]`, in this order) as one `Data` with `batch`, `ptr` and `num_graphs`.

        Without an index, the batch holds all graphs. If there is only one graph, its tensors are not copied.
        """
        every = {name: tensor for name in _INPUTS if (tensor := getattr(self, name)) is not None}
        if index is None:
            index = torch.arange(self.num_graphs)
        else:
            check_shape("index", index, (None,), INTEGERS)
            check_range("index", index, 0, self.num_graphs)
        if self.node_ptr is None and len(index) == 1:
            ptr = torch.tensor([0, self.num_nodes])
            batch = torch.zeros(self.num_nodes, dtype=torch.int64)
            every |= self._of_graphs(index)
            return Data(edge_index=self.edge_index, y=self.y, batch=batch, ptr=ptr, num_graphs=1, **every)
        node_ptr, edge_ptr = self.pointers()
        first_node, first_edge = node_ptr[index], edge_ptr[index]
        nodes, edges = node_ptr[index + 1] - first_node, edge_ptr[index + 1] - first_edge
        ptr = torch.cat([nodes.new_zeros(1), nodes.cumsum(0)])
        of_nodes, of_edges = _Ranges(first_node, nodes), _Ranges(first_edge, edges)
        ranges = {"x": of_nodes, "pe": of_nodes, "edge_attr": of_edges, "edge_pe": of_edges}
        targets = {"node": of_nodes, "edge": of_edges}.get(self.level)
        return Data(
            edge_index=of_edges.shifted(self.edge_index, ptr[:-1] - first_node),
            y=self.y.index_select(0, index) if targets is None else targets.of(self.y),
            batch=torch.repeat_interleave(nodes),
            ptr=ptr,
            num_graphs=len(index),
            **{name: ranges[name].of(tensor) for name, tensor in every.items()},
            **self._of_graphs(index),
        )

    def _of_graphs(self, index: Tensor) -> dict[str, Tensor]:
        """Return the features of the graphs `index`, if graphs have any."""
        return {} if self.graph_attr is None else {"graph_attr": self.graph_attr.index_select(0, index)}

    def select(self, index: Tensor) -> "Graphs":
        """Return the graphs `index` (int64 `[B]`, in this order, at least one)."""
        found = self.batch(index)
        edges = self.pointers()[1].diff()[index]
        return replace(
            self,
            **{name: found.get(name) for name in ("edge_index", "y", "graph_attr", *_INPUTS)},
            node_ptr=found.ptr,
            edge_ptr=torch.cat([edges.new_zeros(1), edges.cumsum(0)]),
        )

    def pointers(self) -> tuple[Tensor, Tensor]:
        """Return `node_ptr` and `edge_ptr`, also for a single graph."""
        if self.node_ptr is None or self.edge_ptr is None:
            return torch.tensor([0, self.num_nodes]), torch.tensor([0, self.num_edges])
        return self.node_ptr, self.edge_ptr

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that are set, by name."""
        return {field.name: value for field in fields(self) if isinstance(value := getattr(self, field.name), Tensor)}

    def sha256(self) -> str:
        """Return a hash of all tensors, their names, dtypes and shapes. Equal data have equal hashes on any machine."""
        return sha256_of(self.level, self.tensors())


def sha256_of(about: str, tensors: dict[str, Tensor]) -> str:
    """Return a hash of a text and of tensors, with their names, dtypes and shapes, in the order of the names."""
    digest = hashlib.sha256(about.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        array = tensor.detach().numpy()
        # Nearly every machine is little-endian already, and then nothing is copied.
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return digest.hexdigest()


def _check(graphs: Graphs) -> None:
    check_choice("level", graphs.level, get_args(Level))
    check_shape("x", graphs.x, (None, None), (*FLOATS, *INTEGERS))
    check_shape("edge_index", graphs.edge_index, (2, None), INTEGERS)
    nodes, edges = graphs.num_nodes, graphs.num_edges
    if nodes == 0:
        raise DataError("expected at least one node, got none", "x")
    _check_edges(graphs)
    check_finite("x", graphs.x)
    if graphs.edge_attr is not None:
        check_shape("edge_attr", graphs.edge_attr, (edges, None), (*FLOATS, *INTEGERS))
        check_finite("edge_attr", graphs.edge_attr)
    for name, encoding, count in (("pe", graphs.pe, nodes), ("edge_pe", graphs.edge_pe, edges)):
        if encoding is not None:
            check_shape(name, encoding, (count, None), FLOATS)
            check_finite(name, encoding)
    if graphs.graph_attr is not None:
        check_shape("graph_attr", graphs.graph_attr, (graphs.num_graphs, None), FLOATS)
        check_finite("graph_attr", graphs.graph_attr)
    rows = {"node": nodes, "edge": edges, "graph": graphs.num_graphs}[graphs.level]
    if getattr(graphs.y, "ndim", 1) == 2:
        check_shape("y", graphs.y, (rows, None), FLOATS)
    else:
        check_shape("y", graphs.y, (rows,), (*FLOATS, *INTEGERS))
    check_finite("y", graphs.y, allow_missing=True)
    if not graphs.y.is_floating_point():
        check_range("y", graphs.y, -1, torch.iinfo(torch.int64).max)


def _check_edges(graphs: Graphs) -> None:
    """Raise for an edge that leaves its graph."""
    edge_index, node_ptr, edge_ptr = graphs.edge_index, graphs.node_ptr, graphs.edge_ptr
    if node_ptr is None and edge_ptr is None:
        check_range("edge_index", edge_index, 0, graphs.num_nodes)
        return
    if node_ptr is None or edge_ptr is None:
        raise DataError("expected both node_ptr and edge_ptr, or neither, got one", "node_ptr")
    check_pointer("node_ptr", node_ptr, graphs.num_nodes, "nodes")
    check_pointer("edge_ptr", edge_ptr, graphs.num_edges, "edges")
    if len(node_ptr) != len(edge_ptr):
        raise DataError(f"expected {len(node_ptr)} entries, got {len(edge_ptr)}", "edge_ptr")
    filled = edge_ptr.diff() > 0
    start = edge_ptr[:-1][filled].numpy()
    if len(start) == 0:
        return
    low, high = node_ptr[:-1][filled], node_ptr[1:][filled]
    # Only the minimum and maximum of each graph: bounds for every edge would take as much memory as the edges.
    inside = all(
        bool((torch.from_numpy(np.minimum.reduceat(row, start)) >= low).all())
        and bool((torch.from_numpy(np.maximum.reduceat(row, start)) < high).all())
        for row in edge_index.numpy()
    )
    if not inside:
        edges = edge_ptr.diff()[filled]
        low, high = (torch.repeat_interleave(bound, edges).expand(2, -1) for bound in (low, high))
        check_range("edge_index", edge_index, low, high)


class _Ranges:
    """The entries of several ranges, one after the other: start_0, ..., start_0 + length_0 - 1, start_1, ...

    Long ranges are copied one by one, which takes a fifth of the time of a gather.
    """

    # Below this mean length, the calls for the single ranges take longer than a gather.
    LONG = 256

    def __init__(self, start: Tensor, length: Tensor) -> None:
        self.start, self.length = start, length
        self.are_long = len(length) > 0 and bool(length.sum() >= self.LONG * len(length))

    @functools.cached_property
    def entries(self) -> Tensor:
        """The entries themselves."""
        before = self.length.cumsum(0) - self.length
        offset = torch.repeat_interleave(self.start - before, self.length)
        return offset + torch.arange(len(offset))

    def of(self, tensor: Tensor) -> Tensor:
        """The rows of a tensor in these ranges."""
        if not self.are_long:
            return tensor.index_select(0, self.entries)
        parts = zip(self.start.tolist(), self.length.tolist(), strict=True)
        return torch.cat([tensor.narrow(0, start, length) for start, length in parts])

    def shifted(self, tensor: Tensor, shift: Tensor) -> Tensor:
        """The columns of a tensor in these ranges, plus a number for each range."""
        if not self.are_long:
            return tensor.index_select(1, self.entries) + torch.repeat_interleave(shift, self.length)
        found = tensor.new_empty(len(tensor), int(self.length.sum()))
        parts = zip(self.start.tolist(), self.length.tolist(), shift.tolist(), strict=True)
        for (start, length, by), place in zip(parts, found.split(self.length.tolist(), 1), strict=True):
            torch.add(tensor.narrow(1, start, length), by, out=place)
        return found


def _counts(graph: Any, place: str) -> tuple[int, int]:
    if not isinstance(graph, Data):
        raise TypeError(f"{place}: expected PyG's Data, got {type(graph).__name__}")
    for name in ("x", "edge_index", "y"):
        value = graph.get(name)
        if not isinstance(value, Tensor) and not (name == "y" and isinstance(value, Real)):
            raise DataError(f"expected a tensor, got {type(value).__name__}", name, place)
    if graph.x.dim() == 0:
        raise DataError("expected a row for each node, got a number", "x", place)
    check_shape("edge_index", graph.edge_index, (2, None), INTEGERS, place)
    check_range("edge_index", graph.edge_index, 0, graph.x.size(0), place)
    return graph.x.size(0), graph.edge_index.size(1)


def _targets(graphs: Sequence[Data], level: Level, rows: Tensor) -> Tensor:
    y = [torch.as_tensor(graph.y) for graph in graphs]
    if level == "graph":
        # PyG keeps T targets of a graph as [1, T] or [T], and one target as [1] or a number.
        y = [target.reshape(1, -1) for target in y]
    target = _cat("y", y, rows)
    return target.squeeze(1) if target.dim() == 2 and target.size(1) == 1 else target


def _column(tensor: Any) -> Any:
    return tensor.unsqueeze(1) if isinstance(tensor, Tensor) and tensor.dim() == 1 else tensor


def _row(tensor: Any) -> Any:
    return tensor.unsqueeze(0) if isinstance(tensor, Tensor) and tensor.dim() == 1 else tensor


def _optional(name: str, graphs: Sequence[Data], rows: Tensor) -> Tensor | None:
    parts = [_row(graph.get(name)) if name == "graph_attr" else _column(graph.get(name)) for graph in graphs]
    absent = [part is None for part in parts]
    if all(absent):
        return None
    if any(absent):
        expected = "expected it in all graphs or in no graph, got a graph without it"
        raise DataError(expected, name, f"graph {absent.index(True)}")
    return _cat(name, parts, rows)


def _cat(name: str, parts: Sequence[Any], rows: Tensor) -> Tensor:
    for place, (part, count) in enumerate(zip(parts, rows.tolist(), strict=True)):
        source = f"graph {place}"
        if not isinstance(part, Tensor):
            raise DataError(f"expected a tensor, got {type(part).__name__}", name, source)
        check_shape(name, part, (count, *parts[0].shape[1:]), (parts[0].dtype,), source)
    return torch.cat(list(parts))
