"""Conformal scores: how far a model was off on rows that it had not seen, kept compactly for any level."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sirgcn.strict import ConfigError, Count, check_fields

KEPT = 1000
"""The most scores that are kept. Of more, ranks at equal distances are, which changes a level by less than 0.1 %."""


@dataclass(frozen=True)
class Scores:
    r"""The scores of `count` rows, from small to large. Of many rows, only so many ranks are kept.

    Entry i of m kept values is the score of rank :math:`\lceil (i + 1) \, \text{count} / m \rceil`.

    Args:
        count: how many rows had a score.
        values: the scores that are kept, from small to large.

    >>> Scores.of(torch.tensor([3.0, 1.0, 2.0]))
    Scores(count=3, values=(1.0, 2.0, 3.0))
    """

    count: Count
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.values) != min(self.count, KEPT):
            raise ConfigError(f"scores: expected {min(self.count, KEPT)} values, got {len(self.values)}")
        if not all(map(math.isfinite, self.values)) or list(self.values) != sorted(self.values):
            raise ConfigError("scores: expected finite numbers from small to large")

    @classmethod
    def of(cls, scores: Tensor) -> "Scores":
        """The scores of rows; those that are NaN do not count."""
        known = scores[~torch.isnan(scores)].double().sort().values
        kept = min(len(known), KEPT)
        ranks = -(-(torch.arange(kept) + 1) * len(known) // kept) if kept else torch.arange(0)
        return cls(len(known), tuple(known[ranks - 1].tolist()))

    def limit(self, level: float) -> float:
        r"""The score of rank :math:`\lceil (\text{count} + 1) \cdot \text{level} \rceil`; infinite if there is none.

        The score of a new row is at most this with a probability of at least `level`, whatever the model.

        >>> Scores.of(torch.arange(1.0, 10.0)).limit(0.9)
        9.0
        >>> Scores.of(torch.arange(1.0, 9.0)).limit(0.9)
        inf
        """
        if not 0 < level < 1:
            raise ConfigError(f"level: expected a number between 0 and 1, got {level}")
        # Rounded: 10 * 0.9 is a little more than 9 in floating point, for instance.
        rank = math.ceil(round((self.count + 1) * level, 9))
        if rank > self.count:
            return math.inf
        return self.values[-(-rank * len(self.values) // self.count) - 1]
