"""Experiments as data: what is run, as frozen dataclasses read strictly from TOML."""

import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeGuard

from sirgcn.strict import ConfigError, changed, check_fields, check_name, from_dict, read

FOLDER = files("sirgcn") / "experiments"
"""The experiments that come with the package."""

PATHS = ("nodes", "edges", "graphs", "dropped")
"""The options of `data = "tables"` that are paths."""


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained; the defaults are those of the synthetic tasks.

    Args:
        epochs: at most this many.
        batch_size: graphs in a batch; None takes all at once.
        eval_batch_size: likewise where nothing is learnt and nothing is kept for a backward pass; None: four times
            `batch_size`, or as many where the loss or the metric depends on the batches.
        lr: of AdamW, after the warm-up.
        weight_decay: AdamW's.
        warmup: epochs over which the lr rises linearly from lr / warmup.
        schedule: afterwards `"none"`, `"plateau"` (the lr is multiplied by `factor` once the training loss has not
            fallen for `patience` epochs) or `"cosine"` (down to 0 at the last epoch).
        factor: see above.
        patience: see above.
        l1: times the sum of all parameters' absolute values, added to the training loss.
        l2: times the sum of all parameters' squares, likewise.
        clip: the norm to which gradients are cut; None: not at all.
        precision: `"bfloat16"` runs the model under autocast.
        early_stop: stop once the loss named by `early_on` has not got better for this many epochs; None: never.
        early_on: `"train"`, `"val"`, or `"val_metric"` for the metric in the place of the loss.
        stop_lr: stop once the lr has fallen below this.
        stop_loss: stop once the training loss, in eval mode, is below this.
        selection: the weights that are tested: those of the `"last"` epoch, or those with the `"val_loss"` or the
            `"val_metric"` that was best.
    """

    epochs: int = 500
    batch_size: int | None = 256
    eval_batch_size: int | None = None
    lr: float = 1e-3
    weight_decay: float = 0.0
    warmup: int = 0
    schedule: Literal["none", "plateau", "cosine"] = "none"
    factor: float = 0.5
    patience: int = 10
    l1: float = 0.0
    l2: float = 0.0
    clip: float | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    early_stop: int | None = None
    early_on: Literal["train", "val", "val_metric"] = "val"
    stop_lr: float = 0.0
    stop_loss: float = 0.0
    selection: Literal["last", "val_loss", "val_metric"] = "val_loss"

    def __post_init__(self) -> None:
        check_fields(self)
        _check_at_least(self, 1, "epochs", "batch_size", "eval_batch_size", "early_stop")
        _check_at_least(self, 0, "warmup", "patience", "weight_decay", "l1", "l2", "stop_lr", "stop_loss")
        for name in ("lr", "clip"):
            value = getattr(self, name)
            # Written so that NaN is refused too.
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name}: expected more than 0, got {value}")
        if not 0 < self.factor < 1:
            raise ConfigError(f"factor: expected 0 < factor < 1, got {self.factor}")


def _check_at_least(config: Any, least: int, *names: str) -> None:
    """Refuse settings below the least, not a number, or without end; None is left as it is."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not least <= value < math.inf:
            raise ConfigError(f"{name}: expected at least {least}, got {value}")


@dataclass(frozen=True)
class ModelConfig:
    """A row of a table.

    Args:
        title: of the row.
        conv: a name of the table of convolutions, which stands in the preset's `SIRNet`.
        network: a name of the table of networks of their own, in the place of `SIRNet`; then there is no `conv`.
        options: further arguments of `SIRNet`, over those of the preset, or the options of the network.
        budget: the parameters that the hidden width shall fill; None leaves the width.
        train: settings of the training that differ for this row.
        reduced: those that differ for this row in a reduced run, over those of the experiment.
    """

    title: str
    conv: str = "sir"
    network: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    budget: int | None = None
    train: dict[str, Any] = field(default_factory=dict)
    reduced: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        _check_title(self.title)
        _check_at_least(self, 1, "budget")
        if self.network is not None and self.conv != "sir":
            raise ConfigError(
                f"{self.title}: expected conv or network, got conv {self.conv} and network {self.network}"
            )

    @property
    def architecture(self) -> dict[str, str]:
        """The name and the table that it is of, as records have it."""
        return {"conv": self.conv} if self.network is None else {"network": self.network}


