import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sirgcn import testing as laws
from sirgcn.ops import Neighbors, backends, sir_aggregate
from sirgcn.testing import Graph, Inputs

every_backend = pytest.mark.parametrize("backend", laws.BACKENDS)
every_form = pytest.mark.parametrize("form", laws.EDGE_FORMS)
every_reduction = pytest.mark.parametrize("reduce", laws.REDUCTIONS)
every_sigma = pytest.mark.parametrize("activation", laws.SIGMAS)
square_or_not = st.one_of(
    st.tuples(laws.graphs(), st.sampled_from(["sum", "mean", "sym"])),
    st.tuples(laws.graphs(bipartite=False), st.just("sym_in")),
)


def aggregate(graph: Graph | Neighbors, given_: Inputs, **options: Any) -> Tensor:
    neighbors = graph.neighbors() if isinstance(graph, Graph) else graph
    return sir_aggregate(
        given_.query,
        given_.key,
        neighbors,
        edge=given_.edge,
        edge_weight=given_.edge_weight,
        **options,
    )


@every_backend
@every_sigma
@every_reduction
@every_form
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_loop_for_every_activation_reduction_and_edge_form(
    backend: str, activation: str, reduce: str, form: str, weighted: bool
) -> None:
    laws.assert_equals_loop(backend, laws.RICH, laws.inputs(laws.RICH, form, weighted), activation, reduce)


@every_backend
@settings(max_examples=150)
@given(
    square_or_not,
    st.sampled_from(list(laws.SIGMAS)),
    st.sampled_from(laws.EDGE_FORMS),
    st.booleans(),
    st.integers(0, 4),
    st.integers(0, 99),
)
def test_equals_loop_on_any_graph(
    backend: str,
    graph_and_reduce: tuple[Graph, str],
    activation: str,
    form: str,
    weighted: bool,
    channels: int,
    seed: int,
) -> None:
    graph, reduce = graph_and_reduce
    given_ = laws.inputs(graph, form, weighted, channels, seed)
    laws.assert_equals_loop(backend, graph, given_, activation, reduce)


@every_backend
@pytest.mark.parametrize("case", laws.EDGE_CASES)
@every_form
@pytest.mark.parametrize("channels", [0, 3])
def test_equals_loop_on_every_edge_case(backend: str, case: str, form: str, channels: int) -> None:
    graph = laws.EDGE_CASES[case]
    for reduce in ("sum", "mean", "sym"):
        given_ = laws.inputs(graph, form, weighted=True, channels=channels)
        laws.assert_equals_loop(backend, graph, given_, "gelu", reduce)


@every_backend
@every_sigma
@every_reduction
@every_form
def test_gradient_equals_finite_differences(backend: str, activation: str, reduce: str, form: str) -> None:
    graph = Graph(((0, 0), (1, 0), (1, 0), (2, 1), (0, 2)), 4, 4)
    given_ = laws.inputs(graph, form, weighted=True, channels=2, kinks=False)
    edge_type = given_.edge[1] if isinstance(given_.edge, tuple) else None

    def function(query: Tensor, key: Tensor, *rest: Tensor) -> Tensor:
        *edge, weight = rest
        term = (edge[0], edge_type) if edge_type is not None else edge[0] if edge else None
        return sir_aggregate(
            query,
            key,
            graph.neighbors(),
            edge=term,
            edge_weight=weight,
            activation=activation,
            reduce=reduce,
            backend=backend,
        )

    assert torch.autograd.gradcheck(function, given_.leaves())


def operator_arguments(graph: Graph, form: str, reduce: str, backend: str) -> tuple[Any, ...]:
    given_, neighbors = laws.inputs(graph, form, form != "none"), graph.neighbors()
    table, edge_type = given_.edge if isinstance(given_.edge, tuple) else (given_.edge, None)
    return (
        given_.query,
        given_.key,
        [neighbors.edge_index, *neighbors.by_target, *neighbors.by_source],
        table,
        edge_type,
        given_.edge_weight,
        *neighbors.weights(reduce, torch.float64),
        "gelu",
        0.0,
        backend,
    )


