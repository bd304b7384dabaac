"""The laws of `sirgcn.testing` hold for our own layers and backends; each fails for what breaks it."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv

from sirgcn import SIRConv
from sirgcn.ops import reference
from sirgcn.ops.aggregate import BACKENDS, Backend, backends
from sirgcn.strict import ConfigError
from sirgcn.testing import (
    BACKEND_LAWS,
    LAYER_LAWS,
    RICH,
    assert_backend_equals_reference,
    assert_backend_laws,
    assert_bipartite,
    assert_equals_plain,
    assert_gradients,
    assert_layer_laws,
    assert_repeats,
    assert_same,
    inputs,
)
from sirgcn.testing import BACKENDS as AVAILABLE

# Layers


class Contextual(nn.Module):
    """max(0, W_Q h_u + W_K h_v) summed over the edges; a subclass breaks a law."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(3, 4), nn.Linear(3, 4)

    def forward(self, x: Any, edge_index: Tensor) -> Tensor:
        sources, targets = x if isinstance(x, tuple) else (x, x)
        source, target = edge_index
        messages = self.messages(self.query(targets)[target], self.key(sources)[source])
        return messages.new_zeros(len(targets), 4).index_add(0, target, messages)

    def messages(self, query: Tensor, key: Tensor) -> Tensor:
        return (query + key).relu()


class Backwards(Contextual):
    def forward(self, x: Any, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index.flip(0))


class FirstEdgeCountsMore(Contextual):
    def messages(self, query: Tensor, key: Tensor) -> Tensor:
        return super().messages(query, key) * torch.arange(len(query), 0, -1).unsqueeze(1)


class LooksAtAllNodes(Contextual):
    def forward(self, x: Any, edge_index: Tensor) -> Tensor:
        out = super().forward(x, edge_index)
        return out - out.mean(0)


class DropsRepeatedEdges(Contextual):
    def forward(self, x: Any, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index.unique(dim=1))


class MeanWithoutNeighbors(Contextual):
    def forward(self, x: Any, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) / torch.bincount(edge_index[1], minlength=len(x)).unsqueeze(1)


