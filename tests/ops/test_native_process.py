"""The backend `native` in processes of its own: its environment variable, forks, wide vectors, no build at all."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sirgcn.ops import native

ROOT = Path(__file__).parents[2]
needs_native = pytest.mark.skipif(native.UNAVAILABLE is not None, reason=f"not available: {native.UNAVAILABLE}")

# Whatever hangs is ended: a fork that waits for threads it does not have would wait for ever.
LIMIT = 600


def python(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **env},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )


def output(code: str, **env: str) -> str:
    run = python("-W", "error", "-c", code, **env)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.strip()


ISAS_IN_USE = "from sirgcn.ops.native import _kernels; print(*_kernels.isas())"


@needs_native
def test_environment_variable_limits_the_instruction_set() -> None:
    import sirgcn.ops.native._kernels as _kernels

    for place, name in enumerate(_kernels.isas()):
        assert output(ISAS_IN_USE, SIRGCN_ISA=name).split() == _kernels.isas()[place:]


@needs_native
def test_environment_variable_with_an_unknown_instruction_set_is_refused_with_the_known_ones() -> None:
    import sirgcn.ops.native._kernels as _kernels

    run = python("-c", "import sirgcn.ops", SIRGCN_ISA="sse9")
    assert run.returncode != 0
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError: SIRGCN_ISA: expected ")
    assert all(name in last for name in _kernels.isas())
    assert last.endswith("got 'sse9'")


# Tensors of the children stay below 32,768 elements, from which on torch itself would wait for its threads.
FORK = """
import multiprocessing, torch
from sirgcn.ops import Neighbors, sir_aggregate, tiled_aggregate

network = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.ReLU())

def work(_):
    generator = torch.Generator().manual_seed(0)
    neighbors = Neighbors.from_edge_index(torch.randint(0, 200, (2, 9000), generator=generator), 200)
    query, key, table = (torch.randn(n, 64, generator=generator).requires_grad_() for n in (200, 200, 3))
    edge_type = torch.randint(0, 3, (9000,), generator=generator)
    out = sir_aggregate(query, key, neighbors, (table, edge_type), activation="gelu", backend="native")
    out = out + tiled_aggregate(network, query, key, neighbors, (table, edge_type), backend="native")
    return [x.tolist() for x in (out, *torch.autograd.grad(out.sum(), [query, key, table]))]

torch.set_num_threads(3)
expected = work(0)
torch.ones(1000, 1000).exp_()
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map_async(work, range(4)).get(60) == [expected] * 4, work(0) == expected)
"""


@needs_native
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_child_of_a_process_with_threads_computes_the_same() -> None:
    # Python 3.12 and later warn of every fork of a process with threads.
    assert output("import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n" + FORK) == "True True"


LOADER = """
import torch
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data
from sirgcn import SIRConv

torch.manual_seed(0)
torch.set_num_threads(3)
graphs = [Data(x=torch.randn(300, 16), edge_index=torch.randint(0, 300, (2, 9000))) for _ in range(6)]
layer = SIRConv(16, 48, activation="gelu").requires_grad_(False)

def collate(chunk):
    batch = Batch.from_data_list(chunk)
    return layer(batch.x, batch.edge_index)

expected = [collate(graphs[i : i + 2]) for i in (0, 2, 4)]
for _ in range(2):
    how = {"num_workers": 2, "multiprocessing_context": "fork", "timeout": 60}
    loader = DataLoader(graphs, batch_size=2, collate_fn=collate, **how)
    # The products of matrices may be summed in another order on another number of threads.
    print(all(torch.allclose(a, b, atol=1e-5) for a, b in zip(loader, expected, strict=True)))