@every_backend
@pytest.mark.parametrize(("form", "reduce"), [("none", "sum"), ("dense", "mean"), ("table", "sym")])
@pytest.mark.parametrize("case", ["bipartite", "int32", "no edges"])
def test_operator_passes_opcheck(backend: str, form: str, reduce: str, case: str) -> None:
    arguments = operator_arguments(laws.EDGE_CASES[case], form, reduce, backend)
    for save in (True, False):
        # Without slopes to save there is no gradient to be had.
        given_ = arguments if save else [a.detach() if isinstance(a, Tensor) else a for a in arguments]
        torch.library.opcheck(torch.ops.sirgcn.aggregate.default, (*given_, save))


@every_backend
@pytest.mark.parametrize("form", laws.EDGE_FORMS)
def test_backward_operator_passes_opcheck(backend: str, form: str) -> None:
    arguments = operator_arguments(laws.RICH, form, "sym", backend)
    detached = [a.detach() if isinstance(a, Tensor) else a for a in arguments]
    torch.library.opcheck(torch.ops.sirgcn.aggregate_backward.default, (torch.ones_like(detached[0]), *detached))


@every_backend
@settings(max_examples=30)
@given(laws.graphs(), st.booleans(), st.sampled_from([torch.int32, torch.int64]))
def test_table_equals_its_rows_written_out(backend: str, graph: Graph, weighted: bool, type_dtype: torch.dtype) -> None:
    given_ = laws.inputs(graph, "table", weighted)
    assert isinstance(given_.edge, tuple)
    given_ = replace(given_, edge=(given_.edge[0], given_.edge[1].to(type_dtype)))
    options = {"activation": "silu", "reduce": "sym", "backend": backend}
    pair = aggregate(graph, given_, **options)
    dense = aggregate(graph, given_.with_dense_edge(), **options)
    laws.assert_same(
        laws.value_and_gradients(pair, given_.leaves()),
        laws.value_and_gradients(dense, given_.leaves()),
    )


@every_backend
@settings(max_examples=30)
@given(laws.graphs(), st.sampled_from(laws.EDGE_FORMS), st.booleans(), st.integers(0, 3), st.integers(0, 3))
def test_batch_equals_its_graphs_stacked(
    backend: str, graph: Graph, form: str, weighted: bool, batch: int, channels: int
) -> None:
    single = [laws.inputs(graph, form, weighted, channels, seed) for seed in range(batch)]
    shared = laws.inputs(graph, form, weighted, channels, seed=99)
    shape = (batch, graph.num_targets, channels), (batch, graph.num_sources, channels)
    query, key = (
        torch.stack(rows).detach().requires_grad_()
        if rows
        else torch.zeros(size, dtype=torch.float64, requires_grad=True)
        for rows, size in zip(([one.query for one in single], [one.key for one in single]), shape, strict=True)
    )
    options = {"activation": "tanh", "reduce": "mean", "backend": backend}
    together = aggregate(graph, replace(shared, query=query, key=key), **options)
    rows = [aggregate(graph, replace(shared, query=q, key=k), **options) for q, k in zip(query, key, strict=True)]
    stacked = torch.stack(rows) if rows else torch.zeros(shape[0], dtype=torch.float64)
    leaves = [query, key, *shared.leaves()[2:]]
    laws.assert_same(laws.value_and_gradients(together, leaves), laws.value_and_gradients(stacked, leaves))


@every_backend
@every_reduction
def test_node_without_neighbors_gets_exactly_zero(backend: str, reduce: str) -> None:
    # softplus and sigmoid are positive everywhere, so that 0 can only come from an empty sum.
    for activation in ("softplus", "sigmoid"):
        out = aggregate(
            laws.RICH,
            laws.inputs(laws.RICH, "dense"),
            activation=activation,
            reduce=reduce,
            backend=backend,
        )
        isolated = [u for u in range(7) if u not in {u for _, u in laws.RICH.edges}]
        assert isolated == [4, 6]
        assert torch.equal(out[isolated], torch.zeros_like(out[isolated]))
        others = [u for u in range(7) if u not in isolated]
        assert bool((out[others] > 0).all())


HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64


