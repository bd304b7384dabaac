"""The laws of this library, for your own backend and your own layer.

- `assert_backend_laws` checks a backend of `sir_aggregate`.
- `assert_layer_laws` checks a layer `layer(x, edge_index)`.
- `graphs` draws graphs for the tests of hypothesis; `EDGE_CASES` and `RICH` are graphs to look at by name.
- `aggregate_by_loop` is the definition of the aggregation as a loop over the edges.

A law that does not hold raises an `AssertionError` that names the law and the graph. This package needs hypothesis:
`pip install hypothesis`.
"""

try:
    import hypothesis  # noqa: F401
except ImportError as error:
    raise ImportError("sirgcn.testing draws its graphs with hypothesis: pip install hypothesis") from error

from sirgcn.testing.assertions import assert_gradients, assert_repeats, assert_same, value_and_gradients
from sirgcn.testing.backends import (
    BACKEND_LAWS,
    BACKENDS,
    assert_backend_equals_reference,
    assert_backend_laws,
    assert_equals_loop,
)
from sirgcn.testing.definitions import (
    EDGE_FORMS,
    REDUCTIONS,
    SIGMAS,
    EdgeTerm,
    Inputs,
    Square,
    aggregate_by_loop,
    first_maximum,
    inputs,
    scale,
)
from sirgcn.testing.graphs import EDGE_CASES, RICH, Graph, graphs, random_graph
from sirgcn.testing.layers import LAYER_LAWS, assert_bipartite, assert_equals_plain, assert_layer_laws

__all__ = [
    "BACKENDS",
    "BACKEND_LAWS",
    "EDGE_CASES",
    "EDGE_FORMS",
    "LAYER_LAWS",
    "REDUCTIONS",
    "RICH",
    "SIGMAS",
    "EdgeTerm",
    "Graph",
    "Inputs",
    "Square",
    "aggregate_by_loop",
    "assert_backend_equals_reference",
    "assert_backend_laws",
    "assert_bipartite",
    "assert_equals_loop",
    "assert_equals_plain",
    "assert_gradients",
    "assert_layer_laws",
    "assert_repeats",
    "assert_same",
    "first_maximum",
    "graphs",
    "inputs",
    "random_graph",
    "scale",
    "value_and_gradients",
]
