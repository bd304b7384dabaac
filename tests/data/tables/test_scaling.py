"""No column is blown up because few rows hold it, and no single value rules a column."""

import json
import time

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.data import Preprocessing, apply_tables, load_tables
from sirgcn.data.tables.scaling import fit_scaling, tamed
from sirgcn.data.validate import DataError

RNG = np.random.default_rng(0)
EDGES = pd.DataFrame({"source": ["n0"], "target": ["n1"]})


def scaled(values: "np.ndarray") -> "np.ndarray":
    column = np.asarray(values, dtype=np.float64)[:, None]
    return fit_scaling(column).of(column)[:, 0]


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=200))
def test_zeros_and_ones_stay_as_they_are(values: list[float]) -> None:
    assert scaled(np.array(values)).tolist() == values


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5), st.integers(50, 300))
def test_sparse_values_keep_their_zeros_and_stay_within_one(values: list[float], zeros: int) -> None:
    column = np.array([*values, *[0.0] * zeros])
    found = scaled(column)
    assert (found[column == 0] == 0).all()
    assert np.abs(found).max() <= 1


def test_plain_numbers_are_standardised() -> None:
    values = RNG.normal(7, 3, 10_000)
    assert np.allclose(scaled(values), (values - values.mean()) / values.std())


@pytest.mark.parametrize("sign", [1, -1])
def test_a_heavy_tail_is_drawn_in_and_keeps_its_order(sign: int) -> None:
    values = sign * np.exp(RNG.normal(0, 3, 5_000))
    plain = (values - values.mean()) / values.std()
    found = scaled(values)
    assert np.abs(plain).max() > 30
    assert np.abs(found).max() < 10
    assert (np.argsort(found) == np.argsort(values)).all()
    # The middle half of the values can be told apart again.
    assert np.diff(np.quantile(found, [0.25, 0.75])) > 10 * np.diff(np.quantile(plain, [0.25, 0.75]))


def test_one_column_of_a_list_does_not_change_the_others() -> None:
    rows = np.column_stack([RNG.normal(size=500), np.exp(RNG.normal(0, 4, 500)), RNG.integers(0, 2, 500)])
    fitted = fit_scaling(rows)
    for place in range(3):
        alone = fit_scaling(rows[:, [place]])
        assert np.allclose(fitted.of(rows)[:, place], alone.of(rows[:, [place]])[:, 0])
    assert (fitted.spread > 0).tolist() == [False, True, False]
    assert np.isnan(tamed(np.full((1, 3), np.nan), fitted.centre, fitted.spread)).all()


def test_rare_words_are_one_where_they_are_and_new_tables_are_scaled_alike() -> None:
    count = 200
    words = (RNG.random((count, 5)) < 0.02).astype(int)
    table = pd.DataFrame(words, columns=[f"w{place}" for place in range(5)])
    table = table.assign(
        price=np.exp(RNG.normal(0, 3, count)), id=[f"n{row}" for row in range(count)], y=["a", "b"] * 100
    )
    task = load_tables(table, EDGES, target="y")
    assert torch.equal(task.graphs.x[:, :5], torch.from_numpy(words).float())
    described = str(task.describe())
    assert "node 'w0': numeric, as it is" in described
    assert "node 'price': numeric, heavy tail, asinh((x - " in described
    preprocessing = Preprocessing.from_json(task.details["preprocessing"].to_json())
    assert preprocessing == task.details["preprocessing"]
    assert torch.equal(apply_tables(preprocessing, table, EDGES).graphs.x, task.graphs.x)


def test_a_document_of_before_scales_as_before_and_a_damaged_one_is_refused() -> None:
    table = pd.DataFrame({"id": list("abcd"), "size": [1.0, 2.0, 3.0, 4.0], "y": [0, 1, 0, 1]})
    task = load_tables(table, EDGES.replace({"n0": "a", "n1": "b"}), target="y", fractions=(1, 0, 0))
    found = json.loads(task.details["preprocessing"].to_json())
    old = {name: value for name, value in found.items() if name not in ("graphs", "molecules")} | {"version": 2}
    for column in old["nodes"]:
        assert (column.pop("centre"), column.pop("spread")) == ([], [])
    assert Preprocessing.from_json(json.dumps(old)) == task.details["preprocessing"]
    for name, value in (("spread", [1.0]), ("centre", [1.0, 2.0]), ("spread", "x")):
        damaged = json.loads(json.dumps(found))
        damaged["nodes"][0][name] = value
        with pytest.raises(DataError, match="spread"):
            Preprocessing.from_json(json.dumps(damaged))
    damaged["nodes"][0] |= {"centre": [0.0], "spread": [-1.0]}
    with pytest.raises(DataError, match="spread: expected numbers from 0"):
        Preprocessing.from_json(json.dumps(damaged))


def test_a_column_that_rises_with_the_target_is_a_leak_also_where_its_tail_is_drawn_in() -> None:
    y = np.exp(RNG.normal(0, 1.5, 300))
    table = pd.DataFrame({"id": [f"n{row}" for row in range(300)], "copy": y**2, "noise": RNG.normal(size=300), "y": y})
    warnings = load_tables(table, EDGES, target="y").describe().warnings
    assert [text for text in warnings if "determines the target" in text] == [
        "column 'copy' determines the target: is it known before the target is?"
    ]


def test_thousands_of_sparse_columns_are_quick() -> None:
    words = (RNG.random((400, 3_000)) < 0.01).astype(int)
    table = pd.DataFrame(words, columns=[f"w{place}" for place in range(3_000)])
    table = pd.concat([table, pd.DataFrame({"id": [f"n{row}" for row in range(400)], "y": ["a", "b"] * 200})], axis=1)
    started = time.process_time()
    load_tables(table, EDGES, target="y")
    # A generous bound: what is quadratic in the columns takes minutes.
    assert time.process_time() - started < 30
