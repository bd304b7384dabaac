"""Where a model meets data: the network that a task and an experiment ask for."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sirgcn.data.catalog import find as find_dataset
from sirgcn.data.tables import load_tables
from sirgcn.data.task import Task
from sirgcn.engine.experiment import Experiment, ModelConfig
from sirgcn.nn import PRESETS, SIRNet, dictionary_lookup_preset, hetero_edge_count_preset, width_for_budget
from sirgcn.nn.convs import find_conv
from sirgcn.nn.networks import find_network, make_network
from sirgcn.strict import ConfigError, check_arguments


class EdgeNet(nn.Module):
    r"""Scores of edges from a network on nodes: :math:`f([h_u \Vert h_v])` with a two-layer MLP f.

    Args:
        network: gives `(|V|, channels)`.
        channels: of its output.
        out_channels: of a score.
    """

    def __init__(self, network: nn.Module, channels: int, out_channels: int) -> None:
        super().__init__()
        self.network = network
        self.scorer = nn.Sequential(nn.Linear(2 * channels, channels), nn.ReLU(), nn.Linear(channels, out_channels))

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor, **inputs: Any) -> Tensor:
        """`(L, out_channels)` for the edges `edge_label_index` `[2, L]`."""
        h = self.network(x, edge_index, **inputs)
        source, target = edge_label_index
        out: Tensor = self.scorer(torch.cat([h[target], h[source]], dim=-1))
        return out


# Presets that depend on the column's options or on the data, besides those of the table.
_MADE = ("schema", "dictionary_lookup", "hetero_edge_count")
# The option of a column that one of them takes its size from.
_NEEDED = {"dictionary_lookup": "n", "hetero_edge_count": "c"}


def check_names(experiment: Experiment, where: str) -> None:
    """Refuse a data set, preset, convolution, network or option that is not known, by its key and with those that are.

    `where` is the file. An option's value is read by the annotation of the argument that it is for; what only the data
    can tell is found out where they are read.
    """
    if not experiment.draws_graphs:
        own = experiment.data == "tables"
        options = _table_options() if own else _dataset_options(experiment, where)
        reader = load_tables if own else find_dataset(experiment.data).reader
        for place, column in enumerate(experiment.columns):
            at = f"{where}: columns[{place}]: options"
            _check_known(column.options, options, at)
            check_arguments(reader, column.options, f"{at}: ")
        _check_known([experiment.preset], (*_MADE, *PRESETS), f"{where}: preset")
        needed = _NEEDED.get(experiment.preset)
        for place, column in enumerate(experiment.columns):
            if needed is not None and needed not in column.options:
                raise ConfigError(
                    f"{where}: columns[{place}]: options: expected {needed}, which the preset {experiment.preset} "
                    "takes its size from, got none"
                )
    for place, model in enumerate(experiment.models):
        row = f"{where}: models[{place}]"
        try:
            entry = find_conv(model.conv) if model.network is None else find_network(model.network)
        except ValueError as error:
            raise ConfigError(f"{row}: {error}") from error
        options, build = entry.options, entry.build
        if model.network is None and not experiment.draws_graphs:
            options, build = tuple(inspect.signature(SIRNet).parameters), SIRNet
        _check_known(model.options, options, f"{row}: options")
        check_arguments(build, model.options, f"{row}: options: ")


def _table_options() -> tuple[str, ...]:
    """Those of own tables; the seed is the run's."""
    return tuple(name for name in inspect.signature(load_tables).parameters if name != "seed")


def _dataset_options(experiment: Experiment, where: str) -> tuple[str, ...]:
    try:
        return tuple(find_dataset(experiment.data).options)
    except ValueError as error:
        raise ConfigError(f"{where}: data: {str(error).removeprefix('name: ')}") from error


def _check_known(names: Iterable[str], known: Sequence[str], where: str) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"{where}: expected one of {', '.join(known)}, got {name!r}")


