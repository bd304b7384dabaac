"""What `sirgcn train` is to do: from files and options, or from a `config.toml` that `sirgcn init` wrote."""

import csv
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sirgcn.cli.choose import seconds_of
from sirgcn.cli.shared import count, warn
from sirgcn.cli.typed import as_typed, names_of_settings, read_sets
from sirgcn.files import write_atomic

if TYPE_CHECKING:
    from sirgcn.data import Task

FIT = ("preset", "time_limit", "seeds", "seed", "candidate", "network", "train", "memory")
"""The keys of the section [train] that are settings of the fit."""

# What `sirgcn tune` finds.
_SEARCHED = ("candidate", "network", "train")
_TABLES = ("nodes", "edges", "graphs")


@dataclass(frozen=True)
class Asked:
    """What a user asks of a training.

    Args:
        data: the arguments of `load_tables`.
        fit: the arguments of `FitSettings`.
        controls: whether controls are fitted beside the model.
    """

    data: dict[str, Any]
    fit: dict[str, Any] = field(default_factory=dict)
    controls: bool = True

    def with_sets(self, given: Sequence[str] | None) -> "Asked":
        """The same with the settings of options `--set`."""
        return replace(self, data=self.data | read_sets(given))

    def task(self, bad: Path | None = None) -> "Task":
        """The task of the tables. Errors name settings as they are typed.

        Unreadable molecules are left out unless `on_error` says otherwise: large collections have some.

        Args:
            bad: the file for bad rows that are left out, if somebody asked for that; None writes none.
        """
        from sirgcn.data import DataError, load_tables

        on_error = self.data.get("on_error", "raise" if "edges" in self.data else "skip")
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "bad.csv"
            try:
                dropping = {"on_error": on_error, "dropped": place if on_error == "skip" else None}
                task = load_tables(**self.data | dropping)
            except DataError as error:
                raise replace(error, message=as_typed(error.message)) from error
            dropped = task.details.get("dropped", 0)
            if dropped > len(task.graphs) and "edges" not in self.data:
                raise ValueError(f"{self.data['nodes']}: {_mostly_bad(place, dropped, dropped + len(task.graphs))}")
            if dropped and bad is not None:
                write_atomic(bad, place.read_bytes())
        if dropped:
            where = "" if bad is None else f"; the reasons are in {bad}"
            warn(f"{count(dropped, 'bad row')} left out{where}")
        return task


def _mostly_bad(listed: Path, dropped: int, rows: int) -> str:
    with listed.open(encoding="utf-8", newline="") as file:
        first = next(csv.DictReader(file))
    return (
        f"{first['column']}: expected molecules as SMILES, got {dropped:,} of {rows:,} rows that are none, "
        f"such as {first['value']!r}; --set smiles=... names their column"
    )


def from_files(files: Sequence[Path], graphs: Path | None = None, **given: Any) -> Asked:
    """What files on the command line ask for: nodes and edges, or molecules.

    Args:
        files: one or two of them.
        graphs: the table of graphs.
        given: options of `load_tables`; None stands for one that was not given.
    """
    check_files(files, graphs)
    data = {name: str(path) for name, path in zip(_TABLES, files, strict=False)}
    if graphs is not None:
        data["graphs"] = str(graphs)
    return Asked(data | {name: value for name, value in given.items() if value})


def check_files(files: Sequence[Path], graphs: Path | None) -> None:
    """Raise for more than two files, and for a file that is not there, with the nearest name."""
    if len(files) > 2:
        raise ValueError(f"FILES: expected nodes and edges, or molecules, got {len(files)} files")
    for path in [*files, *([] if graphs is None else [graphs])]:
        _check_file(path)


