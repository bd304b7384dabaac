r"""The 1-WL test and the paper's modification of it (Section 4.5), beside a SIR-GCN with random weights.

Edges go from v to u, as messages do: u's new colour is a hash of the colours of its in-neighbours.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from sklearn.cluster import DBSCAN
from torch import Tensor
from torch_geometric.data import Batch, Data

from sirgcn.ops import Neighbors
from sirgcn.strict import Count, check_name, checked

RULES = ("classical", "modified")
"""The update rules of `refine`."""


@dataclass(frozen=True)
class Refinement:
    """The colours of every round.

    Attributes:
        rule: a name of `RULES`.
        colours: colours after 0, 1, ... rounds; a colour's number means something within its row only.
        is_stable: whether the last row has the same classes as the one before it, so that no round changes them.
    """

    rule: str
    colours: Int[Tensor, "rounds_plus_1 nodes"]
    is_stable: bool

    @property
    def rounds(self) -> int:
        """Rounds that were run."""
        return self.colours.size(0) - 1

    def classes(self, round: int = -1) -> list[list[int]]:
        """The nodes of equal colour after a round, the last one by default, in the order of their first nodes."""
        found: dict[int, list[int]] = {}
        for node, colour in enumerate(self.colours[round].tolist()):
            found.setdefault(colour, []).append(node)
        return list(found.values())


@dataclass(frozen=True)
class Verdict:
    """What the test says of two graphs.

    Attributes:
        isomorphic: False if the graphs are certainly not isomorphic; None if the test cannot tell.
        round: the first round in which the numbers of nodes of each colour differ, or None.
        history: for every round, the numbers of nodes of each colour in the first and in the second graph.
    """

    isomorphic: bool | None
    round: int | None
    history: list[tuple[dict[int, int], dict[int, int]]]


@checked
def refine(data: Data, rule: str = "classical", rounds: Count | None = None, tolerance: float = 0.0) -> Refinement:
    r"""Colour refinement, the 1-WL test or its modification (Section 4.5), of one graph or of a batch.

    .. math::
        \text{classical: } w_u \gets \mathrm{hash}(w_u, \{\!\{ w_v : v \in N(u) \}\!\}),
        \qquad
        \text{modified: } w_u \gets \mathrm{hash}(\{\!\{ [w_v, w_u] : v \in N(u) \}\!\})

    The hash is exact: equal colours mean equal arguments. Where every node has a neighbour the two refine alike; a node
    without one keeps its colour in the first and forgets it in the second, as in SIR-GCN without a residual.

    Args:
        data: `edge_index`, and the first colours as `x`: labels or real features, `[nodes]` or `[nodes, features]`;
            without x all nodes start alike. Edge features are not read.
        rule: a name of `RULES`.
        rounds: how many; None goes on until the classes stay.
        tolerance: real features start in one class if they differ by at most this in every entry, or are joined by a
            chain of such; 0 asks for equal features.
    """
    check_name("rule", rule, RULES, exact=True)
    if rounds is not None and rounds < 0:
        raise ValueError(f"rounds: expected at least 0, got {rounds}")
    num_nodes = count_nodes(data)
    neighbors = Neighbors.from_edge_index(data.edge_index, num_nodes).by_target
    bounds, sources = neighbors.ptr.tolist(), neighbors.node.tolist()
    history = [_first_colours(data.x, num_nodes, tolerance)]
    is_stable = False
    while not is_stable and (rounds is None or len(history) <= rounds):
        before = history[-1]
        around = [sorted(before[v] for v in sources[bounds[u] : bounds[u + 1]]) for u in range(num_nodes)]
        if rule == "classical":
            after = _numbered((before[u], tuple(around[u])) for u in range(num_nodes))
        else:
            after = _numbered(tuple((colour, before[u]) for colour in around[u]) for u in range(num_nodes))
        # The classes of a round follow from those of the one before, so that equal ones stay for good.
        is_stable = after == before
        history.append(after)
    while rounds is not None and len(history) <= rounds:
        history.append(history[-1])
    return Refinement(rule, torch.tensor(history, dtype=torch.int64).reshape(len(history), num_nodes), is_stable)


def wl_test(
    one: Data, other: Data, rule: str = "classical", rounds: int | None = None, tolerance: float = 0.0
) -> Verdict:
    """The graph isomorphism test: both graphs are refined together, and the sizes of their classes compared.

    Arguments as `refine`. Either both graphs have x or neither.
    """
    together = joined(one, other)
    refinement = refine(together, rule, rounds, tolerance)
    first = count_nodes(one)
    history = []
    for row in refinement.colours:
        mine, others = (dict(sorted(Counter(part.tolist()).items())) for part in row.tensor_split([first]))
        history.append((mine, others))
    apart = next((place for place, (mine, others) in enumerate(history) if mine != others), None)
    return Verdict(None if apart is None else False, apart, history)


def joined(*graphs: Data) -> Batch:
    """The graphs side by side, with x alone of their features; labels `[nodes]` become one column."""
    if len({graph.x is None for graph in graphs}) > 1:
        raise ValueError("x: expected features in all graphs or in none")
    parts = []
    for graph in graphs:
        x = graph.x if graph.x is None or graph.x.dim() > 1 else graph.x.unsqueeze(1)
        parts.append(Data(x=x, edge_index=graph.edge_index, num_nodes=count_nodes(graph)))
    widths = {part.x.size(1) for part in parts if part.x is not None}
    if len(widths) > 1:
        raise ValueError(f"x: expected features of one width, got {', '.join(map(str, sorted(widths)))}")
    return Batch.from_data_list(parts)


def _first_colours(x: Tensor | None, num_nodes: int, tolerance: float) -> list[int]:
    if not 0 <= tolerance < float("inf"):
        raise ValueError(f"tolerance: expected a number of at least 0, got {tolerance}")
    if x is None or num_nodes == 0:
        return [0] * num_nodes
    rows = x.detach().reshape(num_nodes, -1).cpu()
    if rows.is_floating_point() and not bool(rows.isfinite().all()):
        node = int((~rows.isfinite().all(1)).nonzero()[0])
        raise ValueError(f"x: expected finite features, got {rows[node].tolist()} at node {node}")
    if tolerance > 0 and rows.is_floating_point():
        # With one point enough for a core, its clusters are the components of the graph of near points.
        found = DBSCAN(eps=tolerance, min_samples=1, metric="chebyshev").fit_predict(rows.double().numpy())
        return _numbered(found.tolist())
    # -0.0 and 0.0 are equal and have one hash.
    return _numbered(tuple(row) for row in rows.tolist())


def _numbered(colours: Iterable[Hashable]) -> list[int]:
    """0, 1, ... in the order of the first appearance: equal lists for equal classes."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(colour, len(numbers)) for colour in colours]


def count_nodes(data: Data) -> int:
    """The nodes of a graph: those of x, else as given, else up to the last node with an edge."""
    if "num_nodes" not in data and data.x is None:
        if not data.edge_index.numel():
            raise ValueError("data: expected x or num_nodes in a graph without edges")
        return int(data.edge_index.max()) + 1
    num_nodes: int = data.num_nodes
    if data.x is not None and data.x.size(0) != num_nodes:
        raise ValueError(f"x: expected a row for each of {num_nodes} nodes, got {data.x.size(0)}")
    return num_nodes
