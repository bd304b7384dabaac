"""What Section 3 requires of a pseudometric, checked on a sample: its axioms, and definiteness (Theorem 3)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sirgcn.theory.pseudometrics import Pseudometric, check_distances, check_symmetric


@dataclass(frozen=True)
class Axioms:
    """By how much each axiom of Definition 1 fails in the worst case; 0 if it holds. `check_axioms` returns it.

    Attributes:
        negative: how far the smallest distance is below 0.
        identity: the largest d(x, x), which should be 0.
        symmetry: the largest `|d(x, y) - d(y, x)|`.
        triangle: the largest d(x, z) - d(x, y) - d(y, z).
        triple: the places (x, y, z) of the worst triangle.
        tolerance: a violation up to this size is rounding.

    >>> bool(Axioms(0.0, 0.0, 0.0, triangle=1e-15, triple=(0, 1, 2), tolerance=1e-12))
    True
    """

    negative: float
    identity: float
    symmetry: float
    triangle: float
    triple: tuple[int, int, int]
    tolerance: float

    @property
    def worst(self) -> float:
        """The largest of the four violations."""
        return max(self.negative, self.identity, self.symmetry, self.triangle)

    def __bool__(self) -> bool:
        """Whether all axioms hold within the tolerance."""
        return self.worst <= self.tolerance


def check_axioms(distances: Tensor, tolerance: float | None = None) -> Axioms:
    """Definition 1 on a sample: the worst violation of each axiom in a matrix of distances `[N, N]`.

    Any square matrix is accepted, also one that is not symmetric. This takes time N^3 and memory N^2.

    Args:
        distances: `d(x, x)`, or any square matrix.
        tolerance: a violation up to this size is rounding. None means 1e-12 of the largest entry in float64, and 1e-5
            of it in float32.

    >>> found = check_axioms(torch.tensor([[0.0, 1.0, 5.0], [1.0, 0.0, 1.0], [5.0, 1.0, 0.0]]))
    >>> bool(found), found.triangle, found.triple
    (False, 3.0, (0, 1, 2))
    """
    if distances.dim() != 2 or distances.size(0) != distances.size(1) or distances.numel() == 0:
        raise ValueError(f"distances: expected a square matrix of at least one row, got {list(distances.shape)}")
    if not bool(distances.isfinite().all()):
        raise ValueError("distances: expected finite entries, got some that are not")
    size = distances.size(0)
    if tolerance is None:
        tolerance = _relative(distances.dtype) * float(distances.abs().max())
    worst, triple = -math.inf, (0, 0, 0)
    for middle in range(size):
        excess = distances - distances[:, middle, None] - distances[None, middle, :]
        at = int(excess.argmax())
        if float(excess.flatten()[at]) > worst:
            worst, triple = float(excess.flatten()[at]), (at // size, middle, at % size)
    return Axioms(
        negative=max(0.0, -float(distances.min())),
        identity=float(distances.diagonal().abs().max()),
        symmetry=float((distances - distances.T).abs().max()),
        triangle=max(0.0, worst),
        triple=triple,
        tolerance=tolerance,
    )


@dataclass(frozen=True, eq=False)
class Definiteness:
    """Whether a kernel is (conditionally) positive definite on a sample, with the strongest evidence against it.

    Attributes:
        holds: whether `smallest` is at least `-tolerance`.
        smallest: the smallest value of c^T K c over the admitted c of length 1, an eigenvalue.
        coefficients: the c that attains it, `[N]`: the worst offender if the kernel is not definite.
        tolerance: a negative value up to this size is rounding.

    >>> bool(Definiteness(True, 0.0, torch.zeros(1), tolerance=1e-12))
    True
    """

    holds: bool
    smallest: float
    coefficients: Tensor
    tolerance: float

    def __bool__(self) -> bool:
        return self.holds


def positive_definite(kernel: Tensor, tolerance: float | None = None) -> Definiteness:
    """Whether c^T K c >= 0 for all c, for a symmetric K `[N, N]`.

    >>> bool(positive_definite(torch.eye(2))), bool(positive_definite(-torch.eye(2)))
    (True, False)
    """
    check_symmetric(kernel, "kernel")
    return _definiteness(kernel, torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device), tolerance)


def conditionally_positive_definite(kernel: Tensor, tolerance: float | None = None) -> Definiteness:
    r"""Whether c^T K c >= 0 for all c with :math:`\sum_i c_i = 0` (Definition 2, Eq. 4), for a symmetric K `[N, N]`.

    A single point admits c = 0 only. There every kernel holds, with smallest value 0.

    Args:
        kernel: K.
        tolerance: a negative value up to this size is rounding. None means 1e-12 of N times the largest entry in
            float64, and 1e-5 of it in float32.

    >>> bool(conditionally_positive_definite(torch.tensor([[0.0, -1.0], [-1.0, 0.0]])))
    True
    """
    check_symmetric(kernel, "kernel")
    return _definiteness(kernel, _sum_zero_basis(len(kernel), kernel), tolerance)


def check_assumption(d: Pseudometric, x: Tensor, query: Tensor | None = None) -> Definiteness:
    """Assumption 1 on the sample x `[N, F]`: whether -d^2 is conditionally positive definite.

    >>> from sirgcn.theory import euclidean
    >>> bool(check_assumption(euclidean(), torch.eye(3, dtype=torch.float64)))
    True
    """
    squares = d.squares(x, query=query)
    if squares.numel() == 0:
        raise ValueError("x: expected at least one row, got an empty sample")
    check_distances(squares, "d^2")
    return conditionally_positive_definite(-squares)


def centred_kernel(kernel: Tensor, base: int | None = None) -> Tensor:
    r"""The kernel of Theorem 3 (Eq. 25). It is positive definite exactly if the given kernel is conditionally so.

    .. math:: k(x, y) = \tfrac12 [\tilde k(x, y) - \tilde k(x, h_0) - \tilde k(h_0, y) + \tilde k(h_0, h_0)]

    Args:
        kernel: a symmetric matrix `[N, N]`.
        base: the place of h_0 in the sample. None means the mean of the features, as in classical scaling: the means
            of rows, of columns and of all entries replace the terms with h_0.

    >>> centred_kernel(torch.tensor([[0.0, -4.0], [-4.0, 0.0]]), base=0).tolist()
    [[0.0, 0.0], [0.0, 4.0]]
    """
    check_symmetric(kernel, "kernel")
    if base is None:
        row, own = kernel.mean(1), kernel.mean()
    else:
        if not 0 <= base < len(kernel):
            raise IndexError(f"base: expected 0 <= place < {len(kernel)}, got {base}")
        row, own = kernel[:, base], kernel[base, base]
    return (kernel - row.unsqueeze(1) - row.unsqueeze(0) + own) / 2


def _definiteness(kernel: Tensor, basis: Tensor, tolerance: float | None) -> Definiteness:
    if tolerance is None:
        tolerance = _relative(kernel.dtype) * len(kernel) * float(kernel.abs().max())
    if basis.size(1) == 0:
        return Definiteness(True, 0.0, kernel.new_zeros(len(kernel)), tolerance)
    values, vectors = torch.linalg.eigh(basis.T @ kernel @ basis)
    return Definiteness(float(values[0]) >= -tolerance, float(values[0]), basis @ vectors[:, 0], tolerance)


def _sum_zero_basis(size: int, like: Tensor) -> Tensor:
    """Orthonormal columns `[N, N - 1]` whose entries sum to 0: Helmert's contrasts of a point with those before it."""
    places = torch.arange(1, size, dtype=like.dtype, device=like.device)
    upper = torch.ones(size, max(0, size - 1), dtype=like.dtype, device=like.device).triu()
    upper[1:] -= torch.diag(places)
    return upper / (places * (places + 1)).sqrt()


def _relative(dtype: torch.dtype) -> float:
    return 1e-12 if dtype == torch.float64 else 1e-5
