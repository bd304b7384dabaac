"""How numbers are scaled: a rule for each column that its training rows alone decide."""

from dataclasses import dataclass

import numpy as np

from sirgcn.data.tables.text import Floats, Ints

# A column with at least this share of zeros is sparse: a value of it says most by being there.
SPARSE = 0.9

# A value this many times as far from the median as half of the values are belongs to a heavy tail. In a normal
# distribution that is twenty deviations.
FAR = 30.0

# With fewer rows, no value can be many deviations from the mean, and a tail cannot be told from chance.
FEWEST = 20


@dataclass(frozen=True)
class Scaling:
    r"""How the numbers of a column are scaled, one entry per number.

    .. math:: \frac{z - m}{s}, \qquad z = \begin{cases} x & q = 0 \\ \operatorname{asinh}((x - c) / q) & q > 0
        \end{cases}

    Args:
        mean: m.
        scale: s, above 0.
        centre: c; empty if no number has a heavy tail.
        spread: q; empty if no number has a heavy tail.
    """

    mean: Floats
    scale: Floats
    centre: Floats
    spread: Floats

    def of(self, values: Floats) -> Floats:
        """Return the scaled numbers `[rows, n]`; NaN stays NaN."""
        return (tamed(values, self.centre, self.spread) - self.mean) / self.scale

    def back(self, scaled: Floats) -> Floats:
        """Return the numbers that `of` scaled."""
        found: Floats = scaled * self.scale + self.mean
        if not len(self.spread):
            return found
        # Beyond this, sinh is infinite.
        wild = np.sinh(np.clip(found, -700, 700)) * self.spread + self.centre
        return np.where(self.spread > 0, wild, found)


def tamed(values: Floats, centre: Floats, spread: Floats) -> Floats:
    """Return the numbers with their heavy tails drawn in, where they have any."""
    if not len(spread):
        return values
    inner = np.where(spread > 0, spread, 1.0)
    found: Floats = np.where(spread > 0, np.arcsinh((values - centre) / inner), values)
    return found


def fit_scaling(rows: Floats) -> Scaling:
    """Return the scaling of numbers `[rows, n]` of training, none of them missing.

    - Numbers that are only 0 and 1 stay as they are.
    - Sparse numbers, of which nine in ten are 0, are divided by the largest absolute value, so that 0 stays 0.
    - Numbers with a heavy tail, whose farthest value is more than thirty times as far from the median as half of the
      values are, become asinh((x - median) / q), with q the median distance from the median, and are then scaled as all
      others.
    - All others are scaled to mean 0 and deviation 1. A constant becomes 0.
    """
    none = np.empty(0)
    count, width = rows.shape
    if count == 0:
        return Scaling(np.zeros(width), np.ones(width), none, none)
    is_flag = ((rows == 0) | (rows == 1)).all(axis=0)
    is_sparse = ((rows == 0).sum(axis=0) >= SPARSE * count) & ~is_flag
    as_it_is = is_flag | is_sparse
    centre, spread = _tails(rows, np.flatnonzero(~as_it_is))
    mean, scale = _standard(tamed(rows, centre, spread))
    largest = np.abs(rows).max(axis=0)
    mean = np.where(as_it_is, 0.0, mean)
    scale = np.where(is_sparse & (largest > 0), largest, np.where(as_it_is, 1.0, scale))
    return Scaling(mean, scale, centre, spread)


def _standard(rows: Floats) -> tuple[Floats, Floats]:
    """Return mean and deviation of each column; a constant has itself and 1."""
    with np.errstate(over="ignore"):
        mean, scale = rows.mean(axis=0), rows.std(axis=0)
    # A constant has no deviation, although the rounding of its mean may produce one.
    constant = (rows == rows[0]).all(axis=0)
    return np.where(constant, rows[0], mean), np.where(constant | (scale == 0), 1.0, scale)


def _tails(rows: Floats, places: Ints) -> tuple[Floats, Floats]:
    """Return centre and spread of the columns, with a spread of 0 where there is no heavy tail; or nothing."""
    tail = rows[:, places]
    if len(tail) < FEWEST or not len(places):
        return np.empty(0), np.empty(0)
    middle = np.median(tail, axis=0)
    distance = np.abs(tail - middle)
    # If more than half of the values are equal, the median distance is 0 and the mean one says more.
    near = np.median(distance, axis=0)
    near = np.where(near > 0, near, distance.mean(axis=0))
    is_heavy = distance.max(axis=0) > FAR * near
    if not is_heavy.any():
        return np.empty(0), np.empty(0)
    centre, spread = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    centre[places[is_heavy]], spread[places[is_heavy]] = middle[is_heavy], near[is_heavy]
    return centre, spread
