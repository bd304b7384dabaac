"""Networks act2(W act1(z) + b) in C: which ones are taken, and that they equal the general route on every path."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torch_geometric.nn.dense.linear import Linear as PyGLinear

from sirgcn import testing as laws
from sirgcn.nn.linear import Linear  # which also makes PyG's linear layer known to the ops
from sirgcn.ops import Activation, Neighbors, native, tiled_aggregate
from sirgcn.ops.activation import Sigma
from sirgcn.ops.linear_messages import linear_message
from sirgcn.ops.native import network as native_network
from sirgcn.testing import RICH, Graph, Inputs

if native.UNAVAILABLE is not None:
    pytest.skip(native.UNAVAILABLE, allow_module_level=True)

import sirgcn.ops.native._kernels as _kernels

ISAS = _kernels.isas()
SINGLE, DOUBLE = torch.float32, torch.float64
REDUCTIONS = (*laws.REDUCTIONS, "max")
every_reduction = pytest.mark.parametrize("reduce", REDUCTIONS)
every_form = pytest.mark.parametrize("form", laws.EDGE_FORMS)
every_dtype = pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=["single", "double"])


def network(
    width: int, out: int, first: str = "relu", second: str = "relu", bias: bool = True, dtype: torch.dtype = DOUBLE
) -> nn.Sequential:
    """Weights are multiples of 1/4: with inputs in steps of 1/2, what ReLUs see is exact in both dtypes, ties too."""
    linear = nn.Linear(width, out, bias=bias, dtype=dtype)
    generator = torch.Generator().manual_seed(width + out)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape, generator=generator) / 4)
    return nn.Sequential(Sigma(first), linear, Sigma(second))


def run(
    net: nn.Module, graph: Graph | Neighbors, drawn: Inputs, backend: str = "native", **options: Any
) -> list[Tensor]:
    """The output, and the gradient of every leaf and parameter."""
    neighbors = graph.neighbors() if isinstance(graph, Graph) else graph
    out = tiled_aggregate(net, drawn.query, drawn.key, neighbors, drawn.edge, backend=backend, **options)
    leaves = [leaf for leaf in (*drawn.leaves(), *net.parameters()) if leaf.requires_grad]
    return laws.value_and_gradients(out, leaves)


def in_double(drawn: Inputs) -> Inputs:
    return drawn.map(lambda x: x.detach().to(DOUBLE).requires_grad_())


def assert_equals_general_route(net: nn.Module, graph: Graph | Neighbors, drawn: Inputs, **options: Any) -> None:
    """The same numbers give what torch gives in float64, up to the rounding of sums."""
    expected = run(copy.deepcopy(net).to(DOUBLE), graph, in_double(drawn), "reference", **options)
    unit = {DOUBLE: 1e-12, SINGLE: 5e-6}[drawn.query.dtype]
    for found, exact in zip(run(net, graph, drawn, **options), expected, strict=True):
        assert found.dtype == drawn.query.dtype
        largest = float(exact.abs().max()) if exact.numel() else 0.0
        torch.testing.assert_close(found.to(DOUBLE), exact, rtol=unit, atol=unit * max(1.0, largest))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word for every call that reaches the kernel."""
    calls: list[str] = []
    forward = native_network.forward

    def counted(*args: Any, **options: Any) -> Any:
        calls.append("forward")
        return forward(*args, **options)

    monkeypatch.setattr(native_network, "forward", counted)
    return calls


# Around the panels of two and three vectors of 1 to 16 lanes, and around the rows of a product.
WIDTHS = [1, 2, 3, 5, 7, 8, 9, 12, 15, 16, 17, 23, 24, 25, 31, 33, 40, 47, 48, 49, 75, 97, 120, 128]


