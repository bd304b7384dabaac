"""The laws of a layer that is called as `layer(x, edge_index)`.

A layer is checked in eval mode and in float64. Edges go from row 0 to row 1 of `edge_index`, as in PyG.
"""

from collections.abc import Callable, Iterable
from copy import deepcopy

import torch
from torch import Tensor, nn

from sirgcn.strict import check_name
from sirgcn.testing.assertions import assert_gradients, assert_repeats, assert_same, value_and_gradients
from sirgcn.testing.graphs import RICH, Graph, on_any_graph, random_graph

MakeLayer = Callable[[], nn.Module]
"""Returns a new layer."""

# Sums in another order, divided by degrees and passed through roots and exponentials.
_TOLERANCE = 1e-9


def _assert_order(layer: nn.Module, graph: Graph, channels: int) -> None:
    """Renumbered nodes have renumbered outputs, and the order of the edges makes no difference."""
    x, edge_index = _features(graph.num_targets, channels), graph.edge_index.long()
    generator = torch.Generator().manual_seed(1)
    order = torch.randperm(graph.num_targets, generator=generator)
    shuffled = torch.randperm(len(graph.edges), generator=generator)
    # Node order[i] of the graph is node i of the renumbered one.
    renumbered = order.argsort()[edge_index][:, shuffled]
    law = f"order: expected the outputs to follow the numbers of the nodes: {graph}"
    assert_same([layer(x[order], renumbered)], [layer(x, edge_index)[order]], _TOLERANCE, law)


def _assert_neighbors_only(layer: nn.Module, graph: Graph, channels: int) -> None:
    """The output of u depends on u and on the sources of the edges that end in u, on no other node."""
    x, other = _features(graph.num_targets, channels), _features(graph.num_targets, channels, seed=1)
    out = layer(x, graph.edge_index.long())
    for u in range(graph.num_targets):
        read = sorted({u, *(source for source, target in graph.edges if target == u)})
        changed = other.clone()
        changed[read] = x[read]
        found = layer(changed, graph.edge_index.long())
        law = f"neighbours: expected node {u} to read itself and the sources of its edges only: {graph}"
        assert_same([found[u]], [out[u]], _TOLERANCE, law)


def _assert_isolated_nodes(layer: nn.Module, graph: Graph, channels: int) -> None:
    """A new node without edges changes nothing for the others, and has the output of a graph of its own."""
    x, edge_index = _features(graph.num_targets + 1, channels), graph.edge_index.long()
    found = layer(x, edge_index)
    expected = torch.cat([layer(x[:-1], edge_index), layer(x[-1:], edge_index[:, :0])])
    law = f"isolated nodes: expected a new node without edges to change nothing: {graph}"
    assert_same([found], [expected], _TOLERANCE, law)


def _assert_repeated_edges(layer: nn.Module, graph: Graph, channels: int) -> None:
    """An edge given twice has the effect of two neighbours with the same features."""
    if not graph.edges:
        return
    x = _features(graph.num_targets, channels)
    source, target = graph.edges[0]
    repeated = torch.cat([graph.edge_index.long(), torch.tensor([[source], [target]])], dim=1)
    twin = torch.cat([graph.edge_index.long(), torch.tensor([[len(x)], [target]])], dim=1)
    found, expected = layer(x, repeated), layer(torch.cat([x, x[source : source + 1]]), twin)
    law = f"repeated edges: expected edge {source} -> {target}, given twice, to count twice: {graph}"
    assert_same([found], [expected[: len(x)]], _TOLERANCE, law)


def _assert_batch(layer: nn.Module, graph: Graph, channels: int) -> None:
    """Two graphs side by side have the outputs of each graph alone."""
    x, edge_index = _features(graph.num_targets, channels), graph.edge_index.long()
    second, second_edges = _features(RICH.num_targets, channels, seed=1), RICH.edge_index
    found = layer(torch.cat([x, second]), torch.cat([edge_index, second_edges + len(x)], dim=1))
    expected = torch.cat([layer(x, edge_index), layer(second, second_edges)])
    law = f"batch: expected the outputs of each graph alone: {graph}"
    assert_same([found], [expected], _TOLERANCE, law)


def _assert_finite_gradients(layer: nn.Module, graph: Graph, channels: int) -> None:
    """Outputs and gradients are finite on any graph, one row per node."""
    x = _features(graph.num_targets, channels).requires_grad_()
    out = layer(x, graph.edge_index.long())
    if out.dim() != 2 or len(out) != len(x):
        raise AssertionError(f"finite: expected an output [{len(x)}, channels], got {list(out.shape)}: {graph}")
    for tensor in value_and_gradients(out, [x, *layer.parameters()]):
        if not bool(tensor.isfinite().all()):
            raise AssertionError(f"finite: expected finite outputs and gradients: {graph}")


def _assert_gradients(layer: nn.Module, channels: int) -> None:
    """Gradients of the features and of all parameters are those of finite differences."""
    names, parameters = zip(*layer.named_parameters(), strict=True) if list(layer.parameters()) else ((), ())

    def function(x: Tensor, *values: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x, RICH.edge_index))
        return found

    x = _features(RICH.num_targets, channels).requires_grad_()
    leaves = [parameter.detach().clone().requires_grad_() for parameter in parameters]
    assert_gradients(function, [x, *leaves])


def _assert_repeats(layer: nn.Module, channels: int) -> None:
    """The forward and the backward pass repeat bit for bit, in float32 and on a graph with many edges."""
    single, graph = deepcopy(layer).float(), random_graph(200, 3000)
    x = _features(graph.num_targets, channels).float().requires_grad_()
    assert_repeats(lambda: value_and_gradients(single(x, graph.edge_index), [x, *single.parameters()]))


