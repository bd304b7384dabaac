"""The backend `native`: every instruction set equals the reference, in equal bits on any number of threads.

What needs a process or a build of its own is in `test_native_process.py`.
"""

import importlib.util
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sirgcn import testing as laws
from sirgcn.ops import ACTIVATIONS, Neighbors, native, sir_aggregate
from sirgcn.ops.neighbors import Grouping, _group
from sirgcn.testing import Graph, Inputs

if native.UNAVAILABLE is not None:
    pytest.skip(native.UNAVAILABLE, allow_module_level=True)

import sirgcn.ops.native._kernels as _kernels

ISAS = _kernels.isas()
SINGLE, DOUBLE, BRAIN, HALF = torch.float32, torch.float64, torch.bfloat16, torch.float16
every_form = pytest.mark.parametrize("form", laws.EDGE_FORMS)
is_weighted = pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
every_dtype = pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=["single", "double"])


def run(graph: Graph | Neighbors, drawn: Inputs, backend: str = "native", **options: Any) -> list[Tensor]:
    """The output and the gradient of every leaf."""
    neighbors = graph.neighbors() if isinstance(graph, Graph) else graph
    out = sir_aggregate(
        drawn.query,
        drawn.key,
        neighbors,
        drawn.edge,
        drawn.edge_weight,
        backend=backend,
        **{"reduce": "sym", **options},
    )
    return laws.value_and_gradients(out, drawn.leaves())


def cast(drawn: Inputs, dtype: torch.dtype) -> Inputs:
    return drawn.map(lambda x: x.detach().to(dtype).requires_grad_())


def assert_equals_reference(graph: Graph | Neighbors, drawn: Inputs, **options: Any) -> None:
    """The same numbers give what the reference gives in float64, up to the rounding of sums."""
    expected = run(graph, cast(drawn, DOUBLE), "reference", **options)
    # A sum over channels or neighbours loses digits relative to its terms, which the largest entry stands for.
    unit = {DOUBLE: 1e-12, SINGLE: 3e-6}[drawn.query.dtype]
    for found, exact in zip(run(graph, drawn, **options), expected, strict=True):
        largest = float(exact.abs().max()) if exact.numel() else 0.0
        torch.testing.assert_close(found.to(DOUBLE), exact, rtol=unit, atol=unit * max(1.0, largest))


# Around every multiple of 2, 4, 8 and 16 lanes and of the tiles of up to ten vectors, where the last vector overlaps.
WIDTHS = [*range(1, 41), *range(63, 67), 75, 79, 80, 81, 120, *range(127, 131), 143, 257]


@every_dtype
@every_form
@is_weighted
def test_every_width_equals_reference(isa: str, dtype: torch.dtype, form: str, weighted: bool) -> None:
    for width in WIDTHS:
        drawn = laws.inputs(laws.RICH, form, weighted, width, seed=width, dtype=dtype)
        # One sigma with tiles of many vectors, one with tiles of two.
        for activation in ("relu", "silu"):
            assert_equals_reference(laws.RICH, drawn, activation=activation)


@every_dtype
@pytest.mark.parametrize("activation", laws.SIGMAS)
def test_every_activation_and_edge_form_equals_reference(isa: str, dtype: torch.dtype, activation: str) -> None:
    for form in laws.EDGE_FORMS:
        for weighted in (False, True):
            for reduce in laws.REDUCTIONS:
                drawn = laws.inputs(laws.RICH, form, weighted, 37, dtype=dtype)
                assert_equals_reference(laws.RICH, drawn, activation=activation, reduce=reduce)


@given(
    laws.graphs(),
    st.sampled_from(list(laws.SIGMAS)),
    st.sampled_from(laws.EDGE_FORMS),
    st.booleans(),
    st.integers(0, 40),
    st.sampled_from(ISAS),
    st.sampled_from([SINGLE, DOUBLE]),
)
def test_any_graph_equals_reference(
    graph: Graph, activation: str, form: str, weighted: bool, width: int, name: str, dtype: torch.dtype
) -> None:
    native.limit_isa(name)
    try:
        drawn = laws.inputs(graph, form, weighted, width, dtype=dtype)
        assert_equals_reference(graph, drawn, activation=activation)
    finally:
        native.limit_isa(ISAS[0])


