import copy
import gc
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sirgcn import testing as laws
from sirgcn.ops import Neighbors, sir_aggregate, tiled_aggregate
from sirgcn.ops.tiled import _Inputs, _Plan, _untiled
from sirgcn.testing import RICH, Graph, Inputs

REDUCTIONS = (*laws.REDUCTIONS, "max")
every_reduction = pytest.mark.parametrize("reduce", REDUCTIONS)
every_form = pytest.mark.parametrize("form", laws.EDGE_FORMS)
every_combine = pytest.mark.parametrize("combine", ["add", "cat"])
graph_and_reduce = st.one_of(
    st.tuples(laws.graphs(), st.sampled_from(["sum", "mean", "sym", "max"])),
    st.tuples(laws.graphs(bipartite=False), st.just("sym_in")),
)


class MLP(nn.Module):
    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, 5), nn.Linear(5, out)

    def forward(self, z: Tensor) -> Tensor:
        message: Tensor = self.last(torch.tanh(self.first(z)))
        return message


def mlp(width: int, out: int = 2, seed: int = 0) -> MLP:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return MLP(width, out).double()


def width_of(given_: Inputs, combine: str) -> int:
    terms = 2 if given_.edge is None else 3
    return given_.query.size(-1) * (terms if combine == "cat" else 1)


def tiled(network: nn.Module, graph: Graph | Neighbors, given_: Inputs, **options: Any) -> Tensor:
    neighbors = graph.neighbors() if isinstance(graph, Graph) else graph
    return tiled_aggregate(
        network,
        given_.query,
        given_.key,
        neighbors,
        edge=given_.edge,
        edge_weight=given_.edge_weight,
        **options,
    )


def untiled(network: nn.Module, graph: Graph, given_: Inputs, reduce: str = "sum", combine: str = "add") -> Tensor:
    table, edge_type = given_.edge if isinstance(given_.edge, tuple) else (given_.edge, None)
    plan = _Plan(network, graph.neighbors(), edge_type, reduce, combine, 1)
    return _untiled(plan, _Inputs(given_.query, given_.key, table, given_.edge_weight))


def assert_same_with_gradients(actual: Tensor, expected: Tensor, given_: Inputs, network: nn.Module) -> None:
    leaves = [*given_.leaves(), *(p for p in network.parameters() if p.requires_grad)]
    laws.assert_same(laws.value_and_gradients(actual, leaves), laws.value_and_gradients(expected, leaves))


def assert_equals_definitions(graph: Graph, given_: Inputs, reduce: str, combine: str, tile: int | None) -> None:
    network = mlp(width_of(given_, combine))
    out = tiled(network, graph, given_, reduce=reduce, combine=combine, tile=tile)
    for expected in (
        laws.aggregate_by_loop(network, graph, given_, reduce, combine),
        untiled(network, graph, given_, reduce, combine),
    ):
        assert_same_with_gradients(out, expected, given_, network)
        out = tiled(network, graph, given_, reduce=reduce, combine=combine, tile=tile)


@every_reduction
@every_combine
@every_form
@pytest.mark.parametrize("tile", [1, 4, None])
def test_equals_loop_and_untiled_for_every_reduction_and_edge_form(
    reduce: str, combine: str, form: str, tile: int | None
) -> None:
    weighted = reduce != "max" and combine == "add"
    assert_equals_definitions(RICH, laws.inputs(RICH, form, weighted), reduce, combine, tile)


@settings(max_examples=100)
@given(
    graph_and_reduce,
    st.sampled_from(laws.EDGE_FORMS),
    st.sampled_from(["add", "cat"]),
    st.booleans(),
    st.integers(1, 14),
    st.integers(0, 99),
)
def test_equals_loop_and_untiled_on_any_graph_for_any_tile(
    case: tuple[Graph, str], form: str, combine: str, weighted: bool, tile: int, seed: int
) -> None:
    graph, reduce = case
    given_ = laws.inputs(graph, form, weighted and reduce != "max", seed=seed)
    assert_equals_definitions(graph, given_, reduce, combine, tile)


