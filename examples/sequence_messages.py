"""Node features that are sequences, with a recurrent or a convolutional message network (Appendix E).

    python examples/sequence_messages.py

Every node has a short time series. For two neighbours, take the product of their series at every moment, and the
largest of these products. The target of a node is the mean of this value over its neighbours. A message must therefore
read both series side by side. `SIRConv(message_network=g)` accepts any g([h_u || h_v]). The example compares a
recurrent and a convolutional g with the factorised layer, which first mixes the moments of each series by a matrix.
"""

import argparse

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn
from torch_geometric.utils import erdos_renyi_graph, scatter

from sirgcn import Neighbors, SIRConv

LENGTH = 12


class RecurrentMessage(nn.Module):
    """A GRU over the moments t that reads (h_u(t), h_v(t)), from `[*, 2 * LENGTH]` to `[*, 1]`."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.gru = nn.GRU(2, hidden, batch_first=True)
        self.lin = nn.Linear(hidden, 1)

    def forward(self, ends: Tensor) -> Tensor:
        """The message of every edge from both ends' series."""
        _, last = self.gru(ends.unflatten(-1, (2, LENGTH)).transpose(-1, -2))
        return self.lin(last[-1])


class ConvolutionalMessage(nn.Module):
    """A convolution over the moments with max pooling, from `[*, 2 * LENGTH]` to `[*, 1]`."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(2, hidden, 1), nn.ReLU(), nn.Conv1d(hidden, hidden, 1), nn.ReLU())
        self.lin = nn.Linear(hidden, 1)

    def forward(self, ends: Tensor) -> Tensor:
        """The message of every edge from both ends' series."""
        return self.lin(self.conv(ends.unflatten(-1, (2, LENGTH))).amax(-1))


def make_graph(nodes: int) -> tuple[Tensor, Neighbors, Tensor]:
    """Series `[nodes, LENGTH]`, a random graph and the target of every node `[nodes, 1]`."""
    x = torch.randn(nodes, LENGTH)
    edge_index = erdos_renyi_graph(nodes, 6 / nodes)
    source, target = edge_index
    largest = (x[source] * x[target]).amax(-1, keepdim=True)
    y = scatter(largest, target, dim_size=nodes, reduce="mean")
    return x, Neighbors.from_edge_index(edge_index, nodes), y


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return int(text)


def main() -> None:
    """Train the three layers on one graph and print their R^2 on another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=positive, default=500, help="nodes of each graph (default: %(default)s)")
    parser.add_argument("--steps", type=positive, default=300, help="training steps (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of data and weights (default: %(default)s)")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    x, neighbors, y = make_graph(args.nodes)
    test_x, test_neighbors, test_y = make_graph(args.nodes)
    layers = {
        "recurrent g": SIRConv(LENGTH, 1, aggr="mean", message_network=RecurrentMessage()),
        "convolutional g": SIRConv(LENGTH, 1, aggr="mean", message_network=ConvolutionalMessage()),
        "factorised": SIRConv(LENGTH, 1, hidden_channels=64, aggr="mean"),
    }
    table = Table("message", "parameters", "R^2 on a new graph")
    for name, conv in layers.items():
        optimizer = torch.optim.Adam(conv.parameters(), lr=1e-2)
        for _ in track(range(args.steps), description=f"{name:16}"):
            optimizer.zero_grad()
            F.mse_loss(conv(x, neighbors), y).backward()
            optimizer.step()
        with torch.no_grad():
            error = F.mse_loss(conv(test_x, test_neighbors), test_y)
        size = sum(parameter.numel() for parameter in conv.parameters())
        table.add_row(name, f"{size:,}", f"{1 - (error / test_y.var()).item():.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