@every_dtype
@every_reduction
def test_every_width_equals_general_route(isa: str, dtype: torch.dtype, reduce: str) -> None:
    for place, width in enumerate(WIDTHS):
        out = WIDTHS[-1 - place]
        form = laws.EDGE_FORMS[place % len(laws.EDGE_FORMS)]
        drawn = laws.inputs(RICH, form, channels=width, seed=width, dtype=dtype)
        for second in ("identity", "relu"):
            assert_equals_general_route(network(width, out, "relu", second, dtype=dtype), RICH, drawn, reduce=reduce)


@every_dtype
@pytest.mark.parametrize("first", laws.SIGMAS)
def test_every_pair_of_activations_equals_general_route(isa: str, dtype: torch.dtype, first: str) -> None:
    for second in laws.SIGMAS:
        # The numbers are multiples of 1/4: z and -z occur, and their squares tie for the maximum.
        for reduce in ("sym",) if "square" in (first, second) else ("sym", "max"):
            drawn = laws.inputs(RICH, "none", channels=19, seed=3, kinks=False, dtype=dtype)
            assert_equals_general_route(network(19, 11, first, second, dtype=dtype), RICH, drawn, reduce=reduce)


@settings(max_examples=200)
@given(
    laws.graphs(),
    st.sampled_from(["sum", "mean", "sym", "max"]),
    st.sampled_from(laws.EDGE_FORMS),
    st.sampled_from(["identity", "relu", "leaky_relu(0.5)"]),
    st.sampled_from(["identity", "relu", "leaky_relu(0.5)"]),
    st.tuples(st.integers(1, 40), st.integers(1, 40), st.booleans()),
    st.sampled_from(ISAS),
    st.sampled_from([SINGLE, DOUBLE]),
)
def test_any_graph_equals_loop(
    graph: Graph,
    reduce: str,
    form: str,
    first: str,
    second: str,
    shape: tuple[int, int, bool],
    name: str,
    dtype: torch.dtype,
) -> None:
    native.limit_isa(name)
    try:
        width, out, bias = shape
        net, drawn = (
            network(width, out, first, second, bias, dtype),
            laws.inputs(graph, form, channels=width, dtype=dtype),
        )
        found = run(net, graph, drawn, reduce=reduce)
        exact, exact_net = in_double(drawn), copy.deepcopy(net).to(DOUBLE)
        expected = laws.value_and_gradients(
            laws.aggregate_by_loop(exact_net, graph, exact, reduce), [*exact.leaves(), *exact_net.parameters()]
        )
        laws.assert_same([x.to(DOUBLE) for x in found], expected, {SINGLE: 1e-5, DOUBLE: 1e-12}[dtype])
    finally:
        native.limit_isa(ISAS[0])


@pytest.mark.parametrize("case", laws.EDGE_CASES)
@every_form
def test_every_edge_case_equals_loop(case: str, form: str) -> None:
    graph = laws.EDGE_CASES[case]
    for reduce in ("sum", "sym", "max"):
        drawn, net = laws.inputs(graph, form), network(3, 4)
        expected = laws.aggregate_by_loop(net, graph, drawn, reduce)
        laws.assert_same(
            run(net, graph, drawn, reduce=reduce),
            laws.value_and_gradients(expected, [*drawn.leaves(), *net.parameters()]),
        )


def random_graph(edges: int, nodes: int, hub: int = 0) -> Neighbors:
    """Random edges, among them `hub` that enter node 1 and as many that leave node 2."""
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, nodes, (2, edges + 2 * hub), generator=generator)
    edge_index[1, :hub] = 1
    edge_index[0, hub : 2 * hub] = 2
    return Neighbors.from_edge_index(edge_index[:, torch.randperm(edge_index.size(1), generator=generator)], nodes)


