"""What papers claim, read strictly from the files `sirgcn/paper/*.toml`.

These are every figure of the eight tables of SIR-GCN's paper, and the scores of its successor, SINC-GCN.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Literal

from sirgcn.strict import ConfigError, check_name, from_dict

METRICS = {
    "accuracy": "accuracy",
    "class_accuracy": "class-averaged accuracy",
    "balanced_accuracy": "balanced accuracy",
    "f1": "macro F1",
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
    "log_loss": "log-loss",
    "mae": "mean absolute error",
    "mse": "mean squared error",
    "rmse": "root mean squared error",
    "r2": "R²",
    "seconds": "inference time",
    "step_seconds": "time of a training step",
    "complexity": "order of growth",
}
"""The titles of metrics and of our own times, by the name that records give them.

The report never loads torch, so it cannot ask `sirgcn.data.METRICS`; a test compares the two.
"""

Sort = Literal["training", "inference", "step", "growth"]
"""The sorts of experiments that fill tables, by the name in an experiment file."""

_PRINTED = re.compile(r"(\d+(?:\.(\d+))?)(?: ± (\d+(?:\.(\d+))?))?")


@dataclass(frozen=True)
class Claim:
    """A published figure, mean ± standard deviation, with the number of decimals in which the paper prints it.

    The standard deviation is None where the paper does not print it.

    >>> print(Claim(0.1, 0.0, decimals=2))
    0.10 ± 0.00
    """

    mean: float
    std: float | None
    decimals: int

    def __str__(self) -> str:
        mean = f"{self.mean:.{self.decimals}f}"
        return mean if self.std is None else f"{mean} ± {self.std:.{self.decimals}f}"

    @property
    def interval(self) -> tuple[float, float] | None:
        """The widest mean ± 2 std that the printed digits can stand for: 0.10 ± 0.00 gives [0.085, 0.115].

        Mean and std are both rounded by at most half a unit of the last digit, `h`: mean ± (2 (std + h) + h). Without a
        published std there is no interval.
        """
        if self.std is None:
            return None
        half = 0.5 * 10.0**-self.decimals
        reach = 2 * (self.std + half) + half
        return self.mean - reach, self.mean + reach


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: what records call the column.
        metric: the metric's name in the records.
        unit: the unit of the figures, such as `%`.
        higher_is_better: the direction of the metric.
        best: the model whose figure the paper prints in bold.

    >>> Column("ZINC", "mae", "", higher_is_better=False).heading
    'ZINC ↓'
    """

    name: str
    metric: str
    unit: str
    higher_is_better: bool
    best: str = ""

    @property
    def arrow(self) -> str:
        """The direction of the metric; empty for a formula, which has none."""
        if self.metric == "complexity":
            return ""
        return "↑" if self.higher_is_better else "↓"

    @property
    def heading(self) -> str:
        """The name with the direction of the metric."""
        return f"{self.name} {self.arrow}".rstrip()

    @property
    def metric_title(self) -> str:
        """The metric in words with its unit: `mean absolute error`, `accuracy, %`."""
        title = METRICS.get(self.metric, self.metric)
        return f"{title}, {self.unit}" if self.unit else title


@dataclass(frozen=True)
class Row:
    """A row of a table: a model and its cells as printed. A cell is empty where the paper has no figure.

    >>> Row("GIN", ("0.78 ± 0.07",)).rule_above
    False
    """

    model: str
    cells: tuple[str, ...]
    latex: str = ""
    rule_above: bool = False