@every_backend
@pytest.mark.parametrize(
    ("query", "key", "edge", "promoted"),
    [
        (SINGLE, SINGLE, SINGLE, SINGLE),
        (SINGLE, DOUBLE, SINGLE, DOUBLE),
        (HALF, SINGLE, HALF, SINGLE),
        (HALF, HALF, HALF, HALF),
        (HALF, BRAIN, HALF, SINGLE),
        (BRAIN, BRAIN, DOUBLE, DOUBLE),
    ],
)
def test_dtypes_are_promoted_and_gradients_keep_their_leafs(
    backend: str,
    query: torch.dtype,
    key: torch.dtype,
    edge: torch.dtype,
    promoted: torch.dtype,
) -> None:
    base = laws.inputs(laws.RICH, "dense")
    assert isinstance(base.edge, Tensor)
    given_ = Inputs(
        base.query.detach().to(query).requires_grad_(),
        base.key.detach().to(key).requires_grad_(),
        base.edge.detach().to(edge).requires_grad_(),
    )
    out = aggregate(laws.RICH, given_, activation="gelu", backend=backend)
    assert out.dtype == promoted
    found = laws.value_and_gradients(out, given_.leaves())
    assert [tensor.dtype for tensor in found[1:]] == [query, key, edge]
    wide = given_.map(lambda x: x.detach().to(promoted).requires_grad_())
    expected = laws.value_and_gradients(aggregate(laws.RICH, wide, activation="gelu", backend=backend), wide.leaves())
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b.to(a.dtype))


@every_backend
@every_form
@pytest.mark.parametrize("weight", [HALF, BRAIN, SINGLE, DOUBLE])
def test_edge_weights_of_any_dtype_leave_the_messages_dtype(backend: str, form: str, weight: torch.dtype) -> None:
    given_ = laws.inputs(laws.RICH, form, weighted=True, dtype=SINGLE)
    assert given_.edge_weight is not None
    given_ = replace(given_, edge_weight=given_.edge_weight.detach().to(weight).requires_grad_())
    out = aggregate(laws.RICH, given_, backend=backend)
    assert out.dtype == SINGLE
    assert laws.value_and_gradients(out, given_.leaves())[-1].dtype == weight


@every_backend
@every_sigma
@every_reduction
@pytest.mark.parametrize("dtype", [HALF, BRAIN])
def test_half_precision_is_the_rounding_of_single(
    backend: str, activation: str, reduce: str, dtype: torch.dtype
) -> None:
    half = laws.inputs(laws.RICH, "dense", weighted=True, dtype=dtype)
    single = half.map(lambda x: x.detach().to(SINGLE).requires_grad_())
    options = {"activation": activation, "reduce": reduce, "backend": backend}
    values = aggregate(laws.RICH, half, **options)
    exact = aggregate(laws.RICH, single, **options)
    assert values.dtype == dtype
    cotangent = torch.ones_like(values)
    found = [values, *torch.autograd.grad(values, half.leaves(), cotangent)]
    expected = [exact, *torch.autograd.grad(exact, single.leaves(), cotangent.to(SINGLE))]
    # Inputs and cotangent are the same numbers, sums are taken in single: one rounding is left.
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close([x.to(SINGLE) for x in found], expected, rtol=unit, atol=unit)


@every_backend
def test_sums_of_half_precision_keep_small_messages(backend: str) -> None:
    # Summed in bfloat16, 1024 ones stop at 256: 256 + 1 rounds back to 256.
    hub = Graph(tuple((v, 0) for v in range(1024)), 1024, 1)
    given_ = Inputs(torch.ones(1, 1, dtype=BRAIN), torch.zeros(1024, 1, dtype=BRAIN))
    assert aggregate(hub, given_, backend=backend).item() == 1024


@every_backend
@every_form
def test_forward_and_backward_repeat_bit_for_bit(backend: str, form: str) -> None:
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(0, 300, (20_000, 2), generator=generator).tolist()
    graph = Graph(tuple((v, u) for v, u in pairs), 300, 300)
    neighbors = graph.neighbors()
    given_ = laws.inputs(graph, form, True, 16, dtype=SINGLE).map(lambda x: (x.detach() / 3).requires_grad_())

    def run() -> list[Tensor]:
        out = aggregate(neighbors, given_, activation="gelu", reduce="sym", backend=backend)
        return laws.value_and_gradients(out, given_.leaves())

    laws.assert_repeats(run)