@dataclass(frozen=True)
class TimingConfig:
    """How time is measured: in every repetition each run has its turn.

    Args:
        repeats: at most this many repetitions.
        least: so many are made however long they take.
        seconds: after which no further one begins.
        sample_seconds: a sample is the mean of as many calls as last that long; 0: one call.
        batch_size: graphs in a batch.
        threads: of torch.
        clock: `"wall"`, or `"cpu"` for the time that one thread spends on the CPU: the same on an idle machine, and
            what others do on a busy one is left out.
        reference: the row by whose time the others' are divided.
    """

    repeats: int = 20
    least: int = 5
    seconds: float = 30.0
    sample_seconds: float = 0.0
    batch_size: int = 256
    threads: int = 1
    clock: Literal["wall", "cpu"] = "wall"
    reference: str = "SIR-GCN"

    def __post_init__(self) -> None:
        check_fields(self)
        _check_at_least(self, 1, "repeats", "least", "batch_size", "threads")
        _check_at_least(self, 0, "seconds", "sample_seconds")
        if self.clock == "cpu" and self.threads > 1:
            raise ConfigError(f'clock: expected "wall" for {self.threads} threads, whose CPU times add up, got "cpu"')


@dataclass(frozen=True)
class AxisConfig:
    """Sizes of random graphs along which a layer's time grows: one of the lists has several, the others one each.

    Args:
        title: what grows, and on what.
        nodes: of the graph.
        edges: likewise.
        width: d, of the layer's input and output.
    """

    title: str
    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    width: tuple[int, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        _check_title(self.title)
        lists = (self.nodes, self.edges, self.width)
        # A line through two points has no spread.
        has_sizes = sorted(map(len, lists))[:2] == [1, 1] and max(map(len, lists)) >= 3
        if not has_sizes or min(map(min, lists)) < 1:
            raise ConfigError(
                f"{self.title}: expected one of nodes, edges, width with three sizes or more, got {lists}"
            )

    @property
    def sizes(self) -> tuple[tuple[int, int, int], ...]:
        """Nodes, edges and width of every point."""
        return tuple((v, e, d) for v in self.nodes for e in self.edges for d in self.width)

    @property
    def grows(self) -> tuple[int, ...]:
        """The sizes of what grows."""
        return max(self.nodes, self.edges, self.width, key=len)


@dataclass(frozen=True)
class ColumnConfig:
    """A column of a table: what its data set is called there, and the loader's options."""

    title: str
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        _check_title(self.title)


def _check_title(title: str) -> None:
    if not title.strip():
        raise ConfigError(f"title: expected a text, got {title!r}")


# What Windows lets no file be called, and the characters of names that it or a shell reads as something else.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_NOT_IN_NAMES = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
_LONGEST_NAME = 200


def _check_file_name(key: str, name: str) -> None:
    """Refuse what is no plain name of a file: files of this name are written, and never elsewhere."""
    is_plain = name == name.strip() and not name.startswith(".") and not name.endswith(".")
    if not name or not is_plain or _NOT_IN_NAMES.search(name) or _DEVICES.fullmatch(name):
        raise ConfigError(f"{key}: expected a plain name of a file, without a folder, got {name!r}")
    if len(name.encode()) > _LONGEST_NAME:
        raise ConfigError(f"{key}: expected at most {_LONGEST_NAME} bytes, got {len(name.encode())}: {name[:40]!r}...")


@dataclass(frozen=True)
class Experiment:
    """What fills a block of a table: rows of models, columns of data sets, one protocol.

    Args:
        name: of the files of its records and checkpoints: a plain one, without a folder.
        data: a name of the table of data sets.
        models: the rows.
        columns: the columns.
        train: the protocol.
        table: the paper's table; None for what the paper does not have.
        preset: the arguments of `SIRNet`: the name of a preset, or `"schema"` for those that the data ask for.
        variant: of the layer, `"published"` for a reproduction of the paper's figures.
        seeds: how many runs, each of a seed 0, 1, ...
        redraw: the data set is drawn anew for each seed.
        splits: published splits of the data; seed s takes the split s modulo their number.
        scale: the factor from our metric to the table's unit.
        reduced: the changes of `train`, or of `timing`, in a reduced run.
        kind: `"training"`, or what is timed: `"runtime"`, inference over the test set; `"step"`, a step of the
            protocol's training; `"complexity"`, one layer as its input grows, on graphs that `data = "random"` draws.
        timing: how, of the last three kinds.
        axes: along which a layer's time grows.
        folder: where relative paths in the options of columns start: that of the file, which is not among its keys.
    """

    name: str
    data: str
    models: tuple[ModelConfig, ...]
    columns: tuple[ColumnConfig, ...]
    train: TrainConfig = field(default_factory=TrainConfig)
    table: int | None = None
    preset: str = "schema"
    variant: Literal["corrected", "published"] = "corrected"
    seeds: int = 10
    redraw: bool = False
    splits: int = 1
    scale: float = 1.0
    reduced: dict[str, Any] = field(default_factory=dict)
    kind: Literal["training", "runtime", "step", "complexity"] = "training"
    timing: TimingConfig = field(default_factory=TimingConfig)
    axes: tuple[AxisConfig, ...] = ()
    folder: Path = Path()

    def __post_init__(self) -> None:
        check_fields(self)
        _check_file_name("name", self.name)
        _check_at_least(self, 1, "seeds", "splits")
        if not math.isfinite(self.scale):
            raise ConfigError(f"scale: expected a finite number, got {self.scale}")
        self._check_titles()
        if (self.kind == "complexity") != (self.data == "random"):
            raise ConfigError(f'data: expected "random" for a complexity and for nothing else, got {self.data!r}')
        if self.kind in ("runtime", "step"):
            self.model(self.timing.reference)
        # What rows and the reduced form change is checked now, not when a run comes to it.
        for is_reduced in (False, True):
            if self.kind != "training":
                self.timing_for(is_reduced)
            for model in self.models:
                own = {"training": (), "step": ("reduced",)}.get(self.kind, ("train", "reduced"))
                if any(getattr(model, name) for name in own):
                    raise ConfigError(f"{self.name}: {model.title}: {', '.join(own)}: expected none of a {self.kind}")
                self.train_for(model, is_reduced)

    def _check_titles(self) -> None:
        found = [[entry.title for entry in entries] for entries in (self.models, self.columns)]
        found += [[axis.title for axis in self.axes]] * (self.kind == "complexity")
        for titles in found:
            # They are found by title, and letter case makes no difference.
            if not titles or len({title.lower() for title in titles}) < len(titles):
                raise ConfigError(f"{self.name}: expected entries of different titles, got {titles}")

    def model(self, title: str) -> ModelConfig:
        """The row of that title."""
        return _named("model", self.models, title)

    def column(self, title: str) -> ColumnConfig:
        """The column of that title."""
        return _named("column", self.columns, title)

    def options_of(self, title: str) -> dict[str, Any]:
        """The loader's options of a column, with paths as they are opened; records have them as they are written."""
        options = self.column(title).options
        return _with_paths(options, self.folder) if self.data == "tables" else options

    def train_for(self, model: ModelConfig, is_reduced: bool = False) -> TrainConfig:
        """The protocol for a row, full or reduced."""
        full = changed(self.train, model.train, f"{model.title}: train")
        is_shorter = is_reduced and self.kind == "training"
        return changed(full, self.reduced_for(model), f"{model.title}: reduced") if is_shorter else full

    def reduced_for(self, model: ModelConfig) -> dict[str, Any]:
        """What a reduced run of a row changes."""
        return self.reduced | model.reduced

    def timing_for(self, is_reduced: bool = False) -> TimingConfig:
        """How it is timed, in full or reduced."""
        return changed(self.timing, self.reduced if is_reduced else {}, "reduced")


def _named(kind: str, entries: Sequence[Any], title: str) -> Any:
    check_name(kind, title, [entry.title for entry in entries])
    return next(entry for entry in entries if entry.title.lower() == title.lower())


def names() -> tuple[str, ...]:
    """The experiments that come with the package."""
    return tuple(sorted(Path(file.name).stem for file in FOLDER.iterdir() if file.name.endswith(".toml")))


def load(name: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """An experiment by its name in the package or the path of a TOML file, changed by overrides (`train.lr=1e-3`).

    A file with `like = "minesweeper"`, or the path of another file, has what that one has, changed by its own keys: a
    table key by key, a row by those of the same title, and rows of new titles after the others. It says its own
    `table`. Of an experiment of another kind it has data, columns and models, and the training if it trains.

    One that is changed by overrides gets a name of its own and belongs to no table, so that its results stay apart.

    A relative path in a file starts at the folder of that file, one in an override at the working directory; `~` is the
    home of the user.
    """
    # Here, not above: the report knows experiments, and never loads torch.
    from sirgcn.engine.network import check_names

    overrides = read(tuple[str, ...], overrides, "overrides")
    stem, where, data = _read(name)
    for override in overrides:
        _override(data, override)
        if override.partition("=")[0].strip() == "columns":
            data = _with_columns(data, Path.cwd())
    if overrides:
        data |= {"name": re.sub(r"[^A-Za-z0-9.=_+-]+", "_", "+".join([stem, *overrides])), "table": None}
    _check_sections(data, where)
    experiment: Experiment = from_dict(Experiment, {"name": stem, **data}, where)
    check_names(experiment, where)
    return replace(experiment, folder=Path(where).parent)


def split_name(name: str) -> tuple[str, list[str]]:
    """The experiment and the overrides that a changed one is named after: `zinc+train.lr=1e-3`."""
    stem, *overrides = re.split(r"\+(?=[A-Za-z_][\w.]*=)", name)
    return stem, overrides


def _read(name: str | Path, beside: Path = Path(), readers: tuple[str, ...] = ()) -> tuple[str, str, dict[str, Any]]:
    """The name of an experiment, its file and its keys, with those of the one that it is like."""
    path = beside / _from_home(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(f"{path}: {'expected a file, got a folder' * path.is_dir() or 'there is no such file'}")
        content, where = path.read_bytes(), str(path)
    else:
        check_name("experiment", str(name), names(), "a .toml file or ")
        path = Path(str(name).lower())
        content, where = (FOLDER / f"{path}.toml").read_bytes(), f"{path}.toml"
    try:
        data = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: not TOML: {error}") from error
    if "like" in data:
        like = data.pop("like")
        if not isinstance(like, str) or where in readers:
            raise ConfigError(f"{where}: like: expected another experiment, got {like!r}")
        base = _with_columns(_read(like, path.parent, (*readers, where))[2], Path(like).parent)
        data = _merged(_taken(base, data.get("kind", "training")), data)
    return path.stem, where, data


def _with_columns(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Keys whose columns have paths that start at a folder; what has another shape is left to the strict reading."""
    columns = data.get("columns")
    if not _are_rows(columns) or not all(isinstance(column.get("options", {}), dict) for column in columns):
        return data
    moved = [column | {"options": _with_paths(column.get("options", {}), folder)} for column in columns]
    return data | {"columns": moved}


def _with_paths(options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Options whose relative paths start at a folder."""
    paths = {key: options[key] for key in PATHS if isinstance(options.get(key), str)}
    return {**options, **{key: str(folder / _from_home(path)) for key, path in paths.items()}}


def _from_home(path: str | Path) -> str:
    """A path with the user's home in the place of `~`; the name of an unknown user stays as it is."""
    return os.path.expanduser(path)  # noqa: PTH111 - pathlib's raises for an unknown user


def _taken(base: dict[str, Any], kind: str) -> dict[str, Any]:
    """What an experiment of a kind takes from another."""
    base.pop("table", None)
    if base.get("kind", "training") == kind:
        return base
    trained = ("train",) if "train" in _SECTIONS.get(kind, ()) else ()
    for row in base.get("models", []) if _are_rows(base.get("models")) else []:
        for key in {"train", "reduced"}.difference(trained):
            row.pop(key, None)
    shared = ("data", "preset", "variant", "redraw", "columns", "models", *trained)
    return {key: base[key] for key in shared if key in base}


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    found = {**base, **own}
    for key in base.keys() & own.keys():
        if isinstance(base[key], dict) and isinstance(own[key], dict):
            found[key] = _merged(base[key], own[key])
        elif key == "models" and _are_rows(base[key]) and _are_rows(own[key]):
            rows = {row["title"]: row for row in base[key]}
            for row in own[key]:
                rows[row["title"]] = _merged(rows.get(row["title"], {}), row)
            found[key] = list(rows.values())
    return found


def _are_rows(value: Any) -> TypeGuard[list[dict[str, Any]]]:
    """Whether rows can be told by their titles; where they cannot, the strict reading says what is wrong."""
    return isinstance(value, list) and all(isinstance(row, dict) and isinstance(row.get("title"), str) for row in value)


_SECTIONS = {
    "training": ("train",),
    "runtime": ("timing",),
    "step": ("train", "timing"),
    "complexity": ("timing", "axes"),
}


def _check_sections(data: Mapping[str, Any], where: str) -> None:
    """A kind has its own sections, and not those of another."""
    kind = data.get("kind", "training")
    for section in ("train", "timing", "axes") if kind in _SECTIONS else ():
        if section in _SECTIONS[kind] and section not in data:
            raise ConfigError(f"{where}: {section} is not set")
        if section in data and section not in _SECTIONS[kind]:
            raise ConfigError(f"{where}: {section}: an experiment of the kind {kind} has none")


def of_table(table: int, overrides: Sequence[str] = ()) -> tuple[Experiment, ...]:
    """All experiments of a table of the paper, changed by overrides."""
    table = read(int, table, "table")
    tables = {name: load(name).table for name in names()}
    if table not in tables.values():
        known = sorted({number for number in tables.values() if number is not None})
        raise ConfigError(f"table: expected one of {', '.join(map(str, known))}, got {table}")
    return tuple(load(name, overrides) for name, number in tables.items() if number == table)


def _override(data: dict[str, Any], override: str) -> None:
    """Set `a.b=value` in nested tables; the value is TOML, or text where it is not.

    What is set for all (`train.lr`) also takes the place of a row's own and of the reduced form's.
    """
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set: expected KEY=VALUE such as train.lr=1e-3, got {override!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    *path, last = key.strip().split(".")
    table = data
    for step in path:
        table = table.setdefault(step, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {override}: {step} is not a table")
    table[last] = value
    if path in (["train"], ["timing"]):
        rows = data.get("models", []) if path == ["train"] else []
        owns = (row.get(section) for row in rows if isinstance(row, dict) for section in ("train", "reduced"))
        for own in (data.get("reduced"), *owns):
            if isinstance(own, dict) and last in own:
                own[last] = value
