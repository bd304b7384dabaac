import json
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sirgcn.data import DataError, Graphs, store
from sirgcn.data.graphs import sha256_of
from sirgcn.data.store import cached, load, save

HEADER = {"data": "test", "seed": 0}


def graphs(level: Any = "node", many: bool = True, **changes: Any) -> Graphs:
    """Two graphs or one, with every field; numbers that need 8, 16, 32 and 64 bits."""
    rows = {"node": 5, "edge": 3, "graph": 2 if many else 1}[level]
    fields = {
        "x": torch.tensor([[0, 300], [1, -5], [2, 0], [3, 2**40], [4, 7]]),
        "edge_index": torch.tensor([[0, 2, 3], [1, 3, 4]]),
        "y": torch.linspace(-1, 1, rows, dtype=torch.float64),
        "edge_attr": torch.tensor([[1.5], [2.5], [-0.0]]),
        "pe": torch.zeros(5, 0),
        "node_ptr": torch.tensor([0, 2, 5]) if many else None,
        "edge_ptr": torch.tensor([0, 1, 3]) if many else None,
    }
    return Graphs(**fields | {"level": level} | changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "graphs.safetensors"


@pytest.mark.parametrize("level", ["node", "edge", "graph"])
@pytest.mark.parametrize("many", [True, False])
def test_graphs_come_back_bit_for_bit(path: Path, level: str, many: bool) -> None:
    saved = graphs(level, many)
    save(path, saved, HEADER)
    loaded, header = load(path)
    assert isinstance(loaded, Graphs)
    assert loaded.sha256() == saved.sha256()
    assert header == HEADER


def test_missing_labels_and_empty_graphs_come_back(path: Path) -> None:
    saved = graphs(
        y=torch.full((5, 2), float("nan")),
        node_ptr=torch.tensor([0, 0, 2, 5, 5]),
        edge_ptr=torch.tensor([0, 0, 1, 3, 3]),
    )
    save(path, saved, {})
    loaded, _ = load(path)
    assert isinstance(loaded, Graphs)
    assert loaded.sha256() == saved.sha256()


def test_many_graphs_are_counted_anew_in_parts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_AT_ONCE", 2)
    count = 7
    saved = graphs().select(torch.arange(count) % 2)
    save(path, saved, {})
    loaded, _ = load(path)
    assert isinstance(loaded, Graphs)
    assert loaded.sha256() == saved.sha256()


def test_tensors_come_back_by_name(path: Path) -> None:
    saved = {"a": torch.arange(-3, 300), "b": torch.randn(2, 3), "c": torch.empty(0, 4, dtype=torch.int64)}
    save(path, saved, HEADER)
    loaded, _ = load(path)
    assert isinstance(loaded, dict)
    assert set(loaded) == set(saved)
    for name, tensor in saved.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_integers_take_as_few_bytes_as_they_need(path: Path) -> None:
    save(path, {"a": torch.arange(256), "b": torch.arange(-1, 256), "c": torch.tensor([2**31])}, {})
    kept = load_file(path)
    assert [kept[name].dtype for name in "abc"] == [torch.uint8, torch.int16, torch.int64]


def test_other_dtypes_are_refused(path: Path) -> None:
    with pytest.raises(DataError, match=r"^a: expected int64 or float, got torch\.complex64"):
        save(path, {"a": torch.zeros(1, dtype=torch.complex64)}, {})


def test_no_flipped_bit_or_cut_goes_unnoticed(path: Path) -> None:
    saved = graphs()
    save(path, saved, HEADER)
    whole = path.read_bytes()
    rng = random.Random(0)
    for number in range(600):
        broken = bytearray(whole)
        if number % 3:
            broken[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        else:
            del broken[rng.randrange(len(whole)) :]
        path.write_bytes(broken)
        with pytest.raises(DataError) as refused:
            load(path)
        assert refused.value.source == str(path)


def strangers() -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "text", b"nodes,edges\n" * 100
    yield "an absurd header", (1 << 62).to_bytes(8, "little") + b"{}"
    yield "a header longer than the file", (50).to_bytes(8, "little") + b"{}"
    yield "no json", (4).to_bytes(8, "little") + b"\xff\xfe{}"
    yield "a list", (2).to_bytes(8, "little") + b"[]"
    yield "no metadata", (2).to_bytes(8, "little") + b"{}"
    deep = b"[" * 100_000
    yield "json without end", len(deep).to_bytes(8, "little") + deep
    large = b" " * (1 << 20) + b"{}"
    yield "a large header", len(large).to_bytes(8, "little") + large
    yield "a pickle", b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x05hello\x94."


@pytest.mark.parametrize("content", [pytest.param(data, id=name) for name, data in strangers()])
def test_what_is_no_cache_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "stranger"
    path.write_bytes(content)
    with pytest.raises(DataError, match="expected a cache file") as refused:
        load(path)
    assert refused.value.source == str(path)


def forged(path: Path, tensors: dict[str, Tensor], **about: Any) -> None:
    """A file whose hash is right and whose content is not."""
    text = json.dumps({"version": store.VERSION, "level": "node", "header": {}} | about, sort_keys=True)
    digest = sha256_of(text, tensors)
    save_file(tensors, path, {"format": store.FORMAT, "about": text, "sha256": digest})


@pytest.mark.parametrize(
    ("change", "about"),
    [
        ({}, {"version": 2}),
        ({}, {"level": "nodes"}),
        ({}, {"level": ["node"]}),
        ({}, {"header": 3}),
        ({"z": torch.zeros(1)}, {}),
        ({"x": torch.zeros(5, 1, dtype=torch.complex64)}, {}),
        ({"x": torch.full((5, 1), float("nan"))}, {}),
        ({"edge_index": torch.tensor([[0, 0, 1], [1, 1, 3]])}, {}),
        ({"edge_index": torch.tensor([0, 0, 1])}, {}),
        ({"edge_index": torch.zeros(2, 3)}, {}),
        ({"edge_ptr": torch.tensor([0, 1, 1 << 60])}, {}),
        ({"edge_ptr": torch.tensor([0, 4, 3])}, {}),
        ({"node_ptr": torch.tensor([0, -(1 << 60), 5])}, {}),
        ({"node_ptr": torch.tensor([0, 5])}, {}),
        ({"node_ptr": torch.tensor([[0, 2, 5]])}, {}),
    ],
)
def test_a_forged_file_is_refused(tmp_path: Path, change: dict[str, Tensor], about: dict[str, Any]) -> None:
    path = tmp_path / "forged"
    local = {
        "x": torch.zeros(5, 1),
        "edge_index": torch.tensor([[0, 0, 1], [1, 1, 2]]),
        "y": torch.tensor([0, 1, 0, 1, 0]),
        "node_ptr": torch.tensor([0, 2, 5]),
        "edge_ptr": torch.tensor([0, 1, 3]),
    }
    forged(path, local)
    assert isinstance(load(path)[0], Graphs)
    forged(path, local | change, **about)
    with pytest.raises(DataError) as refused:
        load(path)
    assert refused.value.source == str(path)


def test_x_and_edges_are_needed(tmp_path: Path) -> None:
    path = tmp_path / "forged"
    forged(path, {"x": torch.zeros(1, 1)})
    with pytest.raises(DataError, match="expected x, edge_index and y of graphs, got x"):
        load(path)


def test_a_failed_write_leaves_the_old_file_and_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(path, graphs(), HEADER)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(path, graphs(), {"other": 1})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_what_is_cached_is_built_once(path: Path) -> None:
    built = []

    def build() -> Graphs:
        built.append(1)
        return graphs()

    first, second = (cached(path, HEADER | {"sizes": (1, 2)}, build) for _ in range(2))
    assert built == [1]
    assert first.sha256() == second.sha256()


@pytest.mark.parametrize("damage", ["flip", "cut", "other"])
def test_a_broken_or_other_file_is_reported_and_made_anew(path: Path, damage: str) -> None:
    cached(path, HEADER, graphs)
    data = path.read_bytes()
    if damage == "flip":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif damage == "cut":
        path.write_bytes(data[:-1])
    header = {"data": "another"} if damage == "other" else HEADER
    with pytest.warns(UserWarning, match="is made anew"):
        assert cached(path, header, graphs).sha256() == graphs().sha256()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cached(path, header, lambda: pytest.fail("built again"))


def test_what_cannot_be_kept_is_given_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.warns(UserWarning, match="cannot be kept"):
        assert cached(tmp_path / "file" / "graphs", HEADER, graphs).sha256() == graphs().sha256()
