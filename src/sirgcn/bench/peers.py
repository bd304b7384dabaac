"""What is compared: our operation and layers, and the peers that do the same work or work of the same size.

A suite is one question. All its peers get the same graph, width and inputs (float32). The peers of a family are
settings of the same thing, and the fastest of them stands for the family. The times of all peers are divided by the
time of `ours`.
"""

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import OptTensor
from torch_geometric.utils import degree

from sirgcn.bench.graphs import Graph
from sirgcn.bench.twins import MaterialisedGatedGCN, PlainGatedGCN
from sirgcn.nn import SIRConv
from sirgcn.nn.baselines import GatedGCN, ResGatedGCN
from sirgcn.nn.linear import Linear, side_by_side
from sirgcn.ops import Neighbors, sir_aggregate
from sirgcn.ops.rows import Rows

FORWARD, BOTH = "forward", "forward+backward"
MODES = (FORWARD, BOTH)
"""`forward`: under `no_grad`; `forward+backward`: with the gradients of all inputs and parameters."""

OURS, COMPILED, LINEAR = "ours", "torch.compile", "ours, linear layers alone"


class Problem:
    """A graph, and the tensors on it that the peers of a suite share. A tensor is drawn when it is first used.

    >>> problem = Problem(Graph(torch.tensor([[0, 1], [1, 0]]), num_nodes=2), channels=8, threads=1)
    >>> problem.x.shape, problem.edge_bytes
    (torch.Size([2, 8]), 64)
    """

    def __init__(self, graph: Graph, channels: int, threads: int) -> None:
        self.edge_index, self.num_nodes = graph
        self.channels = channels
        self.threads = threads
        self.random = torch.Generator().manual_seed(0)

    @property
    def num_edges(self) -> int:
        """The number of directed edges."""
        return self.edge_index.size(1)

    @property
    def edge_bytes(self) -> int:
        """The size of one float32 edges-by-channels tensor."""
        return self.num_edges * self.channels * 4

    @functools.cached_property
    def neighbors(self) -> Neighbors:
        """The grouped edges. They are built before the time is taken."""
        return Neighbors.from_edge_index(self.edge_index, self.num_nodes)

    @functools.cached_property
    def x(self) -> Tensor:
        """The node features of a layer, or the query of an aggregation."""
        return self._draw(self.num_nodes)

    @functools.cached_property
    def key(self) -> Tensor:
        """The key."""
        return self._draw(self.num_nodes)

    @functools.cached_property
    def value(self) -> Tensor:
        """The value of gated messages."""
        return self._draw(self.num_nodes)

    @functools.cached_property
    def edge(self) -> Tensor:
        """A dense edge term, one row per edge."""
        return self._draw(self.num_edges)

    @functools.cached_property
    def upstream(self) -> Tensor:
        """The incoming gradient of the output."""
        return self._draw(self.num_nodes).detach()

    def csr(self, edge_index: Tensor, values: Tensor, dtype: torch.dtype) -> Tensor:
        """The transposed adjacency (targets are rows) as a CSR tensor with indices of a dtype."""
        ptr, node, edge = Neighbors.from_edge_index(edge_index, self.num_nodes).by_target
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
            return torch.sparse_csr_tensor(
                ptr.to(dtype), node.to(dtype), values[edge], (self.num_nodes,) * 2, check_invariants=False
            )

    def _draw(self, rows: int) -> Tensor:
        return torch.randn(rows, self.channels, generator=self.random).requires_grad_()


@dataclass(frozen=True)
class Work:
    """One forward pass as a call, and the tensors whose gradients the backward pass computes."""

    forward: Callable[[], Any]
    leaves: tuple[Tensor, ...] = ()

    def run(self, mode: str, upstream: Callable[[Tensor], Tensor]) -> None:
        """Do one pass in a mode; `upstream` returns the gradient of the output."""
        if mode == FORWARD:
            with torch.no_grad():
                self.forward()
        else:
            out = self.forward()
            torch.autograd.grad(out, self.leaves, upstream(out))


