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

    @classmethod
    @checked
    def by_group(
        cls,
        group: Tensor,
        seed: int = 0,
        fractions: tuple[float, float, float] = (0.6, 0.2, 0.2),
        strata: Tensor | None = None,
    ) -> "Split":
        """Draw a random split that keeps all items of a group in one part.

        Groups are dealt in random order, each to the part that lacks most of what the group holds, so that the parts
        come near to the fractions, also class by class.

        Args:
            group: the number of each item's group, int64 `[count]`; -1 leaves an item out.
            seed: the seed of the order.
            fractions: the wanted fractions of the items.
            strata: the class of each item, int64 `[count]`; -1 leaves an item out.

        >>> split = Split.by_group(torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4]))
        >>> len(split.train), len(split.val), len(split.test)
        (6, 2, 2)
        """
        _check_fractions(fractions)
        part = _deal(group, np.array(fractions), seed, strata)
        return cls(*(torch.from_numpy(np.flatnonzero(part == number)) for number in range(3)))

    @classmethod
    @checked
    def largest_first(cls, group: Tensor, fractions: tuple[float, float, float] = (0.8, 0.1, 0.1)) -> "Split":
        """Return the split that keeps groups together: the largest groups go to train, the rarest to the test part.

        It is the scaffold split of MoleculeNet, where a group is a scaffold. The groups go to train until it is full,
        then to val, then to test.

        Args:
            group: the number of each item's group, int64 `[count]`; -1 leaves an item out.
            fractions: the largest fractions of train and val; test has the rest.

        >>> Split.largest_first(torch.tensor([0, 1, 1, 1, 2]), (0.6, 0.2, 0.2)).train.tolist()
        [1, 2, 3]
        """
        _check_fractions(fractions)
        check_shape("group", group, (None,), (torch.int64,))
        code = group.numpy()
        items = np.flatnonzero(code >= 0)
        items = items[np.argsort(code[items], kind="stable")]
        groups = np.split(items, np.flatnonzero(np.diff(code[items])) + 1)
        ends = fractions[0] * len(items) + 1e-9, (fractions[0] + fractions[1]) * len(items) + 1e-9
        parts: tuple[list[int], ...] = ([], [], [])
        for members in sorted(groups, key=lambda members: (len(members), members[0]), reverse=True):
            if len(parts[0]) + len(members) <= ends[0]:
                part = 0
            else:
                part = 1 if len(parts[0]) + len(parts[1]) + len(members) <= ends[1] else 2
            parts[part].extend(members.tolist())
        return cls(*(torch.tensor(sorted(part), dtype=torch.int64) for part in parts))

    @classmethod
    @checked
    def by_time(cls, time: Tensor, fractions: tuple[float, float, float] = (0.6, 0.2, 0.2)) -> "Split":
        """Return the split where the oldest items train and the newest test. Items of one time are in one part.

        Args:
            time: the time of each item, float64 `[count]`; NaN leaves an item out.
            fractions: the wanted fractions of the items.

        >>> split = Split.by_time(torch.tensor([5.0, 1.0, 2.0, 3.0, 4.0], dtype=torch.float64))
        >>> split.train.tolist(), split.val.tolist(), split.test.tolist()
        ([1, 2, 3], [4], [0])
        """
        _check_fractions(fractions)
        check_shape("time", time, (None,), (torch.float64,))
        values = time.numpy()
        items = np.flatnonzero(~np.isnan(values))
        items = items[np.argsort(values[items], kind="stable")]
        val, test = _part_sizes(len(items), fractions)
        # A part may begin only where the time changes.
        starts = np.flatnonzero(np.diff(values[items])) + 1
        wanted = [len(items) - val - test] * (fractions[1] > 0) + [len(items) - test] * (fractions[2] > 0)
        if len(starts) < len(wanted):
            raise DataError(f"expected at least {len(wanted) + 1} different times, got {len(starts) + 1}", "time")
        ends = _nearest_starts(starts, wanted)
        if fractions[1] == 0:
            ends = [*ends, *ends] if ends else [len(items)] * 2
        elif fractions[2] == 0:
            ends = [*ends, len(items)]
        return cls(*(torch.from_numpy(np.sort(part)) for part in np.split(items, ends)))

    @classmethod
    @checked
    def folds(
        cls, count: int, folds: int = 5, seed: int = 0, strata: Tensor | None = None, group: Tensor | None = None
    ) -> "tuple[Split, ...]":
        """Return the splits of a cross-validation: split k tests on fold k and validates on the next one.

        Args:
            count: the number of items.
            folds: the number of folds, at least three.
            seed: the seed of the folds.
            strata: the class of each item, int64 `[count]`, which all folds get alike; -1 leaves an item out.
            group: the number of each item's group, int64 `[count]`, whose items are all in one fold; -1 leaves an item
                out.

        >>> sorted(torch.cat([split.test for split in Split.folds(7, folds=3)]).tolist())
        [0, 1, 2, 3, 4, 5, 6]
        """
        check_at_least(1, count=count)
        check_at_least(3, folds=folds)
        if group is None:
            part = _shuffled_folds(count, folds, seed, strata)
        else:
            check_shape("group", group, (count,), (torch.int64,))
            part = _deal(group, np.full(folds, 1 / folds), seed, strata)
        masks = [torch.from_numpy(part == fold) for fold in range(folds)]
        found = []
        for fold in range(folds):
            test, val = masks[fold], masks[(fold + 1) % folds]
            found.append(cls.from_masks(torch.from_numpy(part >= 0) & ~test & ~val, val, test))
        return tuple(found)


