"""The synthetic data sets: DictionaryLookup and HeteroEdgeCount of Section 5.1, and UniqueSignature of SINC-GCN.

A seed gives the same graphs on any machine: all draws are integers of the generator PCG64, or such integers divided by
a power of two, and nothing is rounded.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from sirgcn.data.graphs import Graphs
from sirgcn.data.schema import Schema
from sirgcn.data.splits import Split
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError, check_at_least
from sirgcn.strict import checked


@checked
def dictionary_lookup(n: int, num_graphs: int = 5000, seed: int = 0) -> list[Data]:
    r"""Return DictionaryLookup (Section 5.1, Table 1): the value of each query is to be found among the keys.

    The nodes :math:`0, \dots, n-1` are queries and the nodes :math:`n, \dots, 2n-1` are keys. With a
    permutation :math:`\pi` that is drawn for each graph,

    .. math::
        x_i = (i, n), \qquad x_{n+i} = (i, \pi(i)), \qquad y_i = \pi(i), \qquad i = 0, \dots, n-1,

    where the value :math:`n` stands for "empty", and every key sends an edge to every query.

    Args:
        n: The number of keys in a graph, and of queries.
        num_graphs: The number of graphs. The paper trains on the first 4,000 of 5,000.
        seed: The seed of the permutations. No global random state is read or changed.

    Returns:
        Graphs with ``x`` (int64, ``[2n, 2]``: attribute and value), ``edge_index``
        (``[2, n * n]``), ``query_mask`` (bool, ``[2n]``) and ``y`` (int64, ``[n]``: the queries'
        values, in the order of ``x[query_mask]``, also in a batch). All graphs share one
        ``edge_index`` and one ``query_mask``, which would otherwise take most of the memory; do
        not change them in place.

    >>> graph = dictionary_lookup(n=3, num_graphs=1)[0]
    >>> graph.x.shape, graph.edge_index.shape, graph.y.sort().values.tolist()
    (torch.Size([6, 2]), torch.Size([2, 9]), [0, 1, 2])
    """
    x, edge_index, y = _lookups(n, num_graphs, seed)
    query_mask = torch.arange(2 * n) < n
    # Copies, because a view would carry all graphs into every pickle and deepcopy.
    return [
        Data(x=inputs.clone(), edge_index=edge_index, query_mask=query_mask, y=target[:n].clone())
        for inputs, target in zip(x, y, strict=True)
    ]


@checked
def dictionary_lookup_task(n: int, seed: int = 0, num_graphs: int = 5000) -> Task:
    """Return the graphs of `dictionary_lookup` as a task (Table 1): the first four fifths train, the others test.

    Keys have no label, and there is no validation part, as in the paper. There are at least two keys, because with one
    key there is nothing to predict.

    >>> task = dictionary_lookup_task(n=3, num_graphs=5)
    >>> task.name, task.schema.outputs, len(task.splits[0].train)
    ('DictionaryLookup(3)', 3, 4)
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
    r"""Return HeteroEdgeCount (Section 5.1, Table 2): the edges between nodes of different labels are to be counted.

    For each graph, with :math:`\mathcal{U}` uniform and both ends included,

    .. math::
        n \sim \mathcal{U}\{2, \dots, n_{\max}\}, \qquad
        |\mathcal{E}| \sim \mathcal{U}\{\lfloor n^2 / 4 \rfloor, \dots, n^2\}, \qquad
        x_u \sim \mathcal{U}\{0, \dots, c-1\}, \qquad
        y = \sum_{(v, u) \in \mathcal{E}} [x_v \neq x_u],

    where edges are drawn without replacement from the :math:`n^2` ordered pairs: self-loops occur,
    repeated edges do not.

    Args:
        c: The number of labels.
        num_graphs: The number of graphs. The paper trains on the first 4,000 of 5,000.
        seed: The seed of all draws. No global random state is read or changed.
        max_nodes: The number of nodes of the largest possible graph.

    Returns:
        Graphs with ``x`` (int64, ``[n]``: the labels), ``edge_index`` (``[2, edges]``) and ``y``
        (float32, ``[1]``: the raw count, not normalised).

    >>> graph = hetero_edge_count(c=2, num_graphs=1)[0]
    >>> source, target = graph.edge_index
    >>> graph.y.item() == (graph.x[source] != graph.x[target]).sum().item()
    True
    """
    graphs, nodes, edges = _counts(c, num_graphs, seed, max_nodes)
    local = graphs.edge_index - torch.repeat_interleave(nodes.cumsum(0) - nodes, edges)
    parts = (graphs.x.squeeze(1).split(nodes.tolist()), local.split(edges.tolist(), 1), graphs.y.split(1))
    return [
        Data(x=x.clone(), edge_index=edge_index.clone(), y=y.clone()) for x, edge_index, y in zip(*parts, strict=True)
    ]


