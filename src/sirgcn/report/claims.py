"""What the paper claims: every figure of its eight tables, read strictly from `sirgcn/paper/*.toml`."""

import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Literal

from sirgcn.strict import ConfigError, from_dict

METRICS = {
    "accuracy": "accuracy",
    "class_accuracy": "class-averaged accuracy",
    "roc_auc": "ROC-AUC",
    "mae": "mean absolute error",
    "mse": "mean squared error",
    "seconds": "inference time",
    "step_seconds": "time of a training step",
    "complexity": "order of growth",
}
"""The metrics of the paper's tables and of our own times, by the name that a record gives them."""

Kind = Literal["score", "runtime", "complexity"]

_PRINTED = re.compile(r"(\d+(?:\.(\d+))?) ± (\d+(?:\.(\d+))?)")


@dataclass(frozen=True)
class Claim:
    """A published figure, mean ± standard deviation, with the number of decimals in which it is printed."""

    mean: float
    std: float
    decimals: int

    def __str__(self) -> str:
        return f"{self.mean:.{self.decimals}f} ± {self.std:.{self.decimals}f}"

    @property
    def interval(self) -> tuple[float, float]:
        """The widest mean ± 2 std that the printed digits can stand for: 0.10 ± 0.00 gives [0.085, 0.115].

        Mean and std are both rounded, each by at most half a unit of the last digit, `h`: mean ± (2 (std + h) + h).
        """
        half = 0.5 * 10.0**-self.decimals
        reach = 2 * (self.std + half) + half
        return self.mean - reach, self.mean + reach


@dataclass(frozen=True)
class Column:
    """A column of a table: `name` is what records call it, `best` the model that the paper prints in bold."""

    name: str
    metric: str
    unit: str
    higher_is_better: bool
    best: str = ""

    @property
    def heading(self) -> str:
        """The name with the metric's direction."""
        return self.name if self.metric == "complexity" else f"{self.name} {'↑' if self.higher_is_better else '↓'}"


@dataclass(frozen=True)
class Row:
    """A row of a table: a model and its cells as printed, empty where the paper has no figure."""

    model: str
    cells: tuple[str, ...]
    latex: str = ""
    rule_above: bool = False


@dataclass(frozen=True)
class Table:
    """A table of the paper, or (`number` is None) one of an experiment that the paper does not have.

    Args:
        number: of the table.
        kind: `"score"` (better or worse), `"runtime"` (seconds, compared as ratios to SIR-GCN, because machines
            differ) or `"complexity"` (formulas).
        label: LaTeX's.
        caption: as printed.
        columns: from left to right.
        rows: from top to bottom.
        note: below the table.
        source: whose figures the rows other than SIR-GCN are, where they are not the authors'.
    """

    number: int | None
    kind: Kind
    label: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        models = [row.model for row in self.rows]
        for what, names in (("columns", [column.name for column in self.columns]), ("rows", models)):
            if not names or len(set(names)) < len(names):
                raise ConfigError(f"{what}: expected different names, got {names}")
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ConfigError(f"{row.model}: expected {len(self.columns)} cells, got {len(row.cells)}")
        for column in self.columns:
            if column.metric not in METRICS and self.number is not None:
                raise ConfigError(f"{column.name}: metric: expected one of {', '.join(METRICS)}, got {column.metric!r}")
            if column.best and column.best not in models:
                raise ConfigError(f"{column.name}: best: expected one of {', '.join(models)}, got {column.best!r}")
        if self.kind != "complexity":
            _ = self.claims

    @property
    def title(self) -> str:
        """What to call it: `Table 3`, or the experiment's name."""
        return f"Table {self.number}" if self.number is not None else self.label

    @cached_property
    def claims(self) -> dict[tuple[str, str], Claim]:
        """The published figures by model and column; none where nothing is printed, or a formula."""
        if self.kind == "complexity":
            return {}
        return {
            (row.model, column.name): _claim(cell, f"{row.model}, {column.name}")
            for row in self.rows
            for column, cell in zip(self.columns, row.cells, strict=True)
            if cell
        }


def load_claims() -> tuple[Table, ...]:
    """The paper's eight tables: 1-5 results, 6 and 7 runtimes, 8 complexities."""
    folder = files("sirgcn") / "paper"
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".toml"))
    tables = tuple(from_dict(Table, tomllib.loads((folder / name).read_text("utf-8")), name) for name in names)
    if [table.number for table in tables] != list(range(1, 9)):
        raise ConfigError(f"paper: expected tables 1 to 8 in table1.toml to table8.toml, got {', '.join(names)}")
    return tables


def plain_formula(latex: str) -> str:
    r"""A formula of Table 8 as text: `O(|V| × d_out × d_in + |E| × d_out)`."""
    text = re.sub(r"\\(?:mathcal|text|texttt)\{(\w+)\}", r"\1", latex)
    text = re.sub(r"_\{(\w+)\}", r"_\1", text).replace("^2", "²").replace(r"\times", "×")
    return re.sub(r"\s+\)", ")", re.sub(r"\\(?:left|right)\s*", "", text))


def exponents(latex: str) -> dict[str, int]:
    """The powers in a formula of Table 8: of |V|, of |E|, and of d in the highest term per node and per edge.

    All widths are d, and an MLP costs d²; k does not grow.
    """
    found: dict[str, int] = {}
    for term in plain_formula(latex).removeprefix("O(").removesuffix(")").split(" + "):
        factors = term.split(" × ")
        power = sum(2 if factor == "MLP" or factor.endswith("²") else factor.startswith("d_") for factor in factors)
        for size, width in (("|V|", "d per node"), ("|E|", "d per edge")):
            if size in factors:
                found |= {size: 1, width: max(power, found.get(width, 0))}
    return found


def _claim(cell: str, where: str) -> Claim:
    match = _PRINTED.fullmatch(cell)
    if match is None or len(match[2] or "") != len(match[4] or ""):
        raise ConfigError(f"{where}: expected a figure such as '0.10 ± 0.00', got {cell!r}")
    return Claim(float(match[1]), float(match[3]), len(match[2] or ""))
