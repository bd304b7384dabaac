"""The split of a user's tables: read from a column, or drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from sirgcn.data.graphs import Level
from sirgcn.data.splits import PARTS, Split
from sirgcn.data.tables.columns import Frame
from sirgcn.data.tables.draws import Drawing, draw_split
from sirgcn.data.tables.labels import Items, Labels
from sirgcn.data.tables.roles import known
from sirgcn.data.tables.text import Bools, Objects
from sirgcn.data.validate import DataError
from sirgcn.strict import nearest

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""The words of a split column in lower case. Letter case makes no difference; a row without a word is in no part."""


@dataclass(frozen=True, eq=False)
class Found:
    """A split and where it comes from.

    Args:
        split: the split.
        columns: the columns that it was read from or drawn by; they are no features.
        words: what was done.
        doubts: columns that may be a split that was meant, with what to do.
    """

    split: Split
    columns: frozenset[str]
    words: str
    doubts: Mapping[str, str] = field(default_factory=dict)


def find_splits(items: Items, labels: Labels, split: str | None, drawing: Drawing, smiles: str | None = None) -> Found:
    """Return the split. It comes from a column or is drawn.

    The split comes from the column that the caller names, or from a column called `split`, unless the caller asks for a
    draw.
    """
    over = over_of(items, labels)
    labelled = _labelled(items, labels, over)
    if not labelled.any():
        raise DataError("expected labels, got none; fill in the rows to learn from", labels.names[0])
    found = _find_column(items, over, split)
    if split is not None and drawing.is_asked:
        raise DataError("expected none beside split=, which names the column of the split", "draw")
    if found is None or drawing.is_asked:
        one, words = draw_split(drawing, items, labels, over, labelled, smiles)
        # Also a column of a split that is not used: its words would tell a model the part of a row.
        columns = {drawing.column, None if found is None else found[1]} - {None}
        similar = {} if drawing.is_asked else _similar_columns(items, over, labels.names)
        return Found(one, frozenset(map(str, columns)) | set(similar), words, similar)
    frame, name = found
    return Found(_from_column(items, over, frame, name, labelled), frozenset([name]), f"column {name!r}")


def _similar_columns(items: Items, over: Level, targets: Sequence[str]) -> dict[str, str]:
    """Return the columns that hold the words of a split under another name, with what to do."""
    found = {}
    for table in _tables(items, over):
        for name in table.columns:
            words = set() if name in targets else _words_of(table, name)
            parts = {SPLIT_NAMES.get(str(word).lower()) for word in words}
            if "train" in parts and len(parts) > 1 and None not in parts:
                found[name] = f"holds {', '.join(sorted(words))}: split={name!r} uses it as the split; it is no feature"
    return found


def _words_of(table: Frame, name: str) -> set[str]:
    """Return the categories of a column; none if it holds something else, such as ids of any type."""
    try:
        is_categorical = table.type_of(name) == "categorical"
    except DataError:
        return set()
    return set(table.categories(name)) - {None} if is_categorical else set()


def _from_column(items: Items, over: Level, frame: Frame, name: str, labelled: Bools) -> Split:
    parts = _read_parts(frame, name)
    if over == "edge":
        parts = parts[items.structure.rows]
        parts[items.structure.added] = ""
    masks = [(parts == part) & labelled for part in PARTS]
    for part, mask in zip(PARTS, masks, strict=True):
        if not mask.any() and (part == "train" or (parts == part).any()):
            remedy = f"write {part} into rows that have a target"
            raise frame.error(f"expected labelled rows of {part}, got none; {remedy}", name, value=part)
    return Split.from_masks(*(torch.from_numpy(mask) for mask in masks))


def _read_parts(frame: Frame, name: str) -> Objects:
    """Return the part of each row of a split column: train, val, test, or an empty text."""
    words = [(word or "").lower() for word in frame.categories(name)]
    parts = np.array([SPLIT_NAMES.get(word, word) for word in words], dtype=object)
    strange = (parts != "") & ~np.isin(parts, PARTS)
    if strange.any():
        place = int(strange.argmax())
        value = frame.value(name, place)
        known_words = ", ".join(SPLIT_NAMES)
        raise frame.error(f"expected one of {known_words}, or none, got {value!r}", name, place, value)
    return parts


def over_of(items: Items, labels: Labels) -> Level:
    """Return what a split divides, as `Task.over` does."""
    ids = items.structure.graph_ids
    return "graph" if labels.level == "graph" or (ids is not None and len(ids) > 1) else labels.level


def _labelled(items: Items, labels: Labels, over: Level) -> Bools:
    """Return which items of the split have a label; a graph has one if one of its nodes or edges has."""
    if over == labels.level:
        return labels.labelled
    pointer = items.structure.node_ptr if labels.level == "node" else items.structure.edge_ptr
    assert pointer is not None
    total = np.append(0, labels.labelled.cumsum())
    found: Bools = total[pointer[1:]] > total[pointer[:-1]]
    return found


def _find_column(items: Items, over: Level, split: str | None) -> tuple[Frame, str] | None:
    """Return the table and the name of the split column; None if the caller names none and none has the usual name."""
    tables = _tables(items, over)
    for table in tables:
        name = known(table, ("split",)) if split is None else split
        if name in table.columns:
            assert name is not None
            return items.frame(over, name), name
    if split is not None:
        columns = ", ".join(name for table in tables for name in table.columns)
        hint = nearest(split, [name for table in tables for name in table.columns])
        raise DataError(f"expected a column of the {over}s ({columns}), got {split!r}{hint}", "split", value=split)
    return None


def _tables(items: Items, over: Level) -> list[Frame]:
    """Return the tables that may have a split column."""
    structure = items.structure
    found: dict[Level, list[Frame | None]] = {
        "edge": [structure.edges],
        "node": [structure.nodes],
        "graph": [items.graphs, structure.nodes],
    }
    return [table for table in found[over] if table is not None]


def training_rows(items: Items, labels: Labels, split: Split, inductive: bool = False) -> tuple[Bools, Bools]:
    """Return the rows of nodes and of edges that preprocessing may learn from.

    These are the rows of the training items, and the nodes and edges that touch them. In an inductive task, these are
    no edges of val and test nodes.
    """
    structure, over = items.structure, over_of(items, labels)
    train = split.train.numpy()
    nodes = np.zeros(len(structure.ids), dtype=np.bool_)
    if over == "graph":
        assert structure.graph_ids is not None
        assert structure.node_ptr is not None
        graphs = np.isin(np.arange(len(structure.graph_ids)), train)
        nodes = np.repeat(graphs, np.diff(structure.node_ptr))
    elif over == "node":
        nodes[train] = True
    rows = np.zeros(len(structure.edges), dtype=np.bool_)
    if over == "edge":
        nodes[structure.edge_index[:, train]] = True
        rows[structure.rows[train]] = True
    else:
        touching = nodes[structure.edge_index].any(axis=0)
        if inductive:
            unseen = np.zeros(len(nodes), dtype=np.bool_)
            unseen[torch.cat([split.val, split.test]).numpy()] = True
            touching &= ~unseen[structure.edge_index].any(axis=0)
        rows[structure.rows[touching]] = True
    return nodes, rows