@dataclass(frozen=True)
class Peer:
    """An implementation that is measured in a suite.

    Attributes:
        suite: the suite that the peer belongs to.
        name: the name of the peer.
        make: builds the work of the peer on a problem.
        what: what exactly is run, for the table of peers.
        copies: an estimate of how many edges-by-channels tensors forward+backward hold at once. A peer that would not
            fit into the memory is left out.
        family: the thing of which this peer is one setting; empty for a peer with a single setting.
        modes: the modes in which the peer is measured.
        quick: the shapes of the quick form; None for all shapes that are small enough.
        min_threads: with fewer threads, this peer would be the same as another one.

    >>> Peer("layer", "GCNConv, cached", lambda problem: Work(lambda: None), "normalised once", family="GCNConv").label
    'GCNConv'
    """

    suite: str
    name: str
    make: Callable[[Problem], Work]
    what: str
    copies: float = 0.0
    family: str = ""
    modes: tuple[str, ...] = MODES
    quick: tuple[str, ...] | None = None
    min_threads: int = 1

    @property
    def label(self) -> str:
        """The family, or the name of a peer without a family."""
        return self.family or self.name


class _Messages(pyg.MessagePassing):
    """Plain PyG message passing: the sum over neighbours of relu(q_i + k_j + e)."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")

    def forward(self, query: Tensor, key: Tensor, edge_index: Tensor, edge: OptTensor = None) -> Tensor:
        size = (key.size(0), query.size(0))
        # propagate_type: (query: Tensor, key: Tensor, edge: OptTensor)
        out: Tensor = self.propagate(edge_index, query=query, key=key, edge=edge, size=size)
        return out

    def message(self, query_i: Tensor, key_j: Tensor, edge: OptTensor) -> Tensor:  # type: ignore[override]
        z = query_i + key_j
        return torch.relu(z if edge is None else z + edge)


def _index_add(query: Tensor, key: Tensor, edge_index: Tensor, edge: Tensor | None = None) -> Tensor:
    z = query.index_select(0, edge_index[1]) + key.index_select(0, edge_index[0])
    message = torch.relu(z if edge is None else z + edge)
    return torch.zeros_like(query).index_add(0, edge_index[1], message)


def _ours(problem: Problem, with_edge: bool = False) -> Work:
    q, k, graph = problem.x, problem.key, problem.neighbors
    e = problem.edge if with_edge else None
    return Work(lambda: sir_aggregate(q, k, graph, e), (q, k) if e is None else (q, k, e))


def _eager(problem: Problem, propagate: bool, with_edge: bool = False) -> Work:
    q, k, edge_index = problem.x, problem.key, problem.edge_index
    e = problem.edge if with_edge else None
    function = _Messages() if propagate else _index_add
    return Work(lambda: function(q, k, edge_index, e), (q, k) if e is None else (q, k, e))


def _compiled(problem: Problem, serial: bool) -> Work:
    q, k, edge_index = problem.x, problem.key, problem.edge_index
    # Inductor writes the number of threads into the code that it generates.
    options: dict[str, Any] = {"cpp.threads": 1 if serial else problem.threads}

    # A new function each time: torch._dynamo would reuse the code of another setting.
    def aggregate(query: Tensor, key: Tensor, edge_index: Tensor) -> Tensor:
        return _index_add(query, key, edge_index)

    function = torch.compile(aggregate, dynamic=False, fullgraph=True, options=options)
    return Work(lambda: function(q, k, edge_index), (q, k))


def _spmm(problem: Problem, dtype: torch.dtype) -> Work:
    adj_t = problem.csr(problem.edge_index, torch.ones(problem.num_edges), dtype)
    key = problem.key.detach()
    return Work(lambda: adj_t @ key)


def _layer(problem: Problem, conv: nn.Module, *graph: Any) -> Work:
    x = problem.x
    leaves = (x, *(parameter for parameter in conv.parameters() if parameter.requires_grad))
    return Work(lambda: conv(x, *graph), leaves)


def as_plain(network: nn.Module) -> nn.Module:
    """Make a network use PyG's `propagate` and PyG's linear layers, which multiply by torch, and return it."""
    for module in network.modules():
        if isinstance(module, SIRConv):
            module.fused = False
        if type(module) is Linear:
            module.__class__ = pyg.Linear  # type: ignore[assignment]
    return network


def _sir(problem: Problem, grouped: bool = True, plain: bool = False, **options: Any) -> Work:
    d = problem.channels
    conv = SIRConv(d, d, **options)
    graph = problem.neighbors if grouped and not plain else problem.edge_index
    return _layer(problem, as_plain(conv) if plain else conv, graph)


def _linear_layers(problem: Problem) -> Work:
    d = problem.channels
    query, key, relation = Linear(d, d), Linear(d, d, bias=False), Linear(d, d)
    x, leaves = problem.x, [p for lin in (query, key, relation) for p in lin.parameters()]
    return Work(lambda: relation(query(x) + key(x)), (x, *leaves))


def _sir_mlp(problem: Problem, plain: bool) -> Work:
    d = problem.channels
    return _sir(problem, plain=plain, activation=nn.Sequential(nn.ReLU(), nn.Linear(d, d), nn.ReLU()))


def _pyg(make: Callable[[int], nn.Module]) -> Callable[[Problem], Work]:
    return lambda problem: _layer(problem, make(problem.channels), problem.edge_index)


def _gcn_csr(problem: Problem, dtype: torch.dtype) -> Work:
    edge_index, weight = gcn_norm(problem.edge_index, None, problem.num_nodes, add_self_loops=True)
    adj_t = problem.csr(edge_index, weight, dtype)
    return _layer(problem, pyg.GCNConv(problem.channels, problem.channels, normalize=False), adj_t)


def _pna(problem: Problem) -> Work:
    histogram = torch.bincount(degree(problem.edge_index[1], problem.num_nodes, torch.long))
    aggregators, scalers = ["mean", "max", "min", "std"], ["identity", "amplification", "attenuation"]
    d = problem.channels
    return _layer(problem, pyg.PNAConv(d, d, aggregators, scalers, histogram), problem.edge_index)


def _egc(d: int) -> nn.Module:
    # PyG's default is 8 heads, which must divide the width.
    return pyg.EGConv(d, d, num_heads=next(heads for heads in (8, 5, 4, 3, 2, 1) if d % heads == 0))


def _mlp(d_in: int, d: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d_in, d), nn.ReLU(), nn.Linear(d, d))


def _construction(problem: Problem) -> Work:
    edge_index, nodes = problem.edge_index, problem.num_nodes
    return Work(lambda: Neighbors.from_edge_index(edge_index, nodes))


def _gated(problem: Problem) -> Work:
    q, k, v, graph = problem.x, problem.key, problem.value, problem.neighbors
    return Work(lambda: sir_aggregate(q, k, graph, activation="sigmoid", value=v), (q, k, v))


def _eager_gated(problem: Problem) -> Work:
    q, k, v, (source, target) = problem.x, problem.key, problem.value, problem.edge_index

    def aggregate() -> Tensor:
        gate = torch.sigmoid(q.index_select(0, target) + k.index_select(0, source))
        return torch.zeros_like(q).index_add(0, target, gate * v.index_select(0, source))

    return Work(aggregate, (q, k, v))


def _grouped(make: Callable[[int, int], nn.Module]) -> Callable[[Problem], Work]:
    """A layer of ours on edges that were grouped before."""
    return lambda problem: _layer(problem, make(problem.channels, problem.channels), problem.neighbors)


def _four_linear_layers(problem: Problem) -> Work:
    d = problem.channels
    own, query, value, key = (Linear(d, d, bias=has_bias) for has_bias in (True, True, True, False))
    x, leaves = problem.x, [p for lin in (own, query, value, key) for p in lin.parameters()]

    def run() -> Tensor:
        stacked = side_by_side([own, query, key, value], Rows(x)).table
        return stacked.unflatten(1, (4, d)).sum(1)

    return Work(run, (x, *leaves))


AGGREGATION, EDGES, LAYER, MAX, MLP, BUILD = "aggregation", "edge features", "layer", "max", "MLP sigma", "construction"
GATED, GATED_GCN, RES_GATED = "gated aggregation", "GatedGCN", "ResGatedGraphConv"

SUITES = {
    AGGREGATION: "The sum of relu(q_u + k_v), without matrix products; gradients of q and k",
    EDGES: "The sum of relu(q_u + k_v + e_uv) with a dense edge term; gradients of q, k and e",
    LAYER: "Full layers at equal width, in = hidden = out; gradients of x and of all parameters",
    MAX: "SIRConv(aggr='max'), W_R on every edge: tiled against all messages at once; gradients as for layers",
    MLP: "SIRConv with the sigma ReLU, Linear, ReLU: tiled against all messages at once; gradients as for layers",
    GATED: "The sum of sigmoid(q_u + k_v) * v_v, without matrix products; gradients of q, k and v",
    GATED_GCN: "Our GatedGCN against its plain forms; gradients as for layers",
    RES_GATED: "Our ResGatedGCN against PyG's ResGatedGraphConv; gradients as for layers",
    BUILD: "Grouping the edges by target and by source, against the forward pass of our layer",
}
"""The suites, and what each of them measures."""

# The quick form compiles for one small and one large graph only. Peers without a target get the small graphs.
_COMPILE_QUICK = ("molecules", "tolokers")
_SMALL = ("molecules", "bipartite")

PEERS: tuple[Peer, ...] = (
    Peer(AGGREGATION, OURS, _ours, "sir_aggregate on a Neighbors built before"),
    Peer(AGGREGATION, "eager, propagate", functools.partial(_eager, propagate=True),
         "PyG MessagePassing: gather, add, relu, scatter", 4, "eager"),
    Peer(AGGREGATION, "eager, index_add", functools.partial(_eager, propagate=False),
         "index_select, add, relu, index_add by hand", 4, "eager"),
    Peer(AGGREGATION, COMPILED, functools.partial(_compiled, serial=False),
         "Inductor on the index_add form, static shapes, cpp.threads as torch's", 4, COMPILED,
         quick=_COMPILE_QUICK),
    Peer(AGGREGATION, "torch.compile, cpp.threads=1", functools.partial(_compiled, serial=True),
         "the same, generated code on one thread", 4, COMPILED, quick=_COMPILE_QUICK, min_threads=2),
    Peer(AGGREGATION, "MKL SpMM, int64", functools.partial(_spmm, dtype=torch.int64),
         "CSR @ key, all weights 1: reads the same rows, no query and no sigma", 0, "MKL SpMM", (FORWARD,)),
    Peer(AGGREGATION, "MKL SpMM, int32", functools.partial(_spmm, dtype=torch.int32),
         "the same with int32 indices", 0, "MKL SpMM", (FORWARD,)),
    Peer(EDGES, OURS, functools.partial(_ours, with_edge=True), "sir_aggregate with edge [E, d]", 2),
    Peer(EDGES, "eager, propagate", functools.partial(_eager, propagate=True, with_edge=True),
         "PyG MessagePassing", 7, "eager", quick=(*_SMALL, "roman_empire")),
    Peer(EDGES, "eager, index_add", functools.partial(_eager, propagate=False, with_edge=True),
         "by hand", 7, "eager", quick=(*_SMALL, "roman_empire")),
    Peer(LAYER, OURS, _sir, "SIRConv, sum, relu, on a Neighbors built before"),
    Peer(LAYER, "ours, edge_index", functools.partial(_sir, grouped=False), "the same, grouping in each call"),
    Peer(LAYER, LINEAR, _linear_layers, "W_R (W_Q x + W_K x): no edges, so that no layer of this form is faster"),
    Peer(LAYER, "GCNConv", _pyg(lambda d: pyg.GCNConv(d, d)), "edge_index, normalised in each call", 3),
    Peer(LAYER, "GCNConv, cached", _pyg(lambda d: pyg.GCNConv(d, d, cached=True)),
         "edge_index, normalised once (not counted)", 3, quick=_SMALL),
    Peer(LAYER, "GCNConv, CSR int64", functools.partial(_gcn_csr, dtype=torch.int64),
         "torch CSR adj_t with self-loops, normalised before (not counted), normalize=False", 0, "GCNConv, CSR"),
    Peer(LAYER, "GCNConv, CSR int32", functools.partial(_gcn_csr, dtype=torch.int32),
         "the same with int32 indices", 0, "GCNConv, CSR"),
    Peer(LAYER, "SAGEConv", _pyg(lambda d: pyg.SAGEConv(d, d)), "mean", 2, quick=_SMALL),
    Peer(LAYER, "GINConv", _pyg(lambda d: pyg.GINConv(_mlp(d, d))), "MLP of two layers", 2, quick=_SMALL),
    Peer(LAYER, "GATv2Conv", _pyg(lambda d: pyg.GATv2Conv(d, d)), "one head, self-loops", 6),
    Peer(LAYER, "TransformerConv", _pyg(lambda d: pyg.TransformerConv(d, d)), "one head", 7, quick=_SMALL),
    Peer(LAYER, "EGConv", _pyg(_egc), "8 heads (5 where 8 does not divide the width), 4 bases, symnorm", 3,
         quick=_SMALL),
    Peer(LAYER, "EdgeConv", _pyg(lambda d: pyg.EdgeConv(_mlp(2 * d, d))), "MLP of two layers, max", 9,
         quick=("molecules",)),
    Peer(LAYER, "PNAConv", _pna, "mean, max, min, std x identity, amplification, attenuation; one tower", 14,
         quick=_SMALL),
    Peer(MAX, OURS, functools.partial(_sir, aggr="max"), "tiles of edges", quick=_SMALL),
    Peer(MAX, "materialised", functools.partial(_sir, aggr="max", plain=True), "PyG's propagate", 8,
         quick=_SMALL),
    Peer(MLP, OURS, functools.partial(_sir_mlp, plain=False), "tiles of edges", quick=_SMALL),
    Peer(MLP, "materialised", functools.partial(_sir_mlp, plain=True), "PyG's propagate", 7,
         quick=_SMALL),
    Peer(GATED, OURS, _gated, "sir_aggregate with a value on a Neighbors built before"),
    Peer(GATED, "eager", _eager_gated, "index_select, add, sigmoid, multiply, index_add by hand", 7),
    Peer(GATED_GCN, OURS, _grouped(GatedGCN), "GatedGCN on a Neighbors built before"),
    Peer(GATED_GCN, LINEAR, _four_linear_layers, "the sum of the four products: no edges"),
    Peer(GATED_GCN, "plain", _grouped(PlainGatedGCN), "the same layer by a network on tiles of edges"),
    Peer(GATED_GCN, "materialised", _grouped(MaterialisedGatedGCN),
         "the same layer, with our product, by index_select and index_add: a row of every edge", 7),
    Peer(RES_GATED, OURS, _grouped(ResGatedGCN), "ResGatedGCN on a Neighbors built before"),
    Peer(RES_GATED, LINEAR, _four_linear_layers, "the sum of the four products: no edges"),
    Peer(RES_GATED, "PyG", _pyg(lambda d: pyg.ResGatedGraphConv(d, d)), "ResGatedGraphConv on edge_index", 8),
    Peer(BUILD, OURS, _construction, "Neighbors.from_edge_index", modes=(FORWARD,), quick=("arxiv",)),
    Peer(BUILD, "our layer's forward", _sir, "SIRConv, sum, relu", modes=(FORWARD,), quick=("arxiv",)),
)  # fmt: skip
"""Every peer of every suite."""
