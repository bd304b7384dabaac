"""Encoders from raw inputs to features: categories of nodes and edges (atoms, bonds), and positional encodings."""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear as PyGLinear
from torch_geometric.nn.inits import reset

from sirgcn.nn.adjacency import EdgeAttr, through_edges
from sirgcn.nn.linear import Linear
from sirgcn.nn.parts import Channels, EdgeConfig
from sirgcn.ops.calls import is_compiling, is_touched
from sirgcn.ops.checks import check_range
from sirgcn.strict import ConfigError, Size, check_name, checked

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

# Also the linear layers of a network that was saved or changed elsewhere.
_LINEAR = (PyGLinear, nn.Linear)

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
    r"""A linear layer of a positional encoding, added to the node features or put beside them.

    .. math:: h_v \leftarrow h_v + W_P \, p_v \qquad \text{or} \qquad h_v \leftarrow [h_v \,\Vert\, W_P \, p_v]

    Args:
        encoding: `"random_walk"` (PyG's `AddRandomWalkPE`) or `"laplacian"` (`AddLaplacianEigenvectorPE`). The sign of
            an eigenvector is arbitrary, so in training the sign of each is drawn at random.
        pe_dim: the width of p.
        channels: the width of W_P p; if it is added, that of h.
        beside: whether W_P p stands beside h.
        norm: whether a batch norm of p precedes W_P.

    >>> encoder = PositionalEncoder("random_walk", pe_dim=3, channels=4)
    >>> encoder(torch.randn(5, 4), torch.rand(5, 3)).shape
    torch.Size([5, 4])
    >>> encoder = PositionalEncoder("random_walk", pe_dim=3, channels=2, beside=True, norm=True)
    >>> encoder(torch.randn(5, 4), torch.rand(5, 3)).shape
    torch.Size([5, 6])
    """

    ENCODINGS = ("random_walk", "laplacian")

    @checked
    def __init__(self, encoding: str, pe_dim: int, channels: Size, beside: bool = False, norm: bool = False) -> None:
        super().__init__()
        check_name("encoding", encoding, self.ENCODINGS, exact=True)
        self.encoding = encoding
        self.beside = beside
        self.norm: nn.Module = nn.BatchNorm1d(pe_dim) if norm else nn.Identity()
        self.lin = nn.Linear(pe_dim, channels)

    def reset_parameters(self) -> None:
        """Draw W_P again, and reset the norm."""
        reset(self.norm)
        self.lin.reset_parameters()

    def forward(self, x: Tensor, pe: Tensor) -> Tensor:
        """x with W_P times the encoding pe `[|V|, pe_dim]`, added or beside it."""
        if pe.shape != (x.size(0), self.lin.in_features):
            raise ValueError(f"pe: expected shape {[x.size(0), self.lin.in_features]}, got {list(pe.shape)}")
        if self.encoding == "laplacian" and self.training:
            pe = pe * (2 * torch.randint(0, 2, (pe.size(-1),), device=pe.device) - 1)
        encoded: Tensor = self.lin(self.norm(pe))
        return torch.cat([x, encoded], dim=-1) if self.beside else x + encoded


