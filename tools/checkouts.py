"""What the tools that compare two checkouts share: a process in each of them, and one adapter for their two interfaces.

The comparing process starts one child for each checkout. A child imports the package of its checkout and talks to the
parent in lines: a line in, a line out. The functions `build`, `random_batch` and `trainer` run inside a child. They are
the only places that know how the interface has changed between checkouts.
"""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "20000000000"}
"""Settings of glibc under which a process keeps freed memory. Page faults of fresh memory would add noise to times."""


@dataclass(frozen=True)
class Network:
    """A network that both checkouts can build, and the shape of its input.

    Args:
        preset: a name of `sirgcn.nn.PRESETS`, or one of `SYNTHETIC`.
        inputs: the number of features of a node; a tuple gives the sizes of the vocabularies of categorical columns.
        outputs: the width of the output.
        graphs: the number of graphs in a batch; 0 for a single graph with an output for every node.
        changes: the arguments of the preset that are changed; of a synthetic preset its one argument.
    """

    preset: str
    inputs: int | tuple[int, ...]
    outputs: int
    graphs: int = 0
    changes: dict[str, Any] = field(default_factory=dict)


SYNTHETIC = {"dictionary_lookup": "dictionary_lookup_preset", "hetero_edge_count": "hetero_edge_count_preset"}
"""The presets that are functions of a size, by the names of these functions in `sirgcn.nn`."""


def environment(checkout: Path) -> dict[str, str]:
    """The environment variables of a process that imports the package of a checkout and computes on one thread."""
    own = {"PYTHONPATH": str(checkout.resolve() / "src"), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {**os.environ, **KEEP_MEMORY, **own}


def start(checkout: Path, script: str, *arguments: str) -> "subprocess.Popen[str]":
    """Run a script of this folder as a child process with the package of a checkout."""
    command = [sys.executable, str(ROOT / "tools" / script), *arguments]
    return subprocess.Popen(
        command, env=environment(checkout), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def ask(process: "subprocess.Popen[str]", line: str) -> str:
    """Send a line to a child and return the line that it answers.

    Raises:
        RuntimeError: the child has ended.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"the process of a checkout ended while it was asked for {line!r}")
    return answer


def commit_of(checkout: Path) -> str:
    """The commit of a checkout, with `+` where files differ from it."""
    commands = (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
    head, changes = (
        subprocess.run(
            ["git", "-C", str(checkout), *command], capture_output=True, text=True, check=True
        ).stdout.strip()
        for command in commands
    )
    return f"{head}+" if changes else head


def build(network: Network) -> Any:
    """The network of the checkout that this process imports.

    Before commit 203ab30 was followed by the change to configurations, a synthetic preset was a dictionary of arguments
    of `SIRNet`. Since then it is a configuration for `build_net`.
    """
    from sirgcn import nn

    if network.preset not in SYNTHETIC:
        return nn.preset(network.preset, **network.changes)
    found: Any = getattr(nn, SYNTHETIC[network.preset])(**network.changes)
    if isinstance(found, dict):
        return nn.SIRNet(**found)
    return nn.build_net(found)


def random_batch(network: Network, nodes: int, edges: int, seed: int) -> dict[str, Any]:
    """Inputs of a network by the names of its arguments: random graphs of a few nodes each, or one graph.

    Edges go both ways and stay inside a graph.
    """
    import torch

    random = torch.Generator().manual_seed(seed)
    if isinstance(network.inputs, int):
        x = torch.randn(nodes, network.inputs, generator=random)
    else:
        columns = [torch.randint(size, (nodes,), generator=random) for size in network.inputs]
        x = columns[0] if len(columns) == 1 else torch.stack(columns, 1)
    per_graph = nodes // max(1, network.graphs)
    first = torch.randint(nodes // per_graph * per_graph, (edges // 2,), generator=random)
    second = first // per_graph * per_graph + torch.randint(per_graph, (edges // 2,), generator=random)
    found: dict[str, Any] = {
        "x": x,
        "edge_index": torch.stack([torch.cat([first, second]), torch.cat([second, first])]),
    }
    if network.graphs:
        found["batch"] = (torch.arange(nodes) // per_graph).clamp(max=network.graphs - 1)
        found["batch_size"] = network.graphs
    return found


def trainer(network: Network, data: str, options: dict[str, Any], batch_size: int) -> Any:
    """The engine's trainer of a network on a data set, in the checkout that this process imports."""
    from sirgcn.data import load
    from sirgcn.engine.experiment import TrainConfig
    from sirgcn.engine.loop import Trainer

    config = TrainConfig(epochs=1, batch_size=batch_size, selection="last", schedule="plateau")
    return Trainer(build(network), load(data, **options), config)
