"""Published figures beside our tuned ones, and the goals of our runs, read strictly from `sirgcn/paper/tuned`.

These figures are no claims that we reproduce: each was reached under a protocol of its own, which the table names.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from sirgcn.report.claims import load_claims
from sirgcn.report.sheets import Entry, Fact, Sheet
from sirgcn.strict import ConfigError, from_dict

KNOWN = {
    "code": "their repository",
    "page": "their page or paper",
    "memory": "memory, unconfirmed",
    "list": "a leaderboard, unconfirmed",
}
"""How a figure is known to us, by its mark in the file."""


@dataclass(frozen=True)
class Figure:
    """A published figure.

    Args:
        data: the title of the column in our experiments.
        model: the model.
        score: the figure as printed.
        source: the publication.
        known: how the figure is known to us, a key of `KNOWN`.
        protocol: what differs from our protocol.

    >>> Figure("ZINC", "GIN", "0.065", "a paper", "page", "2,000 epochs").known
    'page'
    """

    data: str
    model: str
    score: str
    source: str
    known: Literal["code", "page", "memory", "list"]
    protocol: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d+\.\d+( ± \d+\.\d+)?", self.score):
            raise ConfigError(f"{self.data}, {self.model}: score: expected such as 97.86 ± 0.24, got {self.score!r}")


@dataclass(frozen=True)
class Goal:
    """What our runs of an experiment should reach.

    Args:
        experiment: an experiment of the package.
        models: the rows that count. The one with the best validation metric is compared.
        column: the column.
        limit: the score that should be reached at least, or at most where lower is better.
        aim: the published figure behind the goal.
        higher_is_better: the direction of the metric.

    >>> Goal("zinc_plus", ("SIR-GCN",), "ZINC", 0.13, 0.065, higher_is_better=False).text
    'at most 0.13'
    """

    experiment: str
    models: tuple[str, ...]
    column: str
    limit: float
    aim: float
    higher_is_better: bool

    @property
    def text(self) -> str:
        """The limit in words."""
        return f"at {'least' if self.higher_is_better else 'most'} {self.limit:g}"

    def missed_by(self, score: float) -> float:
        """How far a score is from the limit; at most 0 where it is reached."""
        return self.limit - score if self.higher_is_better else score - self.limit


@dataclass(frozen=True)
class Published:
    """The file of published figures and goals."""

    figures: tuple[Figure, ...]
    goals: tuple[Goal, ...]


def load_published() -> Published:
    """The published figures and the goals.

    >>> sorted({figure.data for figure in load_published().figures})[:2]
    ['CLUSTER', 'PATTERN']
    """
    text = (files("sirgcn") / "paper" / "tuned" / "published.toml").read_text("utf-8")
    found: Published = from_dict(Published, tomllib.loads(text), "published.toml")
    return found


def published(column: str, ours: Mapping[str, str]) -> Sheet:
    """The published figures of a column beside ours of the same model, with what differs.

    Args:
        column: the title of the column.
        ours: our figures as text, by the title of the row.

    >>> published("minesweeper", {"SIR-GCN": "", "GCN": "97.7"}).rows[0][:3]
    ['SIR-GCN', '94.12 ± 0.42', 'not run']
    """
    figures = [*_of_paper(column), *(figure for figure in load_published().figures if figure.data == column)]
    rows = [_row(figure, ours) for figure in figures]
    head = ["Model", "Published", "Ours, in the table above", "Source", "Known to us from", "What differs"]
    return Sheet(f"Published figures, {column}", head, rows, [Fact("Read with care", _CARE)], left=len(head))


_CARE = "these figures have other budgets, searches or splits than ours, so only rows of one of our tables are compared"


def _row(figure: Figure, ours: Mapping[str, str]) -> list[Entry]:
    own = ours.get(figure.model, "no such row") or "not run"
    return [figure.model, figure.score, own, figure.source, KNOWN[figure.known], figure.protocol]


def _of_paper(column: str) -> list[Figure]:
    """The figure of SIR-GCN's own paper for a column; none where it has no such column."""
    tables = [table for table in load_claims() if table.number is not None and table.sort == "training"]
    return [
        Figure(column, "SIR-GCN", str(claim), f"{table.title} of SIR-GCN's paper", "page", "that paper's protocol")
        for table in tables
        if (claim := table.claims.get(("SIR-GCN", column))) is not None
    ]