@pytest.mark.parametrize("case", laws.EDGE_CASES)
@pytest.mark.parametrize("reduce", ["sum", "sym", "max"])
@every_form
def test_equals_loop_and_untiled_on_every_edge_case(case: str, reduce: str, form: str) -> None:
    graph = laws.EDGE_CASES[case]
    assert_equals_definitions(graph, laws.inputs(graph, form), reduce, "cat", 2)


@pytest.mark.parametrize("activation", laws.SIGMAS)
@pytest.mark.parametrize("reduce", laws.REDUCTIONS)
@every_form
def test_equals_sir_aggregate_where_the_network_is_an_activation(activation: str, reduce: str, form: str) -> None:
    given_, network = laws.inputs(RICH, form, weighted=True), laws.SIGMAS[activation]
    fused = sir_aggregate(
        given_.query,
        given_.key,
        RICH.neighbors(),
        edge=given_.edge,
        edge_weight=given_.edge_weight,
        activation=activation,
        reduce=reduce,
    )
    out = tiled(network, RICH, given_, reduce=reduce, tile=3)
    assert_same_with_gradients(out, fused, given_, network)


@every_reduction
@every_combine
@every_form
def test_batch_equals_its_graphs_stacked(reduce: str, combine: str, form: str) -> None:
    given_ = laws.inputs(RICH, form, weighted=reduce != "max")
    network = mlp(width_of(given_, combine))
    query, key = (torch.stack([x.detach(), 2 * x.detach() + 1]).requires_grad_() for x in (given_.query, given_.key))
    options: dict[str, Any] = {"reduce": reduce, "combine": combine, "tile": 4}
    stacked = torch.stack(
        [tiled(network, RICH, replace(given_, query=q, key=k), **options) for q, k in zip(query, key, strict=True)]
    )
    batched = replace(given_, query=query, key=key)
    assert_same_with_gradients(tiled(network, RICH, batched, **options), stacked, batched, network)


@every_reduction
def test_query_and_key_of_other_widths_are_concatenated(reduce: str) -> None:
    graph = laws.RICH
    base = laws.inputs(graph)
    key = laws.inputs(graph, channels=1, seed=1).key
    edge = laws.inputs(graph, "dense", channels=2, seed=2).edge
    given_ = Inputs(base.query, key, edge)
    network = mlp(6)
    out = tiled(network, graph, given_, reduce=reduce, combine="cat", tile=3)
    expected = laws.aggregate_by_loop(network, graph, given_, reduce, "cat")
    assert_same_with_gradients(out, expected, given_, network)


