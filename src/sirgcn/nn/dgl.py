"""Weights of the authors' DGL code under the names of this package."""

from collections.abc import Mapping

import torch
from torch import Tensor

from sirgcn.strict import check_name

_DGL_NAMES = {
    "linear_query": "lin_query",
    "linear_key": "lin_key",
    "linear_edge": "lin_edge",
    "linear_relation": "lin_relation",
}


def from_dgl_state_dict(
    state_dict: Mapping[str, Tensor], edge_embedding: bool = False, fold_biases: bool = False
) -> dict[str, Tensor]:
    """A state dict of the authors' DGL layers or models under the names of this package.

    `linear_query`, `linear_key`, `linear_edge` and `linear_relation` become `lin_query`, `lin_key`, `lin_edge` and
    `lin_relation` under any prefix (`convs.0.`); all other entries, such as `activation.weight`, stay. The result
    loads into `SIRConv(..., variant="published")`, or, where the authors' corrected code was used (no bias
    on key and edge, `sym` with out-degrees of the sources), into `SIRConv(...)`.

    Args:
        state_dict: theirs.
        edge_embedding: their `linear_edge` is an `nn.Embedding` of K edge types, or OGB's `BondEncoder`, which sums
            several. Its tables become W_E with `edge_dim` K (the sum of all K): the edge features are then one-hot,
            or the pair `(torch.eye(K), type)`; for a BondEncoder the one-hot codes side by side.
        fold_biases: add the biases of key and edge to the query's, for `variant="corrected"`, with `aggr="sym_in"` for
            their `sym`. Equal in evaluation mode; in training, dropout acted on each bias by itself.
    """
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
    if edge_embedding and not tables:
        raise ValueError("edge_embedding: expected linear_edge in the state dict, got none")
    for prefix, embeddings in tables.items():
        weight = torch.cat(embeddings).t().contiguous()
        renamed[f"{prefix}lin_edge.weight"] = weight
        if f"{prefix}lin_key.bias" in renamed:
            renamed[f"{prefix}lin_edge.bias"] = weight.new_zeros(weight.size(0))
    _check_dgl_edges(renamed, edge_embedding)
    if fold_biases:
        for name in [name for name in renamed if name.endswith(("lin_key.bias", "lin_edge.bias"))]:
            query = name.rsplit("lin_", 1)[0] + "lin_query.bias"
            bias = renamed.pop(name)
            renamed[query] = renamed[query] + bias if query in renamed else bias
    return renamed


def _split_dgl_name(name: str) -> tuple[str, str | None, str]:
    """`convs.0.linear_key.weight` as (`convs.0.`, `linear_key`, `weight`); None where there is no linear layer."""
    parts = name.split(".")
    place = next((i for i, part in enumerate(parts) if part.startswith("linear_")), None)
    if place is None:
        return name, None, ""
    check_name(f"state_dict: {name}", parts[place], _DGL_NAMES, exact=True)
    return (
        "".join(f"{part}." for part in parts[:place]),
        parts[place],
        ".".join(parts[place + 1 :]),
    )


def _check_dgl_edges(renamed: Mapping[str, Tensor], edge_embedding: bool) -> None:
    for name, weight in renamed.items():
        key = renamed.get(name.removesuffix("lin_edge.weight") + "lin_key.weight")
        if name.endswith("lin_edge.weight") and key is not None and len(weight) != len(key):
            expected = f"[types, {len(key)}]" if edge_embedding else f"[{len(key)}, edge_dim]"
            got = list(weight.t().shape if edge_embedding else weight.shape)
            hint = "" if edge_embedding else "; an nn.Embedding needs edge_embedding=True"
            raise ValueError(
                f"state_dict: expected linear_edge.weight of shape {expected}, as linear_key has "
                f"{len(key)} hidden channels, got {got}{hint}"
            )