@every_backend
@settings(max_examples=30)
@given(laws.graphs(), st.sampled_from(laws.EDGE_FORMS), st.integers(0, 9), st.data())
def test_relabelling_nodes_relabels_the_output(
    backend: str, graph: Graph, form: str, seed: int, data: st.DataObject
) -> None:
    to_source = data.draw(st.permutations(range(graph.num_sources)))
    to_target = data.draw(st.permutations(range(graph.num_targets)))
    given_ = laws.inputs(graph, form, weighted=True, seed=seed)
    moved = replace(graph, edges=tuple((to_source[v], to_target[u]) for v, u in graph.edges))
    key, query = torch.empty_like(given_.key), torch.empty_like(given_.query)
    key[list(to_source)], query[list(to_target)] = given_.key, given_.query
    options = {"activation": "elu", "reduce": "sym", "backend": backend}
    out = aggregate(graph, given_, **options)
    laws.assert_same([aggregate(moved, replace(given_, query=query, key=key), **options)[list(to_target)]], [out])


@every_backend
@settings(max_examples=30)
@given(laws.graphs(), st.integers(0, 9), st.data())
def test_order_of_the_edges_does_not_matter(backend: str, graph: Graph, seed: int, data: st.DataObject) -> None:
    order = list(data.draw(st.permutations(range(len(graph.edges)))))
    given_ = laws.inputs(graph, "dense", weighted=True, seed=seed)
    assert isinstance(given_.edge, Tensor)
    assert given_.edge_weight is not None
    shuffled = replace(given_, edge=given_.edge[order], edge_weight=given_.edge_weight[order])
    other = replace(graph, edges=tuple(graph.edges[i] for i in order))
    options = {"activation": "elu", "reduce": "sym", "backend": backend}
    laws.assert_same(
        laws.value_and_gradients(aggregate(other, shuffled, **options), given_.leaves()),
        laws.value_and_gradients(aggregate(graph, given_, **options), given_.leaves()),
    )


@every_backend
@every_sigma
@pytest.mark.parametrize("place", ["query", "key", "edge", "edge_weight"])
def test_nan_reaches_exactly_the_targets_that_read_it(backend: str, activation: str, place: str) -> None:
    given_ = laws.inputs(laws.RICH, "dense", weighted=True).map(Tensor.detach)
    assert isinstance(given_.edge, Tensor)
    assert given_.edge_weight is not None
    {"query": given_.query, "key": given_.key, "edge": given_.edge}.get(place, given_.edge_weight)[3] = math.nan
    out = aggregate(laws.RICH, given_, activation=activation, backend=backend)
    if place == "query":
        readers = {u for _, u in laws.RICH.edges if u == 3}
    elif place == "key":
        readers = {u for v, u in laws.RICH.edges if v == 3}
    else:
        readers = {laws.RICH.edges[3][1]}
    assert {u for u in range(7) if out[u].isnan().all()} == readers
    assert not any(out[u].isnan().any() for u in range(7) if u not in readers)


@every_backend
def test_gradient_reaches_only_what_requires_it(backend: str) -> None:
    base = laws.inputs(laws.RICH, "table", weighted=True)
    full = laws.value_and_gradients(aggregate(laws.RICH, base, backend=backend), base.leaves())
    for kept, expected in zip(range(4), full[1:], strict=True):
        given_ = base.map(lambda x: x.detach().clone())
        leaf = given_.leaves()[kept].requires_grad_()
        out = aggregate(laws.RICH, given_, backend=backend)
        laws.assert_same(laws.value_and_gradients(out, [leaf])[1:], [expected])
    assert not aggregate(laws.RICH, base.map(Tensor.detach), backend=backend).requires_grad


@every_backend
def test_strided_inputs_and_cotangents_give_the_contiguous_result(backend: str) -> None:
    given_ = laws.inputs(laws.RICH, "dense", weighted=True)

    def strided(x: Tensor) -> Tensor:
        wide = torch.stack([x.detach(), torch.full_like(x, math.nan)], -1)
        return wide[..., 0].requires_grad_()

    other = given_.map(strided)
    assert not other.query.is_contiguous()
    options = {"activation": "gelu", "reduce": "sym", "backend": backend}
    a, b = aggregate(laws.RICH, given_, **options), aggregate(laws.RICH, other, **options)
    assert torch.equal(a, b)
    cotangent = torch.ones((), dtype=DOUBLE).expand_as(a)
    for left, right in zip(
        torch.autograd.grad(a, given_.leaves(), cotangent.contiguous()),
        torch.autograd.grad(b, other.leaves(), cotangent),
        strict=True,
    ):
        assert torch.equal(left, right)


