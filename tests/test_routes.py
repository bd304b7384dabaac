"""What holds on every route from tensors to an aggregation, whatever tensors a user brings.

The routes stand in `tests/routes.py`; each law goes over all of them and over each of their inputs.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torch_geometric import EdgeIndex, Index

from tests.routes import NODES, ROUTES, Given, Route, graph_of

REFUSALS = (TypeError, ValueError, RuntimeError, NotImplementedError, IndexError)
"""How a call may say no; a segmentation fault or another result is none of them."""

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-4}

every_route = pytest.mark.parametrize("name", ROUTES)


def run(route: Route, given: Given, cotangent: Tensor | None = None, before: Callable[[], Any] = int) -> list[Tensor]:
    """The output, and the gradients of all inputs and of the network; `before` runs before the backward pass."""
    leaves = [given[name] for name in route.shapes if not given[name].is_inference()]
    for leaf in leaves:
        leaf.requires_grad_()
    out = route.call(given)
    if "network" in given:
        leaves += [weight for weight in given["network"].parameters() if all(weight is not leaf for leaf in leaves)]
    if cotangent is None:
        cotangent = fixed(out)
    before()
    grads = torch.autograd.grad(out, leaves, cotangent, materialize_grads=True) if leaves else ()
    return [out.detach().clone(), *(grad.clone() for grad in grads)]


def fixed(out: Tensor) -> Tensor:
    """A cotangent that depends on the shape alone."""
    drawn = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64, device="cpu")
    return drawn.to(out.dtype)


def assert_equal(actual: list[Tensor], expected: list[Tensor], case: str = "") -> None:
    """Equal up to rounding, measured by the largest entry of each tensor; a failure names the case."""
    assert len(actual) == len(expected), case
    for place, (found, wanted) in enumerate(zip(actual, expected, strict=True)):
        assert found.shape == wanted.shape, case
        if wanted.numel() == 0:
            continue
        scale = max(1.0, wanted.abs().max().item())
        error = (torch.empty(found.shape, dtype=found.dtype, device="cpu").copy_(found) - wanted).abs().max().item()
        assert error <= TOLERANCE[wanted.dtype] * scale, f"{case}: tensor {place}"


def replaced(route: Route, name: str, make: Callable[[Tensor], Tensor], dtype: torch.dtype = torch.float64) -> Given:
    """Plain inputs, one of which is made anew."""
    given = route.inputs(dtype)
    given[name] = make(given[name])
    return given


# Layouts: the same values elsewhere in memory.


def transposed(x: Tensor) -> Tensor:
    """Columns side by side."""
    return every_second(x) if x.dim() < 2 else x.transpose(-1, -2).contiguous().transpose(-1, -2)


def every_second(x: Tensor) -> Tensor:
    """Other values lie between any two."""
    return torch.stack([x, torch.ones_like(x)], dim=-1)[..., 0]


def cut_out(x: Tensor) -> Tensor:
    """A part of a larger tensor: rows with gaps between them, not at a round address."""
    larger = F.pad(x, [1, 2] * x.dim(), value=1)
    return larger[tuple(slice(1, -2) for _ in range(x.dim()))]


def one_row(x: Tensor) -> Tensor:
    """The first row stands for all."""
    return x[:1].expand_as(x)


def one_column(x: Tensor) -> Tensor:
    """The first column stands for all."""
    return x[..., :1].expand_as(x)


LAYOUTS = (transposed, every_second, cut_out, one_row, one_column)


@every_route
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_strides_of_an_input_do_not_matter(name: str, dtype: torch.dtype) -> None:
    route = ROUTES[name]
    layouts = LAYOUTS if dtype == torch.float64 else (transposed,)
    for place in route.names:
        for layout in layouts:
            given = replaced(route, place, layout, dtype)
            in_one_piece = replaced(route, place, lambda x, layout=layout: layout(x).clone().contiguous(), dtype)  # type: ignore[misc]
            assert given[place].stride() != in_one_piece[place].stride() or layout is cut_out
            assert_equal(run(route, given), run(route, in_one_piece), f"{place}, {layout.__name__}")


@every_route
def test_strides_of_a_gradient_do_not_matter(name: str) -> None:
    route = ROUTES[name]
    out = run(route, route.inputs())[0]
    for layout in LAYOUTS:
        cotangent = layout(fixed(out))
        assert_equal(run(route, route.inputs(), cotangent), run(route, route.inputs(), cotangent.clone().contiguous()))


# Subclasses and views whose values are not what lies at their address.


class Tagged(Tensor):
    """A subclass that does nothing."""


class Wrapper(Tensor):
    """A tensor without memory of its own: operators of torch see the one inside, C would see nothing."""

    inside: Tensor

    @staticmethod
    def __new__(cls, inside: Tensor) -> "Wrapper":
        made: Wrapper = Tensor._make_wrapper_subclass(cls, inside.shape, dtype=inside.dtype, device=inside.device)
        made.inside = inside
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        def inside(x: Any) -> Any:
            return x.inside if isinstance(x, Wrapper) else x

        return function(*tree_map(inside, args), **tree_map(inside, kwargs or {}))


def negated(x: Tensor) -> Tensor:
    """A view whose sign torch applies when it reads."""
    return torch._neg_view(-x)


def of_inference(x: Tensor) -> Tensor:
    """A tensor that was made in inference mode."""
    with torch.inference_mode():
        return x.clone()


FLOATS: tuple[Callable[[Tensor], Tensor], ...] = (
    nn.Parameter,
    nn.Buffer,
    lambda x: x.as_subclass(Tagged),
    Wrapper,
    negated,
    of_inference,
)
INDICES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x.as_subclass(Tagged),
    lambda x: Index(x, dim_size=NODES) if x.dim() == 1 else EdgeIndex(x, sparse_size=(NODES, NODES)),
    Wrapper,
    of_inference,
    lambda x: x.to(torch.int32),
)
BY_TYPE = "not a plain tensor|negated or conjugated|Inference tensors cannot be saved for backward"
"""Refusals of a backend that was asked for by name, and torch's own of tensors of inference mode."""


