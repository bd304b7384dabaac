"""Embeddings: what a network knows about a node, an edge or a graph just before its last linear layer."""

from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear
from torch_geometric.utils import scatter

from sirgcn.data.graphs import Graphs
from sirgcn.data.tables import Inputs
from sirgcn.engine.inference import call
from sirgcn.model.fitted import Member, Model
from sirgcn.model.predicting import rows_of_table


@torch.no_grad()
def embed(model: Model, graphs: Graphs, batch_size: int = 1024) -> Tensor:
    """The inputs of the last linear layer of every network side by side, one row for each node, edge or graph.

    Where a network pools after that layer, a graph has the mean of its nodes.

    Args:
        model: the model.
        graphs: the inputs; their targets are not read.
        batch_size: how many graphs are computed at once.

    >>> from sirgcn.data import load
    >>> from sirgcn.model import Member, Model, Problem
    >>> from sirgcn.nn import NetConfig, build_net
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> config = NetConfig.of(2, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    >>> model = Model(Problem.of(task), (Member(config, build_net(config).eval()),))
    >>> embed(model, task.graphs).shape
    torch.Size([10, 8])
    """
    parts = []
    for member in model.members:
        prepared = member.preparation.apply(graphs)
        index = torch.arange(len(prepared)).split(batch_size)
        parts.append(torch.cat([_batch(member, prepared.batch(own), model.problem.level) for own in index]))
    return torch.cat(parts, dim=1)


def _batch(member: Member, batch: Any, level: Any) -> Tensor:
    found: list[Tensor] = []
    # A module with a hook is called for every row: no route leaves it out. The last call is that of the last layer.
    layers = [module for module in member.network.modules() if isinstance(module, nn.Linear | Linear)]
    hooks = [layer.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0])) for layer in layers]
    try:
        call(member.network, batch, level)
    finally:
        for hook in hooks:
            hook.remove()
    rows = found[-1].float()
    if level != "graph" or len(rows) == batch.num_graphs:
        return rows
    # The last layer stands before the pooling.
    return scatter(rows, batch.batch, dim=0, dim_size=batch.num_graphs, reduce="mean")


def embedding_frame(model: Model, inputs: Inputs) -> pd.DataFrame:
    """A frame with the embedding of each row of new tables: the columns of `predict` that name it, then e0, e1, ...

    Args:
        model: the model.
        inputs: the tables, as `apply_tables` gives them.
    """
    names, places = rows_of_table(model, inputs)
    found = embed(model, inputs.graphs)[torch.from_numpy(places)].numpy()
    return pd.concat(
        [pd.DataFrame(names), pd.DataFrame(found, columns=[f"e{i}" for i in range(found.shape[1])])], axis=1
    )
