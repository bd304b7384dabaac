"""Every way from tensors to an aggregation, as a table: what holds for one route is tested on all of them.

A new route is covered by `test_routes.py` as soon as it is listed in `ROUTES`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sirgcn import SIRConv, SIRNet
from sirgcn.nn.baselines.messages import attend, deviation, dot_scores, head_scores
from sirgcn.nn.convs import CONVS, make_conv
from sirgcn.ops import Neighbors, native, sir_aggregate, tiled_aggregate
from sirgcn.ops.gated import gated_columns
from sirgcn.ops.linear import linear
from sirgcn.ops.reductions import maximum, weighted_sum
from sirgcn.ops.rows import look_up
from sirgcn.ops.scores import contextual_scores
from sirgcn.ops.sharing import KindPairs, weighted_batch_norm
from sirgcn.ops.softmax import edge_softmax
from sirgcn.testing import BACKENDS

NODES, EDGES, TYPES, WIDTH, HEADS = 12, 40, 3, 8, 2

Given = dict[str, Any]
"""The inputs of a call by name. Also keeps the graph and the network that a first call made, for a second one."""


@dataclass(frozen=True)
class Route:
    """One way to compute an aggregation.

    Args:
        shapes: the shapes of the floating-point inputs by name.
        call: the output, from the inputs and the graph.
        indices: the names of the integer inputs: `edge_index`, `edge_type`, `categories`.
        compiles: whether `torch.compile` can take the call.
    """

    shapes: Mapping[str, tuple[int, ...]]
    call: Callable[[Given], Tensor]
    indices: tuple[str, ...] = ("edge_index",)
    compiles: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """All inputs."""
        return *self.shapes, *self.indices

    def inputs(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> Given:
        """Plain inputs in one piece, those with a gradient first."""
        generator = torch.Generator().manual_seed(seed)
        found: Given = {
            name: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
            for name, shape in self.shapes.items()
        }
        drawn = {
            "edge_index": (NODES - 2, (2, EDGES)),  # the last two nodes have no neighbours
            "edge_type": (TYPES, (EDGES,)),
            "categories": (TYPES, (NODES,)),
        }
        for name, (high, shape) in drawn.items():
            values = torch.randint(high, shape, generator=generator)
            if name in self.indices:
                found[name] = values
        return found


def graph_of(given: Given) -> Neighbors:
    """The graph of the call, made once for all calls with the same inputs."""
    if "graph" not in given:
        given["graph"] = Neighbors.from_edge_index(given["edge_index"], NODES)
    found: Neighbors = given["graph"]
    return found


def of_weights(given: Given, make: Callable[[], nn.Module], *names: str) -> Any:
    """A network whose weights of these names are inputs; made once for all calls with the same inputs."""
    if "network" not in given:
        with torch.random.fork_rng(), torch.inference_mode(False), torch.device("cpu"):
            torch.manual_seed(0)
            given["network"] = make().to(next(x.dtype for x in given.values() if x.is_floating_point()))
    network = given["network"]
    for name in names:
        owner, _, attribute = name.rpartition(".")
        module = network.get_submodule(owner)
        module._parameters.pop(attribute, None)
        setattr(module, attribute, given[name])
    return network


NODE = {"query": (NODES, WIDTH), "key": (NODES, WIDTH)}
VALUE = {"value": (NODES, WIDTH)}
DENSE = {"edge": (EDGES, WIDTH)}
TABLE = {"table": (TYPES, WIDTH)}
WEIGHT = {"edge_weight": (EDGES,)}
TYPED = ("edge_index", "edge_type")


def edge_of(given: Given) -> Any:
    """The edge term of a call: none, dense or a pair (table, type)."""
    return (given["table"], given["edge_type"]) if "table" in given else given.get("edge")


def aggregate(backend: str, activation: str, reduce: str) -> Callable[[Given], Tensor]:
    """`sir_aggregate` by a backend."""
    return lambda g: sir_aggregate(
        g["query"], g["key"], graph_of(g), edge_of(g), g.get("edge_weight"), activation, reduce, backend
    )


def gated(backend: str, activation: str, reduce: str) -> Callable[[Given], Tensor]:
    """`sir_aggregate` with a value by a backend."""
    return lambda g: sir_aggregate(
        g["query"],
        g["key"],
        graph_of(g),
        edge_of(g),
        g.get("edge_weight"),
        activation,
        reduce,
        backend,
        g["value"],
    )


def stacked(given: Given) -> Tensor:
    """Gated messages whose node terms are columns of one matrix."""
    return gated_columns(given["stacked"], graph_of(given), reduce="gates")


def tiled(
    make: Callable[[], nn.Module], *names: str, reduce: str = "sum", combine: str = "add", **more: Any
) -> Callable[[Given], Tensor]:
    """`tiled_aggregate` with a network whose named weights are inputs."""

    def call(given: Given) -> Tensor:
        network = of_weights(given, make, *names)
        edge, weight = edge_of(given), given.get("edge_weight")
        return tiled_aggregate(
            network, given["query"], given["key"], graph_of(given), edge, weight, reduce, combine, **more
        )

    return call


def convolved(make: Callable[[], nn.Module], *names: str, raw: bool = True) -> Callable[[Given], Tensor]:
    """A convolution whose named weights are inputs; `raw` gives it `edge_index`, else the grouped edges."""

    def call(given: Given) -> Tensor:
        conv = of_weights(given, make, *names)
        graph = given["edge_index"] if raw else graph_of(given)
        edge = edge_of(given)
        weights = {"edge_weight": given["edge_weight"]} if "edge_weight" in given else {}
        out: Tensor = conv(given["x"], graph, **({} if edge is None else {"edge_attr": edge}), **weights)
        return out

    return call


def net(**options: Any) -> Callable[[Given], Tensor]:
    """A network of categories, whose rows repeat, or of features."""

    def make() -> nn.Module:
        return SIRNet.of(TYPES, WIDTH, 2, num_layers=2, encoder="embedding", **options)

    def call(given: Given) -> Tensor:
        network = of_weights(given, make, "blocks.1.conv.lin_key.weight")
        edge = given.get("edge_type")
        out: Tensor = network(given["categories"], given["edge_index"], **({} if edge is None else {"edge_attr": edge}))
        return out

    return call


def by_pairs(given: Given) -> Tensor:
    """A message network once for every pair of kinds."""
    kind = given["categories"]
    pairs = KindPairs.of(kind, kind, (TYPES, TYPES), graph_of(given))
    assert pairs is not None
    network = of_weights(given, mlp, "1.weight")
    return pairs.aggregate(network, given["of_target"], given["of_source"], given["edge_weight"], "sym")


def relu_linear() -> nn.Module:
    """What the C kernel of message networks knows."""
    return nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())


def mlp() -> nn.Module:
    """A network that torch computes in tiles."""
    return nn.Sequential(nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))


def wide() -> nn.Module:
    """The same for concatenated ends."""
    return nn.Sequential(nn.Linear(3 * WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))


def normed(given: Given) -> Tensor:
    """Batch norm of weighted rows."""
    return weighted_batch_norm(given["x"], given["share"].square(), given["gamma"], given["beta"])[0]


HEADED = {"query": (NODES, HEADS, WIDTH), "key": (NODES, HEADS, WIDTH)}
X = {"x": (NODES, WIDTH)}
PROJECTIONS = ("lin_query.weight", "lin_key.weight", "lin_relation.weight")


def _convolutions() -> dict[str, Route]:
    """SIRConv by all its ways."""
    square = dict.fromkeys(PROJECTIONS, (WIDTH, WIDTH))
    edged, value = {"lin_edge.weight": (WIDTH, WIDTH)}, {"lin_value.weight": (WIDTH, WIDTH)}
    context = {**square, "lin_context.weight": (WIDTH, WIDTH)}
    sloped = {**square, "activation.weight": (WIDTH,)}
    found: dict[str, Route] = {}
    for fused in (True, False):
        name = "conv" if fused else "plain conv"

        def make(fused: bool = fused, **options: Any) -> Callable[[], nn.Module]:
            return lambda: SIRConv(WIDTH, WIDTH, fused=fused, **options)

        found |= {
            f"{name}, sum": Route({**X, **WEIGHT, **square}, convolved(make(aggr="sum"), *square)),
            f"{name}, sym": Route({**X, **square}, convolved(make(aggr="sym", activation="gelu"), *square)),
            f"{name}, max": Route({**X, **square}, convolved(make(aggr="max"), *square)),
            f"{name}, dense edges": Route(
                {**X, **DENSE, **square, **edged}, convolved(make(aggr="mean", edge_dim=WIDTH), *square, *edged)
            ),
            f"{name}, typed edges": Route(
                {**X, **TABLE, **square, **edged}, convolved(make(edge_dim=WIDTH), *square, *edged), TYPED
            ),
            f"{name}, context": Route({**X, **context}, convolved(make(aggr="sym", context="mean"), *context)),
            f"{name}, context by max": Route({**X, **context}, convolved(make(context="max"), *context)),
            f"{name}, learned slopes": Route(
                {**X, **WEIGHT, **sloped}, convolved(make(aggr="mean", activation="prelu"), *sloped)
            ),
            f"{name}, learned slopes, max": Route(
                {**X, **sloped}, convolved(make(aggr="max", activation="prelu"), *sloped)
            ),
            f"{name}, gated": Route(
                {**X, **DENSE, **WEIGHT, **square, **edged, **value},
                convolved(make(edge_dim=WIDTH, aggr="sym", activation="sigmoid", gated=True), *square, *edged, *value),
            ),
            f"{name}, a network as sigma": Route({**X, **square}, convolved(make(activation=mlp()), *square)),
            f"{name}, message network": Route(
                {**X, **DENSE}, convolved(make(edge_dim=WIDTH, message_network=wide(), aggr="mean"))
            ),
        }
    cached = convolved(lambda: SIRConv(WIDTH, WIDTH, aggr="mean", cached=True, residual=True))
    # What it keeps is never looked at again, whatever edge_index holds by then.
    found["conv, cached"] = Route(X, cached, compiles=False)
    return found


def _attention() -> dict[str, Route]:
    return {
        "scores": Route(
            {**NODE, "a": (WIDTH,)},
            lambda g: contextual_scores(g["query"], g["key"], g["a"], graph_of(g)),
            compiles=False,
        ),
        "scores, a weight per target": Route(
            {**NODE, "a": (NODES, WIDTH)},
            lambda g: contextual_scores(g["query"], g["key"], g["a"], graph_of(g), "tanh"),
            compiles=False,
        ),
        "scores of heads": Route(
            {**HEADED, "a": (HEADS, WIDTH)},
            lambda g: head_scores(g["query"], g["key"], g["a"], graph_of(g), "leaky_relu(0.2)"),
        ),
        "dot products": Route(HEADED, lambda g: dot_scores(g["query"], g["key"], graph_of(g))),
        "softmax": Route({"scores": (EDGES, HEADS)}, lambda g: edge_softmax(g["scores"], graph_of(g)), compiles=False),
        "attention": Route(
            {"scores": (EDGES, HEADS), "value": (NODES, HEADS, WIDTH)},
            lambda g: attend(g["scores"], g["value"], graph_of(g)),
        ),
    }


def _parts() -> dict[str, Route]:
    big = {"x": (512, 64), "weight": (64, 64), "bias": (64,)}
    return {
        "linear layer": Route(big, lambda g: linear(g["x"], g["weight"], g["bias"]), ()),
        "rows of a table": Route(
            {"table": (TYPES, WIDTH)}, lambda g: look_up(g["table"], g["categories"]), ("categories",)
        ),
        "weighted batch norm": Route({**X, "share": (NODES,), "gamma": (WIDTH,), "beta": (WIDTH,)}, normed, (), False),
        "weighted sum": Route({**X, **WEIGHT}, lambda g: weighted_sum(g["x"], graph_of(g), "sym", g["edge_weight"])),
        "maximum": Route(X, lambda g: maximum(g["x"], graph_of(g))),
        "deviation": Route(X, lambda g: deviation(g["x"], graph_of(g), 1e-5)),
        "pairs of kinds": Route(
            {"of_target": (TYPES, WIDTH), "of_source": (TYPES, WIDTH), **WEIGHT, "1.weight": (WIDTH, WIDTH)},
            by_pairs,
            ("edge_index", "categories"),
            compiles=False,
        ),
    }


def _networks() -> dict[str, Route]:
    weight = {"blocks.1.conv.lin_key.weight": (WIDTH, WIDTH)}
    return {
        "network of categories": Route(weight, net(), ("edge_index", "categories")),
        "network of categories, typed edges": Route(
            weight, net(edge_encoder="embedding", edge_channels=TYPES), ("edge_index", "categories", "edge_type")
        ),
    }


def _others() -> dict[str, Route]:
    """The other convolutions of the tables."""
    found = {}
    for name, entry in CONVS.items():
        if name == "sir":
            continue
        width = WIDTH * (2 if entry.heads > HEADS else 1)

        def call(given: Given, name: str = name, width: int = width) -> Tensor:
            conv = of_weights(given, lambda: make_conv(name, WIDTH, width))
            more = {"first": torch.ones_like(given["x"])} if name == "fagcn" else {}
            out: Tensor = conv(given["x"], graph_of(given), **more)
            return out

        found[name] = Route(X, call)
    return found | _gated_edges()


def _gated_edges() -> dict[str, Route]:
    """Gates that read edge features, and that pass them on."""

    def gated(name: str, **options: Any) -> Callable[[Given], Tensor]:
        def call(given: Given) -> Tensor:
            conv = of_weights(given, lambda: make_conv(name, WIDTH, WIDTH, edge_dim=WIDTH, **options))
            out: Any = conv(given["x"], graph_of(given), edge_of(given))
            return torch.cat(out) if isinstance(out, tuple) else out

        return call

    return {
        "gated_gcn, dense edges": Route({**X, **DENSE}, gated("gated_gcn")),
        "gated_gcn, typed edges": Route({**X, **TABLE}, gated("gated_gcn"), TYPED),
        "gated_gcn, edges passed on": Route({**X, **DENSE}, gated("gated_gcn", passes_edges=True)),
        "res_gated, dense edges": Route({**X, **DENSE}, gated("res_gated")),
        "res_gated, typed edges": Route({**X, **TABLE}, gated("res_gated"), TYPED),
    }


ROUTES: dict[str, Route] = {
    **{
        f"{backend}, {form}": Route({**NODE, **terms, **WEIGHT}, aggregate(backend, "silu", "sym"), indices)
        for backend in BACKENDS
        for form, terms, indices in (
            ("dense edges", DENSE, ("edge_index",)),
            ("typed edges", TABLE, TYPED),
        )
    },
    **{f"{backend}, mean": Route(NODE, aggregate(backend, "relu", "mean")) for backend in BACKENDS},
    **{
        f"{backend}, gated, {form}": Route({**NODE, **VALUE, **terms, **WEIGHT}, gated(backend, sigma, reduce), indices)
        for backend in BACKENDS
        for form, terms, sigma, reduce, indices in (
            ("dense edges", DENSE, "silu", "sym", ("edge_index",)),
            ("typed edges", TABLE, "sigmoid", "gates", TYPED),
        )
    },
    "gated, columns of one matrix": Route({"stacked": (NODES, 4 * WIDTH)}, stacked),
    **{
        f"C network, {reduce}": Route(
            {**NODE, **TABLE, "1.weight": (WIDTH, WIDTH), "1.bias": (WIDTH,)},
            tiled(relu_linear, "1.weight", "1.bias", reduce=reduce),
            TYPED,
        )
        for reduce in ("sum", "sym", "max")
    },
    "C network, dense edges": Route(
        {**NODE, **DENSE, "1.weight": (WIDTH, WIDTH)}, tiled(relu_linear, "1.weight", reduce="mean")
    ),
    **{
        f"tiles, {reduce}": Route({**NODE, **TABLE}, tiled(mlp, reduce=reduce, tile=7), TYPED)
        for reduce in ("sym", "max")
    },
    "tiles, dense edges": Route({**NODE, **DENSE, **WEIGHT}, tiled(mlp, tile=7)),
    "tiles, ends side by side": Route({**NODE, **DENSE}, tiled(wide, combine="cat", tile=7)),
    "tiles, max, ends side by side": Route({**NODE, **TABLE}, tiled(wide, combine="cat", tile=7, reduce="max"), TYPED),
    **{f"one tile, {reduce}": Route({**NODE, **DENSE}, tiled(mlp, reduce=reduce)) for reduce in ("mean", "max")},
    **_convolutions(),
    **_attention(),
    **_parts(),
    **_networks(),
    **_others(),
}
"""All routes by name."""

if native.UNAVAILABLE is not None:
    ROUTES = {name: route for name, route in ROUTES.items() if name != "softmax"}
