"""A split as ids, which a file can hold and which still name the same items when the rows of a table have moved."""

from collections.abc import Mapping
from typing import Any

import torch

from sirgcn.data.splits import PARTS, Split
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError, check_choice
from sirgcn.strict import read

WAYS = ("ids", "rows", "places")
"""How a split names its items: by their ids, by their rows in the table (from 1), or by their places (from 0)."""


def split_to_ids(task: Task, split: int = 0) -> dict[str, Any]:
    """Return a split of a task by the ids of its items, in values that JSON can hold; `split_from_ids` reads it.

    Nodes and graphs are named by their ids as text. Edges have no ids and are named by their rows in the table of
    edges, counted from 1. Items of data without a table, or whose ids repeat, are named by their places.

    Args:
        task: the data.
        split: the number of the task's split.

    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> nodes = pd.DataFrame({"id": list("abcd"), "label": list("xyxy"), "split": ["train", "train", "val", "test"]})
    >>> task = load_tables(nodes, pd.DataFrame({"source": list("abc"), "target": list("bcd")}))
    >>> split_to_ids(task)["train"]
    ['a', 'b']
    """
    names, by = _names(task)
    one = task.splits[read(int, split, "split")]
    parts: dict[str, Any] = {part: [names[place] for place in getattr(one, part).tolist()] for part in PARTS}
    return {"of": task.over, "by": by, "inductive": bool(task.unseen), **parts}


def split_from_ids(task: Task, found: Mapping[str, Any]) -> Split:
    """Return the split that `split_to_ids` wrote, for the same items of a task. An id that the task lacks is refused.

    Args:
        task: the data.
        found: what `split_to_ids` returned, perhaps through a file.

    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> split_from_ids(task, split_to_ids(task)).test.equal(task.splits[0].test)
    True
    """
    for name in ("of", "by", *PARTS):
        if name not in found:
            raise DataError(f"expected of, by, {', '.join(PARTS)}, got {', '.join(map(str, found)) or 'none'}", name)
    names, by = _names(task)
    check_choice("of", found["of"], (task.over,))
    check_choice("by", found["by"], WAYS)
    if found["by"] == "places":
        names, by = list(range(len(names))), "places"
    if found["by"] != by:
        raise DataError(f"expected a split by {by}, as the task names its items, got {found['by']}", "by")
    index = {name: place for place, name in enumerate(names) if name is not None}
    return Split(*(_places(index, part, found[part], f"{by} of the {task.over}") for part in PARTS))


def _places(index: Mapping[Any, int], part: str, wanted: Any, what: str) -> torch.Tensor:
    if not isinstance(wanted, list):
        raise DataError(f"expected a list, got {type(wanted).__name__}", part)
    # A list or an object has no place, and cannot be looked up.
    strange = [name for name in wanted if not isinstance(name, int | str) or name not in index]
    if strange:
        got = f"{len(strange):,} unknown ones such as {strange[0]!r}"
        raise DataError(f"expected {what}, got {got}", part, value=strange[0])
    return torch.tensor([index[name] for name in wanted], dtype=torch.int64)


def _names(task: Task) -> tuple[list[Any], str]:
    """Return a name for every item that a split divides, all different, and what kind of name it is."""
    details = task.details
    if task.over == "edges" and "edge_rows" in details:
        # The reverse that was added to an edge has no label, and so is in no part.
        pairs = zip(details["edge_rows"].tolist(), details["added"].tolist(), strict=True)
        names: list[Any] = [None if added else row for row, added in pairs]
        return names, "rows"
    given = details.get({"nodes": "ids", "graphs": "graph_ids"}.get(task.over, ""))
    if given is not None:
        names = [_text(name) for name in given.tolist()]
        if len(set(names)) == len(names):
            return names, "ids"
    graphs = task.graphs
    count = {"nodes": graphs.num_nodes, "edges": graphs.num_edges, "graphs": graphs.num_graphs}[task.over]
    return list(range(count)), "places"


def _text(name: Any) -> str:
    """Return an id as text; a whole number has no decimal point, as where ids are compared."""
    return str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)