def from_toml(path: Path) -> Asked:
    """What a `config.toml` asks for. Its paths start at its folder. An unknown key is refused by name."""
    from sirgcn.strict import check_name, read

    _check_file(path)
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected TOML, got: {error}") from None
    _refuse_experiment(path, found)
    for name in found:
        check_name(f"{path}: section", name, ("data", "train"), exact=True)
    known = [*_TABLES, *names_of_settings()]
    data = dict(read(dict[str, Any], found.get("data", {}), f"{path}: data"))
    for name in data:
        check_name(f"{path}: data", name, known, exact=True)
    for name in _TABLES:
        if name in data:
            data[name] = str(path.parent / read(str, data[name], f"{path}: data.{name}"))
            _check_file(Path(data[name]))
    fit = dict(read(dict[str, Any], found.get("train", {}), f"{path}: train"))
    for name in fit:
        check_name(f"{path}: train", name, (*FIT, "controls"), exact=True)
    controls = read(bool, fit.pop("controls", True), f"{path}: train.controls")
    if isinstance(fit.get("time_limit"), str):
        fit["time_limit"] = time_of(fit["time_limit"], f"{path}: train.time_limit")
    return Asked(data, fit, controls)


def is_config(files: Sequence[Path]) -> bool:
    """Whether the arguments are a `config.toml` and no tables."""
    return len(files) == 1 and files[0].suffix == ".toml"


def time_of(text: str, name: str) -> float:
    """The seconds that a text such as 10m says; an error names the option."""
    try:
        seconds = seconds_of(text)
    except ValueError as error:
        raise ValueError(str(error).replace("--budget", name)) from None
    if seconds <= 0:
        raise ValueError(f"{name}: expected more than no time, got {text!r}")
    return seconds


def refuse_experiments(files: Sequence[Path]) -> None:
    """Raise, with the command to type, for the name of an experiment where files are expected.

    Before there was a `sirgcn train` for a user's files, a command of this name ran experiments.
    """
    from sirgcn.cli.choose import completions

    for path in files:
        if not path.exists() and path.name == str(path) and path.name in completions(path.name):
            raise ValueError(f"{path}: expected a file; to run this experiment, type: sirgcn reproduce {path}")


def _refuse_experiment(path: Path, found: Mapping[str, Any]) -> None:
    if "models" in found or "sort" in found or isinstance(found.get("data"), str):
        raise ValueError(
            f"{path}: expected a file that sirgcn init wrote, got an experiment; type: sirgcn reproduce {path}"
        )


def _check_file(path: Path) -> None:
    if not path.exists():
        near = ""
        if path.parent.is_dir():
            from sirgcn.strict import nearest

            near = nearest(path.name, [other.name for other in path.parent.iterdir()])
        raise FileNotFoundError(f"{path}: expected a file, got none{near}")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file, got a folder")


def as_toml(asked: Asked, notes: Mapping[str, str], columns: Sequence[str]) -> str:
    """The text of a `config.toml`: everything that is asked, and what can be asked as comments.

    Args:
        asked: what is asked.
        notes: what was inferred, by the name of the setting, in words.
        columns: the columns that can be features.
    """
    lines = [
        "# How sirgcn reads these tables and trains on them. Every line can be changed, and most can be left out.",
        "# Train with: sirgcn train config.toml --out model",
        "",
        "[data]",
    ]
    for name, value in asked.data.items():
        note = f"  # {notes[name]}" if name in notes else ""
        lines.append(f"{name} = {_toml(value)}{note}")
    lines += [f"# {name} = {_toml(value)}  # inferred" for name, value in notes.items() if name not in asked.data]
    lines += [
        f"# features = {_toml(list(columns))}  # the columns to use; default: all of these",
        '# split = "part"  # a column with train, val and test; without it a split is drawn',
        '# draw = { time = "date" }  # how a split is drawn: "random", { group = ... }, "scaffold", "inductive"',
        "# seed = 0  # of the split that is drawn",
        '# types = { code = "categorical" }  # where a column looks like another type than it has',
        '# metric = "f1"  # what chooses between models',
        '# on_error = "skip"  # leaves out bad rows, and lists them in a file beside the model',
        "",
        "[train]",
        f"preset = {_toml(asked.fit.get('preset', 'good'))}  # fast, good or best",
        *(f"{name} = {_toml(asked.fit[name])}" for name in _SEARCHED if name in asked.fit),
        '# time_limit = "10m"',
        "# seeds = 3  # networks whose predictions are averaged",
        '# memory = "4GB"  # what the process may take; default: what is free',
        "# controls = false  # leaves out the models that the network is compared with",
    ]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    import json

    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(entry)}" for key, entry in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
