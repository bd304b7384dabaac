"""Weights of the authors' DGL code under the names of this package."""

from collections.abc import Mapping

import torch
from torch import Tensor

from sirgcn.strict import check_name

_DGL_NAMES = {
    "linear_query": "lin_query",
    "linear_key": "lin_key",
    "linear_edge": "lin_edge",
    "linear_neigh": "lin_context",
    "linear_relation": "lin_relation",
}


def from_dgl_state_dict(
    state_dict: Mapping[str, Tensor], edge_embedding: bool = False, fold_biases: bool = False
) -> dict[str, Tensor]:
    """A state dict of the authors' DGL layers or models under the names of this package.

    `linear_query`, `linear_key`, `linear_edge` and `linear_relation` become `lin_query`, `lin_key`, `lin_edge` and
    `lin_relation`, and `linear_neigh` of SINC-GCN becomes `lin_context`, under any prefix (`convs.0.`). All other
    entries, such as `activation.weight`, keep their names.

    The result loads into `SIRConv(..., variant="published")`. If the authors' corrected code was used (no bias on key
    and edge, `sym` with out-degrees of the sources), it loads into `SIRConv(...)`. The layers of SINC-GCN are of this
    form and load into `SIRConv(..., context=...)`.

    Args:
        state_dict: the authors' state dict.
        edge_embedding: whether their `linear_edge` is an `nn.Embedding` of K edge types, or OGB's `BondEncoder`, which
            adds several embeddings. Their tables become W_E, with `edge_dim` K, the number of all types together. The
            edge features are then one-hot codes, or the pair `(torch.eye(K), type)`. For a BondEncoder they are the
            one-hot codes of the columns side by side.
        fold_biases: whether to add the biases of key and edge to the query's, for `variant="corrected"`; the authors'
            `sym` is then `aggr="sym_in"`. The outputs are equal in evaluation mode. In training mode they are not,
            because the authors' dropout acts on each bias by itself.

    >>> list(from_dgl_state_dict({"convs.0.linear_key.weight": torch.zeros(4, 3), "norm.weight": torch.ones(4)}))
    ['convs.0.lin_key.weight', 'norm.weight']
    """
    renamed, tables = _renamed(state_dict, edge_embedding)
    if edge_embedding and not tables:
        raise ValueError("edge_embedding: expected linear_edge in the state dict, got none")
    for prefix, embeddings in tables.items():
        weight = torch.cat(embeddings).t().contiguous()
        renamed[f"{prefix}lin_edge.weight"] = weight
        if f"{prefix}lin_key.bias" in renamed:
            renamed[f"{prefix}lin_edge.bias"] = weight.new_zeros(weight.size(0))
    _check_dgl_edges(renamed, edge_embedding)
    if fold_biases:
        _fold_biases(renamed)
    return renamed


def _renamed(
    state_dict: Mapping[str, Tensor], edge_embedding: bool
) -> tuple[dict[str, Tensor], dict[str, list[Tensor]]]:
    """The entries under our names, and by prefix the tables of the edge types, which have no entry yet."""
    renamed: dict[str, Tensor] = {}
    tables: dict[str, list[Tensor]] = {}
    for name, tensor in state_dict.items():
        prefix, linear, field = _split_dgl_name(name)
        if linear is None:
            renamed[name] = tensor
        elif linear == "linear_edge" and edge_embedding and field.split(".")[-1] == "weight":
            tables.setdefault(prefix, []).append(tensor)
        elif field in ("weight", "bias"):
            renamed[f"{prefix}{_DGL_NAMES[linear]}.{field}"] = tensor
        else:
            hint = "; for embeddings of edges pass edge_embedding=True" * (linear == "linear_edge")
            raise ValueError(f"state_dict: expected {linear}.weight or .bias, got {name!r}{hint}")
    return renamed, tables


def _split_dgl_name(name: str) -> tuple[str, str | None, str]:
    """The prefix, the linear layer and the field of a name; the layer is None where the name has no linear layer.

    >>> _split_dgl_name("convs.0.linear_key.weight")
    ('convs.0.', 'linear_key', 'weight')
    """
    parts = name.split(".")
    place = next((i for i, part in enumerate(parts) if part.startswith("linear_")), None)
    if place is None:
        return name, None, ""
    linear = check_name(f"state_dict: {name}", parts[place], _DGL_NAMES, exact=True)
    return "".join(f"{part}." for part in parts[:place]), linear, ".".join(parts[place + 1 :])


def _check_dgl_edges(renamed: Mapping[str, Tensor], edge_embedding: bool) -> None:
    """Raise a `ValueError` if a W_E does not have as many rows as the W_K beside it."""
    for name, weight in renamed.items():
        key = renamed.get(name.removesuffix("lin_edge.weight") + "lin_key.weight")
        if name.endswith("lin_edge.weight") and key is not None and len(weight) != len(key):
            expected = f"[types, {len(key)}]" if edge_embedding else f"[{len(key)}, edge_dim]"
            got = list(weight.t().shape if edge_embedding else weight.shape)
            hint = "" if edge_embedding else "; an nn.Embedding needs edge_embedding=True"
            raise ValueError(
                f"state_dict: expected linear_edge.weight of shape {expected}, because linear_key has "
                f"{len(key)} hidden channels, got {got}{hint}"
            )


def _fold_biases(renamed: dict[str, Tensor]) -> None:
    """Add the biases of key and edge to the query's, in place."""
    for name in [name for name in renamed if name.endswith(("lin_key.bias", "lin_edge.bias"))]:
        query = name.rsplit("lin_", 1)[0] + "lin_query.bias"
        bias = renamed.pop(name)
        renamed[query] = renamed[query] + bias if query in renamed else bias
