"""What a prediction becomes when edges, nodes or columns are taken away: the exact part of an explanation."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn.data.graphs import Graphs, Level
from sirgcn.engine.inference import call
from sirgcn.model.fitted import Model
from sirgcn.model.preparation import Preparation
from sirgcn.nn.convs import find_conv

# As many edges, or numbers of node features, are computed at once.
_AT_ONCE = 2_000_000

Walks = tuple[Tensor | None, Tensor | None]
"""The encodings of nodes and of edges."""


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The part of the graphs that a prediction depends on, with its nodes and edges numbered anew.

    Args:
        level: what is explained: a node, an edge or a graph.
        graphs: this part as one graph.
        ends: the nodes that are explained: one node, the source and the target of an edge, or none of a graph.
        nodes: the numbers of the nodes in all graphs.
        edges: the numbers of the edges in all graphs.
        hops: how many edges lead from each node to an explained node; 0 in a graph that is explained.
        reach: a message counts if it arrives at a node of fewer hops.
        first: the number of the first node of this graph in all graphs.
        label_attr: the features of an explained edge.
        walks: the encodings for each preparation with walks, where walks may leave this part.
        graph_attr: the features of an explained graph.
    """

    level: Level
    graphs: Graphs
    ends: tuple[int, ...]
    nodes: Tensor
    edges: Tensor
    hops: Tensor
    reach: int
    first: int
    label_attr: Tensor | None = None
    walks: dict[Preparation, Walks] = field(default_factory=dict)
    graph_attr: Tensor | None = None

    def reaching(self) -> Tensor:
        """Which edges can change the prediction, bool `[edges]`."""
        return self.hops[self.graphs.edge_index[1]] < self.reach


def neighbourhood_of(model: Model, graphs: Graphs, row: int) -> Neighbourhood:
    """The part of the graphs that the prediction of a row depends on.

    With k layers this is every node from which at most k edges lead to the explained one, and every edge that begins or
    ends in such a node, because the weights of messages depend on degrees. A network that reads its whole graph gets
    all of it.

    Args:
        model: the model.
        graphs: the inputs.
        row: the number of the node, edge or graph.
    """
    node_ptr, edge_ptr = graphs.pointers()
    pointer = {"node": node_ptr, "edge": edge_ptr, "graph": torch.arange(len(graphs) + 1)}[graphs.level]
    number = int(torch.searchsorted(pointer, row, right=True)) - 1
    start = int(node_ptr[number]), int(edge_ptr[number])
    batch = graphs.batch(torch.tensor([number]))
    whole = _graph(batch.x, batch.edge_index, batch.edge_attr, batch.get("pe"), batch.get("edge_pe"))
    if graphs.level != "graph":
        return _around(model, whole, graphs.level, row - int(pointer[number]), start)
    nodes, edges = torch.arange(whole.num_nodes) + start[0], torch.arange(whole.num_edges) + start[1]
    hops = torch.zeros(whole.num_nodes, dtype=torch.int64)
    return Neighbourhood("graph", whole, (), nodes, edges, hops, 1, start[0], graph_attr=batch.get("graph_attr"))


def _around(model: Model, whole: Graphs, level: Level, row: int, start: tuple[int, int]) -> Neighbourhood:
    """The part of a graph around a node, or around the ends of an edge."""
    ends = whole.edge_index[:, row] if level == "edge" else torch.tensor([row])
    reach = max(member.config.block.layers for member in model.members)
    hops = _hops(whole, ends, reach)
    is_near = torch.ones_like(hops, dtype=torch.bool) if _sees_all(model) else hops <= reach
    kept = is_near[whole.edge_index].any(0)
    held = is_near.index_fill(0, whole.edge_index[:, kept].flatten(), True)
    part, nodes, edges = _part(whole, held, kept)
    place = torch.full_like(hops, -1).index_copy(0, nodes, torch.arange(len(nodes)))
    label_attr = whole.edge_attr[row : row + 1] if level == "edge" and whole.edge_attr is not None else None
    if _sees_all(model):
        # Every message reaches the explained node by way of the graph.
        reach = int(hops.max()) + 1
    numbers, local = (nodes + start[0], edges + start[1]), tuple(place[ends].tolist())
    walks = _walks(model, whole, nodes, edges)
    return Neighbourhood(level, part, local, *numbers, hops[nodes], reach, start[0], label_attr, walks)