_ON_ANY_GRAPH: dict[str, Callable[[nn.Module, Graph, int], None]] = {
    "finite": _assert_finite_gradients,
    "order": _assert_order,
    "neighbours": _assert_neighbors_only,
    "isolated nodes": _assert_isolated_nodes,
    "repeated edges": _assert_repeated_edges,
    "batch": _assert_batch,
}
_ONCE: dict[str, Callable[[nn.Module, int], None]] = {"gradients": _assert_gradients, "repeats": _assert_repeats}

LAYER_LAWS = (*_ON_ANY_GRAPH, *_ONCE)
"""The names of the laws of `assert_layer_laws`.

- "finite": outputs `[nodes, channels]` and gradients are finite on any graph, also one without nodes or edges.
- "order": renumbered nodes have renumbered outputs, and the order of the edges makes no difference.
- "neighbours": the output of a node depends on this node and on the sources of its edges only.
- "isolated nodes": a new node without edges changes nothing for the others.
- "repeated edges": an edge given twice has the effect of two neighbours with the same features. Leave this law out
  for a layer that weighs messages by the out-degree of the source, such as GCN.
- "batch": graphs side by side have the outputs of each graph alone.
- "gradients": gradients are those of finite differences.
- "repeats": forward and backward passes repeat bit for bit.
"""


def assert_layer_laws(
    make_layer: MakeLayer,
    in_channels: int,
    laws: Iterable[str] = LAYER_LAWS,
    *,
    plain: MakeLayer | None = None,
    bipartite: bool = False,
    examples: int = 25,
) -> None:
    """A layer keeps the laws of `LAYER_LAWS`; the first broken law raises an `AssertionError` that names it.

    Args:
        make_layer: returns a new layer, which is called as `layer(x, edge_index)`.
        in_channels: the width of x.
        laws: names of `LAYER_LAWS`.
        plain: returns the same layer with a plain, slow forward pass; see `assert_equals_plain`.
        bipartite: whether the layer accepts a pair (sources, targets) in the place of x; see `assert_bipartite`.
        examples: how many graphs hypothesis draws for each law.

    >>> from sirgcn import SIRConv
    >>> assert_layer_laws(lambda: SIRConv(3, 4), 3, ["order", "batch"], examples=3)
    """
    names = [check_name("laws", law, LAYER_LAWS, exact=True) for law in laws]
    layer = _checked_form(make_layer)
    for name in names:
        if name in _ONCE:
            _ONCE[name](layer, in_channels)
        else:
            _on_any_graph(_ON_ANY_GRAPH[name], layer, in_channels, examples)
    if plain is not None:
        assert_equals_plain(make_layer, plain, in_channels, examples)
    if bipartite:
        assert_bipartite(make_layer, in_channels, examples)


def assert_equals_plain(make_layer: MakeLayer, plain: MakeLayer, in_channels: int, examples: int = 25) -> None:
    """A fast layer has the values and gradients of its plain form, on any graph.

    Args:
        make_layer: returns the fast layer.
        plain: returns the plain form. Its parameters have the same names; the fast layer's are copied into it.
        in_channels: the width of x.
        examples: how many graphs hypothesis draws.

    >>> from sirgcn import SIRConv
    >>> assert_equals_plain(lambda: SIRConv(3, 4), lambda: SIRConv(3, 4, fused=False), 3, examples=3)
    """
    layer, slow = _checked_form(make_layer), _checked_form(plain)
    slow.load_state_dict(layer.state_dict())

    def law(layer: nn.Module, graph: Graph, channels: int) -> None:
        x, edge_index = _features(graph.num_targets, channels).requires_grad_(), graph.edge_index.long()
        found, expected = (value_and_gradients(form(x, edge_index), [x, *form.parameters()]) for form in (layer, slow))
        text = f"plain: expected the values and gradients of the plain form: {graph}"
        assert_same(found, expected, _TOLERANCE, text)

    _on_any_graph(law, layer, in_channels, examples)


def assert_bipartite(make_layer: MakeLayer, in_channels: int, examples: int = 25) -> None:
    """A layer on two sets of nodes, `layer((sources, targets), edge_index)`, equals the layer on their union.

    Args:
        make_layer: returns a new layer.
        in_channels: the width of both sets of features.
        examples: how many graphs hypothesis draws.

    >>> from sirgcn import SIRConv
    >>> assert_bipartite(lambda: SIRConv(3, 4), 3, examples=3)
    """
    layer = _checked_form(make_layer)

    def law(graph: Graph) -> None:
        sources = _features(graph.num_sources, in_channels)
        targets = _features(graph.num_targets, in_channels, seed=1)
        edge_index = graph.edge_index.long()
        union = edge_index + torch.tensor([[len(targets)], [0]])
        expected = layer(torch.cat([targets, sources]), union)[: len(targets)]
        text = f"bipartite: expected the outputs of both sets in one graph: {graph}"
        assert_same([layer((sources, targets), edge_index)], [expected], _TOLERANCE, text)

    on_any_graph(law, None, examples)


def _on_any_graph(law: Callable[[nn.Module, Graph, int], None], layer: nn.Module, channels: int, examples: int) -> None:
    on_any_graph(lambda graph: law(layer, graph, channels), False, examples)


def _checked_form(make_layer: MakeLayer) -> nn.Module:
    """A layer in eval mode and in float64; every call draws the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make_layer().double().eval()


def _features(nodes: int, channels: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, channels, generator=generator, dtype=torch.float64)
