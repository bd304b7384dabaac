"""Where a model meets data: the network that a task and an experiment ask for."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from sirgcn.data.sets.catalog import WALK_OPTIONS
from sirgcn.data.sets.catalog import find as find_dataset
from sirgcn.data.sets.catalog import load as load_dataset
from sirgcn.data.tables import load_tables
from sirgcn.data.task import Task
from sirgcn.engine.experiment import Experiment, ModelConfig
from sirgcn.engine.search.spaces import check_layer, check_space, entry_of
from sirgcn.nn import (
    PRESETS,
    RECIPES,
    NetConfig,
    NetworkConfig,
    build_net,
    dictionary_lookup_preset,
    hetero_edge_count_preset,
    recipe,
    unique_signature_preset,
    width_for_budget,
)
from sirgcn.nn.config import CONV_OPTIONS, read_option
from sirgcn.nn.convs import find_conv
from sirgcn.nn.networks import find_network
from sirgcn.strict import ConfigError, check_arguments, check_name

# Presets whose size is an option of the column: the name of that option, and the preset.
_SIZED: dict[str, tuple[str, Callable[..., NetConfig]]] = {
    "dictionary_lookup": ("n", dictionary_lookup_preset),
    "hetero_edge_count": ("c", hetero_edge_count_preset),
}
# Presets in which the convolution decides more than its own options.
_OF_CONV: dict[str, Callable[..., NetConfig]] = {"unique_signature": unique_signature_preset}
_OF_CONV |= {name: partial(recipe, name) for name in RECIPES}
_KNOWN_PRESETS = ("schema", *_SIZED, *_OF_CONV, *PRESETS)


def check_names(experiment: Experiment, where: str) -> None:
    """Refuse an unknown data set, preset, convolution, network or option, by its key and with the known names.

    An option's value is read by the annotation of the argument that it is for. What only the data can tell is checked
    when the data are read.

    Args:
        experiment: the experiment.
        where: its file, for errors.
    """
    if not experiment.draws_graphs:
        _check_columns(experiment, where)
        check_name(f"{where}: preset", experiment.preset, _KNOWN_PRESETS, exact=True)
    for place, model in enumerate(experiment.models):
        row = f"{where}: models[{place}]"
        try:
            entry = entry_of(model)
        except ValueError as error:
            raise ConfigError(f"{row}: {error}") from error
        if "conv" in model.architecture and not experiment.draws_graphs:
            _check_net_options(model, f"{row}: options: ")
        else:
            _check_known(model.options, entry.options, f"{row}: options")
            check_arguments(entry.build, model.options, f"{row}: options: ")
    check_space(experiment, where)


def _check_columns(experiment: Experiment, where: str) -> None:
    """Refuse options of columns that the reader of the data does not have, and columns without the preset's size."""
    is_own = experiment.data == "tables"
    options = _table_options() if is_own else _dataset_options(experiment, where)
    reader = load_tables if is_own else find_dataset(experiment.data).reader
    size, _ = _SIZED.get(experiment.preset, (None, None))
    for place, column in enumerate(experiment.columns):
        at = f"{where}: columns[{place}]: options"
        _check_known(column.options, options, at)
        walks = {} if is_own else {name: value for name, value in column.options.items() if name in WALK_OPTIONS}
        check_arguments(load_dataset, walks, f"{at}: ")
        of_reader = {name: value for name, value in column.options.items() if name not in walks}
        check_arguments(reader, of_reader, f"{at}: ")
        if size is not None and size not in column.options:
            raise ConfigError(
                f"{at}: expected {size}, from which the preset {experiment.preset} has its size, got none"
            )


def _check_net_options(model: ModelConfig, where: str) -> None:
    """Refuse settings of a row that a `NetConfig` with the row's convolution does not have."""
    values = {name: read_option(name, value, where) for name, value in model.options.items()}
    conv = find_conv(model.conv)
    own = {name: value for name, value in values.items() if name in CONV_OPTIONS}
    own |= values.get("conv_options", {})
    _check_known(own, conv.options, where.removesuffix(": "))
    check_arguments(conv.build, own, where)
    if model.conv == "sir":
        check_layer(own, where)