def random_inputs(neighbors: Neighbors, form: str, width: int, dtype: torch.dtype) -> Inputs:
    generator = torch.Generator().manual_seed(width)

    def leaf(rows: int) -> Tensor:
        return (torch.randint(-6, 7, (rows, width), generator=generator) / 2).to(dtype).requires_grad_()

    edge: laws.EdgeTerm = None
    if form == "dense":
        edge = leaf(neighbors.num_edges)
    elif form == "table":
        edge = (leaf(4), torch.randint(0, 4, (neighbors.num_edges,), generator=generator))
    return Inputs(leaf(neighbors.num_targets), leaf(neighbors.num_sources), edge)


# More than a tile of blocks, and more than the marks of a ReLU have room for; few neighbours, many, and a hub.
GRAPHS = {
    "sparse": random_graph(9_000, 6_000),
    "dense": random_graph(9_000, 150),
    "hub": random_graph(1_000, 200, 6_000),
}
every_graph = pytest.mark.parametrize("graph", GRAPHS)
# Without a slope, with one that marks tell, and with one that asks for y again.
every_second = pytest.mark.parametrize("second", ["identity", "relu", "gelu"])


@every_graph
@every_form
@every_second
@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_many_blocks_equal_general_route(graph: str, form: str, second: str, reduce: str) -> None:
    drawn = random_inputs(GRAPHS[graph], form, 37, DOUBLE)
    assert_equals_general_route(network(37, 21, "relu", second), GRAPHS[graph], drawn, reduce=reduce)


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_wide_blocks_equal_general_route(isa: str, reduce: str) -> None:
    drawn = random_inputs(GRAPHS["dense"], "none", 300, SINGLE)
    assert_equals_general_route(network(300, 260, dtype=SINGLE), GRAPHS["dense"], drawn, reduce=reduce)


@every_graph
@every_form
@every_dtype
@pytest.mark.parametrize("reduce", ["sym", "max"])
def test_any_number_of_threads_gives_the_same_bits(graph: str, form: str, dtype: torch.dtype, reduce: str) -> None:
    torch.manual_seed(0)
    drawn = random_inputs(GRAPHS[graph], form, 33, dtype).map(lambda x: torch.randn_like(x).requires_grad_())
    for second in ("identity", "relu"):
        net = nn.Sequential(nn.GELU(), nn.Linear(33, 40, dtype=dtype), Sigma(second))
        torch.set_num_threads(1)
        first = run(net, GRAPHS[graph], drawn, reduce=reduce)
        for threads in (2, 3, 2, 1):
            torch.set_num_threads(threads)
            assert all(map(torch.equal, run(net, GRAPHS[graph], drawn, reduce=reduce), first))


STAR = Graph(((0, 0), (1, 0), (2, 0), (3, 0)), 4, 2)


@pytest.mark.parametrize(
    "messages",
    [
        (1.0, 3.0, 3.0, 2.0),
        (5.0, 5.0, 5.0, 5.0),
        (-math.inf,) * 4,
        (-math.inf, -math.inf, -7.0, -math.inf),
        (0.0, -0.0, 0.0, -0.0),
        (1.0, math.nan, 2.0, math.nan),
        (math.nan, 1.0, math.inf, 2.0),
        (math.inf, 1.0, 2.0, math.nan),
    ],
    ids=str,
)
def test_maximum_and_its_gradient_are_those_of_the_definition_for_any_numbers(
    isa: str, messages: tuple[float, ...]
) -> None:
    # A vector and its tail; the gradient goes to the first of equals.
    for width in (1, 8, 11):
        net = nn.Linear(1, width, bias=False, dtype=DOUBLE)
        nn.init.ones_(net.weight)
        key = torch.tensor(messages, dtype=DOUBLE).unsqueeze(1).requires_grad_()
        drawn = Inputs(torch.zeros(2, 1, dtype=DOUBLE), key)
        expected = laws.aggregate_by_loop(net, STAR, drawn, "max")
        laws.assert_same(
            run(net, STAR, drawn, reduce="max"), laws.value_and_gradients(expected, [key, *net.parameters()])
        )


