r"""How far labels agree along edges, after Platonov et al., *Characterizing Graph Datasets for Node Classification:
Homophily-Heterophily Dichotomy and Beyond* (NeurIPS 2023)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Homophily:
    r"""Measures of label agreement. They are NaN if all ends of edges have one class.

    With :math:`p(c, d)` the share of edges between classes c and d, each edge counted in both directions, and
    :math:`\bar p(c) = \sum_d p(c, d)`:

    Args:
        edge: :math:`h = \sum_c p(c, c)`, the share of edges within a class.
        adjusted: :math:`(h - \sum_c \bar p(c)^2) / (1 - \sum_c \bar p(c)^2)`, which is 0 if labels are independent of
            the edges, whatever the sizes of the classes.
        informativeness: :math:`\sum_{c,d} p(c, d) \log \frac{p(c, d)}{\bar p(c) \bar p(d)} \,/\, {-\sum_c} \bar p(c)
            \log \bar p(c)`, how much the label of a neighbour says about the label of a node, from 0 (nothing) to 1
            (everything).

    >>> homophily(torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([0, 0, 1, 1])).edge
    0.6666666666666666
    """

    edge: float
    adjusted: float
    informativeness: float


def homophily(edge_index: Tensor, y: Tensor) -> Homophily | None:
    """Return the measures of a graph with the classes y (int64 `[V]`, -1: no class).

    Self-loops and edges at a node without a class do not count; repeated edges do. If no edge counts, the result is
    None.

    >>> homophily(torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 1]))
    Homophily(edge=0.0, adjusted=-1.0, informativeness=1.0)
    """
    source, target = edge_index
    ends = torch.stack([y[source], y[target]])[:, (source != target) & (y[source] >= 0) & (y[target] >= 0)]
    if ends.size(1) == 0:
        return None
    classes, codes = ends.unique(return_inverse=True)
    count = len(classes)
    # Sparse, because most pairs of thousands of classes share no edge. Each edge counts in both directions.
    pairs = np.append(*(codes[first] * count + codes[1 - first] for first in (0, 1)))
    pairs, joint = np.unique(pairs, return_counts=True)
    c, d, p = pairs // count, pairs % count, joint / joint.sum()
    share = np.bincount(c, p)
    edge = float(p[c == d].sum())
    if count == 1:
        return Homophily(edge, float("nan"), float("nan"))
    chance = float((share**2).sum())
    information = float((p * np.log(p / (share[c] * share[d]))).sum())
    return Homophily(edge, (edge - chance) / (1 - chance), information / float(-(share * np.log(share)).sum()))
