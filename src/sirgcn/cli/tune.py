"""`sirgcn tune`: search the settings for a user's own data."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sirgcn.cli import choose, configured
from sirgcn.cli.shared import ShortJson, out, resumable, show
from sirgcn.cli.train import GraphsFile, SplitColumn, Target, TimeLimit, TrainFiles
from sirgcn.cli.typed import Sets
from sirgcn.strict import check_name

if TYPE_CHECKING:
    from sirgcn.data import Task
    from sirgcn.engine.search.study import Made
    from sirgcn.engine.workers import Engine

TrialEngine = Annotated[str, typer.Option("--engine", metavar="NAME", help="processes, or ray: a Ray cluster.")]
CONFIG = "config.toml"
"""The file in the folder of a study that trains with its best settings."""


def tune(
    files: TrainFiles,
    target: Target = None,
    out_: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder of the study.")] = Path("study"),
    graphs: GraphsFile = None,
    split: SplitColumn = None,
    set_: Sets = None,
    trials: Annotated[int, typer.Option("--trials", min=1, metavar="N", help="How many are tried.")] = 30,
    time_limit: TimeLimit = None,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of suggestions and weights.")] = 0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, metavar="N", help="How many trials at a time.")] = 1,
    engine: TrialEngine = "processes",
    threads: Annotated[int | None, typer.Option(min=1, metavar="N", help="Of each trial.")] = None,
    as_json: ShortJson = False,
) -> None:
    """Search settings for FILES. Then: sirgcn train study/config.toml

    Example: sirgcn tune nodes.csv edges.csv --target label --trials 30
    """
    from sirgcn.cli.watching import Watching
    from sirgcn.engine.search.suggesting import check_optuna
    from sirgcn.model.tune import TuneSettings, read_tuned
    from sirgcn.model.tune import tune as search

    check_optuna()
    configured.refuse_experiments(files)
    asked = _asked(files, graphs, target, split).with_sets(set_)
    limit = None if time_limit is None else configured.time_of(time_limit, "--time-limit")
    threads = choose.threads_of(threads, jobs)
    with resumable() as interrupt, Watching(interrupt) as watcher, _engine_of(engine, jobs, threads) as where:
        watcher.say("reading the tables")
        task = asked.task(out_.with_name(f"{out_.name}.bad.csv"))
        made = search(task, out_, TuneSettings(trials, seed, limit), watcher, jobs, where, threads)
    best = read_tuned(out_)
    _write_config(asked, best.candidate, best.network, best.train, out_)
    if as_json:
        print(json.dumps({"study": str(out_), "best": vars(best), "trials": [vars(one) for one in made]}))
    else:
        _show(made, task, out_)


def _show(made: "Sequence[Made]", task: "Task", folder: Path) -> None:
    """Print the best trials, how the others ended, and what comes next."""
    sign = -1 if task.metric_function.maximise else 1
    done = sorted((one for one in made if one.state == "done"), key=lambda one: sign * (one.score or 0.0))
    rows = [(one.number + 1, f"{one.score:.4g}", _settings(one.settings)) for one in done[:10]]
    show(("trial", task.metric, "settings"), rows, False)
    ended = ", ".join(f"{sum(one.state == state for one in made)} {state}" for state in ("done", "pruned", "failed"))
    out.print(f"{len(made)} trials: {ended}", markup=False)
    out.print(f"train with the best: sirgcn train {folder / CONFIG} --out model", markup=False, soft_wrap=True)


def _engine_of(name: str, jobs: int, threads: int) -> "AbstractContextManager[Engine | None]":
    """Where trials are made; None for one after another in this process."""
    import torch

    from sirgcn.engine.workers import ENGINES, engine_named

    check_name("--engine", name, ENGINES, exact=True)
    if name != "processes" or jobs > 1:
        return engine_named(name, jobs, threads)
    torch.set_num_threads(threads)
    return nullcontext()


def _asked(files: list[Path], graphs: Path | None, target: list[str] | None, split: str | None) -> configured.Asked:
    if not configured.is_config(files):
        return configured.from_files(files, graphs, target=target, split=split)
    if graphs or target or split:
        raise ValueError("--target, --graphs, --split: expected them in the section [data] of the file, got options")
    return configured.from_toml(files[0])


def _write_config(
    asked: configured.Asked, candidate: str, network: dict[str, Any], train: dict[str, Any], folder: Path
) -> None:
    """Write the file with which `sirgcn train` uses the settings. Its paths are absolute."""
    from sirgcn.files import write_atomic

    data = {
        name: str(Path(value).resolve()) if name in ("nodes", "edges", "graphs") else value
        for name, value in asked.data.items()
    }
    fit = asked.fit | {"candidate": candidate, "network": network, "train": train}
    text = configured.as_toml(replace(asked, data=data, fit=fit), {}, [])
    write_atomic(folder / CONFIG, text.encode())


def _settings(chosen: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.2g}" if isinstance(value, float) else f"{name} {value}" for name, value in chosen.items()
    )
