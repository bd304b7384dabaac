"""What a person reads about a model: the values of its HTML report, and its model card in Markdown."""

from collections.abc import Mapping
from typing import Any

from sirgcn.model.fitted import Model
from sirgcn.model.problem import Problem
from sirgcn.report.model_page import render_model_page, shown

_LEVELS = {"node": "each node", "edge": "each edge", "graph": "each graph"}
_PARTS = {"train": "training rows", "val": "validation rows", "calibration": "calibration rows", "test": "test rows"}


def report_html(model: Model) -> str:
    """The HTML report of a model, from what the model knows about itself.

    >>> from sirgcn.data import load
    >>> from sirgcn.engine.network import default_config
    >>> from sirgcn.model import Member
    >>> from sirgcn.nn import build_net
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> config = default_config(task)
    >>> model = Model(Problem.of(task), (Member(config, build_net(config).eval()),))
    >>> "Predicts y of each graph." in report_html(model)
    True
    """
    return render_model_page(page_values(model))


def page_values(model: Model) -> dict[str, Any]:
    """The plain values that the report of a model is made of.

    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> page_values(Model(Problem.of(task), ()))["summary"]
    'Predicts y of each graph.'
    """
    about = model.about
    environment = _mapping(about.get("environment"))
    return {
        "name": model.problem.name,
        "summary": summary(model.problem),
        "created": str(environment.get("date", ""))[:10],
        "command": about.get("command", ""),
        "data": _mapping(about.get("data")),
        "split": part_sizes(model),
        "history": about.get("history", []),
        "trials": about.get("trials", []),
        "notes": about.get("notes", []),
        "evaluation": _mapping(about.get("evaluation")),
        "environment": environment,
        "settings": _mapping(about.get("settings")),
    }


def summary(problem: Problem) -> str:
    """What a model predicts, in one sentence.

    >>> from sirgcn.data import load
    >>> summary(Problem.of(load("hetero_edge_count", c=2, num_graphs=10)))
    'Predicts y of each graph.'
    """
    targets = ", ".join(problem.targets[:5])
    if len(problem.targets) > 5:
        targets += f" and {len(problem.targets) - 5} more"
    of = _LEVELS[problem.level]
    if problem.sort != "classes":
        return f"Predicts {targets} of {of}."
    names = ", ".join(problem.classes[:8])
    more = f" and {len(problem.classes) - 8} more" if len(problem.classes) > 8 else ""
    return f"Predicts {targets} of {of}: {names}{more}."


def part_sizes(model: Model) -> dict[str, int]:
    """How many rows each part of the split has."""
    split = _mapping(model.about.get("split"))
    found = {title: split.get(part) for part, title in _PARTS.items()}
    return {title: len(ids) for title, ids in found.items() if isinstance(ids, list) and ids}


def card(model: Model) -> str:
    """The model card, Markdown: what the model predicts, how good it is, what it was trained on, how to use it.

    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> "# HeteroEdgeCount(2)" in card(Model(Problem.of(task), ())).splitlines()
    True
    """
    values = page_values(model)
    evaluation = _mapping(values["evaluation"])
    blocks = [
        "---\nlibrary_name: sirgcn\ntags: [graph-machine-learning, sir-gcn]\n---\n",
        f"# {_line(values['name'])}\n\n{_line(values['summary'])}",
        _line(evaluation.get("sentence", "")),
        _scores(evaluation),
        _controls(evaluation),
        _training(model, values),
        _limits(model, evaluation, values),
        _use(model.problem),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _scores(evaluation: Mapping[str, Any]) -> str:
    scores = _mapping(evaluation.get("scores"))
    if not scores:
        return "## How good it is\n\nThere was no test part with labels, so its quality is not known."
    lines = ["| metric | value | 95 % interval |", "|---|---|---|"]
    for name, score in scores.items():
        low, high = shown(score.get("low"), name), shown(score.get("high"), name)
        lines.append(f"| {_cell(score.get('title', name))} | {shown(score.get('value'), name)} | {low} to {high} |")
    rows = evaluation.get("rows", 0)
    return f"## How good it is\n\nOn {rows:,} test rows that trained nothing:\n\n" + "\n".join(lines)


def _titled(control: Mapping[str, Any]) -> str:
    note = control.get("note")
    return _cell(f"{control.get('title', '')} ({note})" if note else control.get("title", ""))


def _controls(evaluation: Mapping[str, Any]) -> str:
    metric, controls = str(evaluation.get("metric", "")), evaluation.get("controls") or []
    rows = [(one, _mapping(_mapping(one.get("scores")).get(metric))) for one in controls]
    lines = [f"| {_titled(one)} | {shown(score.get('value'), metric)} |" for one, score in rows if score]
    if not lines:
        return ""
    title = _mapping(_mapping(evaluation.get("scores")).get(metric)).get("title", metric)
    return "\n".join(["## Beside simpler models", "", f"| model | {_cell(title)} |", "|---|---|", *lines])


def _training(model: Model, values: Mapping[str, Any]) -> str:
    parts = ", ".join(f"{rows:,} {title}" for title, rows in values["split"].items())
    parameters = sum(p.numel() for member in model.members for p in member.network.parameters())
    lines = ["## How it was trained", "", f"- Data: {_line(values['name'])}"]
    lines += [f"- Split: {parts}"] if parts else []
    lines.append(f"- Networks: {len(model.members)}, {parameters:,} weights in all")
    version = values["environment"].get("sirgcn")
    lines += [f"- sirgcn {_line(version)}"] if version else []
    lines += ["", "```", str(values["command"]).replace("```", "'''"), "```"] if values["command"] else []
    return "\n".join(lines)


def _limits(model: Model, evaluation: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    lines = [f"- {_line(text)}" for text in _mapping(values["data"]).get("warnings") or []]
    coverage = _mapping(evaluation.get("coverage"))
    if coverage:
        what = "intervals" if model.problem.sort == "numbers" else "sets"
        held = 100 * float(coverage.get("held") or 0.0)
        lines.append(
            f"- {100 * float(coverage.get('level') or 0):.0f} % {what} held the truth in {held:.1f} % of test rows."
        )
    else:
        lines.append("- It has no calibrated sets or intervals: the validation part was too small.")
    lines.append("- Scores hold for rows like those of the test part, and for no others.")
    return "\n".join(["## Limits", "", *lines])


def _use(problem: Problem) -> str:
    files = "new_nodes.csv new_edges.csv" if problem.level != "graph" else "new_rows.csv"
    return f"## How to use it\n\n```\nsirgcn predict THIS_FOLDER {files} --out predictions.csv\n```"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _line(text: Any) -> str:
    """Text that stays on its line and begins no markup."""
    return " ".join(str(text).split()).replace("<", "&lt;").lstrip("#")


def _cell(text: Any) -> str:
    return _line(text).replace("|", "\\|")
