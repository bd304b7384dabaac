"""The commands that show something or write it: tables, figures, models, backends."""

import json
import os
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from sirgcn.cli.shared import AsJson, Models, Reduced, Results, out, show

# Columns of a terminal in which the table of models need not break every cell.
_TABLE_OF_MODELS = 140


def report(
    folder: Annotated[Path, typer.Argument(help="Where the files go.")] = Path("report"),
    results: Results = Path("results"),
    docs: Annotated[
        list[Path] | None,
        typer.Option("--docs", help="Only write the marked parts of this Markdown page anew; several by repeating."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the paper's tables with ours beside them: report.html, tables.md, tables.tex, tables.csv.

    Examples:

        sirgcn report

        sirgcn report --docs docs/results.md
    """
    from sirgcn.report import collisions, compare, read_runs, separation, write_docs, write_report

    written: list[Path] = []
    if docs is not None:
        texts = {
            "collisions": collisions.markdown(collisions.read_record(results)),
            "separation": separation.markdown(separation.read_record(results)),
        }
        written += write_docs(docs, compare(read_runs(results)), texts)
    if docs is None:
        written = write_report(compare(read_runs(results)), folder)
    if written or as_json:
        show(("written",), [(str(path),) for path in written], as_json)
    else:
        out.print("Up to date.")


def collisions(
    models: Models = None,
    column: Annotated[str, typer.Option("--column", "-c", help="A column of Table 1.")] = "n=10",
    seed: Annotated[int, typer.Option("--seed", "-s", min=0, help="Of data, weights and batches.")] = 0,
    reduced: Reduced = False,
    results: Results = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Train models of Table 1 and show which dictionaries their layer confuses.

    Each is kept as a row of theory/collisions.json in the folder of the records.

    Example:

        sirgcn collisions --models GCN --models SIR-GCN
    """
    from sirgcn.engine import experiment as config
    from sirgcn.report import collisions as demonstration

    table, rows = config.load_training("dictionary_lookup"), []
    for title in models or [model.title for model in table.models]:
        row, found = demonstration.look_at(table, title, column, seed, reduced)
        demonstration.add_to_record(row, results)
        rows.append(row)
        if not as_json:
            out.print(f"{row['model']}: {found}\n", markup=False, highlight=False)
    if as_json:
        print(json.dumps(rows))


def figures(
    names: Annotated[
        list[str] | None, typer.Argument(help="By number (2) or name (contours). Default: all five.")
    ] = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="Where the files go.")] = Path("figures"),
    format_: Annotated[str, typer.Option("--format", "-f", help="png, svg or pdf.")] = "png",
    as_json: AsJson = False,
) -> None:
    """Draw the paper's figures from computed data: feature map, hashes, measured properties, generated samples.

    Names: soft-injective (1), contours (2), quadrants (3), dictionary-lookup (4), hetero-edge-count (5).

    Examples:

        sirgcn figures

        sirgcn figures 2 quadrants --format svg --out my_figures
    """
    from sirgcn.report.paper_figures import FIGURES, find_figure, write_figures

    entries = [find_figure(name) for name in names or FIGURES]
    written = write_figures([entry.name for entry in entries], folder, format_)
    rows = [(entry.number, entry.caption, str(path)) for entry, path in zip(entries, written, strict=True)]
    show(("figure", "caption", "written"), rows, as_json)


def bench(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="As for python -m sirgcn.bench; see its --help.")
    ] = None,
) -> None:
    """Measure time and memory against PyG's layers, torch.compile and MKL.

    Example:

        sirgcn bench --full --shapes arxiv
    """
    os.execv(sys.executable, [sys.executable, "-m", "sirgcn.bench", *(arguments or [])])


def backends(as_json: AsJson = False) -> None:
    """Which backends of the layer are available here, and why the others are not."""
    from sirgcn.ops import backends as found
    from sirgcn.ops import native

    states = found()
    if as_json:
        print(json.dumps({"backends": states, "native": native.describe() if native.UNAVAILABLE is None else None}))
        return
    for name, reason in states.items():
        detail = f" ({native.describe()})" if name == "native" and reason is None else ""
        out.print(f"{name}: {'available' + detail if reason is None else f'not available: {reason}'}", markup=False)


def models(
    name: Annotated[
        str | None, typer.Argument(help="One of them by name or title, with its options. Default: all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The models that a row of an experiment can name, with formula, complexity and reference.

    A row names a convolution by `conv`, which stands in the preset's network, or a network of its own by `network`.

    Examples:

        sirgcn models

        sirgcn models glognn
    """
    from sirgcn.nn import MODEL_COLUMNS, model_rows

    rows = model_rows(name)
    if not as_json and out.width < _TABLE_OF_MODELS:
        for entry, key, title, *texts, options in rows:
            lines = texts if name is None else [*texts, f"options: {options or 'none'}"]
            out.print("\n".join([f'{title}: {key} = "{entry}"', *map(_indented, lines)]), markup=False, highlight=False)
        return
    shown = slice(None, -1 if name is None else None)
    show(MODEL_COLUMNS[shown], [row[shown] for row in rows], as_json)


def _indented(text: str) -> str:
    """Below a head line, wrapped at words."""
    return textwrap.fill(
        text,
        out.width,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def version() -> None:
    """The version of the package."""
    import sirgcn

    print(sirgcn.__version__)
