"""`Explanation`: what moved a prediction, as tables, JSON and a drawing."""

import json
from dataclasses import asdict, dataclass, field, fields
from html import escape
from typing import Any, Literal

import pandas as pd

from sirgcn.model.drawing import Drawing, draw
from sirgcn.model.effects import DeletionTest
from sirgcn.strict import check_name

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>TITLE</title><style>
body{font:15px/1.5 system-ui,sans-serif;color:#1f2328;max-width:60rem;margin:2rem auto;padding:0 1rem}
svg{max-width:100%;height:auto}div{overflow-x:auto}table{border-collapse:collapse}
th,td{text-align:left;padding:.25rem .75rem;border-bottom:1px solid #d0d7de;white-space:nowrap}
h1{font-size:1.3rem}h2{font-size:1.1rem}
</style></head><body>
BODY
</body></html>
"""

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

    >>> EdgeEffect("B", "A", hops=0, effect=1.2, without=0.6).message_norm is None
    True
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

    >>> ColumnEffect("colour", "this row", "red", -0.4, 0.8).value
    'red'
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

    >>> NodeEffect("O4", 0.7, 1.2).node
    'O4'
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

    >>> print(Explanation("A", "node", "yes", 0.9, "log-odds", "classes"))
    node A: yes with probability 0.900
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

        >>> edges = (EdgeEffect("B", "A", 0, 1.0, 0.7),)
        >>> Explanation("A", "node", "yes", 0.9, "log-odds", "classes", edges).to_frame().shape
        (1, 9)
        """
        check_name("of", of, ("edges", "columns", "nodes"), exact=True)
        rows = [asdict(entry) for entry in getattr(self, of)]
        known: dict[str, Any] = {"edges": EdgeEffect, "columns": ColumnEffect, "nodes": NodeEffect}
        return pd.DataFrame(rows, columns=[entry.name for entry in fields(known[of])])

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

    def to_html(self) -> str:
        """One page: the drawing, the deletion test, and all tables. Nothing is fetched from elsewhere."""
        parts = [f"<h1>{escape(self.headline)}</h1>", self.to_svg()]
        if self.deletion is not None:
            parts.append(f"<p>Deletion test: {escape(str(self.deletion))}.</p>")
        parts += [f"<p>{escape(note)}</p>" for note in self.notes]
        tables: tuple[Table, ...] = ("edges", "nodes", "columns")
        for of in tables:
            frame = self.to_frame(of).dropna(axis=1, how="all")
            if len(frame):
                body = frame.to_html(index=False, escape=True, float_format="{:.4g}".format, border=0)
                parts.append(f"<h2>{of.capitalize()}</h2><div>{body}</div>")
        return _PAGE.replace("TITLE", escape(self.headline)).replace("BODY", "\n".join(parts))

    @property
    def headline(self) -> str:
        """What was predicted, in one line."""
        if self.sort != "numbers":
            return f"{self.level} {self.row}: {self.target} with probability {self.prediction:.3f}"
        return f"{self.level} {self.row}: {self.target} = {self.prediction:.4g}"

    @property
    def legend(self) -> str:
        """What the numbers of an effect mean, in one sentence."""
        circles = "; circles: the same of a node" if self.nodes else ""
        return f"numbers: what the prediction loses in {self.unit} when the edge is taken away{circles}"

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
