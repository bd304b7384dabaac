"""The figures of a run as tables of `sirgcn.report`: in the terminal, or as Markdown for the documentation."""

from collections import defaultdict
from collections.abc import Iterable

from rich.console import Console

from sirgcn.bench.peers import AGGREGATION, BOTH, LAYER, LINEAR, MODES, OURS, SUITES
from sirgcn.bench.records import MEMORY, TIMES, Results, Row, threads_text
from sirgcn.bench.targets import best, check
from sirgcn.report.sheets import Entry, Fact, Sheet, Styled

_NOT_PRINTED = ("Peers", "Environment")


def sheets(results: Results) -> list[Sheet]:
    """Every table for which a run has figures, with the peers and the environment at the end.

    >>> [sheet.title for sheet in sheets(Results(environment={"cpu": "a"}))]
    ['Environment']
    """
    threads = sorted({row["threads"] for row in results.times}, reverse=True)
    found = [_targets(results), _shares(results)]
    found += [_suite(results, suite, mode, count) for suite in SUITES for count in threads for mode in MODES]
    found += [_training(results), _memory(results), _scaling(results), _ratios(results), _shapes(results)]
    found += [_peers(results), _environment(results)]
    return [sheet for sheet in found if sheet.rows]


def print_tables(results: Results, console: Console) -> None:
    """Print the tables except those of the peers and of the environment. Notes say what was left out and why."""
    for sheet in sheets(results):
        if sheet.title not in _NOT_PRINTED:
            console.print(sheet.rich())


def markdown(results: Results, level: int = 3) -> str:
    """The tables as Markdown, each with a heading of a level.

    >>> print(markdown(Results(environment={"cpu": "a"})))
    ### Environment
    <BLANKLINE>
    |  | value |
    |---|---|
    | cpu | a |
    <BLANKLINE>
    """
    return "\n".join(sheet.markdown(level=level) for sheet in sheets(results))


def render_page(page: str, results: Results, name: str = "") -> str:
    """A Markdown page with the tables of a run between its markers `<!-- bench -->` and `<!-- /bench -->`.

    Where the page has a marker with the name of the run, such as `<!-- bench: gated -->`, the tables go there, each
    with a heading of the fourth level.

    Raises:
        ValueError: the page has no such markers.

    >>> render_page("a page", Results())
    Traceback (most recent call last):
    ValueError: page: expected <!-- bench --> and <!-- /bench --> behind it, got none
    >>> render_page("<!-- bench: gated -->, <!-- /bench -->", Results(), "gated")
    '<!-- bench: gated -->\\n\\n\\n<!-- /bench -->'
    """
    own = f"<!-- bench: {name} -->"
    is_named = own in page
    before, start, rest = page.partition(own if is_named else "<!-- bench -->")
    _, end, after = rest.partition("<!-- /bench -->")
    if not end:
        raise ValueError("page: expected <!-- bench --> and <!-- /bench --> behind it, got none")
    return f"{before}{start}\n\n{markdown(results, 4 if is_named else 3)}\n{end}{after}"


def _suite(results: Results, suite: str, mode: str, threads: int) -> Sheet:
    """Ours in time, the others as ratios to ours. The fastest setting of a family stands for the family."""
    where = {"suite": suite, "mode": mode, "threads": threads}
    here = [row for row in results.times if where.items() <= row.items()]
    shapes = _measured_shapes(results, here)
    families = dict.fromkeys(row["family"] for row in here)
    fastest = {
        family: {shape: best(results, suite, shape, threads, mode, family) for shape in shapes} for family in families
    }
    rows = [[family, *map(_cell, found.values())] for family, found in fastest.items()]
    notes = [Fact("Measured", SUITES[suite]), *_settings(fastest), *_left_out(results, suite, threads)]
    title = f"{suite[0].upper()}{suite[1:]}, {mode}, {threads_text(threads)}"
    return Sheet(title, ["peer / ours", *(_heading(results, shape) for shape in shapes)], rows, notes)


