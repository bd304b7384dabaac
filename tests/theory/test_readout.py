"""The readout's distances are the kernel distances of its pseudometric, with and without context (Section 3.2)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sirgcn.nn import SIRReadout, VirtualNode
from sirgcn.theory.multisets import kernel_distance
from sirgcn.theory.readout import readout_distances, readout_pseudometric

WIDTH = 3


def make(seed: int, aggr: str = "sum", is_linear: bool = False) -> tuple[SIRReadout, VirtualNode]:
    """A readout and a virtual node in training mode: the functions under test must turn off dropout themselves."""
    torch.manual_seed(seed)
    deep = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4))
    return SIRReadout(nn.Linear(WIDTH, 4) if is_linear else deep, aggr).double(), VirtualNode(WIDTH).double()


@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from(["sum", "mean"]),
    st.sampled_from(["none", "start", "own"]),
    st.integers(0, 2**16),
)
def test_distances_of_readouts_are_kernel_distances(
    num_graphs: int, size: int, aggr: str, context: str, seed: int
) -> None:
    readout, virtual_node = make(seed, aggr)
    x = torch.randn(num_graphs * size, WIDTH, dtype=torch.float64)
    batch = torch.arange(num_graphs).repeat_interleave(size)
    own = virtual_node.eval().update(x, virtual_node.start(num_graphs), batch).detach() if context == "own" else None
    sides = readout_distances(readout, x, batch, None if context == "none" else virtual_node, own)
    # D^2 is a difference of sums. Its root would magnify the rounding error, so squares are compared.
    torch.testing.assert_close(sides.readout**2, sides.distance**2, rtol=1e-9, atol=1e-11)


@given(st.integers(1, 5), st.integers(0, 2**16))
def test_with_one_context_the_distance_is_the_contextual_one(size: int, seed: int) -> None:
    readout, virtual_node = make(seed)
    x, state = torch.randn(2 * size, WIDTH, dtype=torch.float64), torch.randn(1, WIDTH, dtype=torch.float64)
    batch = torch.arange(2).repeat_interleave(size)
    sides = readout_distances(readout, x, batch, virtual_node, state.expand(2, -1))
    d = readout_pseudometric(readout, has_context=True)
    expected = kernel_distance(d, x[:size], x[size:], state[0])
    torch.testing.assert_close(sides.readout[0, 1], expected, rtol=1e-10, atol=1e-12)


@given(st.integers(0, 2**16))
def test_another_context_is_another_pseudometric_unless_r_is_linear(seed: int) -> None:
    for is_linear in (False, True):
        readout, _ = make(seed, is_linear=is_linear)
        d = readout_pseudometric(readout, has_context=True)
        x = torch.randn(8, WIDTH, dtype=torch.float64)
        states = torch.randn(2, WIDTH, dtype=torch.float64)
        assert torch.equal(d(x, query=states[0]), d(x, query=states[0]))
        gap = (d(x, query=states[0]) - d(x, query=states[1])).abs().max()
        assert gap < 1e-7 if is_linear else gap > 1e-5


def test_without_context_the_pseudometric_is_that_of_the_network() -> None:
    readout, _ = make(0)
    readout.eval()
    x = torch.randn(4, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(readout_pseudometric(readout)(x), torch.cdist(readout.network(x), readout.network(x)))


@pytest.mark.parametrize(
    ("batch", "message"),
    [([0, 0, 1], "equal numbers of nodes"), ([], "at least one"), ([0, 1, 0, 1], "side by side")],
)
def test_unequal_or_mixed_graphs_are_refused(batch: list[int], message: str) -> None:
    readout, _ = make(0)
    x = torch.zeros(len(batch), WIDTH, dtype=torch.float64)
    with pytest.raises(ValueError, match=message):
        readout_distances(readout, x, torch.tensor(batch, dtype=torch.int64))
    with pytest.raises(ValueError, match="expected None without a virtual node"):
        readout_distances(readout, torch.zeros(2, WIDTH), torch.tensor([0, 1]), state=torch.zeros(2, WIDTH))
