"""Encoders from raw inputs to features: categories of nodes and edges (atoms, bonds), and positional encodings."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sirgcn.ops.calls import is_compiling, is_touched
from sirgcn.ops.checks import check_range
from sirgcn.strict import Size, check_name, checked

OGB_ATOM = (119, 5, 12, 12, 10, 6, 6, 2, 2)
"""The sizes of OGB's nine atom vocabularies.

>>> CategoricalEncoder(OGB_ATOM, 16)(torch.zeros(2, 9, dtype=torch.int64)).shape
torch.Size([2, 16])
"""

OGB_BOND = (5, 6, 2)
"""The sizes of OGB's three bond vocabularies.

>>> CategoricalEncoder(OGB_BOND, 16)(torch.zeros(2, 3, dtype=torch.int64)).shape
torch.Size([2, 16])
"""

MAX_TABLE = 4096
"""The most combinations of categories for which a table is used. A larger table saves nothing."""


class CategoricalEncoder(nn.Module):
    r"""The sum of one embedding per categorical column, as in OGB's AtomEncoder and BondEncoder.

    .. math:: h_v = \sum_c \mathrm{Emb}_c(x_{v, c})

    Args:
        vocabularies: the number of categories of each column, or one number for a single column.
        channels: the width of the output.
        weight_initializer: `"glorot"` draws from Glorot's uniform distribution, as OGB's encoders do. None draws from
            the unit normal distribution of `torch.nn.Embedding`; summed over many columns, such features are much
            larger than the messages that are added to them.

    Shapes:
        - **input:** int `(*, C)`, or `(N)` for a single column
        - **output:** `(*, channels)`

    >>> encoder = CategoricalEncoder([3, 2], channels=4)
    >>> categories = torch.tensor([[0, 1], [2, 0], [0, 1]])
    >>> encoder(categories).shape
    torch.Size([3, 4])
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
        """The number of combinations of categories, which is the number of rows that can differ."""
        return math.prod(self.vocabularies)

    def reset_parameters(self) -> None:
        """Draw all embeddings again."""
        for embedding in self.embeddings:
            if self.weight_initializer is None:
                embedding.reset_parameters()  # type: ignore[operator]
            else:
                nn.init.xavier_uniform_(embedding.weight)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """The features `(*, channels)` of the categories x."""
        columns = self._columns(x)
        out: Tensor = self.embeddings[0](columns[..., 0])
        for i, embedding in enumerate(list(self.embeddings)[1:], start=1):
            out = out + embedding(columns[..., i])
        return out

    def has_table(self) -> bool:
        """Whether `table` returns a table with the same features and gradients as a call.

        It does not in these cases:

        - the categories have too many combinations
        - the encoder or one of its embeddings has a hook, was replaced, or is of a subclass
        - an embedding has `max_norm`, `padding_idx`, `scale_grad_by_freq` or `sparse`, which change the lookup of a row
        """
        return (
            type(self) is CategoricalEncoder
            and self.combinations <= MAX_TABLE
            and not is_touched(self)
            and all(map(is_plain_embedding, self.embeddings))
            and [len(embedding.weight) for embedding in self.embeddings] == list(self.vocabularies)  # type: ignore[arg-type]
        )

    def table(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """The same features as a pair (table `[K, channels]`, index `[N]`), so that row v is `table[index[v]]`.

        K is the number of combinations of categories. If K is too large for a table, the result is the features.

        >>> encoder, x = CategoricalEncoder([3, 2], channels=4), torch.tensor([[0, 1], [2, 0], [0, 1]])
        >>> table, index = encoder.table(x)
        >>> table.shape, index.tolist(), torch.equal(table[index], encoder(x))
        (torch.Size([6, 4]), [1, 4, 1], True)
        """
        if self.combinations > MAX_TABLE:
            return self(x)
        columns = self._columns(x)
        index = columns[..., 0]
        if len(self.vocabularies) == 1:
            return self.embeddings[0].weight, index  # type: ignore[return-value]
        for i, size in enumerate(self.vocabularies[1:], start=1):
            index = index * size + columns[..., i]
        combinations = torch.cartesian_prod(*(torch.arange(size, device=x.device) for size in self.vocabularies))
        return self(combinations.view(-1, len(self.vocabularies))), index

    def _columns(self, x: Tensor) -> Tensor:
        """The categories with one column per vocabulary; raises an error for wrong dtypes, shapes and categories."""
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
        """Raise an `IndexError` with the first category that is not in its vocabulary."""
        if is_compiling():
            for column, size in enumerate(self.vocabularies):
                expected = f"the categories of column {column}"
                check_range(columns[..., column], size, f"x[{{}}, {column}]", expected, "category")
            return
        # One check of all columns: a check of each would take longer than the embeddings of a small graph.
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
    """Whether a call only looks up rows, so that each row gets the gradient of its own lookups."""
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
    r"""A linear layer of a positional encoding, added to the node features.

    .. math:: h_v \leftarrow h_v + W_P \, p_v

    Args:
        encoding: `"random_walk"` (PyG's `AddRandomWalkPE`) or `"laplacian"` (`AddLaplacianEigenvectorPE`). The sign of
            an eigenvector is arbitrary, so in training the sign of each is drawn at random.
        pe_dim: the width of p.
        channels: the width of h.

    >>> encoder = PositionalEncoder("random_walk", pe_dim=3, channels=4)
    >>> encoder(torch.randn(5, 4), torch.rand(5, 3)).shape
    torch.Size([5, 4])
    """

    ENCODINGS = ("random_walk", "laplacian")

    @checked
    def __init__(self, encoding: str, pe_dim: int, channels: Size) -> None:
        super().__init__()
        check_name("encoding", encoding, self.ENCODINGS, exact=True)
        self.encoding = encoding
        self.lin = nn.Linear(pe_dim, channels)

    def reset_parameters(self) -> None:
        """Draw W_P again."""
        self.lin.reset_parameters()

    def forward(self, x: Tensor, pe: Tensor) -> Tensor:
        """x `[|V|, channels]` plus W_P times the encoding pe `[|V|, pe_dim]`."""
        if pe.shape != (x.size(0), self.lin.in_features):
            raise ValueError(f"pe: expected shape {[x.size(0), self.lin.in_features]}, got {list(pe.shape)}")
        if self.encoding == "laplacian" and self.training:
            pe = pe * (2 * torch.randint(0, 2, (pe.size(-1),), device=pe.device) - 1)
        out: Tensor = x + self.lin(pe)
        return out
