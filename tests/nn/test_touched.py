"""Networks whose parts a user replaced, hooked or overrode: the same as on the plainest route, which calls every part.

Outputs, gradients of all parameters, running statistics and what hooks are shown are compared, in float64.
"""

import copy
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as globally
from torch.nn.utils import parametrizations, parametrize, prune

from sirgcn.nn import SIRConv, SIRNet, SIRReadout
from sirgcn.nn.convs import CONVS
from sirgcn.nn.dropout import Dropout
from sirgcn.nn.encoder import CategoricalEncoder
from sirgcn.ops import native
from tests.nn.fuzz import parts
from tests.nn.fuzz.actions import called_modules, shapes
from tests.nn.fuzz.draw import Case
from tests.nn.fuzz.outcome import Outcome, difference, outcome
from tests.nn.fuzz.replace import LINEAR, SIGMA, is_per_edge, put
from tests.nn.fuzz.routes import fastest, plainest

pytestmark = [
    pytest.mark.skipif(native.UNAVAILABLE is not None, reason=str(native.UNAVAILABLE)),
    # Of a module whose inputs are categories.
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
]

GRAPHS, SIZE, ATOMS, BONDS, WIDTH = 40, 4, 3, 2, 8
NODES, EDGES = GRAPHS * SIZE, GRAPHS * 2 * (SIZE - 1)

Touch = Callable[[Any], Any]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors are so small that a second thread would only wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def molecules() -> dict[str, Any]:
    """Many small trees with few kinds of nodes and edges."""
    generator = torch.Generator().manual_seed(0)
    edges, bonds = [], []
    for first in range(0, NODES, SIZE):
        for v in range(1, SIZE):
            parent = first + int(torch.randint(max(0, v - 2), v, (1,), generator=generator))
            edges += [(first + v, parent), (parent, first + v)]
            bonds += [int(torch.randint(BONDS, (1,), generator=generator))] * 2
    return {
        "x": torch.randint(ATOMS, (NODES,), generator=generator),
        "edge_index": torch.tensor(edges).t().contiguous(),
        "edge_attr": torch.tensor(bonds),
        "batch": torch.arange(GRAPHS).repeat_interleave(SIZE),
        "batch_size": GRAPHS,
    }


OPTIONS: dict[str, dict[str, Any]] = {
    "kinds": {"encoder_act": "tanh", "head_channels": (6,)},
    "skip": {"block": "skip", "norm": "layer", "aggr": "sym", "pool": None},
    "pairs": {"sigma_layers": 1, "aggr": "mean", "edge_channels": None, "edge_encoder": "none"},
    "max": {"aggr": "max"},
    "gated_gcn": {"conv": "gated_gcn"},
    **{name: {"conv": name, "edge_channels": None, "edge_encoder": "none"} for name in ("gcn", "sage", "pna", "egc_m")},
}


def make_net(name: str) -> SIRNet:
    """A network in which a fast route is taken as long as nobody touches it."""
    return copy.deepcopy(built_net(name))


@functools.cache
def built_net(name: str) -> SIRNet:
    torch.default_generator.manual_seed(0)
    common: dict[str, Any] = {"encoder": "embedding", "pool": "sum", "readout_layers": 2, "act": "gelu"}
    if "conv" not in OPTIONS[name]:
        common["activation"] = "gelu"
    edges = {"edge_channels": [BONDS], "edge_encoder": "embedding"}
    net = SIRNet.of(ATOMS, WIDTH, 2, 2, **{**common, **edges, **OPTIONS[name]}).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    return net


def given_to(net: nn.Module) -> dict[str, Any]:
    """The batch that a network takes."""
    has_edges = not isinstance(net, SIRNet) or net.edge_dim is not None
    return {name: value for name, value in molecules().items() if has_edges or name != "edge_attr"}


