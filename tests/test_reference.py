"""The reference of the documentation names everything public, and nothing that does not exist."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGES = "".join((DOCS / page).read_text("utf-8") for page in ("api.md", "models.md"))

# The directives of Sphinx, such as `.. autoclass:: sirgcn.nn.SIRConv`.
NAMES = re.findall(r"^\.\. auto(?:class|function|data):: (sirgcn\.[\w.]+)", PAGES, re.MULTILINE)
MODULES = re.findall(r"^\.\. automodule:: (sirgcn\.[\w.]+)\n(?!   :no-members:)", PAGES, re.MULTILINE)
ROOMS = ("nn", "ops", "data", "theory", "report", "scale", "bench", "testing", "model")


def documented_values(module: ModuleType) -> Iterator[str]:
    """The names of a module that have a docstring below their value."""
    for statement, below in pairwise(ast.parse(Path(str(module.__file__)).read_text("utf-8")).body):
        is_docstring = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if is_docstring and isinstance(statement, ast.Assign | ast.AnnAssign):
            target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            yield ast.unparse(target)


def documented_members(module: ModuleType) -> set[str]:
    """The names that Sphinx shows of a whole module."""
    own = {name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__}
    return own | set(documented_values(module))


@pytest.mark.parametrize("name", NAMES + MODULES)
def test_a_name_in_the_reference_exists(name: str) -> None:
    resolve_name(name)


@pytest.mark.parametrize("room", ["sirgcn", *(f"sirgcn.{room}" for room in ROOMS)])
def test_every_public_name_is_in_the_reference(room: str) -> None:
    known = {name.rpartition(".")[2] for name in NAMES if name.startswith(f"{room}.")}
    for module in MODULES:
        if module.startswith(f"{room}."):
            known |= documented_members(resolve_name(module))
    assert set(resolve_name(room).__all__) - known == set()
