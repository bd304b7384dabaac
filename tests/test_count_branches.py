"""The tool that counts branches: what counts, and what it complains of."""

import ast
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
TOOL = ROOT / "tools" / "count_branches.py"


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    """The names of the tool."""
    names: dict[str, Any] = {"__name__": "count_branches", "__file__": str(TOOL)}
    exec(compile(TOOL.read_text(), str(TOOL), "exec"), names)
    return names


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 1", 0),
        ("if a: pass", 1),
        ("if a: pass\nelif b: pass\nelse: pass", 2),
        ("for a in b: pass\nelse: pass", 1),
        ("while a: pass", 1),
        ("try: pass\nexcept A: pass\nexcept B: pass\nfinally: pass", 2),
        ("assert a", 1),
        ("match a:\n    case 1: pass\n    case _: pass", 2),
        ("x = 1 if a else 2 if b else 3", 2),
        ("x = [a for b in c for d in e]", 2),
        ("x = [a for b in c if d]", 1),
        ("x = {a: b for a in c}, {a for a in c}, (a for a in c)", 3),
        ("x = a and b and c", 2),
        ("x = a and b or c", 2),
        ("x = not a", 0),
        ("with a: pass", 0),
        ("def f():\n    if a:\n        return lambda: b or c", 2),
        ("async def f():\n    async for a in b: pass", 1),
    ],
)
def test_branches_are_counted(tool: dict[str, Any], code: str, expected: int) -> None:
    assert tool["branches"](ast.parse(code)) == expected


def test_functions_have_dotted_names_and_own_what_is_inside(tool: dict[str, Any]) -> None:
    code = """
def plain():
    def inner(): pass
class A:
    def method(self): pass
    class B:
        async def method(self): pass
if x:
    def conditional(): pass
"""
    found = [name for name, _ in tool["functions"](ast.parse(code))]
    assert found == ["plain", "A.method", "A.B.method", "conditional"]


def exemption(function: str = "a.py:f", **entries: Any) -> dict[str, Any]:
    return {"function": function, "date": date(2026, 1, 1), "reason": "a table"} | entries


@pytest.mark.parametrize(
    ("found", "lists", "complaint"),
    [
        ({"a.py:f": 16}, {}, "a.py:f: 16 branches, at most 15 are allowed"),
        ({"a.py:f": 16}, {"allowed": ["a.py:f"]}, "a.py:f: 16 branches, at most 15 are allowed"),
        ({"a.py:f": 11}, {}, "a.py:f: 11 branches; more than 10 only for functions listed in branches.toml"),
        ({"a.py:f": 10}, {"allowed": ["a.py:f"]}, "branches.toml: a.py:f has 10 branches: take it off the list"),
        ({}, {"allowed": ["a.py:f"]}, "branches.toml: a.py:f has no branches: take it off the list"),
        (
            {"a.py:f": 15},
            {"exempt": [exemption()], "allowed": ["a.py:f"]},
            "branches.toml: a.py:f needs no exemption any more: take it off the list",
        ),
        (
            {"a.py:f": 16},
            {"exempt": [{"function": "a.py:f", "reason": "a table"}]},
            "branches.toml: a.py:f: expected a date and a reason",
        ),
        (
            {f"a.py:f{i}": 16 for i in range(11)},
            {"exempt": [exemption(f"a.py:f{i}") for i in range(11)]},
            "branches.toml: expected at most 10 exempt functions, got 11",
        ),
    ],
)
def test_what_breaks_a_rule_is_named(
    tool: dict[str, Any], found: dict[str, int], lists: dict[str, Any], complaint: str
) -> None:
    assert complaint in tool["complaints"](found, lists)


@pytest.mark.parametrize(
    ("found", "lists"),
    [
        ({"a.py:f": 10}, {}),
        ({"a.py:f": 15}, {"allowed": ["a.py:f"]}),
        ({"a.py:f": 16}, {"exempt": [exemption()]}),
        ({f"a.py:f{i}": 16 for i in range(10)}, {"exempt": [exemption(f"a.py:f{i}") for i in range(10)]}),
    ],
)
def test_what_keeps_the_rules_passes(tool: dict[str, Any], found: dict[str, int], lists: dict[str, Any]) -> None:
    assert tool["complaints"](found, lists) == []


def test_the_list_begins_with_the_most_branches(tmp_path: Path) -> None:
    conditions = "\n    ".join(f"if a{i}: pass" for i in range(12))
    (tmp_path / "long.py").write_text(f"def small():\n    if a: pass\n\ndef large():\n    {conditions}\n")
    command = [sys.executable, str(TOOL), "--list", "0", str(tmp_path)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["12", "1"]
    assert lines[0].endswith("long.py:large")