def _table_options() -> tuple[str, ...]:
    """Those of own tables; the seed is the run's."""
    return tuple(name for name in inspect.signature(load_tables).parameters if name != "seed")


def _dataset_options(experiment: Experiment, where: str) -> tuple[str, ...]:
    try:
        return (*find_dataset(experiment.data).options, *WALK_OPTIONS)
    except ValueError as error:
        raise ConfigError(f"{where}: data: {str(error).removeprefix('name: ')}") from error


def _check_known(names: Iterable[str], known: Sequence[str], where: str) -> None:
    for name in names:
        check_name(where, name, known, exact=True)


def default_config(task: Task) -> NetConfig:
    """The network that a task's schema asks for, with the block of the heterophilous benchmark."""
    schema = task.schema
    options: dict[str, Any] = {
        "encoder": "linear" if schema.features else "embedding",
        "block": "pre_norm",
        "norm": "layer",
        "activation": "gelu",
        "act": "gelu",
        "aggr": "sym",
        "encoder_act": True,
        "dropout": 0.2,
    }
    if schema.edge_features or schema.edge_vocabularies:
        options["edge_channels"] = schema.edge_features or schema.edge_vocabularies
        options["edge_encoder"] = "linear" if schema.edge_features else "embedding"
    if schema.encodings:
        options |= {"positional": task.details.get("encoding", "random_walk"), "pe_dim": schema.encodings}
    if schema.edge_encodings:
        options |= {"edge_pe_dim": schema.edge_encodings, "edge_encoder": options.get("edge_encoder", "constant")}
    if task.level == "graph":
        options |= {"pool": "mean", "readout_layers": 2, "graph_channels": schema.graph_features}
    in_channels = schema.features or schema.vocabularies
    return NetConfig.of(in_channels, 128, schema.outputs, num_layers=3, **options)


def config_of(
    experiment: Experiment, model: ModelConfig, task: Task, options: Mapping[str, Any]
) -> NetConfig | NetworkConfig:
    """The network of a row for the data of a column; where the row has a budget, with the width that fills it.

    Args:
        experiment: the experiment.
        model: the row.
        task: the data.
        options: the options of the column.
    """
    where = f"{experiment.name}: {model.title}"
    if model.control is not None:
        raise ConfigError(f"{where}: expected a model with a network, got the control {model.control}")
    if model.network is None:
        config: NetConfig | NetworkConfig = _net_config(experiment, model, task, options)
    else:
        config = _network_config(model, task, where)
    return config if model.budget is None else _within(config, model.budget, where)


def build(experiment: Experiment, model: ModelConfig, task: Task, options: Mapping[str, Any]) -> nn.Module:
    """The model of a row for a column's data; `options` are the column's.

    The weights are drawn from torch's generator, which the caller seeds.
    """
    try:
        return build_net(config_of(experiment, model, task, options))
    except TypeError as error:
        raise ConfigError(f"{experiment.name}: {model.title}: {error}") from error


def _net_config(experiment: Experiment, model: ModelConfig, task: Task, options: Mapping[str, Any]) -> NetConfig:
    conv = find_conv(model.conv)
    config = _preset(experiment, model, task, options).with_options(conv=model.conv).with_options(**model.options)
    known = config.conv.options
    if "variant" in conv.options and "variant" not in known:
        config = config.with_options(variant=experiment.variant)
    if "delta" in conv.options and "delta" not in known and set(known.get("scalers", ())) - {"identity"}:
        config = config.with_options(conv_options={"delta": mean_log_degree(task)})
    if task.schema.graph_features and config.readout.pool is not None:
        config = config.with_options(graph_channels=task.schema.graph_features)
    if task.level == "edge":
        config = config.with_options(pool=None, out_channels=task.schema.outputs, edge_scores=True)
    _check_walks(config, task, f"{experiment.name}: {model.title}")
    return config


