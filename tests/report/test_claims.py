"""The claims are the paper's: every figure is parsed again from its LaTeX source where that is at hand."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.report.claims import Claim, Table, load_claims, plain_formula
from sirgcn.strict import ConfigError, from_dict

PAPER = Path(os.environ.get("SIRGCN_PAPER") or Path(__file__).parents[3] / "shared" / "paper" / "paper.tex")
TABLES = load_claims()
OF_SIR = [table for table in TABLES if table.number is not None]


@pytest.fixture(scope="module")
def blocks() -> list[str]:
    if not PAPER.is_file():
        pytest.skip(f"the paper's source is not at {PAPER}; SIRGCN_PAPER names it")
    return re.findall(r"\\begin\{table\}.*?\\end\{table\}", PAPER.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("table", OF_SIR, ids=lambda table: table.title)
def test_every_cell_is_the_papers(blocks: list[str], table: Table) -> None:
    assert len(blocks) == len(OF_SIR)
    block = blocks[(table.number or 0) - 1]
    body = block.split(r"\toprule")[1].split(r"\bottomrule")[0]
    printed = [line.strip() for line in body.strip().split("\n") if line.strip() != r"\midrule"]
    head, *lines = ([cell.strip() for cell in line.removesuffix(r"\\").split("&")] for line in printed)
    assert head == ["Model", *(_as_printed(table, column.name, column.higher_is_better) for column in table.columns)]
    rows = []
    for row in table.rows:
        best = [column.best == row.model for column in table.columns]
        cells = [_cell(cell, table.sort) for cell in row.cells]
        cells = [rf"\textBF{{{cell}}}" if bold else cell for cell, bold in zip(cells, best, strict=True)]
        rows.append([row.latex or row.model, *cells])
    assert rows == lines


@pytest.mark.parametrize("table", OF_SIR, ids=lambda table: table.title)
def test_captions_labels_rules_and_notes_are_the_papers(blocks: list[str], table: Table) -> None:
    block = blocks[(table.number or 0) - 1]
    assert rf"\caption{{{table.caption}}}" in block
    assert rf"\label{{{table.label}}}" in block
    notes = re.findall(r"\\small Note: (.*?)\}\s*\n", block)
    assert notes == ([table.note] if table.note else [])
    below_rules = re.findall(r"\\midrule\s+(\S.*?) &", block)[1:]
    assert [row.latex or row.model for row in table.rows if row.rule_above] == below_rules


def _as_printed(table: Table, name: str, higher_is_better: bool) -> str:
    if "=" in name:
        return "${} = {}$".format(*name.split("="))
    arrow = {True: "uparrow", False: "downarrow"}[higher_is_better]
    return name if table.sort == "growth" else rf"{name} ($\{arrow}$)"


def _cell(cell: str, sort: str) -> str:
    if sort == "growth":
        return f"${cell}$"
    second = "s" if sort == "inference" else ""
    return cell.replace(" ±", rf"{second} $\pm$") + second if cell else "-"


def test_there_are_ten_tables_of_known_shapes() -> None:
    shapes = {table.key: (len(table.rows), len(table.columns), len(table.claims)) for table in TABLES}
    assert shapes == {
        1: (6, 5, 30),
        2: (6, 5, 30),
        3: (9, 6, 39),
        4: (9, 2, 18),
        5: (13, 5, 65),
        6: (6, 5, 30),
        7: (6, 5, 30),
        8: (6, 1, 0),
        "sinc_scores": (2, 8, 16),
        "sinc_unique_signature": (5, 9, 45),
    }


def test_every_claim_names_its_paper_and_the_layer_behind_it() -> None:
    papers = {table.key: (table.paper, table.variant) for table in TABLES}
    of_sinc = dict.fromkeys(("sinc_scores", "sinc_unique_signature"), ("SINC-GCN", "corrected"))
    assert papers == dict.fromkeys(range(1, 9), ("SIR-GCN", "published")) | of_sinc


def test_sir_gcn_has_the_same_figures_in_both_papers() -> None:
    (scores,) = (table for table in TABLES if table.key == "sinc_scores")
    own = {column: claim for table in OF_SIR for (row, column), claim in table.claims.items() if row == "SIR-GCN"}
    found = {column: claim for (row, column), claim in scores.claims.items() if row == "SIR-GCN"}
    assert len(found) == len(scores.columns)
    assert found.items() <= own.items()


def test_a_figure_without_a_deviation_has_no_interval() -> None:
    (signatures,) = (table for table in TABLES if table.key == "sinc_unique_signature")
    claim = signatures.claims["SINC-GCN", "p=0.3 r=7"]
    assert (claim, str(claim), claim.interval) == (Claim(0.996, None, 3), "0.996", None)
    assert {claim.mean for (row, _), claim in signatures.claims.items() if row == "SIR-GCN"} == {0.5}
    assert "run with max" in signatures.remark


def test_figures_keep_their_printed_digits() -> None:
    assert str(TABLES[1].claims["GIN", "c=2"]) == "39.620 ± 2.060"
    assert TABLES[4].claims["SIR-GCN", "minesweeper"] == Claim(94.12, 0.42, 2)
    assert ("GATv2", "WikiCS") not in TABLES[2].claims
    assert plain_formula(TABLES[7].rows[4].cells[0]) == "O(|E| × d_in² + |E| × d_in × k + |V| × d_out × d_in × k)"


@given(st.floats(0, 1e5), st.floats(0, 1e3), st.integers(0, 4), st.floats(-2, 2))
def test_whatever_the_printed_digits_stand_for_is_inside(mean: float, std: float, decimals: int, share: float) -> None:
    claim = Claim(round(mean, decimals), round(std, decimals), decimals)
    assert claim.interval is not None
    low, high = claim.interval
    slack = 1e-9 * (1 + abs(mean))
    assert low - slack <= mean + share * std <= high + slack


def valid() -> dict[str, Any]:
    column = {"name": "a", "metric": "mae", "unit": "", "higher_is_better": False, "best": "M"}
    row = {"model": "M", "cells": ["1.0 ± 0.1"]}
    return {
        "paper": "M",
        "number": 1,
        "sort": "training",
        "label": "l",
        "caption": "c",
        "columns": [column],
        "rows": [row],
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"title": "t"}, "unknown key 'title'"),
        ({"sort": "scores"}, "sort: expected one of training, inference, step, growth, got 'scores'"),
        ({"number": "1"}, "number: expected a whole number, got '1'"),
        ({"rows": [{"model": "M", "cells": ["1.0 ± 0.1", "2.0 ± 0.1"]}]}, "M: expected 1 cells, got 2"),
        ({"rows": [{"model": "M", "cells": ["1.0 +- 0.1"]}]}, "M, a: expected a figure such as '0.10 ± 0.00'"),
        ({"rows": [{"model": "M", "cells": ["1.0 ± 0.10"]}]}, "M, a: expected a figure"),
        ({"rows": [{"model": "N", "cells": ["1.0 ± 0.1"]}]}, "a: best: expected one of N, got 'M'"),
        ({"rows": valid()["rows"] * 2}, "rows: expected different names"),
        ({"columns": [{**valid()["columns"][0], "metric": "loss"}]}, "a: metric: expected one of accuracy,"),
    ],
)
def test_a_mistyped_table_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    assert from_dict(Table, valid(), "table.toml").claims == {("M", "a"): Claim(1.0, 0.1, 1)}
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        from_dict(Table, valid() | change, "table.toml")
    assert "table.toml" in str(error.value)
