"""The synthetic data sets of Section 5.1: DictionaryLookup and HeteroEdgeCount.

A seed gives the same graphs on any machine: all draws are integers of a named generator, PCG64, and nothing is rounded.
"""

import numpy as np
import torch
from torch_geometric.data import Data

from sirgcn.data.graphs import Graphs
from sirgcn.data.schema import Schema
from sirgcn.data.splits import Split
from sirgcn.data.task import Task
from sirgcn.data.validate import check_at_least
from sirgcn.strict import checked


@checked
def dictionary_lookup(n: int, num_graphs: int = 5000, seed: int = 0) -> list[Data]:
    r"""DictionaryLookup (Section 5.1, Table 1): find each query's value among the keys.

    Queries are the nodes :math:`0, \dots, n-1` and keys the nodes :math:`n, \dots, 2n-1`. With a
    permutation :math:`\pi` drawn anew for each graph,

    .. math::
        x_i = (i, n), \qquad x_{n+i} = (i, \pi(i)), \qquad y_i = \pi(i), \qquad i = 0, \dots, n-1,

    where the value :math:`n` stands for "empty", and every key sends an edge to every query.

    Args:
        n: Keys in a graph, and queries.
        num_graphs: Graphs to draw; the paper trains on the first 4,000 of 5,000.
        seed: Of the permutations; no global random state is read or changed.

    Returns:
        Graphs with ``x`` (int64, ``[2n, 2]``: attribute and value), ``edge_index``
        (``[2, n * n]``), ``query_mask`` (bool, ``[2n]``) and ``y`` (int64, ``[n]``: the queries'
        values, in the order of ``x[query_mask]``, in a batch too). All graphs share one
        ``edge_index`` and one ``query_mask``, which would otherwise take most of the memory; do
        not change them in place.
    """
    x, edge_index, y = _lookups(n, num_graphs, seed)
    query_mask = torch.arange(2 * n) < n
    # Copies: as a view each would carry all graphs into every pickle and deepcopy.
    return [
        Data(x=inputs.clone(), edge_index=edge_index, query_mask=query_mask, y=target[:n].clone())
        for inputs, target in zip(x, y, strict=True)
    ]


@checked
def dictionary_lookup_task(n: int, seed: int = 0, num_graphs: int = 5000) -> Task:
    """The graphs of `dictionary_lookup` as a task (Table 1): the first four fifths train, the rest test.

    Keys have no label; the paper has no validation part. At least two keys: one alone leaves nothing to predict.
    """
    check_at_least(2, n=n, num_graphs=num_graphs)
    x, edge_index, y = _lookups(n, num_graphs, seed)
    first = 2 * n * torch.arange(num_graphs)
    graphs = Graphs(
        x=x.flatten(0, 1),
        edge_index=(edge_index.unsqueeze(1) + first.unsqueeze(1)).flatten(1),
        y=y.flatten(),
        level="node",
        node_ptr=2 * n * torch.arange(num_graphs + 1),
        edge_ptr=n * n * torch.arange(num_graphs + 1),
    )
    schema = Schema(vocabularies=(n + 1, n + 1), outputs=n)
    return _task(f"DictionaryLookup({n})", graphs, schema, seed, "cross_entropy", "accuracy")


@checked
def hetero_edge_count(c: int, num_graphs: int = 5000, seed: int = 0, max_nodes: int = 50) -> list[Data]:
    r"""HeteroEdgeCount (Section 5.1, Table 2): count the edges between nodes of different labels.

    For each graph, with :math:`\mathcal{U}` uniform and both ends included,

    .. math::
        n \sim \mathcal{U}\{2, \dots, n_{\max}\}, \qquad
        |\mathcal{E}| \sim \mathcal{U}\{\lfloor n^2 / 4 \rfloor, \dots, n^2\}, \qquad
        x_u \sim \mathcal{U}\{0, \dots, c-1\}, \qquad
        y = \sum_{(v, u) \in \mathcal{E}} [x_v \neq x_u],

    the edges drawn without replacement from the :math:`n^2` ordered pairs: self-loops occur,
    repeated edges do not.

    Args:
        c: Labels.
        num_graphs: Graphs to draw; the paper trains on the first 4,000 of 5,000.
        seed: Of all draws; no global random state is read or changed.
        max_nodes: Nodes of the largest possible graph.

    Returns:
        Graphs with ``x`` (int64, ``[n]``: the labels), ``edge_index`` (``[2, edges]``) and ``y``
        (float32, ``[1]``: the raw count, not normalised).
    """
    graphs, nodes, edges = _counts(c, num_graphs, seed, max_nodes)
    local = graphs.edge_index - torch.repeat_interleave(nodes.cumsum(0) - nodes, edges)
    parts = (graphs.x.squeeze(1).split(nodes.tolist()), local.split(edges.tolist(), 1), graphs.y.split(1))
    return [
        Data(x=x.clone(), edge_index=edge_index.clone(), y=y.clone()) for x, edge_index, y in zip(*parts, strict=True)
    ]


