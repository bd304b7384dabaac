"""Preprocessing is fitted on training rows alone, survives JSON exactly, and refuses what training has not seen."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.data.tables.columns import MISSING, ColumnType, Dropped, Frame, sort_names
from sirgcn.data.tables.delimited import read_delimited
from sirgcn.data.tables.features import Column, encode, fit_column
from sirgcn.data.tables.preprocessing import Preprocessing
from sirgcn.data.tables.roles import Roles
from sirgcn.data.tables.text import WHITE
from sirgcn.data.validate import DataError
from sirgcn.strict import ConfigError

FINITE = st.floats(-1e30, 1e30)
NUMBERS = st.lists(st.one_of(st.none(), FINITE), min_size=1, max_size=12)


def frame(**columns: Any) -> Frame:
    return Frame.from_pandas("frame", pd.DataFrame(columns))


def fit(found: Frame, training: list[bool] | None = None, **options: Any) -> tuple[Column, ...]:
    rows = np.ones(len(found), dtype=bool) if training is None else np.array(training)
    types = {name: found.type_of(name) or "numeric" for name in found.columns}
    return tuple(fit_column(found, name, column_type, rows, **options) for name, column_type in types.items())


@given(NUMBERS, st.data())
def test_numbers_are_standardised_by_the_training_rows_alone(values: list[float | None], data: st.DataObject) -> None:
    training = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    column = frame(a=pd.Series(values, dtype="float64"))
    (fitted,) = fit(column, training)
    rows = [value for value, chosen in zip(values, training, strict=True) if chosen and value is not None]
    features, _ = encode((fitted,), column, "other")
    mean = float(np.mean(rows)) if rows else 0.0
    scale = float(np.std(rows)) if len(set(rows)) > 1 else 1.0
    if rows and rows.count(0.0) >= 0.9 * len(rows):
        mean, scale = 0.0, max(map(abs, rows)) or 1.0
    if set(rows) <= {0.0, 1.0}:
        mean, scale = 0.0, 1.0
    for row, value in enumerate(values):
        expected = 0.0 if value is None else (value - mean) / (scale or 1.0)
        assert features[row, 0].item() == pytest.approx(expected, rel=1e-5, abs=1e-5 * (1 + abs(mean) / (scale or 1.0)))
    assert fitted.gaps == any(value is None for value, chosen in zip(values, training, strict=True) if chosen)
    assert features.size(1) == fitted.width == 1 + fitted.gaps
    if fitted.gaps:
        assert features[:, 1].tolist() == [float(value is None) for value in values]


def test_rows_outside_training_change_nothing() -> None:
    training = [True, True, True, False]
    first = frame(n=[1.0, 2.0, 4.0, 9.0], c=["a", "b", "a", "b"], v=[[1, 2], [3, 4], [5, 6], [7, 8]])
    second = frame(n=[1.0, 2.0, 4.0, -1e9], c=["a", "b", "a", "new"], v=[[1, 2], [3, 4], [5, 6], [0, 0]])
    assert fit(first, training) == fit(second, training)


def test_a_constant_column_becomes_zero() -> None:
    column = frame(a=[0.1] * 7)
    assert encode(fit(column), column, "raise")[0].tolist() == [[0.0]] * 7


def test_categories_are_one_hot_beside_numbers_and_indices_alone() -> None:
    table = frame(c=["b", "a", None], n=[1.0, 3.0, 2.0])
    columns = fit(table, standardise=False)
    found, _ = encode(columns, table, "raise")
    assert found.tolist() == [[0, 1, 0, 1], [1, 0, 0, 3], [0, 0, 1, 2]]
    found, _ = encode(columns[:1], table, "raise")
    assert found.dtype == torch.int64
    assert found.tolist() == [[1], [0], [2]]


def test_truth_is_zero_and_one_or_a_category_among_categories() -> None:
    table = frame(c=["b", "a"], t=[True, False])
    columns = fit(table)
    assert encode(columns, table, "raise")[0].tolist() == [[1, 1], [0, 0]]
    assert encode(columns[1:], table, "raise")[0].tolist() == [[1.0], [0.0]]
    # A file may write what a frame holds as truth.
    assert encode(columns[1:], frame(t=[1, 0]), "raise")[0].tolist() == [[1.0], [0.0]]


def test_lists_and_times_are_numbers() -> None:
    table = frame(v=[[1.0, 2.0], None, [3.0, 6.0]], t=pd.Series([datetime(1970, 1, 1), datetime(1970, 1, 3), pd.NaT]))
    columns = fit(table, standardise=False)
    assert encode(columns, table, "raise")[0].tolist() == [[1, 2, 0, 0, 0], [0, 0, 1, 2, 0], [3, 6, 0, 0, 1]]


def test_the_most_frequent_categories_are_kept() -> None:
    table = frame(c=["a", "b", "b", "c", "c", "c"])
    (column,) = fit(table, limit=2)
    assert column.categories == ("b", "c")
    assert column.rare
    # What training has seen is not refused, though it has no slot of its own.
    codes, unseen = encode((column,), table, "raise")
    assert codes.squeeze(1).tolist() == [2, 0, 0, 1, 1, 1]
    assert unseen == {}


@pytest.mark.parametrize("names", [["10", "9", "1.5"], ["b", "a", "B"], ["2", "x", "10"]])
def test_names_are_sorted_by_value_where_all_are_numbers(names: list[str]) -> None:
    try:
        expected = sorted(names, key=float)
    except ValueError:
        expected = sorted(names)
    assert sort_names(names) == expected


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ({"c": ["a", "z"], "n": [1.0, 2.0]}, r"c, row 2: .*training has seen \('a', 'b'\), got 'z'"),
        ({"c": ["a", None], "n": [1.0, 2.0]}, "c, row 2: expected a value as in all training rows, got none"),
        ({"c": ["a", "b"], "n": [None, 2.0]}, "n, row 1: expected a value as in all training rows, got none"),
    ],
)
def test_what_training_has_not_seen_is_refused_unless_asked_for(new: dict[str, Any], message: str) -> None:
    columns = fit(frame(c=["a", "b"], n=[1.0, 2.0]))
    with pytest.raises(DataError, match=message):
        encode(columns, frame(**new), "raise")
    found, unseen = encode(columns, frame(**new), "other")
    assert torch.isfinite(found).all()
    assert sum(unseen.values()) == 1


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ({"n": ["x", "y"]}, "n, row 1: expected a number, got 'x'"),
        ({"m": [1, 2]}, "n: expected this column, got 'm'"),
        ({"n": [[1], [2]]}, "n, row 1: expected a number"),
        ({"n": [1e38, 1.0]}, "n, row 1: expected a number near 1e-30"),
    ],
)
def test_another_kind_of_column_is_refused_whatever_is_asked(new: dict[str, Any], message: str) -> None:
    columns = (Column("n", "numeric", (1e-30,), (1e-30,)),)
    with pytest.raises(DataError, match=message):
        encode(columns, frame(**new), "other")


def test_a_category_is_the_same_whatever_stands_beside_it(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("c\n007\nx\n1.0\nTrue\n")
    one = read_delimited(tmp_path / "one.csv", ",", MISSING, Dropped())
    columns = fit(one)
    for word, code in zip(["007", "x", "1", "true"], encode(columns, one, "raise")[0].tolist(), strict=True):
        (tmp_path / "two.csv").write_text(f"c\n{word}\n{word}\n")
        two = read_delimited(tmp_path / "two.csv", ",", MISSING, Dropped())
        assert encode(columns, two, "raise")[0].tolist() == [code] * 2


def test_lists_of_another_length_are_refused() -> None:
    with pytest.raises(DataError, match="v, row 1: expected lists of 2 numbers, got 3"):
        encode(fit(frame(v=[[1, 2], [3, 4]])), frame(v=[[1, 2, 3]]), "raise")


NAMES = st.text(min_size=1, max_size=5)
# No white space is around a category.
CATEGORIES = NAMES.map(lambda name: name.strip(WHITE)).filter(bool)


@st.composite
def columns(draw: st.DrawFn) -> Column:
    column_type: ColumnType = draw(st.sampled_from(get_args(ColumnType)))
    if column_type == "categorical":
        names = draw(st.lists(CATEGORIES, unique=True, max_size=4))
        gaps, rare = draw(st.booleans()), draw(st.booleans())
        return Column(draw(NAMES), column_type, categories=tuple(names), gaps=gaps, rare=rare)
    size = draw(st.integers(0, 4)) if column_type == "list" else 1
    numbers = st.floats(allow_nan=False, allow_infinity=False)
    positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
    mean, scale = (tuple(draw(st.lists(each, min_size=size, max_size=size))) for each in (numbers, positive))
    return Column(draw(NAMES), column_type, mean, scale, gaps=draw(st.booleans()))


PREPROCESSINGS = st.builds(
    Preprocessing,
    level=st.sampled_from(["node", "edge", "graph"]),
    roles=st.builds(Roles, *[st.none() | NAMES] * 6),
    nodes=st.lists(columns(), max_size=3).map(tuple),
    edges=st.lists(columns(), max_size=3).map(tuple),
    directed=st.booleans(),
    missing=st.lists(st.text(max_size=3), max_size=3).map(tuple),
    targets=st.lists(NAMES, max_size=3).map(tuple),
    classes=st.lists(NAMES, max_size=3).map(tuple),
)


@given(PREPROCESSINGS)
def test_json_gives_back_exactly_what_was_written(preprocessing: Preprocessing) -> None:
    assert Preprocessing.from_json(preprocessing.to_json()) == preprocessing


GOOD = Preprocessing("node", Roles(id="id"), (Column("a", "numeric", (0.5,), (2.0,)), Column("c", "categorical")))


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        (["version"], 1, "version"),
        (["level"], "hyperedge", "level"),
        (["directed"], 1, "directed"),
        (["missing"], "NA", "missing"),
        (["targets"], [1], "targets"),
        (["classes"], None, "classes"),
        (["roles"], None, "roles"),
        (["roles", "id"], 3, "roles.id"),
        (["nodes"], {}, "nodes"),
        (["nodes", 0], [], "nodes[0]"),
        (["nodes", 0, "type"], "number", "nodes[0].type"),
        (["nodes", 0, "name"], None, "nodes[0].name"),
        (["nodes", 0, "mean"], [float("nan")], "nodes[0].mean"),
        (["nodes", 0, "mean"], [True], "nodes[0].mean"),
        (["nodes", 0, "mean"], [], "nodes[0].mean"),
        (["nodes", 0, "scale"], [0.0], "nodes[0].scale"),
        (["nodes", 0, "scale"], [10**400], "nodes[0].scale"),
        (["nodes", 0, "categories"], ["a"], "nodes[0].categories"),
        (["nodes", 1, "categories"], ["a", "a"], "nodes[1].categories"),
        (["nodes", 1, "categories"], ["a", "a "], "nodes[1].categories"),
        (["nodes", 1, "categories"], [""], "nodes[1].categories"),
        (["nodes", 1, "mean"], [1.0], "nodes[1].mean"),
        (["nodes", 0, "gaps"], "no", "nodes[0].gaps"),
        (["nodes", 0, "rare"], 0, "nodes[0].rare"),
    ],
)
def test_json_that_was_changed_is_refused_with_its_place(place: list[Any], value: Any, field: str) -> None:
    found = json.loads(GOOD.to_json())
    *path, last = place
    inner = found
    for step in path:
        inner = inner[step]
    inner[last] = value
    with pytest.raises(DataError) as refusal:
        Preprocessing.from_json(json.dumps(found))
    assert refusal.value.field == field


@pytest.mark.parametrize("document", ["", "[]", "{}", "null", "{", '{"version": 2}', '{"version": 2, "other": 2}'])
def test_what_is_no_preprocessing_is_refused(document: str) -> None:
    with pytest.raises(DataError):
        Preprocessing.from_json(document)
    with pytest.raises(DataError):
        Preprocessing.from_json("[" * 100_000)


def test_apply_takes_any_table() -> None:
    preprocessing = Preprocessing("node", Roles(), fit(frame(a=[1.0, 3.0])), fit(frame(c=["x", "y"])))
    assert preprocessing.apply(pd.DataFrame({"a": [1.0, 2.0]})).tolist() == [[-1.0], [0.0]]
    assert preprocessing.apply(pd.DataFrame({"c": ["y"]}), of="edges").tolist() == [[1]]
    with pytest.raises(ConfigError, match="of: expected one of nodes, edges, graphs, got 'graph'"):
        preprocessing.apply(pd.DataFrame(), of="graph")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown: expected one of raise, other, got 'ignore'"):
        preprocessing.apply(pd.DataFrame({"a": [1.0]}), unknown="ignore")  # type: ignore[arg-type]
    assert Preprocessing("node", Roles()).apply(pd.DataFrame({"a": [5, 6]})).tolist() == [[1.0], [1.0]]
