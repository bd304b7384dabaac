"""Which neighbourhoods a trained layer confuses: pairs with close outputs that a metric separates."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sirgcn.nn.adjacency import Graph, as_neighbors
from sirgcn.ops import Neighbors
from sirgcn.strict import Size, checked
from sirgcn.theory.multisets import MultisetDistances, members
from sirgcn.theory.pseudometrics import Pseudometric, feature_distance, observed, row_distances

_ROWS = 256


@dataclass(frozen=True, eq=False, repr=False)
class Collisions:
    """Pairs of neighbourhoods that a layer confuses and a metric separates. `len` is the number of these pairs.

    Attributes:
        pairs: the closest pairs, with the columns `first` and `second` (nodes), `degree`, `outputs` (the distance
            between the outputs of the layer), `metric` (D) and `threshold`.
        found: how many pairs collide.
        separated: how many pairs the metric separates; the colliding pairs are among them.
        compared: how many pairs were compared: those of equal degree and equal query.
        groups: how many sets of at least two nodes of equal degree and equal query there are.
        closest_separated: the smallest distance between the outputs of a separated pair; inf if there is none.
        farthest_equivalent: the largest distance between the outputs of another pair; 0 if there is none.
        thresholds: the smallest and the largest threshold of a group; (0, 0) if there is no group.
        sampled: how many nodes were left out because their group is larger than the limit.
        layer: the name of the layer.
        metric: the name of the metric.

    >>> from sirgcn.theory import euclidean
    >>> x, edge_index = torch.tensor([[0.0], [3.0], [0.0], [0.0]]), torch.tensor([[0, 1], [2, 3]])
    >>> found = collisions(lambda x, edge_index: torch.zeros_like(x), x, edge_index, euclidean())
    >>> len(found), found.pairs[["first", "second", "metric"]].values.tolist()
    (1, [[2.0, 3.0, 3.0]])
    """

    pairs: pd.DataFrame
    found: int
    separated: int
    compared: int
    groups: int
    closest_separated: float
    farthest_equivalent: float
    thresholds: tuple[float, float]
    sampled: int
    layer: str
    metric: str

    def __len__(self) -> int:
        return self.found

    def to_dict(self) -> dict[str, Any]:
        """All attributes except the pairs as JSON values. `closest_separated` is None if no pair is separated."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "pairs"}
        closest = self.closest_separated if self.separated else None
        return found | {"thresholds": list(self.thresholds), "closest_separated": closest}

    def __repr__(self) -> str:
        lines = [
            f"{self.layer} confuses {self.found:,} of {self.separated:,} pairs of neighbourhoods that {self.metric} "
            f"separates,",
            f"of {self.compared:,} pairs of equal degree and query in {self.groups:,} groups.",
            f"Outputs: confused up to {_range(*self.thresholds)} apart; closest separated pair "
            f"{self.closest_separated:.4g}, farthest equivalent pair {self.farthest_equivalent:.4g}.",
        ]
        if self.sampled:
            lines.append(f"{self.sampled:,} nodes of large groups were left out.")
        if not self.compared:
            lines.append(
                "No two nodes have equal degrees and features; `context` puts all under the query of one node."
            )
        if self.found:
            lines.append(self.pairs.head(10).to_string(index=False, float_format=lambda value: f"{value:.4g}"))
        return "\n".join(lines)