def random_graph(edges: int, nodes: int, hub: int = 0, seed: int = 0) -> Neighbors:
    """Random edges, among them `hub` that enter node 1 and as many that leave node 2."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, nodes, (2, edges + 2 * hub), generator=generator)
    edge_index[1, :hub] = 1
    edge_index[0, hub : 2 * hub] = 2
    shuffled = edge_index[:, torch.randperm(edge_index.size(1), generator=generator)]
    return Neighbors.from_edge_index(shuffled, nodes)


def random_inputs(
    neighbors: Neighbors, form: str, weighted: bool, width: int, dtype: torch.dtype, types: int = 4
) -> Inputs:
    generator = torch.Generator().manual_seed(width)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()

    edges = neighbors.num_edges
    edge: laws.EdgeTerm = None
    if form == "dense":
        edge = leaf(edges, width)
    elif form == "table":
        edge = (leaf(types, width), torch.randint(0, 2, (edges,), generator=generator))
    return Inputs(
        leaf(neighbors.num_targets, width),
        leaf(neighbors.num_sources, width),
        edge,
        leaf(edges) if weighted else None,
    )


HUBS = random_graph(4_000, 300, hub=50_000)


@every_form
@is_weighted
def test_hub_whose_edges_are_shared_out_equals_reference(isa: str, form: str, weighted: bool) -> None:
    # Sums of 50,000 terms, whose largest is about 1000 times a term: in float64 nothing but a wrong term shows.
    drawn = random_inputs(HUBS, form, weighted, 9, DOUBLE)
    for found, exact in zip(run(HUBS, drawn), run(HUBS, drawn, "reference"), strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-10)


@every_form
@is_weighted
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE, BRAIN], ids=["single", "double", "brain"])
def test_any_number_of_threads_gives_the_same_bits(form: str, weighted: bool, dtype: torch.dtype) -> None:
    drawn = random_inputs(HUBS, form, weighted, 11, dtype)
    activation = "gelu" if weighted else "relu"
    torch.set_num_threads(1)
    first = run(HUBS, drawn, activation=activation)
    for threads in (2, 3, 2, 3):
        torch.set_num_threads(threads)
        for found, before in zip(run(HUBS, drawn, activation=activation), first, strict=True):
            assert torch.equal(found, before)


# More than a cache holds, in whole and in broken vectors: were a row shared out, its parts would meet at these.
@pytest.mark.parametrize("width", [256, 257, 130, 383])
@every_form
def test_wide_rows_of_many_nodes_equal_reference_in_equal_bits(form: str, width: int) -> None:
    neighbors = random_graph(15_000, 5_000)
    drawn = random_inputs(neighbors, form, False, width, SINGLE)
    torch.set_num_threads(1)
    assert_equals_reference(neighbors, drawn)
    first = run(neighbors, drawn)
    for threads in (2, 3):
        torch.set_num_threads(threads)
        for found, before in zip(run(neighbors, drawn), first, strict=True):
            assert torch.equal(found, before)


@every_dtype
@pytest.mark.parametrize("form", ["none", "dense"])
def test_results_too_large_for_the_cache_equal_reference(isa: str, form: str, dtype: torch.dtype) -> None:
    # 25.6 MB: rows are aligned and written past the cache, but for the partial ones of a hub.
    nodes = 12_500 if dtype == SINGLE else 6_250
    torch.manual_seed(0)
    hub = torch.stack([torch.arange(3_000), torch.full((3_000,), 7)])
    neighbors = Neighbors.from_edge_index(torch.cat([torch.randint(nodes, (2, 4_000)), hub], dim=1), nodes)
    assert_equals_reference(neighbors, random_inputs(neighbors, form, False, 512, dtype), reduce="sum")


def test_gradient_of_a_table_larger_than_the_graph_has_the_same_bits_on_two_threads() -> None:
    # The kernel keeps one copy of such a table, so that threads that share its rows would lose each other's sums.
    neighbors = random_graph(60_000, 5_000)
    drawn = random_inputs(neighbors, "table", False, 257, SINGLE, types=66_000)
    torch.set_num_threads(1)
    first = run(neighbors, drawn)
    torch.set_num_threads(2)
    for _ in range(6):
        for found, before in zip(run(neighbors, drawn), first, strict=True):
            assert torch.equal(found, before)


@every_form
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_second_backward_pass_gives_the_same_gradients(form: str, activation: str) -> None:
    drawn = laws.inputs(laws.RICH, form, weighted=True, channels=19, dtype=SINGLE)
    out = sir_aggregate(
        drawn.query, drawn.key, laws.RICH.neighbors(), drawn.edge, drawn.edge_weight, activation, backend="native"
    )
    cotangent = torch.linspace(-1, 1, out.numel()).view_as(out)
    passes = [torch.autograd.grad(out, drawn.leaves(), cotangent, retain_graph=True) for _ in range(3)]
    for again in passes[1:]:
        assert all(torch.equal(a, b) for a, b in zip(passes[0], again, strict=True))


def columns(tensor: Tensor, start: int) -> Tensor:
    """The same numbers as columns of a wider tensor, full of NaN around them."""
    wide = tensor.new_full((tensor.size(0), tensor.size(1) + 7), torch.nan)
    wide[:, start : start + tensor.size(1)] = tensor.detach()
    return wide[:, start : start + tensor.size(1)].requires_grad_()


def by_column(tensor: Tensor) -> Tensor:
    return tensor.detach().t().contiguous().t().requires_grad_()


def every_other_row(tensor: Tensor) -> Tensor:
    return tensor.detach().repeat_interleave(2, dim=0)[::2].requires_grad_()


@every_form
@pytest.mark.parametrize("width", [1, 3, 8, 19, 64])
def test_memory_layout_of_the_inputs_does_not_matter(isa: str, form: str, width: int) -> None:
    plain = laws.inputs(laws.RICH, form, weighted=True, channels=width)
    expected = run(laws.RICH, plain)
    for change in (lambda x: columns(x, 3), by_column, every_other_row):
        moved = plain.map(lambda x, change=change: change(x) if x.dim() == 2 else x)  # type: ignore[misc]
        for found, before in zip(run(laws.RICH, moved), expected, strict=True):
            assert torch.equal(found, before)


@every_form
@pytest.mark.parametrize("width", [1, 19])
def test_memory_layout_of_the_gradient_does_not_matter(isa: str, form: str, width: int) -> None:
    drawn = laws.inputs(laws.RICH, form, weighted=True, channels=width)
    out = sir_aggregate(drawn.query, drawn.key, laws.RICH.neighbors(), drawn.edge, drawn.edge_weight, backend="native")
    row = torch.linspace(-1, 1, width, dtype=DOUBLE)
    for cotangent in (
        torch.ones((), dtype=DOUBLE).expand_as(out),
        row.expand_as(out),
        torch.linspace(-1, 1, out.size(0), dtype=DOUBLE)[:, None].expand_as(out),
        by_column(row * torch.arange(out.size(0))[:, None]).detach(),
    ):
        found = torch.autograd.grad(out, drawn.leaves(), cotangent, retain_graph=True)
        expected = torch.autograd.grad(out, drawn.leaves(), cotangent.contiguous(), retain_graph=True)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@every_form
@pytest.mark.parametrize("dtype", [BRAIN, HALF], ids=["brain", "half"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_half_precision_is_the_rounding_of_single(isa: str, form: str, dtype: torch.dtype, activation: str) -> None:
    unit = torch.finfo(dtype).eps
    for width in WIDTHS[:40:3]:
        half = laws.inputs(laws.RICH, form, True, width, seed=width, dtype=dtype)
        single = cast(half, SINGLE)
        neighbors = laws.RICH.neighbors()
        found: list[Tensor] = []
        expected: list[Tensor] = []
        for drawn, results in ((half, found), (single, expected)):
            out = sir_aggregate(drawn.query, drawn.key, neighbors, drawn.edge, drawn.edge_weight, activation)
            # In steps of 1/4, which both dtypes hold.
            cotangent = (torch.arange(out.numel()).view_as(out) % 9 - 4).to(out.dtype) / 4
            results += [out, *torch.autograd.grad(out, drawn.leaves(), cotangent)]
        # Numbers and cotangent are the same, sums are taken in float32: one rounding is left.
        torch.testing.assert_close([x.to(SINGLE) for x in found], expected, rtol=unit, atol=unit)


SELF_LOOP = laws.EDGE_CASES["one self-loop"]


def sigma_and_slope(z: Tensor, activation: str, backend: str) -> list[Tensor]:
    """sigma(z), and sigma'(z) once through the sum in the forward pass and once through the backward pass."""
    query, key = z[None].clone().requires_grad_(), torch.zeros_like(z)[None].requires_grad_()
    out = sir_aggregate(query, key, SELF_LOOP.neighbors(), activation=activation, backend=backend)
    return [x.detach()[0] for x in (out, *torch.autograd.grad(out, [query, key], torch.ones_like(out)))]


