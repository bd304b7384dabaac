"""The scales of the figures hold for any values that a record may have."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.report import compare
from sirgcn.report.figures import growth
from sirgcn.report.svg import Axis
from tests.report.fake import run

# From never to always on a log scale.
DECADES = st.sampled_from([math.inf, 2.5, 0.5, 0.0])


@given(st.lists(st.floats(), max_size=5), DECADES)
def test_an_axis_has_a_few_ticks_and_every_value_lies_on_it(values: list[float], decades: float) -> None:
    axis = Axis.over(values, 0, 100, decades)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 8
    assert all(-1e-9 <= axis(value) <= 100 + 1e-9 for value in (*values, *ticks) if not math.isnan(value))


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), DECADES)
def test_an_axis_keeps_the_order(one: float, other: float, decades: float) -> None:
    axis = Axis.over([one, other], 0, 100, decades)
    assert (axis(one) <= axis(other)) or one > other


def test_growth_is_a_straight_line_on_log_scales_and_what_is_no_time_is_left_out() -> None:
    found = {"sizes": [1, 10, 100, 1000], "seconds": [0.001, 0.1, None, 1000.0], "slope": 2.0, "error": 0.0}
    made = run(table=8, column="Complexity", metrics={"|V|": 2.0}, samples={"|V|": found}, metric="complexity")
    comparison = compare([made])[7]
    ((title, svg),) = growth(comparison.cells_of(comparison.columns[0]), {"SIR-GCN": "s0"})
    assert title == "seconds by |V|"
    (path,) = re.findall(r'points="([^"]*)"', svg)
    (x0, y0), (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in path.split())
    assert (y1 - y0) / (x1 - x0) == pytest.approx((y2 - y1) / (x2 - x1), rel=0.01)  # pixels have one decimal
    assert growth(compare([run()])[0].cells, {"SIR-GCN": "s0"}) == []
