"""A small file cannot fill the memory: what it unpacks to, and what a pickle builds, is bounded and refused by name."""

import gzip
import io
import json
import pickle
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sirgcn.data import archives
from sirgcn.data.archives import Limits
from sirgcn.data.sets import benchmarking, ogb, public
from sirgcn.data.sets.pickles import Pickled, as_array, load_pickle
from sirgcn.data.tables import apply_tables, columns, delimited, load_tables
from sirgcn.data.validate import DataError

MEGABYTE = 1 << 20
NODES = pd.DataFrame({"id": range(6), "label": ["a", "b"] * 3})
EDGES = pd.DataFrame({"source": [0, 1], "target": [1, 2]})


def zeros(megabytes: int, start: bytes = b"id,label\n", chunk: bytes = b"0,a\n") -> bytes:
    """A gzip file of so many bytes that are always the same."""
    packer = zlib.compressobj(9, wbits=31)
    chunk = chunk * (MEGABYTE // len(chunk))
    return b"".join([packer.compress(start), *(packer.compress(chunk) for _ in range(megabytes)), packer.flush()])


def program(*lines: bytes) -> bytes:
    return b"\x80\x02" + b"".join(lines) + b"."


def text(letters: int) -> bytes:
    return b"X" + struct.pack("<I", letters) + b"x" * letters


ENCODE = b"c_codecs\nencode\nq\x00" + text(MEGABYTE) + b"q\x01X\x06\x00\x00\x00latin1q\x02\x86q\x03"
DTYPE = b"cnumpy\ndtype\nU\x02f8K\x00K\x01\x87R"
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\nNNN\x87R(K\x01"
ONES = pickle.dumps(np.ones(MEGABYTE // 8), 2)[2:-1]
# The description of a matrix of 20,000 by 20,000 numbers, and of a number that is repeated a billion times.
SPARSE = b"cscipy.sparse.csr\ncsr_matrix\n)R}(" + b"".join(
    b"X" + struct.pack("<I", len(name)) + name + pickle.dumps(value, 2)[2:-1]
    for name, value in (
        (b"indptr", np.zeros(20_001, np.int32)),
        (b"indices", np.zeros(0, np.int32)),
        (b"data", np.zeros(0)),
        (b"_shape", (20_000, 20_000)),
    )
)
WIDE = pickle.dumps(torch.ones(1).expand(1 << 30), 4)
PICKLES = {
    "copies of a text": program(ENCODE, b"h\x00h\x03R" * 1000, b"]"),
    "a sparse matrix": program(SPARSE, b"ub"),
    "a number repeated": WIDE,
    "an array named often": program(b"](", ONES, b"q\x09", b"h\x09" * 2000, b"e"),
    "a shape without numbers": program(ARRAY, b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86", DTYPE, b"\x89U\x00tb"),
    "lists": program(b"]" * (2 * MEGABYTE)),
    "marks": program(b"(" * (2 * MEGABYTE), b"]"),
    "matrices": program(b"cscipy.sparse.csr\ncsr_matrix\nq\x00", b"h\x00)R" * (MEGABYTE // 2)),
    "a memo": b"\x80\x04N" + b"\x94" * (2 * MEGABYTE) + b".",
}
BUILT = ("lists", "marks", "matrices", "a memo")

CHILD = """
import json, resource, sys
from pathlib import Path
from sirgcn.data.tables import load_tables
from sirgcn.data.sets.pickles import Pickled, load_pickle
from sirgcn.data.validate import DataError

def arrays(value):
    if isinstance(value, Pickled):
        return [value.array()]
    return [array for item in value for array in arrays(item)] if isinstance(value, list) else []

pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
found = {}
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        if path.suffix == ".pickle":
            arrays(load_pickle(path))
        else:
            load_tables(path, path)
        found[path.name] = "read"
    except DataError as error:
        found[path.name] = error.message
print(json.dumps(found))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs the address space of Linux")
def test_no_small_file_takes_a_gigabyte(tmp_path: Path) -> None:
    for name, content in PICKLES.items():
        (tmp_path / f"{name}.pickle").write_bytes(content)
    (tmp_path / "nodes.csv.gz").write_bytes(zeros(400))
    (tmp_path / "graph.graphml.gz").write_bytes(zeros(400, b"<graphml>", b"<node/>"))
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 5 * MEGABYTE
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    for name in PICKLES:
        if name not in BUILT:
            assert "an array of more than that" in found.pop(f"{name}.pickle")
    assert all(found.pop(f"{name}.pickle") for name in BUILT)
    assert all("expected at most 104857600 bytes in it when unpacked, got more" in text for text in found.values())
    assert len(found) == 2


def test_the_limit_of_a_packed_file_can_be_raised(tmp_path: Path) -> None:
    nodes, edges = tmp_path / "nodes.csv.gz", tmp_path / "edges.csv.gz"
    NODES.to_csv(nodes, index=False)
    EDGES.to_csv(edges, index=False)
    task = load_tables(nodes, edges, max_unpacked=33)
    with pytest.raises(DataError, match="at most 32 bytes in it when unpacked, got more; max_unpacked= of load_tables"):
        load_tables(nodes, edges, max_unpacked=32)
    with pytest.raises(DataError, match=r"nodes\.csv\.gz: size: expected at most 32 bytes"):
        apply_tables(task.details["preprocessing"], nodes, edges, max_unpacked=32)
    # A file that is not packed is as large as it is.
    NODES.to_csv(tmp_path / "nodes.csv", index=False)
    assert load_tables(tmp_path / "nodes.csv", EDGES, max_unpacked=1).graphs.num_nodes == 6


def test_the_limit_of_arrays_and_of_parquet_can_be_raised(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "g.npz", x=np.zeros((50_000, 4)), edge_index=[[0], [1]], y=np.arange(50_000) % 2)
    load_tables(tmp_path / "g.npz")
    with pytest.raises(DataError, match=r"g\.npz: size: expected at most 1000000 bytes.*max_unpacked="):
        load_tables(tmp_path / "g.npz", max_unpacked=1_000_000)
    pytest.importorskip("pyarrow")
    # A value that repeats takes no room in the file.
    frame = pd.DataFrame({"id": range(50_000), "label": ["a", "b" * 1000] * 25_000})
    frame.to_parquet(tmp_path / "nodes.parquet")
    load_tables(tmp_path / "nodes.parquet", EDGES)
    with pytest.raises(DataError, match=r"nodes\.parquet: size: expected at most 9000000 bytes.*max_unpacked="):
        load_tables(tmp_path / "nodes.parquet", EDGES, max_unpacked=9_000_000)


def heterophilous(folder: Path) -> None:
    np.savez_compressed(folder / "x.npz", node_features=np.zeros(10_000))
    public.heterophilous(folder, "x")


def zinc(folder: Path) -> None:
    np.savez_compressed(folder / "zinc12k.npz", x=np.zeros(10_000))
    benchmarking.zinc(folder)


def arxiv(folder: Path) -> None:
    (folder / "raw").mkdir()
    (folder / "raw/node-feat.csv.gz").write_bytes(gzip.compress(b"0,0\n" * 10_000))
    ogb.arxiv(folder)


def superpixels(folder: Path) -> None:
    graph = {"x": torch.zeros(1, 3), "pos": torch.zeros(1, 2), "edge_index": torch.zeros(2, 0), "y": torch.zeros(1)}
    torch.save(([graph] * 1000, [graph], [graph]), folder / "MNIST_v2.pt")
    benchmarking.superpixel_files(folder, "MNIST")


@pytest.mark.parametrize("read", [heterophilous, zinc, arxiv, superpixels])
def test_published_files_are_bounded_too(
    read: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Limits(ratio=1, harmless=10_000)
    monkeypatch.setattr(archives, "ARRAYS", small)
    monkeypatch.setattr(archives, "Limits", lambda: small)
    monkeypatch.setattr(benchmarking, "ARRAYS", small)
    with pytest.raises(DataError, match=r"at most .* bytes.*, got more"):
        read(tmp_path)


def test_neighbours_that_are_named_often_are_refused(tmp_path: Path) -> None:
    neighbours = list(range(1000))
    (tmp_path / "graph").write_bytes(pickle.dumps(dict.fromkeys(range(1000), neighbours), 2))
    with pytest.raises(DataError, match="expected a list for each node, got 1000000 neighbours"):
        public._planetoid_edges(tmp_path / "graph")


def test_a_matrix_that_contains_itself_is_refused(tmp_path: Path) -> None:
    itself = b"cscipy.sparse.csr\ncsr_matrix\n)Rq\x00}(X\x06\x00\x00\x00indptrh\x00X\x07\x00\x00\x00indicesh\x00"
    (tmp_path / "m.pickle").write_bytes(
        program(itself, b"X\x04\x00\x00\x00datah\x00X\x06\x00\x00\x00_shapeK\x01K\x01\x86ub")
    )
    with pytest.raises(DataError, match="expected a csr_matrix, got a malformed one: parts that are no arrays"):
        as_array(load_pickle(tmp_path / "m.pickle"))


@pytest.mark.parametrize("storage", [None, "x", Pickled("csr_matrix", {}), Pickled("storage", {"a": 1})])
def test_a_tensor_without_a_storage_is_refused(storage: Any) -> None:
    with pytest.raises(DataError, match="expected a tensor, got a malformed one: a storage that is none"):
        Pickled("tensor", (storage, 0, (1,), (1,))).array()


def test_arrays_of_a_file_share_its_room(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    pickle.dump([np.ones(10), np.ones(10)], buffer, 2)
    (tmp_path / "a.pickle").write_bytes(buffer.getvalue())
    first, second = load_pickle(tmp_path / "a.pickle")
    assert first.room is second.room
    first.room.left = 100
    assert len(first.array()) == 10
    with pytest.raises(DataError, match="expected at most 256 MiB and 8 times the size of the file in arrays"):
        second.array()


def test_rows_that_are_left_out_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (columns, delimited):
        monkeypatch.setattr(module, "MOST_DROPPED", 100)
    path = tmp_path / "nodes.csv.gz"
    path.write_bytes(gzip.compress(b"id,y\n" + b"1\n" * 200_000))
    edges = pd.DataFrame({"source": [1], "target": [1]})
    with pytest.raises(DataError, match="expected at most 100 rows to leave out; expected 2 fields, got 1"):
        load_tables(path, edges, target="y", on_error="skip", dropped=tmp_path / "dropped.csv")
    with pytest.raises(DataError, match="expected 2 fields, got 1"):
        load_tables(path, edges, target="y")
