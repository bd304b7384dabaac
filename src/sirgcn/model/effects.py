"""How much each edge, node and column moved a prediction: what the prediction loses when it is taken away."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from sirgcn.engine.inference import call
from sirgcn.model.naming import NamedColumn
from sirgcn.model.removal import Change, Neighbourhood, outputs_after, prepared_batch
from sirgcn.model.scoring import Score
from sirgcn.nn import NetConfig
from sirgcn.nn.convs import find_conv

# The edges of all copies of a neighbourhood that are computed to take every edge away once. Beyond it, only the edges
# that a derivative points to are taken away.
_MOST_EDGES = 20_000_000
_LEAST_TRIED = 24


@dataclass(frozen=True)
class Link:
    """An edge of a user's table: one directed edge, or the two directions of an undirected one.

    Args:
        edges: the numbers of the directed edges in the neighbourhood.
        source: the end that is farther from what is explained.
        target: the end that receives the message first.
    """

    edges: tuple[int, ...]
    source: int
    target: int


class Links(Sequence[Link]):
    """The edges that can change a prediction, nearest first; repeated ones are one.

    Args:
        near: the neighbourhood.
        directed: whether the two directions of an edge are two edges.
    """

    def __init__(self, near: Neighbourhood, directed: bool) -> None:
        self.directed = directed
        source, target = near.graphs.edge_index.numpy()
        hops = near.hops.numpy()
        first, second = (source, target) if directed else (np.minimum(source, target), np.maximum(source, target))
        _, group = np.unique(first * near.graphs.num_nodes + second, return_inverse=True)
        # Of two directions, the one that ends nearer is named, and stands first in its group.
        order = np.lexsort((np.arange(len(group)), target, hops[target], group))
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        is_reaching = hops[target[order[starts]]] < near.reach
        starts, ends = starts[is_reaching], np.append(starts[1:], len(order))[is_reaching]
        nearest = np.argsort(hops[target[order[starts]]], kind="stable")
        self._order, self._starts, self._ends = order, starts[nearest], ends[nearest]
        leaders = order[self._starts]
        self.source, self.target = source[leaders], target[leaders]

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, place: int) -> Link: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Link]: ...
    def __getitem__(self, place: int | slice) -> Link | Sequence[Link]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(f"link {place}: there are {len(self)}")
        edges = self._order[self._starts[place] : self._ends[place]]
        return Link(tuple(edges.tolist()), int(self.source[place]), int(self.target[place]))

    def sums(self, values: Tensor) -> Tensor:
        """The sum of the values of the directed edges of each link."""
        total = np.concatenate([[0.0], values.double().numpy()[self._order].cumsum()])
        return torch.from_numpy(total[self._ends] - total[self._starts])


@dataclass(frozen=True, eq=False)
class Effects:
    """Effects of some things: the score with them minus the score without them. Above 0 means for the prediction.

    Args:
        places: which of the things were taken away.
        effect: the effect of each.
        without: the score without each.
    """

    places: list[int]
    effect: list[float]
    without: list[float]


def effects_of(score: Score, near: Neighbourhood, changes: Sequence[Change], places: Sequence[int]) -> Effects:
    """The effects of changes, each computed exactly.

    Args:
        score: what is explained.
        near: the neighbourhood.
        changes: one for each thing.
        places: the numbers of these things.
    """
    found = score(outputs_after(score.model, near, [Change(), *changes]))
    without = found[1:]
    return Effects(list(places), (found[0] - without).tolist(), without.tolist())


def link_effects(score: Score, near: Neighbourhood, links: Links) -> Effects:
    """The effect of every link; of very many, of those that a derivative points to.

    Args:
        score: what is explained.
        near: the neighbourhood.
        links: the links.
    """
    places = list(range(len(links)))
    most = max(_LEAST_TRIED, _MOST_EDGES // max(1, near.graphs.num_edges))
    if len(links) > most:
        places = links.sums(_estimates(score, near)).abs().topk(most).indices.tolist()
    changes = [Change(edges=torch.tensor(links[place].edges)) for place in places]
    return effects_of(score, near, changes, places)


def _estimates(score: Score, near: Neighbourhood) -> Tensor:
    """What removing each edge changes, to first order; where no derivative exists, the nearest edges come first."""
    if not all(_reads_weights(member.config) for member in score.model.members):
        return 1.0 / (1 + near.hops[near.graphs.edge_index[1]])
    weight = torch.ones(near.graphs.num_edges, requires_grad=True)
    outputs = []
    with torch.enable_grad():
        for member in score.model.members:
            batch = prepared_batch(near, member.preparation)
            outputs.append(call(_Weighted(member.network, weight), batch, near.level).float())
        joined = score.model.joined(outputs)
        if near.level == "node":
            joined = joined[near.ends[0] : near.ends[0] + 1]
        (slope,) = torch.autograd.grad(score(joined).sum(), weight)
    return _centred(slope, near, [member.config.conv.options.get("aggr", "sum") for member in score.model.members])


class _Weighted(nn.Module):
    """A network that is called with weights of edges."""

    def __init__(self, network: nn.Module, weight: Tensor) -> None:
        super().__init__()
        self.network, self.weight = network, weight

    def forward(self, *arguments: object, **named: object) -> Tensor:
        found: Tensor = self.network(*arguments, edge_weight=self.weight, **named)
        return found


def _centred(slope: Tensor, near: Neighbourhood, reductions: Sequence[str]) -> Tensor:
    """The slopes without what removing an edge gives back to the others: a mean divides by one less."""
    target = near.graphs.edge_index[1]
    share = sum({"mean": 1.0, "sym": 0.5, "sym_in": 0.5}.get(name, 0.0) for name in reductions) / len(reductions)
    mean = scatter(slope, target, dim_size=near.graphs.num_nodes, reduce="mean")
    return slope - share * mean[target]


def _reads_weights(config: NetConfig) -> bool:
    conv = find_conv(config.conv.name)
    has_loops = conv.self_loops if config.conv.self_loops is None else config.conv.self_loops
    return "edge_weight" in conv.extra_inputs and not has_loops and config.conv.options.get("aggr") != "max"


@dataclass(frozen=True)
class DeletionTest:
    """Whether the named edges matter more than others of the same neighbourhood.

    Args:
        removed: how many edges are removed together.
        change: how much the score changes without the named ones.
        random: how much it changes without as many random ones, for each draw.
        sign: whether the named ones are for the prediction (1) or against it (-1).

    >>> DeletionTest(2, 3.0, (0.5, 1.0, 4.0), 1).passed
    True
    >>> str(DeletionTest(2, 3.0, (0.5, 1.0, 4.0), 1))  # doctest: +ELLIPSIS
    'without the 2 strongest edges for the prediction it changes by 3, ...more than 67 % of 3 random draws'
    """

    removed: int
    change: float
    random: tuple[float, ...]
    sign: int

    @property
    def random_mean(self) -> float:
        """The mean change without random edges."""
        return sum(self.random) / max(1, len(self.random))

    @property
    def share(self) -> float:
        """The share of the draws whose change is smaller."""
        return sum(value < self.change for value in self.random) / max(1, len(self.random))

    @property
    def passed(self) -> bool:
        """Whether the named edges change the score more than random ones do on average."""
        return self.change > self.random_mean

    def __str__(self) -> str:
        way = "for" if self.sign > 0 else "against"
        edges = "edge" if self.removed == 1 else f"{self.removed} strongest edges"
        which = "strongest edge" if self.removed == 1 else edges
        return (
            f"without the {which} {way} the prediction it changes by {self.change:.3g}, without as many random ones by "
            f"{self.random_mean:.3g}; that is more than {100 * self.share:.0f} % of {len(self.random)} random draws"
        )


def deletion_of(
    score: Score, near: Neighbourhood, links: Links, effects: Effects, draws: int = 20, seed: int = 0
) -> DeletionTest | None:
    """Remove the strongest named edges, and as many random ones, and compare; None where there are too few edges.

    Args:
        score: what is explained.
        near: the neighbourhood.
        links: all links of the neighbourhood.
        effects: the effects of the links.
        draws: how many sets of random edges are removed.
        seed: of the draws.
    """
    if len(links) < 2 or not effects.places:
        return None
    sign, named = _named(effects, min(5, max(1, len(links) // 4)))
    if not named:
        return None
    chosen = set(named)
    others = [place for place in range(len(links)) if place not in chosen]
    generator = torch.Generator().manual_seed(seed)
    sets = [named]
    for _ in range(draws):
        order = torch.randperm(len(others), generator=generator)[: len(named)]
        sets.append([others[place] for place in order.tolist()])
    changes = [Change(edges=torch.tensor([e for place in own for e in links[place].edges])) for own in sets]
    found = score(outputs_after(score.model, near, [Change(), *changes]))
    differences = (found[1:] - found[0]).abs().tolist()
    return DeletionTest(len(named), differences[0], tuple(differences[1:]), sign)


def _named(effects: Effects, most: int) -> tuple[int, list[int]]:
    """The sign of the strongest effects together, and the things that have it: both signs would cancel out."""
    ranked = sorted(zip(effects.places, effects.effect, strict=True), key=lambda pair: -abs(pair[1]))
    sides = {sign: [pair for pair in ranked if pair[1] * sign > 0][:most] for sign in (1, -1)}
    sign = max(sides, key=lambda sign: sum(abs(effect) for _, effect in sides[sign]))
    return sign, [place for place, _ in sides[sign]]


def node_effects(score: Score, near: Neighbourhood) -> Effects:
    """The effect of every node of a graph that is explained: of the node with all its edges."""
    count = near.graphs.num_nodes
    if near.level != "graph" or count < 2:
        return Effects([], [], [])
    most = max(_LEAST_TRIED, _MOST_EDGES // max(1, near.graphs.num_edges))
    places = list(range(min(count, most)))
    return effects_of(score, near, [Change(node=place) for place in places], places)


Inputs = Literal["nodes", "edges", "graph"]
"""What the rows of a column are."""


@dataclass(frozen=True)
class Part:
    """The rows in which a column is replaced.

    Args:
        name: what a reader calls the rows.
        of: what the rows are.
        rows: their numbers.
    """

    name: str
    of: Inputs
    rows: tuple[int, ...]


def parts_of(near: Neighbourhood) -> list[Part]:
    """The rows whose columns are explained apart: the explained node or the two ends of an edge, and the others."""
    count = near.graphs.num_nodes
    edges = Part("edges", "edges", tuple(range(near.graphs.num_edges)))
    if near.level == "graph":
        return [Part("this row", "graph", (0,)), Part("nodes", "nodes", tuple(range(count))), edges]
    ends = [Part("this row", "nodes", near.ends)]
    if near.level == "edge":
        pairs = zip(("source", "target"), near.ends, strict=True)
        ends = [Part(name, "nodes", (end,)) for name, end in pairs]
    explained = set(near.ends)
    others = tuple(place for place in range(count) if place not in explained)
    return [*ends, Part("neighbours", "nodes", others), edges]


def inputs_of(near: Neighbourhood) -> dict[Inputs, Tensor | None]:
    """The inputs of nodes, edges and the graph."""
    return {"nodes": near.graphs.x, "edges": near.graphs.edge_attr, "graph": near.graph_attr}


def column_effects(
    score: Score,
    near: Neighbourhood,
    columns: Mapping[Inputs, Sequence[NamedColumn]],
    references: Mapping[Inputs, Tensor | None],
) -> list[tuple[Part, NamedColumn, float, float]]:
    """The effect of every column in every part: what replacing it by its mean (or most frequent category) takes away.

    Args:
        score: what is explained.
        near: the neighbourhood.
        columns: the columns of nodes, edges and graphs.
        references: the rows that stand for no knowledge.
    """
    found = []
    most = max(_LEAST_TRIED, _MOST_EDGES // max(1, near.graphs.num_edges + near.graphs.x.numel()))
    for part in parts_of(near):
        inputs, reference = inputs_of(near)[part.of], references[part.of]
        if inputs is None or reference is None or not part.rows:
            continue
        own = _most_unusual(columns[part.of], inputs[list(part.rows)], reference, most)
        changes = [_replaced(near, inputs, part, column, reference) for column in own]
        effects = effects_of(score, near, changes, range(len(own)))
        found += [
            (part, column, effect, without)
            for column, effect, without in zip(own, effects.effect, effects.without, strict=True)
        ]
    return found


def _most_unusual(columns: Sequence[NamedColumn], rows: Tensor, reference: Tensor, most: int) -> list[NamedColumn]:
    """The columns that differ from the reference; of very many, those that differ most."""
    away = (rows.float() - reference.float()).abs().mean(0)
    distance = {column: float(away[column.first : column.first + column.width].max()) for column in columns}
    changed = [column for column in columns if distance[column] > 0]
    return sorted(changed, key=lambda column: -distance[column])[:most]


def _replaced(near: Neighbourhood, inputs: Tensor, part: Part, column: NamedColumn, reference: Tensor) -> Change:
    other, columns = inputs.clone(), slice(column.first, column.first + column.width)
    other[torch.tensor(part.rows), columns] = reference[columns].to(other.dtype)
    if part.of == "graph":
        return Change(graph_attr=other)
    if part.of == "nodes":
        return Change(x=other)
    label_attr = near.label_attr
    if label_attr is not None:
        label_attr = label_attr.clone()
        label_attr[:, columns] = reference[columns].to(other.dtype)
    return Change(edge_attr=other, label_attr=label_attr)
