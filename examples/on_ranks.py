"""Train a network on several processes: `python on_ranks.py --ranks 2`, or under torchrun.

With `--graph one` the ranks own the nodes of one graph; with `--graph many` they share the graphs of every batch.
Rank 0 prints the result. Data and results are small, so that the example runs in seconds.
"""

import argparse
import os

import torch

from sirgcn.data import Graphs, Schema, Split, Task, load
from sirgcn.engine.experiment import TrainConfig
from sirgcn.nn import NetConfig
from sirgcn.scale import Workers, train


def one_graph() -> Task:
    """A ring of a thousand nodes, each of which has the class of the quarter of the ring that it is in."""
    nodes = torch.arange(1000)
    edge_index = torch.stack([nodes, (nodes + 1) % 1000])
    edge_index = torch.cat([edge_index, edge_index.flip(0)], 1)
    y = nodes * 4 // 1000
    x = torch.nn.functional.one_hot(y, 4) + torch.randn(1000, 4, generator=torch.Generator().manual_seed(0))
    graphs, splits = Graphs(x, edge_index, y, "node"), (Split.draw(1000),)
    return Task("ring", graphs, Schema(4, outputs=4), splits, "cross_entropy", "accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2, help="processes on this machine; torchrun has its own number")
    parser.add_argument("--graph", choices=("one", "many"), default="one")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--folder", help="where checkpoints are kept; a job that is started again goes on from there")
    given = parser.parse_args()
    if given.graph == "one":
        task, config = one_graph(), NetConfig.of(4, 16, 4, num_layers=2, aggr="mean")
    else:
        task = load("hetero_edge_count", c=2, num_graphs=60)
        config = NetConfig.of(2, 16, 1, num_layers=2, encoder="embedding", pool="sum")
    training = TrainConfig(epochs=given.epochs, batch_size=16, lr=0.01, selection="last")
    found = train(config, task, training, Workers(given.ranks, seconds=600), folder=given.folder)
    if int(os.environ.get("RANK", 0)) == 0:
        print(f"epochs: {len(found.outcome.history)}, test {task.metric}: {found.outcome.metrics['test']:.3f}")


# Every rank imports this file. Without this line, each of them would start ranks again.
if __name__ == "__main__":
    main()
