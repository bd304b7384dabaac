r"""Pseudometrics on node features (Section 3): what a task deems similar, and rules that make new pseudometrics.

`d(x, y)` returns all distances `[n, m]` between rows of features; leading dimensions are batches. A contextual
pseudometric :math:`d(x, y; h_u)` is called as `d(x, y, query=h_u)`. If d is known to be
:math:`\lVert g(x) - g(y) \rVert`, its attribute `features` is g. Use float64: squares of distances lose half of the
digits.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from sirgcn.nn import SIRConv

Features = Callable[[Tensor, Tensor | None], Tensor]
"""The type of g(x; h_u), which maps features `[*, n, F]` and a query `[*, Q]` or None to `[*, n, S]`."""


class _Squared(Protocol):
    def __call__(self, x: Tensor, y: Tensor, query: Tensor | None) -> Tensor:
        """All squared distances, `[*, n, m]`."""


@dataclass(frozen=True, eq=False, repr=False)
class Pseudometric:
    r"""A pseudometric d(x, y), or d(x, y; h_u) if it is contextual (Definition 1, Assumption 1).

    The operators of Remark 1 keep Assumption 1 if their parts satisfy it:

    - `a * d` with a > 0,
    - `d1 & d2` for :math:`\sqrt{d_1^2 + d_2^2}`, which is 0 where both are 0,
    - `d ** p` with 0 < p <= 1.

    Args:
        name: how the pseudometric is written.
        squared: d^2 between all rows of x `[*, n, F]` and of y `[*, m, F]`.
        features: g with d = ||g(x) - g(y)||, if one is known.
        contextual: whether d needs a query.

    >>> d = 2 * euclidean() & discrete()
    >>> d
    Pseudometric(sqrt(2 * euclidean^2 + discrete^2))
    >>> d.squares(torch.tensor([[0.0], [1.0]])).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """

    name: str
    squared: _Squared
    features: Features | None = None
    contextual: bool = False

    def __call__(self, x: Tensor, y: Tensor | None = None, query: Tensor | None = None) -> Tensor:
        """All distances, `[*, n, m]`; y defaults to x."""
        return self.squares(x, y, query).sqrt()

    def squares(self, x: Tensor, y: Tensor | None = None, query: Tensor | None = None) -> Tensor:
        """All squared distances, `[*, n, m]`; y defaults to x."""
        y = x if y is None else y
        for name, rows in (("x", x), ("y", y)):
            if rows.dim() < 2:
                raise ValueError(f"{name}: expected rows of features [n, channels], got shape {list(rows.shape)}")
        if x.size(-1) != y.size(-1):
            raise ValueError(f"y: expected {x.size(-1)} channels as x has, got {y.size(-1)}")
        self.check_query(query)
        return self.squared(x, y, query)

    def check_query(self, query: Tensor | None) -> None:
        """Raise a ValueError if d needs a query and there is none, or if there is one and d needs none."""
        if self.contextual and query is None:
            raise ValueError(f"query: {self.name} is contextual and expects the query's features h_u, got None")
        if not self.contextual and query is not None:
            raise ValueError(f"query: {self.name} is not contextual and expects None, got {list(query.shape)}")

    def __rmul__(self, factor: float) -> "Pseudometric":
        """`a * d` for a finite a > 0."""
        if not isinstance(factor, (int, float)):
            return NotImplemented
        if not 0 < factor < math.inf:
            raise ValueError(f"a * d: expected a finite a > 0 (Remark 1), got {factor}")
        g = self.features
        return Pseudometric(
            f"{factor:g} * {self.name}",
            lambda x, y, query: factor**2 * self.squared(x, y, query),
            None if g is None else lambda x, query: factor * g(x, query),
            self.contextual,
        )

    __mul__ = __rmul__

    def __and__(self, other: "Pseudometric") -> "Pseudometric":
        r""":math:`\sqrt{d_1^2 + d_2^2}`: similar is what both deem similar. Only contextual parts get the query."""
        if not isinstance(other, Pseudometric):
            return NotImplemented
        one, two = self.features, other.features
        features: Features | None = None
        if one is not None and two is not None:
            features = lambda x, query: _joined(one(x, self._own(query)), two(x, other._own(query)))  # noqa: E731
        return Pseudometric(
            f"sqrt({self.name}^2 + {other.name}^2)",
            lambda x, y, query: self.squared(x, y, self._own(query)) + other.squared(x, y, other._own(query)),
            features,
            self.contextual or other.contextual,
        )

    def __pow__(self, exponent: float) -> "Pseudometric":
        """`d ** p` for 0 < p <= 1. With p > 1 the triangle inequality may fail."""
        if not 0 < exponent <= 1:
            raise ValueError(f"d ** p: expected 0 < p <= 1 (Remark 1), got {exponent}")
        if exponent == 1:
            return self
        return Pseudometric(
            f"({self.name})^{exponent:g}",
            lambda x, y, query: self.squared(x, y, query) ** exponent,
            contextual=self.contextual,
        )

    def _own(self, query: Tensor | None) -> Tensor | None:
        return query if self.contextual else None

    def __repr__(self) -> str:
        return f"Pseudometric({self.name}{'; h_u' * self.contextual})"


def feature_distance(g: Callable[..., Tensor], name: str | None = None, contextual: bool = False) -> Pseudometric:
    r"""The distance :math:`\lVert g(x) - g(y) \rVert` for any function g. It satisfies Assumption 1 for every g.

    Args:
        g: maps rows `[*, n, F]` to `[*, n, S]`. If `contextual`, it is called as `g(x, query)` with a query `[*, Q]`.
        name: how the pseudometric is written.
        contextual: whether g reads the query h_u.

    >>> d = feature_distance(torch.abs)
    >>> d(torch.tensor([[1.0]]), torch.tensor([[-1.0], [3.0]])).tolist()
    [[0.0, 2.0]]
    """

    def features(x: Tensor, query: Tensor | None) -> Tensor:
        with observed(g):
            return g(x, query) if contextual else g(x)

    return Pseudometric(
        name or str(getattr(g, "__name__", type(g).__name__)),
        lambda x, y, query: row_distances(features(x, query), features(y, query)).square(),
        features,
        contextual,
    )


def euclidean() -> Pseudometric:
    r"""The distance :math:`\lVert x - y \rVert`. Its hash function is linear (Figure 2, left).

    >>> euclidean()(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])).tolist()
    [[5.0]]
    """
    return feature_distance(lambda x: x, "euclidean")


def squared_score() -> Pseudometric:
    r"""The distance :math:`\lVert x^2 - y^2 \rVert` of elementwise squares: x and -x are similar (Figures 1 and 2).

    >>> squared_score()(torch.tensor([[2.0]]), torch.tensor([[-2.0], [1.0]])).tolist()
    [[0.0, 3.0]]
    """
    return feature_distance(lambda x: x.square(), "squared_score")


def mahalanobis(precision: Tensor) -> Pseudometric:
    r"""The distance :math:`\sqrt{(x - y)^\top P (x - y)}` for a symmetric P `[F, F]` without negative eigenvalues.

    P is the inverse of a covariance. If P does not have full rank, d is not a metric but still a pseudometric.

    >>> d = mahalanobis(torch.diag(torch.tensor([4.0, 0.0])))
    >>> d(torch.zeros(1, 2), torch.tensor([[1.0, 9.0]])).tolist()
    [[2.0]]
    """
    check_symmetric(precision, "precision")
    values, vectors = torch.linalg.eigh(precision)
    smallest = float(values.min()) if values.numel() else 0.0
    if smallest < -1e-10 * float(values.abs().max().clamp(min=1e-300)):
        raise ValueError(f"precision: expected no negative eigenvalue, got {smallest:.3g}")
    root = vectors * values.clamp(min=0).sqrt()
    return feature_distance(lambda x: x @ root, "mahalanobis")


def discrete() -> Pseudometric:
    """The distance that is 0 for equal rows and 1 for different rows: every difference counts the same.

    >>> discrete()(torch.tensor([[1.0], [2.0]])).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    def squared(x: Tensor, y: Tensor, query: Tensor | None) -> Tensor:
        return (x.unsqueeze(-2) != y.unsqueeze(-3)).any(-1).to(torch.float64)

    return Pseudometric("discrete", squared)


