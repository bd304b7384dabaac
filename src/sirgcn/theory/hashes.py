r"""The hash functions of Figure 2, for a node u with two neighbours of scalar features and several message functions.

The contour lines of :math:`G_u(h_{v_1}, h_{v_2}) = g_u(h_{v_1}) + g_u(h_{v_2})` are the equivalence classes [H]_D.
All neighbourhoods on one line collide.
"""

import torch
from torch import Tensor

from sirgcn.ops import Activation
from sirgcn.strict import check_name
from sirgcn.theory.multisets import hash_multiset
from sirgcn.theory.pseudometrics import Pseudometric, feature_distance

MESSAGES = {"linear": "h", "mlp": "MLP(h)", "square": "-h²"}
"""The message functions g_u of Figure 2: names and formulas."""

# The paper prints no weights. With ReLU they give a valley between two hills, with kinks at -1.2, 0.4 and 1.8.
MLP_KEY = (-1.2, 0.9, 1.5, 1.0)
MLP_INNER_BIAS = (-1.44, 1.08, -0.6, -1.8)
MLP_RELATION = (-0.8, -1.0, 1.5, -1.7)


def scalar_message(name: str, h: Tensor, bias: float = 0.0, sigma: str = "relu") -> Tensor:
    r"""The message :math:`g_u(h + b)` of scalar features, in the shape of h (Figure 2).

    `linear` is h, and `square` is :math:`-h^2`. `mlp` is the two-layer network :math:`W_R \, \sigma(W_K h + c)` with
    the weights of this module. b stands for what the query u adds: the paper's third plot is `mlp` with b = 1.

    Args:
        name: a name of `MESSAGES`.
        h: features of any shape.
        bias: b.
        sigma: the activation of `mlp`, by name.

    >>> scalar_message("square", torch.tensor([1.0, 2.0])).tolist()
    [-1.0, -4.0]
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

    The arguments are those of `scalar_message`.

    >>> d = message_distance("square")
    >>> d(torch.tensor([[1.0]]), torch.tensor([[-1.0], [2.0]])).tolist()
    [[0.0, 3.0]]
    """
    return feature_distance(lambda x: scalar_message(name, x, bias, sigma), f"message {name}")


def hash_surface(name: str, grid: Tensor, bias: float = 0.0, sigma: str = "relu") -> Tensor:
    r"""G_u over a grid of the features of both neighbours (Figure 2), `[n, n]`; in row i :math:`h_{v_2}` is grid[i].

    The other arguments are those of `scalar_message`.

    >>> hash_surface("linear", torch.tensor([0.0, 1.0])).tolist()
    [[0.0, 1.0], [1.0, 2.0]]
    """
    if grid.dim() != 1 or grid.numel() == 0:
        raise ValueError(f"grid: expected features [n], at least one, got shape {list(grid.shape)}")
    pairs = torch.stack(torch.meshgrid(grid, grid, indexing="xy"), dim=-1).unsqueeze(-1)
    g = message_distance(name, bias, sigma).features
    assert g is not None
    return hash_multiset(g, pairs).squeeze(-1)
