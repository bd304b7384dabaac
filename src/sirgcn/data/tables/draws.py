"""How a split of a user's tables is drawn: at random, by group, by time, by scaffold, or in folds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sirgcn.data.graphs import Level
from sirgcn.data.molecules import murcko_scaffold
from sirgcn.data.splits import Split
from sirgcn.data.tables.columns import Frame
from sirgcn.data.tables.labels import Items, Labels
from sirgcn.data.tables.text import Bools, Floats, Ints
from sirgcn.data.validate import DataError

Draw = Literal["random", "scaffold", "inductive"] | Mapping[Literal["group", "time"], str]
"""How a split is drawn.

- `"random"`: each class by the same fractions; at random where targets are numbers.
- `"scaffold"`: molecules with one Bemis-Murcko scaffold stay together, and the largest scaffolds train.
- `"inductive"`: at random, and training sees neither the nodes of val and test nor their edges.
- `{"group": column}`: all rows with one value in this column are in one part.
- `{"time": column}`: the oldest rows train, the newest test.
"""


@dataclass(frozen=True)
class Drawing:
    """What the caller wants of a split.

    Args:
        draw: how it is drawn; None takes the split of the source if there is one, and otherwise draws at random.
        seed: the seed of the draw.
        fractions: the fractions of train, val and test.
        folds: the number of folds of a cross-validation; 0 for none.
        fold: the fold that is the test part.
    """

    draw: Draw | None
    seed: int
    fractions: tuple[float, float, float]
    folds: int = 0
    fold: int = 0

    @property
    def is_asked(self) -> bool:
        """Whether the caller asks for a draw, whatever the source says."""
        return self.folds > 0 or self.draw not in (None, "inductive")

    @property
    def column(self) -> str | None:
        """The column that the split is drawn by."""
        return next(iter(self.draw.values()), None) if isinstance(self.draw, Mapping) else None

    @property
    def how(self) -> str:
        """The way of drawing in one word."""
        if isinstance(self.draw, Mapping):
            if len(self.draw) != 1:
                raise DataError(f"expected one of group and time, got {dict(self.draw)}", "draw", value=self.draw)
            return next(iter(self.draw))
        return "random" if self.draw in (None, "inductive") else str(self.draw)


def draw_split(
    drawing: Drawing, items: Items, labels: Labels, over: Level, labelled: Bools, smiles: str | None
) -> tuple[Split, str]:
    """Return a split of the labelled items, and what was done in words."""
    how = drawing.how
    strata = torch.from_numpy(labelled.astype(np.int64) - 1)
    words = {
        "random": "at random",
        "group": f"by the groups of column {drawing.column!r}",
        "time": f"by the times of column {drawing.column!r}, the newest test",
        "scaffold": "by scaffolds, the largest train",
    }[how]
    if len(labelled) == len(labels.y) and labels.classes:
        strata = labels.y
        words = "each class alike" if how == "random" else words
    group: Tensor | None = None
    if how == "group":
        group = torch.from_numpy(_groups(items, over, str(drawing.column), labelled))
    elif how == "scaffold":
        group = torch.from_numpy(np.where(labelled, _scaffolds(items, smiles), -1))
    if drawing.folds:
        return _fold(drawing, strata, group, words)
    shares = " / ".join(f"{part:g}" for part in drawing.fractions)
    if how == "time":
        times = torch.from_numpy(_times(items, over, str(drawing.column), labelled))
        return Split.by_time(times, drawing.fractions), f"drawn {words}, {shares}"
    if group is None:
        split = Split.draw(len(labelled), drawing.seed, drawing.fractions, strata)
    elif how == "scaffold":
        return Split.largest_first(group, drawing.fractions), f"drawn {words}, {shares}"
    else:
        split = Split.by_group(group, drawing.seed, drawing.fractions, strata)
    return split, f"drawn {words}, seed {drawing.seed}, {shares}"


def _fold(drawing: Drawing, strata: Tensor, group: Tensor | None, words: str) -> tuple[Split, str]:
    folds, fold = drawing.folds, drawing.fold
    if drawing.how == "time":
        raise DataError("expected none where the split is drawn by time, because the newest rows test", "folds")
    if fold >= folds:
        raise DataError(f"expected 0 <= fold < {folds}, got {fold}", "fold", value=fold)
    found = Split.folds(len(strata), folds, drawing.seed, strata, group)
    return found[fold], f"fold {fold} of {folds}, drawn {words}, seed {drawing.seed}"


def _groups(items: Items, over: Level, column: str, labelled: Bools) -> Ints:
    """Return the number of each labelled item's group, -1 for the others."""
    frame = items.frame(over, column)
    texts = frame.categories(frame.find("draw", column))
    absent = np.array([text is None for text in texts], dtype=np.bool_)
    code = np.unique(np.where(absent, "", texts).astype(str), return_inverse=True)[1]
    rows = _rows(items, over, frame, column, absent, labelled)
    return np.where(labelled, code[rows], -1)


def _times(items: Items, over: Level, column: str, labelled: Bools) -> Floats:
    """Return the time of each labelled item, NaN for the others."""
    frame = items.frame(over, column)
    column_type = frame.type_of(frame.find("draw", column))
    if column_type in (None, "list", "boolean"):
        raise frame.error(f"expected dates or numbers to draw a split by, got {column_type or 'no value'}", column)
    # Dates that a data frame holds as text are read, too.
    times = frame.numbers(column, "numeric" if column_type == "numeric" else "time")
    rows = _rows(items, over, frame, column, np.isnan(times), labelled)
    return np.where(labelled, times[rows], np.nan)


def _rows(items: Items, over: Level, frame: Frame, column: str, absent: Bools, labelled: Bools) -> Ints:
    """Return the place of each item's row in its table; raise if a labelled item has no value."""
    rows = items.structure.rows if over == "edge" else np.arange(len(labelled))
    bad = absent[rows] & labelled
    if bad.any():
        remedy = "add one, or take away the row's target, so that it is in no part"
        expected = f"expected a value in all rows with a target, got none; {remedy}"
        raise frame.error(expected, column, int(rows[bad.argmax()]))
    return rows


def _scaffolds(items: Items, smiles: str | None) -> Ints:
    """Return the number of each molecule's scaffold."""
    if smiles is None or items.graphs is None:
        raise DataError("expected a table of molecules to draw by scaffold, got another one; random is for all", "draw")
    numbers: dict[str, int] = {}
    found = [numbers.setdefault(murcko_scaffold(text), len(numbers)) for text in items.graphs.categories(smiles)]
    return np.array(found, dtype=np.int64)
