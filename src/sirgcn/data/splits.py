"""Splits: which items train a model, which choose it, and which test it."""

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
    """Training, validation and test items: int64 indices of graphs, or of one graph's nodes or edges."""

    train: Tensor
    val: Tensor
    test: Tensor

    @classmethod
    def from_masks(cls, train: Tensor, val: Tensor, test: Tensor) -> "Split":
        """From bool masks over the items."""
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
        """A random split of `count` items; with `strata` (int64 `[count]`) each class is split alike, -1 is left out.

        Every part gets at least one item of a class that has three or more.
        """
        check_at_least(1, count=count)
        check_at_least(0, seed=seed)
        # Written so that NaN is refused too.
        if not (min(fractions) >= 0 < fractions[0] and abs(sum(fractions) - 1) < 1e-9):
            expected = "expected three, the first above 0, none below 0, and the sum 1"
            raise DataError(f"{expected}, got {fractions}", "fractions")
        if strata is None:
            strata = torch.zeros(count, dtype=torch.int64)
        check_shape("strata", strata, (count,), (torch.int64,))
        if not bool((strata >= 0).any()):
            raise DataError("expected at least one class, got none", "strata")
        # PCG64 by name: numpy's default generator may become another one.
        rng = np.random.Generator(np.random.PCG64(seed))
        group = strata.numpy()
        parts: list[list[np.ndarray[Any, Any]]] = [[], [], []]
        for label in np.unique(group[group >= 0]):
            items = rng.permutation(np.flatnonzero(group == label))
            val, test = (round(fraction * len(items)) for fraction in fractions[1:])
            if len(items) >= 3:
                val, test = max(val, int(fractions[1] > 0)), max(test, int(fractions[2] > 0))
            # A rare class goes to training first.
            val, test = min(val, len(items) - 1), min(test, len(items) - 1 - min(val, len(items) - 1))
            ends = (len(items) - val - test, len(items) - test)
            for part, rows in zip(parts, np.split(items, ends), strict=True):
                part.append(rows)
        return cls(*(torch.from_numpy(np.sort(np.concatenate(part))) for part in parts))
