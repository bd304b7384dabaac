"""`Explanation`: what moved a prediction, as tables, JSON and a drawing."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pandas as pd

from sirgcn.model.drawing import Drawing, draw
from sirgcn.model.effects import DeletionTest
from sirgcn.strict import check_name

Table = Literal["edges", "columns", "nodes"]


@dataclass(frozen=True)
class EdgeEffect:
    """What one edge did to the prediction.

    Args:
        source: the node that sends.
        target: the node that receives.
        hops: how many edges lead from the target to the explained row.
        effect: the score with the edge minus the score without it: above 0 is for the prediction.
        without: the probability or the number without the edge.
        message_norm: the norm of its contextual message; None for layers without one.
        contextual: the share of the message that is gone when the target is an average node; it may exceed 1.
        layer: the layer of the message, from 1.
        mask: the mask of PyG's explainer, from 0 to 1; None if it did not run.
    """

    source: str
    target: str
    hops: int
    effect: float
    without: float
    message_norm: float | None = None
    contextual: float | None = None
    layer: int | None = None
    mask: float | None = None


@dataclass(frozen=True)
class ColumnEffect:
    """What one column did to the prediction.

    Args:
        column: its name.
        of: whose values: of this row, of the neighbours, of all nodes, of the edges.
        value: its value in this row; empty for several rows.
        effect: the score with the values minus the score with the mean (or most frequent category) in their place.
        without: the probability or the number with the mean in their place.
        mask: the mask of PyG's explainer; None if it did not run.
    """

    column: str
    of: str
    value: str
    effect: float
    without: float
    mask: float | None = None


@dataclass(frozen=True)
class NodeEffect:
    """What one node of a graph, such as an atom, did to the prediction of the graph.

    Args:
        node: its name.
        effect: the score of the graph minus its score without the node and the edges of the node.
        without: the probability or the number without it.
    """

    node: str
    effect: float
    without: float


@dataclass(frozen=True)
class Explanation:
    """What moved one prediction, strongest first.

    Args:
        row: the id of the row.
        level: what the row is: a node, an edge or a graph.
        target: the class, label or number that is explained.
        prediction: its probability or number.
        unit: what effects are measured in: log-odds, or the unit of the target.
        sort: whether the target is a class, a label or a number.
        edges: the effects of edges.
        columns: the effects of columns.
        nodes: the effects of the nodes of a graph.
        deletion: the test of the named edges against random ones; None where there are too few edges.
        notes: what a reader should know, in sentences.
        drawing: what is drawn.
    """

    row: str
    level: str
    target: str
    prediction: float
    unit: str
    sort: str
    edges: tuple[EdgeEffect, ...] = ()
    columns: tuple[ColumnEffect, ...] = ()
    nodes: tuple[NodeEffect, ...] = ()
    deletion: DeletionTest | None = None
    notes: tuple[str, ...] = ()
    drawing: Drawing | None = field(default=None, repr=False)

    def to_frame(self, of: Table = "edges") -> pd.DataFrame:
        """The effects of `"edges"`, `"columns"` or `"nodes"` as a table, strongest first.

        >>> Explanation("A", "node", "yes", 0.9, "log-odds", "classes", (EdgeEffect("B", "A", 0, 1.0, 0.7),)).to_frame().shape
        (1, 9)
        """
        check_name("of", of, ("edges", "columns", "nodes"), exact=True)
        rows = [asdict(entry) for entry in getattr(self, of)]
        known = {"edges": EdgeEffect, "columns": ColumnEffect, "nodes": NodeEffect}[of]
        return pd.DataFrame(rows, columns=list(known.__dataclass_fields__))

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        found = {name: value for name, value in asdict(self).items() if name not in ("drawing", "deletion")}
        found["deletion"] = None
        if self.deletion is not None:
            test = self.deletion
            found["deletion"] = asdict(test) | {
                "random_mean": test.random_mean,
                "share": test.share,
                "passed": test.passed,
                "text": str(test),
            }
        return found

    def to_json(self) -> str:
        """The explanation as JSON."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def to_svg(self) -> str:
        """The neighbourhood as a drawing: blue edges are for the prediction, orange dashed ones against it."""
        if self.drawing is None:
            raise ValueError("to_svg: expected an explanation from explain, got one without a drawing")
        return draw(self.drawing, self.headline, self.legend)

    @property
    def headline(self) -> str:
        """What was predicted, in one line."""
        if self.sort != "numbers":
            return f"{self.level} {self.row}: {self.target} with probability {self.prediction:.3f}"
        return f"{self.level} {self.row}: {self.target} = {self.prediction:.4g}"

    @property
    def legend(self) -> str:
        """What the numbers of an effect mean, in one sentence."""
        return f"numbers: what the prediction loses in {self.unit} when the edge is taken away"

    def __str__(self) -> str:
        lines = [self.headline]
        for title, entries in (
            ("edges", [(f"{e.source} -> {e.target}", e) for e in self.edges]),
            ("nodes", [(e.node, e) for e in self.nodes]),
            ("columns", [(f"{e.column}{f' = {e.value}' if e.value else ''} ({e.of})", e) for e in self.columns]),
        ):
            if entries:
                lines.append(f"{title}: effect on the {self.unit}, and the prediction without them")
            lines += [f"  {name:<40} {entry.effect:+.4f}   {entry.without:.4f}" for name, entry in entries[:10]]
        if self.deletion is not None:
            lines.append(f"deletion test: {self.deletion}")
        return "\n".join([*lines, *self.notes])
