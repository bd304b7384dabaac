"""The inputs and outputs of a task: their widths, and the columns of a table that the inputs come from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sirgcn.data.graphs import Graphs, Level
from sirgcn.data.splits import Split
from sirgcn.strict import check_fields


@dataclass(frozen=True)
class Schema:
    """The widths of a model's inputs and outputs.

    Args:
        features: the width of float node features; 0 if nodes have categories.
        vocabularies: the number of categories of each column of the nodes; empty if nodes have float features.
        edge_features: the width of float edge features; 0 if there are none.
        edge_vocabularies: the number of categories of each column of the edges.
        encodings: the width of the positional or structural encodings.
        edge_encodings: the same of edges.
        graph_features: the width of the features of whole graphs; 0 if there are none.
        outputs: the number of outputs per row: of classes, of tasks, or 1.

    >>> Schema(vocabularies=(28,), edge_vocabularies=(4,)).outputs
    1
    """

    features: int = 0
    vocabularies: tuple[int, ...] = ()
    edge_features: int = 0
    edge_vocabularies: tuple[int, ...] = ()
    encodings: int = 0
    outputs: int = 1
    # Left out of the text of a schema, so that the hash of the splits of all other data stays what it was.
    edge_encodings: int = field(default=0, repr=False)
    graph_features: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class InputColumn:
    """A column of a user's table, and where it stands among the inputs of a task.

    Args:
        name: the column's name in the table.
        summary: what the column holds, in words.
        first: the index of the column's first input.
        width: the number of its inputs.
        values: the names of the inputs that hold values, in order; empty where the inputs are a category's one-hot row.
        categories: the names of its categories.
    """

    name: str
    summary: str
    first: int
    width: int
    values: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


class TaskLike(Protocol):
    """The parts of a `Task` that a description reads."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def graphs(self) -> Graphs: ...
    @property
    def schema(self) -> Schema: ...
    @property
    def splits(self) -> tuple[Split, ...]: ...
    @property
    def loss(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def details(self) -> Mapping[str, Any]: ...
    @property
    def level(self) -> Level: ...
    @property
    def over(self) -> Literal["graphs", "nodes", "edges"]: ...
