"""Theorem 1: the soft-injective feature map g of a pseudometric, from a sample."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sirgcn.theory.definiteness import centred_kernel, conditionally_positive_definite
from sirgcn.theory.pseudometrics import Pseudometric, check_distances, check_symmetric

# An eigenvalue below this part of the largest one is rounding.
_RANK = 1e-12
# The rounding error of a squared residual, relative to the largest squared distance.
# The weakest direction magnifies it.
_RESIDUAL = 1e-8


@dataclass(frozen=True, eq=False, repr=False)
class FeatureMap:
    r"""The map g with :math:`\lVert g(x) - g(y) \rVert = d(x, y)` on a sample (Theorem 1), extended to other points.

    `feature_map` makes it from a pseudometric, and `FeatureMap.of_kernel` makes it from a kernel (Theorem 2).

    Attributes:
        features: g of the sample, `[N, S]`; S <= N - 1 is the dimension that the sample needs.

    >>> FeatureMap.of_kernel(torch.tensor([[0.0, -4.0], [-4.0, 0.0]], dtype=torch.float64))
    FeatureMap(2 points in 1 dimensions)
    """

    features: Tensor
    _kernel: Tensor
    _axes: Tensor
    _d: Pseudometric | None = None
    _sample: Tensor | None = None
    _query: Tensor | None = None

    @classmethod
    def of_kernel(cls, kernel: Tensor) -> "FeatureMap":
        r"""The representation of Theorem 2 (Eq. 22): :math:`\lVert g(x) - g(y) \rVert^2 = -\tilde k(x, y)`.

        Args:
            kernel: conditionally positive definite, symmetric, 0 on the diagonal, `[N, N]`, float64 for exact squares.
        """
        check_symmetric(kernel, "kernel")
        check_distances(-kernel, "-kernel")
        found = conditionally_positive_definite(kernel)
        if not found:
            raise ValueError(
                "kernel: expected a conditionally positive definite one (Assumption 1), got c^T K c = "
                f"{found.smallest:.3g} for c = {[round(c, 3) for c in found.coefficients.tolist()[:8]]}"
            )
        values, vectors = torch.linalg.eigh(centred_kernel(kernel))
        kept = values > _RANK * values[-1].clamp(min=0)
        # If all points of the sample are similar, there is no direction at all.
        kept &= values > 0
        root = values[kept].sqrt()
        return cls(vectors[:, kept] * root, kernel, vectors[:, kept] / root)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features `[m, S]` of new points x `[m, F]`, and their residuals `[m]`.

        The features of x are the point in the space of the sample that is closest to g(x). Distances from it to the
        sample, and between new points, are at most d. The squared distance to a point y of the sample is
        d(x, y)^2 - residual^2. A point of the sample has residual 0.
        """
        if self._d is None or self._sample is None:
            raise ValueError("project: a map of a kernel knows no points, expected one that feature_map has made")
        return self.project_squares(self._d.squares(x, self._sample, self._query))

    def project_squares(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """The same as `project`, from the squared distances `[m, N]` of new points to the sample."""
        if squares.dim() != 2 or squares.size(1) != len(self._kernel):
            raise ValueError(f"squares: expected shape [m, {len(self._kernel)}], got {list(squares.shape)}")
        # Eq. 25 with the mean of the sample as h_0: the squared length, and the inner products with the sample.
        length = squares.mean(1) + self._kernel.mean() / 2
        inner = (squares.mean(1, keepdim=True) - squares - self._kernel.mean(0) + self._kernel.mean()) / 2
        features = inner @ self._axes
        residual = length - features.square().sum(1)
        if bool((residual < -_RESIDUAL * squares.amax(1)).any()):
            raise ValueError(
                "x: expected distances that satisfy Assumption 1 together with the sample, "
                f"got a squared residual of {float(residual.min()):.3g}"
            )
        return features, residual.clamp(min=0).sqrt()

    def __repr__(self) -> str:
        return f"FeatureMap({len(self.features)} points in {self.features.size(1)} dimensions)"


def feature_map(d: Pseudometric, x: Tensor, query: Tensor | None = None) -> FeatureMap:
    r"""Theorem 1 on the sample x `[N, F]`: the map g with :math:`\lVert g(x) - g(y) \rVert = d(x, y)`.

    g is the square root of the centred kernel of -d^2 (Schoenberg; classical scaling). It is exact up to the rounding
    of squares. If d violates Assumption 1 on the sample, this raises a ValueError.

    >>> from sirgcn.theory import euclidean
    >>> g = feature_map(euclidean(), torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64))
    >>> round((g.features[0] - g.features[1]).norm().item(), 6)
    5.0
    """
    if len(x) == 0:
        raise ValueError("x: expected at least one row, got an empty sample")
    found = FeatureMap.of_kernel(-d.squares(x, query=query))
    return FeatureMap(found.features, found._kernel, found._axes, d, x, query)


@dataclass(frozen=True, eq=False)
class SoftInjectivity:
    """Whether distances and their images lie in the same interval (Eqs. 5 and 7). `soft_injectivity` returns it.

    Attributes:
        violations: the places where either the distance or its image is inside, and the other is not, `[V, dims]`.
        undecided: how many are so close to an end of the interval that rounding decides. They are no violations.

    >>> bool(SoftInjectivity(torch.zeros(0, 1), undecided=0))
    True
    """

    violations: Tensor
    undecided: int

    def __bool__(self) -> bool:
        """Whether there is no violation."""
        return len(self.violations) == 0


def soft_injectivity(
    distances: Tensor, mapped: Tensor, eps2: float, eps1: float, tolerance: float = 1e-6
) -> SoftInjectivity:
    r"""The equivalence of Theorem 1 (Eq. 5) and Corollary 1 (Eq. 7), for every entry.

    .. math:: \varepsilon_2 < \text{mapped} < \varepsilon_1 \iff \varepsilon_2 < \text{distance} < \varepsilon_1

    Args:
        distances: d of pairs of points, or D of pairs of multisets.
        mapped: the distances between their images, in the same shape.
        eps2, eps1: the ends of the interval, 0 < eps2 < eps1.
        tolerance: a distance and its image count as equal if they differ by at most this part of the largest distance.
            If an end lies between them, they are undecided. The default is the accuracy of the root of a square.

    >>> found = soft_injectivity(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.5]), eps2=0.5, eps1=2.0)
    >>> bool(found), found.violations.tolist()
    (False, [[1]])
    """
    if not 0 < eps2 < eps1:
        raise ValueError(f"eps: expected 0 < eps2 < eps1, got eps2={eps2} and eps1={eps1}")
    if distances.shape != mapped.shape or distances.numel() == 0:
        raise ValueError(
            f"mapped: expected as many entries as distances and at least one, "
            f"got {list(mapped.shape)} and {list(distances.shape)}"
        )
    width = tolerance * float(distances.abs().max())
    differ = _inside(distances, eps2, eps1) != _inside(mapped, eps2, eps1)
    rounding = (distances - mapped).abs() <= width
    return SoftInjectivity((differ & ~rounding).nonzero(), int((differ & rounding).sum()))


def equivalence_classes(distances: Tensor, tolerance: float = 0.0) -> Tensor:
    """The class [h]_d or [H]_D of every point, `[N]`, numbered from 0 in the order of the first members.

    Two points are equivalent if a chain of distances of at most `tolerance` joins them. For a pseudometric and
    tolerance 0, this means distance 0.

    Args:
        distances: a matrix of distances `[N, N]`.
        tolerance: at least 0.

    >>> equivalence_classes(torch.tensor([[0.0, 2.0, 0.0], [2.0, 0.0, 2.0], [0.0, 2.0, 0.0]])).tolist()
    [0, 1, 0]
    """
    check_distances(distances)
    if not tolerance >= 0:
        raise ValueError(f"tolerance: expected at least 0, got {tolerance}")
    label = torch.arange(len(distances), device=distances.device)
    near = distances <= tolerance
    while True:
        # Every point takes the smallest label among its neighbours, until nothing changes.
        lower = torch.where(near, label, len(distances)).amin(1)
        if torch.equal(lower, label):
            return torch.unique(label, return_inverse=True)[1]
        label = lower


def _inside(values: Tensor, eps2: float, eps1: float) -> Tensor:
    return (values > eps2) & (values < eps1)
