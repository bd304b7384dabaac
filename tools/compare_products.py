"""Time of the matrix products of a linear layer, by each library: `python tools/compare_products.py [--out FILE]`.

The three products are Y = X W^T + b, the gradient of X (G W) and the gradient of W (G^T X). All libraries compute a
product in turn, on one thread. Times are those of the processor, so that other programs disturb them little. A row
gives the median of the ratios to torch's own product of the same round, with quartiles: below 1.00 is faster than
torch. "kernel" is our product in C. With `--changing` every call has another number of rows, as batches of molecules
have.

`ONEDNN_MAX_CPU_ISA=AVX2` in the environment forbids oneDNN wider instructions.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from sirgcn.engine.environment import environment
from sirgcn.ops.linear import product

SHAPES = [(169_000, 128, 128), (60_000, 96, 96), (10_000, 256, 256), (3_000, 75, 75), (12_000, 80, 80), (2_000, 40, 40)]
"""Rows, input and output width: arxiv and arxiv's blocks, wide rows, a batch of ZINC, of PATTERN, and a small one."""

# Multiplications of a sample: some milliseconds.
WORK = 10**8


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b by torch's oneDNN."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
    return out


# How many numbers of rows a product with changing rows has, all of them larger than that of the shape.
CHANGES = 3000

Products = dict[str, dict[str, Callable[[], Tensor]]]


def products(rows: int, d_in: int, d_out: int, dtype: torch.dtype, is_changing: bool) -> Products:
    """What is timed: each product by each library, with the same rows in every call or with other ones."""
    numbers = itertools.cycle(range(rows, rows + CHANGES)) if is_changing else itertools.repeat(rows)
    most = rows + CHANGES * is_changing
    x_all, weight, bias = (torch.randn(shape, dtype=dtype) for shape in ((most, d_in), (d_out, d_in), (d_out,)))
    grad_all = torch.randn(most, d_out, dtype=dtype)

    def x() -> Tensor:
        return x_all[: next(numbers)]

    def grad() -> Tensor:
        return grad_all[: next(numbers)]

    def both() -> tuple[Tensor, Tensor]:
        number = next(numbers)
        return grad_all[:number].t(), x_all[:number]

    def transposed(left: Tensor, right: Tensor) -> Tensor:
        return onednn(left, right.t())

    found: Products = {
        "forward": {
            "torch": lambda: F.linear(x(), weight, bias),
            "onednn": lambda: onednn(x(), weight, bias),
            "kernel": lambda: product(x(), weight.t(), bias),
        },
        "gradient of x": {
            "torch": lambda: grad() @ weight,
            "onednn": lambda: onednn(grad(), weight.t()),
            "kernel": lambda: product(grad(), weight),
        },
        "gradient of weight": {
            "torch": lambda: torch.mm(*both()),
            "onednn": lambda: transposed(*both()),
            "kernel": lambda: product(*both()),
        },
    }
    if dtype == torch.float64:
        # oneDNN has no product in double precision.
        for ways in found.values():
            del ways["onednn"]
    return found


def sample(call: Callable[[], Tensor], calls: int) -> float:
    """Seconds of the processor per call."""
    start = time.thread_time()
    for _ in range(calls):
        call()
    return (time.thread_time() - start) / calls


def measure(ways: dict[str, Callable[[], Tensor]], calls: int, rounds: int) -> dict[str, list[float]]:
    """The seconds of each library, round by round; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for i in range(rounds + 1):
        for name, call in ways.items():
            seconds = sample(call, calls)
            if i:
                times[name].append(seconds)
    return times


def main() -> None:
    """Measure all shapes and print a row for each product and library."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=41, help="of each product")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--changing", action="store_true", help="another number of rows in every call")
    parser.add_argument("--out", type=Path, help="write the record here, as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for shape in SHAPES:
        work = shape[0] * shape[1] * shape[2]
        for name, ways in products(*shape, getattr(torch, arguments.dtype), arguments.changing).items():
            times = measure(ways, max(1, WORK // work), arguments.rounds)
            for library, seconds in times.items():
                ratios = [own / other for own, other in zip(seconds, times["torch"], strict=True)]
                low, middle, high = (round(value, 3) for value in statistics.quantiles(ratios, n=4))
                gflops = round(2e-9 * work / statistics.median(seconds), 1)
                print(f"{shape!s:20} {name:18} {library:7} {gflops:6.1f} GF/s {middle:6.3f} ({low:.3f} to {high:.3f})")
                rows.append(
                    {
                        "shape": shape,
                        "product": name,
                        "library": library,
                        "gflops": gflops,
                        "ratio": [low, middle, high],
                    }
                )
    if arguments.out is not None:
        settings = {"dtype": arguments.dtype, "changing": arguments.changing, "rounds": arguments.rounds}
        record = {**settings, "environment": environment(), "rows": rows}
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