def test_nan_in_a_message_reaches_the_sum_and_no_other_target(isa: str) -> None:
    drawn = random_inputs(GRAPHS["sparse"], "none", 9, SINGLE)
    with torch.no_grad():
        drawn.query[7, 3] = torch.nan
    for reduce in ("sum", "max"):
        out = run(network(9, 5, dtype=SINGLE), GRAPHS["sparse"], drawn, reduce=reduce)[0]
        assert out[7].isnan().all()
        assert out[torch.arange(len(out)) != 7].isfinite().all()


def columns(tensor: Tensor) -> Tensor:
    wide = tensor.new_full((tensor.size(0), tensor.size(1) + 7), torch.nan)
    wide[:, 3 : 3 + tensor.size(1)] = tensor.detach()
    return wide[:, 3 : 3 + tensor.size(1)].requires_grad_()


def by_column(tensor: Tensor) -> Tensor:
    return tensor.detach().t().contiguous().t().requires_grad_()


@every_form
@pytest.mark.parametrize("change", [columns, by_column])
def test_memory_layout_does_not_matter(form: str, change: Callable[[Tensor], Tensor]) -> None:
    plain, net = laws.inputs(RICH, form, channels=11), network(11, 6)
    moved_net = copy.deepcopy(net)
    weight = net.get_parameter("1.weight")
    moved_net[1].weight = nn.Parameter(change(weight).detach())
    for reduce in ("sum", "max"):
        moved = plain.map(change)
        for found, before in zip(
            run(moved_net, RICH, moved, reduce=reduce), run(net, RICH, plain, reduce=reduce), strict=True
        ):
            assert torch.equal(found, before)


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_memory_layout_of_the_gradient_does_not_matter(reduce: str) -> None:
    drawn, net = laws.inputs(RICH, channels=11), network(11, 6)
    leaves = [*drawn.leaves(), *net.parameters()]
    out = tiled_aggregate(net, drawn.query, drawn.key, RICH.neighbors(), reduce=reduce)
    row = torch.linspace(-1, 1, 6, dtype=DOUBLE)
    for cotangent in (row.expand_as(out), row[0].expand_as(out), by_column(row * torch.arange(7)[:, None]).detach()):
        found = torch.autograd.grad(out, leaves, cotangent, retain_graph=True)
        expected = torch.autograd.grad(out, leaves, cotangent.contiguous(), retain_graph=True)
        assert all(map(torch.equal, found, expected))


@every_graph
@every_second
@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("needed", ["query", "key", "table", "weight", "bias"])
def test_gradient_that_is_asked_for_alone_is_the_same(graph: str, second: str, reduce: str, needed: str) -> None:
    drawn, net = random_inputs(GRAPHS[graph], "table", 9, SINGLE), network(9, 7, second=second, dtype=SINGLE)
    assert isinstance(drawn.edge, tuple)
    leaves = {"query": drawn.query, "key": drawn.key, "table": drawn.edge[0], **dict(net[1].named_parameters())}
    every = run(net, GRAPHS[graph], drawn, reduce=reduce)
    for name, leaf in leaves.items():
        leaf.requires_grad_(name == needed)
    alone = run(net, GRAPHS[graph], drawn, reduce=reduce)
    assert len(alone) == 2
    assert torch.equal(alone[0], every[0])
    assert torch.equal(alone[1], every[1 + list(leaves).index(needed)])


@every_second
@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_backward_twice_with_the_graph_kept_gives_the_same_gradient(reduce: str, second: str) -> None:
    drawn, net = random_inputs(GRAPHS["dense"], "none", 9, SINGLE), network(9, 7, second=second, dtype=SINGLE)
    leaves = [*drawn.leaves(), *net.parameters()]
    out = tiled_aggregate(net, drawn.query, drawn.key, GRAPHS["dense"], reduce=reduce).sum()
    first = torch.autograd.grad(out, leaves, retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(out, leaves)))