@every_route
@pytest.mark.filterwarnings("ignore:sirgcn. the backend native is not available")
def test_subclass_is_computed_rightly_or_refused_by_its_type(name: str) -> None:
    route = ROUTES[name]
    expected = run(route, route.inputs())
    for place in route.names:
        for number, make in enumerate(FLOATS if place in route.shapes else INDICES):
            given = replaced(route, place, make)
            try:
                found = run(route, given)
            except REFUSALS as error:
                if make is not Wrapper and not re.search(BY_TYPE, str(error)):
                    raise AssertionError(f"{place}, subclass {number} is refused") from error
                continue
            wanted = expected
            if make is of_inference and place in route.shapes:
                # It has no gradient.
                without = 1 + list(route.shapes).index(place)
                wanted = expected[:without] + expected[without + 1 :]
            assert_equal(found, wanted, f"{place}, subclass {number}")


# Devices.


@every_route
def test_input_on_another_device_is_refused_before_anything_is_computed(name: str) -> None:
    route = ROUTES[name]
    if len(route.names) < 2:
        pytest.skip("there is no second tensor to differ from")
    for place in route.names:
        given = replaced(route, place, lambda x: x.to("meta"))
        if place == "edge_index":
            # The grouped edges moved: on this device nothing can be grouped.
            given["graph"] = graph_of(route.inputs()).to("meta")
        with pytest.raises(REFUSALS, match="device"):
            run(route, given)


@every_route
def test_default_device_changes_nothing(name: str) -> None:
    route = ROUTES[name]
    expected = run(route, route.inputs())
    given = route.inputs()
    with torch.device("meta"):
        found = run(route, given)
    assert_equal(found, expected)


# Time: what happens to a tensor between two passes, and modes that come before.


@every_route
@pytest.mark.parametrize("value", [0, 10**6], ids=["inside", "outside"])
def test_input_changed_in_place_before_backward_is_noticed_or_harmless(name: str, value: int) -> None:
    route = ROUTES[name]
    expected = run(route, route.inputs())
    for place in route.names:
        given = route.inputs()
        try:
            found = run(route, given, before=partial(_refill, given[place], value))
        except RuntimeError as error:
            if not re.search("in-?place|in place", str(error)):
                raise
            continue
        assert_equal(found, expected, place)


def _refill(tensor: Tensor, value: int) -> None:
    with torch.no_grad():
        tensor.fill_(value)


@every_route
def test_call_in_inference_mode_leaves_nothing_behind_that_training_cannot_use(name: str) -> None:
    route = ROUTES[name]
    expected = run(route, route.inputs())
    given = route.inputs()
    with torch.inference_mode():
        assert_equal([route.call(given)], expected[:1])
    assert_equal(run(route, given), expected)


COMPILED = [name for name, route in ROUTES.items() if route.compiles and route.indices]


@pytest.mark.parametrize("name", COMPILED)
def test_index_out_of_range_is_refused_in_compiled_code(name: str) -> None:
    route = ROUTES[name]
    given = route.inputs()
    good = route.call(given).detach()
    given.pop("graph", None)
    for place in route.indices:
        torch._dynamo.reset()

        def call(index: Tensor, place: str = place) -> Tensor:
            return route.call({**given, place: index})

        compiled = torch.compile(call, backend="eager")
        assert_equal([compiled(given[place]).detach()], [good], place)
        for bad in (-1, 10**6):
            index = given[place].clone()
            index.view(-1)[-1] = bad
            with pytest.raises(REFUSALS):
                compiled(index)