def _walks(model: Model, whole: Graphs, nodes: Tensor, edges: Tensor) -> dict[Preparation, Walks]:
    """The encodings of the nodes and edges of a part, as they are in the whole graph."""
    found: dict[Preparation, Walks] = {}
    for step in dict.fromkeys(member.preparation for member in model.members if member.preparation.walks):
        made = step.apply(whole)
        found[step] = tuple(  # type: ignore[assignment]
            None if rows is None else rows[index] for rows, index in ((made.pe, nodes), (made.edge_pe, edges))
        )
    return found


def _graph(
    x: Tensor, edge_index: Tensor, edge_attr: Tensor | None, pe: Tensor | None, edge_pe: Tensor | None
) -> Graphs:
    y = torch.zeros(x.size(0), dtype=torch.int64)
    return Graphs(x, edge_index, y, "node", edge_attr, pe, edge_pe)


def _hops(graph: Graphs, ends: Tensor, reach: int) -> Tensor:
    """How many edges lead from each node to one of the ends; reach + 1 for more than `reach`."""
    source, target = graph.edge_index
    hops = torch.full((graph.num_nodes,), reach + 1)
    hops[ends] = 0
    for hop in range(1, reach + 1):
        found = source[hops[target] == hop - 1]
        hops[found] = hops[found].clamp(max=hop)
    return hops


def _sees_all(model: Model) -> bool:
    """Whether a network reads all nodes of its graph."""
    configs = [member.config for member in model.members]
    return any(c.context.virtual_node or "batch" in find_conv(c.conv.name).extra_inputs for c in configs)


def _part(graph: Graphs, held: Tensor, kept: Tensor) -> tuple[Graphs, Tensor, Tensor]:
    """The graph of some nodes and edges, and the numbers that these had."""
    nodes, edges = held.nonzero().squeeze(1), kept.nonzero().squeeze(1)
    place = torch.full((graph.num_nodes,), -1).index_copy(0, nodes, torch.arange(len(nodes)))
    tensors = (
        None if tensor is None else tensor[index]
        for tensor, index in ((graph.edge_attr, edges), (graph.pe, nodes), (graph.edge_pe, edges))
    )
    return _graph(graph.x[nodes], place[graph.edge_index[:, edges]], *tensors), nodes, edges


@dataclass(frozen=True, eq=False)
class Change:
    """A neighbourhood with something taken away.

    Args:
        edges: the numbers of the edges that are taken away.
        node: the node that is taken away with all its edges; never one that is explained.
        x: other node features; None leaves them.
        edge_attr: other edge features; None leaves them.
        label_attr: other features of the explained edge; None leaves them.
        graph_attr: other features of the graph; None leaves them.
    """

    edges: Tensor | None = None
    node: int | None = None
    x: Tensor | None = None
    edge_attr: Tensor | None = None
    label_attr: Tensor | None = None
    graph_attr: Tensor | None = None