def _deal(group: Tensor, shares: Any, seed: int, strata: Tensor | None) -> Any:
    """Return the part of each item, -1 for none: groups are dealt so that parts come near to their shares."""
    check_at_least(0, seed=seed)
    check_shape("group", group, (None,), (torch.int64,))
    strata = torch.zeros_like(group) if strata is None else strata
    check_shape("strata", strata, group.shape, (torch.int64,))
    code, label = group.numpy(), strata.numpy()
    kept = (code >= 0) & (label >= 0)
    _, member = np.unique(code[kept], return_inverse=True)
    _, of_class = np.unique(label[kept], return_inverse=True)
    wanted = np.flatnonzero(shares > 0)
    size = np.bincount(member)
    if len(size) < len(wanted):
        raise DataError(f"expected at least {len(wanted)} groups, one for each part, got {len(size)}", "group")
    classes = int(of_class.max()) + 1
    held = np.bincount(member * classes + of_class, minlength=len(size) * classes).reshape(-1, classes)
    # Each class counts alike, however rare it is.
    held = held / held.sum(axis=0)
    lacking = np.outer(shares, np.ones(classes))
    part = np.empty(len(size), np.int64)
    for number in np.random.Generator(np.random.PCG64(seed)).permutation(len(size)):
        part[number] = wanted[np.argmax(lacking[wanted] @ held[number])]
        lacking[part[number]] -= held[number]
    for empty in np.setdiff1d(wanted, part):
        donor = np.flatnonzero(part == np.bincount(part).argmax())
        part[donor[size[donor].argmin()]] = empty
    found = np.full(len(code), -1)
    found[kept] = part[member]
    return found


def _shuffled_folds(count: int, folds: int, seed: int, strata: Tensor | None) -> Any:
    """Return the fold of each item, -1 for none; the items of each class go to the folds in turn."""
    check_at_least(0, seed=seed)
    strata = torch.zeros(count, dtype=torch.int64) if strata is None else strata
    check_shape("strata", strata, (count,), (torch.int64,))
    rng = np.random.Generator(np.random.PCG64(seed))
    order = rng.permutation(np.flatnonzero(strata.numpy() >= 0))
    if len(order) < folds:
        raise DataError(f"expected at least {folds} items, one for each fold, got {len(order)}", "folds")
    order = order[np.argsort(strata.numpy()[order], kind="stable")]
    found = np.full(count, -1)
    found[order] = np.arange(len(order)) % folds
    return found


def _nearest_starts(starts: Any, wanted: list[int]) -> list[int]:
    """Return the start nearest to each wanted one, all different and in order."""
    found: list[int] = []
    first = 0
    for place, want in enumerate(wanted):
        free = starts[first : len(starts) - (len(wanted) - 1 - place)]
        nearest = int(np.abs(free - want).argmin())
        found.append(int(free[nearest]))
        first += nearest + 1
    return found


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