@checked
def hetero_edge_count_task(c: int, seed: int = 0, num_graphs: int = 5000, max_nodes: int = 50) -> Task:
    """Return the graphs of `hetero_edge_count` as a task (Table 2): the first four fifths train, the others test.

    There is no validation part, as in the paper.

    >>> task = hetero_edge_count_task(c=3, num_graphs=5)
    >>> task.metric, task.schema.vocabularies
    ('mse', (3,))
    """
    check_at_least(2, num_graphs=num_graphs)
    graphs, _, _ = _counts(c, num_graphs, seed, max_nodes)
    return _task(f"HeteroEdgeCount({c})", graphs, Schema(vocabularies=(c,)), seed, "mse", "mse")


@checked
def unique_signature(
    p: float = 0.5, r: int = 5, num_graphs: int = 5000, seed: int = 0, min_nodes: int = 30, max_nodes: int = 70
) -> list[Data]:
    r"""Return UniqueSignature (Lim, arXiv 2511.11046): does a neighbour have the value that all neighbours sum up to?

    Each graph is an undirected Erdos-Renyi graph without self-loops. With :math:`\mathcal{U}` uniform and both ends
    included,

    .. math::
        n \sim \mathcal{U}\{n_{\min}, \dots, n_{\max}\}, \qquad
        x_u \sim \mathcal{U}\{-\lfloor r / 2 \rfloor, \dots, r - 1 - \lfloor r / 2 \rfloor\}, \qquad
        y_u = \Big[\exists\, v \in \mathcal{N}(u): x_v = \sum_{w \in \mathcal{N}(u)} x_w\Big],

    where every pair of nodes is joined with the probability p. A node without neighbours has the label 0.

    Args:
        p: The probability of an edge.
        r: The number of consecutive values that a node can have.
        num_graphs: The number of graphs. The authors train on the first 4,000 of 5,000.
        seed: The seed of all draws. No global random state is read or changed.
        min_nodes: The number of nodes of the smallest possible graph.
        max_nodes: The number of nodes of the largest possible graph.

    Returns:
        Graphs with ``x`` (float32, ``[n, 1]``: the values), ``edge_index`` (``[2, edges]``: both directions) and ``y``
        (float32, ``[n]``: 0 or 1).

    >>> graph = unique_signature(p=1.0, r=3, num_graphs=1, min_nodes=3, max_nodes=3)[0]
    >>> others = [graph.x[graph.edge_index[0, graph.edge_index[1] == u], 0] for u in range(3)]
    >>> graph.y.tolist() == [float(values.sum() in values) for values in others]
    True
    """
    graphs = _signatures(p, r, num_graphs, seed, min_nodes, max_nodes)
    return [Data(x=graph.x, edge_index=graph.edge_index, y=graph.y) for graph in graphs]


@checked
def unique_signature_task(
    p: float = 0.5,
    r: int = 5,
    seed: int = 0,
    num_graphs: int = 5000,
    min_nodes: int = 30,
    max_nodes: int = 70,
) -> Task:
    """Return the graphs of `unique_signature` as a task: the first four fifths train, the others test.

    There is no validation part, as in the authors' runs. The metric is balanced accuracy, because fewer nodes are
    positive than negative.

    >>> task = unique_signature_task(r=3, num_graphs=5)
    >>> task.name, task.metric, task.schema.features
    ('UniqueSignature(0.5, 3)', 'balanced_accuracy', 1)
    """
    check_at_least(2, num_graphs=num_graphs)
    graphs = _signatures(p, r, num_graphs, seed, min_nodes, max_nodes)
    name = f"UniqueSignature({p:g}, {r})"
    return _task(name, graphs, Schema(features=1), seed, "binary_cross_entropy", "balanced_accuracy")