def arguments(task: Task) -> dict[str, Any]:
    """The arguments of `SIRNet` that a task's schema asks for, with the block of the heterophilous benchmark."""
    schema = task.schema
    given: dict[str, Any] = {
        "in_channels": schema.features or schema.vocabularies,
        "encoder": "linear" if schema.features else "embedding",
        "hidden_channels": 128,
        "out_channels": schema.outputs,
        "num_layers": 3,
        "block": "pre_norm",
        "norm": "layer",
        "activation": "gelu",
        "act": "gelu",
        "aggr": "sym",
        "encoder_act": True,
        "dropout": 0.2,
    }
    if schema.edge_features or schema.edge_vocabularies:
        given |= {
            "edge_channels": schema.edge_features or schema.edge_vocabularies,
            "edge_encoder": "linear" if schema.edge_features else "embedding",
        }
    if schema.encodings:
        given |= {"positional": task.details.get("encoding", "random_walk"), "pe_dim": schema.encodings}
    if task.level == "graph":
        given |= {"pool": "mean", "readout_layers": 2}
    return given


def build(experiment: Experiment, model: ModelConfig, task: Task, options: dict[str, Any]) -> nn.Module:
    """The model of a row for a column's data; `options` are the column's.

    The weights are drawn from torch's generator, which the caller seeds.
    """
    make, width, multiple_of = (_own if model.network is not None else _sir_net)(experiment, model, task, options)

    def checked(width: int | None) -> nn.Module:
        try:
            return make(width)
        except TypeError as error:
            raise ConfigError(f"{experiment.name}: {model.title}: {error}") from error

    if model.budget is not None:
        if width is None:
            raise ConfigError(f"{experiment.name}: {model.title}: budget: expected a model with a width, got none")
        width = width_for_budget(checked, model.budget, multiple_of)
    return checked(width)


# From a width to the model, the width where there is no budget (None for a model without), what it is a multiple of.
_Maker = tuple[Callable[[Any], nn.Module], int | None, int]


def _sir_net(experiment: Experiment, model: ModelConfig, task: Task, options: dict[str, Any]) -> _Maker:
    given = {**_preset(experiment, model, task, options), "conv": model.conv, **model.options}
    if model.conv == "sir":
        given.setdefault("variant", experiment.variant)
    if task.level == "edge":
        given = {**given, "pool": None, "out_channels": given["hidden_channels"]}
    conv = find_conv(model.conv)
    chosen = given.get("conv_options", {})
    if "delta" in conv.options and "delta" not in chosen and set(chosen.get("scalers", ())) - {"identity"}:
        given["conv_options"] = {**chosen, "delta": mean_log_degree(task)}

    def make(width: int) -> nn.Module:
        network = SIRNet(**{**given, "hidden_channels": width})
        return network if task.level != "edge" else EdgeNet(network, width, task.schema.outputs)

    return make, given["hidden_channels"], chosen.get("heads", conv.heads)


def _own(experiment: Experiment, model: ModelConfig, task: Task, options: dict[str, Any]) -> _Maker:
    network, schema = find_network(str(model.network)), task.schema
    where = f"{experiment.name}: {model.title}"
    if (
        task.over != "nodes"
        or not schema.features
        or schema.edge_features
        or schema.edge_vocabularies
        or schema.encodings
    ):
        raise ConfigError(
            f"{where}: {network.name} reads the numbers at the nodes of one graph, got the data {task.name}"
        )

    def make(width: int | None) -> nn.Module:
        given = model.options if width is None else {**model.options, "hidden_channels": width}
        return make_network(network.name, schema.features, schema.outputs, task.graphs.num_nodes, **given)

    default = inspect.signature(network.build).parameters.get("hidden_channels")
    return make, None if default is None else model.options.get("hidden_channels", default.default), 1


def mean_log_degree(task: Task) -> float:
    """PNA's delta: the mean of log(D + 1) over the nodes of the training graphs, D the in-degree.

    Of one graph all nodes count, whatever is known of their labels.
    """
    graphs = task.graphs.select(task.splits[0].train) if task.over == "graphs" else task.graphs
    degree = torch.bincount(graphs.edge_index[1], minlength=graphs.num_nodes)
    return float(degree.double().log1p().mean())


def _preset(experiment: Experiment, model: ModelConfig, task: Task, options: dict[str, Any]) -> dict[str, Any]:
    if experiment.preset == "schema":
        return arguments(task)
    if experiment.preset == "dictionary_lookup":
        return dictionary_lookup_preset(options["n"], conv=model.conv)
    if experiment.preset == "hetero_edge_count":
        return hetero_edge_count_preset(options["c"], conv=model.conv)
    _check_known([experiment.preset], (*_MADE, *PRESETS), f"{experiment.name}: preset")
    return PRESETS[experiment.preset]
