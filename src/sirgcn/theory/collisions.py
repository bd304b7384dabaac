"""Which neighbourhoods a trained layer confuses: pairs with close outputs that a metric tells apart."""

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
    """Pairs of neighbourhoods that a layer confuses and a metric separates; `len` is how many there are.

    Attributes:
        pairs: the closest of them: nodes `first` and `second`, their `degree`, the distance of the layer's `outputs`,
            the `metric`'s D, and the `threshold` that was applied.
        found: how many pairs collide.
        separated: how many pairs the metric separates; a collision is one of them.
        compared: how many pairs were looked at: those of equal degree and equal query.
        groups: how many sets of at least two nodes of equal degree and equal query there are.
        closest_separated: the smallest distance of outputs over the separated pairs, inf without one.
        farthest_equivalent: the largest one over the other pairs, 0 without one.
        thresholds: the smallest and the largest that was applied to a group; (0, 0) without a group.
        sampled: how many nodes were left out because their group is larger than the limit.
        layer: what was looked at.
        metric: with which metric.
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
        """The figures as JSON values, without the pairs; without a separated pair, the closest one is None."""
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
    r"""The collisions of a trained layer (Section 3.1): what it puts into one class [H]_D and the metric does not.

    Two nodes are compared if they have equal degrees and equal features: then :math:`D(H_u, H_{u'}; h_u)` is defined
    and any difference of the outputs comes from the neighbourhoods. They collide if the metric separates them, D >
    `separation`, while the outputs are no farther apart than `threshold`. Time is quadratic in the size of a group of
    comparable nodes, memory linear.

    Args:
        layer: called as `layer(x, edge_index)`, gives `[nodes, channels]`: a `SIRConv`, a layer of PyG or of `CONVS`,
            or any function, such as a whole network. A module is called in eval mode.
        x: what the layer reads, `[nodes, F]`.
        graph: as `SIRConv` takes it.
        metric: what the task deems similar, with or without context.
        features: what the metric reads of every node, `[nodes, K]`; None takes x.
        nodes: whose neighbourhoods to compare, indices or a mask; None takes all that have one.
        context: a node whose features take the place of every node's own as the query, so that all neighbourhoods of
            one degree can be compared where no two nodes have equal features.
        threshold: a distance of outputs; None takes, in each group, the median distance at which the layer puts pairs
            that the metric deems equal: what is closer than these no reader of the outputs can tell apart reliably.
            Where a group has no such pairs, only outputs that are equal up to rounding collide.
        separation: D up to which two neighbourhoods are equal to the metric.
        limit: nodes of a group; from a larger one as many are drawn.
        keep: rows of `pairs`.
        seed: of the drawing.
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
        if len(group) > limit:
            left_out += len(group) - limit
            group = group[torch.randperm(len(group), generator=generator)[:limit].sort().values.to(group.device)]
        query = features[group[0] if context is None else context] if metric.contextual else None
        with torch.no_grad():
            truth = MultisetDistances(metric, features, members(neighbors, group), query)
        state.add(group, int(neighbors.in_degree()[group[0]]), outputs[group], truth, threshold)
    return state.result(len(groups), left_out, _name(layer), metric.name)


def outputs_of(network: nn.Module, name: str, **inputs: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """A layer within its network, as `collisions` calls it: x goes to the network, the layer's output comes back.

    Args:
        network: called as `network(x, edge_index, **inputs)`.
        name: of the layer, such as `blocks.0.conv`. What comes before it must not look at neighbours: take the first
            layer, or read the outputs of a later one as those of all layers up to it.
        inputs: of the network besides x and edge_index, such as `batch`.
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

    Rows are (attribute, value), and :math:`g(x; h_u)` is the value's unit vector, over :math:`\sqrt 2`, if x has the
    queried attribute and 0 if not. D between two dictionaries is then 1 if they store different values under the
    queried attribute, and 0 if not.
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
    """What the layer gives for every node, and the sets of nodes that can be compared."""
    edge_index, degree = neighbors.edge_index.long(), neighbors.in_degree().long()
    chosen = chosen[degree[chosen] > 0]
    if context is None:
        with observed(layer):
            outputs = layer(x, edge_index)
        kinds = [degree, *(torch.unique(rows, dim=0, return_inverse=True)[1] for rows in (x, features))]
    else:
        if not 0 <= context < len(x):
            raise IndexError(f"context: expected a node 0 <= u < {len(x)}, got {context}")
        # Every neighbourhood hangs on a second node with the features of the context.
        moved = torch.stack([edge_index[0], edge_index[1] + len(x)])
        with observed(layer):
            outputs = layer(torch.cat([x, x[context].expand_as(x)]), moved)[len(x) :]
        kinds = [degree]
    if len(outputs) != len(x) or outputs.dim() != 2:
        raise ValueError(f"layer: expected an output [{len(x)}, channels], got shape {list(outputs.shape)}")
    kind = torch.unique(torch.stack(kinds)[:, chosen], dim=1, return_inverse=True)[1]
    order = kind.argsort(stable=True)
    sets = chosen[order].split(torch.bincount(kind).tolist()) if len(chosen) else ()
    return outputs, [group for group in sets if len(group) > 1]


class _Tally:
    """Goes through the pairs of one group after the other and keeps the counts and the closest collisions."""

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
        # An empty frame would turn the columns of the others into objects.
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

    Gives `start`, the distances of the outputs, D, and which entries are such pairs, each `[rows, columns]`.
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
