"""`sirgcn train` and `sirgcn init`: from a user's files to a model."""

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sirgcn.cli import configured
from sirgcn.cli.outcome import print_controls, print_lines, print_scores
from sirgcn.cli.shared import Interrupt, ShortJson, err, out, resumable, warn
from sirgcn.cli.typed import Sets, as_typed

if TYPE_CHECKING:
    from sirgcn.data import Task
    from sirgcn.model import Model
    from sirgcn.model.training import TrainSettings

# The help's first sentence names them, so that all options fit a screen.
TrainFiles = Annotated[list[Path], typer.Argument(metavar="FILES", hidden=True)]
Files = Annotated[list[Path], typer.Argument(metavar="FILES", help="Nodes and edges, molecules, or config.toml.")]
Target = Annotated[
    list[str] | None, typer.Option("--target", "-t", metavar="COL", help="The column to predict; repeatable.")
]
Tables = Annotated[list[Path], typer.Argument(metavar="FILES", help="Nodes and edges, or molecules.")]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder of the model.")]
GraphsFile = Annotated[Path | None, typer.Option("--graphs", metavar="FILE", help="A table with a row for each graph.")]
Preset = Annotated[str | None, typer.Option("--preset", metavar="NAME", help="fast, good (default) or best.")]
TimeLimit = Annotated[
    str | None, typer.Option("--time-limit", metavar="TIME", help="At most this long in all, such as 10m.")
]
Seeds = Annotated[int | None, typer.Option("--seeds", metavar="N", help="How many networks are averaged.")]
SplitColumn = Annotated[
    str | None, typer.Option("--split", metavar="COL", help="It says train, val or test of each row.")
]
MetricName = Annotated[
    str | None, typer.Option("--metric", metavar="NAME", help="What chooses the best model, such as f1.")
]
Memory = Annotated[str | None, typer.Option("--memory", metavar="4GB", help="Train on samples if passes need more.")]
Workers = Annotated[int | None, typer.Option("--workers", metavar="N", min=1, help="How many processes share it.")]
MemoryBound = Annotated[bool, typer.Option("--memory-bound", help="Fetch rows of one process after another.")]
NoControls = Annotated[bool, typer.Option("--no-controls", help="Fit no simple models to compare with.")]


def train(
    files: TrainFiles,
    target: Target = None,
    out_: Out = Path("model"),
    graphs: GraphsFile = None,
    preset: Preset = None,
    time_limit: TimeLimit = None,
    seeds: Seeds = None,
    split: SplitColumn = None,
    metric: MetricName = None,
    memory: Memory = None,
    workers: Workers = None,
    memory_bound: MemoryBound = False,
    set_: Sets = None,
    no_controls: NoControls = False,
    as_json: ShortJson = False,
) -> None:
    """Train on FILES: nodes edges, molecules or a config.toml. Repeat it to resume.

    Example: sirgcn train nodes.csv edges.csv --target label --out model
    """
    configured.refuse_experiments(files)
    if configured.is_config(files):
        # Before torch is imported, which takes seconds.
        err.print(f"reading {files[0].name}", markup=False, highlight=False)
        asked = configured.from_toml(files[0])
        _refuse_beside_config(target, graphs, split, metric)
    else:
        asked = configured.from_files(files, graphs, target=target, split=split, metric=metric)
    fit: dict[str, Any] = {"preset": preset, "seeds": seeds, "memory": memory}
    if time_limit is not None:
        fit["time_limit"] = configured.time_of(time_limit, "--time-limit")
    given = {name: value for name, value in fit.items() if value is not None}
    asked = asked.with_sets(set_)
    asked = replace(asked, fit=asked.fit | given, controls=asked.controls and not no_controls)
    _train(asked, out_, as_json, _ranks(workers, memory_bound))


