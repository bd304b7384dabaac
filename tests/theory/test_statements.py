"""Every function and test named on the page "the paper, statement by statement" exists, and none is missing there."""

import ast
import re
from operator import attrgetter
from pathlib import Path

import pytest

from sirgcn import theory

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "theory" / "index.md"
# Numbered in the paper; the others of a section are named by what they say.
NUMBERED = (
    "Definition 1",
    "Definition 2",
    "Assumption 1",
    "Remark 1",
    "Theorem 1",
    "Theorem 2",
    "Theorem 3",
    "Corollary 1",
)
HEAD = ["statement", "in words", "function", "law", "figure"]


def rows() -> list[list[str]]:
    """The cells of every row of the tables after the heading."""
    text = PAGE.read_text("utf-8").split("## The paper, statement by statement")[1]
    # A bar within a formula is written as \vert or \lVert.
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return [row for row in cells if row != HEAD and set("".join(row)) - {"-", ":"}]


def laws() -> dict[tuple[str, str], bool]:
    """The tests of this folder by name and file, and for each test whether hypothesis draws its inputs."""
    found = {}
    for file in Path(__file__).parent.glob("test_*.py"):
        for test in ast.parse(file.read_text("utf-8")).body:
            if isinstance(test, ast.FunctionDef):
                is_drawn = any(ast.unparse(entry).startswith("given(") for entry in test.decorator_list)
                found[test.name, file.name] = is_drawn
    return found


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_statement_links_to_a_function_and_a_law_that_exist(row: list[str]) -> None:
    assert len(row) == len(HEAD)
    statement, words, function, law, figure = row
    functions = re.findall(r"\[`([\w.]+)`\]\(#([\w.]+)\)", function)
    named = re.findall(r"\[`(test_\w+)`\]\(\.\./\.\./tests/theory/(\w+\.py)\)", law)
    assert words
    assert functions
    assert named
    assert law.count("`test_") == len(named)
    for name, path in functions:
        target = attrgetter(name)(theory)
        assert callable(target)
        assert path == f"{target.__module__}.{target.__qualname__}"
    known = laws()
    assert set(named) <= set(known)
    if statement.startswith(NUMBERED) and "counterexample" not in statement:
        assert all(known[name] for name in named)
    assert figure == "" or re.fullmatch(r"\[\d\]\(figures\.md#[\w-]+\)(?:, \[\d\]\(figures\.md#[\w-]+\))*", figure)


def test_every_numbered_statement_is_on_the_page() -> None:
    statements = [row[0] for row in rows()]
    missing = [name for name in NUMBERED if not any(entry.startswith(name) for entry in statements)]
    assert not missing
    equations = {
        int(number) for entry in statements for number in re.findall(r"(?<=[ ,])\d+", entry.partition("Eq")[2])
    }
    # Of Sections 3.1 and A, 4 to 11 and 22 to 30; those of other sections may be there too.
    assert {*range(4, 12), *range(22, 31)} <= equations
