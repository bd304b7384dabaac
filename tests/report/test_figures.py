"""The scales of the figures hold for any values that a record may have."""

import math

from hypothesis import given
from hypothesis import strategies as st

from sirgcn.report.figures import Axis


@given(st.lists(st.floats(), max_size=5), st.booleans())
def test_an_axis_has_a_few_ticks_and_every_value_lies_on_it(values: list[float], may_log: bool) -> None:
    axis = Axis.over(values, 0, 100, may_log)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 8
    assert all(-1e-9 <= axis(value) <= 100 + 1e-9 for value in (*values, *ticks) if not math.isnan(value))


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.booleans())
def test_an_axis_keeps_the_order(one: float, other: float, may_log: bool) -> None:
    axis = Axis.over([one, other], 0, 100, may_log)
    assert (axis(one) <= axis(other)) or one > other