@checked
def hetero_edge_count_task(c: int, seed: int = 0, num_graphs: int = 5000, max_nodes: int = 50) -> Task:
    """The graphs of `hetero_edge_count` as a task (Table 2): the first four fifths train, the rest test.

    The paper has no validation part.
    """
    check_at_least(2, num_graphs=num_graphs)
    graphs, _, _ = _counts(c, num_graphs, seed, max_nodes)
    return _task(f"HeteroEdgeCount({c})", graphs, Schema(vocabularies=(c,)), seed, "mse", "mse")


def _task(name: str, graphs: Graphs, schema: Schema, seed: int, loss: str, metric: str) -> Task:
    count = graphs.num_graphs
    train, test = torch.arange(count).tensor_split([min(max(4 * count // 5, 1), count - 1)])
    split = Split(train, train[:0], test)
    return Task(name, graphs, schema, (split,), loss, metric, version=f"generated, seed {seed}")


def _lookups(n: int, num_graphs: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x `[G, 2n, 2]`, the edges of one graph, and y `[G, 2n]` with -1 at the keys."""
    check_at_least(1, n=n, num_graphs=num_graphs)
    check_at_least(0, seed=seed)
    rng = np.random.Generator(np.random.PCG64(seed))
    values = torch.from_numpy(rng.permuted(np.tile(np.arange(n), (num_graphs, 1)), axis=1))
    x = torch.empty(num_graphs, 2 * n, 2, dtype=torch.int64)
    x[:, :, 0] = torch.arange(n).repeat(2)
    x[:, :n, 1] = n
    x[:, n:, 1] = values
    edge_index = torch.cartesian_prod(torch.arange(n, 2 * n), torch.arange(n)).T.contiguous()
    return x, edge_index, torch.cat([values, torch.full_like(values, -1)], dim=1)


def _counts(c: int, num_graphs: int, seed: int, max_nodes: int) -> tuple[Graphs, torch.Tensor, torch.Tensor]:
    """The graphs, and the numbers of their nodes and edges."""
    check_at_least(1, c=c, num_graphs=num_graphs)
    check_at_least(0, seed=seed)
    check_at_least(2, max_nodes=max_nodes)
    rng = np.random.Generator(np.random.PCG64(seed))
    nodes = rng.integers(2, max_nodes, size=num_graphs, endpoint=True)
    edges = rng.integers(nodes**2 // 4, nodes**2, endpoint=True)
    node_ptr, edge_ptr = (np.concatenate([[0], np.cumsum(count)]) for count in (nodes, edges))
    label = rng.integers(c, size=node_ptr[-1])
    edge_index = np.empty((2, edge_ptr[-1]), np.int64)
    # All graphs of a size at once, a row of pairs for each: the first of a shuffled row are drawn without replacement.
    for n in np.unique(nodes).tolist():
        same = np.flatnonzero(nodes == n)
        pairs = rng.permuted(np.tile(np.arange(n * n), (len(same), 1)), axis=1)
        drawn = np.arange(n * n) < edges[same, None]
        place = (edge_ptr[same, None] + np.arange(n * n))[drawn]
        edge_index[:, place] = np.divmod(pairs[drawn], n)
    edge_index += np.repeat(node_ptr[:-1], edges)
    differs = np.concatenate([[0], np.cumsum(label[edge_index[0]] != label[edge_index[1]])])
    graphs = Graphs(
        x=torch.from_numpy(label).unsqueeze(1),
        edge_index=torch.from_numpy(edge_index),
        y=torch.from_numpy(differs[edge_ptr[1:]] - differs[edge_ptr[:-1]]).float(),
        level="graph",
        node_ptr=torch.from_numpy(node_ptr),
        edge_ptr=torch.from_numpy(edge_ptr),
    )
    return graphs, torch.from_numpy(nodes), torch.from_numpy(edges)