def _check_walks(config: NetConfig, task: Task, where: str) -> None:
    """Refuse data without the encodings that the network reads."""
    schema = task.schema
    needed, given = (config.context.pe_dim, config.edges.pe_dim), (schema.encodings, schema.edge_encodings)
    if needed[0] != given[0]:
        raise ConfigError(
            f"{where}: expected data with encodings of {needed[0]} columns, got {given[0]}: "
            f"the option random_walk of a column sets them"
        )
    if needed[1] not in (0, given[1]):
        raise ConfigError(
            f"{where}: expected encodings of edges of {needed[1]} columns, got {given[1]}: "
            f"the options random_walk and edge_walks of a column set them"
        )


def readable(experiment: Experiment, model: ModelConfig, task: Task) -> Task:
    """The task as the network of a row reads it.

    A convolution that has no use for edge features stands in a recipe without them, and then gets none.
    """
    is_reading = model.network is not None or "edge" in find_conv(model.conv).extra_inputs
    if is_reading or experiment.preset not in RECIPES:
        return task
    schema = replace(task.schema, edge_features=0, edge_vocabularies=(), edge_encodings=0)
    return replace(task, graphs=replace(task.graphs, edge_attr=None, edge_pe=None), schema=schema)


def _network_config(model: ModelConfig, task: Task, where: str) -> NetworkConfig:
    network, schema = find_network(str(model.network)), task.schema
    has_more = schema.edge_features or schema.edge_vocabularies or schema.encodings
    if task.unseen:
        raise ConfigError(f"{where}: {network.name} reads all nodes in training, got the inductive data {task.name}")
    if task.over != "nodes" or not schema.features or has_more:
        raise ConfigError(
            f"{where}: {network.name} reads the numbers at the nodes of one graph, got the data {task.name}"
        )
    return NetworkConfig(network.name, schema.features, schema.outputs, task.graphs.num_nodes, dict(model.options))


def _within(config: NetConfig | NetworkConfig, budget: int, where: str) -> NetConfig | NetworkConfig:
    """The configuration with the largest width at which the network has no more parameters than the budget."""
    multiple_of, least = 1, 1
    if isinstance(config, NetConfig):
        least = 1 + config.context.random_features + config.context.pe_channels
        multiple_of = config.conv.options.get("heads", find_conv(config.conv.name).heads)
    elif "hidden_channels" not in find_network(config.network).options:
        raise ConfigError(f"{where}: budget: expected a model with a width, got none")
    width = width_for_budget(lambda width: build_net(_of_width(config, width)), budget, multiple_of, least)
    return _of_width(config, width)


def _of_width(config: NetConfig | NetworkConfig, width: int) -> NetConfig | NetworkConfig:
    if isinstance(config, NetConfig):
        return config.with_options(hidden_channels=width)
    return replace(config, options={**config.options, "hidden_channels": width})


def mean_log_degree(task: Task) -> float:
    """PNA's delta: the mean of log(D + 1) over the nodes of the training graphs, with D the in-degree.

    In one graph all nodes count, whether their labels are known or not.
    """
    graphs = task.graphs.select(task.splits[0].train) if task.over == "graphs" else task.graphs
    degree = torch.bincount(graphs.edge_index[1], minlength=graphs.num_nodes)
    return float(degree.double().log1p().mean())


def _preset(experiment: Experiment, model: ModelConfig, task: Task, options: Mapping[str, Any]) -> NetConfig:
    check_name(f"{experiment.name}: preset", experiment.preset, _KNOWN_PRESETS, exact=True)
    if experiment.preset == "schema":
        return default_config(task)
    if experiment.preset in _SIZED:
        size, make = _SIZED[experiment.preset]
        return make(options[size], conv=model.conv)
    if experiment.preset in _OF_CONV:
        return _OF_CONV[experiment.preset](conv=model.conv)
    return PRESETS[experiment.preset]
