"""Laws of the strict reader."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pytest
import torch

from sirgcn.strict import (
    ConfigError,
    check_arguments,
    check_fields,
    check_name,
    checked,
    expected_one_of,
    nearest,
    read,
)


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (bool, "no", "expected true or false, got 'no'"),
        (bool, 0, "expected true or false, got 0"),
        (int, True, "expected a whole number, got True"),
        (int, 2.0, "expected a whole number, got 2.0"),
        (int, "2", "expected a whole number, got '2'"),
        (float, "1e-3", "expected a number, got '1e-3'"),
        (float, False, "expected a number, got False"),
        (str, 3, "expected text, got 3"),
        (Literal["none", "cosine"], "cos", "expected one of none, cosine, got 'cos'; did you mean cosine\\?"),
        (Literal["none", "cosine"], ["none"], "expected one of none, cosine, got \\['none'\\]"),
        (int | None, "two", "expected a whole number, got 'two'"),
        (bool | str, 3, "expected true or false or text, got 3"),
        (tuple[int, ...], 3, "expected a list, got 3"),
        (tuple[int, ...], [1, "2"], "\\[1\\]: expected a whole number, got '2'"),
        (dict[str, Any], "x", "expected a table, got 'x'"),
        (dict[str, int], {"a": "2"}, "\\['a'\\]: expected a whole number, got '2'"),
        (tuple[int, int], [1], "expected a list of 2, got \\[1\\]"),
        (Sequence[str], "NA", "expected a list, got 'NA'"),
        (Sequence[str], {"a"}, "expected a list, got a set, which has no order"),
        (Collection[str], ["a", 3], "\\[1\\]: expected text, got 3"),
        (str | Sequence[str], ["a", 3], "\\[1\\]: expected text, got 3"),
        (str | os.PathLike[str], 3, "expected text or a path, got 3"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place(hint: Any, value: object, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"^here.*{expected}$"):
        read(hint, value, "here")


@pytest.mark.parametrize("value", [5, np.int64(5), np.uint8(5), torch.tensor(5)])
def test_a_whole_number_is_whatever_operator_index_takes(value: object) -> None:
    found = read(int, value, "here")
    assert type(found) is int
    assert found == 5


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int32(2)])
def test_a_number_is_any_real_one(value: object) -> None:
    found = read(float, value, "here")
    assert type(found) is float
    assert found == 2.0


@pytest.mark.parametrize("value", [True, np.bool_(True)])
def test_truth_values_of_numpy_are_truth_values(value: object) -> None:
    assert read(bool, value, "here") is True


@pytest.mark.parametrize("value", [None, "none"])
def test_none_is_left_out_or_written_out(value: object) -> None:
    assert read(int | None, value, "here") is None


def test_fields_of_a_dataclass_built_in_python_are_read_too() -> None:
    @dataclass(frozen=True)
    class Settings:
        rate: float = 1.0
        shuffle: bool = True

        def __post_init__(self) -> None:
            check_fields(self)

    assert type(Settings(rate=2).rate) is float
    with pytest.raises(ConfigError, match="shuffle: expected true or false, got 'no'"):
        Settings(shuffle="no")  # type: ignore[arg-type]


def test_arguments_are_read_by_their_annotations() -> None:
    @checked
    def draw(count: int, *, names: Sequence[str] = (), column: str | None = None, **options: Any) -> tuple[Any, ...]:
        return count, names, column, options

    # A column may be called none, in Python.
    assert draw(np.int64(3), names=["a"], column="none", other="no") == (3, ("a",), "none", {"other": "no"})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="count: expected a whole number, got '3'"):
        draw("3")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="names: expected a list, got 'NA'"):
        draw(3, names="NA")
    with pytest.raises(ConfigError, match="drawn: count: expected a whole number, got None"):
        check_arguments(partial(draw, column="x"), {"count": None}, "drawn: ")
    with pytest.raises(TypeError, match="missing a required argument: 'count'"):
        draw()  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["GIN", "gin", "Gin"])
def test_a_name_is_found_whatever_its_letter_case(name: str) -> None:
    assert check_name("model", name, ["GCN", "GIN"]) == "GIN"


def test_letter_case_matters_where_it_is_asked_for() -> None:
    assert check_name("conv", "gin", {"gcn": 1, "gin": 2}, exact=True) == "gin"
    with pytest.raises(ConfigError, match=r"^conv: expected one of gcn, gin, got 'GIN'; did you mean gin\?$"):
        check_name("conv", "GIN", {"gcn": 1, "gin": 2}, exact=True)


def test_a_name_that_differs_in_letter_case_only_does_not_hide_the_exact_one() -> None:
    assert check_name("column", "Size", ["Size", "size"]) == "Size"
    assert check_name("column", "size", ["Size", "size"]) == "size"


@pytest.mark.parametrize("name", ["max", "", 3, None, ["sum"]])
@pytest.mark.parametrize("exact", [True, False])
def test_an_unknown_name_is_refused_with_the_known_ones(name: object, exact: bool) -> None:
    with pytest.raises(ConfigError, match=r"^pool: expected a module or one of sum, mean, got ") as error:
        check_name("pool", name, ("sum", "mean"), "a module or ", exact=exact)
    assert str(error.value) == f"pool: {expected_one_of(name, ('sum', 'mean'), 'a module or ')}"
    assert "did you mean" not in str(error.value)


def test_names_may_be_none_and_numbers() -> None:
    assert check_name("norm", None, ("batch", None)) is None
    assert check_name("table", 3, (1, 2, 3)) == 3
    with pytest.raises(ConfigError, match=r"^norm: expected one of batch, None, got 'batsh'; did you mean batch"):
        check_name("norm", "batsh", ("batch", None))


def test_the_nearest_name_is_spelled_as_it_is_known() -> None:
    assert nearest("SIRGCN", ["GIN", "SIR-GCN"]) == "; did you mean SIR-GCN?"
    assert nearest("quaternion", ["GIN", "SIR-GCN"]) == ""