@every_dtype
@pytest.mark.parametrize("activation", [*laws.SIGMAS, "leaky_relu(-3)", "leaky_relu(1e30)", "leaky_relu(0)"])
def test_huge_infinite_and_nan_arguments_are_as_in_torch(isa: str, dtype: torch.dtype, activation: str) -> None:
    magnitude = torch.tensor([0, 20, 20.1, 87, 88, 88.5, 89, 90, 1e3, 1e6, 1e12, 1e20, 1e38, 3e38, torch.inf])
    z = torch.cat([magnitude, -magnitude, torch.tensor([torch.nan])]).to(dtype)
    found, expected = (sigma_and_slope(z, activation, backend) for backend in ("native", "reference"))
    if activation == "gelu" and dtype == SINGLE:  # its slope at infinity is the limit, torch's is inf * 0
        expected[1][z.isinf()] = expected[2][z.isinf()] = (z[z.isinf()] > 0).to(dtype)
        expected[0][z > 1e30] = z[z > 1e30]  # with AVX-512 torch's own overflows
    # As in the test of accuracy; what is wrong here is wrong by orders of magnitude or by a NaN.
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=2e-7, equal_nan=True)


# Absolute errors of sigma and of its derivative in float32, where they are above 2e-7. GELU is z Phi(z) with a Phi that
# is right to 2.7e-7 (torch's: 6e-8), as is its slope; 3.6e-7 without fused products (torch's: 1.3e-7). The derivative
# of its tanh form cancels by the formula, in torch too.
ABSOLUTE = {"gelu": (1.5e-6, 3.5e-7), "gelu_tanh": (2e-7, 6e-7)}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_sigma_in_single_precision_is_accurate(isa: str, activation: str) -> None:
    tiny = torch.logspace(-37, 0, 1000, dtype=DOUBLE).to(SINGLE)
    z = torch.cat([torch.linspace(-100, 100, 200_001), tiny, -tiny])
    found, exact = sigma_and_slope(z, activation, "native"), sigma_and_slope(z.to(DOUBLE), activation, "reference")
    of_sigma, of_slope = ABSOLUTE.get(activation, (2e-7, 2e-7))
    for a, b, absolute in zip(found, exact, (of_sigma, of_slope, of_slope), strict=True):
        torch.testing.assert_close(a.to(DOUBLE), b, rtol=1e-6, atol=absolute)