def _task(name: str, graphs: Graphs, schema: Schema, seed: int, loss: str, metric: str) -> Task:
    count = graphs.num_graphs
    train, test = torch.arange(count).tensor_split([min(max(4 * count // 5, 1), count - 1)])
    split = Split(train, train[:0], test)
    return Task(name, graphs, schema, (split,), loss, metric, version=f"generated, seed {seed}")


def _lookups(n: int, num_graphs: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x `[G, 2n, 2]`, the edges of one graph, and y `[G, 2n]` with -1 at the keys."""
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
    """Return the graphs, and the numbers of their nodes and edges."""
    check_at_least(1, c=c, num_graphs=num_graphs)
    check_at_least(0, seed=seed)
    check_at_least(2, max_nodes=max_nodes)
    rng = np.random.Generator(np.random.PCG64(seed))
    nodes = rng.integers(2, max_nodes, size=num_graphs, endpoint=True)
    edges = rng.integers(nodes**2 // 4, nodes**2, endpoint=True)
    node_ptr, edge_ptr = (np.concatenate([[0], np.cumsum(count)]) for count in (nodes, edges))
    label = rng.integers(c, size=node_ptr[-1])
    edge_index = np.empty((2, edge_ptr[-1]), np.int64)
    # All graphs of a size at once. The first entries of a shuffled row of pairs are a draw without replacement.
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


def _signatures(p: float, r: int, num_graphs: int, seed: int, min_nodes: int, max_nodes: int) -> Graphs:
    # Written so that NaN is refused too.
    if not 0 <= p <= 1:
        raise DataError(f"expected a probability, got {p}", "p", value=p)
    check_at_least(1, r=r, num_graphs=num_graphs, min_nodes=min_nodes)
    check_at_least(0, seed=seed)
    check_at_least(min_nodes, max_nodes=max_nodes)
    rng = np.random.Generator(np.random.PCG64(seed))
    nodes = rng.integers(min_nodes, max_nodes, size=num_graphs, endpoint=True)
    node_ptr = np.concatenate([[0], np.cumsum(nodes)])
    value = rng.integers(r, size=node_ptr[-1]) - r // 2
    pairs = [rng.random(n * (n - 1) // 2) < p for n in nodes.tolist()]
    edge_ptr = np.concatenate([[0], np.cumsum([2 * drawn.sum() for drawn in pairs])])
    edge_index = np.empty((2, edge_ptr[-1]), np.int64)
    for first, start, end, n, drawn in zip(node_ptr, edge_ptr, edge_ptr[1:], nodes, pairs, strict=False):
        one, other = (ends[drawn] for ends in np.triu_indices(n, 1))
        # By target, so that the edges into a node are one range.
        order = np.lexsort((np.concatenate([one, other]), np.concatenate([other, one])))
        edge_index[0, start:end] = first + np.concatenate([one, other])[order]
        edge_index[1, start:end] = first + np.concatenate([other, one])[order]
    return Graphs(
        x=torch.from_numpy(value).float().unsqueeze(1),
        edge_index=torch.from_numpy(edge_index),
        y=torch.from_numpy(_has_signature(value, edge_index)).float(),
        level="node",
        node_ptr=torch.from_numpy(node_ptr),
        edge_ptr=torch.from_numpy(edge_ptr),
    )


def _has_signature(value: NDArray[np.int64], edge_index: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether a neighbour of each node has the value that the values of all its neighbours sum up to."""
    source, target = edge_index
    total = np.zeros_like(value)
    np.add.at(total, target, value[source])
    found = np.zeros(len(value), bool)
    found[target[value[source] == total[target]]] = True
    return found
