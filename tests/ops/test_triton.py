"""The backend `triton`: on a GPU where there is one, else in Triton's interpreter, which has a process of its own.

The interpreter is chosen when triton is imported. Of the laws of `test_aggregate.py` it runs all but two here, which
would take minutes and are stated on smaller inputs below; to run those too:
`TRITON_INTERPRET=1 pytest tests/ops/test_aggregate.py -k triton`.
"""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sirgcn import testing as laws
from sirgcn.ops import ACTIVATIONS, Activation, Neighbors, backends, reference, triton_backend
from sirgcn.ops.reference import EdgeTerms, Needs
from sirgcn.testing import Graph

INTERPRETED = "cpu" in triton_backend.DEVICES
DEVICE = "cpu" if INTERPRETED else "cuda"
ROOT = Path(__file__).parents[2]

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed (it has wheels for Linux only)"
)
on_device = pytest.mark.skipif(
    triton_backend.UNAVAILABLE is not None, reason=f"the backend is not available: {triton_backend.UNAVAILABLE}"
)


@needs_triton
@pytest.mark.skipif(INTERPRETED, reason="this is the process with the interpreter")
def test_laws_hold_in_the_interpreter() -> None:
    files = ["tests/ops/test_triton.py", "tests/ops/test_aggregate.py", "tests/ops/test_gated.py"]
    slow = ["test_gradient_equals_finite_differences", "test_forward_and_backward_repeat_bit_for_bit"]
    # The fewer threads, the less the kernels' NumPy and torch's small tensors wait for them.
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "triton", *files]
    command += [f"--deselect={files[1]}::{name}" for name in slow]
    run = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-2_000:]


def test_backend_is_listed_with_the_reason_where_it_cannot_run() -> None:
    assert "triton" in backends()
    assert backends()["triton"] == triton_backend.UNAVAILABLE
    assert ("triton" in laws.BACKENDS) == INTERPRETED


COMPILED = [
    ("fp32", "fp32", "i32", "gelu"),
    ("fp64", "fp64", "i64", "softplus"),
    ("bf16", "fp32", "i32", "leaky_relu"),
]


def compiled(stored: str, summed: str, index: str, activation: str) -> list[Any]:
    """The three kernels, compiled for a GPU."""
    import triton  # type: ignore[import-untyped]
    from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
    from triton.compiler import ASTSource  # type: ignore[import-untyped]

    from sirgcn.ops import triton_kernels as kernels

    of_stored = {"query", "key", "edge", "grad", "own", "other", "value", "out"}
    of_index = {"ptr", "nodes", "edges", "edge_type"}
    scalars = {"rows", "num_edges", "search_steps", "width"}
    constants = {
        "VALUE_OF_EDGE": False, "ACTIVATION": activation, "SLOPE": 0.2,
        "SEGMENT": 256, "ROWS": 4, "CHANNELS": 128, "WINDOWS": 16,
    }  # fmt: skip

    def type_of(name: str) -> str:
        if name in constants:
            return "constexpr"
        if name in scalars or name.endswith("_stride"):
            return "i32"
        return "*" + (index if name in of_index else stored if name in of_stored else summed)

    found = []
    for kernel in (kernels.forward, kernels.backward, kernels.combine):
        signature = {name: type_of(name) for name in kernel.arg_names}
        given_ = {name: value for name, value in constants.items() if name in kernel.arg_names}
        # An Ampere card; the assembler comes with triton, so that no card is needed to get to machine code.
        found.append(triton.compile(ASTSource(kernel, signature, given_), target=GPUTarget("cuda", 80, 32)))
    return found


