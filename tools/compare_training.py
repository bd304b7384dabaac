"""Whether two checkouts train alike: `python tools/compare_training.py OTHER [--tolerance 1e-5]`.

For at least one preset of every type of block, both checkouts

1. build the network with the same seed; all initial weights must agree bit for bit;
2. train it for three steps on the same small random graphs, on one thread;
3. give the losses, the outputs in eval mode and the final weights.

A row says "same bits", or gives the largest relative difference. The exit code is 1 where initial weights differ, or
where a difference is above the tolerance. OTHER is the folder of another checkout whose C code is built.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from checkouts import ROOT, Network, build, commit_of, random_batch, start

ATOMS = (119, 5, 12, 12, 10, 6, 6, 2, 2)
NARROW = {"hidden_channels": 64}

NETWORKS = {
    "residual, sym: zinc": Network("zinc", (28,), 1, graphs=8),
    "residual, sym: cluster": Network("cluster", (7,), 6),
    "residual, sym: pattern": Network("pattern", (3,), 2),
    "residual, mean: wikics": Network("wikics", 300, 10),
    "residual, max: mnist": Network("mnist", 3, 10, graphs=8),
    "residual, published: zinc": Network("zinc", (28,), 1, graphs=8, changes={"variant": "published"}),
    "skip, sym: ogbn-arxiv": Network("ogbn-arxiv", 128, 40),
    "skip, max: ogbg-molhiv": Network("ogbg-molhiv", ATOMS, 1, graphs=8),
    "pre_norm, batch: minesweeper": Network("minesweeper", 7, 1),
    "pre_norm, layer: roman-empire": Network("roman-empire", 300, 18, changes=NARROW),
    "transformer: minesweeper": Network(
        "minesweeper", 7, 1, changes={**NARROW, "block": "transformer", "feed_forward": 2}
    ),
    "virtual node: zinc": Network("zinc", (28,), 1, graphs=8, changes={"virtual_node": True}),
    "gcn: zinc": Network("zinc", (28,), 1, graphs=8, changes={"conv": "gcn"}),
    "synthetic: DictionaryLookup(10)": Network("dictionary_lookup", (11, 11), 10, changes={"n": 10}),
    "synthetic: HeteroEdgeCount(4)": Network("hetero_edge_count", (4,), 1, graphs=8, changes={"c": 4}),
}
"""What is compared, by the titles of the rows."""

STEPS, NODES, EDGES = 3, 96, 320

Arrays = dict[str, np.ndarray]


def main() -> None:
    """Train in both checkouts and compare, or, as a child process, train and write the arrays to a file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", nargs="?", type=Path, help="the folder of the other checkout")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="the largest relative difference; default: 1e-5")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        arrays: dict[str, Any] = {f"{title}|{name}": v for title in NETWORKS for name, v in train(title).items()}
        np.savez(arguments.child, **arrays)
        return
    if arguments.other is None:
        parser.error("name the folder of the other checkout")
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = (trained(checkout, Path(folder)) for checkout in (ROOT, arguments.other))
    print(f"this checkout: {commit_of(ROOT)}\nthe other one: {commit_of(arguments.other)}")
    verdicts = {title: compare(ours[title], theirs[title], arguments.tolerance) for title in NETWORKS}
    for title, (text, _) in verdicts.items():
        print(f"{title:34} {text}")
    sys.exit(0 if all(is_alike for _, is_alike in verdicts.values()) else 1)


def trained(checkout: Path, folder: Path) -> dict[str, Arrays]:
    """The arrays of every network as a checkout trains it.

    Raises:
        subprocess.CalledProcessError: the process of the checkout failed.
    """
    file = folder / f"{len(list(folder.iterdir()))}.npz"
    process = start(checkout, "compare_training.py", "--child", str(file))
    process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    found: dict[str, Arrays] = {title: {} for title in NETWORKS}
    with np.load(file) as arrays:
        for key, value in arrays.items():
            title, _, name = key.partition("|")
            found[title][name] = value
    return found


def train(title: str) -> Arrays:
    """Initial weights, losses, outputs and final weights of a network that is trained for three steps."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = NETWORKS[title]
    model = build(network)
    found = arrays_of("initial", model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        batch = random_batch(network, NODES, EDGES, seed=step)
        rows = network.graphs or NODES
        target = torch.randn(rows, network.outputs, generator=torch.Generator().manual_seed(100 + step))
        optimizer.zero_grad()
        loss = (model(**batch) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        output = model(**random_batch(network, NODES, EDGES, seed=STEPS))
    return {**found, "losses": np.array(losses), "outputs": output.numpy(), **arrays_of("final", model)}


def arrays_of(when: str, model: Any) -> Arrays:
    """The parameters and buffers of a model, in the order in which it registers them."""
    return {f"{when} {name}": tensor.detach().numpy().copy() for name, tensor in model.state_dict().items()}


def compare(ours: Arrays, theirs: Arrays, tolerance: float) -> tuple[str, bool]:
    """What a row says of two trainings, and whether they are alike."""
    pairs = paired(ours, theirs)
    if isinstance(pairs, str):
        return pairs, False
    names = "" if list(ours) == list(theirs) else " (other names of weights)"
    if any(not same_bits(*pair) for name, pair in pairs.items() if name.startswith("initial")):
        return f"OTHER INITIAL WEIGHTS{names}", False
    if all(same_bits(*pair) for pair in pairs.values()):
        return f"same bits{names}", True
    worst = max(pairs, key=lambda name: relative_difference(*pairs[name]))
    difference = relative_difference(*pairs[worst])
    verdict = "same initial weights, then" if difference <= tolerance else "DIFFERS, by"
    return f"{verdict} {difference:.1e} of {worst}{names}", bool(difference <= tolerance)


def paired(ours: Arrays, theirs: Arrays) -> dict[str, tuple[np.ndarray, np.ndarray]] | str:
    """The arrays of two trainings side by side, or the reason why they cannot be paired.

    Arrays are paired by name where all names agree, else in the order in which the models register them.
    """
    if ours.keys() == theirs.keys():
        pairs = {name: (ours[name], theirs[name]) for name in ours}
    elif len(ours) == len(theirs):
        pairs = {name: pair for name, *pair in zip(ours, ours.values(), theirs.values(), strict=True)}  # type: ignore[misc]
    else:
        return f"OTHER NUMBER OF ARRAYS: {len(ours)} and {len(theirs)}"
    shapes = [name for name, (mine, other) in pairs.items() if mine.shape != other.shape]
    return f"OTHER SHAPE of {shapes[0]}" if shapes else pairs


def same_bits(mine: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays have the same type and the same bytes."""
    return mine.dtype == other.dtype and mine.tobytes() == other.tobytes()


def relative_difference(mine: np.ndarray, other: np.ndarray) -> float:
    """The largest absolute difference of two arrays by the largest absolute entry; infinite where one has NaN."""
    if not mine.size:
        return 0.0
    difference = np.abs(mine.astype(np.float64) - other.astype(np.float64)).max()
    found = difference / max(np.abs(other.astype(np.float64)).max(), 1e-12)
    return float(found) if np.isfinite(found) else float("inf")


if __name__ == "__main__":
    main()
