"""Laws of messages with a value, for every backend."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sirgcn import testing as laws
from sirgcn.ops import ACTIVATIONS, Neighbors, sir_aggregate
from sirgcn.ops.backend import BACKENDS, Backend
from sirgcn.ops.columns import split_columns
from sirgcn.ops.gated import gated_aggregate, gated_columns
from sirgcn.ops.gated_operators import gated
from sirgcn.testing import Graph, Inputs

DOUBLE = torch.float64
REDUCTIONS = (*laws.REDUCTIONS, "gates")
every_backend = pytest.mark.parametrize("backend", laws.BACKENDS)
every_form = pytest.mark.parametrize("form", laws.EDGE_FORMS)
every_reduction = pytest.mark.parametrize("reduce", REDUCTIONS)
# Sums of these gates never come near 0, where they would divide.
POSITIVE = ("sigmoid", "softplus")


def value_of(graph: Graph, channels: int = 3, dtype: torch.dtype = DOUBLE) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    drawn = torch.randn(graph.num_sources, channels, generator=generator, dtype=DOUBLE)
    return drawn.to(dtype).requires_grad_()


def by_loop(graph: Graph, given_: Inputs, value: Tensor, activation: str, reduce: str) -> Tensor:
    """The definition, one edge at a time."""
    edge, sigma = given_.with_dense_edge().edge, laws.SIGMAS[activation]
    zero = given_.query.new_zeros(given_.query.size(1))
    sums, gates = [zero] * graph.num_targets, [zero] * graph.num_targets
    for i, (v, u) in enumerate(graph.edges):
        z = given_.query[u] + given_.key[v] + (edge[i] if isinstance(edge, Tensor) else 0)
        gate = sigma(z) * (1 if given_.edge_weight is None else given_.edge_weight[i])
        gate = gate * laws.scale(graph, "sum" if reduce == "gates" else reduce, v, u)
        sums[u], gates[u] = sums[u] + gate * value[v], gates[u] + gate
    if reduce == "gates":
        sums = [total / (divisor + 1e-6) for total, divisor in zip(sums, gates, strict=True)]
    return torch.stack(sums) if sums else given_.query.new_zeros(given_.query.shape)


def aggregate(graph: Graph, given_: Inputs, value: Tensor, **options: Any) -> Tensor:
    terms = (given_.query, given_.key, graph.neighbors(), given_.edge, given_.edge_weight)
    return sir_aggregate(*terms, value=value, **options)


def assert_equals_loop(
    backend: str, graph: Graph, form: str, weighted: bool, activation: str, reduce: str, channels: int = 3
) -> None:
    given_, value = laws.inputs(graph, form, False, channels), value_of(graph, channels)
    if weighted:
        weight = torch.rand(len(graph.edges), generator=torch.Generator().manual_seed(1), dtype=DOUBLE) + 0.1
        given_ = Inputs(given_.query, given_.key, given_.edge, weight.requires_grad_())
    leaves = [*given_.leaves(), value]
    found = aggregate(graph, given_, value, activation=activation, reduce=reduce, backend=backend)
    expected = by_loop(graph, given_, value, activation, reduce)
    laws.assert_same(laws.value_and_gradients(found, leaves), laws.value_and_gradients(expected, leaves), 1e-10)


@every_backend
@pytest.mark.parametrize("activation", laws.SIGMAS)
@every_reduction
@every_form
def test_values_and_gradients_are_those_of_the_loop(backend: str, activation: str, reduce: str, form: str) -> None:
    if reduce == "gates" and activation not in POSITIVE:
        pytest.skip("these gates may sum to 0")
    assert_equals_loop(backend, laws.RICH, form, form != "dense", activation, reduce)


@every_backend
@settings(max_examples=40)
@given(
    graph=laws.graphs(bipartite=False),
    form=st.sampled_from(laws.EDGE_FORMS),
    weighted=st.booleans(),
    reduce=st.sampled_from(REDUCTIONS),
    activation=st.sampled_from(POSITIVE),
    channels=st.integers(0, 20),
)
def test_equals_the_loop_on_any_graph(
    backend: str, graph: Graph, form: str, weighted: bool, reduce: str, activation: str, channels: int
) -> None:
    assert_equals_loop(backend, graph, form, weighted, activation, reduce, channels)


@every_backend
@pytest.mark.parametrize("name", laws.EDGE_CASES)
@pytest.mark.parametrize("reduce", ["sum", "mean", "gates"])
def test_equals_the_loop_on_edge_cases(backend: str, name: str, reduce: str) -> None:
    assert_equals_loop(backend, laws.EDGE_CASES[name], "table", True, "sigmoid", reduce, channels=17)


@every_backend
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradient_equals_finite_differences(backend: str, activation: str) -> None:
    graph = Graph(((0, 0), (1, 0), (1, 0), (2, 1), (0, 2)), 4, 4)
    given_, value = laws.inputs(graph, "table", True, 2, kinks=False), value_of(graph, 2)
    for reduce in REDUCTIONS if activation in POSITIVE else ("sum",):

        def function(value: Tensor, *leaves: Tensor, reduce: str = reduce) -> Tensor:
            return aggregate(
                graph, given_.with_leaves(leaves), value, activation=activation, reduce=reduce, backend=backend
            )

        if reduce == "gates":
            given_.edge_weight.data.abs_().add_(0.5)  # type: ignore[union-attr]
        laws.assert_gradients(function, [value, *given_.leaves()], f"gradients: {activation}, {reduce}")


@pytest.mark.parametrize("reduce", ["sym", "gates"])
@pytest.mark.parametrize("hub", [None, 0, 1])
@pytest.mark.parametrize("channels", [32, 75])
def test_c_equals_the_reference_where_items_share_groups_and_channels_have_tiles(
    reduce: str, hub: int | None, channels: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(5000, (2, 12_000), generator=generator)
    if hub is not None:
        edge_index[hub, :9000] = 17
    neighbors = Neighbors.from_edge_index(edge_index, 5000)
    query, key, value = torch.randn(3, 5000, channels, generator=generator, dtype=DOUBLE).requires_grad_()
    leaves = [x.detach().requires_grad_() for x in (query, key, value)]
    query, key, value = leaves
    found, expected = (
        laws.value_and_gradients(
            sir_aggregate(query, key, neighbors, None, None, "sigmoid", reduce, backend, value), leaves
        )
        for backend in (None, "reference")
    )
    laws.assert_same(found, expected, 1e-10)


@every_backend
def test_forward_and_backward_repeat_bit_for_bit_at_any_number_of_threads(backend: str) -> None:
    graph = laws.random_graph(300, 3_000)
    given_ = laws.inputs(graph, "table", False, 16, dtype=torch.float32)
    value, threads = value_of(graph, 16, torch.float32), torch.get_num_threads()
    leaves = [*given_.leaves(), value]

    def run() -> list[Tensor]:
        return laws.value_and_gradients(
            aggregate(graph, given_, value, activation="sigmoid", reduce="gates", backend=backend), leaves
        )

    laws.assert_repeats(run, times=1)
    if backend == "native":
        first = run()
        try:
            torch.set_num_threads(3)
            assert all(torch.equal(a, b) for a, b in zip(first, run(), strict=True))
        finally:
            torch.set_num_threads(threads)


@every_backend
@every_reduction
def test_target_without_neighbours_gets_zero(backend: str, reduce: str) -> None:
    out = aggregate(
        laws.RICH,
        laws.inputs(laws.RICH),
        value_of(laws.RICH).detach().abs() + 1,
        activation="sigmoid",
        reduce=reduce,
        backend=backend,
    )
    assert bool((out[[4, 6]] == 0).all())
    assert bool((out[[0, 1, 2, 3, 5]] > 0).all())


@every_backend
def test_a_value_of_ones_changes_nothing(backend: str) -> None:
    given_ = laws.inputs(laws.RICH, "dense", weighted=True)
    found = aggregate(laws.RICH, given_, torch.ones_like(given_.key), activation="gelu", reduce="sym", backend=backend)
    terms = (given_.query, given_.key, laws.RICH.neighbors(), given_.edge, given_.edge_weight)
    laws.assert_same([found], [sir_aggregate(*terms, "gelu", "sym", backend)])


@every_backend
@pytest.mark.parametrize("reduce", ["mean", "gates"])
def test_batch_equals_its_signals(backend: str, reduce: str) -> None:
    graph = laws.RICH
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, graph.num_targets, 3, generator=generator, dtype=DOUBLE)
    key, value = torch.randn(2, 2, graph.num_sources, 3, generator=generator, dtype=DOUBLE)
    neighbors = graph.neighbors()
    found = sir_aggregate(query, key, neighbors, None, None, "sigmoid", reduce, backend, value)
    each = [
        sir_aggregate(q, k, neighbors, None, None, "sigmoid", reduce, backend, v)
        for q, k, v in zip(query, key, value, strict=True)
    ]
    laws.assert_same([found], [torch.stack(each)])


@every_backend
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(backend: str, dtype: torch.dtype) -> None:
    graph = laws.RICH
    given_ = laws.inputs(graph, "table", False, 8, dtype=dtype)
    value = value_of(graph, 8, dtype)
    out = aggregate(graph, given_, value, activation="sigmoid", reduce="gates", backend=backend)
    wide = given_.map(lambda x: x.detach().double())
    expected = by_loop(graph, wide, value.detach().double(), "sigmoid", "gates")
    assert out.dtype == dtype
    # Only the rounding of the output to the narrow dtype is left.
    laws.assert_same([out.detach().double()], [expected], 2 * torch.finfo(dtype).eps)
    assert all(g.dtype == dtype for g in torch.autograd.grad(out.sum(), [*given_.leaves(), value]))


@every_backend
@pytest.mark.parametrize("reduce", ["sum", "gates"])
def test_columns_of_one_matrix_give_the_gradient_of_separate_ones_in_one_piece(backend: str, reduce: str) -> None:
    graph = laws.random_graph(40, 200)
    whole = torch.randn(40, 20, generator=torch.Generator().manual_seed(0), dtype=DOUBLE, requires_grad=True)
    neighbors = graph.neighbors()

    def run(parts: tuple[Tensor, ...]) -> list[Tensor]:
        start, query, key, value = parts
        out = gated_aggregate(query, key, value, neighbors, reduce=reduce, backend=backend, start=start)
        return laws.value_and_gradients(out, [whole])

    separate = run(tuple(part.clone() for part in whole.chunk(4, dim=1)))
    laws.assert_same(run(split_columns(whole, 4)), separate)


@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
@pytest.mark.parametrize("form", laws.EDGE_FORMS)
@pytest.mark.parametrize("reduce", ["mean", "gates"])
@pytest.mark.parametrize(
    "name", ["rich", *(name for name, case in laws.EDGE_CASES.items() if case.num_sources == case.num_targets)]
)
def test_a_matrix_of_node_terms_is_its_four_parts(name: str, reduce: str, form: str, dtype: torch.dtype) -> None:
    graph = {"rich": laws.RICH, **laws.EDGE_CASES}[name]
    # Where the matrix is narrower than the edge term, its parts are promoted.
    edge = laws.inputs(graph, form, False, 5).edge
    drawn = torch.randn(graph.num_targets, 20, generator=torch.Generator().manual_seed(0), dtype=dtype)
    stacked, neighbors = drawn.requires_grad_(), graph.neighbors()
    leaves = [stacked, *([] if edge is None else [edge[0] if isinstance(edge, tuple) else edge])]
    start, query, key, value = (part.clone() for part in stacked.chunk(4, dim=1))
    expected = gated_aggregate(query, key, value, neighbors, edge, reduce=reduce, start=start)
    found = gated_columns(stacked, neighbors, edge, reduce=reduce)
    assert found.dtype == expected.dtype
    laws.assert_same(laws.value_and_gradients(found, leaves), laws.value_and_gradients(expected, leaves), 1e-5)
    assert not gated_columns(stacked.detach(), neighbors, None, reduce=reduce).requires_grad


def test_a_matrix_of_node_terms_that_was_changed_in_place_is_noticed() -> None:
    stacked = torch.randn(7, 20, dtype=DOUBLE, requires_grad=True) + 0
    out = gated_columns(stacked, laws.RICH.neighbors())
    stacked.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_the_gate_of_every_instruction_set_is_accurate_to_a_few_roundings(isa: str) -> None:
    z = torch.cat([torch.linspace(-87, 87, 40_001), torch.linspace(-2, 2, 40_001)])[:, None].repeat(1, 20)
    none, one, count = torch.zeros(1, 20), torch.ones(1, 20), len(z)
    edge_index = torch.stack([torch.zeros(count, dtype=torch.long), torch.arange(count)])
    neighbors = Neighbors.from_edge_index(edge_index, (1, count))
    found = sir_aggregate(z, none, neighbors, activation="sigmoid", value=one, backend="native")
    torch.testing.assert_close(found, z.double().sigmoid().float(), rtol=3e-6, atol=6e-8)


def test_gradients_of_columns_are_joined_without_a_copy_only_where_they_lie_side_by_side() -> None:
    stacked = torch.zeros(3, 4, requires_grad=True)
    buffer = torch.arange(12.0).view(3, 4)
    (whole,) = torch.autograd.grad(split_columns(stacked, 2), stacked, buffer.chunk(2, dim=1))
    assert whole.data_ptr() == buffer.data_ptr()
    assert torch.equal(whole, buffer)
    swapped = tuple(reversed(buffer.chunk(2, dim=1)))
    (other,) = torch.autograd.grad(split_columns(stacked, 2), stacked, swapped)
    assert torch.equal(other, torch.cat(swapped, dim=1))


@every_backend
def test_second_derivative_is_refused(backend: str) -> None:
    given_, value = laws.inputs(laws.RICH), value_of(laws.RICH)
    out = aggregate(laws.RICH, given_, value, activation="sigmoid", backend=backend)
    (grad,) = torch.autograd.grad(out.sum(), value, create_graph=True)
    with pytest.raises(RuntimeError, match="sir_aggregate: the second derivative is not implemented"):
        torch.autograd.grad(grad.sum(), given_.query)


@every_backend
def test_a_second_backward_pass_and_a_checkpoint_compute_the_sums_again(backend: str) -> None:
    given_, value = laws.inputs(laws.RICH), value_of(laws.RICH)
    leaves = [*given_.leaves(), value]
    options = {"activation": "sigmoid", "reduce": "gates", "backend": backend}
    out = aggregate(laws.RICH, given_, value, **options)
    first, second = (torch.autograd.grad(out.sum(), leaves, retain_graph=True) for _ in range(2))
    laws.assert_same(first, second)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
        out = aggregate(laws.RICH, given_, value, **options)
    laws.assert_same(first, torch.autograd.grad(out.sum(), leaves))


@every_backend
def test_registered_operator_keeps_the_rules_of_torch(backend: str) -> None:
    given_, value = laws.inputs(laws.RICH, "table", weighted=True), value_of(laws.RICH)
    assert isinstance(given_.edge, tuple)
    graph, weights = laws.RICH.neighbors().tensors(), (given_.edge_weight, None, None)
    for is_normalized in (False, True):
        arguments = (given_.query, given_.key, value, graph, *given_.edge, *weights, "sigmoid", 0.0, is_normalized)
        torch.library.opcheck(gated, (*arguments, backend, True))


@pytest.mark.parametrize("reduce", ["sym", "gates"])
def test_compiled_equals_eager(reduce: str) -> None:
    given_, value = laws.inputs(laws.RICH, "table"), value_of(laws.RICH)
    neighbors, leaves = laws.RICH.neighbors(), [*given_.leaves(), value]

    def call(query: Tensor, key: Tensor, value: Tensor, table: Tensor, kind: Tensor) -> Tensor:
        return gated_aggregate(query, key, value, neighbors, (table, kind), reduce=reduce, start=2 * query)

    assert isinstance(given_.edge, tuple)
    arguments = (given_.query, given_.key, value, *given_.edge)
    torch.compiler.reset()
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    laws.assert_same(
        laws.value_and_gradients(compiled(*arguments), leaves), laws.value_and_gradients(call(*arguments), leaves)
    )


Q, K = torch.zeros(3, 4), torch.zeros(5, 4)  # 3 targets, 5 sources
GRAPH = Graph(((0, 1), (4, 2)), 5, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": K[:, :3]}, "value: expected the channels and batch of query, [3, 4], got [5, 3]"),
        ({"value": Q}, "value: expected 5 rows, one per node of Neighbors(num_sources=5, num_targets=3"),
        ({"value": K.long()}, "value: expected a floating-point dtype, got torch.int64"),
        ({"value": K.to(torch.complex64)}, "value: expected a floating-point dtype, got torch.complex64"),
        ({"value": K[None]}, "value: expected the channels and batch of query, [3, 4], got [1, 5, 4]"),
        ({"value": K[0]}, "value: expected shape [nodes, d] or [batch, nodes, d], got [4]"),
        ({"value": [0.0]}, "value: expected a tensor, got list"),
        ({"value": K.to("meta")}, "value: expected the device of query, cpu, got meta"),
        ({"value": None, "reduce": "gates"}, "reduce: gates divides by the sum of the gates, and expects a value"),
        ({"reduce": "max"}, "reduce: expected one of sum, mean, sym, sym_in, gates, got 'max'"),
        ({"reduce": "gate"}, "reduce: expected one of sum, mean, sym, sym_in, gates, got 'gate'"),
        ({"activation": "swish"}, "activation: expected one of identity, relu"),
    ],
)
def test_bad_input_names_argument_expected_and_got(change: dict[str, Any], message: str) -> None:
    arguments = {"query": Q, "key": K, "value": K, "neighbors": GRAPH.neighbors(), **change}
    with pytest.raises((ValueError, TypeError)) as error:
        sir_aggregate(**arguments)
    assert str(error.value).startswith(message)


def test_backend_that_knows_no_value_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    known = BACKENDS["reference"]
    monkeypatch.setitem(BACKENDS, "mine", Backend(known.forward, known.backward, reads_memory=False))
    with pytest.raises(RuntimeError, match="backend: mine is not available here: it has no messages with a value"):
        sir_aggregate(Q, K, GRAPH.neighbors(), backend="mine", value=K)


@every_backend
@pytest.mark.parametrize("place", ["query", "key", "value"])
def test_nan_reaches_exactly_the_targets_that_read_it(backend: str, place: str) -> None:
    given_, value = laws.inputs(laws.RICH).map(Tensor.detach), value_of(laws.RICH).detach()
    {"query": given_.query, "key": given_.key}.get(place, value)[3] = math.nan
    out = aggregate(laws.RICH, given_, value, activation="sigmoid", reduce="gates", backend=backend)
    readers = {u for v, u in laws.RICH.edges if (u if place == "query" else v) == 3}
    assert {u for u in range(7) if out[u].isnan().all()} == readers
    assert not any(out[u].isnan().any() for u in range(7) if u not in readers)