@every_backend
def test_second_derivative_is_refused_and_says_what_to_do(backend: str) -> None:
    given_ = laws.inputs(laws.RICH)
    out = aggregate(laws.RICH, given_, activation="tanh", backend=backend)
    (grad,) = torch.autograd.grad(out.sum(), given_.query, create_graph=True)
    with pytest.raises(RuntimeError, match=r"sir_aggregate: the second derivative is not implemented.*fused=False"):
        torch.autograd.grad(grad.sum(), given_.query)


def test_default_backend_is_an_available_one() -> None:
    given_ = laws.inputs(laws.RICH, "dense")
    default = aggregate(laws.RICH, given_)
    assert any(torch.equal(default, aggregate(laws.RICH, given_, backend=b)) for b in laws.BACKENDS)
    assert "reference" in laws.BACKENDS
    assert backends()["reference"] is None


def test_unknown_backend_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"backend: expected one of .*reference.*, got 'cuda13'"):
        aggregate(laws.RICH, laws.inputs(laws.RICH), backend="cuda13")


Q, K = torch.zeros(3, 4), torch.zeros(5, 4)  # 3 targets, 5 sources
GRAPH = Graph(((0, 1), (4, 2)), 5, 3)
TYPE = torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": Q.long()}, "query: expected a floating-point dtype, got torch.int64"),
        ({"key": K.to(torch.complex64)}, "key: expected a floating-point dtype, got torch.complex64"),
        ({"query": Q[0]}, "query: expected shape [nodes, d] or [batch, nodes, d], got [4]"),
        ({"key": K[None, None]}, "key: expected shape [nodes, d] or [batch, nodes, d], got [1, 1, 5, 4]"),
        ({"query": K}, "query: expected 3 rows, one per node of Neighbors(num_sources=5, num_targets=3"),
        ({"key": Q}, "key: expected 5 rows, one per node of Neighbors(num_sources=5, num_targets=3"),
        ({"key": K[:, :2]}, "key: expected the channels and batch of query, [3, 4], got [5, 2]"),
        ({"key": K[None]}, "key: expected the channels and batch of query, [3, 4], got [1, 5, 4]"),
        ({"edge": torch.zeros(2, 4).long()}, "edge: expected a floating-point dtype, got torch.int64"),
        ({"edge": torch.zeros(2, 3)}, "edge: expected shape [*, 4], got [2, 3]"),
        ({"edge": torch.zeros(2)}, "edge: expected shape [*, 4], got [2]"),
        ({"edge": torch.zeros(1, 4)}, "edge: expected 2 rows, one per edge, got 1"),
        ({"edge": (torch.zeros(6, 3), TYPE)}, "edge: expected shape [*, 4], got [6, 3]"),
        ({"edge": (torch.zeros(6, 4), TYPE[:1])}, "edge type: expected 2 entries, one per edge, got 1"),
        (
            {"edge": (torch.zeros(6, 4), TYPE.float())},
            "edge type: expected int32 or int64 of shape [2], got torch.float32 of shape [2]",
        ),
        (
            {"edge": (torch.zeros(6, 4), TYPE[:, None])},
            "edge type: expected int32 or int64 of shape [2], got torch.int64 of shape [2, 1]",
        ),
        (
            {"edge": (torch.zeros(6, 4), TYPE + torch.tensor([0, 6]))},
            "edge type[1] = 6: expected 0 <= type < 6, the rows of the table",
        ),
        ({"edge": (torch.zeros(6, 4), TYPE - 1)}, "edge type[0] = -1: expected 0 <= type < 6, the rows of the table"),
        ({"edge_weight": torch.zeros(2, 1)}, "edge_weight: expected shape [2], one scalar per edge, got [2, 1]"),
        ({"edge_weight": torch.zeros(3)}, "edge_weight: expected shape [2], one scalar per edge, got [3]"),
        ({"neighbors": GRAPH.edge_index}, "neighbors: expected Neighbors, got Tensor"),
        ({"reduce": "max"}, "reduce: expected one of sum, mean, sym, sym_in, got 'max'"),
        ({"reduce": "sym_in"}, "reduce: sym_in weighs by in-degrees at both ends and needs one set of nodes"),
        ({"activation": "swish"}, "activation: expected one of identity, relu"),
    ],
)
def test_bad_input_names_argument_expected_and_got(change: dict[str, Any], message: str) -> None:
    arguments = {"query": Q, "key": K, "neighbors": GRAPH.neighbors(), **change}
    with pytest.raises((ValueError, TypeError, IndexError)) as error:
        sir_aggregate(**arguments)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "change",
    [
        {"query": None},
        {"key": [[0.0]]},
        {"edge": [torch.zeros(6, 4), TYPE]},
        {"edge": (torch.zeros(6, 4), TYPE, TYPE)},
        {"edge": (None, TYPE)},
        {"edge_weight": [1.0, 2.0]},
        {"edge_weight": torch.ones(2, dtype=torch.complex64)},
    ],
    ids=["query", "key", "edge list", "edge triple", "no table", "weight list", "complex weight"],
)
def test_argument_of_a_wrong_type_is_named(change: dict[str, Any]) -> None:
    arguments = {"query": Q, "key": K, "neighbors": GRAPH.neighbors(), **change}
    (name,) = change
    with pytest.raises((ValueError, TypeError), match=f"^{name}: expected "):
        sir_aggregate(**arguments)


