"""A record as tables: in the terminal, or as Markdown for the documentation."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from sirgcn.bench.peers import AGGREGATION, BOTH, LAYER, LINEAR, MODES, OURS, SUITES
from sirgcn.bench.targets import best


@dataclass(frozen=True)
class Sheet:
    """A table: a title, the names of its columns, its rows, and remarks below it."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)


def sheets(record: dict[str, Any]) -> list[Sheet]:
    """Every table for which the record has figures."""
    threads = sorted({row["threads"] for row in record["times"]}, reverse=True)
    found = [_targets(record), _shares(record)]
    found += [_suite(record, suite, mode, count) for suite in SUITES for count in threads for mode in MODES]
    found += [_training(record), _memory(record), _scaling(record), _shapes(record), _peers(record)]
    found.append(_environment(record))
    return [sheet for sheet in found if sheet.rows]


def print_tables(record: dict[str, Any], console: Console) -> None:
    """The tables in the terminal; the remarks say what was left out and why."""
    for sheet in sheets(record):
        if sheet.title.startswith(("Peers", "Environment")):
            continue
        table = Table(title=sheet.title, title_justify="left", title_style="bold")
        for place, column in enumerate(sheet.columns):
            table.add_column(column, justify="right" if place else "left", overflow="fold")
        for row in sheet.rows:
            colour = {"yes": "green", "NO": "bold red"}.get(row[-1])
            table.add_row(*row, style=colour)
        console.print(table)
        for note in sheet.notes:
            console.print(f"  {note}", style="dim", highlight=False)


def markdown(record: dict[str, Any]) -> str:
    """The tables as Markdown."""
    parts = []
    for sheet in sheets(record):
        lines = [f"### {sheet.title}", "", _line(sheet.columns), "|---" + "|---:" * (len(sheet.columns) - 1) + "|"]
        lines += [_line(row) for row in sheet.rows]
        if sheet.notes:
            lines += ["", *(f"- {note}" for note in sheet.notes)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def render_page(page: str, record: dict[str, Any]) -> str:
    """A Markdown page with the tables of a record between its markers `<!-- bench -->` and `<!-- /bench -->`.

    Raises:
        ValueError: the page has no such place.
    """
    before, start, rest = page.partition("<!-- bench -->")
    _, end, after = rest.partition("<!-- /bench -->")
    if not end:
        raise ValueError("expected <!-- bench --> and <!-- /bench --> behind it, got none")
    return f"{before}{start}\n\n{markdown(record)}\n{end}{after}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _suite(record: dict[str, Any], suite: str, mode: str, threads: int) -> Sheet:
    """Ours in time, the others as ratios to it; the fastest setting of a family stands for it."""
    where = {"suite": suite, "mode": mode, "threads": threads}
    here = [row for row in record["times"] if all(row[key] == value for key, value in where.items())]
    shapes = [shape for shape in record["shapes"] if any(row["shape"] == shape for row in here)]
    families = dict.fromkeys(row["family"] for row in here)
    rows, settings = [], defaultdict(list)
    for family in families:
        cells = []
        for shape in shapes:
            row = best(record, suite, shape, threads, mode, family)
            cells.append(_cell(row))
            if row is not None and row["peer"] != family:
                settings[row["peer"]].append(shape)
        rows.append([family, *cells])
    notes = []
    if settings:
        notes.append(
            "Fastest settings: " + "; ".join(f"{name} ({', '.join(on)})" for name, on in settings.items()) + "."
        )
    title = f"{suite[0].upper()}{suite[1:]}, {mode}, {threads} thread{'s' * (threads > 1)}"
    return Sheet(
        title,
        ["peer / ours", *(_heading(record, shape) for shape in shapes)],
        rows,
        [SUITES[suite] + ".", *notes, *_left_out(record, suite, threads)],
    )


def _training(record: dict[str, Any]) -> Sheet:
    found = record.get("training", [])
    tasks, peers = (list(dict.fromkeys(row[key] for row in found)) for key in ("task", "peer"))
    cells = {(row["peer"], row["task"]): _cell({**row, "family": row["peer"]}) for row in found}
    threads = max((row["threads"] for row in found), default=1)
    return Sheet(
        f"Training, an epoch with its evaluation, {threads} thread{'s' * (threads > 1)}",
        ["peer / ours", *tasks],
        [[peer, *(cells.get((peer, task), "-") for task in tasks)] for peer in peers],
        [
            "The same network and batch sizes, four times as large in evaluation; plain PyG has its DataLoader and "
            "messages by propagate. The last row is a share of our epoch: slicing and grouping the batches."
        ],
    )


def _shares(record: dict[str, Any]) -> Sheet:
    """What the parts of a layer take, each measured by itself in the same run."""
    threads = max((row["threads"] for row in record["times"]), default=1)
    rows = []
    for shape in record["shapes"]:
        parts = [(LAYER, OURS), (AGGREGATION, OURS), (LAYER, LINEAR)]
        found = [best(record, suite, shape, threads, BOTH, family) for suite, family in parts]
        if all(found):
            layer, *alone = (row["seconds"]["median"] for row in found if row is not None)
            rows.append([_heading(record, shape), _time(layer), *(f"{seconds / layer:.0%}" for seconds in alone)])
    columns = ["shape", "SIRConv", "aggregation alone", "linear layers alone"]
    note = "Each part was timed by itself, so that the two need not add up to the whole."
    return Sheet(f"Where the time goes, {BOTH}, {threads} thread{'s' * (threads > 1)}", columns, rows, [note])


def _heading(record: dict[str, Any], shape: str) -> str:
    return f"{shape} ({record['shapes'][shape]['channels']})"


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    if row["family"] == OURS:
        low, mid, high = (_time(row["seconds"][key]) for key in ("q1", "median", "q3"))
        return f"{mid} ({low} to {high})"
    ratio = row["ratio"]
    return f"{ratio['median']:.2f}x ({ratio['q1']:.2f} to {ratio['q3']:.2f})"


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _left_out(record: dict[str, Any], suite: str, threads: int) -> list[str]:
    reasons: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in record["left_out"]:
        if row.get("suite") == suite and row.get("threads") == threads:
            reasons[row["reason"]][row["peer"]].append(row["shape"])
    return [
        "Left out: " + "; ".join(f"{peer} ({', '.join(shapes)})" for peer, shapes in peers.items()) + f": {reason}."
        for reason, peers in reasons.items()
    ]


def _targets(record: dict[str, Any]) -> Sheet:
    rows, missing = [], defaultdict(list)
    for row in record["targets"]:
        limit = f">= {row['at_least']:g}x" if "at_least" in row else f"<= {row['at_most']:g}"
        threads = "-" if row["threads"] is None else str(row["threads"])
        if row["measured"] is None:
            missing[f"{row['measure']}, {threads} threads"].append(row["shape"])
        else:
            holds = "yes" if row["holds"] else "NO"
            ceiling = "-" if row.get("ceiling") is None else f"{row['ceiling']:.2f}"
            measured = f"{row['measured']:.2f}"
            rows.append([row["measure"], row["mode"], row["shape"], threads, limit, measured, ceiling, holds])
    title = f"Must reach: {sum(row[-1] == 'yes' for row in rows)} of {len(rows)} measured hold"
    columns = ["measure", "mode", "shape", "threads", "limit", "measured", "ceiling", "holds"]
    notes = ["Ceiling: the ratio of a layer whose edges cost nothing, its three linear layers alone."]
    notes += [f"Not measured: {measure} ({', '.join(shapes)})." for measure, shapes in missing.items()]
    return Sheet(title, columns, rows, notes)


def _memory(record: dict[str, Any]) -> Sheet:
    counted = ("added_bytes", "peak_bytes")
    rows = [
        [*(row[key] for key in ("suite", "shape", "peer", "mode")), *(_megabytes(row[key]) for key in counted)]
        for row in record["memory"]
    ]
    notes = ["Added: what the pass adds to graph, inputs and parameters; peak: the whole process."]
    notes += [
        f"Left out: {row['suite']}, {row['peer']} ({row['shape']}, {row['mode']}): {row['reason']}."
        for row in record["left_out"]
        if row.get("suite", "").startswith("memory")
    ]
    return Sheet("Peak memory, MB", ["suite", "shape", "peer", "mode", "added", "peak"], rows, notes)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f}"