class Recorder(nn.Module):
    """Runs a network and keeps what went in and what came out, call by call."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.seen: list[Tensor] = []
        self.given: list[Tensor] = []

    def forward(self, z: Tensor) -> Tensor:
        message: Tensor = self.network(z)
        self.seen.append(z.detach().clone())
        self.given.append(message.detach().clone())
        return message


@every_reduction
@pytest.mark.parametrize("tile", [1, 4])
def test_dropout_drops_the_same_entries_in_the_recomputation(reduce: str, tile: int) -> None:
    torch.manual_seed(0)
    recorder = Recorder(nn.Sequential(nn.Dropout(0.5), mlp(3), nn.Dropout(0.3)))
    given_ = laws.inputs(RICH)
    out = tiled(recorder, RICH, given_, reduce=reduce, tile=tile)
    forward = recorder.given.copy()
    torch.rand(7)
    out.sum().backward()
    backward = recorder.given[len(forward) :]
    assert len(forward) == math.ceil(len(RICH.edges) / tile)
    assert all(map(torch.equal, forward, backward))
    assert len(forward) == len(backward)
    assert any(bool((message == 0).any()) for message in forward)


def test_gradient_through_dropout_is_the_one_of_its_mask() -> None:
    torch.manual_seed(0)
    recorder = Recorder(nn.Dropout(0.5))
    given_ = laws.inputs(RICH, kinks=False)
    out = tiled(recorder, RICH, given_, tile=4)
    seen, kept = torch.cat(recorder.seen), torch.cat(recorder.given)
    mask = kept / seen
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    out.sum().backward()
    order = RICH.neighbors().by_target
    for leaf, end in ((given_.query, order.owner()), (given_.key, order.node)):
        laws.assert_same([leaf.grad], [torch.zeros_like(leaf).index_add(0, end, mask)])  # type: ignore[list-item]


@every_reduction
def test_backward_leaves_the_random_state_alone(reduce: str) -> None:
    network = nn.Sequential(nn.Dropout(0.5), mlp(3))
    out = tiled(network, RICH, laws.inputs(RICH), reduce=reduce, tile=3)
    torch.rand(3)
    state = torch.get_rng_state()
    out.sum().backward()
    assert torch.equal(torch.get_rng_state(), state)


def test_forward_draws_new_masks_each_time() -> None:
    torch.manual_seed(0)
    network, given_ = nn.Dropout(0.5), laws.inputs(RICH, kinks=False)
    assert not torch.equal(tiled(network, RICH, given_), tiled(network, RICH, given_))


STAR = Graph(((0, 0), (1, 0), (2, 0), (3, 0)), 4, 2)


def star_messages(*messages: float) -> Inputs:
    """The messages of target 0 through an identity network; target 1 has no neighbours."""
    key = torch.tensor(messages, dtype=torch.float64).unsqueeze(1).requires_grad_()
    return Inputs(torch.zeros(2, 1, dtype=torch.float64), key)


@pytest.mark.parametrize("tile", [1, 2, 3, 4, None])
@pytest.mark.parametrize(
    ("messages", "top", "winner"),
    [
        ((1.0, 3.0, 3.0, 2.0), 3.0, 1),
        ((5.0, 5.0, 5.0, 5.0), 5.0, 0),
        ((-2.0, -4.0, -1.0, -1.0), -1.0, 2),
        ((-math.inf,) * 4, -math.inf, 0),
        ((-math.inf, -math.inf, -7.0, -math.inf), -7.0, 2),
        ((math.inf, 1.0, math.inf, 1.0), math.inf, 0),
        ((0.0, -0.0, 0.0, -0.0), 0.0, 0),
    ],
    ids=str,
)
def test_gradient_of_max_goes_to_the_first_of_equals(
    tile: int | None, messages: tuple[float, ...], top: float, winner: int
) -> None:
    given_ = star_messages(*messages)
    for out in (
        tiled(nn.Identity(), STAR, given_, reduce="max", tile=tile),
        untiled(nn.Identity(), STAR, given_, "max"),
    ):
        assert out.flatten().tolist() == [top, 0.0]
        (grad,) = torch.autograd.grad(out[0].sum(), given_.key)
        assert grad.flatten().tolist() == [float(v == winner) for v in range(4)]


def test_first_of_equals_is_the_first_in_the_order_of_the_input() -> None:
    # Sources and targets are out of order; the tie at target 0 is between edges 1 (source 3) and 3 (source 0).
    graph = Graph(((1, 1), (3, 0), (2, 0), (0, 0)), 4, 2)
    given_ = star_messages(9.0, 1.0, 2.0, 9.0)
    for tile in (1, 2, 4):
        out = tiled(nn.Identity(), graph, given_, reduce="max", tile=tile)
        (grad,) = torch.autograd.grad(out[0].sum(), given_.key)
        assert grad.flatten().tolist() == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("tile", [1, 2, 3, 4, None])
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("other", [1.0, math.inf, -math.inf])
def test_nan_message_gives_nan_wherever_it_stands(tile: int | None, place: int, other: float) -> None:
    messages = [other] * 4
    messages[place] = math.nan
    for reduce in ("sum", "mean", "sym", "max"):
        given_ = star_messages(*messages)
        out = tiled(nn.Identity(), STAR, given_, reduce=reduce, tile=tile)
        assert math.isnan(out[0].item())
        assert out[1].item() == 0.0
    (grad,) = torch.autograd.grad(out[0].sum(), given_.key)
    assert grad.flatten().tolist() == [float(v == place) for v in range(4)]


@every_reduction
def test_node_without_neighbors_gets_exactly_zero(reduce: str) -> None:
    # All messages are 1 or less than 0: 0 is never a message.
    for constant in (1.0, -1.0):
        network = mlp(3)
        nn.init.zeros_(network.last.weight)
        nn.init.constant_(network.last.bias, constant)
        out = tiled(network, RICH, laws.inputs(RICH), reduce=reduce, tile=2)
        zero = [u for u in range(7) if torch.equal(out[u], torch.zeros_like(out[u]))]
        assert zero == [4, 6]


@pytest.mark.parametrize("combine", ["add", "cat"])
def test_network_that_widens_a_narrow_input_gets_small_tiles(combine: str) -> None:
    edges, hidden = 20_000, 512
    rows: list[int] = []
    network = nn.Sequential(nn.Linear(1 if combine == "add" else 2, hidden), nn.ReLU(), nn.Linear(hidden, 1))
    network.register_forward_pre_hook(lambda _, args: rows.append(len(args[0])))
    neighbors = Neighbors.from_edge_index(torch.randint(50, (2, edges)), 50)
    with torch.no_grad():
        tiled_aggregate(network, torch.randn(50, 1), torch.randn(50, 1), neighbors, combine=combine)
    assert sum(rows) == edges
    assert max(rows) * hidden <= 2**20


@every_reduction
@every_combine
@pytest.mark.parametrize("tile", [1, 5, 10])
def test_network_never_sees_more_rows_than_a_tile(reduce: str, combine: str, tile: int) -> None:
    given_ = laws.inputs(RICH)
    recorder = Recorder(mlp(width_of(given_, combine)))
    tiled(recorder, RICH, given_, reduce=reduce, combine=combine, tile=tile).sum().backward()
    rows = [z.size(0) for z in recorder.seen]
    assert max(rows) <= tile
    assert sum(rows) == 2 * len(RICH.edges)


def many_edges() -> tuple[Neighbors, Tensor]:
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, 20, (2, 2000), generator=generator)
    return Neighbors.from_edge_index(edge_index, 20), torch.randn(20, 4, requires_grad=True)


@every_reduction
@pytest.mark.parametrize("form", ["none", "table"])
def test_graph_of_autograd_saves_nothing_as_long_as_the_edges(reduce: str, form: str) -> None:
    neighbors, x = many_edges()
    edge, edge_type = None, torch.arange(2000) % 3
    if form == "table":
        edge = (torch.randn(3, 4, requires_grad=True), edge_type)
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = tiled_aggregate(mlp(4).float(), x, x, neighbors, edge, reduce=reduce, tile=100)
    assert saved
    # The user's own types are kept as they are, without a copy, so that torch notices a change of them in place.
    own = edge_type.data_ptr()
    assert all(neighbors.num_edges not in tensor.shape or tensor.data_ptr() == own for tensor in saved)
    out.sum().backward()


@every_reduction
def test_no_tensor_of_edges_by_channels_is_alive_after_forward(reduce: str) -> None:
    neighbors, x = many_edges()
    gc.collect()
    out = tiled_aggregate(mlp(4).float(), x, x, neighbors, reduce=reduce, tile=100)
    alive = [
        list(thing.shape)
        for thing in gc.get_objects()
        if type(thing) is Tensor and thing.dim() > 1 and 2000 in thing.shape[:-1]
    ]
    assert alive == []
    assert out.requires_grad


@every_reduction
def test_forward_and_backward_repeat_bit_for_bit(reduce: str) -> None:
    neighbors, x = many_edges()
    network = mlp(4, 16).float()

    def run() -> list[Tensor]:
        out = tiled_aggregate(network, x, 2 * x, neighbors, reduce=reduce, tile=300)
        return laws.value_and_gradients(out, [x, *network.parameters()])

    laws.assert_repeats(run)


def test_batch_norm_in_training_is_refused_by_name() -> None:
    norm = nn.BatchNorm1d(3).double()
    network = nn.Sequential(mlp(3, 3), nn.Sequential(norm))
    with pytest.raises(ValueError, match=r"network: 1\.0 is a batch norm in training mode"):
        tiled(network, RICH, laws.inputs(RICH), tile=4)
    network.eval()
    norm.train()
    with pytest.raises(ValueError, match=r"network: 1\.0 is a batch norm in training mode"):
        tiled(network, RICH, laws.inputs(RICH), tile=4)


def test_batch_norm_without_running_statistics_is_refused() -> None:
    network = nn.BatchNorm1d(3, track_running_stats=False).double().eval()
    with pytest.raises(ValueError, match="network: BatchNorm1d is a batch norm"):
        tiled(network, RICH, laws.inputs(RICH), tile=4)


def test_batch_norm_in_evaluation_is_taken() -> None:
    norm = nn.BatchNorm1d(3).double()
    network = nn.Sequential(norm, mlp(3)).eval()
    assert norm.running_mean is not None
    norm.running_mean.fill_(0.3)
    given_ = laws.inputs(RICH)
    out = tiled(network, RICH, given_, tile=4)
    expected = laws.aggregate_by_loop(network, RICH, given_)
    assert_same_with_gradients(out, expected, given_, network)


def test_batch_norm_over_one_tile_takes_its_statistics_once() -> None:
    network = nn.Sequential(nn.BatchNorm1d(3), mlp(3)).double()
    plain, given_ = copy.deepcopy(network), laws.inputs(RICH)
    out = tiled(network, RICH, given_, tile=len(RICH.edges))
    expected = untiled(plain, RICH, given_)
    found = torch.autograd.grad(out.sum(), [*given_.leaves(), *network.parameters()])
    wanted = torch.autograd.grad(expected.sum(), [*given_.leaves(), *plain.parameters()])
    laws.assert_same([out, *found], [expected, *wanted])
    laws.assert_same(list(network.buffers()), list(plain.buffers()))


def test_parameter_changed_in_place_before_backward_is_noticed() -> None:
    network = mlp(3)
    out = tiled(network, RICH, laws.inputs(RICH), tile=4)
    with torch.no_grad():
        network.first.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("place", ["query", "key"])
def test_input_changed_in_place_before_backward_is_noticed(place: str) -> None:
    given_ = laws.inputs(RICH)
    out = tiled(mlp(3), RICH, given_, tile=4)
    with torch.no_grad():
        getattr(given_, place).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_frozen_parameter_changed_in_place_before_backward_is_noticed() -> None:
    network = mlp(3).requires_grad_(False)
    out = tiled(network, RICH, laws.inputs(RICH), tile=4)
    network.first.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def gradient_or_refusal(out: Tensor, leaf: Tensor) -> Tensor | None:
    try:
        return torch.autograd.grad(out.sum(), leaf)[0]
    except (RuntimeError, ValueError):
        return None


def freeze(network: nn.Module) -> None:
    next(network.parameters()).requires_grad_(False)


def evaluate(network: nn.Module) -> None:
    network.eval()


def exchange(network: nn.Module) -> None:
    network[1] = mlp(3, seed=1)  # type: ignore[operator]


@pytest.mark.parametrize("change", [freeze, evaluate, exchange])
def test_network_changed_before_backward_gives_the_same_gradient_or_an_error(
    change: Callable[[nn.Module], None],
) -> None:
    network, given_ = nn.Sequential(nn.Dropout(0.5), mlp(3)), laws.inputs(RICH)
    grads = []
    for step in (lambda _: None, change):
        torch.manual_seed(0)
        out = tiled(network, RICH, given_, tile=4)
        step(network)
        grads.append(gradient_or_refusal(out, given_.key))
    before, after = grads
    assert before is not None
    assert after is None or torch.equal(before, after)


def test_functional_call_gives_the_gradient_of_its_own_parameters_or_an_error() -> None:
    given_ = laws.inputs(RICH)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = mlp(3)

        def forward(self) -> Tensor:
            return tiled(self.network, RICH, given_, tile=4)

    layer, other = Layer(), mlp(3, seed=1)
    swapped: dict[str, Tensor] = {f"network.{name}": value for name, value in other.named_parameters()}
    out = torch.func.functional_call(layer, swapped, ())
    expected = untiled(other, RICH, given_)
    laws.assert_same([out], [expected])
    found = gradient_or_refusal(out, given_.key)
    if found is not None:
        laws.assert_same([found], torch.autograd.grad(expected.sum(), [given_.key]))


@pytest.mark.parametrize("loss", [lambda out: out.sum(), lambda out: out.pow(2).sum()], ids=["linear", "square"])
def test_second_derivative_is_refused_and_never_dropped(loss: Callable[[Tensor], Tensor]) -> None:
    given_ = laws.inputs(RICH)
    out = tiled(mlp(3), RICH, given_, tile=4)
    (grad,) = torch.autograd.grad(loss(out), given_.query, create_graph=True)
    with pytest.raises(RuntimeError, match=r"differentiate twice|second derivative"):
        (given_.query.sum() + grad.pow(2).sum()).backward()


def test_backward_twice_with_the_graph_kept_gives_the_same_gradient() -> None:
    given_, network = laws.inputs(RICH), nn.Sequential(nn.Dropout(0.5), mlp(3))
    out = tiled(network, RICH, given_, tile=4).sum()
    leaves = [*given_.leaves(), *network.parameters()]
    first = torch.autograd.grad(out, leaves, retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(out, leaves)))


@every_reduction
def test_autocast_of_forward_is_taken_up_again_in_backward(reduce: str) -> None:
    network = mlp(3).float()
    recorder, given_ = Recorder(network), laws.inputs(RICH, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = tiled(recorder, RICH, given_, reduce=reduce, tile=4)
        expected = untiled(network, RICH, given_, reduce)
    assert out.dtype == expected.dtype == torch.bfloat16
    leaves = [*given_.leaves(), *network.parameters()]
    found = laws.value_and_gradients(out, leaves)
    assert {message.dtype for message in recorder.given} == {torch.bfloat16}
    assert [g.dtype for g in found[1:]] == [torch.float32] * len(leaves)
    # Sums over tiles and over all edges round at other places: a few units of bfloat16, 2 ** -8.
    laws.assert_same(found, laws.value_and_gradients(expected, leaves), tolerance=2**-5)


@every_reduction
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_dtype_and_is_close_to_single(reduce: str, dtype: torch.dtype) -> None:
    given_, network = laws.inputs(RICH, "dense", dtype=dtype), mlp(3).to(dtype)
    out = tiled(network, RICH, given_, reduce=reduce, tile=4)
    assert out.dtype == dtype
    leaves = [*given_.leaves(), *network.parameters()]
    assert {g.dtype for g in laws.value_and_gradients(out, leaves)} == {dtype}
    single = given_.map(lambda x: x.detach().float())
    expected = tiled(copy.deepcopy(network).float(), RICH, single, reduce=reduce)
    # Two layers round every message a few times before it is summed.
    unit = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.float(), expected, rtol=unit, atol=unit)


def test_sums_of_half_precision_keep_small_messages() -> None:
    hub = Graph(tuple((v, 0) for v in range(1024)), 1024, 1)
    ones = Inputs(torch.ones(1, 1, dtype=torch.bfloat16), torch.zeros(1024, 1, dtype=torch.bfloat16))
    assert tiled(nn.Identity(), hub, ones, tile=10).item() == 1024


@every_reduction
def test_frozen_parameters_get_no_gradient(reduce: str) -> None:
    network, given_ = mlp(3), laws.inputs(RICH)
    network.first.requires_grad_(False)
    tiled(network, RICH, given_, reduce=reduce, tile=4).sum().backward()
    assert network.first.weight.grad is None
    assert network.first.bias.grad is None
    assert network.last.weight.grad is not None
    assert given_.query.grad is not None


@pytest.mark.parametrize("needed", ["query", "key", "edge", "edge_weight", "parameters", "nothing"])
@every_form
def test_gradient_reaches_only_what_requires_it(needed: str, form: str) -> None:
    base, network = laws.inputs(RICH, form, weighted=True), mlp(3)
    if needed == "edge" and form == "none":
        return
    names = ["query", "key", *(["edge"] if form != "none" else []), "edge_weight"]
    given_ = base.map(lambda x: x.detach().clone())
    network.requires_grad_(needed == "parameters")
    leaves: list[Tensor] = list(network.parameters())
    if needed in names:
        leaves = [given_.leaves()[names.index(needed)].requires_grad_()]
    out = tiled(network, RICH, given_, reduce="sym", tile=3)
    assert out.requires_grad == (needed != "nothing")
    expected = laws.aggregate_by_loop(network, RICH, given_, "sym")
    laws.assert_same(laws.value_and_gradients(out, leaves), laws.value_and_gradients(expected, leaves))


def test_parameter_that_is_never_used_gets_no_gradient() -> None:
    network = mlp(3)
    network.register_parameter("unused", nn.Parameter(torch.ones(2, dtype=torch.float64)))
    tiled(network, RICH, laws.inputs(RICH), tile=4).sum().backward()
    assert network.get_parameter("unused").grad is None


def test_network_that_works_in_place_leaves_its_inputs_alone() -> None:
    given_ = laws.inputs(RICH, "dense")
    before = [leaf.detach().clone() for leaf in given_.leaves()]
    for combine in ("add", "cat"):
        network = nn.ReLU(inplace=True)
        out = tiled(network, RICH, given_, combine=combine, tile=4)
        expected = laws.aggregate_by_loop(nn.ReLU(), RICH, given_, combine=combine)
        assert_same_with_gradients(out, expected, given_, network)
    assert all(map(torch.equal, before, given_.leaves()))


def test_nothing_is_recorded_without_gradients() -> None:
    given_, network = laws.inputs(RICH), mlp(3)
    with torch.no_grad():
        out = tiled(network, RICH, given_, tile=4)
    with torch.inference_mode():
        inferred = tiled(network, RICH, given_, tile=4)
    assert not out.requires_grad
    assert torch.equal(out, inferred)


class Shrink(nn.Module):
    def __init__(self, how: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.how = how

    def forward(self, z: Tensor) -> Tensor:
        return self.how(z)


@pytest.mark.parametrize("how", [lambda z: z[:1], lambda z: z.sum(0), lambda z: z[None]])
def test_network_that_changes_the_number_of_rows_is_refused(
    how: Callable[[Tensor], Tensor],
) -> None:
    with pytest.raises(ValueError, match="network: expected one message per row of its input"):
        tiled(Shrink(how), RICH, laws.inputs(RICH), tile=4)


Q, K = torch.zeros(3, 4), torch.zeros(5, 4)  # 3 targets, 5 sources
GRAPH = Graph(((0, 1), (4, 2)), 5, 3)
TYPE = torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": torch.relu}, "network: expected an nn.Module"),
        ({"reduce": "min"}, "reduce: expected one of sum, mean, sym, sym_in, max, got 'min'"),
        ({"reduce": "sym_in"}, "reduce: sym_in weighs by in-degrees at both ends"),
        ({"combine": "mul"}, "combine: expected one of add, cat, got 'mul'"),
        ({"tile": 0}, "tile: expected at least 1 edge, got 0"),
        ({"tile": 2.5}, "tile: expected "),
        ({"query": K}, "query: expected 3 rows, one per node of Neighbors(num_sources=5"),
        ({"query": Q[0]}, "query: expected "),
        ({"key": Q}, "key: expected 5 rows, one per node of Neighbors(num_sources=5"),
        ({"key": K[:, :1]}, "key: expected "),
        ({"key": K.expand(2, 5, 4)}, "key: expected "),
        ({"query": Q.expand(2, 3, 4)}, "key: expected "),
        ({"edge": torch.zeros(3, 4)}, "edge: expected 2 rows, one per edge, got 3"),
        ({"edge": torch.zeros(2, 1)}, "edge: expected "),
        ({"edge": torch.zeros(2)}, "edge: expected "),
        ({"edge": (torch.zeros(6, 1), TYPE)}, "edge: expected "),
        ({"edge": (torch.zeros(6, 4), TYPE[:1])}, "edge type: expected 2 entries, one per edge"),
        ({"edge": (torch.zeros(6, 4), TYPE.repeat(2))}, "edge type: expected 2 entries"),
        ({"edge": (torch.zeros(6, 4), TYPE.float())}, "edge type: expected int32 or int64"),
        ({"edge": (torch.zeros(6, 4), TYPE + 6)}, "edge type[0] = 6: expected 0 <= type < 6"),
        ({"edge": (torch.zeros(6, 4), TYPE - 1)}, "edge type[0] = -1: expected 0 <= type < 6"),
        ({"edge_weight": torch.zeros(3)}, "edge_weight: expected shape [2], "),
        ({"edge_weight": torch.zeros(2, 1)}, "edge_weight: expected shape [2], "),
        ({"edge_weight": torch.zeros(2), "reduce": "max"}, "edge_weight: max takes no edge weights"),
        ({"neighbors": GRAPH.edge_index}, "neighbors: expected Neighbors, got Tensor"),
    ],
)
def test_bad_input_names_argument_expected_and_got(change: dict[str, Any], message: str) -> None:
    arguments = {
        "network": nn.Identity(),
        "query": Q,
        "key": K,
        "neighbors": GRAPH.neighbors(),
        **change,
    }
    with pytest.raises((ValueError, TypeError, IndexError)) as error:
        tiled_aggregate(**arguments)
    assert str(error.value).startswith(message)


@every_reduction
def test_compiled_in_one_graph_equals_eager(reduce: str) -> None:
    torch.compiler.reset()
    given_, neighbors = laws.inputs(RICH, "table"), RICH.neighbors()
    assert isinstance(given_.edge, tuple)
    network = mlp(3)

    def layer(query: Tensor, key: Tensor, table: Tensor, edge_type: Tensor) -> Tensor:
        return tiled_aggregate(network, query, key, neighbors, (table, edge_type), reduce=reduce, tile=4)

    arguments = (given_.query, given_.key, *given_.edge)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    assert_same_with_gradients(compiled(*arguments), layer(*arguments), given_, network)


class Linear(nn.Module):
    """No linear layer, in spite of its name, weight and bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width, dtype=torch.float64))
        self.bias = nn.Parameter(torch.randn(width, dtype=torch.float64))

    def forward(self, h: Tensor) -> Tensor:
        return torch.tanh(h @ self.weight.t() + self.bias)


