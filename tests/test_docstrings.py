"""The examples in docstrings run, and every name of the reference has one."""

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sirgcn

SOURCE = Path(sirgcn.__file__).parent
API = Path(__file__).parent.parent / "docs" / "api.md"

# Packages of the extras. A module that needs one of them is skipped where it is not installed.
OPTIONAL = {"hypothesis", "networkx", "onnx", "onnxruntime", "onnxscript", "pyarrow", "rdkit", "skimage", "triton"}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


WITH_EXAMPLES = sorted(module_name(path) for path in SOURCE.rglob("*.py") if ">>> " in path.read_text("utf-8"))


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_run(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OPTIONAL:
            raise
        pytest.skip(f"{error.name} is not installed")
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for case in doctest.DocTestFinder().find(module, name):
        runner.run(case, out=said.append)
    assert not runner.failures, "".join(said)
    assert runner.tries


DIRECTIVE = re.compile(r"^\.\. auto(function|class|module):: ([\w.]+)\n((?:   .*\n)*)", re.MULTILINE)


def documented_names(page: str) -> Iterator[str]:
    """The functions and classes that the reference documents, with their full names."""
    for sort, name, options in DIRECTIVE.findall(page):
        if sort != "module":
            yield name
        elif ":no-members:" not in options:
            excluded = re.search(r":exclude-members: (.*)", options)
            yield from public_members(name, set() if excluded is None else set(excluded[1].split(", ")))


def public_members(name: str, excluded: set[str]) -> Iterator[str]:
    """The public functions and classes of a module that are defined in it."""
    for member, value in vars(importlib.import_module(name)).items():
        is_own = (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == name
        if is_own and value.__doc__ and not member.startswith("_") and member not in excluded:
            yield f"{name}.{member}"


def has_example(name: str) -> bool:
    """Whether the docstring of a function or class holds an example; that of a method counts for its class."""
    module, _, member = name.rpartition(".")
    value: Any = getattr(importlib.import_module(module), member)
    texts = [value.__doc__]
    if inspect.isclass(value):
        texts += [function.__doc__ for function in vars(value).values() if inspect.isfunction(function)]
    return any(">>> " in text for text in texts if text)


def test_every_name_of_the_reference_has_an_example() -> None:
    lacking = {name for name in documented_names(API.read_text("utf-8")) if not has_example(name)}
    assert not lacking, "write an example (`>>> ...`) into the docstring"


def test_the_directives_of_the_reference_are_read() -> None:
    page = """
.. autofunction:: sirgcn.strict.read

.. autoclass:: sirgcn.strict.Between
   :members: check

.. automodule:: sirgcn.spreadsheet
   :exclude-members: as_cell, other

.. automodule:: sirgcn.files
   :no-members:

.. autodata:: sirgcn.strict.Size
"""
    assert list(documented_names(page)) == [
        "sirgcn.strict.read",
        "sirgcn.strict.Between",
        "sirgcn.spreadsheet.csv_text",
    ]
