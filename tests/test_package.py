"""The package from outside: quick to import, its names at the top, every one of them documented."""

import ast
import importlib
import inspect
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest

import sirgcn

ROOMS = (
    "sirgcn",
    "sirgcn.ops",
    "sirgcn.nn",
    "sirgcn.data",
    "sirgcn.theory",
    "sirgcn.report",
    "sirgcn.testing",
    "sirgcn.model",
)


def in_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


PUBLIC = [(room, name) for room in ROOMS for name in importlib.import_module(room).__all__]


def test_import_loads_neither_torch_nor_pyg() -> None:
    heavy = "[m for m in ('torch', 'torch_geometric', 'numpy', 'pandas', 'sirgcn.nn') if m in sys.modules]"
    assert in_new_process(f"import sys, sirgcn; print(sirgcn.__version__, {heavy})") == f"{sirgcn.__version__} []"


def test_the_layer_loads_nothing_heavy_that_pyg_does_not_load_itself() -> None:
    code = """
import sys
import torch_geometric.nn
before = set(sys.modules)
from sirgcn import SIRConv
heavy = {"pandas", "sklearn", "scipy", "matplotlib", "typer", "rich", "jinja2", "safetensors", "rdkit", "pyarrow"}
print(sorted({name.partition(".")[0] for name in set(sys.modules) - before} & heavy))
"""
    assert in_new_process(code) == "[]"


def test_ops_do_without_pyg() -> None:
    assert in_new_process("import sys, sirgcn.ops; print('torch_geometric' in sys.modules)") == "False"


def test_main_names_are_at_the_top() -> None:
    from sirgcn import SIRConv

    assert SIRConv is importlib.import_module("sirgcn.nn").SIRConv
    for name in sirgcn.__all__:
        assert name in dir(sirgcn)
        assert getattr(sirgcn, name) is not None


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'SirConv'; its names are .*SIRConv.*tiled_aggregate"):
        sirgcn.SirConv  # noqa: B018
    with pytest.raises(ImportError):
        exec("from sirgcn import SirConv")


@pytest.mark.parametrize("room", ROOMS)
def test_star_import_gives_every_name(room: str) -> None:
    names: dict[str, Any] = {}
    exec(f"from {room} import *", names)
    assert set(importlib.import_module(room).__all__) <= names.keys()


@pytest.mark.parametrize(("room", "name"), PUBLIC)
def test_every_public_name_is_documented(room: str, name: str) -> None:
    value = getattr(importlib.import_module(room), name)
    if inspect.isclass(value):
        assert value.__doc__
        for method, function in inspect.getmembers(value, inspect.isfunction):
            # PyG writes a layer's propagate into its class once the first one is built: not ours to document.
            own = method in vars(value) and function.__module__ == value.__module__
            own = own and not method.startswith("_") and method != "extra_repr"
            assert not own or function.__doc__, f"{name}.{method} has no docstring"
    elif inspect.isfunction(value):
        assert value.__doc__
    else:
        modules = [module for path, module in sys.modules.items() if path.startswith(f"{room}.")]
        modules = [module for module in modules if str(module.__file__).endswith(".py")]
        assert any(documents_constant(inspect.getsource(module), name) for module in modules)


def documents_constant(source: str, name: str) -> bool:
    """Whether a string stands behind the assignment of a constant."""
    for statement, after in pairwise(ast.parse(source).body):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    return False
