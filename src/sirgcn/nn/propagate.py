"""PyG's own `propagate`: when it has to run, and how its messages are weighed.

It builds the message of every edge, for whoever wants to see it.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr.basic import MaxAggregation, SumAggregation
from torch_geometric.utils import scatter

from sirgcn.nn.slopes import is_fused
from sirgcn.ops import Neighbors, rank_one_weights
from sirgcn.ops.calls import has_hooks, is_exporting, is_touched, is_transformed
from sirgcn.ops.reference import accumulation_dtype

if TYPE_CHECKING:
    from sirgcn.nn.conv import SIRConv

# The steps of `propagate` that a subclass or a user may replace, and that the fused route does not call.
_STEPS = ("message", "message_and_aggregate", "aggregate", "update", "edge_update")
_AGGREGATIONS = {"max": MaxAggregation, "sum": SumAggregation}


def needs_propagate(conv: "SIRConv", defined_by: type) -> bool:
    """Whether a layer has to run PyG's `propagate` in place of the fused route.

    It has to in any of these cases:

    - `fused=False` asks for it
    - an explainer is at work
    - `torch.export` traces the call, or a `torch.func` transform is active
    - a step of `propagate`, or a module that the fused route does not call, has a hook
    - a subclass or the instance replaces a step of `propagate`

    Args:
        conv: the layer.
        defined_by: the class that defines the steps of `propagate` which the fused route computes.
    """
    return (
        not conv.fused
        or bool(conv.explain)
        or is_exporting()
        or is_transformed()
        or _has_message_hooks(conv)
        or _has_own_steps(conv, defined_by)
    )


def _has_message_hooks(conv: "SIRConv") -> bool:
    """Whether a step of `propagate`, or a module that the fused route does not call, has a hook."""
    return bool(
        conv._propagate_forward_pre_hooks
        or conv._propagate_forward_hooks
        or conv._message_forward_pre_hooks
        or conv._message_forward_hooks
        or conv._aggregate_forward_pre_hooks
        or conv._aggregate_forward_hooks
        or is_touched(conv.aggr_module)
        or any(map(_is_observed, conv.edge_modules()))
    )


def _is_observed(network: nn.Module) -> bool:
    """Whether a module that acts on edges has a hook, or is a sigma, computed by its name, with its own `forward`."""
    if is_fused(network):
        return is_touched(network)
    # Tiles of edges are differentiated one by one: the hook of a weight would see the gradient of each tile.
    return any(map(has_hooks, network.modules())) or any(weight._backward_hooks for weight in network.parameters())


def _has_own_steps(conv: "SIRConv", defined_by: type) -> bool:
    """Whether a subclass or this instance replaces a step of `propagate`."""
    own, cls = conv.__dict__, type(conv)
    if type(conv.aggr_module) is not _AGGREGATIONS["max" if conv.aggr == "max" else "sum"]:
        return True
    if not _is_generated(cls.propagate, cls):
        return True
    # PyG itself puts a `propagate` onto the instance when an explanation ends.
    if "propagate" in own and not _is_generated(getattr(own["propagate"], "__func__", None), cls):
        return True
    return any(name in own or getattr(cls, name) is not getattr(defined_by, name) for name in _STEPS)


def _is_generated(propagate: object, cls: type) -> bool:
    """Whether a `propagate` is that of `MessagePassing`, or was written by PyG from a template for this class.

    PyG keeps a `propagate` that a subclass defines under the name of the one that PyG would have written.
    """
    if propagate is MessagePassing.propagate:
        return True
    module = getattr(propagate, "__module__", None)
    return any(module == f"{base.__module__}_{base.__name__}_propagate" for base in cls.__mro__)


def degree_weights(
    reduction: str, ends: Tensor, sizes: tuple[int, int], dtype: torch.dtype, graph: object = None
) -> tuple[Tensor | None, Tensor | None]:
    """The weights of a reduction: a_u of every target, and b_v of every edge's source; None where all are 1.

    Args:
        reduction: `"sum"`, `"mean"`, `"sym"`, `"sym_in"` or `"max"`.
        ends: the source and the target of every edge, `[2, E]`.
        sizes: the numbers of source and target nodes.
        dtype: the dtype of the messages.
        graph: the graph as it was given, which may be a sample of a larger one.
    """
    (source, target), (num_sources, num_targets) = ends, sizes
    if isinstance(graph, Neighbors) and graph.whole_degrees is not None and reduction != "max":
        of_target, of_source = graph.weights(reduction, accumulation_dtype(dtype))
        return of_target, None if of_source is None else of_source.index_select(0, source)
    if reduction == "sym_in" and num_sources != num_targets:
        raise ValueError(
            f"reduce: sym_in weighs by in-degrees at both ends and needs one set of nodes, "
            f"got {num_sources} sources and {num_targets} targets"
        )
    if reduction not in ("mean", "sym", "sym_in"):
        return None, None
    ones = torch.ones_like(target)
    in_degree = scatter(ones, target, dim_size=num_targets)
    source_degree = scatter(ones, source, dim_size=num_sources) if reduction == "sym" else in_degree
    # A degree above 65,504 is infinite in float16.
    of_target, of_source = rank_one_weights(reduction, in_degree, source_degree, accumulation_dtype(dtype))
    return of_target, None if of_source is None else of_source.index_select(0, source)
