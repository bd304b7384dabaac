"""What `SIRConv` asks of its arguments and inputs."""

from torch import Tensor, nn
from torch_geometric.nn import Linear as PyGLinear

from sirgcn.ops.checks import whole_number
from sirgcn.ops.rows import Rows


def check_message_network(network: object, hidden_channels: int | None, dropout: float, context: str | None) -> None:
    """Refuse a message network that is no module, and settings that it would have no use for."""
    if network is None:
        return
    if not isinstance(network, nn.Module):
        raise TypeError(f"message_network: expected a module, got {type(network).__name__}")
    if hidden_channels is not None or dropout:
        raise ValueError(
            "message_network: replaces the factorised form, so that hidden_channels and dropout "
            "have nothing to act on; put them into the network"
        )
    if context is not None:
        raise ValueError(
            f"context: adds to the query of the factorised form, which message_network replaces; "
            f"expected None, got {context!r}"
        )


def in_width(lin: nn.Module | None, declared: int) -> int:
    """The input width of a linear layer, which a lazy one knows after its first call."""
    return lin.in_channels if isinstance(lin, PyGLinear) else declared


def pair(channels: int | tuple[int, int]) -> tuple[int, int]:
    """The widths of the sources and of the targets."""
    return channels if isinstance(channels, tuple) else (channels, channels)


def checked_channels(channels: object) -> tuple[int, int]:
    """`in_channels` as the widths of the sources and of the targets, each at least 1, or -1 for a lazy layer."""
    ends = tuple(channels) if isinstance(channels, (tuple, list)) else (channels, channels)
    expected = "a width, -1 or a pair (source, target) of these"
    widths = [whole_number(width, "in_channels", expected) for width in ends]
    if len(widths) != 2 or min(widths) < -1:
        raise ValueError(f"in_channels: expected {expected}, got {channels!r}")
    source, target = widths
    return source, target


def both_ends(x: object) -> tuple[Rows, Rows]:
    """The features of the sources and of the targets."""
    if isinstance(x, (Tensor, Rows)):
        rows = Rows.of(x)
        return rows, rows
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        given = f"{len(x)} of them" if isinstance(x, (tuple, list)) else type(x).__name__
        raise ValueError(f"x: expected a tensor of node features or a pair (source, target), got {given}")
    source, target = x
    if source is None:
        raise ValueError("x: expected features of the source nodes, got (None, x)")
    if target is None:
        raise ValueError("x: expected features of the target nodes too, which the query W_Q h_u reads, got (x, None)")
    return Rows.of(source), Rows.of(target)


def check_features(end: str, rows: Rows, width: int) -> None:
    """Refuse node features of another dtype, shape or, unless it is not known yet, width."""
    if not rows.dtype.is_floating_point:
        raise ValueError(f"x: expected a floating-point dtype, got {rows.dtype}")
    if len(rows.shape) not in (2, 3):
        raise ValueError(f"x: expected shape [nodes, features] or [batch, nodes, features], got {list(rows.shape)}")
    if width >= 0 and rows.shape[-1] != width:
        raise ValueError(f"x: expected {width} features per {end} node, got {rows.shape[-1]}")
