"""Time and memory of what `sirgcn.scale` does on large drawn graphs: `python tools/measure_scale.py PART [--scale F]`.

Each part adds one line to its record:

- `sampler`: edges per second of the neighbour sampler and of samplers in plain torch, in turn on one graph;
  `results/scale/sampler.jsonl`
- `training`: a sampled training on the same graph, with its largest memory; `results/scale/sampler.jsonl`
- `tolokers`: ROC-AUC of sampled training beside that of the whole graph and of a control without the graph;
  `results/scale/sampler.jsonl`
- `disk`: tables on disk become a graph on disk, and three layers predict on it; the time and the largest memory of each
  stage, and the largest difference to the result in memory; `results/scale/disk.jsonl`

Every stage runs in a process of its own, whose largest memory is that of the stage. `--scale 0.01` is a graph of a
hundredth of the size, for a trial. `--folder` holds the files of `disk`, which are removed at the end.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import NodeSamplerInput

from sirgcn import SIRNet
from sirgcn.data import Graphs, Schema, Split, Task, load
from sirgcn.engine.environment import environment_of, peak_memory_mb
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.loop import Trainer
from sirgcn.ops import Grouping, Neighbors
from sirgcn.ops.sampling import InEdges
from sirgcn.scale import DiskGraph, NeighborSampler, SampledTask, WholeGraph, convert, layerwise

ROOT = Path(__file__).parent.parent
TOLOKERS = {"epochs": 40, "features": 64, "seeds": 2}
DRAWN = {"nodes": 2_000_000, "edges": 30_000_000, "features": 32}
PRODUCTS = {"nodes": 2_400_000, "edges": 124_000_000, "features": 100}
FANOUTS, BATCH = [10, 5], 1024


def draw_edges(nodes: int, edges: int, seed: int = 0) -> Tensor:
    """Edges with uniform sources and with targets whose degrees are skewed."""
    random = torch.Generator().manual_seed(seed)
    source = torch.randint(nodes, (edges,), generator=random)
    target = (torch.rand(edges, generator=random, dtype=torch.float64).square() * nodes).long()
    return torch.stack([source, target])


def sampler(sizes: dict[str, int], folder: Path) -> dict[str, Any]:
    """Edges per second: our sampler, its twin in torch, and torch with replacement, which does less."""
    edges = InEdges.of(draw_edges(sizes["nodes"], sizes["edges"]), (sizes["nodes"], sizes["nodes"]))
    samplers = {name: NeighborSampler(edges, FANOUTS, backend=name) for name in ("native", "torch")}
    calls: dict[str, Callable[[Tensor], int]] = {
        "native": lambda seeds: len(samplers["native"].sample_from_nodes(NodeSamplerInput(None, seeds)).row),
        "torch": lambda seeds: len(samplers["torch"].sample_from_nodes(NodeSamplerInput(None, seeds)).row),
        "torch with replacement": lambda seeds: _with_replacement(edges, seeds),
    }
    rates: dict[str, list[float]] = {name: [] for name in calls}
    random = torch.Generator().manual_seed(1)
    for _ in range(60):
        seeds = torch.randint(sizes["nodes"], (BATCH,), generator=random)
        for name, call in calls.items():
            begun = time.process_time()
            drawn = call(seeds)
            rates[name].append(drawn / (time.process_time() - begun))
    found = {name: statistics.median(values) for name, values in rates.items()}
    ratios = [ours / theirs for ours, theirs in zip(rates["native"], rates["torch"], strict=True)]
    return {"edges_per_second": found, "ratio": statistics.median(ratios), "fanouts": FANOUTS, "batch": BATCH}


def _with_replacement(edges: InEdges, seeds: Tensor) -> int:
    """A sampler as it is often written: draws with replacement, then unique nodes."""
    nodes, drawn = seeds, 0
    for fanout in FANOUTS:
        first, degree = edges.ptr[nodes].long(), (edges.ptr[nodes + 1] - edges.ptr[nodes]).long()
        place = (torch.rand(len(nodes), fanout) * degree.unsqueeze(1)).long() + first.unsqueeze(1)
        place = place[degree > 0]
        nodes, _ = torch.unique(edges.node[place.flatten()].long(), return_inverse=True)
        drawn += place.numel()
    return drawn


def training(sizes: dict[str, int], folder: Path) -> dict[str, Any]:
    """One epoch of sampled training over a tenth of the nodes, and the exact scores of all nodes."""
    nodes = sizes["nodes"]
    random = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, sizes["features"], generator=random)
    y = (x[:, 0] > 0).long()
    graphs = Graphs(x, draw_edges(nodes, sizes["edges"]), y, "node")
    order = torch.randperm(nodes, generator=random)
    parts = order.split([nodes // 10, nodes // 10, nodes - 2 * (nodes // 10)])
    task = Task(
        "drawn", graphs, Schema(outputs=2, features=sizes["features"]), (Split(*parts),), "cross_entropy", "accuracy"
    )
    net = SIRNet.of(sizes["features"], 64, 2, num_layers=2, aggr="mean")
    sampled = SampledTask.of(task, FANOUTS)
    config = TrainConfig(epochs=1, batch_size=BATCH, selection="last")
    begun = time.perf_counter()
    outcome = Trainer(net, sampled, config, whole=WholeGraph(memory="512MB")).run()
    return {"seconds": time.perf_counter() - begun, "accuracy": outcome.metrics["test"], "peak_mb": peak_memory_mb()}


def tolokers(sizes: dict[str, int], folder: Path) -> dict[str, Any]:
    """ROC-AUC on tolokers: the control without the graph, training on the whole graph, and sampled training."""
    task = load("tolokers")
    columns, width = task.schema.features, sizes["features"]
    found: dict[str, list[float]] = {"control": [], "whole": [], "sampled": []}
    epochs = {"control": 5 * sizes["epochs"], "whole": 5 * sizes["epochs"], "sampled": sizes["epochs"]}
    for seed in range(sizes["seeds"]):
        for name, scores in found.items():
            torch.manual_seed(seed)
            conv: dict[str, Any] = {"conv": "mlp"} if name == "control" else {"aggr": "mean"}
            net = SIRNet.of(columns, width, task.schema.outputs, num_layers=2, residual=True, dropout=0.2, **conv)
            trained = SampledTask.of(task, [25, 10], seed) if name == "sampled" else task
            config = TrainConfig(epochs=epochs[name], batch_size=256, lr=3e-3, selection="val_metric")
            scores.append(Trainer(net, trained, config, split=seed, seed=seed).run().metrics["test"])
            print(name, seed, scores[-1], flush=True)
    control, whole, sampled = (statistics.mean(found[name]) for name in ("control", "whole", "sampled"))
    return {"roc_auc": found, "epochs": epochs, "share_of_gain": (sampled - control) / (whole - control)}


def disk(sizes: dict[str, int], folder: Path) -> dict[str, Any]:
    """The stages of a graph on disk, each in a process of its own."""
    folder.mkdir(parents=True)
    try:
        found = {
            stage: _in_process(stage, sizes, folder) for stage in ("write", "convert", "verify", "predict", "memory")
        }
    finally:
        shutil.rmtree(folder)
    return found


def _in_process(stage: str, sizes: dict[str, int], folder: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "stage", stage, json.dumps(sizes), str(folder)]
    print(stage, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    print(found, flush=True)
    return found


def stage(name: str, sizes: dict[str, int], folder: Path) -> dict[str, Any]:
    """One stage of `disk`, in this process."""
    begun = time.perf_counter()
    found = STAGES[name](sizes, folder)
    return {"seconds": time.perf_counter() - begun, "peak_mb": peak_memory_mb(), **found}


def _write(sizes: dict[str, int], folder: Path) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetWriter(folder / "edges.parquet", pa.schema({"source": pa.int32(), "target": pa.int32()})) as file:
        for piece, start in enumerate(range(0, sizes["edges"], 2**21)):
            count = min(2**21, sizes["edges"] - start)
            source, target = draw_edges(sizes["nodes"], count, seed=piece).int().numpy()
            file.write_table(pa.table({"source": source, "target": target}))
    names = [f"f{i}" for i in range(sizes["features"])]
    with pq.ParquetWriter(folder / "nodes.parquet", pa.schema(dict.fromkeys(names, pa.float32()))) as file:
        for start in range(0, sizes["nodes"], 2**17):
            rows = np.random.default_rng(start).standard_normal(
                (min(2**17, sizes["nodes"] - start), len(names)), dtype=np.float32
            )
            file.write_table(pa.table({name: rows[:, i] for i, name in enumerate(names)}))
    return {"bytes": sum(path.stat().st_size for path in folder.iterdir())}


def _convert(sizes: dict[str, int], folder: Path) -> dict[str, Any]:
    graph = convert(folder / "graph", folder / "edges.parquet", folder / "nodes.parquet", memory="2GB")
    return {"nodes": graph.num_nodes, "edges": graph.num_edges}


def _verify(sizes: dict[str, int], folder: Path) -> dict[str, Any]:
    return {"bytes": sum(block.bytes for block in DiskGraph(folder / "graph").manifest.blocks)}


def _net(sizes: dict[str, int]) -> SIRNet:
    torch.manual_seed(0)
    return SIRNet.of(sizes["features"], 64, 64, num_layers=3, aggr="mean").eval()


def _predict(sizes: dict[str, int], folder: Path) -> dict[str, Any]:
    graph = DiskGraph(folder / "graph", verify=False)
    layerwise(_net(sizes), graph, memory="2GB", out=folder / "predicted.npy")
    return {}


def _memory(sizes: dict[str, int], folder: Path) -> dict[str, Any]:
    """The same by one pass over the graph in memory, whose edges are grouped by target only: there are no gradients."""
    graph = DiskGraph(folder / "graph", verify=False)
    edges, nodes = graph.in_edges(), graph.num_nodes
    node = edges.node.clone()
    target = torch.repeat_interleave(torch.arange(nodes, dtype=node.dtype), edges.ptr.diff())
    by_target = Grouping(edges.ptr.to(node.dtype), node, torch.arange(len(node), dtype=node.dtype))
    by_source = Grouping(node.new_zeros(nodes + 1), node[:0], node[:0])
    whole = Neighbors(torch.stack([node, target]), by_target, by_source, nodes, nodes, is_checked=True)
    with torch.inference_mode():
        wanted = _net(sizes)(graph.read(0, nodes)[0], whole)
    found = torch.from_numpy(np.load(folder / "predicted.npy", mmap_mode="c"))
    worst = max(float((a - b).abs().max()) for a, b in zip(wanted.split(2**18), found.split(2**18), strict=True))
    return {"largest_difference": worst, "largest_output": float(wanted.abs().max())}


PARTS = {
    "sampler": (sampler, DRAWN, "sampler"),
    "training": (training, DRAWN, "sampler"),
    "tolokers": (tolokers, TOLOKERS, "sampler"),
    "disk": (disk, PRODUCTS, "disk"),
}
STAGES = {"write": _write, "convert": _convert, "verify": _verify, "predict": _predict, "memory": _memory}


def main() -> None:
    """Measure one part and add it to its record."""
    if sys.argv[1:2] == ["stage"]:
        print(json.dumps(stage(sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4]))))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=Path("measured"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    measure, full, record = PARTS[given.part]
    sizes = {name: size if name in ("features", "seeds") else int(size * given.scale) for name, size in full.items()}
    where = environment_of("cpu")
    found = {"part": given.part, "sizes": sizes, "metrics": measure(sizes, given.folder), "environment": where}
    out = given.out or ROOT / "results" / "scale" / f"{record}.jsonl"
    with out.open("a") as file:
        file.write(json.dumps(found) + "\n")
    print(json.dumps(found["metrics"], indent=1))


if __name__ == "__main__":
    main()
