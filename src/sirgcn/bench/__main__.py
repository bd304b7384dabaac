"""`python -m sirgcn.bench`: print the measurements as a table and keep them as JSON."""

import argparse
import json
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import torch
import torch_geometric
from rich.console import Console
from rich.table import Table

import sirgcn
from sirgcn.bench.memory import measure_memory


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        prog="python -m sirgcn.bench",
        description="Peak memory and time of forward+backward: the tiled layer against the materialised one.",
    )
    parser.add_argument("--nodes", type=int, default=50_000, help="default: %(default)s")
    parser.add_argument("--edges", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--channels", type=int, default=128, help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each form, interleaved; default: %(default)s")
    parser.add_argument("--output", type=Path, default=Path("bench-results/memory.json"), help="default: %(default)s")
    args = parser.parse_args()

    console = Console()
    shape = f"{args.nodes:,} nodes, {args.edges:,} edges, {args.channels} channels"
    with console.status(f"Measuring SIRConv with an MLP as sigma: {shape}"):
        measurements = measure_memory(args.nodes, args.edges, args.channels, args.repeats)
    table = Table(title=f"SIRConv with an MLP as sigma, forward+backward: {shape}")
    for heading in ("aggr", "tiled", "materialised", "memory ratio", "time ratio"):
        table.add_column(heading, justify="right")
    for m in measurements:
        table.add_row(
            m.aggr,
            f"{m.tiled_bytes / 2**20:,.0f} MiB, {median(m.tiled_seconds):.2f} s",
            f"{m.materialised_bytes / 2**20:,.0f} MiB, {median(m.materialised_seconds):.2f} s",
            f"{m.memory_ratio:.1f}",
            f"{m.time_ratio:.2f}",
        )
    console.print(table)
    console.print("Ratios are materialised / tiled: above 1 the tiled form is better.")
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "sirgcn": sirgcn.__version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "measurements": [
            asdict(m) | {"memory_ratio": m.memory_ratio, "time_ratio": m.time_ratio} for m in measurements
        ],
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(record, indent=2) + "\n")
    console.print(f"Written to {args.output}")


if __name__ == "__main__":
    main()