@dataclass(frozen=True)
class Table:
    """A table of a paper, or (where `paper` is empty) the table of an experiment that no paper has.

    Args:
        number: the number of the table in SIR-GCN's paper. None for all other tables.
        sort: the sort of experiment that fills the table. Scores are judged against the published interval. Times are
            compared as ratios to SIR-GCN, because machines differ. The growth of a layer is compared with a formula.
        label: the label in LaTeX. Without a number it is the name of the table.
        caption: the caption as printed.
        columns: the columns, from left to right.
        rows: the rows, from top to bottom.
        note: the paper's note below the table.
        source: the publications from which the paper takes the rows other than its own model's.
        paper: the model of the paper that claims the figures. Empty for a table without claims.
        variant: the variant of `SIRConv` behind the claims.
        remark: what a reader must know of the claims and the paper does not say below its table.

    >>> load_claims()[0].title
    'Table 1'
    """

    number: int | None
    sort: Sort
    label: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    source: str = ""
    paper: str = ""
    variant: str = "published"
    remark: str = ""

    def __post_init__(self) -> None:
        models = [row.model for row in self.rows]
        _check_different("columns", [column.name for column in self.columns])
        _check_different("rows", models)
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ConfigError(f"{row.model}: expected {len(self.columns)} cells, got {len(row.cells)}")
        for column in self.columns:
            if self.paper:
                check_name(f"{column.name}: metric", column.metric, METRICS)
            if column.best:
                check_name(f"{column.name}: best", column.best, models)
        # Reading the claims checks how every figure is printed.
        _ = self.claims

    @property
    def title(self) -> str:
        """`Table 3`, or the name of the table."""
        return f"Table {self.number}" if self.number is not None else self.label

    @property
    def key(self) -> int | str:
        """What experiments and records call the table: its number, or its name."""
        return self.label if self.number is None else self.number

    @property
    def argument(self) -> str:
        """What `sirgcn reproduce` calls the table: `table3`, or its name."""
        return self.label if self.number is None else f"table{self.number}"

    @property
    def full_title(self) -> str:
        """The title with the caption: `Table 1: Test accuracy on DictionaryLookup.`"""
        return f"{self.title}: {self.caption}" if self.caption else self.title

    @cached_property
    def claims(self) -> dict[tuple[str, str], Claim]:
        """The published figures by model and column. A table of formulas has none."""
        if self.sort == "growth":
            return {}
        return {
            (row.model, column.name): _claim(cell, f"{row.model}, {column.name}")
            for row in self.rows
            for column, cell in zip(self.columns, row.cells, strict=True)
            if cell
        }


def load_claims() -> tuple[Table, ...]:
    """The tables of SIR-GCN's paper, in their order, and then those of SINC-GCN's.

    Of the eight tables of SIR-GCN's paper, 1 to 5 are results, 6 and 7 run times, 8 is complexities.

    >>> table = load_claims()[1]
    >>> print(table.caption, table.claims["GIN", "c=2"])
    Test mean squared error on HeteroEdgeCount. 39.620 ± 2.060
    """
    folder = files("sirgcn") / "paper"
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".toml"))
    tables = [from_dict(Table, tomllib.loads((folder / name).read_text("utf-8")), name) for name in names]
    numbered = sorted((table for table in tables if table.number is not None), key=lambda table: table.key)
    if [table.number for table in numbered] != list(range(1, 9)):
        raise ConfigError(f"paper: expected tables 1 to 8 in table1.toml to table8.toml, got {', '.join(names)}")
    return (*numbered, *(table for table in tables if table.number is None))


def plain_formula(latex: str) -> str:
    r"""A formula of Table 8 as text.

    >>> plain_formula(r"\mathcal{O}\left(\left|\mathcal{V}\right| \times d_\text{in}^2\right)")
    'O(|V| × d_in²)'
    """
    text = re.sub(r"\\(?:mathcal|text|texttt)\{(\w+)\}", r"\1", latex)
    text = re.sub(r"_\{(\w+)\}", r"_\1", text).replace("^2", "²").replace(r"\times", "×")
    return re.sub(r"\s+\)", ")", re.sub(r"\\(?:left|right)\s*", "", text))


def exponents(latex: str) -> dict[str, int]:
    r"""The powers in a formula of Table 8: of |V|, of |E|, and of d in the highest term per node and per edge.

    All widths are d, an MLP costs d², and k does not grow.

    >>> exponents(r"|V| \times d_\text{out} \times d_\text{in} + |E| \times d_\text{out}")
    {'|V|': 1, 'd per node': 2, '|E|': 1, 'd per edge': 1}
    """
    found: dict[str, int] = {}
    for term in plain_formula(latex).removeprefix("O(").removesuffix(")").split(" + "):
        factors = term.split(" × ")
        power = sum(map(_width_power, factors))
        for size, width in (("|V|", "d per node"), ("|E|", "d per edge")):
            if size in factors:
                found |= {size: 1, width: max(power, found.get(width, 0))}
    return found


def _width_power(factor: str) -> int:
    """The power of the width d in a factor of a term."""
    if factor == "MLP" or factor.endswith("²"):
        return 2
    return int(factor.startswith("d_"))


def _check_different(what: str, names: list[str]) -> None:
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"{what}: expected different names, got {names}")


def _claim(cell: str, where: str) -> Claim:
    match = _PRINTED.fullmatch(cell)
    if match is None or (match[3] and len(match[2] or "") != len(match[4] or "")):
        raise ConfigError(f"{where}: expected a figure such as '0.10 ± 0.00', got {cell!r}")
    std = None if match[3] is None else float(match[3])
    return Claim(float(match[1]), std, len(match[2] or ""))
