"""SIR-GCN beside GCN on DictionaryLookup (Section 5.1, Table 1): each query looks its value up among the keys.

    python examples/dictionary_lookup.py --n 10 --epochs 20

A contextualised message can compare the attribute of a query with that of a key; a GCN sums the keys' values no matter
who asks, so that it can only guess (1 in n).
"""

import argparse

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv

from sirgcn.data.synthetic import dictionary_lookup
from sirgcn.nn import CategoricalEncoder, SIRNet, dictionary_lookup_preset


class GCN(nn.Module):
    """The paper's GCN row: weights 1 / sqrt(in-degree of u * out-degree of v), no self-loops, ReLU on the embedding."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n
        self.encoder = CategoricalEncoder((n + 1, n + 1), 4 * n)
        self.conv = GCNConv(4 * n, 4 * n, normalize=False)
        self.classifier = nn.Linear(4 * n, n, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits of every node, `[nodes, n]`; in this data set every degree that occurs is n."""
        weight = torch.full((edge_index.size(1),), 1 / self.n)
        out: Tensor = self.classifier(self.conv(self.encoder(x).relu(), edge_index, weight))
        return out


def train(
    model: nn.Module, graphs: list[Data], epochs: int, batch_size: int, lr: float, progress: Progress, name: str
) -> None:
    """AdamW on the cross-entropy at the query nodes."""
    loader = DataLoader(graphs, batch_size, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0)
    bar = progress.add_task(name, total=epochs, loss="")
    model.train()
    for _ in range(epochs):
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch.x, batch.edge_index)[batch.query_mask], batch.y)
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.num_graphs
        progress.update(bar, advance=1, loss=f"loss {total / len(graphs):.4f}")


@torch.no_grad()
def accuracy(model: nn.Module, graphs: list[Data]) -> float:
    """The share of query nodes whose value is predicted."""
    model.eval()
    batch = Batch.from_data_list(graphs)
    prediction = model(batch.x, batch.edge_index)[batch.query_mask].argmax(-1)
    return (prediction == batch.y).double().mean().item()


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return int(text)


def main() -> None:
    """Train both models on the same graphs and print their test accuracies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=positive, default=10, help="attributes of the dictionary (default: %(default)s)")
    parser.add_argument("--graphs", type=positive, default=2000, help="training graphs (default: %(default)s)")
    parser.add_argument("--epochs", type=positive, default=25, help="passes over them (default: %(default)s)")
    parser.add_argument("--batch-size", type=positive, default=32, help="graphs per step (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the data and the weights (default: %(default)s)")
    args = parser.parse_args()

    graphs = dictionary_lookup(args.n, args.graphs + 500, args.seed)
    training, test = graphs[: args.graphs], graphs[args.graphs :]
    torch.manual_seed(args.seed)
    models = {"SIR-GCN": SIRNet(**dictionary_lookup_preset(args.n)), "GCN": GCN(args.n)}

    console = Console()
    console.print(f"DictionaryLookup, n = {args.n}: {len(training)} training graphs, {len(test)} test graphs")
    table = Table("model", "parameters", "test accuracy")
    columns = (
        TextColumn("{task.description:8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs  {task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        for name, model in models.items():
            train(model, training, args.epochs, args.batch_size, args.lr, progress, name)
            size = sum(parameter.numel() for parameter in model.parameters())
            table.add_row(name, f"{size:,}", f"{accuracy(model, test):.1%}")
    console.print(table)
    console.print(
        f"Guessing gives {1 / args.n:.1%}. A short run; the paper's protocol has 4,000 graphs and 500 epochs."
    )


if __name__ == "__main__":
    main()
