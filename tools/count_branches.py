"""Count the branches of every function: `python tools/count_branches.py [FOLDER ...]`. `make check` runs it on `src`.

A branch is an `if`, a `for`, a `while`, an `except`, an `assert`, a case of a `match`, a conditional expression, a
comprehension, and each further operand of an `and` or an `or`. The count of a function includes the functions and
lambdas inside it.

The limits:

- No function has more than 15 branches, unless `tools/branches.toml` exempts it with a date and a reason.
  At most 10 functions are exempt.
- A function with 11 to 15 branches stands in the list `allowed` of that file. The list only shrinks: a new function of
  that size is refused, and so is an entry that is no longer needed.
"""

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LISTS = ROOT / "tools" / "branches.toml"
MOST, LISTED, MOST_EXEMPT = 15, 10, 10

_ONE_EACH = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.match_case,
    ast.IfExp,
    ast.comprehension,
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def branches(function: ast.AST) -> int:
    """The number of branches inside a piece of code.

    >>> branches(ast.parse("x = 1 if a and b else 2"))
    2
    """
    found = 0
    for node in ast.walk(function):
        if isinstance(node, _ONE_EACH):
            found += 1
        elif isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
    return found


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, _Function]]:
    """Every function and method with its dotted name; functions inside a function belong to that function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, _Function):
            yield f"{prefix}{node.name}", node
        else:
            yield from functions(node, prefix)


def count(folders: list[Path]) -> dict[str, int]:
    """The branches of every function below the folders, by `path:name`."""
    found: dict[str, int] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            place = path.resolve()
            shown = place.relative_to(ROOT) if place.is_relative_to(ROOT) else path
            for name, function in functions(ast.parse(path.read_text())):
                key = f"{shown.as_posix()}:{name}"
                found[key] = max(branches(function), found.get(key, 0))
    return found


def complaints(found: dict[str, int], lists: dict[str, Any]) -> list[str]:
    """What breaks the limits, a sentence each.

    >>> complaints({"a.py:f": 16}, {})
    ['a.py:f: 16 branches, at most 15 are allowed']
    """
    exempt, allowed = lists.get("exempt", []), set(lists.get("allowed", []))
    names = {entry["function"] for entry in exempt}
    return [
        *_complaints_of_exemptions(exempt),
        *_complaints_of_functions(found, names, allowed),
        *_complaints_of_stale_entries(found, names, allowed),
    ]


def _complaints_of_exemptions(exempt: list[dict[str, Any]]) -> Iterator[str]:
    """There are few exemptions, and each has a date and a reason."""
    if len(exempt) > MOST_EXEMPT:
        yield f"{LISTS.name}: expected at most {MOST_EXEMPT} exempt functions, got {len(exempt)}"
    for entry in exempt:
        if not {"date", "reason"} <= entry.keys():
            yield f"{LISTS.name}: {entry['function']}: expected a date and a reason"


def _complaints_of_functions(found: dict[str, int], exempt: set[str], allowed: set[str]) -> Iterator[str]:
    """A function with many branches is listed."""
    for name, number in found.items():
        if number > MOST and name not in exempt:
            yield f"{name}: {number} branches, at most {MOST} are allowed"
        if LISTED < number <= MOST and name not in allowed:
            yield f"{name}: {number} branches; more than {LISTED} only for functions listed in {LISTS.name}"


def _complaints_of_stale_entries(found: dict[str, int], exempt: set[str], allowed: set[str]) -> Iterator[str]:
    """A function that is listed needs to be."""
    for name in sorted(allowed):
        if not LISTED < found.get(name, 0) <= MOST:
            yield f"{LISTS.name}: {name} has {found.get(name, 'no')} branches: take it off the list"
    for name in sorted(exempt):
        if found.get(name, 0) <= MOST:
            yield f"{LISTS.name}: {name} needs no exemption any more: take it off the list"


def main() -> None:
    """Print what breaks the limits, or with `--list` the functions with the most branches."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT / "src"], help="default: src")
    parser.add_argument("--list", type=int, metavar="N", help="only list the functions with more than N branches")
    arguments = parser.parse_args()
    found = count(arguments.folders)
    if arguments.list is not None:
        for name, number in sorted(found.items(), key=lambda entry: -entry[1]):
            if number > arguments.list:
                print(number, name)
        return
    said = complaints(found, tomllib.loads(LISTS.read_text()))
    for line in said:
        print(line, file=sys.stderr)
    if said:
        sys.exit(1)
    ordered = sorted(found.values())
    print(f"{len(ordered)} functions, 95th percentile {ordered[int(0.95 * len(ordered))]} branches, most {ordered[-1]}")


if __name__ == "__main__":
    main()
