"""Theorem 1: the soft-injective feature map g of a pseudometric, from a sample."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sirgcn.theory.definiteness import centred_kernel, conditionally_positive_definite
from sirgcn.theory.pseudometrics import Pseudometric, check_distances, check_symmetric

# Directions of a smaller eigenvalue, as a part of the largest, are rounding.
_RANK = 1e-12
# Rounding in a squared residual, as a part of the largest squared distance; the weakest direction magnifies it.
_RESIDUAL = 1e-8


@dataclass(frozen=True, eq=False, repr=False)
class FeatureMap:
    r"""g with :math:`\lVert g(x) - g(y) \rVert = d(x, y)` on a sample (Theorem 1), and its extension to other points.

    Made by `feature_map` from a pseudometric, or by `FeatureMap.of_kernel` from a kernel (Theorem 2).

    Attributes:
        features: g of the sample, `[N, S]`; S <= N - 1 is the dimension that the sample needs.
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
        # A sample whose points are all similar has no direction at all.
        kept &= values > 0
        root = values[kept].sqrt()
        return cls(vectors[:, kept] * root, kernel, vectors[:, kept] / root)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features `[m, S]` of new points x `[m, F]`, and the residuals `[m]`.

        The point of the sample's space that is closest to g(x): its distances to the sample and between new points are
        at most d; the squared distance to a point y of the sample is d(x, y)^2 - residual^2. A point of the sample has
        residual 0.
        """
        if self._d is None or self._sample is None:
            raise ValueError("project: a map of a kernel knows no points, expected one that feature_map has made")
        return self.project_squares(self._d.squares(x, self._sample, self._query))

    def project_squares(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """As `project`, from the squared distances `[m, N]` of new points to the sample."""
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

    The square root of the centred kernel of -d^2 (Schoenberg; classical scaling), exact up to rounding in the squares.
    A d that violates Assumption 1 on the sample is refused.
    """
    if len(x) == 0:
        raise ValueError("x: expected at least one row, got an empty sample")
    found = FeatureMap.of_kernel(-d.squares(x, query=query))
    return FeatureMap(found.features, found._kernel, found._axes, d, x, query)


@dataclass(frozen=True, eq=False)
class SoftInjectivity:
    """Whether distances and their images lie in the same interval (Eqs. 5 and 7).

    Attributes:
        violations: places of the distances for which one of the two is inside and the other is not, `[V, dims]`.
        undecided: how many lie so close to an end of the interval that rounding decides; they count as no violation.
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
        mapped: the distances of their images, of the same shape.
        eps2, eps1: the ends, 0 < eps2 < eps1.
        tolerance: two distances that differ by no more than this part of the largest count as equal, and are undecided
            where an end lies between them. The default is what a root leaves of the digits of a square.
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
    """The class [h]_d or [H]_D of every point, `[N]`, numbered from 0 in the order of first members.

    Of a matrix of distances `[N, N]`; points are equivalent if a chain of distances of at most `tolerance` joins them,
    which for a pseudometric and tolerance 0 is distance 0.
    """
    check_distances(distances)
    if not tolerance >= 0:
        raise ValueError(f"tolerance: expected at least 0, got {tolerance}")
    label = torch.arange(len(distances), device=distances.device)
    near = distances <= tolerance
    while True:
        # The smallest label among the neighbours, until nothing changes: a point's class is its first member.
        lower = torch.where(near, label, len(distances)).amin(1)
        if torch.equal(lower, label):
            return torch.unique(label, return_inverse=True)[1]
        label = lower


def _inside(values: Tensor, eps2: float, eps1: float) -> Tensor:
    return (values > eps2) & (values < eps1)