def test_second_derivative_is_refused_and_never_dropped() -> None:
    drawn = laws.inputs(RICH)
    out = tiled_aggregate(network(3, 4), drawn.query, drawn.key, RICH.neighbors())
    (grad,) = torch.autograd.grad(out.pow(2).sum(), drawn.query, create_graph=True)
    with pytest.raises(RuntimeError, match=r"tiled_aggregate: the second derivative is not implemented"):
        (drawn.query.sum() + grad.pow(2).sum()).backward()


@pytest.mark.parametrize("place", ["query", "key", "weight"])
def test_tensor_changed_in_place_before_backward_is_noticed(place: str) -> None:
    drawn, net = laws.inputs(RICH), network(3, 4)
    out = tiled_aggregate(net, drawn.query, drawn.key, RICH.neighbors())
    with torch.no_grad():
        changed: Tensor = net.get_parameter("1.weight") if place == "weight" else getattr(drawn, place)
        changed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_training_mode_changed_before_backward_does_not_matter() -> None:
    drawn = laws.inputs(RICH)
    net = nn.Sequential(nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 4, dtype=DOUBLE)).eval()
    out = tiled_aggregate(net, drawn.query, drawn.key, RICH.neighbors())
    net.train()
    (found,) = torch.autograd.grad(out.sum(), drawn.query)
    net.eval()
    expected = tiled_aggregate(net, drawn.query, drawn.key, RICH.neighbors(), backend="reference")
    laws.assert_same([found], torch.autograd.grad(expected.sum(), [drawn.query]))


@every_reduction
@pytest.mark.parametrize("edges", [1_000, 60_000])
def test_winners_and_marks_are_bounded_by_the_output_whatever_the_edges(reduce: str, edges: int) -> None:
    neighbors, saved = random_graph(edges, 100), []
    x = torch.randn(100, 16, requires_grad=True)

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = tiled_aggregate(network(16, 16, dtype=SINGLE), x, x, neighbors, reduce=reduce)
    (marks,) = (t for t in saved if t.dtype == torch.uint8)
    winners = [t for t in saved if t.dtype == torch.int32]
    assert 0 < marks.nbytes <= out.nbytes / 2
    assert [t.shape for t in winners] == ([out.shape] if reduce == "max" else [])


def with_hook(module: nn.Module, kind: str) -> nn.Module:
    getattr(module, f"register_{kind}_hook")(lambda *_: None)
    return module


def with_forward(module: nn.Module) -> nn.Module:
    module.forward = lambda z: z
    return module


class Doubled(nn.Linear):
    def forward(self, z: Tensor) -> Tensor:
        return 2 * super().forward(z)


class Reversed(nn.Sequential):
    def forward(self, z: Tensor) -> Tensor:
        for module in reversed(self):
            z = module(z)
        return z


class SoftReLU(nn.ReLU):
    def forward(self, z: Tensor) -> Tensor:
        return torch.nn.functional.softplus(z)