@torch.no_grad()
def outputs_after(model: Model, near: Neighbourhood, changes: Sequence[Change]) -> Tensor:
    """The outputs of the explained row after each change, `[changes, outputs]`. Several are computed at once."""
    at_once = max(1, _AT_ONCE // max(near.graphs.num_edges, near.graphs.x.numel(), 1))
    found = [_outputs(model, near, changes[start : start + at_once]) for start in range(0, len(changes), at_once)]
    return torch.cat(found) if found else torch.zeros(0, model.problem.schema.outputs)


def _outputs(model: Model, near: Neighbourhood, changes: Sequence[Change]) -> Tensor:
    copies = [_changed(near, change) for change in changes]
    starts = torch.tensor([0, *(graph.num_nodes for graph, _, _ in copies)]).cumsum(0)
    steps = dict.fromkeys(member.preparation for member in model.members)
    batches = {step: _batch(near, copies, changes, starts, step) for step in steps}
    joined = model.joined([call(m.network, batches[m.preparation], near.level).float() for m in model.members])
    if near.level != "node":
        return joined
    # Nodes are taken away from graphs only, so every copy has the explained node in its place.
    return joined[starts[:-1] + near.ends[0]]


def prepared_batch(near: Neighbourhood, step: Preparation) -> Data:
    """The neighbourhood as a network reads it, with nothing taken away."""
    copies = [_changed(near, Change())]
    return _batch(near, copies, [Change()], torch.tensor([0, near.graphs.num_nodes]), step)


def _changed(near: Neighbourhood, change: Change) -> tuple[Graphs, Tensor, Tensor]:
    graph = near.graphs
    if change.x is not None:
        graph = replace(graph, x=change.x)
    if change.edge_attr is not None:
        graph = replace(graph, edge_attr=change.edge_attr)
    if change.edges is None and change.node is None:
        return graph, torch.arange(graph.num_nodes), torch.arange(graph.num_edges)
    held = torch.ones(graph.num_nodes, dtype=torch.bool)
    kept = torch.ones(graph.num_edges, dtype=torch.bool)
    if change.node is not None:
        held[change.node] = False
        kept = held[graph.edge_index].all(0)
    if change.edges is not None:
        kept[change.edges] = False
    return _part(graph, held, kept)


def _batch(
    near: Neighbourhood,
    copies: Sequence[tuple[Graphs, Tensor, Tensor]],
    changes: Sequence[Change],
    starts: Tensor,
    step: Preparation,
) -> Data:
    """The copies side by side, prepared for a network."""
    batch = _prepared(near, copies, _side_by_side([graph for graph, _, _ in copies], starts), step)
    if near.graph_attr is not None:
        batch.graph_attr = torch.cat([_or(change.graph_attr, near.graph_attr) for change in changes])
    if near.level == "edge":
        source, target = near.ends
        batch.edge_label_index = torch.stack([starts[:-1] + source, starts[:-1] + target])
        if near.label_attr is not None and step.edges:
            batch.edge_label_attr = torch.cat([_or(change.label_attr, near.label_attr) for change in changes])
    return batch


def _or(changed: Tensor | None, own: Tensor) -> Tensor:
    return own if changed is None else changed


def _side_by_side(parts: Sequence[Graphs], starts: Tensor) -> Graphs:
    """Graphs as one, whose nodes begin at these numbers."""
    edge_index = torch.cat([graph.edge_index + start for graph, start in zip(parts, starts, strict=False)], dim=1)
    edge_ptr = torch.tensor([0, *(graph.num_edges for graph in parts)]).cumsum(0)
    names = [name for name in ("x", "edge_attr", "pe", "edge_pe") if getattr(parts[0], name) is not None]
    tensors = {name: torch.cat([getattr(graph, name) for graph in parts]) for name in names}
    y = torch.zeros(int(starts[-1]), dtype=torch.int64)
    return Graphs(edge_index=edge_index, y=y, level="node", node_ptr=starts, edge_ptr=edge_ptr, **tensors)


def _prepared(
    near: Neighbourhood, copies: Sequence[tuple[Graphs, Tensor, Tensor]], graphs: Graphs, step: Preparation
) -> Data:
    if step not in near.walks:
        return step.apply(graphs).batch()
    # Where walks leave this part, they stay as they are in the whole graph.
    batch = replace(step, walks=0, edge_walks=False).apply(graphs).batch()
    pe, edge_pe = near.walks[step]
    if pe is not None:
        batch.pe = torch.cat([pe[nodes] for _, nodes, _ in copies])
    if edge_pe is not None and step.edge_walks:
        batch.edge_pe = torch.cat([edge_pe[edges] for _, _, edges in copies])
    return batch