@pytest.mark.parametrize("activation", ["identity", "relu", "leaky_relu", "elu", "silu", "tanh", "softplus"])
def test_sigma_of_a_tiny_number_keeps_its_digits(isa: str, activation: str) -> None:
    z = torch.logspace(-37, -3, 1000, dtype=DOUBLE).to(SINGLE)
    z = torch.cat([z, -z])
    found, exact = (
        sigma_and_slope(z.to(dtype), activation, backend)[0]
        for dtype, backend in ((SINGLE, "native"), (DOUBLE, "reference"))
    )
    # Relative to sigma(z) itself, not to 1: what is below the normal numbers is all that may be lost.
    torch.testing.assert_close(found.to(DOUBLE), exact, rtol=1e-6, atol=torch.finfo(SINGLE).tiny)


@pytest.mark.parametrize("name", sorted({"avx512", "avx2", "baseline", "scalar", "sse9", "", "AVX2"} - set(ISAS)))
def test_instruction_set_that_is_unknown_or_missing_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=f"SIRGCN_ISA: expected .*{', '.join(ISAS)}.*, got {name!r}"):
        native.limit_isa(name)
    assert _kernels.isas() == ISAS


def assert_groups_as_torch(edge_index: Tensor, sizes: tuple[int, int]) -> None:
    neighbors = Neighbors.from_edge_index(edge_index, sizes)
    source, target = edge_index
    expected = _group(target, source, sizes[1]), _group(source, target, sizes[0])
    for found, by_sort in zip((neighbors.by_target, neighbors.by_source), expected, strict=True):
        for name, a, b in zip(Grouping._fields, found, by_sort, strict=True):
            assert a.dtype == torch.int32
            assert torch.equal(a, b.to(torch.int32)), name


