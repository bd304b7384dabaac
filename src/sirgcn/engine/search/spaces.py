"""What a row of an experiment searches: the shared space and its own, checked by the names and types of settings."""

from collections.abc import Mapping
from dataclasses import fields
from itertools import combinations, product
from typing import Any

import torch

from sirgcn.engine.controls import find_control
from sirgcn.engine.experiment import Experiment, ModelConfig, TrainConfig, TrainingExperiment
from sirgcn.engine.experiment.space import TRAIN, SearchConfig, Space, read_space
from sirgcn.nn.config import CONV_OPTIONS, OPTIONS, read_option
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
    entry, space = entry_of(row), read_space(row.space, where)
    for name, values in space.items():
        check_name(where, name, entry.options, exact=True)
        for value in values.ends:
            check_arguments(entry.build, {name: value}, f"{where}: ")
    if row.architecture == {"conv": "sir"}:
        _check_together(row, space, where)


def _check_together(row: ModelConfig, space: Space, where: str) -> None:
    """Refuse values of `SIRConv` that it does not accept, alone, beside those of the row, or two of them together."""
    fixed = {name: row.options[name] for name in CONV_OPTIONS if name in row.options}
    fixed |= row.options.get("conv_options", {})
    check_layer(fixed, f"{where}: ")
    for name, values in space.items():
        for value in values.ends:
            check_layer(fixed | {name: value}, f"{where}: ")
    for (one, values), (other, others) in combinations(space.items(), 2):
        for value, beside in product(values.ends, others.ends):
            check_layer(fixed | {one: value, other: beside}, f"{where}: {one} = {value} with {other} = {beside}: ")


def check_layer(options: Mapping[str, Any], where: str) -> None:
    """Refuse options of `SIRConv` that it does not accept, by a layer that is thrown away.

    >>> check_layer({"context": "mena"}, "row: ")
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: row: context: expected one of sum, mean, sym, max, None, got 'mena'; did you mean mean?
    """
    build = find_conv("sir").build
    try:
        # The weights of this layer must not change those that are drawn after it.
        with torch.random.fork_rng(devices=[]):
            build(8, 8, **check_arguments(build, options, is_toml=True))
    except ValueError as error:
        raise ConfigError(f"{where}{error}") from error


def entry_of(row: ModelConfig) -> Any:
    """The entry of the table of convolutions, networks or controls that a row names."""
    if row.control is not None:
        return find_control(row.control)
    return find_conv(row.conv) if row.network is None else find_network(row.network)
