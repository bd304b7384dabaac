"""Experiments whose rows change the winner of a search, one setting at a time.

Such an experiment has a section `[base]`. Its rows are complete once the trials of the search are on record. This
module never loads torch, so that the report reads these experiments as the command line does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from sirgcn.engine.experiment import BaseConfig, Experiment, ModelConfig, TrainingExperiment, load_training
from sirgcn.engine.experiment.paths import from_home
from sirgcn.engine.experiment.space import with_settings
from sirgcn.engine.plan import Settings
from sirgcn.engine.search import trials
from sirgcn.engine.search.trials import Record
from sirgcn.strict import ConfigError, check_name

_CONV = "conv_options"

# Options of `SIRConv` that are as good as absent.
_DEFAULTS = {"context": (None, "none"), "gated": (False,)}


@dataclass(frozen=True)
class BasedExperiment(TrainingExperiment):
    """An experiment whose rows have the settings of a winner with their own changes.

    Args:
        chosen: what the records of its runs say about that winner.
    """

    chosen: dict[str, Any] = field(default_factory=dict)

    def marks(self, title: str) -> dict[str, Any]:
        return {"base": self.chosen}


class NoWinnerError(ConfigError):
    """A search that has no winner yet. The text says which command makes one."""


def based(experiment: Experiment, results: str | Path) -> Experiment:
    """The experiment with complete rows: the settings of the winner, as the records tell them, and the row's changes.

    A row that changes nothing, because the winner has its setting, is left out, and so is a second row of the same
    settings. The first row stays. An experiment without a section `[base]` is returned as it is.

    Raises:
        NoWinnerError: the search has no winner yet.
        ConfigError: the search is unknown, lacks the row, or has other data or another network.

    >>> import tempfile
    >>> from sirgcn.engine.experiment import load
    >>> based(load("ablation_minesweeper"), tempfile.mkdtemp())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sirgcn.engine.search.bases.NoWinnerError: ablation_minesweeper: base: ...; type: sirgcn search tuned_minesweeper
    """
    if not isinstance(experiment, TrainingExperiment) or experiment.base is None:
        return experiment
    searched = load_training(_place(experiment, experiment.base))
    _check_same(experiment, searched)
    row, winner = _winner(experiment, searched, results)
    base = with_settings(row, winner["settings"])
    rows: list[ModelConfig] = []
    for own in experiment.models:
        made = _changed(base, own)
        if all(_plain(made) != _plain(other) for other in rows):
            rows.append(made)
    shared = {entry.name: getattr(experiment, entry.name) for entry in fields(TrainingExperiment)}
    shared |= {"models": tuple(rows), "base": None}
    told = {"search": searched.name, "model": row.title, "trial": winner["trial"], "settings": winner["settings"]}
    return BasedExperiment(**shared, chosen=told)


def _place(experiment: TrainingExperiment, base: BaseConfig) -> str | Path:
    """The name of the search in the package, or its file, which is seen from the file of the experiment."""
    return experiment.folder / from_home(base.search) if base.search.endswith(".toml") else base.search


def _check_same(experiment: TrainingExperiment, searched: TrainingExperiment) -> None:
    """Refuse a base on other data or with another network around its convolution."""
    trials.search_of(searched)
    for name in ("data", "preset", "variant", "splits", "scale"):
        ours, theirs = getattr(experiment, name), getattr(searched, name)
        if ours != theirs:
            raise ConfigError(f"{experiment.name}: {name}: expected that of {searched.name}, {theirs!r}, got {ours!r}")


def _winner(
    experiment: TrainingExperiment, searched: TrainingExperiment, results: str | Path
) -> tuple[ModelConfig, Record]:
    """The row of the search that the base names, or the best form of SIR-GCN, and the record of its best trial."""
    base, column = experiment.base or BaseConfig(""), searched.columns[0].title
    rows = [row for row in searched.models if row.architecture.get("conv") == "sir"]
    if base.model:
        check_name(f"{experiment.name}: base: model", base.model, [row.title for row in searched.models])
        rows = [searched.model(base.model)]
    made, asked = trials.read_trials(Settings(Path(results)), searched.name), trials.search_of(searched).trials
    found: list[tuple[ModelConfig, Record]] = []
    for row in rows:
        kept = trials.trials_of(made, searched, column, row)
        winner = trials.winner_of(kept)
        if len(kept) < asked or winner is None:
            raise NoWinnerError(
                f"{experiment.name}: base: expected a winner, but {row.title} has {len(kept)} of {asked} trials"
                f"{' and none finished' * (len(kept) == asked)}; type: sirgcn search {searched.name}"
            )
        found.append((row, winner))
    return trials.best_of(found)


def _changed(base: ModelConfig, own: ModelConfig) -> ModelConfig:
    """The winner's row with the changes of a row of the experiment."""
    # Options of the convolution may stand beside `conv_options`, which would win over them.
    conv = {name: value for name, value in base.options.get(_CONV, {}).items() if name not in own.options}
    options = base.options | own.options | {_CONV: conv | own.options.get(_CONV, {})}
    train = base.train | own.train
    return replace(base, title=own.title, options=options, train=train, seeds=own.seeds, columns=own.columns)


def _plain(row: ModelConfig) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The settings of a row in one form, for comparisons."""
    found = row.options | row.options.get(_CONV, {})
    options = {name: value for name, value in found.items() if name != _CONV}
    return {name: value for name, value in options.items() if value not in _DEFAULTS.get(name, ())}, row.train