def collisions(  # noqa: PLR0913 - the settings of one search, all by name
    layer: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    graph: Graph,
    metric: Pseudometric,
    *,
    features: Tensor | None = None,
    nodes: Tensor | None = None,
    context: int | None = None,
    threshold: float | None = None,
    separation: float = 1e-6,
    limit: int = 4096,
    keep: int = 1000,
    seed: int = 0,
) -> Collisions:
    r"""The collisions of a trained layer (Section 3.1): pairs that it puts into one class [H]_D, unlike the metric.

    Two nodes are compared if they have equal degrees and equal features. Then :math:`D(H_u, H_{u'}; h_u)` is defined,
    and any difference between the outputs comes from the neighbourhoods. The nodes collide if

    - the metric separates them: D > `separation`,
    - and their outputs are at most `threshold` apart.

    Time is quadratic in the size of a group of comparable nodes, memory is linear.

    Args:
        layer: called as `layer(x, edge_index)`, returns `[nodes, channels]`: a `SIRConv`, a layer of PyG or of `CONVS`,
            or any function, such as a whole network. A module is called in eval mode.
        x: what the layer reads, `[nodes, F]`.
        graph: `edge_index` or `Neighbors`, as for `SIRConv`.
        metric: what the task deems similar, with or without context.
        features: what the metric reads of every node, `[nodes, K]`; None means x.
        nodes: the nodes whose neighbourhoods are compared, as indices or as a mask; None means all nodes that have
            neighbours.
        context: a node whose features become the query of every node. With it, all neighbourhoods of one degree can be
            compared, even if no two nodes have equal features.
        threshold: the largest distance between the outputs of a collision. None means, for each group, the median
            distance between the outputs of pairs that the metric deems equal: a reader of the outputs cannot reliably
            tell apart what is closer. In a group without such pairs, only outputs that are equal up to rounding
            collide.
        separation: the metric deems neighbourhoods with D up to this value equal.
        limit: the largest number of nodes of a group; from a larger group, so many nodes are drawn.
        keep: the largest number of rows of `pairs`.
        seed: of the draw.

    >>> from sirgcn.nn import SIRConv
    >>> from sirgcn.theory import euclidean
    >>> x, edge_index = torch.tensor([[0.0], [3.0], [0.0], [0.0]]), torch.tensor([[0, 1], [2, 3]])
    >>> len(collisions(SIRConv(1, 4), x, edge_index, euclidean()))
    0
    """
    features = x if features is None else features
    if len(features) != len(x):
        raise ValueError(f"features: expected {len(x)} rows, one per node as x has, got {len(features)}")
    if not separation >= 0 or not (threshold is None or threshold >= 0):
        raise ValueError(f"threshold, separation: expected at least 0, got {threshold} and {separation}")
    if limit < 2 or keep < 1:
        raise ValueError(f"limit, keep: expected at least 2 nodes and 1 pair, got {limit} and {keep}")
    neighbors = as_neighbors(graph, len(x), len(x))
    chosen = torch.arange(len(x), device=x.device)[slice(None) if nodes is None else nodes].unique()
    outputs, groups = _outputs_and_groups(layer, x, neighbors, features, chosen, context)
    state = _Tally(keep, separation)
    generator = torch.Generator().manual_seed(seed)
    left_out = 0
    for group in groups:
        compared = _at_most(group, limit, generator)
        left_out += len(group) - len(compared)
        query = _query_of(metric, features, compared, context)
        with torch.no_grad():
            truth = MultisetDistances(metric, features, members(neighbors, compared), query)
        state.add(compared, int(neighbors.in_degree()[compared[0]]), outputs[compared], truth, threshold)
    return state.result(len(groups), left_out, _name(layer), metric.name)


def _at_most(group: Tensor, limit: int, generator: torch.Generator) -> Tensor:
    """The group itself, or as many of its nodes as the limit allows, drawn at random."""
    if len(group) <= limit:
        return group
    return group[torch.randperm(len(group), generator=generator)[:limit].sort().values.to(group.device)]


def _query_of(metric: Pseudometric, features: Tensor, group: Tensor, context: int | None) -> Tensor | None:
    """The query that the nodes of a group share, if the metric reads one."""
    if not metric.contextual:
        return None
    return features[group[0] if context is None else context]