def test_module_that_is_linear_by_name_only_keeps_its_own_gradients() -> None:
    torch.manual_seed(0)
    neighbors = Neighbors.from_edge_index(torch.randint(0, 6, (2, 20)), 6)
    network = nn.Sequential(nn.Tanh(), Linear(3))
    query, key = (torch.randn(6, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    leaves = [query, key, *network.parameters()]
    tiled, untiled = (
        torch.autograd.grad(tiled_aggregate(network, query, key, neighbors, tile=tile).square().sum(), leaves)
        for tile in (7, 20)
    )
    torch.testing.assert_close(tiled, untiled)


@pytest.mark.parametrize("tile", [2, 1000])
@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_hook_on_a_parameter_is_called_once_with_the_whole_gradient(tile: int, reduce: str) -> None:
    linear = nn.Linear(3, 3).double()
    network = nn.Sequential(linear, nn.Tanh(), nn.LayerNorm(3).double())
    drawn = laws.inputs(laws.RICH)
    called: list[Tensor] = []

    def gradient() -> Tensor:
        out = tiled_aggregate(network, drawn.query, drawn.key, laws.RICH.neighbors(), reduce=reduce, tile=tile)
        (found,) = torch.autograd.grad(out.square().sum(), [linear.weight])
        return found

    def doubled(grad: Tensor) -> Tensor:
        called.append(grad)
        return 2 * grad

    plain = gradient()
    linear.weight.register_hook(doubled)
    torch.testing.assert_close(gradient(), 2 * plain)
    assert len(called) == 1
