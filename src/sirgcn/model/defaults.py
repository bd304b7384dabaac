"""Settings that a user need not choose: networks and trainings that fit the data, the most promising first.

The rule knows a task by its `Facts` alone, never by its name. `docs/defaults.md` has the rule in words, and the
measurements that chose it.
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sirgcn.data.schema import Schema
from sirgcn.data.task import Task
from sirgcn.engine.experiment import TrainConfig
from sirgcn.model.facts import Facts
from sirgcn.model.preparation import Preparation
from sirgcn.nn import NetConfig
from sirgcn.strict import changed

FEW = 60
"""So many training rows of a class are few: nothing but strong regularisation helps."""

SMALL_GRAPH = 20_000
"""A single graph of up to so many nodes is cheap enough for deep networks."""

WALKS = 16
"""The steps of random walks that graphs of a data set of many get."""


@dataclass(frozen=True)
class Candidate:
    """A network, what it reads, and how it is trained.

    Args:
        name: a short name for a reader.
        config: the network.
        training: how it is trained.
        preparation: what it reads besides the columns of the graphs.
    """

    name: str
    config: NetConfig
    training: TrainConfig
    preparation: Preparation = field(default_factory=Preparation)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return {
            "name": self.name,
            "network": self.config.to_dict(),
            "training": self.training.recorded(),
            "preparation": asdict(self.preparation),
        }

    def with_changes(self, network: dict[str, Any], training: dict[str, Any]) -> "Candidate":
        """The candidate with settings changed by their short names, and the training by the fields of `TrainConfig`."""
        config = self.config.with_options(**network) if network else self.config
        return replace(self, config=config, training=changed(self.training, training, "train"))


def candidates(task: Task) -> tuple[Candidate, ...]:
    """The settings to try for a task, the most promising first.

    >>> from sirgcn.data import load
    >>> [candidate.name for candidate in candidates(load("hetero_edge_count", c=2, num_graphs=10))]
    ['messages by sum', 'gated messages', 'messages by mean']
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
    if facts.is_sparse and facts.labels_per_output <= FEW and facts.level == "node":
        return _of_few_labels(facts)
    return _of_one_graph(facts)


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
    """The nodes or edges of one graph: the block of tunedGNN, deep where the graph is small."""
    is_small = facts.nodes <= SMALL_GRAPH
    dense = facts.degree > 40
    deep, shallow = (8, 3) if is_small and not dense else (4, 2)
    is_tiny = facts.labels < 200
    if is_tiny:
        deep, shallow = 2, 1
    dropout = 0.5 if facts.is_sparse or is_tiny else 0.2
    training = TrainConfig(
        epochs=_epochs(facts.nodes + facts.edges, 300, 100),
        batch_size=None,
        lr=0.01 if not facts.is_sparse else 0.005,
        schedule="cosine",
        warmup=5,
        clip=1.0,
        l2=2.5e-4 if facts.is_sparse or is_tiny else 0.0,
        selection="val_metric",
        early_on="val_metric",
        early_stop=80,
    )
    shared: dict[str, Any] = {
        "hidden_channels": 64,
        "num_layers": deep,
        "encoder": "linear" if facts.is_sparse else "none",
        "input_dropout": dropout if facts.is_sparse else 0.0,
        "block": "residual",
        "act": "relu",
        "norm": "batch",
        "dropout": dropout,
    }
    mean = shared | {"conv": "sir", "aggr": "mean", "activation": "prelu"}
    sym = shared | {"conv": "sir", "aggr": "sym", "activation": "relu", "self_loops": True, "num_layers": shallow}
    linear = shared | {"conv": "gcn", "self_loops": True, "num_layers": shallow}
    preparation = Preparation()
    if facts.has_edge_features:
        sym.pop("self_loops")
        linear = mean | {"num_layers": shallow, "hidden_channels": 128}
    no_edges = Preparation(edges=False) if linear["conv"] == "gcn" else preparation
    return (
        _Recipe("messages by mean", mean, training, preparation),
        _Recipe("messages by sym", sym, training, preparation),
        _Recipe("linear messages" if linear["conv"] == "gcn" else "wide and shallow", linear, training, no_edges),
    )


def _of_many_graphs(facts: Facts) -> tuple[_Recipe, ...]:
    """Many graphs: the block of GNN+ with random walks, a sum or a mean over nodes, a head."""
    is_tiny = facts.labels < 300
    training = TrainConfig(
        epochs=_epochs((facts.nodes + facts.edges) * 4, 100, 30),
        batch_size=_batch_size(facts),
        lr=1e-3,
        weight_decay=1e-5 if not is_tiny else 1e-3,
        schedule="cosine",
        warmup=5,
        clip=1.0,
        selection="val_metric",
        early_on="val_metric",
        early_stop=40,
    )
    shared: dict[str, Any] = {
        "hidden_channels": 128 if not is_tiny else 64,
        "num_layers": 4 if not is_tiny else 3,
        "encoder": "linear",
        "block": "skip",
        "act": "relu",
        "norm": "batch",
        "conv_norm": False,
        "feed_forward": 2,
        "feed_forward_norm": "around",
        "dropout": 0.1 if not is_tiny else 0.3,
        "conv": "sir",
        "activation": "relu",
        "aggr": "sum",
    }
    if facts.level == "graph":
        shared |= {"pool": "sum", "readout_layers": 0, "head_channels": (64,), "head_norm": None}
    gated = shared | {"gated": True, "activation": "sigmoid"}
    mean = shared | {"aggr": "mean", "activation": "prelu"}
    if facts.level == "graph":
        mean["pool"] = "mean"
    preparation = Preparation(walks=WALKS)
    return (
        _Recipe("messages by sum", shared, training, preparation),
        _Recipe("gated messages", gated, training, preparation),
        _Recipe("messages by mean", mean, training, preparation),
    )


def _epochs(cost: int, most: int, least: int) -> int:
    """Fewer epochs where each costs more, so that a training ends in a time that people wait."""
    return max(least, min(most, round(most * 400_000 / max(cost, 1))))


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
    if schema.edge_encodings:
        found["edge_pe_dim"] = schema.edge_encodings
        found.setdefault("edge_encoder", "constant")
    return found