IDENTITY, RELU = Activation("identity"), Activation("relu")
FORMS: dict[str, tuple[Callable[[], nn.Module], Activation, Activation]] = {
    "linear": (lambda: nn.Linear(3, 3), IDENTITY, IDENTITY),
    "in a sequential": (lambda: nn.Sequential(nn.Linear(3, 3)), IDENTITY, IDENTITY),
    "max of SIRConv": (lambda: nn.Sequential(Sigma("gelu"), Linear(3, 3)), Activation("gelu"), IDENTITY),
    "PyG's linear layer": (lambda: nn.Sequential(Sigma("gelu"), PyGLinear(3, 3)), Activation("gelu"), IDENTITY),
    "MLP sigma": (lambda: nn.Sequential(nn.ReLU(), nn.Linear(3, 3), nn.Tanh()), RELU, Activation("tanh")),
    "without bias": (lambda: nn.Sequential(nn.ReLU(), nn.Linear(3, 3, bias=False)), RELU, IDENTITY),
    "slope": (
        lambda: nn.Sequential(nn.LeakyReLU(0.3), nn.Linear(3, 3), Sigma("leaky_relu(0.1)")),
        Activation("leaky_relu", 0.3),
        Activation("leaky_relu", 0.1),
    ),
    "nested": (lambda: nn.Sequential(nn.Sequential(nn.ReLU()), nn.Sequential(nn.Linear(3, 3))), RELU, IDENTITY),
    "identities": (lambda: nn.Sequential(nn.Identity(), nn.Linear(3, 3), nn.Identity(), nn.ReLU()), IDENTITY, RELU),
    "dropout of nothing": (lambda: nn.Sequential(nn.Dropout(0.0), nn.Linear(3, 3)), IDENTITY, IDENTITY),
    "dropout in evaluation": (lambda: nn.Sequential(nn.Dropout(), nn.Linear(3, 3)).eval(), IDENTITY, IDENTITY),
    "in place": (lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 3)), RELU, IDENTITY),
}
OTHERS: dict[str, Callable[[], nn.Module]] = {
    "no linear": lambda: nn.Sequential(nn.ReLU()),
    "nothing": nn.Sequential,
    "two linears": lambda: nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)),
    "two activations before": lambda: nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Linear(3, 3)),
    "two activations after": lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Tanh()),
    "dropout in training": lambda: nn.Sequential(nn.Dropout(), nn.Linear(3, 3)),
    "unknown activation": lambda: nn.Sequential(nn.PReLU(), nn.Linear(3, 3)),
    "elu of another alpha": lambda: nn.Sequential(nn.ELU(2.0), nn.Linear(3, 3)),
    "norm": lambda: nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 3)),
    "subclass of linear": lambda: nn.Sequential(nn.ReLU(), Doubled(3, 3)),
    "subclass of sequential": lambda: Reversed(nn.ReLU(), nn.Linear(3, 3)),
    "subclass of relu": lambda: nn.Sequential(SoftReLU(), nn.Linear(3, 3)),
    "forward of its own": lambda: nn.Sequential(with_forward(nn.ReLU()), nn.Linear(3, 3)),
    "parametrized": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))),
    "old weight norm": lambda: nn.Sequential(with_hook(nn.Linear(3, 3), "forward_pre")),
    "lazy": lambda: nn.Sequential(nn.LazyLinear(3)),
    "lazy, of PyG": lambda: nn.Sequential(PyGLinear(-1, 3)),
    "hook on the whole": lambda: with_hook(nn.Sequential(nn.Linear(3, 3)), "forward"),
    "hook on an activation": lambda: nn.Sequential(with_hook(nn.ReLU(), "forward"), nn.Linear(3, 3)),
    "hook on the gradient": lambda: nn.Sequential(with_hook(nn.Linear(3, 3), "full_backward")),
    "hook before the gradient": lambda: nn.Sequential(with_hook(nn.Linear(3, 3), "full_backward_pre")),
}


@pytest.mark.parametrize("name", FORMS)
def test_form_is_found(name: str, taken: list[str]) -> None:
    make, first, second = FORMS[name]
    net, drawn = make().double(), laws.inputs(RICH)
    found = linear_message(net)
    assert found is not None
    assert (found.first, found.second) == (first, second)
    linear = next(module for module in net.modules() if hasattr(module, "weight"))
    assert found.weight is linear.weight
    assert found.bias is linear.bias
    assert_equals_general_route(net, RICH, drawn)
    assert taken == ["forward"]


@pytest.mark.parametrize("name", OTHERS)
def test_network_of_another_form_takes_the_general_route(name: str, taken: list[str]) -> None:
    torch.manual_seed(0)
    net, drawn = OTHERS[name]().double(), laws.inputs(RICH)
    assert linear_message(net) is None
    tiled_aggregate(net, drawn.query, drawn.key, RICH.neighbors())
    assert taken == []


