"""Dropout: torch's function up to the random numbers, which it draws four at a time."""

import pytest
import torch
from torch import Tensor

from sirgcn.nn.dropout import Dropout, dropout
from sirgcn.testing import assert_repeats


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("p", [0.001, 0.2, 0.5, 0.9])
def test_share_p_is_dropped_and_the_rest_is_scaled(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    count = 400_000
    out = dropout(torch.ones(count, dtype=dtype), p)
    dropped = int((out == 0).sum())
    # Five standard deviations of a binomial distribution.
    assert abs(dropped - p * count) < 5 * (p * (1 - p) * count) ** 0.5
    scale = torch.full((count - dropped,), 1 / (1 - p), dtype=dtype)
    # p is rounded to a multiple of 2^-16, and the scale with it.
    torch.testing.assert_close(out[out != 0], scale, rtol=max(1e-4, torch.finfo(dtype).eps), atol=0.0)


def test_elements_that_share_a_number_are_dropped_independently() -> None:
    torch.manual_seed(0)
    kept = (dropout(torch.ones(400_000), 0.3) != 0).double().view(-1, 4)
    correlation = torch.corrcoef(kept.t()) - torch.eye(4)
    assert float(correlation.abs().max()) < 5 / len(kept) ** 0.5


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (2, 3, 7)])
def test_gradient_goes_where_the_elements_stayed(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = (torch.rand(shape) + 1).requires_grad_()
    out = dropout(x, 0.5)
    out.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x.detach(), out.detach())


def test_same_seed_drops_the_same_and_another_draw_others() -> None:
    x = torch.ones(1000)

    def drawn() -> list[Tensor]:
        torch.manual_seed(3)
        return [dropout(x, 0.5)]

    assert_repeats(drawn)
    assert not torch.equal(dropout(x, 0.5), dropout(x, 0.5))


def test_nothing_all_and_evaluation() -> None:
    x = torch.randn(10)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0) is x
    assert torch.equal(dropout(x, 1.0), torch.zeros(10))
    assert Dropout(0.5).eval()(x) is x
    assert (Dropout(0.5)(torch.ones(100)) == 0).any()
    with pytest.raises(ValueError, match=r"dropout: expected 0 <= p <= 1, got 2"):
        dropout(x, 2.0)
