"""Raw inputs to features: categorical nodes and edges (atoms, bonds), positional encodings."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sirgcn.ops.calls import is_compiling, is_touched
from sirgcn.ops.checks import check_range
from sirgcn.strict import Size, check_name, checked

OGB_ATOM = (119, 5, 12, 12, 10, 6, 6, 2, 2)
"""Sizes of OGB's nine atom vocabularies."""

OGB_BOND = (5, 6, 2)
"""Sizes of OGB's three bond vocabularies."""

MAX_TABLE = 4096
"""Above this many combinations of categories a table has no advantage over the rows themselves."""


class CategoricalEncoder(nn.Module):
    r"""The sum of one embedding per categorical column, as OGB's AtomEncoder and BondEncoder have it.

    .. math:: h_v = \sum_c \mathrm{Emb}_c(x_{v, c})

    Args:
        vocabularies: the number of categories of each column; one number for a single column.
        channels: width of the output.
        weight_initializer: `"glorot"`, Glorot's uniform distribution as in OGB's encoders, or None, the unit normal one
            of `torch.nn.Embedding`, whose sum over many columns is much larger than what messages add to it.

    Shapes:
        - **input:** int `(*, C)`, or `(N)` for a single column
        - **output:** `(*, channels)`
    """

    @checked
    def __init__(
        self, vocabularies: int | Sequence[int], channels: Size, weight_initializer: str | None = None
    ) -> None:
        super().__init__()
        check_name("weight_initializer", weight_initializer, ("glorot", None), exact=True)
        sizes = [vocabularies] if isinstance(vocabularies, int) else list(vocabularies)
        if not sizes or min(sizes) < 1:
            raise ValueError(f"vocabularies: expected sizes of at least 1, got {vocabularies}")
        self.vocabularies = tuple(sizes)
        self.channels = channels
        self.weight_initializer = weight_initializer
        self.embeddings = nn.ModuleList(nn.Embedding(size, channels) for size in sizes)
        if weight_initializer is not None:
            self.reset_parameters()

    @property
    def combinations(self) -> int:
        """How many rows can differ: the product of the vocabularies' sizes."""
        return math.prod(self.vocabularies)

    def reset_parameters(self) -> None:
        """Draw all embeddings anew."""
        for embedding in self.embeddings:
            if self.weight_initializer is None:
                embedding.reset_parameters()  # type: ignore[operator]
            else:
                nn.init.xavier_uniform_(embedding.weight)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """The features of categories x."""
        columns = self._columns(x)
        out: Tensor = self.embeddings[0](columns[..., 0])
        for i, embedding in enumerate(list(self.embeddings)[1:], start=1):
            out = out + embedding(columns[..., i])
        return out

    def has_table(self) -> bool:
        """Whether `table` gives what a call gives: nobody replaced, hooked or subclassed a part.

        An embedding with `max_norm`, `padding_idx` or `scale_grad_by_freq` treats its rows differently when they are
        looked up.
        """
        return (
            type(self) is CategoricalEncoder
            and self.combinations <= MAX_TABLE
            and not is_touched(self)
            and all(map(is_plain_embedding, self.embeddings))
            and [len(embedding.weight) for embedding in self.embeddings] == list(self.vocabularies)  # type: ignore[arg-type]
        )

    def table(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """The same features as a pair (table `[K, channels]`, type `[E]`) for edges: `table[type]` is never built.

        K is the number of combinations of categories; where it is too large for a table, the features themselves.
        """
        if self.combinations > MAX_TABLE:
            return self(x)
        columns = self._columns(x)
        kind = columns[..., 0]
        if len(self.vocabularies) == 1:
            return self.embeddings[0].weight, kind  # type: ignore[return-value]
        for i, size in enumerate(self.vocabularies[1:], start=1):
            kind = kind * size + columns[..., i]
        combinations = torch.cartesian_prod(*(torch.arange(size, device=x.device) for size in self.vocabularies))
        return self(combinations.view(-1, len(self.vocabularies))), kind

    def _columns(self, x: Tensor) -> Tensor:
        if x.is_floating_point() or x.dtype == torch.bool:
            raise ValueError(f"x: expected categories of an integer dtype, got {x.dtype}")
        count = len(self.vocabularies)
        # PyG keeps a single column as [N] or [N, 1].
        columns = x.unsqueeze(-1) if count == 1 and x.dim() == 1 else x
        if columns.size(-1) != count:
            raise ValueError(f"x: expected {count} categorical columns, got shape {list(x.shape)}")
        self._check_categories(columns)
        return columns

    def _check_categories(self, columns: Tensor) -> None:
        if is_compiling():
            for column, size in enumerate(self.vocabularies):
                expected = f"the categories of column {column}"
                check_range(columns[..., column], size, f"x[{{}}, {column}]", expected, "category")
            return
        # All columns at once: a look at each would cost more than the embeddings of a small graph.
        outside = (columns < 0) | (columns >= torch.tensor(self.vocabularies, device=columns.device))
        if bool(outside.any()):
            *row, column = outside.nonzero()[0].tolist()
            raise IndexError(
                f"x{[*row, column]} = {int(columns[(*row, column)])}: expected 0 <= category < "
                f"{self.vocabularies[column]} in column {column}"
            )

    def extra_repr(self) -> str:
        return f"{self.vocabularies}, {self.channels}"


def is_plain_embedding(embedding: nn.Module) -> bool:
    """Whether looking up a row is all that a call does, and its gradient is that of the row."""
    return (
        type(embedding) is nn.Embedding
        and not is_touched(embedding)
        and type(embedding.weight) is nn.Parameter
        and embedding.max_norm is None
        and embedding.padding_idx is None
        and not embedding.scale_grad_by_freq
        and not embedding.sparse
    )


class PositionalEncoder(nn.Module):
    r"""A linear layer on a positional encoding, to be added to the node features.

    .. math:: h_v \leftarrow h_v + W_P \, p_v

    Args:
        kind: `"random_walk"` (PyG's `AddRandomWalkPE`) or `"laplacian"` (`AddLaplacianEigenvectorPE`), whose
            eigenvectors have no sign of their own: in training each is flipped at random.
        pe_dim: width of p.
        channels: width of h.
    """

    KINDS = ("random_walk", "laplacian")

    @checked
    def __init__(self, kind: str, pe_dim: int, channels: Size) -> None:
        super().__init__()
        check_name("kind", kind, self.KINDS, exact=True)
        self.kind = kind
        self.lin = nn.Linear(pe_dim, channels)

    def reset_parameters(self) -> None:
        """Draw W_P anew."""
        self.lin.reset_parameters()

    def forward(self, x: Tensor, pe: Tensor) -> Tensor:
        """x `[|V|, channels]` with the encoding pe `[|V|, pe_dim]` added."""
        if pe.shape != (x.size(0), self.lin.in_features):
            raise ValueError(f"pe: expected shape {[x.size(0), self.lin.in_features]}, got {list(pe.shape)}")
        if self.kind == "laplacian" and self.training:
            pe = pe * (2 * torch.randint(0, 2, (pe.size(-1),), device=pe.device) - 1)
        out: Tensor = x + self.lin(pe)
        return out