def _scaling(record: dict[str, Any]) -> Sheet:
    rows = []
    for row in record["scaling"]:
        nanoseconds = row["nanoseconds_per_edge"]["median"]
        cost = [f"{nanoseconds:.2f}", f"{nanoseconds / row['channels'] * 1e3:.1f}"]
        rows.append([f"{row['edges']:,}", str(row["channels"]), str(row["threads"]), row["peer"], row["mode"], *cost])
    columns = ["edges", "channels", "threads", "peer", "mode", "ns per edge", "ps per edge and channel"]
    return Sheet("Scaling, random graphs of 16 edges per node", columns, rows)


def _shapes(record: dict[str, Any]) -> Sheet:
    rows = [
        [name, shape["what"], f"{shape['nodes']:,}", f"{shape['edges']:,}", str(shape["channels"])]
        for name, shape in record["shapes"].items()
    ]
    notes = [f"Left out: {row['shape']}: {row['reason']}." for row in record["left_out"] if "suite" not in row]
    return Sheet("Graphs", ["shape", "what", "nodes", "directed edges", "channels"], rows, notes)


def _peers(record: dict[str, Any]) -> Sheet:
    rows = [[peer["suite"], peer["peer"], peer["what"]] for peer in record["peers"]]
    return Sheet("Peers", ["suite", "peer", "what is run"], rows)


def _environment(record: dict[str, Any]) -> Sheet:
    facts = {**record["environment"], **record["settings"]}
    rows = [
        [key, ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)]
        for key, value in facts.items()
    ]
    return Sheet("Environment", ["", "value"], rows)