@given(laws.graphs(max_edges=30))
def test_native_grouping_equals_stable_sort(graph: Graph) -> None:
    assert_groups_as_torch(graph.edge_index, (graph.num_sources, graph.num_targets))
    assert_groups_as_torch(graph.edge_index.t().contiguous().t(), (graph.num_sources, graph.num_targets))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_native_grouping_of_many_edges_equals_stable_sort_on_any_number_of_threads(
    dtype: torch.dtype, threads: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.stack([torch.randint(0, size, (100_000,), generator=generator) for size in (70, 50_000)])
    torch.set_num_threads(threads)
    assert_groups_as_torch(edge_index.to(dtype), (70, 50_000))


@pytest.mark.parametrize("place", [0, 7, 19_999])
@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("value", [-1, 100, 2**31, -(2**62)])
def test_native_grouping_names_the_first_bad_index(place: int, row: int, value: int) -> None:
    edge_index = torch.zeros(2, 20_000, dtype=torch.int64)
    edge_index[row, place] = edge_index[row, -1] = value
    with pytest.raises(IndexError, match=rf"^edge_index\[{row}, {place}\] = {value}: expected 0 <= index < 100"):
        Neighbors.from_edge_index(edge_index, 100)


PRODUCT = {"dtype": 0, "threads": 1, "m": 0, "n": 0, "depth": 0, "a": 0, "a_row": 1, "a_step": 1, "b": 0, "b_row": 1}
PRODUCT |= {"b_step": 1, "c": 0}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"m": None}, TypeError, "product: argument m: expected a whole number"),
        ({"a": "x"}, TypeError, "product: argument a: expected an address"),
        ({"threads": 2**40}, TypeError, "product: argument threads: expected a smaller number"),
        ({"threads": 0}, ValueError, "product: argument threads: there is no number 0"),
        ({"dtype": 7}, ValueError, "product: argument dtype: there is no number 7"),
        ({"x": 1}, TypeError, "product: argument x: there is none of this name"),
    ],
)
def test_argument_that_a_kernel_cannot_take_is_named(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    _kernels.product(**PRODUCT)
    with pytest.raises(error, match=message):
        _kernels.product(**PRODUCT | changes)


def test_argument_that_a_kernel_lacks_is_named() -> None:
    for name in PRODUCT:
        with pytest.raises(TypeError, match=f"product: argument {name}: it is missing"):
            _kernels.product(**{other: value for other, value in PRODUCT.items() if other != name})
    with pytest.raises(TypeError, match="expected every argument by its name, got 1 without one"):
        _kernels.product(1)  # type: ignore[call-arg]


@pytest.mark.parametrize("added", [("new",), ()])
def test_activations_that_one_side_lacks_fail_to_import(
    monkeypatch: pytest.MonkeyPatch, added: tuple[str, ...]
) -> None:
    names = ACTIVATIONS + added if added else ACTIVATIONS[:-1]
    monkeypatch.setattr("sirgcn.ops.activation.ACTIVATIONS", names)
    spec = importlib.util.spec_from_file_location("sirgcn.ops.native", native.__file__)
    assert spec is not None
    assert spec.loader is not None
    differing = added[0] if added else ACTIVATIONS[-1]
    with pytest.raises(ImportError, match=f"activations.def differ in {differing}; complete the shorter list"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
