"""New nodes of a known graph: the tables of the new ones and of the known ones, below each other."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from sirgcn.data.tables.columns import Dropped, Frame, joined
from sirgcn.data.tables.read import read_frame
from sirgcn.model.fitted import Model
from sirgcn.strict import ConfigError

_PARTS = ("nodes", "edges")


def join_known(model: Model, tables: Mapping[str, Any]) -> dict[str, Frame]:
    """The tables of new nodes and edges, each with the rows of the known graph below its own.

    Args:
        model: the model, which knows the texts for missing values.
        tables: `nodes` and `edges`, and both of the known graph as `known`.
    """
    return {name: _below(_read(model, tables, name), _read_known(model, tables, name)) for name in _PARTS}


def count_new(model: Model, tables: Mapping[str, Any]) -> int:
    """How many rows of the predicted table are new. They stand first."""
    return len(_read(model, tables, "edges" if model.problem.level == "edge" else "nodes"))


def _read(model: Model, tables: Mapping[str, Any], name: str) -> Frame:
    missing = () if model.preprocessing is None else model.preprocessing.missing
    return read_frame(tables[name], name, missing, Dropped())


def _read_known(model: Model, tables: Mapping[str, Any], name: str) -> Frame:
    return _read(model, dict(zip(_PARTS, tables["known"], strict=True)), name)


def _below(new: Frame, known: Frame) -> Frame:
    """The rows of one table and below them those of another, with the columns that both have."""
    names = [name for name in new.columns if name in known.columns]
    for name in names:
        if isinstance(new.columns[name], pd.Series) != isinstance(known.columns[name], pd.Series):
            raise ConfigError(f"known: expected files of the same format as the new ones, got others for {name!r}")
    # Rows keep their numbers in the new table; those of the other table are counted on.
    counted = replace(known.only(names), rows=known.rows + int(new.rows.max(initial=0)))
    return joined([new.only(names), counted])