class Doubled(torch.autograd.Function):
    """The identity, with a wrong derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * grad


class WrongGradient(Contextual):
    def messages(self, query: Tensor, key: Tensor) -> Tensor:
        found: Tensor = Doubled.apply(super().messages(query, key))  # type: ignore[no-untyped-call]
        return found


class Noisy(Contextual):
    def messages(self, query: Tensor, key: Tensor) -> Tensor:
        return super().messages(query, key) + 1e-5 * torch.randn_like(query)


class Flattened(Contextual):
    def forward(self, x: Any, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index).flatten()


class ReadsTargetsTwice(Contextual):
    def forward(self, x: Any, edge_index: Tensor) -> Tensor:
        if not isinstance(x, tuple):
            return super().forward(x, edge_index)
        sources, targets = x
        return super().forward((torch.zeros_like(sources), targets), edge_index)


BREAKS: list[tuple[str, type[nn.Module]]] = [
    ("finite", MeanWithoutNeighbors),
    ("finite", Flattened),
    ("order", FirstEdgeCountsMore),
    ("neighbours", Backwards),
    ("neighbours", LooksAtAllNodes),
    ("isolated nodes", LooksAtAllNodes),
    ("repeated edges", DropsRepeatedEdges),
    ("batch", LooksAtAllNodes),
    ("gradients", WrongGradient),
    ("repeats", Noisy),
]


def test_a_right_layer_keeps_all_laws() -> None:
    assert_layer_laws(Contextual, 3, plain=Contextual, bipartite=True)


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_the_layer_of_this_library_keeps_all_laws(aggr: str) -> None:
    def plain() -> nn.Module:
        return SIRConv(3, 4, 5, aggr=aggr, fused=False)

    assert_layer_laws(lambda: SIRConv(3, 4, 5, aggr=aggr), 3, plain=plain, bipartite=True, examples=10)


def test_the_layers_of_pyg_keep_the_laws() -> None:
    assert_layer_laws(lambda: GATv2Conv(3, 4, add_self_loops=False), 3, bipartite=True, examples=10)


def test_a_layer_that_weighs_by_the_degree_of_the_source_breaks_the_law_of_repeated_edges() -> None:
    others = [law for law in LAYER_LAWS if law != "repeated edges"]
    assert_layer_laws(lambda: SIRConv(3, 4, 5, aggr="sym"), 3, others, bipartite=True, examples=10)
    with pytest.raises(AssertionError, match=r"^repeated edges: "):
        assert_layer_laws(lambda: SIRConv(3, 4, 5, aggr="sym"), 3, ["repeated edges"])


@pytest.mark.parametrize(("law", "layer"), BREAKS)
def test_a_wrong_layer_breaks_its_law(law: str, layer: type[nn.Module]) -> None:
    with pytest.raises(AssertionError, match=f"^{law}: "):
        assert_layer_laws(layer, 3, [law])


def test_every_law_of_layers_has_a_layer_that_breaks_it() -> None:
    assert {law for law, _ in BREAKS} == set(LAYER_LAWS)


def test_a_fast_layer_that_differs_from_its_plain_form_is_found() -> None:
    for wrong in (WrongGradient, Backwards):
        with pytest.raises(AssertionError, match=r"^plain: "):
            assert_equals_plain(wrong, Contextual, 3)


def test_a_layer_that_mixes_up_two_sets_of_nodes_is_found() -> None:
    with pytest.raises(AssertionError, match=r"^bipartite: "):
        assert_bipartite(ReadsTargetsTwice, 3)


def test_the_laws_leave_the_random_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert_layer_laws(Contextual, 3, ["order"], examples=2)
    assert torch.equal(torch.get_rng_state(), before)


# Backends

Change = Callable[[Any], Any]
REFERENCE = BACKENDS["reference"]


def of_forward(change: Change) -> Backend:
    """The reference with another output (values, slopes) of the forward pass."""
    return replace(REFERENCE, forward=lambda *given: change(reference.forward(*given)))


def of_backward(change: Change) -> Backend:
    """The reference with other gradients (key, edge, edge weight)."""
    return replace(REFERENCE, backward=lambda *given: change(reference.backward(*given)))


def unweighted(query: Tensor, key: Tensor, neighbors: Any, terms: Any, activation: Any, save: bool) -> Any:
    return reference.forward(query, key, neighbors, terms._replace(edge_weight=None), activation, save)


def noisy(found: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
    return found[0] + 1e-5 * torch.randn_like(found[0]), found[1]


def halved(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor / 2


WRONG: list[tuple[str, Backend]] = [
    ("reference", replace(REFERENCE, forward=unweighted)),
    ("reference", of_forward(lambda found: (found[0], halved(found[1])))),
    ("reference", of_backward(lambda found: (halved(found[0]), *found[1:]))),
    ("reference", of_backward(lambda found: (found[0], halved(found[1]), found[2]))),
    ("gradients", of_backward(lambda found: (*found[:2], halved(found[2])))),
    ("repeats", of_forward(noisy)),
    ("isolated nodes", of_forward(lambda found: (found[0] + 0.5, found[1]))),
]


@pytest.mark.parametrize("backend", AVAILABLE)
def test_the_backends_of_this_library_keep_all_laws(backend: str) -> None:
    assert_backend_laws(backend)


@pytest.mark.parametrize(("law", "backend"), WRONG)
def test_a_wrong_backend_breaks_its_law(law: str, backend: Backend) -> None:
    with pytest.raises(AssertionError, match=f"^{law}: "):
        assert_backend_laws(backend, [law])


def test_every_law_of_backends_has_a_backend_that_breaks_it() -> None:
    assert {law for law, _ in WRONG} == set(BACKEND_LAWS)


def test_a_backend_under_test_leaves_the_table_as_it_was() -> None:
    before = backends()
    assert_backend_laws(of_forward(lambda found: found), ["isolated nodes"])
    with pytest.raises(AssertionError, match=r"^reference: "):
        assert_backend_equals_reference(WRONG[0][1])
    assert backends() == before


# Names and parts


def test_an_unknown_law_or_backend_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"laws: expected one of finite, .*got 'gradient'; did you mean gradients\?"):
        assert_layer_laws(Contextual, 3, ["gradient"])
    with pytest.raises(ConfigError, match=r"laws: expected one of reference, .*got 'repeat'; did you mean repeats\?"):
        assert_backend_laws("reference", ["repeat"])
    with pytest.raises(ConfigError, match=r"backend: expected one of native, .*got 'refrence'; did you mean reference"):
        assert_backend_laws("refrence")


def test_the_assertions_fail_for_what_they_are_named_after() -> None:
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    assert_gradients(torch.exp, [x])
    with pytest.raises(AssertionError, match=r"^gradients: the gradient is not that of finite differences"):
        assert_gradients(Doubled.apply, [x])
    with pytest.raises(AssertionError, match=r"^repeats: tensor 0 of run 2 differs"):
        assert_repeats(lambda: [torch.rand(3)])
    with pytest.raises(AssertionError, match=r"^mine\nTensor-likes are not close"):
        assert_same([torch.zeros(1)], [torch.ones(1)], law="mine")
    with pytest.raises(AssertionError):
        assert_same([torch.zeros(1)], [torch.zeros(1), torch.zeros(1)])


@pytest.mark.parametrize("form", ["none", "dense", "table"])
def test_inputs_take_other_leaves_in_the_order_of_their_own(form: str) -> None:
    given = inputs(RICH, form, weighted=True)
    others = [leaf.detach() + i for i, leaf in enumerate(given.leaves())]
    assert all(a is b for a, b in zip(given.with_leaves(others).leaves(), others, strict=True))


def test_without_hypothesis_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; import sirgcn.testing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ImportError: sirgcn.testing draws its graphs with hypothesis: pip install hypothesis" in done.stderr