def gaussian(base: Pseudometric | None = None, scale: float = 1.0) -> Pseudometric:
    r"""The distance between the features of a Gaussian kernel, :math:`\sqrt{2 - 2 \exp(-d^2(x, y) / 2 s^2)}`.

    The kernel is positive definite if d satisfies Assumption 1. On Euclidean space it is integrally strictly positive
    definite, so that D of Corollary 1 is a metric.

    Args:
        base: d; None means the Euclidean distance.
        scale: s.

    >>> d = gaussian(scale=0.1)
    >>> round(d(torch.tensor([[0.0]]), torch.tensor([[9.0]])).item() ** 2, 6)
    2.0
    """
    if not scale > 0:
        raise ValueError(f"scale: expected more than 0, got {scale}")
    of = euclidean() if base is None else base
    return Pseudometric(
        f"gaussian({of.name}, {scale:g})",
        lambda x, y, query: -2 * torch.expm1(of.squared(x, y, query) / (-2 * scale**2)),
        contextual=of.contextual,
    )


def table_distance(distances: Tensor, name: str = "table") -> Pseudometric:
    """Prior knowledge about categories: `d(x, y) = distances[x, y]` for one column of integers.

    `distances` `[K, K]` is symmetric, not negative, and 0 on the diagonal. `check_axioms` tells whether the triangle
    inequality holds, and `check_assumption` tells whether Assumption 1 holds.

    >>> d = table_distance(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    >>> d(torch.tensor([[0]]), torch.tensor([[0], [1]])).tolist()
    [[0.0, 1.0]]
    """
    check_distances(distances, "distances")
    squares = distances.square()

    def squared(x: Tensor, y: Tensor, query: Tensor | None) -> Tensor:
        for side, rows in (("x", x), ("y", y)):
            if rows.size(-1) != 1 or rows.is_floating_point():
                raise ValueError(
                    f"{side}: {name} expects one column of integers, got {rows.dtype} with {rows.size(-1)} columns"
                )
            outside = rows[(rows < 0) | (rows >= len(squares))]
            if outside.numel():
                raise ValueError(
                    f"{side}: {name} expects categories from 0 to {len(squares) - 1}, got {int(outside[0])}"
                )
        return squares[x, y.transpose(-1, -2)]

    return Pseudometric(name, squared)


