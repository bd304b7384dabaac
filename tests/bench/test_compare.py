"""The tools that compare two checkouts judge differences of weights rightly; no other checkout is needed here."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(TOOLS)
    yield importlib.import_module("compare_training")
    for name in ("compare_training", "checkouts"):
        sys.modules.pop(name, None)


def arrays(**changes: Any) -> dict[str, np.ndarray]:
    found = {"initial a": np.ones(3, np.float32), "losses": np.array([1.0, 2.0]), "final a": np.full(3, 4, np.float32)}
    return {name: np.array(changes.get(name.replace(" ", "_"), value), value.dtype) for name, value in found.items()}


def test_equal_trainings_have_the_same_bits(training: Any) -> None:
    assert training.compare(arrays(), arrays(), 1e-5) == ("same bits", True)


def test_other_initial_weights_are_not_alike_however_small_the_difference(training: Any) -> None:
    other = arrays(initial_a=np.nextafter(np.ones(3, np.float32), np.float32(2)))
    text, is_alike = training.compare(arrays(), other, 1e-5)
    assert text == "OTHER INITIAL WEIGHTS"
    assert not is_alike


@pytest.mark.parametrize(("change", "is_alike"), [(1e-6, True), (1e-3, False), (float("nan"), False)])
def test_a_difference_counts_by_the_tolerance(training: Any, change: float, is_alike: bool) -> None:
    text, found = training.compare(arrays(), arrays(losses=[1.0, 2.0 + change]), 1e-5)
    assert found == is_alike
    assert "losses" in text
    assert ("DIFFERS" in text) != is_alike


def test_weights_with_other_names_are_compared_in_their_order(training: Any) -> None:
    renamed = {name.replace(" a", " b.weight"): value for name, value in arrays().items()}
    assert training.compare(arrays(), renamed, 1e-5) == ("same bits (other names of weights)", True)


def test_other_weights_are_not_alike(training: Any) -> None:
    assert not training.compare(arrays(), {"losses": np.zeros(2)}, 1e-5)[1]
    assert not training.compare(arrays(), arrays(final_a=np.zeros(4)), 1e-5)[1]


def test_a_network_trains_the_same_way_twice(training: Any) -> None:
    title = "synthetic: HeteroEdgeCount(4)"
    first, second = training.train(title), training.train(title)
    assert training.compare(first, second, 0.0) == ("same bits", True)
    assert not np.array_equal(first["losses"][0], first["losses"][-1])
