"""The synthetic data sets of Section 5.1: DictionaryLookup and HeteroEdgeCount."""

from numbers import Integral

import numpy as np
import torch
from torch_geometric.data import Data


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
    _check_at_least(1, n=n, num_graphs=num_graphs)
    _check_at_least(0, seed=seed)
    rng = np.random.default_rng(seed)
    values = torch.from_numpy(rng.permuted(np.tile(np.arange(n), (num_graphs, 1)), axis=1))

    attribute = torch.arange(n)
    key, query = torch.cartesian_prod(attribute + n, attribute).unbind(1)
    edge_index = torch.stack([key, query])
    query_mask = torch.arange(2 * n) < n
    empty = torch.full((n,), n)
    return [
        Data(
            x=torch.stack([attribute.repeat(2), torch.cat([empty, value])], dim=1),
            edge_index=edge_index,
            query_mask=query_mask,
            # A copy: as a view it would carry all graphs' values into every pickle and deepcopy.
            y=value.clone(),
        )
        for value in values
    ]


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
    _check_at_least(1, c=c, num_graphs=num_graphs)
    _check_at_least(0, seed=seed)
    _check_at_least(2, max_nodes=max_nodes)
    rng = np.random.default_rng(seed)
    graphs = []
    for n in rng.integers(2, max_nodes, size=num_graphs, endpoint=True).tolist():
        num_edges = rng.integers(n * n // 4, n * n, endpoint=True)
        pairs = rng.choice(n * n, size=num_edges, replace=False)
        edge_index = torch.from_numpy(np.stack(np.divmod(pairs, n)))
        label = torch.from_numpy(rng.integers(c, size=n))
        source, target = label[edge_index]
        y = (source != target).sum(dtype=torch.float32).view(1)
        graphs.append(Data(x=label, edge_index=edge_index, y=y))
    return graphs


def _check_at_least(minimum: int, **arguments: object) -> None:
    for name, value in arguments.items():
        expected = f"{name}: expected an integer >= {minimum}, got {value!r}"
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"{expected} of type {type(value).__name__}")
        if int(value) < minimum:
            raise ValueError(expected)
