"""New tables as graphs for predictions, by the preprocessing of training."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from sirgcn.data.graphs import Graphs
from sirgcn.data.tables.assemble import read
from sirgcn.data.tables.columns import Dropped
from sirgcn.data.tables.features import Unknown
from sirgcn.data.tables.labels import read_labels
from sirgcn.data.tables.preprocessing import Preprocessing
from sirgcn.data.tables.read import Source
from sirgcn.data.tables.text import Bools, Ints, Objects
from sirgcn.strict import checked


@dataclass(frozen=True, eq=False)
class Inputs:
    """New tables as graphs without targets, from `apply_tables`.

    Args:
        graphs: the graphs to predict on; all targets are missing.
        ids: the ids of the nodes, in their order.
        graph_ids: the ids of the graphs, if there are several.
        edge_rows: the row of each edge in the table of edges, counted from 1.
        added: which edges are the reverse that was added to their row.
        dropped: the number of rows that were left out.
        unseen: for each column, the number of values that training does not know, which are read as other or missing.
        node_rows: the row of each node in the table of nodes, counted from 1; None without such a table.

    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> nodes = pd.DataFrame({"id": list("abcd"), "label": [0, 1, 0, 1]})
    >>> edges = pd.DataFrame({"source": list("abc"), "target": list("bcd")})
    >>> preprocessing = load_tables(nodes, edges).details["preprocessing"]
    >>> inputs = apply_tables(preprocessing, pd.DataFrame({"id": ["u", "v"]}), edges[:0])
    >>> inputs.ids.tolist(), inputs.graphs.num_edges
    (['u', 'v'], 0)
    """

    graphs: Graphs
    ids: Objects
    graph_ids: Objects | None
    edge_rows: Ints
    added: Bools
    dropped: int = 0
    unseen: dict[str, int] = field(default_factory=dict)
    node_rows: Ints | None = None


@checked
def apply_tables(
    preprocessing: Preprocessing,
    nodes: Any = None,
    edges: Any = None,
    *,
    graphs: Any = None,
    unknown: Unknown = "raise",
    on_error: Literal["raise", "skip"] = "raise",
    dropped: str | os.PathLike[str] | None = None,
    max_unpacked: int | None = None,
    targets: bool = False,
) -> Inputs:
    """Return new tables as graphs, read in the same way as the tables of training.

    Targets, and columns that training did not use, may be absent.

    Args:
        preprocessing: the preprocessing of training, `task.details["preprocessing"]`.
        nodes: as in `load_tables`.
        edges: as in `load_tables`.
        graphs: as in `load_tables`.
        unknown: what happens to categories that are not in the training rows, and to missing values in a column where
            training had none. "raise" refuses them with their name; "other" reads them as other or missing values.
        on_error: as in `load_tables`.
        dropped: as in `load_tables`.
        max_unpacked: as in `load_tables`.
        targets: whether the targets are read, to evaluate predictions with them. Otherwise all of them are missing.

    >>> import pandas as pd
    >>> import torch
    >>> from sirgcn.data import load_tables
    >>> edges = pd.DataFrame({"source": list("abc"), "target": list("bcd")})
    >>> nodes = pd.DataFrame({"id": list("abcd"), "size": [1, 2, 3, 4], "label": [0, 1, 0, 1]})
    >>> task = load_tables(nodes, edges, fractions=(1, 0, 0))
    >>> inputs = apply_tables(task.details["preprocessing"], nodes.drop(columns="label"), edges)
    >>> torch.equal(inputs.graphs.x, task.graphs.x), inputs.graphs.y.tolist()
    (True, [-1, -1, -1, -1])
    """
    left_out = Dropped.of(on_error, dropped)
    source = Source(nodes, edges, graphs, preprocessing.missing, max_unpacked)
    found = read_inputs(preprocessing, source, unknown, left_out, targets)
    if dropped is not None:
        left_out.write(Path(dropped))
    return found


def read_inputs(
    preprocessing: Preprocessing, source: Source, unknown: Unknown, left_out: Dropped, targets: bool = False
) -> Inputs:
    """Return the tables of a source as graphs; `left_out` gets the rows that cannot be used.

    All targets are missing unless `targets` is set.
    """
    level = preprocessing.level
    found = read(
        source, level, vars(preprocessing.roles), preprocessing.directed, {}, left_out, False, preprocessing.molecules
    )
    features = found.features(preprocessing, unknown)
    structure = found.items.structure
    graph_count = 1 if structure.graph_ids is None else len(structure.graph_ids)
    rows = {"node": len(structure.ids), "edge": len(structure.added), "graph": graph_count}[level]
    if targets:
        y = read_labels(found.items, level, preprocessing.targets, preprocessing.classes)
    elif preprocessing.classes:
        y = torch.full((rows,), -1)
    else:
        y = torch.full((rows, len(preprocessing.targets)), float("nan")).squeeze(1)
    graphs_found = found.graphs(features, y, level)
    return Inputs(
        graphs_found,
        **found.details(),
        dropped=len(left_out.rows),
        unseen=features.unseen,
        node_rows=None if structure.nodes is None else structure.nodes.rows,
    )