def _refuse_beside_config(target: list[str] | None, graphs: Path | None, split: str | None, metric: str | None) -> None:
    for name, value in (("--target", target), ("--graphs", graphs), ("--split", split), ("--metric", metric)):
        if value:
            raise ValueError(f"{name}: expected it in the section [data] of the file, got it as an option, too")


@dataclass(frozen=True)
class _Ranks:
    """The processes of a training: those of this machine, or those that torchrun has started."""

    number: int
    under_torchrun: bool
    memory_bound: bool

    @property
    def leads(self) -> bool:
        """Whether this process prints and writes."""
        return not self.under_torchrun or os.environ["RANK"] == "0"


def _ranks(workers: int | None, memory_bound: bool) -> _Ranks:
    # What `sirgcn.scale.launch.is_under_torchrun` says, without torch.
    under_torchrun = all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    if under_torchrun and workers is not None:
        raise ValueError("--workers: expected none under torchrun, whose --nproc-per-node says how many there are")
    number = workers or 1
    if memory_bound and number == 1 and not under_torchrun:
        raise ValueError("--memory-bound: expected several processes, which fetch rows of each other: --workers 2")
    return _Ranks(number, under_torchrun, memory_bound)


def _train(asked: configured.Asked, folder: Path, as_json: bool, ranks: _Ranks) -> None:
    with resumable() as interrupt:
        # Before torch is imported, which takes seconds.
        if ranks.leads:
            err.print("reading the tables", highlight=False)
        from sirgcn.model.fitting import FitSettings
        from sirgcn.model.folder import check_place, load
        from sirgcn.model.training import TrainSettings
        from sirgcn.scale.launch import joined, launch

        check_place(folder)
        fit = FitSettings(**asked.fit)
        task = asked.task(folder.with_name(f"{folder.name}.bad.csv"))
        if ranks.leads:
            _tell(task)
        settings = TrainSettings(fit, asked.controls, shlex.join(["sirgcn", *sys.argv[1:]]))
        given = task, folder, settings, ranks.memory_bound
        if ranks.under_torchrun:
            with joined():
                _on_rank(*given)
        elif ranks.number > 1:
            launch(_on_rank, ranks.number, given)
        else:
            _alone(interrupt, *given)
    if ranks.leads:
        _show(load(folder), folder, as_json)


def _alone(interrupt: Interrupt, task: "Task", folder: Path, settings: "TrainSettings", memory_bound: bool) -> None:
    from sirgcn.cli.watching import Watching
    from sirgcn.model.training import train_into

    with Watching(interrupt) as watcher:
        train_into(task, folder, replace(settings, watcher=watcher))


def _on_rank(task: "Task", folder: Path, settings: "TrainSettings", memory_bound: bool) -> None:
    from torch.distributed import get_rank

    from sirgcn.cli.watching import Watching
    from sirgcn.model.training import train_as_rank

    if get_rank():
        train_as_rank(task, folder, settings, memory_bound)
        return
    with Watching() as watcher:
        train_as_rank(task, folder, replace(settings, watcher=watcher), memory_bound)


def _tell(task: "Task") -> None:
    """Print what was understood, and what looks suspicious."""
    found = task.describe()
    targets = ", ".join(task.details["preprocessing"].targets)
    counted = ("graphs", "nodes", "edges") if found.sizes["graphs"] > 1 else ("nodes", "edges")
    counts = {name: found.sizes[name] for name in counted}
    sizes = ", ".join(f"{number:,} {name[:-1] if number == 1 else name}" for name, number in counts.items())
    lines = [f"{found.name}: {sizes}; predicts {targets} of every {task.level}, measured by {task.metric}"]
    blocks: dict[str, Mapping[str, Any]] = {
        "inferred": found.inferred,
        "columns": alike(found.columns),
        "left out": found.left_out,
        "split": found.splits[0],
    }
    lines += [f"{title}: {shortened(block)}" for title, block in blocks.items() if block]
    for line in lines:
        err.print(line, markup=False, highlight=False, soft_wrap=True)
    for warning in found.warnings:
        warn(as_typed(warning))