@needs_triton
@pytest.mark.skipif(INTERPRETED, reason="the interpreter does not compile")
@pytest.mark.parametrize(("stored", "summed", "index", "activation"), COMPILED)
def test_kernels_compile_for_a_gpu_without_atomics(
    stored: str, summed: str, index: str, activation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for built in compiled(stored, summed, index, activation):
        assert "cubin" in built.asm
        assert not re.search(r"\b(atom|red)\.", built.asm["ptx"])


@needs_triton
@pytest.mark.skipif(INTERPRETED, reason="the interpreter does not compile")
def test_activation_that_the_kernels_lack_fails_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with pytest.raises(Exception, match="_sigma") as error:
        compiled("fp32", "fp32", "i32", "new")
    # Triton raises an error of each calling kernel from that of the kernel it calls.
    cause: BaseException | None = error.value
    messages = []
    while cause is not None:
        messages.append(str(cause))
        cause = cause.__cause__
    assert "no kernel for this activation" in "".join(messages)


def test_kernels_have_every_activation() -> None:
    source = Path(triton_backend.__file__).with_name("triton_kernels.py").read_text()
    (sigma,) = (f for f in ast.parse(source).body if isinstance(f, ast.FunctionDef) and f.name == "_sigma")
    compared = [node for node in ast.walk(sigma) if isinstance(node, ast.Compare)]
    names = [node.comparators[0].value for node in compared if isinstance(node.comparators[0], ast.Constant)]
    assert set(ACTIVATIONS) <= set(names)


Case = tuple[Tensor, Tensor, Tensor, Neighbors, EdgeTerms]


def case(graph: Graph, form: str, weighted: bool, channels: int, reduce: str, dtype: torch.dtype) -> Case:
    """Cotangent, query, key, neighbours and terms as a backend gets them."""
    drawn = laws.inputs(graph, form, weighted, channels, dtype=dtype).map(Tensor.detach)
    table, edge_type = drawn.edge if isinstance(drawn.edge, tuple) else (drawn.edge, None)
    neighbors = graph.neighbors().to(DEVICE)
    summed = reference.accumulation_dtype(dtype)
    edge_weight = None if drawn.edge_weight is None else drawn.edge_weight.to(summed)
    table, edge_type, edge_weight = (None if x is None else x.to(DEVICE) for x in (table, edge_type, edge_weight))
    terms = EdgeTerms(table, edge_type, edge_weight, *neighbors.weights(reduce, summed))
    grad = torch.randn(drawn.query.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    return grad.to(DEVICE), drawn.query.to(DEVICE), drawn.key.to(DEVICE), neighbors, terms


def everything(backend: Any, case: Case, activation: str) -> list[Tensor | None]:
    """Output, slopes and the gradients of key, edge and edge weight."""
    grad, query, key, neighbors, terms = case
    sigma = Activation.parse(activation)
    needs = Needs(terms.edge is not None, terms.edge_weight is not None)
    values = backend.forward(query, key, neighbors, terms, sigma, True)
    return [*values, *backend.backward(grad, query, key, neighbors, terms, sigma, needs)]


def assert_equals_reference(case: Case, activation: str) -> None:
    found, expected = everything(triton_backend, case, activation), everything(reference, case, activation)
    assert [x is None for x in found] == [x is None for x in expected]
    present = [x for x in found if x is not None], [x for x in expected if x is not None]
    assert [x.dtype for x in present[0]] == [x.dtype for x in present[1]]
    # Rounding of sums of up to a few hundred terms of size 1; an output in half precision is rounded once more.
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
    for a, b in zip(*present, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance[a.dtype], atol=tolerance[a.dtype])


def graph_with_long_rows() -> Graph:
    """Rows of 0, 1, 11, 29 and 40 edges in random order: split at 8, long rows begin and end inside windows."""
    generator = torch.Generator().manual_seed(1)
    target = torch.tensor([0] * 11 + [2] * 29 + [3] + [4] * 40)[torch.randperm(81, generator=generator)]
    source = torch.randint(0, 5, (81,), generator=generator)
    return Graph(tuple(zip(source.tolist(), target.tolist(), strict=True)), 5, 6)


LONG = graph_with_long_rows()


@on_device
@settings(max_examples=25)
@given(
    laws.graphs(),
    st.sampled_from(list(laws.SIGMAS)),
    st.sampled_from(laws.EDGE_FORMS),
    st.booleans(),
    st.sampled_from(["sum", "mean", "sym"]),
    st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
    st.integers(0, 5),
)
def test_equals_reference_with_slopes_in_every_dtype(
    graph: Graph, activation: str, form: str, weighted: bool, reduce: str, dtype: torch.dtype, channels: int
) -> None:
    assert_equals_reference(case(graph, form, weighted, channels, reduce, dtype), activation)


@on_device
@pytest.mark.parametrize("form", laws.EDGE_FORMS)
@pytest.mark.parametrize("segment", [8, 16, 81])
def test_rows_that_are_split_equal_reference(form: str, segment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_backend, "_SEGMENT", segment)
    monkeypatch.setattr(triton_backend, "_WINDOWS", 2)
    for dtype in (torch.float64, torch.float16):
        assert_equals_reference(case(LONG, form, True, 3, "sym", dtype), "gelu")


@on_device
@pytest.mark.parametrize("form", laws.EDGE_FORMS)
def test_channels_of_several_tiles_equal_reference(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_backend, "_SEGMENT", 8)
    monkeypatch.setattr(triton_backend, "_MAX_CHANNELS", 4)
    assert_equals_reference(case(LONG, form, True, 11, "sym", torch.float64), "silu")


@on_device
@pytest.mark.parametrize("form", laws.EDGE_FORMS)
def test_split_rows_repeat_bit_for_bit(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_backend, "_SEGMENT", 16)
    grad, query, key, neighbors, terms = case(LONG, form, True, 5, "sym", torch.float32)

    def run() -> list[Tensor]:
        found = everything(triton_backend, (grad, query / 3, key / 3, neighbors, terms), "gelu")
        return [x for x in found if x is not None]

    laws.assert_repeats(run)


@on_device
@pytest.mark.parametrize("form", laws.EDGE_FORMS)
def test_gradient_of_a_small_graph_equals_finite_differences(form: str) -> None:
    graph = Graph(((0, 0), (1, 0), (1, 0)), 2, 1)
    grad, query, key, neighbors, terms = case(graph, form, True, 1, "mean", torch.float64)
    sigma, step = Activation("tanh"), 1e-6

    def loss(place: int, leaf: Tensor) -> float:
        query, key, edge, edge_weight = (leaf if k == place else x for k, x in enumerate(leaves))
        moved = terms._replace(edge=edge, edge_weight=edge_weight)
        return float((triton_backend.forward(query, key, neighbors, moved, sigma, False)[0] * grad).sum())

    leaves: list[Any] = [query, key, terms.edge, terms.edge_weight]
    _, slopes, *grads = everything(triton_backend, (grad, query, key, neighbors, terms), "tanh")
    assert slopes is not None
    for place, found in enumerate([slopes * grad, *grads]):
        if found is None:
            continue
        for i, unit in enumerate(torch.eye(found.numel(), dtype=torch.float64, device=DEVICE)):
            moved = step * unit.view_as(found)
            difference = loss(place, leaves[place] + moved) - loss(place, leaves[place] - moved)
            assert found.flatten()[i].item() == pytest.approx(difference / (2 * step), abs=1e-8)


@on_device
# NumPy's, of exponentials that end at 0 or infinity.
@pytest.mark.filterwarnings("ignore:(overflow|invalid value|divide by zero):RuntimeWarning")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sigma_is_accurate_from_tiny_to_huge(activation: str, dtype: torch.dtype) -> None:
    magnitude = torch.logspace(-30, 3, 67, dtype=torch.float64).to(dtype)
    z = torch.cat([-magnitude, torch.zeros(1, dtype=dtype), magnitude, torch.full((1,), torch.inf, dtype=dtype)])
    query, key = z[None].to(DEVICE), torch.zeros(1, z.numel(), dtype=dtype, device=DEVICE)
    neighbors = laws.EDGE_CASES["one self-loop"].neighbors().to(DEVICE)
    terms, sigma = EdgeTerms(None, None, None, None, None), Activation.parse(activation)
    found = triton_backend.forward(query, key, neighbors, terms, sigma, True)
    expected = reference.forward(query, key, neighbors, terms, sigma, True)
    if activation == "gelu":  # with AVX-512 torch's own is NaN at infinity
        expected[0][0, -1] = torch.inf
    unit = torch.finfo(dtype).eps
    # Both forms of GELU and most derivatives cancel by their formula, in torch as well: what is lost is relative to 1.
    cancels = (activation in ("gelu", "gelu_tanh"), True)
    for a, b, cancel in zip(found, expected, cancels, strict=True):
        atol = 8 * unit if cancel else torch.finfo(dtype).tiny
        torch.testing.assert_close(a, b, rtol=64 * unit, atol=atol, equal_nan=True)
