"""The split of a user's tables: read from a column, or drawn."""

import numpy as np
import torch

from sirgcn.data.graphs import Level
from sirgcn.data.splits import PARTS, Split
from sirgcn.data.tables.columns import Frame
from sirgcn.data.tables.labels import Items, Labels
from sirgcn.data.tables.roles import known
from sirgcn.data.tables.text import Bools
from sirgcn.data.validate import DataError

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Words of a split column, whatever their case; a row without a word is in no part."""


def find_splits(
    items: Items, labels: Labels, split: str | None, seed: int, fractions: tuple[float, float, float]
) -> tuple[Split, str | None, str]:
    """The split of the column that the caller names, of a column `split`, or drawn: each class alike.

    With the column, and in words what was done.
    """
    over = _over(items, labels)
    labelled = _labelled(items, labels, over)
    if not labelled.any():
        raise DataError("expected labels, got none", labels.names[0])
    frame = _split_frame(items, over, split)
    if frame is None:
        strata = torch.from_numpy(labelled.astype(np.int64) - 1)
        if len(labelled) == len(labels.y) and labels.classes:
            strata = labels.y
        stratified = "each class alike" if strata is labels.y else "at random"
        shares = " / ".join(f"{part:g}" for part in fractions)
        return Split.draw(len(labelled), seed, fractions, strata), None, f"drawn {stratified}, seed {seed}, {shares}"
    name = split or known(frame, ("split",))
    assert name is not None
    words = np.array([(word or "").lower() for word in frame.categories(name)], dtype=object)
    parts = np.array([SPLIT_NAMES.get(word, word) for word in words], dtype=object)
    strange = (parts != "") & ~np.isin(parts, PARTS)
    if strange.any():
        place = int(strange.argmax())
        value = frame.value(name, place)
        known_words = ", ".join(SPLIT_NAMES)
        raise frame.error(f"expected one of {known_words}, or none, got {value!r}", name, place, value)
    if over == "edge":
        parts = parts[items.structure.rows]
        parts[items.structure.added] = ""
    masks = [(parts == part) & labelled for part in PARTS]
    for part, mask in zip(PARTS, masks, strict=True):
        if not mask.any() and (part == "train" or (parts == part).any()):
            raise frame.error(f"expected labelled rows of {part}, got none", name, value=part)
    found = Split.from_masks(*(torch.from_numpy(mask) for mask in masks))
    return found, name, f"column {name!r}"


def _over(items: Items, labels: Labels) -> Level:
    """What a split divides, as `Task.over` has it."""
    ids = items.structure.graph_ids
    return "graph" if labels.level == "graph" or (ids is not None and len(ids) > 1) else labels.level


def _labelled(items: Items, labels: Labels, over: Level) -> Bools:
    if over == labels.level:
        return labels.labelled
    pointer = items.structure.node_ptr if labels.level == "node" else items.structure.edge_ptr
    assert pointer is not None
    total = np.append(0, labels.labelled.cumsum())
    found: Bools = total[pointer[1:]] > total[pointer[:-1]]
    return found


def _split_frame(items: Items, over: Level, split: str | None) -> Frame | None:
    structure = items.structure
    if over == "edge":
        tables = [structure.edges]
    elif over == "node":
        tables = [] if structure.nodes is None else [structure.nodes]
    else:
        tables = [table for table in (items.graphs, structure.nodes) if table is not None]
    for table in tables:
        name = known(table, ("split",)) if split is None else split if split in table.columns else None
        if name is not None:
            return items.frame(over, name)
    if split is not None:
        columns = ", ".join(name for table in tables for name in table.columns)
        raise DataError(f"expected a column of the {over}s ({columns}), got {split!r}", "split", value=split)
    return None


def training_rows(items: Items, labels: Labels, split: Split) -> tuple[Bools, Bools]:
    """Which rows of nodes and of edges belong to training, or touch what does: what preprocessing may learn from."""
    structure, over = items.structure, _over(items, labels)
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
        rows[structure.rows[nodes[structure.edge_index].any(axis=0)]] = True
    return nodes, rows
