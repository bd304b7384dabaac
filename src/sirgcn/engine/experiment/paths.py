"""Relative paths in the options of the user's own tables: where they start."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

PATHS = ("nodes", "edges", "graphs", "dropped")
"""The options of `data = "tables"` that are paths."""


def with_paths(options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The options, with relative paths that start at a folder."""
    paths = {key: options[key] for key in PATHS if isinstance(options.get(key), str)}
    return {**options, **{key: str(folder / from_home(path)) for key, path in paths.items()}}


def with_columns(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The keys of a file, with paths in its columns that start at a folder.

    Columns of another shape are returned as they are. The strict reading that follows says what is wrong with them.
    """
    columns = data.get("columns")
    if not are_rows(columns) or not all(isinstance(column.get("options", {}), dict) for column in columns):
        return data
    moved = [column | {"options": with_paths(column.get("options", {}), folder)} for column in columns]
    return data | {"columns": moved}


def from_home(path: str | Path) -> str:
    """A path with the user's home directory in place of `~`. The name of an unknown user is left as it is."""
    return os.path.expanduser(path)  # noqa: PTH111 - pathlib's raises for an unknown user


def are_rows(value: Any) -> TypeGuard[list[dict[str, Any]]]:
    """Whether a value is a list of tables that each have a title."""
    return isinstance(value, list) and all(isinstance(row, dict) and isinstance(row.get("title"), str) for row in value)