def _measured_shapes(results: Results, rows: Iterable[Row]) -> list[str]:
    measured = {row["shape"] for row in rows}
    return [shape for shape in results.shapes if shape in measured]


def _settings(fastest: dict[str, dict[str, Row | None]]) -> list[Fact]:
    """Which setting of a family was the fastest, and on which graphs."""
    found = defaultdict(list)
    for family, rows in fastest.items():
        for shape, row in rows.items():
            if row is not None and row["peer"] != family:
                found[row["peer"]].append(shape)
    return [Fact("Fastest settings", _listed(found))] if found else []


def _left_out(results: Results, suite: str, threads: int) -> list[Fact]:
    where = {"part": TIMES, "suite": suite, "threads": threads}
    reasons: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in results.left_out:
        if where.items() <= row.items():
            reasons[row["reason"]][row["peer"]].append(row["shape"])
    return [Fact("Left out", f"{_listed(peers)}: {reason}") for reason, peers in reasons.items()]


def _listed(names: dict[str, list[str]]) -> str:
    """Names, each with the graphs that it is about: `eager (molecules, arxiv); GCNConv (arxiv)`."""
    return "; ".join(f"{name} ({', '.join(shapes)})" for name, shapes in names.items())


def _training(results: Results) -> Sheet:
    tasks, peers = (list(dict.fromkeys(row[key] for row in results.training)) for key in ("task", "peer"))
    cells = {(row["peer"], row["task"]): _cell({**row, "family": row["peer"]}) for row in results.training}
    threads = max((row["threads"] for row in results.training), default=1)
    notes = [
        Fact("All", "the same network and batch sizes; batches of evaluation are four times as large"),
        Fact("plain PyG", "PyG's DataLoader, messages by propagate"),
        Fact("Last row", "a share of our epoch: slicing and grouping the batches"),
    ]
    return Sheet(
        f"Training, an epoch with its evaluation, {threads_text(threads)}",
        ["peer / ours", *tasks],
        [[peer, *(cells.get((peer, task), "-") for task in tasks)] for peer in peers],
        notes,
    )


def _shares(results: Results) -> Sheet:
    """What the parts of a layer take, each measured by itself in the same run."""
    threads = max((row["threads"] for row in results.times), default=1)
    rows = []
    for shape in results.shapes:
        parts = [(LAYER, OURS), (AGGREGATION, OURS), (LAYER, LINEAR)]
        found = [best(results, suite, shape, threads, BOTH, family) for suite, family in parts]
        if all(found):
            layer, *alone = (row["seconds"]["median"] for row in found if row is not None)
            rows.append([_heading(results, shape), _time(layer), *(f"{seconds / layer:.0%}" for seconds in alone)])
    columns = ["shape", "SIRConv", "aggregation alone", "linear layers alone"]
    note = Fact("Shares", "each part was timed by itself, so the two need not add up to the whole")
    return Sheet(f"Where the time goes, {BOTH}, {threads_text(threads)}", columns, rows, [note])


def _heading(results: Results, shape: str) -> str:
    return f"{shape} ({results.shapes[shape]['channels']})"


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    if row["family"] == OURS:
        low, mid, high = (_time(row["seconds"][key]) for key in ("q1", "median", "q3"))
        return f"{mid} ({low} to {high})"
    return _ratio(row["ratio"])


