r"""The hash functions of Figure 2: a node u with two neighbours of scalar features, under different message functions.

The contour lines of :math:`G_u(h_{v_1}, h_{v_2}) = g_u(h_{v_1}) + g_u(h_{v_2})` are the equivalence classes [H]_D: what
lies on one line collides.
"""

import torch
from torch import Tensor

from sirgcn.ops import Activation
from sirgcn.strict import check_name
from sirgcn.theory.multisets import hash_multiset
from sirgcn.theory.pseudometrics import Pseudometric, feature_distance

MESSAGES = {"linear": "h", "mlp": "MLP(h)", "square": "-h²"}
"""The message functions g_u of Figure 2, by name, as they are written."""

# The paper prints no weights. With ReLU these give a valley between two hills, with kinks at -1.2, 0.4 and 1.8.
MLP_KEY = (-1.2, 0.9, 1.5, 1.0)
MLP_INNER_BIAS = (-1.44, 1.08, -0.6, -1.8)
MLP_RELATION = (-0.8, -1.0, 1.5, -1.7)


def scalar_message(name: str, h: Tensor, bias: float = 0.0, sigma: str = "relu") -> Tensor:
    r"""The message :math:`g_u(h + b)` of scalar features, of h's shape (Figure 2).

    `linear` is h, `square` is :math:`-h^2`, and `mlp` the two-layer network :math:`W_R \, \sigma(W_K h + c)` with the
    weights of this module. b stands for what the query u adds: the paper's third plot is `mlp` with b = 1.

    Args:
        name: a name of `MESSAGES`.
        h: features of any shape.
        bias: b.
        sigma: of `mlp`, a name of the table of activations.
    """
    check_name("message", name, MESSAGES, exact=True)
    h = h + bias
    if name == "linear":
        return h
    if name == "square":
        return -h.square()
    key, inner, relation = (h.new_tensor(weights) for weights in (MLP_KEY, MLP_INNER_BIAS, MLP_RELATION))
    found: Tensor = Activation.parse(sigma)(h.unsqueeze(-1) * key + inner) @ relation
    return found


def message_distance(name: str, bias: float = 0.0, sigma: str = "relu") -> Pseudometric:
    r"""The pseudometric of a message function, :math:`d_u(h, h') = |g_u(h) - g_u(h')|`, on features `[*, n, 1]`.

    Arguments as `scalar_message`.
    """
    return feature_distance(lambda x: scalar_message(name, x, bias, sigma), f"message {name}")


def hash_surface(name: str, grid: Tensor, bias: float = 0.0, sigma: str = "relu") -> Tensor:
    r"""G_u over a grid of both neighbours' features (Figure 2), `[n, n]`: row i has :math:`h_{v_2}` = grid[i].

    Arguments as `scalar_message`.
    """
    if grid.dim() != 1 or grid.numel() == 0:
        raise ValueError(f"grid: expected features [n], at least one, got shape {list(grid.shape)}")
    pairs = torch.stack(torch.meshgrid(grid, grid, indexing="xy"), dim=-1).unsqueeze(-1)
    g = message_distance(name, bias, sigma).features
    assert g is not None
    return hash_multiset(g, pairs).squeeze(-1)
