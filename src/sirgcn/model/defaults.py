"""Settings that a user need not choose: networks and trainings that fit the data, the most promising first.

The rule knows a task by its `Facts` alone, never by its name. `docs/defaults.md` has the rule in words, and the
measurements that chose it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sirgcn.data.schema import Schema
from sirgcn.data.task import Task
from sirgcn.engine.experiment import TrainConfig
from sirgcn.model.facts import Facts
from sirgcn.model.preparation import Preparation
from sirgcn.nn import NetConfig
from sirgcn.strict import changed, from_dict

FEW = 60
"""So many training rows of a class are few: nothing but strong regularisation helps."""

TINY = 200
"""With fewer training rows than this a network of one graph is shallow."""

DENSE = 20.0
"""With more edges at a node than this few layers see the whole graph."""

WIDE = 100
"""Node features of more numbers than this, unless most of them are 0, fill wider layers."""

MANY = 5_000
"""With fewer graphs than this chance decides much, as with few labels: several networks are averaged."""

WALKS = 16
"""The steps of random walks that the nodes of many graphs get."""

# Multiplications and additions that one training may take: some five minutes of one core.
_BUDGET = 1e13
_LEAST_EPOCHS, _MOST_EPOCHS = 15, 300


@dataclass(frozen=True)
class Candidate:
    """A network, what it reads, and how it is trained.

    Args:
        name: a short name for a reader.
        config: the network.
        training: how it is trained.
        preparation: what it reads besides the columns of the graphs.
        fanouts: how many neighbours are drawn in each hop, where it is trained on samples of one graph; empty: it is
            trained on whole graphs.
    """

    name: str
    config: NetConfig
    training: TrainConfig
    preparation: Preparation = field(default_factory=Preparation)
    fanouts: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        found: dict[str, Any] = {
            "name": self.name,
            "network": self.config.to_dict(),
            "training": self.training.recorded(),
            "preparation": asdict(self.preparation),
        }
        if self.fanouts:
            found["fanouts"] = self.fanouts
        # Lists for tuples, as a file gives them back.
        plain: dict[str, Any] = json.loads(json.dumps(found))
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Candidate":
        """The candidate of which `to_dict` gave these values.

        >>> from sirgcn.data import load
        >>> one = candidates(load("hetero_edge_count", c=2, num_graphs=10))[0]
        >>> Candidate.from_dict(one.to_dict()) == one
        True
        """
        network, training = NetConfig.from_dict(data["network"]), from_dict(TrainConfig, data["training"], "training")
        preparation = from_dict(Preparation, data["preparation"], "preparation")
        return cls(data["name"], network, training, preparation, tuple(data.get("fanouts", ())))

    def with_changes(self, network: dict[str, Any], training: dict[str, Any]) -> "Candidate":
        """The candidate with settings changed by their short names, and the training by the fields of `TrainConfig`."""
        config = self.config.with_options(**network) if network else self.config
        return replace(self, config=config, training=changed(self.training, training, "train"))


def candidates(task: Task) -> tuple[Candidate, ...]:
    """The settings to try for a task, the most promising first.

    >>> from sirgcn.data import load
    >>> [candidate.name for candidate in candidates(load("hetero_edge_count", c=2, num_graphs=10))]
    ['gated messages', 'messages by sum', 'messages by mean']
    """
    facts = Facts.of(task)
    return tuple(_candidate(task, facts, recipe) for recipe in _recipes(facts))


@dataclass(frozen=True)
class _Recipe:
    """Settings by their short names, before the widths of the data are filled in."""

    name: str
    network: dict[str, Any]
    training: TrainConfig
    preparation: Preparation = field(default_factory=Preparation)


def _recipes(facts: Facts) -> tuple[_Recipe, ...]:
    if facts.is_many:
        return _of_many_graphs(facts)
    if _has_few_labels(facts):
        return _of_few_labels(facts)
    return _of_one_graph(facts)


def _has_few_labels(facts: Facts) -> bool:
    """Whether the columns of the nodes of one graph are long sparse rows, and few of the nodes have labels."""
    is_one_of_nodes = facts.level == "node" and not facts.is_many
    return is_one_of_nodes and facts.is_sparse and facts.labels_per_output <= FEW


def _of_few_labels(facts: Facts) -> tuple[_Recipe, ...]:
    """Long sparse rows and few labels: two layers, strong dropout and decay, and rows of sum 1.

    The linear messages of GCN, its contextual form whose slopes begin as linear ones, and a network that leans on the
    node's own columns.
    """
    preparation = Preparation(normalise=True, edges=False)
    training = TrainConfig(
        epochs=300, batch_size=None, lr=0.01, l2=2.5e-4, selection="val_metric", early_on="val", early_stop=100
    )
    shared: dict[str, Any] = {
        "hidden_channels": 64,
        "num_layers": 2,
        "encoder": "none",
        "block": "residual",
        "act": "relu",
        "norm": None,
        "residual": False,
        "dropout": 0.8,
        "input_dropout": 0.8,
    }
    linear = shared | {"conv": "gcn", "self_loops": True}
    contextual = shared | {"conv": "sir", "aggr": "sym", "activation": "prelu", "self_loops": True}
    own = shared | {"conv": "sir", "aggr": "mean", "activation": "prelu", "residual": True}
    graph = (
        _Recipe("linear messages", linear, training, preparation),
        _Recipe("contextual messages", contextual, training, preparation),
    )
    alone = (_Recipe("own columns first", own, training, preparation),)
    # Where neighbours differ by their labels more than by chance, a node's own columns come first.
    return alone + graph if facts.homophily < 0 else graph + alone


def _of_one_graph(facts: Facts) -> tuple[_Recipe, ...]:
    """The nodes or edges of one graph: the block of tunedGNN, deep where nodes have few neighbours."""
    is_wide = facts.columns > WIDE and not facts.is_sparse
    is_strict = facts.is_sparse or facts.labels < TINY
    deep, shallow = _depths(facts)
    width = 128 if is_wide else 64
    training = TrainConfig(
        epochs=_epochs(facts, width, deep),
        batch_size=None,
        lr=0.005 if facts.is_sparse or is_wide else 0.01,
        schedule="cosine",
        warmup=5,
        clip=1.0,
        l2=2.5e-4 if is_strict else 0.0,
        selection="val_metric",
        early_on="val_metric",
        early_stop=80,
    )
    shared: dict[str, Any] = {
        "hidden_channels": width,
        "block": "residual",
        "act": "relu",
        "norm": "batch",
        "dropout": 0.5 if is_strict else 0.2,
        "conv": "sir",
    }
    if facts.is_sparse:
        shared |= {"encoder": "linear", "input_dropout": shared["dropout"]}
    mean = shared | {"aggr": "mean", "activation": "prelu", "num_layers": deep}
    sym = shared | {"aggr": "sym", "activation": "relu", "num_layers": deep}
    linear = shared | {"aggr": "sym", "activation": "identity", "num_layers": shallow}
    found = (
        _Recipe("messages by mean", mean, training),
        _Recipe("messages by sym", sym | _loops(facts), training),
        _Recipe("linear messages", linear | _loops(facts), training),
    )
    # Words with few neighbours in common are told apart by linear messages, and by few layers.
    return found[::-1] if facts.is_sparse else found


def _depths(facts: Facts) -> tuple[int, int]:
    """The layers of contextual messages, and of linear ones."""
    if facts.labels < TINY:
        return 2, 1
    if facts.is_sparse:
        return 2, 2
    return (4, 2) if facts.degree > DENSE else (10, 3)


def _loops(facts: Facts) -> dict[str, Any]:
    """Every node is a neighbour of itself, where no edge needs features."""
    return {} if facts.has_edge_features else {"self_loops": True}


def _of_many_graphs(facts: Facts) -> tuple[_Recipe, ...]:
    """Many graphs: the block of GNN+ with random walks, and a mean or a sum over nodes."""
    is_tiny = facts.items < 300
    width, layers = (96, 4) if facts.items > MANY else (64, 3 if is_tiny else 4)
    training = TrainConfig(
        epochs=min(50, _epochs(facts, width, layers * 3)),
        batch_size=_batch_size(facts),
        lr=1e-3,
        weight_decay=1e-3 if is_tiny else 1e-5,
        schedule="cosine",
        warmup=5,
        clip=1.0,
        selection="val_metric",
        early_on="val_metric",
        early_stop=40,
    )
    shared: dict[str, Any] = {
        "hidden_channels": width,
        "num_layers": layers,
        "encoder": "linear",
        "block": "skip",
        "act": "relu",
        "norm": "batch",
        "conv_norm": False,
        "feed_forward": 2,
        "feed_forward_norm": "around",
        "dropout": 0.3 if is_tiny else 0.1,
        "conv": "sir",
        "aggr": "sum",
    }
    if facts.level == "graph":
        shared |= {"pool": "mean", "readout_layers": 0, "head_channels": (64,), "head_norm": None}
    gated = shared | {"gated": True, "activation": "sigmoid"}
    summed = shared | {"activation": "relu"} | ({"pool": "sum"} if facts.level == "graph" else {})
    mean = shared | {"activation": "prelu", "aggr": "mean"}
    preparation = Preparation(walks=WALKS)
    return (
        _Recipe("gated messages", gated, training, preparation),
        _Recipe("messages by sum", summed, training, preparation),
        _Recipe("messages by mean", mean, training, preparation),
    )


def networks(task: Task) -> int:
    """How many networks the chosen settings are trained to, whose predictions are averaged.

    >>> from sirgcn.data import load
    >>> networks(load("hetero_edge_count", c=2, num_graphs=10))
    3
    """
    facts = Facts.of(task)
    is_noisy = facts.items < MANY if facts.is_many else _has_few_labels(facts)
    return 3 if is_noisy else 1


def _epochs(facts: Facts, width: int, layers: int) -> int:
    """Fewer epochs where each takes longer, so that a training ends in a time that people wait."""
    # Three products of width by width in a layer and one with the columns, each three times with its backward pass.
    products = facts.nodes * width * (3 * layers * width + facts.columns)
    along_edges = 5 * facts.edges * width * layers
    cost = 6.0 * (products + along_edges)
    return max(_LEAST_EPOCHS, min(_MOST_EPOCHS, round(_BUDGET / cost)))


def _batch_size(facts: Facts) -> int:
    """At least some twenty steps an epoch, and no batch of a hundred thousand nodes."""
    share = max(8, min(64, facts.items // 30))
    return int(max(1, min(share, 50_000 * facts.items // facts.nodes)))


def _candidate(task: Task, facts: Facts, recipe: _Recipe) -> Candidate:
    preparation = recipe.preparation
    if task.schema.encodings:
        # The caller's own encodings stay.
        preparation = replace(preparation, walks=0, edge_walks=False)
    schema = preparation.read(task.schema)
    options = recipe.network | _inputs(schema, recipe.network)
    if facts.level == "edge":
        options["edge_scores"] = True
    width, layers = options.pop("hidden_channels"), options.pop("num_layers")
    in_channels = schema.features or schema.vocabularies
    config = NetConfig.of(in_channels, width, schema.outputs, layers, **options)
    return Candidate(recipe.name, config, recipe.training, preparation)


def _inputs(schema: Schema, network: dict[str, Any]) -> dict[str, Any]:
    """The settings of a network that the widths of the data decide."""
    found: dict[str, Any] = {}
    if schema.vocabularies:
        found["encoder"] = "embedding"
    if schema.edge_features or schema.edge_vocabularies:
        found["edge_channels"] = schema.edge_features or schema.edge_vocabularies
        found["edge_encoder"] = "linear" if schema.edge_features else "embedding"
    if schema.encodings:
        found |= {"positional": "random_walk", "pe_dim": schema.encodings, "pe_norm": True}
        found["pe_channels"] = network["hidden_channels"] // 4
        found.setdefault("encoder", "linear")
    if schema.graph_features and network.get("pool") is not None:
        found["graph_channels"] = schema.graph_features
    if schema.edge_encodings:
        found["edge_pe_dim"] = schema.edge_encodings
        found.setdefault("edge_encoder", "constant")
    return found