def alike(columns: Mapping[str, str]) -> dict[str, str]:
    """What the columns became. Those that became the same are counted behind the first of them.

    >>> alike({"node 'word_0'": "numeric", "node 'word_1'": "numeric", "node 'year'": "categories"})
    {"node 'word_0' and 1 more": 'numeric', "node 'year'": 'categories'}
    """
    names: dict[str, list[str]] = {}
    for name, became in columns.items():
        names.setdefault(became, []).append(name)
    ends = {became: f" and {len(found) - 1:,} more" if len(found) > 1 else "" for became, found in names.items()}
    return {f"{found[0]}{ends[became]}": became for became, found in names.items()}


def shortened(block: Mapping[str, Any], most: int = 12) -> str:
    """Names with their values on one line; many of them are counted.

    >>> shortened({"a": 1, "b": 2, "c": 3}, most=2)
    'a: 1, b: 2 and 1 more'
    """
    shown = ", ".join(f"{name}: {value}" for name, value in list(block.items())[:most])
    return shown if len(block) <= most else f"{shown} and {len(block) - most} more"


def _show(model: "Model", folder: Path, as_json: bool) -> None:
    found = {"model": str(folder), "report": str(folder / "report.html"), **result_of(model)}
    if as_json:
        print(json.dumps(found))
        return
    evaluation = model.about.get("evaluation")
    if evaluation is None:
        print_lines("there is no test part, so the model has no score")
    else:
        print_scores(evaluation["scores"])
        print_controls(evaluation)
        print_lines(*filter(None, [evaluation.get("sentence")]))
    print_lines(f"model: {folder}", f"report: {folder / 'report.html'}")


def result_of(model: "Model") -> dict[str, Any]:
    """The result of a training as JSON values."""
    evaluation = model.about.get("evaluation", {})
    found = {"task": model.problem.name, "metric": model.problem.metric, "networks": len(model.members)}
    return found | {name: evaluation.get(name) for name in ("sentence", "rows", "scores", "controls")}


def init(
    files: Tables,
    target: Target = None,
    out_: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("config.toml"),
    graphs: GraphsFile = None,
    split: SplitColumn = None,
    set_: Sets = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    as_json: ShortJson = False,
) -> None:
    """Look at your files, say what is odd, and write a config.toml to train from.

    Example: sirgcn init nodes.csv edges.csv --target label
    """
    from sirgcn.files import write_atomic

    if out_.exists() and not force:
        raise FileExistsError(f"{out_}: expected no file, got one; --force writes over it")
    asked = configured.from_files(files, graphs, target=target, split=split).with_sets(set_)
    task = asked.task(out_.with_name(f"{out_.stem}.bad.csv"))
    description = task.describe()
    write_atomic(out_, config_of(asked, task, out_.parent).encode())
    if as_json:
        print(json.dumps({"config": str(out_), **description.to_dict()}))
        return
    out.print(as_typed(str(description)), markup=False, highlight=False, soft_wrap=True)
    out.print(f"written: {out_}; train with: sirgcn train {shlex.quote(str(out_))}", markup=False, soft_wrap=True)


def config_of(asked: configured.Asked, task: "Task", folder: Path) -> str:
    """The text of the `config.toml` in a folder, whose paths start there."""
    import os

    data = dict(asked.data)
    for name in ("nodes", "edges", "graphs"):
        if name in data:
            data[name] = Path(os.path.relpath(data[name], folder)).as_posix()
    preprocessing = task.details["preprocessing"]
    names = preprocessing.targets
    data["target"] = names[0] if len(names) == 1 else list(names)
    roles = {name: value for name, value in vars(preprocessing.roles).items() if value and name != "key"}
    notes = {name: value for name, value in roles.items() if name not in data}
    notes["level"] = task.level
    notes["directed"] = preprocessing.directed
    columns = [column.name for column in preprocessing.nodes]
    return configured.as_toml(replace(asked, data=data), notes, columns)
