"""Experiments from TOML files: by name or path, built on another one by `like`, changed by overrides."""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from sirgcn.engine.experiment.paths import are_rows, from_home, with_columns
from sirgcn.engine.experiment.sorts import LONGEST_NAME, SECTIONS, SORTS, Experiment, TrainingExperiment
from sirgcn.strict import ConfigError, check_name, from_dict, read

FOLDER = files("sirgcn") / "experiments"
"""The experiments that come with the package."""

# What experiments of different sorts can share.
_SHARED = ("data", "preset", "variant", "redraw", "columns", "models")

# Fields of an experiment that a file does not set.
_NOT_IN_FILES = ("folder", "overrides")

# The former values of the former key `kind`.
_FORMER = {"runtime": "inference", "complexity": "growth"}


def names() -> tuple[str, ...]:
    """The experiments that come with the package.

    >>> "zinc" in names()
    True
    """
    return tuple(sorted(Path(file.name).stem for file in FOLDER.iterdir() if file.name.endswith(".toml")))


def load(name: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment by its name in the package or by the path of a TOML file.

    A file with `like = "minesweeper"`, or with the path of another file, starts from that experiment:

    - A table is changed key by key.
    - A row changes the row of the same title. Rows of new titles follow the others.
    - The paper's `table` is not taken over.
    - From an experiment of another sort, only data, columns and models are taken over, and the training if it trains.

    Overrides (`train.lr=1e-3`) change keys. An experiment that they change has a name of its own and belongs to no
    table, so that its results stay apart. The name lists the overrides, or has their hash if they are long.

    A relative path in a file starts at the folder of that file. A relative path in an override starts at the working
    directory. `~` is the home directory of the user.

    >>> experiment = load("zinc", ["train.lr=1e-4"])
    >>> experiment.name, experiment.table
    ('zinc+train.lr=1e-4', None)
    """
    # Not at the top of the module: the report reads experiments and never loads torch.
    from sirgcn.engine.network import check_names

    overrides = read(tuple[str, ...], overrides, "overrides")
    stem, where, data = _read(name)
    for override in overrides:
        _override(data, override)
        if override.partition("=")[0].strip() == "columns":
            data = with_columns(data, Path.cwd())
    if overrides:
        data |= {"name": _changed_name(stem, overrides), "table": None}
    for key in _NOT_IN_FILES:
        if key in data:
            raise ConfigError(f"{where}: unknown key {key!r}")
    sort = _sort_of(data, where)
    _check_sections(data, sort, where)
    experiment: Experiment = from_dict(SORTS[sort], {"name": stem, **data, "sort": sort}, where)
    check_names(experiment, where)
    return replace(experiment, folder=Path(where).parent, overrides=tuple(overrides))


def load_training(name: str | Path, overrides: Sequence[str] = ()) -> TrainingExperiment:
    """Like `load`, for an experiment that must be a training.

    >>> load_training("zinc").train.warmup
    10
    """
    experiment = load(name, overrides)
    if not isinstance(experiment, TrainingExperiment):
        raise ConfigError(f"{experiment.name}: sort: expected training, got {experiment.sort}")
    return experiment


def of_table(table: int | str, overrides: Sequence[str] = ()) -> tuple[Experiment, ...]:
    """All experiments of a table of SIR-GCN's paper, by its number, or of another paper, by the name of the table.

    The experiments are changed by overrides.

    >>> [experiment.name for experiment in of_table(4)]
    ['ogbg_molhiv', 'ogbn_arxiv']
    """
    table = read(int | str, table, "table")
    tables = {name: load(name).table for name in names()}
    if table not in tables.values():
        known = sorted({key for key in tables.values() if key is not None}, key=lambda key: (isinstance(key, str), key))
        raise ConfigError(f"table: expected one of {', '.join(map(str, known))}, got {table}")
    return tuple(load(name, overrides) for name, number in tables.items() if number == table)


def split_name(name: str) -> tuple[str, list[str]]:
    """The name of an experiment and the overrides that a changed one is named after.

    A name with the hash of long overrides does not tell them. The records of such an experiment list them.

    >>> split_name("zinc+train.lr=1e-3")
    ('zinc', ['train.lr=1e-3'])
    """
    stem, *overrides = re.split(r"\+(?=[A-Za-z_][\w.]*=)", name)
    return re.sub(r"\+set-[0-9a-f]{16}$", "", stem), overrides


def _changed_name(stem: str, overrides: Sequence[str]) -> str:
    """The name of a changed experiment: with its overrides, or with their hash where that would be too long."""
    name = re.sub(r"[^A-Za-z0-9.=_+-]+", "_", "+".join([stem, *overrides]))
    if len(name.encode()) <= LONGEST_NAME:
        return name
    return f"{stem}+set-{hashlib.sha256(json.dumps(overrides).encode()).hexdigest()[:16]}"


def _read(name: str | Path, beside: Path = Path(), readers: tuple[str, ...] = ()) -> tuple[str, str, dict[str, Any]]:
    """The name of an experiment, its file and its keys, merged with those of the experiment that it is like."""
    path, where, content = _content(name, beside)
    try:
        data = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: not TOML: {error}") from error
    sort = _sort_of(data, where)
    if "sort" in data:
        data["sort"] = sort
    if "like" in data:
        like = data.pop("like")
        if not isinstance(like, str) or where in readers:
            raise ConfigError(f"{where}: like: expected another experiment, got {like!r}")
        base = with_columns(_read(like, path.parent, (*readers, where))[2], Path(like).parent)
        data = _merged(_taken(base, sort), data)
    return path.stem, where, data


def _content(name: str | Path, beside: Path) -> tuple[Path, str, bytes]:
    """The path of an experiment's file, what the file is called in errors, and its bytes."""
    path = beside / from_home(name)
    if path.suffix != ".toml":
        check_name("experiment", str(name), names(), "a .toml file or ")
        path = Path(str(name).lower())
        return path, f"{path}.toml", (FOLDER / f"{path}.toml").read_bytes()
    if path.is_dir():
        raise ConfigError(f"{path}: expected a file, got a folder")
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    return path, str(path), path.read_bytes()


def _sort_of(data: Mapping[str, Any], where: str) -> str:
    """The sort that a file names; `training` if it names none."""
    if "kind" in data:
        new = _FORMER.get(str(data["kind"]), data["kind"])
        known = ", ".join(SORTS)
        raise ConfigError(
            f'{where}: kind: expected the new name of this key, sort: write sort = "{new}" (one of {known})'
        )
    sort = read(str, data.get("sort", "training"), f"{where}: sort")
    check_name(f"{where}: sort", sort, SORTS)
    return str(sort).lower()


def _taken(base: dict[str, Any], sort: str) -> dict[str, Any]:
    """The keys that an experiment of a sort takes over from another experiment."""
    base.pop("table", None)
    if base.get("sort", "training") == sort:
        return base
    trained = tuple({"train"}.intersection(SORTS[sort].sections(sort)))
    for row in base.get("models", []) if are_rows(base.get("models")) else []:
        for key in {"train", "reduced", "space"}.difference(trained):
            row.pop(key, None)
    return {key: base[key] for key in (*_SHARED, *trained) if key in base}


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of both, where tables are merged key by key and rows by title, and `own` wins."""
    found = {**base, **own}
    for key in base.keys() & own.keys():
        if isinstance(base[key], dict) and isinstance(own[key], dict):
            found[key] = _merged(base[key], own[key])
        elif key == "models" and are_rows(base[key]) and are_rows(own[key]):
            found[key] = _merged_rows(base[key], own[key])
    return found


def _merged_rows(base: list[dict[str, Any]], own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = {row["title"]: row for row in base}
    for row in own:
        rows[row["title"]] = _merged(rows.get(row["title"], {}), row)
    return list(rows.values())


def _check_sections(data: Mapping[str, Any], sort: str, where: str) -> None:
    """Refuse a file without a section of its sort, or with a section of another sort."""
    needed = SORTS[sort].sections(sort)
    for section in SECTIONS:
        if section in needed and section not in data:
            raise ConfigError(f"{where}: {section} is not set")
        if section in data and section not in needed:
            raise ConfigError(f"{where}: {section}: an experiment of the sort {sort} has none")


def _override(data: dict[str, Any], override: str) -> None:
    """Set `a.b=value` in nested tables. The value is TOML, or plain text where it is not TOML.

    A setting of all rows (`train.lr`) also replaces the one of a single row and of the reduced form.
    """
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set: expected KEY=VALUE such as train.lr=1e-3, got {override!r}")
    value = _value(text)
    *path, last = key.strip().split(".")
    table = data
    for step in path:
        table = table.setdefault(step, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {override}: {step} is not a table")
    table[last] = value
    if path in (["train"], ["timing"]):
        for own in _special_settings(data, is_train=path == ["train"]):
            if last in own:
                own[last] = value


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _special_settings(data: Mapping[str, Any], is_train: bool) -> list[dict[str, Any]]:
    """The tables that override the protocol: that of the reduced form, and those of single rows."""
    rows = data.get("models", []) if is_train else []
    owns = [row.get(section) for row in rows if isinstance(row, dict) for section in ("train", "reduced")]
    return [own for own in (data.get("reduced"), *owns) if isinstance(own, dict)]
