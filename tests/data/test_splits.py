"""Splits that are not drawn item by item: groups stay together, time runs forward, folds cover everything."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.data.splits import PARTS, Split
from sirgcn.data.validate import DataError

GROUPS = st.lists(st.integers(-1, 8), min_size=1, max_size=60).map(lambda values: torch.tensor([*values, 0, 1, 2]))


def parts_of(split: Split) -> list[set[int]]:
    return [set(getattr(split, part).tolist()) for part in PARTS]


@given(GROUPS, st.integers(0, 5))
def test_a_group_is_in_one_part_and_every_part_has_one(group: torch.Tensor, seed: int) -> None:
    split = Split.by_group(group, seed)
    seen = [set(group[getattr(split, part)].tolist()) for part in PARTS]
    assert all(seen)
    assert sum(map(len, seen)) == len(set.union(*seen))
    assert set.union(*parts_of(split)) == set(torch.nonzero(group >= 0).squeeze(1).tolist())


def test_groups_of_one_size_give_the_fractions_and_the_seed_decides() -> None:
    group = torch.arange(100).repeat_interleave(3)
    split = Split.by_group(group, 0, (0.7, 0.2, 0.1))
    assert [len(getattr(split, part)) for part in PARTS] == [210, 60, 30]
    assert torch.equal(Split.by_group(group, 0, (0.7, 0.2, 0.1)).train, split.train)
    assert not torch.equal(Split.by_group(group, 1, (0.7, 0.2, 0.1)).train, split.train)


def test_groups_of_a_rare_class_reach_every_part() -> None:
    # Ten of a hundred groups hold the rare class.
    strata = (torch.arange(100) % 10 == 0).long().repeat_interleave(2)
    for seed in range(5):
        split = Split.by_group(torch.arange(100).repeat_interleave(2), seed, strata=strata)
        assert [int(strata[getattr(split, part)].sum()) for part in PARTS] == [12, 4, 4]


@given(GROUPS, st.sampled_from([(0.8, 0.1, 0.1), (0.6, 0.2, 0.2), (0.5, 0.5, 0.0)]))
def test_the_largest_groups_train(group: torch.Tensor, fractions: tuple[float, float, float]) -> None:
    split = Split.largest_first(group, fractions)
    assert set.union(*parts_of(split)) == set(torch.nonzero(group >= 0).squeeze(1).tolist())
    size = torch.bincount(group[group >= 0])
    train, test = (set(group[part].tolist()) for part in (split.train, split.test))
    assert not train & test
    count = int((group >= 0).sum())
    assert len(split.train) <= fractions[0] * count + 1e-6
    # The first group that does not train would not have fitted, unless a smaller one came later.
    if train and len(split.train) < count:
        assert max(int(size[g]) for g in train) == int(size.max()) or int(size.max()) > fractions[0] * count


TIMES = st.lists(st.integers(0, 30) | st.none(), min_size=1, max_size=60).map(
    lambda values: torch.tensor(
        [float("nan") if v is None else float(v) for v in [*values, 0, 15, 30]], dtype=torch.float64
    )
)


@given(TIMES)
def test_older_items_train_and_no_time_is_in_two_parts(time: torch.Tensor) -> None:
    split = Split.by_time(time)
    train, val, test = (time[getattr(split, part)] for part in PARTS)
    assert train.max() < val.min() <= val.max() < test.min()
    assert len(train) + len(val) + len(test) == int((~time.isnan()).sum())


def test_different_times_give_the_fractions_with_or_without_a_part() -> None:
    time = torch.arange(10, dtype=torch.float64)
    sizes = {(0.6, 0.2, 0.2): [6, 2, 2], (0.8, 0.0, 0.2): [8, 0, 2], (0.7, 0.3, 0.0): [7, 3, 0], (1, 0, 0): [10, 0, 0]}
    for fractions, expected in sizes.items():
        assert [len(getattr(Split.by_time(time, fractions), part)) for part in PARTS] == expected


@given(st.integers(5, 40), st.integers(3, 5), st.integers(0, 3), st.booleans())
def test_every_item_tests_once_and_validates_once(count: int, folds: int, seed: int, grouped: bool) -> None:
    group = torch.arange(count) // 2 if grouped and count >= 2 * folds else None
    found = Split.folds(count, folds, seed, group=group)
    for part in ("val", "test"):
        assert sorted(torch.cat([getattr(split, part) for split in found]).tolist()) == list(range(count))
    for split in found:
        assert set.union(*parts_of(split)) == set(range(count))
        assert sum(map(len, parts_of(split))) == count
        if group is not None:
            assert not set(group[split.train].tolist()) & set(group[split.test].tolist())


def test_folds_hold_each_class_alike() -> None:
    strata = torch.tensor([0] * 50 + [1] * 5 + [-1] * 7)
    for split in Split.folds(62, 5, strata=strata):
        assert torch.bincount(strata[split.test]).tolist() == [10, 1]
        assert not set(split.train.tolist()) & set(range(55, 62))


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(DataError, match="group: expected at least 3 groups, one for each part, got 2"):
        Split.by_group(torch.tensor([0, 0, 1, 1]))
    with pytest.raises(DataError, match="time: expected at least 3 different times, got 2"):
        Split.by_time(torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64))
    with pytest.raises(DataError, match="folds: expected a whole number >= 3, got 2"):
        Split.folds(10, 2)
    with pytest.raises(DataError, match="folds: expected at least 5 items, one for each fold, got 4"):
        Split.folds(4, 5)
