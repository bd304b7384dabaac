"""Figure 2: each hash is the one of Corollary 1, and its contour lines are the classes [H]_D of its pseudometric."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.ops.activation import ACTIVATIONS
from sirgcn.theory.hashes import MESSAGES, hash_surface, message_distance, scalar_message
from sirgcn.theory.multisets import kernel_distance
from sirgcn.theory.pseudometrics import euclidean, squared_score

scores = st.lists(st.floats(-3, 3), min_size=4, max_size=4)


@pytest.mark.parametrize("name", MESSAGES)
@given(scores, st.floats(-2, 2), st.sampled_from(ACTIVATIONS))
def test_distances_of_hashes_are_the_kernel_distance(name: str, values: list[float], bias: float, sigma: str) -> None:
    h = torch.tensor(values, dtype=torch.float64).view(2, 2, 1)
    messages = scalar_message(name, h, bias, sigma)
    gap = (messages.sum(1)[0] - messages.sum(1)[1]).abs().squeeze()
    torch.testing.assert_close(kernel_distance(message_distance(name, bias, sigma), *h), gap, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "d"), [("linear", euclidean()), ("square", squared_score())])
@given(scores)
def test_the_linear_and_the_squared_message_stand_for_the_paper_s_pseudometrics(
    name: str, d: object, values: list[float]
) -> None:
    h = torch.tensor(values, dtype=torch.float64).unsqueeze(1)
    torch.testing.assert_close(message_distance(name)(h), d(h), rtol=1e-9, atol=1e-9)  # type: ignore[operator]


@pytest.mark.parametrize("name", MESSAGES)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=5), st.floats(-2, 2))
def test_a_surface_has_the_sum_of_messages_at_every_point(name: str, values: list[float], bias: float) -> None:
    grid = torch.tensor(values, dtype=torch.float64)
    surface = hash_surface(name, grid, bias)
    for i, second in enumerate(grid):
        for j, first in enumerate(grid):
            expected = scalar_message(name, first, bias) + scalar_message(name, second, bias)
            torch.testing.assert_close(surface[i, j], expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(surface, surface.T)


@given(st.floats(-3, 3), st.floats(-2, 2))
def test_the_bias_shifts_the_contours(h: float, bias: float) -> None:
    one = torch.tensor(h, dtype=torch.float64)
    torch.testing.assert_close(scalar_message("mlp", one, bias), scalar_message("mlp", one + bias), rtol=0, atol=0)


def test_mlp_with_relu_by_hand() -> None:
    """At 0: hidden units -1.44, 1.08, -0.6 and -1.8, of which ReLU leaves the second, with weight -1."""
    assert float(scalar_message("mlp", torch.tensor(0.0))) == pytest.approx(-1.08)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="message: expected one of linear, mlp, square, got 'cubic'"):
        scalar_message("cubic", torch.zeros(1))
    with pytest.raises(ValueError, match="activation: expected one of"):
        scalar_message("mlp", torch.zeros(1), sigma="sine")
    with pytest.raises(ValueError, match=r"grid: expected features \[n\], at least one"):
        hash_surface("linear", torch.zeros(0))
