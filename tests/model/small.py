"""Small models and tables, made by hand, for the tests of this room."""

from typing import Any

import pandas as pd
import torch
from torch import nn

from sirgcn.data.schema import Schema
from sirgcn.model import Member, Model, Problem, Scaling
from sirgcn.nn import NetConfig, build_net

LOSSES = {"classes": "cross_entropy", "numbers": "mse", "labels": "binary_cross_entropy"}
METRICS = {"classes": "accuracy", "numbers": "mae", "labels": "roc_auc"}


def small_model(
    level: Any = "node",
    sort: Any = "classes",
    schema: Schema | None = None,
    networks: int = 1,
    layers: int = 2,
    channels: int = 16,
    seed: int = 0,
    **options: Any,
) -> Model:
    """A model with drawn weights, whose batch norms have seen something."""
    schema = schema or Schema(features=8, outputs=3)
    config = config_of(level, schema, layers, channels, **options)
    torch.manual_seed(seed)
    members = tuple(Member(config, with_statistics(build_net(config))) for _ in range(networks))
    return Model(problem_of(level, sort, schema), members, scaling_of(sort, schema.outputs))


def config_of(level: Any, schema: Schema, layers: int = 2, channels: int = 16, **options: Any) -> NetConfig:
    """The configuration of a network for these inputs."""
    if schema.vocabularies:
        options = {"encoder": "embedding"} | options
    if schema.edge_vocabularies:
        options = {"edge_encoder": "embedding"} | options
    if schema.encodings:
        options = {"pe_dim": schema.encodings} | options
    if level == "graph":
        options = {"pool": "mean"} | options
    if level == "edge":
        options = {"edge_scores": True} | options
    if schema.graph_features:
        options = {"graph_channels": schema.graph_features} | options
    options["edge_channels"] = schema.edge_vocabularies or schema.edge_features or None
    return NetConfig.of(schema.vocabularies or schema.features, channels, schema.outputs, layers, **options)


def problem_of(level: Any, sort: Any, schema: Schema) -> Problem:
    """What a model of these outputs predicts."""
    classes = tuple(f"class {place}" for place in range(schema.outputs)) if sort == "classes" else ()
    targets = tuple(f"target {place}" for place in range(1 if sort == "classes" else schema.outputs))
    return Problem("small", level, sort, targets, classes, LOSSES[sort], METRICS[sort], schema)


def scaling_of(sort: str, outputs: int) -> Scaling | None:
    """A scaling that is not the identity, for numbers."""
    if sort != "numbers":
        return None
    return Scaling(tuple(10.0 + place for place in range(outputs)), tuple(2.0 + place for place in range(outputs)))


def with_statistics(network: nn.Module) -> nn.Module:
    """The network in eval mode, with statistics in its batch norms that are not those of the start."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(std=0.3)
            module.running_var.uniform_(0.5, 2)
    return network.eval()


def tables(nodes: int = 40, seed: int = 0) -> dict[str, Any]:
    """Nodes whose label is that of most neighbours' colour, and their edges."""
    generator = torch.Generator().manual_seed(seed)
    colours = torch.randint(0, 2, (nodes,), generator=generator)
    ends = torch.randint(0, nodes, (2, 3 * nodes), generator=generator)
    ends = ends[:, ends[0] != ends[1]]
    votes = torch.zeros(nodes)
    both = torch.cat([ends, ends.flip(0)], dim=1)
    votes.index_add_(0, both[1], 2.0 * colours[both[0]] - 1)
    frame = {
        "id": [f"A{place:03d}" for place in range(nodes)],
        "colour": [("red", "blue")[colour] for colour in colours],
        "size": torch.randn(nodes, generator=generator).tolist(),
        "label": ["yes" if vote > 0 else "no" for vote in votes],
    }
    edges = {"source": [frame["id"][v] for v in ends[0]], "target": [frame["id"][u] for u in ends[1]]}
    return {"nodes": pd.DataFrame(frame), "edges": pd.DataFrame(edges)}