"""


@needs_native
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_layer_works_in_the_workers_of_a_data_loader() -> None:
    run = python("-c", LOADER)
    assert run.stdout.split() == ["True", "True"], run.stdout + run.stderr


@needs_native
@pytest.mark.skipif(shutil.which(os.environ.get("CC", "gcc")) is None, reason="there is no C compiler")
def test_laws_hold_for_vectors_of_64_bytes_on_any_machine() -> None:
    """The kernels for AVX-512, their vectors in pieces that this machine has, keep the laws of `test_native*.py`."""
    folder = ROOT / "build" / "wide-vectors"
    built = python("tools/build_kernels.py", str(folder), "--isa=avx512", "-Og", "-DSIRGCN_LOWER_VECTORS")
    assert built.returncode == 0, built.stderr
    env = {"PYTHONPATH": str(folder), "SIRGCN_ISA": "avx512", "OMP_NUM_THREADS": "1"}
    assert output(f"{ISAS_IN_USE}; print(_kernels.__file__)", **env).split()[::4] == [
        "avx512",
        str(folder / "sirgcn/ops/native/_kernels.abi3.so"),
    ]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "avx512"]
    run = python(
        "-m",
        "pytest",
        *options,
        "tests/ops/test_native.py",
        "tests/ops/test_native_network.py",
        "tests/ops/test_linear.py",
        **env,
    )
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-2_000:]
    assert " passed" in run.stdout


HIDDEN = """
import sys, warnings
sys.modules["sirgcn.ops.native._kernels"] = None
import torch
from sirgcn import SIRConv
from sirgcn.ops import Neighbors, backends, native, sir_aggregate, tiled_aggregate

reason = backends()["native"]
assert reason == native.UNAVAILABLE and "C extension was not built" in reason and "compiler" in reason, reason
assert backends()["reference"] is None
edge_index = torch.tensor([[0, 1, 2, 2, 0], [1, 1, 0, 3, 3]])
query, key = (torch.randn(4, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    neighbors = Neighbors.from_edge_index(edge_index, 4)
    for _ in range(3):
        out = sir_aggregate(query, key, neighbors, activation="gelu")
    expected = sir_aggregate(query, key, neighbors, activation="gelu", backend="reference")
    assert torch.equal(out, expected)
    for a, b in zip(*(torch.autograd.grad(x.sum(), [query, key]) for x in (out, expected))):
        assert torch.equal(a, b)
    tiled_aggregate(torch.nn.ReLU(), query, key, neighbors, reduce="max").sum().backward()
    for options in ({}, {"aggr": "max"}):
        x = torch.randn(4, 3, requires_grad=True)
        SIRConv(3, 6, **options)(x, edge_index).sum().backward()
        assert x.grad is not None and x.grad.isfinite().all()
ours = [str(w.message) for w in caught if "sirgcn" in str(w.message)]
assert len(ours) == 1, ours
assert "native" in ours[0] and reason in ours[0], ours
for call in (
    lambda: sir_aggregate(query, key, neighbors, backend="native"),
    lambda: SIRConv(3, 6, backend="native")(torch.randn(4, 3), edge_index),
):
    try:
        call()
    except RuntimeError as error:
        assert "native is not available here" in str(error) and reason in str(error), error
    else:
        raise AssertionError("an explicit backend fell back")
print("as it should be")
"""


def test_without_the_extension_torch_does_the_work_and_one_warning_says_why() -> None:
    run = python("-c", HIDDEN)
    assert run.stdout.strip() == "as it should be", run.stdout + run.stderr


COMPILED = """
import torch
from sirgcn.ops import Neighbors, sir_aggregate

@torch.compile(backend="aot_eager", fullgraph=True)
def layer(x, edge_index, table, edge_type):
    neighbors = Neighbors.from_edge_index(edge_index, (x.size(0), x.size(0)))
    return sir_aggregate(x, x, neighbors, (table, edge_type))

x, table, good = torch.randn(4, 8), torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])
layer(x, good, table, torch.tensor([0, 1]))
for edge_index, edge_type in (
    ([[0, 10**8], [1, 2]], [0, 1]), ([[0, 1], [1, 10**8]], [0, 1]), ([[-(10**8), 1], [1, 2]], [0, 1]),
    ([[0, 1], [1, 2]], [0, 10**8]),
):
    try:
        layer(x, torch.tensor(edge_index), table, torch.tensor(edge_type))
    except (IndexError, RuntimeError) as error:
        print("refused" if "expected 0 <=" in str(error) else error)
"""


@needs_native
def test_index_out_of_range_under_compile_is_refused_and_not_read() -> None:
    run = python("-c", COMPILED)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["refused"] * 4