def layer(query: Tensor, key: Tensor, edge_index: Tensor, table: Tensor, edge_type: Tensor, weight: Tensor) -> Tensor:
    neighbors = Neighbors.from_edge_index(edge_index, (key.size(-2), query.size(-2)))
    out = sir_aggregate(query * 2, key, neighbors, (table, edge_type), weight, activation="gelu", reduce="sym")
    return out.relu()


def layer_arguments(graph: Graph, batch: tuple[int, ...] = ()) -> list[Tensor]:
    given_ = laws.inputs(graph, "table", weighted=True)
    assert isinstance(given_.edge, tuple)
    assert given_.edge_weight is not None
    query, key = (
        (x.detach() + torch.zeros(*batch, 1, 1, dtype=DOUBLE)).requires_grad_() for x in (given_.query, given_.key)
    )
    return [query, key, graph.edge_index, *given_.edge, given_.edge_weight]


def assert_compiles(backend: str, dynamic: bool | None, cases: list[list[Tensor]]) -> None:
    torch.compiler.reset()
    compiled = torch.compile(layer, backend=backend, fullgraph=True, dynamic=dynamic)
    for arguments in cases:
        leaves = [x for x in arguments if x.requires_grad]
        laws.assert_same(
            laws.value_and_gradients(compiled(*arguments), leaves),
            laws.value_and_gradients(layer(*arguments), leaves),
        )


@pytest.mark.parametrize("batch", [(), (2,)])
def test_compiled_in_one_graph_equals_eager(batch: tuple[int, ...]) -> None:
    assert_compiles("aot_eager", None, [layer_arguments(laws.RICH, batch)])


def test_compiled_with_dynamic_sizes_equals_eager_on_other_graphs() -> None:
    graphs = [laws.RICH, laws.EDGE_CASES["hub"], laws.EDGE_CASES["bipartite"]]
    assert_compiles("aot_eager", True, [layer_arguments(graph) for graph in graphs])


# torch's own import of MKL-DNN modules.
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_compiled_by_inductor_equals_eager() -> None:
    assert_compiles("inductor", None, [layer_arguments(laws.RICH)])


@pytest.mark.parametrize("backend", laws.BACKENDS)
def test_nothing_is_kept_beside_the_tensors_that_a_checkpoint_packs_away(backend: str) -> None:
    """What the backward pass reads is computed from what is unpacked, so that a checkpoint frees the rest."""
    drawn = laws.inputs(laws.RICH)

    def changed(saved: Tensor) -> Tensor:
        return saved + 1 if saved.shape == drawn.query.shape else saved

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, changed):
        out = sir_aggregate(drawn.query, drawn.key, laws.RICH.neighbors(), activation="square", backend=backend)
    found = torch.autograd.grad(out.sum(), [drawn.query, drawn.key])
    query, key = ((tensor.detach() + 1).requires_grad_() for tensor in (drawn.query, drawn.key))
    out = sir_aggregate(query, key, laws.RICH.neighbors(), activation="square", backend=backend)
    laws.assert_same(found, torch.autograd.grad(out.sum(), [query, key]))
