"""Splits: the items that train a model, the items that select it, and the items that test it."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sirgcn.data.validate import DataError, check_at_least, check_shape
from sirgcn.strict import checked

Part = Literal["train", "val", "test"]
"""A part of a split."""

PARTS: tuple[Part, ...] = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Split:
    """The training, validation and test items: int64 indices of graphs, or of the nodes or edges of one graph.

    >>> split = Split.draw(10, seed=0)
    >>> len(split.train), len(split.val), len(split.test)
    (6, 2, 2)
    """

    train: Tensor
    val: Tensor
    test: Tensor

    @classmethod
    def from_masks(cls, train: Tensor, val: Tensor, test: Tensor) -> "Split":
        """Return the split that bool masks over the items describe."""
        return cls(*(mask.nonzero().squeeze(1) for mask in (train, val, test)))

    @classmethod
    @checked
    def draw(
        cls,
        count: int,
        seed: int = 0,
        fractions: tuple[float, float, float] = (0.6, 0.2, 0.2),
        strata: Tensor | None = None,
    ) -> "Split":
        """Draw a random split of `count` items.

        With `strata` (int64 `[count]`), each class is split by the same fractions, and items of class -1 are left out.
        If a class has three items or more, every part gets at least one of them.
        """
        check_at_least(1, count=count)
        check_at_least(0, seed=seed)
        _check_fractions(fractions)
        if strata is None:
            strata = torch.zeros(count, dtype=torch.int64)
        check_shape("strata", strata, (count,), (torch.int64,))
        if not bool((strata >= 0).any()):
            raise DataError("expected at least one class, got none", "strata")
        # PCG64 by name: the default generator of NumPy may change.
        rng = np.random.Generator(np.random.PCG64(seed))
        group = strata.numpy()
        parts: list[list[np.ndarray[Any, Any]]] = [[], [], []]
        for label in np.unique(group[group >= 0]):
            items = rng.permutation(np.flatnonzero(group == label))
            val, test = _part_sizes(len(items), fractions)
            ends = (len(items) - val - test, len(items) - test)
            for part, rows in zip(parts, np.split(items, ends), strict=True):
                part.append(rows)
        return cls(*(torch.from_numpy(np.sort(np.concatenate(part))) for part in parts))


def _check_fractions(fractions: tuple[float, float, float]) -> None:
    # Written so that NaN is refused, too.
    if not (min(fractions) >= 0 < fractions[0] and abs(sum(fractions) - 1) < 1e-9):
        expected = "expected three fractions, the first above 0, none below 0, and the sum 1"
        raise DataError(f"{expected}, got {fractions}", "fractions")


def _part_sizes(count: int, fractions: tuple[float, float, float]) -> tuple[int, int]:
    """Return how many of `count` items of a class are for validation and for the test."""
    val, test = (round(fraction * count) for fraction in fractions[1:])
    if count >= 3:
        val, test = max(val, int(fractions[1] > 0)), max(test, int(fractions[2] > 0))
    # A rare class goes to training first.
    val = min(val, count - 1)
    return val, min(test, count - 1 - val)