def outputs_of(network: nn.Module, name: str, **inputs: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """A layer inside a network as a function of (x, edge_index), for `collisions`.

    The function passes x to the network and returns the output of the layer.

    Args:
        network: called as `network(x, edge_index, **inputs)`.
        name: the name of the layer, such as `blocks.0.conv`. The modules before it must not read neighbours: take the
            first layer, or understand the outputs of a later layer as those of all layers up to it.
        inputs: other inputs of the network, such as `batch`.

    >>> from torch_geometric.nn import GCN
    >>> first = outputs_of(GCN(3, 4, num_layers=2), "convs.0")
    >>> first(torch.ones(2, 3), torch.tensor([[0], [1]])).shape
    torch.Size([2, 4])
    """
    layer = network.get_submodule(name)

    def part(x: Tensor, edge_index: Tensor) -> Tensor:
        seen: list[Tensor] = []
        handle = layer.register_forward_hook(lambda module, given, output: seen.append(output))
        try:
            with observed(network):
                network(x, edge_index, **inputs)
        finally:
            handle.remove()
        if len(seen) != 1:
            raise ValueError(
                f"name: expected a part of the network that is called once, got {len(seen)} calls of {name}"
            )
        return seen[0]

    part.__name__ = type(layer).__name__
    return part


@checked
def lookup_distance(n: Size) -> Pseudometric:
    r"""The metric of DictionaryLookup with n attributes: whether two keys store the same value for the query.

    Rows are (attribute, value). If x has the queried attribute, :math:`g(x; h_u)` is the unit vector of the value,
    divided by :math:`\sqrt 2`; otherwise it is 0. D between two dictionaries is 1 if they store different values under
    the queried attribute, and 0 otherwise.

    >>> from sirgcn.theory import kernel_distance
    >>> first, second = torch.tensor([[1, 1], [2, 2]]), torch.tensor([[1, 2], [2, 1]])
    >>> round(kernel_distance(lookup_distance(2), first, second, query=torch.tensor([1, 0])).item(), 6)
    1.0
    """

    def stored_value(x: Tensor, query: Tensor) -> Tensor:
        asked = x[..., :1] == query[..., None, :1]
        return F.one_hot(x[..., 1], n + 1).double() * asked * math.sqrt(0.5)

    return feature_distance(stored_value, "the value under the queried attribute", contextual=True)


def _outputs_and_groups(
    layer: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    neighbors: Neighbors,
    features: Tensor,
    chosen: Tensor,
    context: int | None,
) -> tuple[Tensor, list[Tensor]]:
    """The output of the layer for every node, and the sets of nodes that can be compared."""
    edge_index, degree = neighbors.edge_index.long(), neighbors.in_degree().long()
    chosen = chosen[degree[chosen] > 0]
    with observed(layer):
        outputs = layer(x, edge_index) if context is None else _outputs_in_context(layer, x, edge_index, context)
    if len(outputs) != len(x) or outputs.dim() != 2:
        raise ValueError(f"layer: expected an output [{len(x)}, channels], got shape {list(outputs.shape)}")
    columns = [degree]
    if context is None:
        columns += [torch.unique(rows, dim=0, return_inverse=True)[1] for rows in (x, features)]
    number = torch.unique(torch.stack(columns)[:, chosen], dim=1, return_inverse=True)[1]
    order = number.argsort(stable=True)
    sets = chosen[order].split(torch.bincount(number).tolist()) if len(chosen) else ()
    return outputs, [group for group in sets if len(group) > 1]


def _outputs_in_context(
    layer: Callable[[Tensor, Tensor], Tensor], x: Tensor, edge_index: Tensor, context: int
) -> Tensor:
    """The output for every neighbourhood under the query of one node."""
    if not 0 <= context < len(x):
        raise IndexError(f"context: expected a node 0 <= u < {len(x)}, got {context}")
    # Every neighbourhood is attached to a second node, which has the features of the context.
    moved = torch.stack([edge_index[0], edge_index[1] + len(x)])
    return layer(torch.cat([x, x[context].expand_as(x)]), moved)[len(x) :]


class _Tally:
    """Counts the pairs of one group after another, and keeps the closest collisions."""

    def __init__(self, keep: int, separation: float) -> None:
        self.keep, self.separation = keep, separation
        self.found = self.separated = self.compared = 0
        self.closest, self.farthest = float("inf"), 0.0
        self.thresholds: list[float] = []
        self.best: list[pd.DataFrame] = []

    def add(
        self, group: Tensor, degree: int, outputs: Tensor, truth: MultisetDistances, threshold: float | None
    ) -> None:
        if threshold is None:
            threshold = self._typical(outputs, truth)
        self.thresholds.append(threshold)
        outputs = outputs.double()
        kept: list[Tensor] = []
        for start, apart, distance, valid in _blocks(outputs, truth):
            separated = (distance > self.separation) & valid
            pairs, split = int(valid.sum()), int(separated.sum())
            self.compared += pairs
            self.separated += split
            if split:
                self.closest = min(self.closest, float(apart[separated].min()))
            if pairs > split:
                self.farthest = max(self.farthest, float(apart[valid & ~separated].max()))
            hits = separated & (apart <= threshold)
            self.found += int(hits.sum())
            near = apart.where(hits, math.inf).flatten().topk(min(self.keep, int(hits.sum())), largest=False)
            row, column = near.indices // apart.size(1), near.indices % apart.size(1)
            places = torch.stack([start + row, start + 1 + column])
            kept.append(torch.cat([places.double(), torch.stack([near.values, distance[row, column]])]))
        rows = torch.cat(kept, dim=1)
        first, second = (group[rows[side].long()].cpu().numpy() for side in (0, 1))
        frame = {"first": first, "second": second, "degree": degree, "outputs": rows[2].cpu().numpy()}
        frame |= {"metric": rows[3].cpu().numpy(), "threshold": threshold}
        # Concatenating an empty frame would turn the columns of the others into objects.
        if len(first):
            self.best = [_closest(pd.concat([*self.best, pd.DataFrame(frame)]), self.keep)]

    def _typical(self, outputs: Tensor, truth: MultisetDistances) -> float:
        blocks = _blocks(outputs.double(), truth)
        equal = torch.cat([apart[(distance <= self.separation) & valid] for _, apart, distance, valid in blocks])
        rounding = 64 * torch.finfo(outputs.dtype).eps * float(outputs.norm(dim=1).max())
        return max(rounding, float(equal.median()) if len(equal) else 0.0)

    def result(self, groups: int, left_out: int, layer: str, metric: str) -> Collisions:
        columns = ["first", "second", "degree", "outputs", "metric", "threshold"]
        pairs = self.best[0].reset_index(drop=True) if self.best else pd.DataFrame(columns=columns)
        counts = (self.found, self.separated, self.compared, groups)
        applied = (min(self.thresholds, default=0.0), max(self.thresholds, default=0.0))
        return Collisions(pairs, *counts, self.closest, self.farthest, applied, left_out, layer, metric)


def _blocks(outputs: Tensor, truth: MultisetDistances) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """Every pair i < j once, in blocks of rows i from `start` and columns j from `start + 1`.

    Yields `start`, the distances between the outputs, D, and which entries are such pairs, each `[rows, columns]`.
    """
    for start in range(0, len(outputs) - 1, _ROWS):
        these, those = slice(start, start + _ROWS), slice(start + 1, len(outputs))
        apart = row_distances(outputs[these], outputs[those])
        yield start, apart, truth.block(these, those).double(), torch.ones_like(apart, dtype=torch.bool).triu()


def _closest(frame: pd.DataFrame, keep: int) -> pd.DataFrame:
    return frame.sort_values(["outputs", "first", "second"], kind="stable").head(keep)


def _range(low: float, high: float) -> str:
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _name(layer: object) -> str:
    return type(layer).__name__ if isinstance(layer, nn.Module) else str(getattr(layer, "__name__", "the layer"))
