"""The commands that show or write something: results, figures, models, backends."""

import json
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sirgcn.cli import tell
from sirgcn.cli.shared import AsJson, Models, Reduced, Results, out, show

# The width of a terminal from which on the table of models is readable.
_TABLE_OF_MODELS = 140


def results(
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments by name, such as zinc. Default: all that have records.")
    ] = None,
    folder: Annotated[Path, typer.Option("--results", help="The folder with the records of runs.")] = Path("results"),
    write: Annotated[
        Path | None,
        typer.Option("--write", "-w", help="Write report.html, tables.md, tables.tex and tables.csv into this folder."),
    ] = None,
    docs: Annotated[
        list[Path] | None,
        typer.Option("--docs", help="Rewrite the marked parts of this Markdown page. Repeat the option for several."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the results of experiments beside the published figures, or write them as a report.

    Without an option, the tables are printed. `--write` writes the HTML report and the tables as Markdown, LaTeX and
    CSV. `--docs` rewrites the tables of documentation pages.

    Examples:

        sirgcn results

        sirgcn results zinc mnist --json

        sirgcn results --write report

        sirgcn results --docs docs/results.md
    """
    chosen = _with_records(folder, names or ())
    if write is None and docs is None:
        tell.results(chosen, folder, {}, as_json)
        return
    written = [] if docs is None else _write_docs(docs, folder)
    if write is not None:
        written += _write_report(chosen, folder, write)
    if written or as_json:
        show(("written",), [(str(path),) for path in written], as_json)
    else:
        out.print("Up to date.")


def _with_records(folder: Path, names: Sequence[str]) -> set[str]:
    """The experiments of these names that have records in a folder; without a name all that have records."""
    from sirgcn.strict import check_name

    if not folder.is_dir():
        raise FileNotFoundError(f"--results: expected a folder with records, got {folder}")
    known = {file.stem.lower(): file.stem for file in sorted(folder.glob("*.jsonl"))}
    for name in names:
        check_name(f"records in {folder}", name, known.values(), "an experiment, not a table: ")
    return {known[name.lower()] for name in names} or set(known.values())


def _write_report(names: set[str], folder: Path, place: Path) -> list[Path]:
    """Write the HTML report and the tables of experiments into a folder, and return the files."""
    from sirgcn.report import compare, read_runs, write_report

    runs = [run for name in sorted(names) for run in read_runs(folder / f"{name}.jsonl")]
    return write_report(compare(runs), place)


def _write_docs(pages: list[Path], folder: Path) -> list[Path]:
    """Rewrite the marked parts of pages from all records of a folder, and return the pages that have changed."""
    from sirgcn.report import beyond, collisions, compare, defaults, read_runs, separation, write_docs

    texts = (
        beyond.texts([page.read_text("utf-8") for page in pages], folder)
        | defaults.texts(folder)
        | {
            "collisions": collisions.markdown(collisions.read_record(folder)),
            "separation": separation.markdown(separation.read_record(folder)),
        }
    )
    return write_docs(pages, compare(read_runs(folder)), texts)


def collisions(
    models: Models = None,
    column: Annotated[str, typer.Option("--column", "-c", help="A column of Table 1, by title.")] = "n=10",
    seed: Annotated[int, typer.Option("--seed", "-s", min=0, help="The seed of data, weights and batches.")] = 0,
    reduced: Reduced = False,
    results: Results = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Train models of Table 1 and show which dictionaries their layer confuses.

    The findings for each model are kept in theory/collisions.json, in the folder of the records.

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
        list[str] | None, typer.Argument(help="Figures by number (2) or name (contours). Default: all five.")
    ] = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")] = Path("figures"),
    format_: Annotated[str, typer.Option("--format", "-f", help="The format of the files: png, svg or pdf.")] = "png",
    as_json: AsJson = False,
) -> None:
    """Draw the figures of the paper from computed data.

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
        list[str] | None, typer.Argument(help="The arguments of python -m sirgcn.bench; see its --help.")
    ] = None,
) -> None:
    """Measure time and memory against the layers of PyG, torch.compile and MKL.

    Example:

        sirgcn bench --full --shapes arxiv
    """
    os.execv(sys.executable, [sys.executable, "-m", "sirgcn.bench", *(arguments or [])])


def backends(as_json: AsJson = False) -> None:
    """Show which backends of the layer are available here, and why the others are not."""
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
        str | None, typer.Argument(help="One model by name or title, with its options. Default: all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the models that a row of an experiment can name, with formula, complexity and reference.

    A row names a convolution by `conv`, which is placed into the network of the preset, or a whole network by
    `network`.

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
    """A text below a head line, wrapped at words."""
    return textwrap.fill(
        text,
        out.width,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def version() -> None:
    """Print the version of the package."""
    import sirgcn

    print(sirgcn.__version__)
