"""The 1-WL test of graph isomorphism and the paper's modification of it (Section 4.5).

Edges go from v to u, as messages do. The new colour of u is a hash of the colours of its in-neighbours.
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
    """The colours of all nodes after every round. `refine` returns it.

    Attributes:
        rule: a name of `RULES`.
        colours: the colours after 0, 1, ... rounds. The number of a colour has a meaning within its row only.
        is_stable: whether the last row has the same classes as the row before it. Then no further round changes them.

    >>> path = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
    >>> found = refine(path)
    >>> found.rounds, found.classes()
    (2, [[0, 2], [1]])
    """

    rule: str
    colours: Int[Tensor, "rounds_plus_1 nodes"]
    is_stable: bool

    @property
    def rounds(self) -> int:
        """How many rounds were run."""
        return self.colours.size(0) - 1

    def classes(self, round: int = -1) -> list[list[int]]:
        """The sets of nodes of equal colour after a round, by default the last, in the order of their first nodes."""
        found: dict[int, list[int]] = {}
        for node, colour in enumerate(self.colours[round].tolist()):
            found.setdefault(colour, []).append(node)
        return list(found.values())


@dataclass(frozen=True)
class Verdict:
    """What the test says about two graphs. `wl_test` returns it.

    Attributes:
        isomorphic: False if the graphs are certainly not isomorphic; None if the test cannot tell.
        round: the first round in which the graphs have different numbers of nodes of some colour, or None.
        history: for every round, the number of nodes of each colour in the first and in the second graph.

    >>> edge = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)
    >>> loops = Data(edge_index=torch.tensor([[0, 1], [0, 1]]), num_nodes=2)
    >>> verdict = wl_test(edge, loops)
    >>> verdict.isomorphic, verdict.round
    (False, 1)
    """

    isomorphic: bool | None
    round: int | None
    history: list[tuple[dict[int, int], dict[int, int]]]


@checked
def refine(data: Data, rule: str = "classical", rounds: Count | None = None, tolerance: float = 0.0) -> Refinement:
    r"""Colour refinement of one graph or of a batch: the 1-WL test or its modification (Section 4.5).

    .. math::
        \text{classical: } w_u \gets \mathrm{hash}(w_u, \{\!\{ w_v : v \in N(u) \}\!\}),
        \qquad
        \text{modified: } w_u \gets \mathrm{hash}(\{\!\{ [w_v, w_u] : v \in N(u) \}\!\})

    The hash is exact: equal colours mean equal arguments. Both rules find the same classes if every node has a
    neighbour. A node without neighbours keeps its colour under the classical rule. Under the modified rule it forgets
    its colour, as in SIR-GCN without a residual.

    Args:
        data: a graph. Its `x` holds the first colours: labels or real features, `[nodes]` or `[nodes, features]`.
            Without x all nodes begin with one colour. Edge features are ignored.
        rule: a name of `RULES`.
        rounds: how many rounds to run; None runs until the classes no longer change.
        tolerance: nodes begin in one class if their real features differ by at most this much in every entry, or if
            a chain of such nodes joins them. With 0, the features must be equal.

    >>> star = Data(edge_index=torch.tensor([[1, 2, 3], [0, 0, 0]]), num_nodes=4)
    >>> refine(star).classes()
    [[0], [1, 2, 3]]
    """
    check_name("rule", rule, RULES, exact=True)
    num_nodes = count_nodes(data)
    neighbors = Neighbors.from_edge_index(data.edge_index, num_nodes).by_target
    bounds, sources = neighbors.ptr.tolist(), neighbors.node.tolist()
    around = [sources[bounds[u] : bounds[u + 1]] for u in range(num_nodes)]
    history = [_first_colours(data.x, num_nodes, tolerance)]
    is_stable = False
    while not is_stable and (rounds is None or len(history) <= rounds):
        history.append(_next_colours(history[-1], around, rule))
        # The classes of a round follow from those of the round before. Once they are equal they stay equal.
        is_stable = history[-1] == history[-2]
    if rounds is not None:
        history += [history[-1]] * (rounds + 1 - len(history))
    return Refinement(rule, torch.tensor(history, dtype=torch.int64).reshape(len(history), num_nodes), is_stable)


def _next_colours(before: list[int], around: list[list[int]], rule: str) -> list[int]:
    """The colours after one more round. `around` holds the in-neighbours of every node."""
    colours: list[Hashable] = []
    for own, neighbors in zip(before, around, strict=True):
        seen = tuple(sorted(before[v] for v in neighbors))
        if rule == "classical":
            colours.append((own, seen))
        else:
            colours.append(tuple((colour, own) for colour in seen))
    return _numbered(colours)


def wl_test(
    one: Data, other: Data, rule: str = "classical", rounds: int | None = None, tolerance: float = 0.0
) -> Verdict:
    """The graph isomorphism test: refines both graphs together and compares the sizes of their classes.

    The other arguments are those of `refine`. Either both graphs have x or neither has.

    >>> from sirgcn.theory import circulant
    >>> hexagon, triangles = circulant(6), circulant(3, copies=2)
    >>> print(wl_test(hexagon, triangles).isomorphic)
    None
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
    """The graphs side by side as one batch. Of their features it keeps x only; labels `[nodes]` become one column.

    >>> one = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)
    >>> joined(one, one).edge_index.tolist()
    [[0, 2], [1, 3]]
    """
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
    if not rows.is_floating_point():
        return _numbered(tuple(row) for row in rows.tolist())
    _check_finite(rows)
    if tolerance > 0:
        # With min_samples=1 every point is a core point: the clusters are the components of the graph of near points.
        found = DBSCAN(eps=tolerance, min_samples=1, metric="chebyshev").fit_predict(rows.double().numpy())
        return _numbered(found.tolist())
    # -0.0 and 0.0 are equal and have one hash.
    return _numbered(tuple(row) for row in rows.tolist())


def _check_finite(rows: Tensor) -> None:
    is_finite = rows.isfinite().all(1)
    if not bool(is_finite.all()):
        node = int((~is_finite).nonzero()[0])
        raise ValueError(f"x: expected finite features, got {rows[node].tolist()} at node {node}")


def _numbered(colours: Iterable[Hashable]) -> list[int]:
    """The colours as numbers 0, 1, ... in the order in which they first appear. Equal classes give equal lists."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(colour, len(numbers)) for colour in colours]


def count_nodes(data: Data) -> int:
    """The number of nodes of a graph: rows of x, else `num_nodes`, else up to the last node with an edge.

    >>> count_nodes(Data(edge_index=torch.tensor([[0], [4]])))
    5
    """
    if "num_nodes" not in data and data.x is None:
        if not data.edge_index.numel():
            raise ValueError("data: expected x or num_nodes in a graph without edges")
        return int(data.edge_index.max()) + 1
    num_nodes: int = data.num_nodes
    if data.x is not None and data.x.size(0) != num_nodes:
        raise ValueError(f"x: expected a row for each of {num_nodes} nodes, got {data.x.size(0)}")
    return num_nodes