def manhattan() -> Pseudometric:
    r"""The metric :math:`\sum_i |x_i - y_i|`, which violates Assumption 1. Remark 1 therefore does not mention it.

    On the origin and the four points :math:`\pm e_1, \pm e_2`, the origin would have to be the midpoint of any two of
    the others. The root `manhattan() ** 0.5` satisfies the assumption (Schoenberg 1938).

    >>> manhattan()(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])).tolist()
    [[7.0]]
    """

    def squared(x: Tensor, y: Tensor, query: Tensor | None) -> Tensor:
        return torch.cdist(floating(x), floating(y), p=1).square()

    return Pseudometric("manhattan", squared)


def violating_example() -> tuple[Pseudometric, Tensor]:
    """A metric and a sample on which it violates Assumption 1: `manhattan()` on 0, ±e1 and ±e2, `[5, 2]`.

    >>> from sirgcn.theory import check_assumption
    >>> bool(check_assumption(*violating_example()))
    False
    """
    axes = torch.eye(2, dtype=torch.float64)
    return manhattan(), torch.cat([torch.zeros_like(axes[:1]), axes, -axes])


def layer_distance(conv: SIRConv) -> Pseudometric:
    r"""The contextual pseudometric that a trained layer has learnt (Eq. 11, read through Eqs. 9 and 10).

    .. math:: d(x, y; h_u) = \lVert W_R \, \sigma(W_Q h_u + W_K x) - W_R \, \sigma(W_Q h_u + W_K y) \rVert

    With the sum aggregator, the output of the layer is the hash of this d: the outputs of two neighbourhoods of one
    query are D apart. With the mean aggregator they are D / n apart. For a layer with a `message_network` g, d is the
    distance of :math:`g([h_u \Vert x])`. A layer with edge features raises a ValueError, because its messages are not
    a function of x and h_u.

    >>> d = layer_distance(SIRConv(3, 4))
    >>> d(torch.ones(2, 3), query=torch.zeros(3)).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    if not isinstance(conv, SIRConv):
        raise TypeError(f"conv: expected a SIRConv, got {type(conv).__name__}; feature_distance takes any g")
    if conv.edge_dim is not None:
        raise ValueError(f"conv: expected a layer without edge features, got edge_dim={conv.edge_dim}")
    return feature_distance(_Message(conv), f"messages of {conv!r}", contextual=True)


class _Message(nn.Module):
    """The message g(x; h_u) of a layer, without the terms that the layer adds once per node."""

    def __init__(self, conv: SIRConv) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, query: Tensor) -> Tensor:
        conv, query = self.conv, query.unsqueeze(-2)
        if conv.message_network is not None:
            shape = torch.broadcast_shapes(x.shape[:-1], query.shape[:-1])
            return conv.message_network(torch.cat([query.expand(*shape, -1), x.expand(*shape, -1)], dim=-1))
        return conv.lin_relation(conv.activation(conv.lin_query(query) + conv.lin_key(x)))


@contextmanager
def observed(*functions: object) -> Iterator[None]:
    """Inside this context, modules among the functions are in eval mode, and torch records no gradients."""
    modules = [part for function in functions if isinstance(function, nn.Module) for part in function.modules()]
    modes = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


def check_symmetric(matrix: Tensor, name: str = "matrix") -> None:
    """Raise a ValueError unless the matrix is square, finite, symmetric and floating-point, with at least one row."""
    if matrix.dim() != 2 or matrix.size(0) != matrix.size(1) or not matrix.is_floating_point():
        raise ValueError(
            f"{name}: expected a square floating-point matrix, got {matrix.dtype} of shape {list(matrix.shape)}"
        )
    if matrix.numel() == 0:
        raise ValueError(f"{name}: expected at least one row, got an empty matrix")
    if not bool(matrix.isfinite().all()):
        raise ValueError(f"{name}: expected finite entries, got some that are not")
    gap = (matrix - matrix.T).abs()
    if float(gap.max()) > _tolerance(matrix):
        i, j = divmod(int(gap.argmax()), matrix.size(0))
        raise ValueError(
            f"{name}: expected a symmetric matrix, got {float(matrix[i, j]):.6g} at [{i}, {j}] "
            f"and {float(matrix[j, i]):.6g} at [{j}, {i}]"
        )


def check_distances(matrix: Tensor, name: str = "distances") -> None:
    """Raise a ValueError unless the matrix is symmetric, has no negative entry, and is 0 on the diagonal."""
    check_symmetric(matrix, name)
    if float(matrix.min()) < 0:
        i, j = divmod(int(matrix.argmin()), matrix.size(0))
        raise ValueError(f"{name}: expected no negative distance, got {float(matrix.min()):.6g} at [{i}, {j}]")
    own = matrix.diagonal().abs()
    if float(own.max()) > _tolerance(matrix):
        raise ValueError(f"{name}: expected 0 on the diagonal, got {float(own.max()):.6g} at {int(own.argmax())}")


def _tolerance(matrix: Tensor) -> float:
    """The rounding error of an entry: a few units in the last place of the largest entry."""
    return 64 * torch.finfo(matrix.dtype).eps * float(matrix.abs().max())


def row_distances(x: Tensor, y: Tensor) -> Tensor:
    """Euclidean distances between all rows, `[*, n, m]`.

    They are computed from differences. By a matrix product, two close rows would lose all digits of their distance.
    """
    return torch.cdist(floating(x), floating(y), compute_mode="donot_use_mm_for_euclid_dist")


def floating(x: Tensor) -> Tensor:
    """x itself, or x in float64 if it holds integers."""
    return x if x.is_floating_point() else x.double()


def _joined(one: Tensor, two: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(one.shape[:-1], two.shape[:-1])
    return torch.cat([one.expand(*shape, -1), two.expand(*shape, -1)], dim=-1)