class SharedRow(nn.Module):
    """One learned row that all edges share, as a pair (table `[1, channels]`, type `[E]`).

    >>> table, edge_type = SharedRow(4)(num_edges=3)
    >>> table.shape, edge_type.tolist()
    (torch.Size([1, 4]), [0, 0, 0])
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1, channels)

    def reset_parameters(self) -> None:
        """Draw the row again."""
        self.embedding.reset_parameters()

    def forward(self, num_edges: int) -> tuple[Tensor, Tensor]:
        """The row as a table, and the type 0 of each edge."""
        weight = self.embedding.weight
        return weight, torch.zeros(num_edges, dtype=torch.int64, device=weight.device)


# Encoders with the vocabularies of OGB's molecules.
_MOLECULES: dict[str, tuple[int, ...]] = {"atom": OGB_ATOM, "bond": OGB_BOND}


def make_encoder(argument: str, name: str, channels: Channels, out_channels: int) -> tuple[nn.Module, int]:
    """An encoder and the width of its output."""
    if name in _MOLECULES:
        return CategoricalEncoder(_MOLECULES[name], out_channels, weight_initializer="glorot"), out_channels
    if channels is None:
        raise ConfigError(f"{argument}: {name} needs the width or the vocabularies of its input, got None")
    if name == "embedding":
        return CategoricalEncoder(channels, out_channels), out_channels
    if isinstance(channels, Sequence):
        raise ConfigError(f"{argument}: {name} needs one width, got the vocabularies {list(channels)}")
    if channels < 1 and channels != -1:
        raise ConfigError(
            f"{argument}: expected the width of its input, or -1 to read it off the first one, got {channels}"
        )
    if name == "none":
        return nn.Identity(), channels
    return Linear(channels, out_channels), out_channels


def make_edge_encoder(edges: EdgeConfig, out_channels: int) -> tuple[nn.Module | None, int | None]:
    """The encoder of edges and the width that the layers read; None for a network without edge features."""
    if edges.channels is None and edges.type == "none":
        return None, None
    if edges.type == "constant":
        return SharedRow(out_channels), out_channels
    return make_encoder("edge_encoder", edges.type, edges.channels, out_channels)


def encoded_edges(encoder: nn.Module | None, edge_attr: EdgeAttr, num_edges: int) -> EdgeAttr:
    """The features of edges as their encoder gives them: a pair (table, type) where the encoder has a table."""
    if isinstance(encoder, SharedRow):
        if edge_attr is not None:
            raise ValueError("edge_attr: all edges share one learned row, expected None")
        return encoder(num_edges)
    if edge_attr is None or encoder is None:
        return edge_attr
    if isinstance(encoder, CategoricalEncoder):
        return _encoded_categories(encoder, edge_attr)
    table = edge_attr[0] if isinstance(edge_attr, tuple) else edge_attr
    # PyG keeps a single feature as [E] or [E, 1].
    if isinstance(encoder, _LINEAR) and _input_width(encoder) == 1 and table.dim() == 1:
        table = table.unsqueeze(-1)
    check_features("edge_attr", table, encoder)
    return through_edges(encoder, (table, edge_attr[1]) if isinstance(edge_attr, tuple) else table)


def _encoded_categories(encoder: CategoricalEncoder, edge_attr: Tensor | tuple[Tensor, Tensor]) -> EdgeAttr:
    """Embedded categories of edges, as a pair (table, type) where the encoder has a table."""
    if not isinstance(edge_attr, tuple):
        return encoder.table(edge_attr) if encoder.has_table() else encoder(edge_attr)
    table, edge_type = edge_attr
    if table.is_floating_point():
        return edge_attr
    check_features("edge_attr", table, encoder)
    if encoder.has_table():
        return encoder(table), edge_type
    return encoder(table.index_select(0, edge_type))


def check_features(argument: str, features: Tensor, encoder: nn.Module) -> None:
    """Refuse what a linear encoder cannot read; the layers and the embeddings check their own input."""
    if features.dim() > 2:
        raise ValueError(f"{argument}: expected shape [rows, features], got {list(features.shape)}")
    if isinstance(encoder, _LINEAR):
        width = _input_width(encoder)
        if not features.is_floating_point():
            raise ValueError(f"{argument}: expected a floating-point dtype, got {features.dtype}")
        if features.dim() != 2 or features.size(1) != (width or features.size(1)):
            raise ValueError(f"{argument}: expected {width} features per row, got shape {list(features.shape)}")


def _input_width(linear: nn.Module) -> int | None:
    """The input width of a linear layer; None for a lazy one that has not seen an input yet."""
    weight = linear.weight
    return None if isinstance(weight, nn.parameter.UninitializedParameter) else cast(Tensor, weight).size(1)
