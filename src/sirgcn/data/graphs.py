"""Graphs, stored flat: a batch is a few slices and gathers, however many graphs it holds."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn.data.validate import DataError, check_finite, check_pointer, check_range, check_shape

Level = Literal["node", "edge", "graph"]
"""What a target belongs to."""

FLOATS = (torch.float32, torch.float64)
INTEGERS = (torch.int64,)


@dataclass(frozen=True, eq=False)
class Graphs:
    r"""One graph or many, all nodes in one tensor and all edges in another; checked when made.

    Graph :math:`g` has the nodes :math:`p_g, \dots, p_{g+1} - 1` with :math:`p` = ``node_ptr``, and likewise its
    edges. Nodes are counted through all graphs, so that one graph is stored as PyG has it.

    Args:
        x: node features, float `[V, F]`, or categories, int64 `[V, C]`.
        edge_index: int64 `[2, E]`, sources first.
        y: the targets, one row per node, edge or graph as `level` says: classes, int64 `[rows]` (-1: no label), or
            numbers, float `[rows]` or `[rows, T]` (NaN: no label).
        level: what the targets belong to.
        edge_attr: edge features, float `[E, F]`, or categories, int64 `[E, C]`.
        pe: positional or structural encodings, float `[V, P]`.
        node_ptr: int64 `[G + 1]`; None for a single graph.
        edge_ptr: int64 `[G + 1]`; None for a single graph.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    level: Level
    edge_attr: Tensor | None = None
    pe: Tensor | None = None
    node_ptr: Tensor | None = None
    edge_ptr: Tensor | None = None

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def from_data(cls, graphs: Data | Sequence[Data], level: Level) -> "Graphs":
        """From PyG graphs with `x`, `edge_index`, `y` and, in all or in none, `edge_attr` and `pe`.

        A single column of categories may be `[V]`; a graph's target may be a number, `[1]` or `[1, T]`.
        """
        many = [graphs] if isinstance(graphs, Data) else list(graphs)
        if not many:
            raise DataError("expected at least one graph, got none", "graphs")
        nodes = torch.tensor([0] + [_count(graph, i) for i, graph in enumerate(many)]).cumsum(0)
        edges = torch.tensor([0] + [graph.edge_index.size(1) for graph in many]).cumsum(0)
        edge_index = torch.cat([graph.edge_index for graph in many], dim=1)
        if len(many) > 1:
            # Checked graph by graph before the shift: afterwards an index may fall into another graph unnoticed.
            check_range(
                "edge_index", edge_index, 0, torch.repeat_interleave(nodes.diff(), edges.diff())[None].expand(2, -1)
            )
            edge_index = edge_index + torch.repeat_interleave(nodes[:-1], edges.diff())
        y = [torch.as_tensor(graph.y) for graph in many]
        if level == "graph":
            # PyG keeps T targets of a graph as [1, T] or [T], one target as [1] or a number.
            y = [target.reshape(1, -1) for target in y]
        joined = _cat("y", y)
        if joined is not None and joined.dim() == 2 and joined.size(1) == 1:
            joined = joined.squeeze(1)
        columns = {name: _cat(name, [_column(graph.get(name)) for graph in many]) for name in ("x", "edge_attr", "pe")}
        return cls(
            edge_index=edge_index,
            y=joined,  # type: ignore[arg-type]
            level=level,
            node_ptr=nodes if len(many) > 1 else None,
            edge_ptr=edges if len(many) > 1 else None,
            **columns,  # type: ignore[arg-type]
        )

    @property
    def num_graphs(self) -> int:
        """G."""
        return 1 if self.node_ptr is None else len(self.node_ptr) - 1

    @property
    def num_nodes(self) -> int:
        """V, of all graphs together."""
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        """E, directed, of all graphs together."""
        return self.edge_index.size(1)

    def __len__(self) -> int:
        return self.num_graphs

    def __getitem__(self, index: int) -> Data:
        """One graph, its nodes counted from 0."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"graph {index}: there are {len(self)}")
        return self.batch(torch.tensor([index % len(self)]))

    def __iter__(self) -> Iterator[Data]:
        return (self[i] for i in range(len(self)))

    def batch(self, index: Tensor | None = None) -> Data:
        """The graphs `index` (int64 `[B]`, in this order) as one: PyG's `Data` with `batch`, `ptr` and `num_graphs`.

        Without an index all of them. Nothing is copied for a single graph.
        """
        every = {name: tensor for name in ("x", "edge_attr", "pe") if (tensor := getattr(self, name)) is not None}
        if self.node_ptr is None or self.edge_ptr is None:
            ptr = torch.tensor([0, self.num_nodes])
            batch = torch.zeros(self.num_nodes, dtype=torch.int64)
            return Data(edge_index=self.edge_index, y=self.y, batch=batch, ptr=ptr, num_graphs=1, **every)
        if index is None:
            index = torch.arange(self.num_graphs)
        first_node, first_edge = self.node_ptr[index], self.edge_ptr[index]
        nodes, edges = self.node_ptr[index + 1] - first_node, self.edge_ptr[index + 1] - first_edge
        ptr = torch.cat([nodes.new_zeros(1), nodes.cumsum(0)])
        node_rows, edge_rows = _ranges(first_node, nodes), _ranges(first_edge, edges)
        rows = {"x": node_rows, "pe": node_rows, "edge_attr": edge_rows}
        return Data(
            edge_index=self.edge_index[:, edge_rows] + torch.repeat_interleave(ptr[:-1] - first_node, edges),
            y=self.y[{"node": node_rows, "edge": edge_rows, "graph": index}[self.level]],
            batch=torch.repeat_interleave(nodes),
            ptr=ptr,
            num_graphs=len(index),
            **{name: tensor[rows[name]] for name, tensor in every.items()},
        )

    def select(self, index: Tensor) -> "Graphs":
        """The graphs `index` (int64 `[B]`, in this order), as graphs of their own."""
        if self.num_graphs == 1:
            return self
        found = self.batch(index)
        assert self.edge_ptr is not None
        edges = self.edge_ptr[index + 1] - self.edge_ptr[index]
        return replace(
            self,
            **{name: found.get(name) for name in ("x", "edge_index", "y", "edge_attr", "pe")},
            node_ptr=found.ptr,
            edge_ptr=torch.cat([edges.new_zeros(1), edges.cumsum(0)]),
        )

    def tensors(self) -> dict[str, Tensor]:
        """All tensors that are there, by name."""
        return {field.name: value for field in fields(self) if isinstance(value := getattr(self, field.name), Tensor)}

    def sha256(self) -> str:
        """A hash of all tensors, their names, dtypes and shapes: equal data, equal hash, on any machine."""
        digest = hashlib.sha256(self.level.encode())
        for name, tensor in sorted(self.tensors().items()):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().astype(tensor.numpy().dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()


def _check(graphs: Graphs) -> None:
    if graphs.level not in ("node", "edge", "graph"):
        raise DataError(f"expected node, edge or graph, got {graphs.level!r}", "level")
    check_shape("x", graphs.x, (None, None), (*FLOATS, *INTEGERS))
    check_shape("edge_index", graphs.edge_index, (2, None), INTEGERS)
    nodes, edges = graphs.num_nodes, graphs.num_edges
    if nodes == 0:
        raise DataError("expected at least one node, got none", "x")
    check_range("edge_index", graphs.edge_index, 0, nodes)
    check_finite("x", graphs.x)
    if graphs.edge_attr is not None:
        check_shape("edge_attr", graphs.edge_attr, (edges, None), (*FLOATS, *INTEGERS))
        check_finite("edge_attr", graphs.edge_attr)
    if graphs.pe is not None:
        check_shape("pe", graphs.pe, (nodes, None), FLOATS)
        check_finite("pe", graphs.pe)
    if (graphs.node_ptr is None) != (graphs.edge_ptr is None):
        raise DataError("expected both node_ptr and edge_ptr, or neither, got one", "node_ptr")
    if graphs.node_ptr is not None and graphs.edge_ptr is not None:
        check_pointer("node_ptr", graphs.node_ptr, nodes, "nodes")
        check_pointer("edge_ptr", graphs.edge_ptr, edges, "edges")
        if len(graphs.node_ptr) != len(graphs.edge_ptr):
            raise DataError(f"expected {len(graphs.node_ptr)} entries, got {len(graphs.edge_ptr)}", "edge_ptr")
        per_graph = graphs.edge_ptr.diff()
        low, high = (torch.repeat_interleave(end, per_graph) for end in (graphs.node_ptr[:-1], graphs.node_ptr[1:]))
        check_range("edge_index", graphs.edge_index, low.expand(2, -1), high.expand(2, -1))
    rows = {"node": nodes, "edge": edges, "graph": graphs.num_graphs}[graphs.level]
    if getattr(graphs.y, "ndim", 1) == 2:
        check_shape("y", graphs.y, (rows, None), FLOATS)
    else:
        check_shape("y", graphs.y, (rows,), (*FLOATS, *INTEGERS))
    check_finite("y", graphs.y, allow_missing=True)
    if not graphs.y.is_floating_point():
        check_range("y", graphs.y, -1, torch.iinfo(torch.int64).max)


def _ranges(start: Tensor, length: Tensor) -> Tensor:
    """start_0, ..., start_0 + length_0 - 1, start_1, ...: the rows of several ranges, one after the other."""
    before = length.cumsum(0) - length
    offset = torch.repeat_interleave(start - before, length)
    return offset + torch.arange(len(offset))


def _count(graph: Data, place: int) -> int:
    for name in ("x", "edge_index", "y"):
        if not isinstance(graph.get(name), Tensor):
            raise DataError(f"expected a tensor, got {type(graph.get(name)).__name__}", name, f"graph {place}")
    check_shape("edge_index", graph.edge_index, (2, None), INTEGERS)
    return int(graph.x.size(0)) if graph.x.dim() else 0


def _column(tensor: Tensor | None) -> Tensor | None:
    return tensor.unsqueeze(1) if isinstance(tensor, Tensor) and tensor.dim() == 1 else tensor


def _cat(name: str, parts: Sequence[Any]) -> Tensor | None:
    absent = [part is None for part in parts]
    if all(absent):
        return None
    if any(absent):
        raise DataError(f"expected in all graphs or in none, absent from graph {absent.index(True)}", name)
    for place, part in enumerate(parts):
        if not isinstance(part, Tensor) or part.dtype != parts[0].dtype or part.shape[1:] != parts[0].shape[1:]:
            raise DataError("expected the dtype and width of the first graph's", name, f"graph {place}")
    return torch.cat(list(parts))