def assert_as_on_the_plainest_route(
    make: Callable[[], nn.Module], touch: Touch, prepare: Touch = nn.Module.train
) -> Outcome:
    """The network as the user has it and a twin on the plainest route agree; gives what the former gave."""

    def run(is_plain: bool) -> Outcome:
        net = make()
        torch.default_generator.manual_seed(1)
        seen: list[str] = []
        net.__dict__["seen"] = seen
        handle = touch(net)
        net.double()
        prepare(net)
        case = Case(net, given_to(net), [], is_plain=is_plain, seen=seen)
        try:
            return outcome(case, seed=2)
        finally:
            if hasattr(handle, "remove"):
                handle.remove()

    with plainest():
        expected = run(is_plain=True)
    found = run(is_plain=False)
    said = difference(found, expected, Case(nn.Module(), {}, []))
    assert said is None, said
    return found


@pytest.mark.parametrize(
    ("name", "route"),
    [
        ("kinds", "kinds"),
        ("kinds", "batch norm of kinds"),
        ("kinds", "table of edges"),
        ("skip", "kinds"),
        ("pairs", "pairs of kinds"),
        ("max", "linear messages in C"),
        *((name, "rows of a table") for name in ("gated_gcn", "gcn", "sage", "pna", "egc_m")),
    ],
)
def test_an_untouched_network_takes_its_fast_route(name: str, route: str) -> None:
    taken: Counter[str] = Counter()
    net = make_net(name)
    with fastest(taken, has_small_tiles=False, is_compiled=False):
        net(**given_to(net))
    assert taken[route] > 0


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_an_untouched_network(name: str, training: bool) -> None:
    assert_as_on_the_plainest_route(lambda: make_net(name), lambda net: None, lambda net: net.train(training))


# Replaced parts


def linears(name: str) -> list[str]:
    return [part for part, module in built_net(name).named_modules() if isinstance(module, LINEAR)]


STAND_INS = [
    # In place, torch refuses the backward pass on either route; see below.
    *(("kinds", "blocks.0.conv.lin_query", name) for name in parts.stand_ins(nn.Linear(1, 1)) if "place" not in name),
    *(("kinds", part, "Sequential(old, BatchNorm1d)") for part in linears("kinds")),
    *(("kinds", part, "Lora with dropout") for part in linears("kinds")),
    *(
        (name, part, "Sequential(old, BatchNorm1d)")
        for name in OPTIONS
        for part in linears(name)
        if name != "kinds" and "blocks.0.conv." in part and not is_per_edge(built_net(name), part)
    ),
]


@pytest.mark.parametrize(("name", "part", "stand_in"), STAND_INS)
def test_a_linear_layer_that_was_replaced(name: str, part: str, stand_in: str) -> None:
    def touch(net: SIRNet) -> None:
        put(net, part, parts.stand_ins(net.get_submodule(part))[stand_in]())

    assert_as_on_the_plainest_route(lambda: make_net(name), touch)


@pytest.mark.parametrize("option", parts.EMBEDDINGS)
@pytest.mark.parametrize("part", ["encoder.embeddings.0", "edge_encoder.embeddings.0"])
def test_an_embedding_that_was_replaced(part: str, option: str) -> None:
    def touch(net: SIRNet) -> None:
        old: Any = net.get_submodule(part)
        put(net, part, nn.Embedding(old.num_embeddings + (option == "more rows"), WIDTH, **parts.EMBEDDINGS[option]))

    assert_as_on_the_plainest_route(lambda: make_net("kinds"), touch)


def set_part(name: str, make: Callable[[Any], nn.Module]) -> Touch:
    """Put a module, made from the old one, in its place."""
    return lambda net: put(net, name, make(net.get_submodule(name)))


def each_of(table: dict[str, Callable[[int], nn.Module]], name: str) -> dict[str, Touch]:
    """Every part of a table in the place of a module."""

    def touch(make: Callable[[int], nn.Module]) -> Touch:
        return set_part(name, lambda old: make(WIDTH))

    return {f"{name} = {part}": touch(make) for part, make in table.items()}


def set_on_conv(name: str, value: Callable[[], Any]) -> Touch:
    """Set an attribute of the first layer."""
    return lambda net: setattr(net.blocks[0].conv, name, value())


