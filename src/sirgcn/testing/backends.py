"""The laws of a backend of `sir_aggregate`."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from sirgcn.ops import sir_aggregate
from sirgcn.ops.aggregate import BACKENDS as TABLE
from sirgcn.ops.aggregate import Backend
from sirgcn.strict import check_name
from sirgcn.testing.assertions import assert_gradients, assert_repeats, assert_same, value_and_gradients
from sirgcn.testing.definitions import EDGE_FORMS, REDUCTIONS, SIGMAS, Inputs, aggregate_by_loop, inputs
from sirgcn.testing.graphs import RICH, Graph, on_any_graph, random_graph

# The laws run on the CPU. The backend for GPUs runs there in Triton's interpreter only.
BACKENDS = tuple(
    name for name, entry in TABLE.items() if entry.unavailable is None and "cpu" in (entry.devices or ("cpu",))
)
"""The names of the backends of `sir_aggregate` that are available on this CPU."""


def assert_equals_loop(backend: str | None, graph: Graph, given: Inputs, activation: str, reduce: str) -> None:
    """Values and gradients of a backend are those of `aggregate_by_loop`.

    >>> assert_equals_loop("reference", RICH, inputs(RICH, "dense"), "relu", "mean")
    """
    expected = aggregate_by_loop(SIGMAS[activation], graph, given, reduce)
    out = _aggregated(backend, graph, given, activation, reduce)
    assert_same(value_and_gradients(out, given.leaves()), value_and_gradients(expected, given.leaves()))


def assert_backend_equals_reference(backend: str | Backend, examples: int = 25) -> None:
    """Values and gradients of a backend are those of the backend "reference", in float64.

    Every combination of activation, reduction, edge term and edge weight is compared on the graph `RICH`. On the edge
    cases and on as many drawn graphs as `examples` says, the combinations take turns.

    Args:
        backend: the name of a backend, or a `Backend` of your own.
        examples: how many graphs hypothesis draws.

    >>> assert_backend_equals_reference("reference", examples=1)
    """
    with _in_table(backend) as name:
        combinations = [
            (activation, reduce, form, weighted)
            for activation in SIGMAS
            for reduce in REDUCTIONS
            for form in EDGE_FORMS
            for weighted in (False, True)
        ]
        for combination in combinations:
            _assert_equals_reference(name, RICH, *combination)
        turn = 0

        def law(graph: Graph) -> None:
            nonlocal turn
            turn += 1
            # A prime step: neighbouring turns differ in everything.
            activation, reduce, form, weighted = combinations[turn * 89 % len(combinations)]
            if reduce == "sym_in" and graph.num_sources != graph.num_targets:
                reduce = "sym"
            _assert_equals_reference(name, graph, activation, reduce, form, weighted, channels=turn % 20)

        on_any_graph(law, None, examples)


def _assert_equals_reference(
    name: str, graph: Graph, activation: str, reduce: str, form: str, weighted: bool, channels: int = 3
) -> None:
    given = inputs(graph, form, weighted, channels)
    found, expected = (
        value_and_gradients(_aggregated(backend, graph, given, activation, reduce), given.leaves())
        for backend in (name, "reference")
    )
    weights = "with" if weighted else "without"
    where = f"{activation}, {reduce}, edge term {form}, {weights} edge weights, {channels} channels, {graph}"
    assert_same(found, expected, law=f"reference: expected the values and gradients of the reference: {where}")


def _assert_finite_differences(backend: str) -> None:
    graph = Graph(((0, 0), (1, 0), (1, 0), (2, 1), (0, 2)), 4, 4)
    cases = [(activation, "sum", "table") for activation in SIGMAS]
    cases += [("gelu", reduce, form) for reduce in REDUCTIONS for form in EDGE_FORMS]
    for activation, reduce, form in cases:
        given = inputs(graph, form, weighted=True, channels=2, kinks=False)

        def function(
            *leaves: Tensor, given: Inputs = given, activation: str = activation, reduce: str = reduce
        ) -> Tensor:
            return _aggregated(backend, graph, given.with_leaves(leaves), activation, reduce)

        assert_gradients(function, given.leaves(), f"gradients: {activation}, {reduce}, edge term {form}")


def _assert_bits(backend: str) -> None:
    graph = random_graph(300, 20_000)
    for form in EDGE_FORMS:
        given = inputs(graph, form, True, 16, dtype=torch.float32).map(lambda x: (x.detach() / 3).requires_grad_())

        def run(given: Inputs = given) -> list[Tensor]:
            return value_and_gradients(_aggregated(backend, graph, given, "gelu", "sym"), given.leaves())

        assert_repeats(run)


def _assert_empty_neighborhoods(backend: str) -> None:
    # Sigmoid is positive everywhere: only an empty sum is 0.
    for reduce in REDUCTIONS:
        out = _aggregated(backend, RICH, inputs(RICH, "dense"), "sigmoid", reduce)
        if bool((out[[4, 6]] != 0).any()) or not bool((out[[0, 1, 2, 3, 5]] > 0).all()):
            raise AssertionError(f"isolated nodes: {reduce}: expected exactly 0 at targets without neighbours only")


BACKEND_LAWS: dict[str, Callable[[str], None]] = {
    "reference": assert_backend_equals_reference,
    "gradients": _assert_finite_differences,
    "repeats": _assert_bits,
    "isolated nodes": _assert_empty_neighborhoods,
}
"""The laws of `assert_backend_laws` by name.

- "reference": values and gradients are those of the backend "reference".
- "gradients": gradients are those of finite differences.
- "repeats": forward and backward passes repeat bit for bit.
- "isolated nodes": a target without neighbours gets exactly 0.
"""


def assert_backend_laws(backend: str | Backend, laws: Iterable[str] = tuple(BACKEND_LAWS)) -> None:
    """A backend keeps the laws of `BACKEND_LAWS`; the first broken law raises an `AssertionError` that names it.

    Args:
        backend: the name of a backend, or a `Backend` of your own.
        laws: names of `BACKEND_LAWS`.

    >>> assert_backend_laws("reference", ["isolated nodes"])
    """
    names = [check_name("laws", law, BACKEND_LAWS, exact=True) for law in laws]
    with _in_table(backend) as name:
        for law in names:
            BACKEND_LAWS[law](name)


@contextmanager
def _in_table(backend: str | Backend) -> Iterator[str]:
    """The name under which `sir_aggregate` finds the backend. A backend of one's own has a name meanwhile."""
    if isinstance(backend, str):
        yield check_name("backend", backend, TABLE, exact=True)
        return
    name = f"under test {id(backend)}"
    TABLE[name] = backend
    try:
        yield name
    finally:
        del TABLE[name]


def _aggregated(backend: str | None, graph: Graph, given: Inputs, activation: str, reduce: str) -> Tensor:
    return sir_aggregate(
        given.query,
        given.key,
        graph.neighbors(),
        edge=given.edge,
        edge_weight=given.edge_weight,
        activation=activation,
        reduce=reduce,
        backend=backend,
    )
