"""What a row of an experiment searches: the shared space and its own, checked by the names and types of settings."""

from dataclasses import fields
from typing import Any

from sirgcn.engine.controls import find_control
from sirgcn.engine.experiment import Experiment, ModelConfig, TrainConfig, TrainingExperiment
from sirgcn.engine.experiment.space import TRAIN, SearchConfig, Space, read_space
from sirgcn.nn.config import OPTIONS, read_option
from sirgcn.nn.convs import find_conv
from sirgcn.nn.networks import find_network
from sirgcn.strict import ConfigError, changed, check_arguments, check_name

_FIXED = ("in_channels", "out_channels", "conv", "conv_options")
"""Settings of a network that the data or the row decide."""


def space_of(search: SearchConfig, row: ModelConfig) -> Space:
    """The settings that the trials of a row vary.

    A row with a convolution has the shared space and its own. A network of its own shape takes those entries of the
    shared space that it has an option for. A control has its own space alone.
    """
    own = read_space(row.space, f"{row.title}: space")
    if row.control is not None:
        return own
    shared = search.shared
    if row.network is not None:
        options = find_network(row.network).options
        shared = {name: entry for name, entry in shared.items() if name.startswith(TRAIN) or name in options}
    return shared | own


def check_space(experiment: Experiment, where: str) -> None:
    """Refuse a space with an unknown name or a value that its setting does not accept.

    Args:
        experiment: an experiment of any sort; one without a search is accepted.
        where: its file, for errors.
    """
    search = experiment.search if isinstance(experiment, TrainingExperiment) else None
    if search is None:
        return
    _check_shared(search, f"{where}: search.space")
    for place, row in enumerate(experiment.models):
        _check_own(row, f"{where}: models[{place}]: space")
        space = space_of(search, row)
        if not space:
            raise ConfigError(f"{where}: models[{place}]: space: expected a setting that trials can vary, got none")


def _check_shared(search: SearchConfig, where: str) -> None:
    known = [name for name in OPTIONS if name not in _FIXED]
    known += [TRAIN + entry.name for entry in fields(TrainConfig)]
    for name, entry in search.shared.items():
        check_name(where, name, known, exact=True)
        for value in entry.ends:
            if name.startswith(TRAIN):
                changed(TrainConfig(), {name.removeprefix(TRAIN): value}, f"{where}: train")
            else:
                read_option(name, value, f"{where}: ")


def _check_own(row: ModelConfig, where: str) -> None:
    entry = entry_of(row)
    for name, values in read_space(row.space, where).items():
        check_name(where, name, entry.options, exact=True)
        for value in values.ends:
            check_arguments(entry.build, {name: value}, f"{where}: ")


def entry_of(row: ModelConfig) -> Any:
    """The entry of the table of convolutions, networks or controls that a row names."""
    if row.control is not None:
        return find_control(row.control)
    return find_conv(row.conv) if row.network is None else find_network(row.network)
