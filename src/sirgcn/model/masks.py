"""The masks of PyG's explainers, beside our own effects."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.explain import Explainer
from torch_geometric.explain.algorithm import GNNExplainer

from sirgcn.engine.inference import call
from sirgcn.model.removal import Neighbourhood, prepared_batch
from sirgcn.model.scoring import Score

MOST_EDGES = 20_000
"""The most edges of a neighbourhood for which masks are learned: every step makes the message of every edge."""


@dataclass(frozen=True, eq=False)
class Masks:
    """The masks that GNNExplainer learns, from 0 to 1; None for inputs that have no mask.

    Args:
        edges: one for every edge of the neighbourhood.
        columns: one for every node and input.
        note: why there are none; empty if there are.
    """

    edges: Tensor | None = None
    columns: Tensor | None = None
    note: str = ""


class _Scored(nn.Module):
    """A model as PyG's explainers call it: the score of the explained row, from node features and edges."""

    def __init__(self, score: Score, near: Neighbourhood) -> None:
        super().__init__()
        self.score, self.near = score, near
        self.networks = nn.ModuleList(member.network for member in score.model.members)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        outputs = []
        for member in self.score.model.members:
            batch = prepared_batch(self.near, member.preparation)
            # Masks are learned by derivatives, which must lead to the masked x.
            batch.x = x if not member.preparation.normalise else x / x.abs().sum(1, keepdim=True).clamp_min(1e-12)
            outputs.append(call(member.network, batch, self.near.level).float())
        joined = self.score.model.joined(outputs)
        if self.near.level == "node":
            joined = joined[self.near.ends[0] : self.near.ends[0] + 1]
        return self.score(joined).unsqueeze(1)


def masks_of(score: Score, near: Neighbourhood, epochs: int = 100, seed: int = 0) -> Masks:
    """The masks that GNNExplainer learns for a prediction, or the reason why it cannot.

    Args:
        score: what is explained.
        near: the neighbourhood.
        epochs: the steps of learning.
        seed: of the first masks.
    """
    names = {member.config.conv.name for member in score.model.members}
    loops = any(member.config.conv.self_loops for member in score.model.members)
    if names != {"sir"} or loops:
        return Masks(note="masks of PyG's explainer: only for layers of SIR-GCN without self-loops")
    if near.graphs.num_edges > MOST_EDGES:
        return Masks(note=f"masks of PyG's explainer: only up to {MOST_EDGES:,} edges, here {near.graphs.num_edges:,}")
    if near.graphs.num_edges == 0:
        return Masks(note="masks of PyG's explainer: there are no edges")
    is_float = near.graphs.x.is_floating_point()
    scored = _Scored(score, near).eval()
    needed = [weight.requires_grad for weight in scored.parameters()]
    explainer = Explainer(
        scored,
        GNNExplainer(epochs=epochs, lr=0.05),
        explanation_type="model",
        node_mask_type="attributes" if is_float else None,
        edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "graph", "return_type": "raw"},
    )
    with torch.random.fork_rng(devices=()), torch.enable_grad():
        torch.manual_seed(seed)
        found = explainer(near.graphs.x, near.graphs.edge_index)
    for weight, is_needed in zip(scored.parameters(), needed, strict=True):
        weight.requires_grad_(is_needed)
        weight.grad = None
    return Masks(found.edge_mask.detach(), found.node_mask.detach() if is_float else None)