REPLACED: dict[str, Touch] = {
    **each_of(parts.ACTIVATIONS, "encoder_act"),
    **each_of(parts.ACTIVATIONS, "blocks.0.act"),
    **each_of(parts.NORMS, "blocks.1.norm"),
    **each_of(parts.DROPOUTS, "blocks.0.dropout"),
    **each_of(parts.DROPOUTS, "input_dropout"),
    **each_of(parts.DROPOUTS, "blocks.0.residual.1"),
    "residual = Wrapper": set_part("blocks.0.residual", parts.Wrapper),
    "residual = its linear layer": set_part("blocks.0.residual", lambda old: old[0]),
    "residual of three": set_part("blocks.0.residual", lambda old: nn.Sequential(*old, nn.BatchNorm1d(WIDTH))),
    "encoder = Wrapper": set_part("encoder", parts.Wrapper),
    "encoder = subclass": set_part("encoder", lambda old: parts.ScaledEncoder(ATOMS, WIDTH)),
    "edge_encoder = Wrapper": set_part("edge_encoder", parts.Wrapper),
    "edge_encoder = subclass": set_part("edge_encoder", lambda old: parts.ScaledEncoder(BONDS, WIDTH)),
    "edge_encoder = Embedding": set_part("edge_encoder", lambda old: nn.Embedding(BONDS, WIDTH)),
    "readout = subclass": set_part("readout", lambda old: parts.CentredReadout(old.network)),
    "readout = Wrapper": set_part("readout", parts.Wrapper),
    "readout.network of a batch norm": set_part(
        "readout.network", lambda old: nn.Sequential(nn.BatchNorm1d(WIDTH), *old)
    ),
    "readout.network = in place": set_part("readout.network", lambda old: nn.Sequential(nn.ReLU(inplace=True), *old)),
    "head of a dropout": set_part("head", lambda old: nn.Sequential(nn.Dropout(0.3), *old)),
    "last_norm": set_part("last_norm", lambda old: nn.BatchNorm1d(WIDTH)),
    "feed_forward": set_part("feed_forwards.0", lambda old: nn.BatchNorm1d(WIDTH)),
    "block = subclass": lambda net: setattr(net.blocks[0], "__class__", parts.ScaledBlock),
    "conv with fused=False": set_on_conv("fused", lambda: False),
    "conv with a residual": set_on_conv("lin_residual", lambda: nn.Sequential(nn.BatchNorm1d(WIDTH))),
    **{f"aggr_module = {part}": set_on_conv("aggr_module", make) for part, make in parts.AGGREGATIONS.items()},
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("case", REPLACED)
def test_a_part_that_was_replaced(case: str, training: bool) -> None:
    assert_as_on_the_plainest_route(lambda: make_net("kinds"), REPLACED[case], lambda net: net.train(training))


def doubled(ours: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args, **kwargs: 2 * ours(*args, **kwargs)


def of_types(name: str, *types: type) -> list[tuple[str, str]]:
    return [(name, part) for part, module in built_net(name).named_modules() if isinstance(module, types)]


WITH_FORWARD = [
    *of_types("kinds", *LINEAR, *SIGMA, nn.BatchNorm1d, nn.Embedding, nn.Dropout, nn.Sequential, CategoricalEncoder),
    *of_types("pairs", nn.Linear, *SIGMA),
    *of_types("max", *SIGMA),
    *of_types("gcn", nn.Dropout),
]


@pytest.mark.parametrize(("name", "part"), WITH_FORWARD)
def test_a_forward_that_was_set_on_an_instance(name: str, part: str) -> None:
    def touch(net: SIRNet) -> None:
        module = net.get_submodule(part)
        module.forward = doubled(module.forward)

    assert_as_on_the_plainest_route(lambda: make_net(name), touch)


# Weights that are computed


WAYS: dict[str, Callable[[nn.Module], Any]] = {
    "parametrize": lambda module: parametrize.register_parametrization(module, "weight", parts.Halved()),
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "old weight_norm": torch.nn.utils.weight_norm,
    "old spectral_norm": torch.nn.utils.spectral_norm,
    "prune": lambda module: prune.l1_unstructured(module, "weight", 0.4),
    "prune for good": lambda module: prune.remove(prune.l1_unstructured(module, "weight", 0.4), "weight"),
    "freeze": lambda module: module.requires_grad_(False),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "part",
    ["encoder.embeddings.0", "edge_encoder.embeddings.0", "blocks.0.residual.0"]
    + [f"blocks.0.conv.lin_{name}" for name in ("query", "key", "edge", "relation")],
)
def test_weights_that_are_computed(part: str, way: str) -> None:
    assert_as_on_the_plainest_route(lambda: make_net("kinds"), lambda net: WAYS[way](net.get_submodule(part)) and None)


# Hooks


KINDS_OF_HOOKS = ("forward", "forward_pre", "full_backward", "full_backward_pre")
HOOKED = [
    (name, part)
    for name in ("kinds", "pairs", "max", "gated_gcn", "pna")
    for part in called_modules(built_net(name))
    if name == "kinds" or "blocks.0.conv." in part
]


@pytest.mark.parametrize(("name", "part"), HOOKED)
def test_hooks_are_called_with_all_rows_and_may_change_them(name: str, part: str) -> None:
    def touch(net: SIRNet) -> None:
        def note(kind: str, *values: Any) -> Any:
            value = values[1 if kind == "full_backward" else -1]
            net.__dict__["seen"].append(f"{kind} {shapes(value)}")
            return parts.changed(value, parts.CHANGES["doubled"])

        for kind in KINDS_OF_HOOKS:
            getattr(net.get_submodule(part), f"register_{kind}_hook")(functools.partial(note, kind))

    found = assert_as_on_the_plainest_route(lambda: make_net(name), touch)
    assert {seen.split()[0] for seen in found.seen} >= {"forward", "forward_pre"}
    # The network itself is called with names, which hooks are not shown.
    for seen in found.seen if part else []:
        rows = seen.split()[1].strip("[],")
        # Categories have no gradient.
        assert rows == "NoneType" or int(rows) in (NODES, EDGES, GRAPHS), seen


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_global_hook_is_called_for_every_module(name: str, kind: str) -> None:
    def touch(net: SIRNet) -> Any:
        def note(module: nn.Module, *values: Any) -> None:
            net.__dict__["seen"].append(f"{type(module).__name__} {shapes(values[-1])}")

        return getattr(globally, f"register_module_{kind}_hook")(note)

    found = assert_as_on_the_plainest_route(lambda: make_net(name), touch)
    assert any("Linear" in seen for seen in found.seen)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sirgcn.ops.tiled._MIN_TILE", 16)
    monkeypatch.setattr("sirgcn.ops.tiled._TILE_ELEMENTS", 1)


@pytest.mark.usefixtures("small_tiles")
def test_the_gradient_of_a_weight_is_shown_to_its_hook_once() -> None:
    def touch(net: nn.Module) -> None:
        def double(grad: Tensor) -> Tensor:
            net.__dict__["seen"].append("a gradient")
            return 2 * grad

        net.get_parameter("conv.activation.0.weight").register_hook(double)

    assert assert_as_on_the_plainest_route(lambda: make_layer(SIRConv, "network"), touch).seen == ["a gradient"]


@pytest.mark.usefixtures("small_tiles")
def test_a_hook_on_a_gate_is_shown_all_edges() -> None:
    def touch(net: SIRNet) -> None:
        gate = net.get_submodule("blocks.0.conv.gate")
        gate.register_forward_hook(lambda module, given, out: net.__dict__["seen"].append(shapes(out)))

    assert assert_as_on_the_plainest_route(lambda: make_net("gated_gcn"), touch).seen == [f"[{EDGES}, {2 * WIDTH}]"]


# Overrides


CONV_OPTIONS: dict[str, dict[str, Any]] = {
    "sum": {},
    "mean": {"aggr": "mean"},
    "sym": {"aggr": "sym"},
    "max": {"aggr": "max"},
    "network": {"activation": nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())},
}
X = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


class Called(nn.Module):
    """A layer on features, with the batch of the networks."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, edge_index: Tensor, **others: Any) -> Tensor:
        out: Tensor = self.conv(X, edge_index)
        return out


def make_layer(cls: Callable[..., SIRConv], options: str) -> nn.Module:
    torch.default_generator.manual_seed(0)
    return Called(cls(WIDTH, WIDTH, **CONV_OPTIONS[options])).double()


@pytest.mark.parametrize("options", CONV_OPTIONS)
@pytest.mark.parametrize("cls", parts.OWN_CONVS)
def test_a_subclass_that_overrides_a_step(cls: type[SIRConv], options: str) -> None:
    found = assert_as_on_the_plainest_route(lambda: make_layer(cls, options), lambda net: None)
    plain = assert_as_on_the_plainest_route(lambda: make_layer(SIRConv, options), lambda net: None)
    is_same = torch.allclose(found.values["output"], plain.values["output"])  # type: ignore[arg-type]
    assert is_same == (cls is parts.OwnEdgeUpdate)


@pytest.mark.parametrize("cls", parts.OWN_CONVS)
def test_a_layer_of_a_network_that_became_a_subclass(cls: type[SIRConv]) -> None:
    assert_as_on_the_plainest_route(
        lambda: make_net("kinds"), lambda net: setattr(net.blocks[0].conv, "__class__", cls)
    )


@pytest.mark.parametrize("options", CONV_OPTIONS)
@pytest.mark.parametrize(
    "step", ["message", "aggregate", "update", "propagate", "message_and_aggregate", "edge_update"]
)
def test_a_step_that_was_set_on_an_instance(step: str, options: str) -> None:
    def touch(net: Any) -> None:
        setattr(net.conv, step, doubled(getattr(net.conv, step)))

    found = assert_as_on_the_plainest_route(lambda: make_layer(SIRConv, options), touch)
    plain = assert_as_on_the_plainest_route(lambda: make_layer(SIRConv, options), lambda net: None)
    is_same = torch.allclose(found.values["output"], plain.values["output"])  # type: ignore[arg-type]
    # PyG calls the one for sparse matrices only, and the other not from `propagate`.
    assert is_same == (step in ("message_and_aggregate", "edge_update"))


@pytest.mark.parametrize("step", ["message", "aggregate", "update", "propagate"])
def test_a_step_of_a_network_s_layer_that_was_set_on_the_instance(step: str) -> None:
    def touch(net: SIRNet) -> None:
        conv: Any = net.blocks[1].conv
        setattr(conv, step, doubled(getattr(conv, step)))

    assert_as_on_the_plainest_route(lambda: make_net("kinds"), touch)


@pytest.mark.parametrize("options", CONV_OPTIONS)
@pytest.mark.parametrize("part", ["activation", "aggr_module"])
def test_the_forward_of_sigma_and_of_the_aggregation(part: str, options: str) -> None:
    def touch(net: Any) -> None:
        module = getattr(net.conv, part)
        module.forward = doubled(module.forward)

    assert_as_on_the_plainest_route(lambda: make_layer(SIRConv, options), touch)


@pytest.mark.parametrize("options", CONV_OPTIONS)
@pytest.mark.parametrize("part", ["activation", "aggr_module"])
def test_a_hook_on_sigma_is_shown_all_edges(part: str, options: str) -> None:
    def touch(net: Any) -> None:
        hook = lambda module, given, out: net.__dict__["seen"].append(shapes(given[:1]))  # noqa: E731
        getattr(net.conv, part).register_forward_hook(hook)

    found = assert_as_on_the_plainest_route(lambda: make_layer(SIRConv, options), touch)
    assert found.seen == [f"[{EDGES}, {WIDTH}]"]


@pytest.mark.parametrize(("conv", "cls"), [("gcn", parts.OwnConvolve), ("sage", parts.OwnSage)])
def test_a_subclass_of_another_convolution(conv: str, cls: type[nn.Module]) -> None:
    assert_as_on_the_plainest_route(lambda: make_net(conv), lambda net: setattr(net.blocks[0].conv, "__class__", cls))


# Dropout where none was, in place, and pairs


@pytest.mark.parametrize("part", parts.DROPOUTS)
@pytest.mark.parametrize("name", sorted(set(CONVS) & set(OPTIONS)))
def test_the_dropout_of_another_convolution_that_was_replaced(name: str, part: str) -> None:
    touch = set_part("blocks.0.conv.dropout", lambda old: parts.DROPOUTS[part](WIDTH))
    assert_as_on_the_plainest_route(lambda: make_net(name), touch)


def test_the_dropout_of_another_convolution_that_is_left_on_in_evaluation() -> None:
    def prepare(net: SIRNet) -> None:
        net.eval()
        conv: Any = net.blocks[0].conv
        conv.dropout.train()

    touch = set_part("blocks.0.conv.dropout", lambda old: Dropout(0.5))
    found = assert_as_on_the_plainest_route(lambda: make_net("gcn"), touch, prepare)
    without = assert_as_on_the_plainest_route(lambda: make_net("gcn"), lambda net: None, nn.Module.eval)
    assert not torch.equal(found.values["output"], without.values["output"])  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["encoder_act", "blocks.0.act", "blocks.0.conv.lin_query", "readout.network"])
def test_an_activation_in_place_writes_into_no_weight(part: str) -> None:
    net = make_net("skip" if part == "readout.network" else "kinds").eval()
    if part == "readout.network":
        part = "readout"
    net.encoder_act = nn.Identity()
    put(net, part, nn.Sequential(nn.ReLU(inplace=True), net.get_submodule(part)))
    before = {name: weight.detach().clone() for name, weight in net.named_parameters()}
    with torch.no_grad():
        net(**given_to(net))
    for name, weight in net.named_parameters():
        assert torch.equal(weight, before[name]), name


@pytest.mark.parametrize("stand_in", ["BatchNorm1d", "hook", "scale_grad_by_freq"])
def test_the_encoder_of_a_pair_of_edge_features(stand_in: str) -> None:
    data = dict(molecules())
    table = torch.randn(BONDS, 3, dtype=torch.float64)
    torch.default_generator.manual_seed(0)
    options: dict[str, Any] = {"edge_channels": 3, "edge_encoder": "linear", "pool": "sum"}
    net = SIRNet.of(ATOMS, WIDTH, 2, 2, encoder="embedding", **options).double()
    rows: list[int] = []
    if stand_in == "BatchNorm1d":
        put(net, "edge_encoder", nn.Sequential(net.get_submodule("edge_encoder"), nn.BatchNorm1d(WIDTH)))
    elif stand_in == "hook":
        net.get_submodule("edge_encoder").register_forward_hook(lambda module, given, out: rows.append(len(out)))
    else:
        table = torch.arange(BONDS).unsqueeze(1)
        put(net, "edge_encoder", CategoricalEncoder(BONDS, WIDTH))
        put(net, "edge_encoder.embeddings.0", nn.Embedding(BONDS, WIDTH, scale_grad_by_freq=True))
    kind = data.pop("edge_attr")
    found = []
    for edge_attr in ((table, kind), table.index_select(0, kind)):
        net.zero_grad()
        out = net(**data, edge_attr=edge_attr)
        out.sum().backward()
        found.append([out.detach(), *(p.grad for p in net.parameters() if p.grad is not None)])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
    assert rows == ([EDGES, EDGES] if stand_in == "hook" else [])


def test_a_readout_that_was_subclassed_is_given_rows() -> None:
    given: list[Any] = []

    class Looking(SIRReadout):
        def forward(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
            given.append(x)
            return super().forward(x, *args, **kwargs)

    net = make_net("kinds")
    net.readout.__class__ = Looking
    net(**given_to(net))
    assert isinstance(given[0], Tensor)
    assert given[0].shape == (NODES, WIDTH)
