"""`Rows`: a table and an index stand for one row per node; `look_up` and its gradient."""

import pytest
import torch
from torch import nn

from sirgcn.ops.rows import Rows, look_up

DOUBLE = torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_look_up(dtype: torch.dtype) -> None:
    table = torch.randn(5, 70, dtype=dtype, requires_grad=True)
    index = torch.randint(5, (3000,))
    weight = torch.randn(3000, 70, dtype=dtype)
    found = look_up(table, index)
    assert torch.equal(found, table[index])
    (grad,) = torch.autograd.grad((found * weight).sum(), table)
    # Sums of 600 numbers around 0, in two orders.
    tolerance = 1e-3 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(grad, torch.zeros_like(table).index_add(0, index, weight), rtol=0, atol=tolerance)
    again = torch.autograd.grad((look_up(table, index) * weight).sum(), table)[0]
    assert torch.equal(grad, again)


def test_look_up_has_second_derivatives() -> None:
    table = torch.randn(3, 2, dtype=DOUBLE, requires_grad=True)
    index = torch.tensor([2, 0, 2, 2])
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda t: look_up(t, index).sin(), (table,))
    assert look_up(table.half(), index).dtype == torch.float16


def test_rows_stand_for_one_row_per_node() -> None:
    table, index = torch.randn(3, 4), torch.tensor([2, 0, 2, 1, 1])
    rows = Rows(table, index)
    assert torch.equal(rows.expand(), table[index])
    assert (rows.shape, rows.dtype, rows.device) == (table[index].shape, table.dtype, table.device)
    assert Rows.of(rows) is rows
    plain = Rows.of(table)
    assert plain.index is None
    assert plain.expand() is table
    assert plain.shape == table.shape


def test_a_function_of_each_row_is_computed_once_per_row_of_the_table() -> None:
    rows = Rows(torch.randn(3, 4), torch.tensor([2, 0, 2, 1, 1]))
    linear = nn.Linear(4, 2)
    found = rows.map(linear)
    assert found.table.shape == (3, 2)
    assert found.index is rows.index
    torch.testing.assert_close(found.expand(), linear(rows.expand()))


@pytest.mark.parametrize("module", [nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Dropout(0.5)], ids=str)
def test_a_module_that_may_not_act_on_each_row_by_itself_gets_one_row_per_node(module: nn.Module) -> None:
    rows = Rows(torch.randn(3, 4), torch.tensor([2, 0, 2, 1, 1]))
    found = rows.map(module)
    assert found.index is None
    assert found.table.shape == (5, 4)


def test_gradient_of_shared_rows_in_half_precision_is_summed_in_float32() -> None:
    table = torch.ones(1, 1, dtype=torch.bfloat16, requires_grad=True)
    (grad,) = torch.autograd.grad(Rows(table, torch.zeros(1000, dtype=torch.int64)).expand().sum(), table)
    assert abs(grad.item() - 1000) <= 4  # bfloat16 has steps of 4 there; a sum in bfloat16 would stop at 256
