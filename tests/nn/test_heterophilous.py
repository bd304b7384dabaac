"""The networks of their own: each is its paper's formula, written with dense matrices, on any graph."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import scipy.special
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import Tensor, nn

from sirgcn.nn import NETWORKS, SIRNet, make_network
from sirgcn.nn.baselines.heterophilous import hops
from sirgcn.nn.baselines.heterophilous_labels import doubly_stochastic
from sirgcn.testing import RICH, Graph, assert_repeats, assert_same, graphs, value_and_gradients

FEATURES, CLASSES = 5, 3
# With few enough nodes that every dense matrix is quickly built, and not the defaults everywhere.
OPTIONS: dict[str, dict[str, Any]] = {
    "h2gcn": {"hidden_channels": 4},
    "cpgnn": {"hidden_channels": 4, "pretraining": 2},
    "gprgnn": {"hidden_channels": 4, "order": 4, "alpha": 0.3},
    "fsgnn": {"hidden_channels": 4, "order": 2},
    "glognn": {"hidden_channels": 4, "alpha": 0.5, "beta": 0.7, "gamma": 0.2, "delta": 0.6, "orders": 2},
    "fagcn": {"hidden_channels": 4},
    "gbkgnn": {"hidden_channels": 4, "gate_weight": 2.0},
    "jacobiconv": {"order": 4, "a": 0.5, "b": -0.25, "scale": 2.0},
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def made(name: str, num_nodes: int, out_channels: int = CLASSES, **options: Any) -> Any:
    """A network in float64 and evaluation mode, whose parameters are not what they begin with."""
    network = make_network(name, FEATURES, out_channels, num_nodes, **OPTIONS[name] | options).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return network


def adjacency(graph: Graph) -> Tensor:
    """A[u, v]: how many edges run from v to u."""
    found = torch.zeros(graph.num_targets, graph.num_targets, dtype=torch.float64)
    for v, u in graph.edges:
        found[u, v] += 1
    return found


def looped(a: Tensor) -> Tensor:
    """One loop at every node, whatever there was."""
    return a - a.diag().diag() + torch.eye(len(a), dtype=a.dtype)


def symmetric(a: Tensor) -> Tensor:
    scale = a.sum(1).clamp(min=1).rsqrt()
    return scale[:, None] * a * scale


def averaging(a: Tensor) -> Tensor:
    return a / a.sum(1, keepdim=True).clamp(min=1)


def distances(graph: Graph, most: int = 3) -> Tensor:
    """Steps from v to u along edges, one breadth-first search per node; `most` and more are `most`."""
    found = torch.full((graph.num_targets, graph.num_targets), most)
    for start in range(graph.num_targets):
        reached, border = {start: 0}, [start]
        for step in range(1, most):
            border = [v for v, u in graph.edges if u in border and v not in reached]
            reached |= dict.fromkeys(border, step)
        for node, step in reached.items():
            found[start, node] = step
    return found


def h2gcn(net: Any, x: Tensor, graph: Graph) -> Tensor:
    far = distances(graph)
    one, two = (symmetric((far == step).double()) for step in (1, 2))
    r0 = (x @ net.embedding.weight.t()).relu()
    r1 = torch.cat([one @ r0, two @ r0], 1)
    r2 = torch.cat([one @ r1, two @ r1], 1)
    return torch.cat([r0, r1, r2], 1) @ net.classifier.weight.t()


def cpgnn(net: Any, x: Tensor, graph: Graph) -> Tensor:
    a, h = adjacency(graph), net.compatibility
    first, last = (net.prior[i].weight.t() for i in (0, 3))
    e = F.softmax((x @ first).relu() @ last, 1) - 1 / net.classes
    return e + a @ (e + a @ e @ h) @ h


def gprgnn(net: Any, x: Tensor, graph: Graph) -> Tensor:
    a = symmetric(looped(adjacency(graph)))
    h = net.mlp[4](net.mlp[1](x).relu())
    return sum(weight * torch.linalg.matrix_power(a, k) @ h for k, weight in enumerate(net.gamma))


def jacobiconv(net: Any, x: Tensor, graph: Graph) -> Tensor:
    a = symmetric(adjacency(graph))
    h, gamma, out = net.embedding[1](x), net.scale * net.eta.tanh(), torch.zeros(())
    for k, weight in enumerate(net.filters):
        coefficients = scipy.special.jacobi(k, net.a, net.b).c[::-1].copy()
        terms = [float(c) * torch.linalg.matrix_power(a, power) for power, c in enumerate(coefficients)]
        out = out + weight * (gamma[:k].prod() * sum(terms) @ h)
    return out


def fsgnn(net: Any, x: Tensor, graph: Graph) -> Tensor:
    normalised: Callable[[Tensor], Tensor] = symmetric if net.reduce == "sym_in" else lambda a: a
    a, i = normalised(adjacency(graph)), normalised(looped(adjacency(graph)))
    inputs = [x, a @ x, i @ x, a @ a @ x, i @ i @ x]
    importance = net.importance.exp() / net.importance.exp().sum()
    pieces = []
    for lin, weight, feature in zip(net.embeddings, importance, inputs, strict=True):
        h = lin(feature)
        pieces.append(weight * h / h.norm(dim=1, keepdim=True).clamp(min=1e-12))
    return net.classifier(torch.cat(pieces, 1).relu())


def glognn(net: Any, x: Tensor, graph: Graph) -> Tensor:
    a, eye = averaging(looped(adjacency(graph))), torch.eye(graph.num_targets, dtype=torch.float64)
    hidden = net.delta * net.of_features(x)
    if net.delta < 1:
        hidden = hidden + (1 - net.delta) * (a @ net.of_adjacency.weight.t() + net.of_adjacency.bias)
    h0 = h = net.classifier(hidden.relu())
    target = sum(weight * torch.linalg.matrix_power(a, k) for k, weight in enumerate(net.orders, start=1))
    share = 1 - net.gamma
    for _ in range(net.num_layers):
        # The derivative of the sum of squares by Z is 0.
        left = share * (h - net.gamma * h0) @ h.t() + net.beta * target
        z = left @ torch.linalg.inv(share**2 * h @ h.t() + (net.alpha + net.beta) * eye)
        h = share * z @ h + net.gamma * h0
    return h


def fagcn(net: Any, x: Tensor, graph: Graph) -> Tensor:
    a = symmetric(adjacency(graph))
    h0 = h = net.encoder(x).relu()
    for block in net.blocks:
        gates = (block.conv.gate_target(h) + block.conv.gate_source(h).t()).tanh()
        h = 0.3 * h0 + (gates * a) @ h
    return net.readout(h)


def bi_kernel(layer: Any, h: Tensor, graph: Graph) -> tuple[Tensor, list[Tensor]]:
    def gate(u: int, v: int) -> Tensor:
        at_u, at_v = layer.lin_gate(h[u]), layer.lin_gate(h[v])
        return torch.sigmoid(F.leaky_relu(layer.gate_target[0] @ at_u + layer.gate_source[0] @ at_v, 0.2))

    gates = [gate(u, v) for v, u in graph.edges]
    rows = []
    for u in range(graph.num_targets):
        near = [(v, g) for (v, w), g in zip(graph.edges, gates, strict=True) if w == u]
        messages = [g * layer.lin_similar(h[v]) + (1 - g) * layer.lin_dissimilar(h[v]) for v, g in near]
        rows.append(layer.lin_self(h[u]) + (sum(messages) / len(messages) if messages else 0))
    return (torch.stack(rows) if rows else layer.lin_self(h)), gates


def gbkgnn(net: Any, x: Tensor, graph: Graph) -> Tensor:
    return bi_kernel(net.layers[1], bi_kernel(net.layers[0], x, graph)[0].relu(), graph)[0]


FORMULAS: dict[str, Callable[[Any, Tensor, Graph], Tensor]] = {
    "h2gcn": h2gcn,
    "cpgnn": cpgnn,
    "gprgnn": gprgnn,
    "fsgnn": fsgnn,
    "glognn": glognn,
    "fagcn": fagcn,
    "gbkgnn": gbkgnn,
    "jacobiconv": jacobiconv,
}


def propagating(net: Any) -> Any:
    """CPGNN past its first stage; any other as it is."""
    if hasattr(net, "pretraining"):
        net.steps.fill_(net.pretraining + 1)
    return net


def assert_is_formula(net: Any, graph: Graph, formula: Callable[[Any, Tensor, Graph], Tensor]) -> None:
    x = torch.randn(graph.num_targets, FEATURES, dtype=torch.float64, requires_grad=True)
    leaves = [x, *net.parameters()]
    # Powers of matrices and inverses round more than sums do.
    found, expected = net(x, graph.edge_index), formula(net, x, graph)
    assert_same(value_and_gradients(found, leaves), value_and_gradients(expected, leaves), tolerance=1e-9)


def test_every_network_has_its_formula_here() -> None:
    assert FORMULAS.keys() == NETWORKS.keys() == OPTIONS.keys()


@pytest.mark.parametrize("name", NETWORKS)
@given(graph=graphs(bipartite=False))
def test_network_is_its_formula_on_any_graph(name: str, graph: Graph) -> None:
    torch.manual_seed(0)
    # torch warns of a weight without rows.
    options: dict[str, Any] = {"delta": 1.0} if name == "glognn" and not graph.num_targets else {}
    assert_is_formula(propagating(made(name, graph.num_targets, **options)), graph, FORMULAS[name])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fsgnn", {"normalize": False}),
        ("glognn", {"delta": 1.0, "alpha": 0.0, "gamma": 0.0, "orders": 1}),
        ("glognn", {"delta": 0.0, "beta": 0.0}),
        ("jacobiconv", {"a": 1.0, "b": 1.0, "scale": 1.0, "order": 1}),
        ("gprgnn", {"alpha": 0.9, "order": 10}),
    ],
)
def test_options_are_those_of_the_formula(name: str, options: dict[str, Any]) -> None:
    assert_is_formula(made(name, RICH.num_targets, **options), RICH, FORMULAS[name])


@given(graph=graphs(bipartite=False))
def test_hops_are_the_nodes_at_distance_one_and_two(graph: Graph) -> None:
    far = distances(graph)
    for step, found in enumerate(hops(graph.edge_index, graph.num_targets), start=1):
        source, target = found.edge_index.tolist()
        assert sorted(zip(target, source, strict=True)) == [tuple(pair) for pair in (far == step).nonzero().tolist()]


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "fagcn"])
def test_what_was_prepared_stands_in_the_place_of_the_edges(name: str) -> None:
    net, x = propagating(made(name, RICH.num_targets)), torch.randn(RICH.num_targets, FEATURES, dtype=torch.float64)
    prepared = net.prepare(x, RICH.edge_index)
    assert torch.equal(net(x, prepared), net(x, RICH.edge_index))
    assert torch.equal(net(x, prepared), net(x, RICH.neighbors()))
    with pytest.raises(ValueError, match=r"graph: expected one prepared for 6 nodes, got one for \[7\]"):
        net(x[1:], prepared)
    other = made("gprgnn" if name == "h2gcn" else "h2gcn", RICH.num_targets)
    with pytest.raises(ValueError, match=f"graph: expected one prepared by {type(other).__name__}, got"):
        other(x, prepared)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "fagcn"])
def test_one_logit_is_the_difference_of_two_scores(name: str) -> None:
    x = torch.randn(RICH.num_targets, FEATURES, dtype=torch.float64)
    two = propagating(made(name, RICH.num_targets, out_channels=2))
    one = propagating(made(name, RICH.num_targets, out_channels=1))
    one.load_state_dict(two.state_dict())
    scores = two(x, RICH.edge_index)
    assert_same([one(x, RICH.edge_index)], [scores[:, 1:] - scores[:, :1]])
    assert_same([one(x, RICH.edge_index).sigmoid()], [scores.softmax(1)[:, 1:]])


@pytest.mark.parametrize("name", NETWORKS)
def test_network_follows_the_names_of_the_nodes(name: str) -> None:
    # A weight per node has a name of its own.
    options: dict[str, Any] = {"delta": 1.0} if name == "glognn" else {}
    net = propagating(made(name, RICH.num_targets, **options))
    order = [3, 0, 6, 1, 5, 2, 4]
    x = torch.randn(RICH.num_targets, FEATURES, dtype=torch.float64)
    place = {old: new for new, old in enumerate(order)}
    renamed = Graph(tuple((place[v], place[u]) for v, u in RICH.edges), RICH.num_sources, RICH.num_targets)
    assert_same([net(x[order], renamed.edge_index)], [net(x, RICH.edge_index)[order]], tolerance=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_network_repeats_bit_for_bit_and_resets(name: str) -> None:
    net = propagating(made(name, RICH.num_targets))
    x = torch.randn(RICH.num_targets, FEATURES, dtype=torch.float64)
    assert_repeats(lambda: value_and_gradients(net(x, RICH.edge_index), list(net.parameters())))
    torch.manual_seed(7)
    fresh = make_network(name, FEATURES, CLASSES, RICH.num_targets, **OPTIONS[name]).double()
    before = [parameter.clone() for parameter in net.parameters()]
    torch.manual_seed(7)
    net.reset_parameters()
    for parameter, old, new in zip(net.parameters(), before, fresh.parameters(), strict=True):
        assert parameter.shape == new.shape
        assert not torch.equal(parameter, old)


def onehot(rows: Tensor, label: Tensor, nodes: int) -> Tensor:
    found = torch.zeros(nodes, CLASSES, dtype=torch.float64)
    found[rows, label] = 1
    return found


def test_cpgnn_learns_its_prior_first_and_then_both() -> None:
    net = made("cpgnn", RICH.num_targets).train()
    x = torch.randn(RICH.num_targets, FEATURES, dtype=torch.float64)
    rows, label = torch.tensor([0, 1, 3, 5]), torch.tensor([0, 2, 1, 1])
    prior = net.prior(x)
    for _ in range(2):
        assert_same([net(x, RICH.edge_index)], [prior])
        found = net.objective(x, RICH.edge_index, rows, label, F.cross_entropy)
        assert_same([found], [F.cross_entropy(prior[rows], label)])
    assert_same([net(x, RICH.edge_index)], [prior])
    found = net.objective(x, RICH.edge_index, rows, label, F.cross_entropy)

    known = onehot(rows, label, RICH.num_targets)
    belief = prior.softmax(1).detach().clone()
    belief[rows] = known[rows]
    start = doubly_stochastic(known.t() @ adjacency(RICH) @ belief)
    assert_same([net.compatibility.detach()], [(start + start.t()) / 2 - 1 / CLASSES])
    posterior = cpgnn(net, x, RICH)
    assert_same([net(x, RICH.edge_index)], [posterior])
    penalty = net.compatibility.sum(1).abs().sum()
    expected = F.cross_entropy(posterior[rows], label) + F.cross_entropy(prior[rows], label) + penalty
    assert_same([found], [expected])
    # Further steps keep what was learnt of H.
    with torch.no_grad():
        net.compatibility.add_(1)
    net.objective(x, RICH.edge_index, rows, label, F.cross_entropy)
    assert_same([net.compatibility.detach()], [(start + start.t()) / 2 - 1 / CLASSES + 1])


# No entry is so small that the least one, which the iteration adds, can be told.
POSITIVE = 0.1 + torch.rand(4, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("matrix", [POSITIVE, torch.tensor([[0.0, 3.0], [2.0, 1.0]]), torch.zeros(3, 3)])
def test_doubly_stochastic_scales_rows_and_columns(matrix: Tensor) -> None:
    found = doubly_stochastic(matrix.double())
    ones = torch.ones(len(matrix), dtype=torch.float64)
    # One pair of classes never meets: the iteration gets there slowly.
    assert_same([found.sum(0), found.sum(1)], [ones, ones], tolerance=1e-3)
    if (matrix > 0).all():
        ratio = found / matrix.double()
        # D_1 M D_2: any two rows of the ratio are multiples of each other.
        assert_same([ratio * ratio[0, 0]], [ratio[:, :1] * ratio[:1]], tolerance=1e-6)


def test_gbkgnn_learns_its_gates_from_edges_between_labelled_nodes() -> None:
    net = made("gbkgnn", RICH.num_targets)
    x = torch.randn(RICH.num_targets, FEATURES, dtype=torch.float64)
    rows, label = torch.tensor([0, 1, 3, 5]), torch.tensor([0, 0, 1, 1])
    known = dict(zip(rows.tolist(), label.tolist(), strict=True))
    h, expected = x, F.cross_entropy(gbkgnn(net, x, RICH)[rows], label)
    for layer in net.layers:
        out, gates = bi_kernel(layer, h, RICH)
        losses = [
            -gate.log() if known[u] == known[v] else -(1 - gate).log()
            for (v, u), gate in zip(RICH.edges, gates, strict=True)
            if u in known and v in known
        ]
        expected = expected + 2.0 * sum(losses) / len(losses)
        h = out.relu()
    found = net.objective(x, RICH.edge_index, rows, label, F.cross_entropy)
    assert_same(
        value_and_gradients(found, list(net.parameters())), value_and_gradients(expected, list(net.parameters()))
    )
    alone = net.objective(x, RICH.edge_index, torch.tensor([4]), torch.tensor([1]), F.cross_entropy)
    assert_same([alone], [F.cross_entropy(gbkgnn(net, x, RICH)[4:5], torch.tensor([1]))])


@pytest.mark.parametrize("name", ["cpgnn", "gbkgnn"])
def test_objective_of_several_targets_per_node_is_refused(name: str) -> None:
    net, x = made(name, RICH.num_targets), torch.randn(RICH.num_targets, FEATURES, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"target: expected one class per node, got shape \[7, 2\]"):
        net.objective(x, RICH.edge_index, torch.arange(7), torch.zeros(7, 2), F.mse_loss)


def refusals() -> Sequence[tuple[Callable[[], Any], str]]:
    net, x = made("h2gcn", 7), torch.randn(7, FEATURES, dtype=torch.float64)
    return [
        (lambda: make_network("h2gnc", 1, 1, 1), "network: expected one of h2gcn, cpgnn, .*, got 'h2gnc'"),
        (
            lambda: made("h2gcn", 7, heads=3),
            "options of h2gcn: expected one of hidden_channels, num_layers, dropout, got 'heads'",
        ),
        (lambda: made("glognn", 7, alpha=0.0, beta=0.0), "alpha, beta: expected at least 0 and one of them positive"),
        (lambda: made("glognn", 7, gamma=1.0), "gamma, delta: expected 0 <= gamma < 1"),
        (lambda: NETWORKS["glognn"].build(1, 1, delta=0.5), "num_nodes: expected the nodes of the graph"),
        (lambda: made("jacobiconv", 7, a=-1.0), "a, b: expected more than -1"),
        (lambda: made("jacobiconv", 7, order=0), "order: expected at least 1"),
        (lambda: net(x[:, 1:], RICH.edge_index), r"x: expected 5 features per node, got shape \[7, 4\]"),
        (lambda: net(x.long(), RICH.edge_index), "x: expected a floating-point dtype"),
        (lambda: net(x, RICH.edge_index, batch_size=2), "batch_size: expected 1, because H2GCN reads one graph, got 2"),
    ]


@pytest.mark.parametrize("place", range(10))
def test_refusals_name_what_is_known(place: int) -> None:
    call, error = refusals()[place]
    with pytest.raises(ValueError, match=error):
        call()


def test_fagcn_is_a_configuration_of_sirnet() -> None:
    assert isinstance(made("fagcn", 7), SIRNet)
    assert isinstance(made("h2gcn", 7), nn.Module)


def test_fagcn_is_drawn_as_by_its_authors() -> None:
    width = 300
    net: Any = make_network("fagcn", width, width, 7, hidden_channels=width)
    net.reset_parameters()
    (readout,) = (module for module in net.readout.modules() if hasattr(module, "weight"))
    for linear in (net.encoder, readout):
        assert linear.weight.pow(2).mean().item() == pytest.approx(2 / width, rel=0.03)
        # 90,000 draws of a normal distribution, by its fourth moment.
        assert linear.weight.pow(4).mean().item() == pytest.approx(12 / width**2, rel=0.1)
    gates = torch.cat(
        [gate.weight for block in net.blocks for gate in (block.conv.gate_target, block.conv.gate_source)]
    )
    assert gates.pow(2).mean().item() == pytest.approx(4 / (2 * width + 1), rel=0.2)