def test_hook_on_every_module_takes_the_general_route(taken: list[str]) -> None:
    drawn, seen = laws.inputs(RICH), []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module)))
    try:
        tiled_aggregate(network(3, 3), drawn.query, drawn.key, RICH.neighbors())
    finally:
        handle.remove()
    assert taken == []
    assert nn.Linear in seen


@pytest.mark.parametrize("name", ["batch", "cat", "edge weight", "half", "mixed", "reference", "looked on", "autocast"])
def test_call_that_the_kernel_does_not_serve_takes_the_general_route(name: str, taken: list[str]) -> None:
    drawn, net, neighbors = laws.inputs(RICH, weighted=True), network(3, 3), RICH.neighbors()
    query, key = drawn.query, drawn.key
    if name == "batch":
        tiled_aggregate(net, query[None], key[None], neighbors)
    elif name == "cat":
        tiled_aggregate(network(6, 3), query, key, neighbors, combine="cat")
    elif name == "edge weight":
        tiled_aggregate(net, query, key, neighbors, edge_weight=drawn.edge_weight)
    elif name == "half":
        tiled_aggregate(net.bfloat16(), query.bfloat16(), key.bfloat16(), neighbors)
    elif name == "mixed":
        with pytest.raises(RuntimeError, match="dtype"):
            tiled_aggregate(net.float(), query, key, neighbors)
    elif name == "reference":
        tiled_aggregate(net, query, key, neighbors, backend="reference")
    elif name == "looked on":
        with FlopCounterMode(display=False) as counter:
            tiled_aggregate(net, query, key, neighbors)
        assert counter.get_total_flops() == 2 * len(RICH.edges) * 3 * 3
    else:
        with torch.autocast("cpu", torch.bfloat16):
            out = tiled_aggregate(net.float(), query.float(), key.float(), neighbors)
        assert out.dtype == torch.bfloat16
    assert taken == []


def test_functional_call_gives_the_gradient_of_its_own_parameters() -> None:
    drawn = laws.inputs(RICH)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network(3, 4)

        def forward(self) -> Tensor:
            return tiled_aggregate(self.network, drawn.query, drawn.key, RICH.neighbors())

    other = nn.Sequential(nn.ReLU(), nn.Linear(3, 4, dtype=DOUBLE), nn.ReLU())
    swapped: dict[str, Tensor] = {f"network.{name}": value for name, value in other.named_parameters()}
    leaves = [drawn.query, drawn.key, *other.parameters()]
    found = laws.value_and_gradients(torch.func.functional_call(Layer(), swapped, ()), leaves)
    laws.assert_same(found, run(other, RICH, drawn, "reference"))


@every_reduction
def test_compiled_in_one_graph_equals_eager(reduce: str, taken: list[str]) -> None:
    torch.compiler.reset()
    drawn, neighbors, net = laws.inputs(RICH), RICH.neighbors(), network(3, 4, second="tanh")

    def layer(query: Tensor, key: Tensor) -> Tensor:
        return tiled_aggregate(net, query, key, neighbors, reduce=reduce)

    leaves = [drawn.query, drawn.key, *net.parameters()]
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)(drawn.query, drawn.key)
    found = laws.value_and_gradients(compiled, leaves)
    assert taken == []
    laws.assert_same(found, laws.value_and_gradients(layer(drawn.query, drawn.key), leaves))
    assert taken == ["forward"]


def test_nothing_is_recorded_without_gradients() -> None:
    drawn, net = laws.inputs(RICH), network(3, 4)
    for reduce in REDUCTIONS:
        expected = run(net, RICH, drawn, reduce=reduce)[0]
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                out = tiled_aggregate(net, drawn.query, drawn.key, RICH.neighbors(), reduce=reduce)
            assert not out.requires_grad
            assert torch.equal(out, expected)
