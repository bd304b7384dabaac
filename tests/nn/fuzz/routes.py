"""The two ways that a case is run: as the user has it, and on the plainest route; and which fast routes were taken."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import sirgcn.nn.adjacency as adjacency
import sirgcn.nn.baselines.messages as messages
import sirgcn.nn.baselines.sums as sums
import sirgcn.nn.context as context
import sirgcn.nn.conv as conv
import sirgcn.nn.net as net
import sirgcn.nn.sharing as sharing
import sirgcn.ops.linear as linear
import sirgcn.ops.parts as parts
import sirgcn.ops.rows as rows
import sirgcn.ops.tiled as tiled
import sirgcn.ops.tiled_grad as tiled_grad
from sirgcn.nn import SIRNet
from sirgcn.nn.encoder import CategoricalEncoder
from sirgcn.ops import backend, native
from sirgcn.ops.sharing import KindPairs

Taken = Counter[str]


@contextmanager
def plainest() -> Iterator[None]:
    """No table, no kinds, no pairs, no C: PyG's `propagate`, torch's products, a row for every node and edge."""
    with ExitStack() as stack:

        def off(place: Any, name: str, value: Any = False) -> None:
            stack.enter_context(patch.object(place, name, lambda *args, **kwargs: value))

        off(net, "run_shared", None)
        off(CategoricalEncoder, "has_table")
        off(context, "is_plain_embedding")
        stack.enter_context(patch.object(sums, "known_parts", lambda module: None))
        off(conv, "needs_propagate", True)
        off(adjacency, "is_row_by_row")
        off(rows, "is_row_by_row")
        off(parts, "acts_alike")
        off(native, "can_run_rows")
        stack.enter_context(patch.object(native, "MULTIPLIES", False))
        stack.enter_context(patch.object(native, "UNAVAILABLE", "this is the plainest route"))
        only = {"reference": backend.BACKENDS["reference"]}
        stack.enter_context(patch.dict(backend.BACKENDS, only, clear=True))
        yield


@contextmanager
def fastest(taken: Taken, has_small_tiles: bool, is_compiled: bool) -> Iterator[None]:
    """Every fast route pays however small the batch is, and is counted when it is taken, unless torch compiles it."""
    with ExitStack() as stack:

        def note(place: Any, name: str, route: str, is_taken: Callable[[Any], bool] = lambda found: True) -> None:
            function = getattr(place, name)
            if is_compiled:
                return

            def spy(*args: Any, **kwargs: Any) -> Any:
                found = function(*args, **kwargs)
                taken[route] += is_taken(found)
                return found

            stack.enter_context(patch.object(place, name, spy))

        if native.UNAVAILABLE is None:
            stack.enter_context(patch.object(native, "MULTIPLIES", True))
        stack.enter_context(patch.multiple(linear, _LEAST_WORK=0, _LEAST_WIDTH=1, _LEAST_ROWS=1))
        if has_small_tiles:
            stack.enter_context(patch.multiple(tiled, _MIN_TILE=16, _TILE_ELEMENTS=1))
        note(sharing, "_can_share", "table of nodes", bool)
        note(SIRNet, "_encoded_edges", "table of edges", lambda found: isinstance(found, tuple))
        note(sharing, "_refine", "kinds", lambda found: found is not None)
        note(KindPairs, "of", "pairs of kinds", lambda found: found is not None)
        note(conv, "sir_aggregate", "fused sigma")
        note(conv, "aggregate_network", "fused network")
        note(tiled, "aggregate", "linear messages in C")
        note(tiled_grad, "forward_sum", "tiles, sum")
        note(tiled_grad, "forward_max", "tiles, max")
        note(linear, "product", "products in C")
        note(sharing, "weighted_batch_norm", "batch norm of kinds")
        note(rows, "look_up", "rows of a table")
        note(messages, "edge_softmax", "softmax in C")
        note(messages, "contextual_scores", "scores in C")
        note(sums, "maximum", "maximum by torch's sparse product")
        note(native, "refine", "refinement in C")
        yield


ROUTES = (
    "table of nodes",
    "table of edges",
    "kinds",
    "pairs of kinds",
    "fused sigma",
    "fused network",
    "linear messages in C",
    "tiles, sum",
    "tiles, max",
    "products in C",
    "batch norm of kinds",
    "rows of a table",
    "softmax in C",
    "scores in C",
    "maximum by torch's sparse product",
    "refinement in C",
)
"""What every run of 300 cases must have taken."""