def _ratio(ratio: Row) -> str:
    return f"{ratio['median']:.2f}x ({ratio['q1']:.2f} to {ratio['q3']:.2f})"


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _targets(results: Results) -> Sheet:
    checked = check(results)
    measured = [row for row in checked if row["measured"] is not None]
    missing: dict[str, list[str]] = defaultdict(list)
    for row in checked:
        if row["measured"] is None and row["is_asked"]:
            threads = "" if row["threads"] is None else f", {threads_text(row['threads'])}"
            missing[f"{row['measure']}{threads}"].append(row["shape"])
    title = f"Must reach: {sum(row['holds'] for row in measured)} of {len(measured)} measured hold"
    columns = ["measure", "mode", "shape", "threads", "limit", "measured", "ceiling", "holds"]
    notes = [Fact("Ceiling", "the ratio of a layer whose edges cost nothing, its linear layers alone")]
    notes += [Fact("Not measured", _listed({measure: shapes})) for measure, shapes in missing.items()]
    return Sheet(title, columns, [_target(row) for row in measured], notes)


def _target(row: Row) -> list[Entry]:
    limit = f">= {row['at_least']:g}x" if "at_least" in row else f"<= {row['at_most']:g}"
    ceiling = "-" if row.get("ceiling") is None else f"{row['ceiling']:.2f}"
    holds = Styled("yes", colour="green") if row["holds"] else Styled("NO", colour="red")
    threads = "-" if row["threads"] is None else str(row["threads"])
    return [row["measure"], row["mode"], row["shape"], threads, limit, f"{row['measured']:.2f}", ceiling, holds]


def _memory(results: Results) -> Sheet:
    counted = ("added_bytes", "peak_bytes")
    rows = [
        [*(row[key] for key in ("suite", "shape", "peer", "mode")), *(f"{row[key] / 1e6:,.1f}" for key in counted)]
        for row in results.memory
    ]
    notes = [
        Fact("Added", "what the pass adds to the graph, the inputs and the parameters"),
        Fact("Peak", "the whole process"),
    ]
    notes += [
        Fact("Left out", f"{row['suite']}, {row['peer']} ({row['shape']}, {row['mode']}): {row['reason']}")
        for row in results.left_out
        if row["part"] == MEMORY
    ]
    return Sheet("Peak memory, MB", ["suite", "shape", "peer", "mode", "added", "peak"], rows, notes, left=4)


def _scaling(results: Results) -> Sheet:
    rows = []
    for row in results.scaling:
        nanoseconds = row["nanoseconds_per_edge"]["median"]
        cost = [f"{nanoseconds:.2f}", f"{nanoseconds / row['channels'] * 1e3:.1f}"]
        rows.append([f"{row['edges']:,}", str(row["channels"]), str(row["threads"]), row["peer"], row["mode"], *cost])
    columns = ["edges", "channels", "threads", "peer", "mode", "ns per edge", "ps per edge and channel"]
    return Sheet("Scaling, random graphs of 16 edges per node", columns, rows, left=0)


def _ratios(results: Results) -> Sheet:
    rows = [[row["call"], _ratio(row["ratio"]), str(len(row["samples"]))] for row in results.ratios]
    settings = results.settings
    notes = [Fact(name, str(settings[name])) for name in ("after", "before", "clock") if name in settings]
    return Sheet("Two checkouts, one thread", ["call", "time after / before", "pairs of samples"], rows, notes)


def _shapes(results: Results) -> Sheet:
    rows = [
        [name, shape["what"], f"{shape['nodes']:,}", f"{shape['edges']:,}", str(shape["channels"])]
        for name, shape in results.shapes.items()
    ]
    notes = [
        Fact("Left out", f"{row['shape']}: {row['reason']}")
        for row in results.left_out
        if row["part"] not in (TIMES, MEMORY)
    ]
    return Sheet("Graphs", ["shape", "what", "nodes", "directed edges", "channels"], rows, notes, left=2)


def _peers(results: Results) -> Sheet:
    rows = [[peer["suite"], peer["peer"], peer["what"]] for peer in results.peers]
    return Sheet("Peers", ["suite", "peer", "what is run"], rows, left=3)


def _environment(results: Results) -> Sheet:
    facts = {**results.environment, **results.settings}
    return Sheet("Environment", ["", "value"], [[name, _fact(value)] for name, value in facts.items()], left=2)


def _fact(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={entry}" for name, entry in value.items())
    return str(value)
