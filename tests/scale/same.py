"""Whether two trainings had the same course."""

from typing import Any

import pytest


def same_numbers(found: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
    """Fail unless losses, metrics and the best epoch of two trainings agree."""
    assert found["best"] == expected["best"]
    for mine, other in zip(found["history"], expected["history"], strict=True):
        assert _given(mine) == pytest.approx(_given(other), rel=tolerance)
    assert found["metrics"] == pytest.approx(expected["metrics"], rel=tolerance)


def _given(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value is not None}
