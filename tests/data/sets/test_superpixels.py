import gzip
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from skimage.segmentation import slic

from sirgcn.data import DataError, Graphs, files
from sirgcn.data.sets import superpixels
from sirgcn.data.sets.images import Images, read_images
from sirgcn.data.sets.superpixels import superpixel_graphs, superpixel_task

Array = np.ndarray[Any, Any]
NUMBERS = {"MNIST": (75, 95, 0.25), "CIFAR10": (150, 200, 10.0)}
names = st.sampled_from(["MNIST", "CIFAR10"])

needs_data = pytest.mark.skipif("SIRGCN_DATA" not in os.environ, reason="SIRGCN_DATA names no folder of raw images")


def packed(data: bytes) -> bytes:
    """gzip without the time of day: contents name tests, and every process must name them alike."""
    return gzip.compress(data, mtime=0)


def drawn(name: str, count: int, seed: int = 0) -> Images:
    """Images of smooth blobs and noise."""
    rng = np.random.default_rng(seed)
    size, channels = (28, 1) if name == "MNIST" else (32, 3)
    rows, columns = np.mgrid[:size, :size] / size
    wave = [np.sin(rng.uniform(2, 9) * rows + rng.uniform(2, 9) * columns) for _ in range(count * channels)]
    smooth = np.stack(wave).reshape(count, channels, size, size).transpose(0, 2, 3, 1)
    pixels = (127 + 90 * smooth + rng.uniform(-30, 30, smooth.shape)).clip(0, 255).astype(np.uint8)
    return Images(pixels[..., 0] if channels == 1 else pixels, rng.integers(0, 10, count))


def plain_nodes(name: str, image: Array) -> Array:
    """The rule word for word: one superpixel fewer until there are few enough, then a mean over each one's mask."""
    most, request, compactness = NUMBERS[name]
    pixels = (image / 255).astype(np.float32)
    while True:
        segments = slic(pixels, request, compactness, start_label=0, channel_axis=None if image.ndim == 2 else -1)
        if len(np.unique(segments)) <= most:
            break
        request -= 1
    rows = []
    for segment in np.unique(segments):
        mask = segments == segment
        colour = np.atleast_1d(pixels[mask].astype(np.float64).mean(0))
        rows.append([*colour, *(place.mean() / len(image) for place in np.nonzero(mask))])
    return np.array(rows)


def plain_edges(x: Array, colour: bool) -> list[list[tuple[float, int]]]:
    """For every node its 8 strongest, the strongest first: weight and node."""
    count = len(x)

    def terms(columns: slice) -> Array:
        distance = np.array(
            [[np.linalg.norm(x[u, columns] - x[v, columns]) for v in range(count)] for u in range(count)]
        )
        nearest = np.array([np.mean(sorted(np.delete(row, u))[:8]) for u, row in enumerate(distance)])
        return (distance / (nearest[:, None] + 1e-8)) ** 2

    each = np.exp(-(terms(slice(-2, None)) + (terms(slice(0, -2)) if colour else 0)))
    weight = (each + each.T) / 2
    return [sorted(((weight[u, v], v) for v in range(count) if v != u), reverse=True)[:8] for u in range(count)]


def write_mnist(folder: Path, train: Images, test: Images) -> None:
    folder.mkdir(parents=True)
    for name, images in (("train", train), ("t10k", test)):
        count = len(images.labels)
        head = np.array([2051, count, 28, 28], ">u4").tobytes()
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(packed(head + images.pixels.tobytes()))
        head = np.array([2049, count], ">u4").tobytes()
        labels = images.labels.astype(np.uint8).tobytes()
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(packed(head + labels))


def write_binary(folder: Path, train: Images, test: Images) -> None:
    folder.mkdir(parents=True)
    five = zip(np.array_split(train.pixels, 5), np.array_split(train.labels, 5), strict=True)
    batches = {f"data_batch_{i}": Images(*part) for i, part in enumerate(five, 1)} | {"test_batch": test}
    for name, images in batches.items():
        planes = images.pixels.transpose(0, 3, 1, 2).reshape(-1, 3072)
        rows = np.column_stack([images.labels.astype(np.uint8), planes])
        (folder / f"{name}.bin").write_bytes(rows.tobytes())


def write_png(folder: Path, train: Images, test: Images) -> None:
    folder.mkdir(parents=True)
    for name, images in (("data_batch_1", train), ("test_batch", test)):
        Image.fromarray(images.pixels.reshape(-1, 1024, 3)).save(folder / f"{name}.png")
    # Labels of images that are not there are there too.
    (folder / "train_lables.json").write_text(json.dumps([*train.labels.tolist(), 3, 4]))
    (folder / "test_lables.json").write_text(json.dumps(test.labels.tolist()))


LAYOUTS: dict[str, tuple[str, str, Callable[[Path, Images, Images], None]]] = {
    "mnist": ("MNIST", "mnist/MNIST/raw", write_mnist),
    "torchvision": ("MNIST", "MNIST/raw", write_mnist),
    "binary": ("CIFAR10", "cifar10/cifar-10-batches-bin", write_binary),
    "png": ("CIFAR10", "cifar10", write_png),
}


def written(root: Path, layout: str, train: int = 12, test: int = 4) -> tuple[str, Path, Images, Images]:
    name, folder, write = LAYOUTS[layout]
    images = drawn(name, train, 1), drawn(name, test, 2)
    write(root / folder, *images)
    return name, root / folder, *images


@pytest.mark.parametrize("layout", LAYOUTS)
def test_images_are_read_as_they_were_written(tmp_path: Path, layout: str) -> None:
    name, _, *expected = written(tmp_path, layout)
    for found, images in zip(read_images(name, tmp_path), expected, strict=True):
        assert np.array_equal(found.pixels, images.pixels)
        assert np.array_equal(found.labels, images.labels)


@pytest.mark.parametrize(
    ("layout", "file", "content"),
    [
        ("mnist", "train-images-idx3-ubyte.gz", b""),
        ("mnist", "train-images-idx3-ubyte.gz", b"no gzip"),
        ("mnist", "train-images-idx3-ubyte.gz", packed(b"\0\0\x08\x03")),
        (
            "mnist",
            "train-images-idx3-ubyte.gz",
            packed(np.array([2051, 2, 28, 28], ">u4").tobytes() + b"0" * 784),
        ),
        (
            "mnist",
            "train-images-idx3-ubyte.gz",
            packed(np.array([2051, 1, 28, 28], ">u4").tobytes() + b"0" * 999),
        ),
        (
            "mnist",
            "train-images-idx3-ubyte.gz",
            packed(np.array([2051, 1, 14, 56], ">u4").tobytes() + b"0" * 784),
        ),
        ("mnist", "train-images-idx3-ubyte.gz", packed(np.array([2051, 1 << 31, 28, 28], ">u4").tobytes())),
        ("mnist", "train-labels-idx1-ubyte.gz", packed(np.array([2049, 12], ">u4").tobytes() + b"\x0a" * 12)),
        ("mnist", "train-labels-idx1-ubyte.gz", packed(np.array([2049, 3], ">u4").tobytes() + b"\0" * 3)),
        ("binary", "data_batch_2.bin", b""),
        ("binary", "data_batch_2.bin", b"0" * 3074),
        ("binary", "test_batch.bin", b"\x0a" + b"0" * 3072),
        ("png", "data_batch_1.png", b"no image"),
        ("png", "test_lables.json", b"{}"),
        ("png", "test_lables.json", b"[1, 2"),
        ("png", "test_lables.json", b"[1, 2, 3]"),
        ("png", "test_lables.json", b'[1, 2, 3, "4"]'),
        ("png", "test_lables.json", b"[1, 2, 3, -4]"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, layout: str, file: str, content: bytes) -> None:
    name, folder, *_ = written(tmp_path, layout)
    (folder / file).write_bytes(content)
    with pytest.raises(DataError) as refused:
        read_images(name, tmp_path)
    assert refused.value.source == str(folder / file)


def test_a_png_of_another_shape_is_refused(tmp_path: Path) -> None:
    name, folder, *_ = written(tmp_path, "png")
    Image.new("RGB", (1000, 4)).save(folder / "test_batch.png")
    with pytest.raises(DataError, match="expected at most 10,000 rows of 1,024 RGB pixels, got 1000 x 4 RGB"):
        read_images(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "file"), [("MNIST", "train-images-idx3-ubyte.gz"), ("CIFAR10", "cifar-10-binary.tar.gz")]
)
def test_files_that_are_not_there_are_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    def offline(url: str, path: Path, expected: str | None = None) -> Path:
        assert (path.name, path.parent.is_relative_to(tmp_path)) == (file, True)
        assert url.endswith(f"/{file}")
        assert expected is not None
        raise DataError("cannot be downloaded", path.name)

    monkeypatch.setattr(files, "download", offline)
    with pytest.raises(DataError, match="cannot be downloaded"):
        read_images(name, tmp_path)


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^name: expected one of MNIST, CIFAR10, got 'mnist'"):
        superpixel_task("mnist", tmp_path)
    with pytest.raises(DataError, match=r"^name: expected one of MNIST, CIFAR10, got 'mnist'"):
        superpixel_graphs("mnist", drawn("MNIST", 1))


@given(names, st.integers(0, 1000))
@settings(max_examples=8)
def test_nodes_are_means_over_superpixels(name: str, seed: int) -> None:
    images = drawn(name, 1, seed)
    expected = plain_nodes(name, images.pixels[0])
    found = superpixel_graphs(name, images).x
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), torch.from_numpy(expected), atol=1e-6, rtol=0)
    assert len(found) <= NUMBERS[name][0]
    assert bool(((found >= 0) & (found <= 1)).all())


@given(names, st.integers(0, 1000), st.booleans())
@settings(max_examples=8)
def test_edges_run_to_the_eight_strongest(name: str, seed: int, colour: bool) -> None:
    graphs = superpixel_graphs(name, drawn(name, 1, seed), colour, edge_values=True)
    expected = plain_edges(graphs.x.double().numpy(), colour)
    assert graphs.edge_attr is not None
    source, target = graphs.edge_index.view(2, -1, 8)
    assert torch.equal(source, torch.arange(graphs.num_nodes).unsqueeze(1).expand(-1, 8))
    value = graphs.edge_attr.view(-1, 8)
    for u, strongest in enumerate(expected):
        assert value[u].tolist() == pytest.approx([weight for weight, _ in strongest], abs=1e-6)
        assert sorted(target[u].tolist()) == sorted(v for _, v in strongest)


def test_images_of_one_colour_have_a_graph() -> None:
    for name, shape in (("MNIST", (2, 28, 28)), ("CIFAR10", (2, 32, 32, 3))):
        pixels = np.stack([np.zeros(shape[1:], np.uint8), np.full(shape[1:], 255, np.uint8)])
        graphs = superpixel_graphs(name, Images(pixels, np.array([0, 1])), colour=True, edge_values=True)
        assert graphs.num_graphs == 2
        assert graphs.num_edges == 8 * graphs.num_nodes


def test_few_superpixels_are_all_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    for most in (1, 2, 6):
        monkeypatch.setitem(superpixels._SLIC, "MNIST", superpixels._Slic(most, 0, 0.25))
        (graph,) = superpixel_graphs("MNIST", drawn("MNIST", 1))
        assert graph.num_nodes <= most
        assert graph.num_edges == graph.num_nodes * (graph.num_nodes - 1)
        assert not graph.has_self_loops()


def test_any_number_of_workers_makes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    images = drawn("CIFAR10", 5)
    expected = superpixel_graphs("CIFAR10", images, edge_values=True, workers=1).sha256()
    monkeypatch.setattr(superpixels, "_AT_ONCE", 2)
    for workers in (1, 2):
        assert superpixel_graphs("CIFAR10", images, edge_values=True, workers=workers).sha256() == expected


def test_workers_that_do_not_start_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise BrokenProcessPool("terminated abruptly")

    monkeypatch.setattr(ProcessPoolExecutor, "map", broken)
    with pytest.raises(RuntimeError, match='call this under `if __name__ == "__main__":`'):
        superpixel_graphs("MNIST", drawn("MNIST", 2), workers=2)


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(ImportError, match=r"pip install 'sirgcn\[data\]'"):
        superpixel_graphs("MNIST", drawn("MNIST", 1))


@pytest.mark.parametrize("layout", ["mnist", "png"])
def test_a_task_is_split_as_the_benchmark_has_it(tmp_path: Path, layout: str) -> None:
    name, _, train, test = written(tmp_path, layout, train=24)
    task = superpixel_task(name, tmp_path, tmp_path / "cache")
    (split,) = task.splits
    assert split.val.tolist() == list(range(2))
    assert split.train.tolist() == list(range(2, 24))
    assert split.test.tolist() == list(range(24, 28))
    assert task.graphs.y.tolist() == [*train.labels.tolist(), *test.labels.tolist()]
    assert (task.schema.features, task.schema.outputs) == (3 if name == "MNIST" else 5, 10)
    assert (task.schema.edge_features, task.loss, task.metric) == (0, "cross_entropy", "accuracy")
    assert "24 of" in task.version


def test_limits_colours_and_edge_values_are_kept_apart(tmp_path: Path) -> None:
    written(tmp_path, "mnist", train=12, test=6)
    hashes = set()
    for options in ({}, {"colour": True}, {"edge_values": True}, {"limit": 6}):
        task = superpixel_task("MNIST", tmp_path, tmp_path / "cache", **options)
        assert task.schema.edge_features == ("edge_values" in options)
        assert task.graphs.num_graphs == options.get("limit", 18)
        hashes.add(task.graphs.sha256())
    assert len(hashes) == 4
    assert [len(part) for part in (task.splits[0].train, task.splits[0].val, task.splits[0].test)] == [3, 1, 2]
    with pytest.raises(DataError, match=r"^limit: expected a whole number >= 3, got 2"):
        superpixel_task("MNIST", tmp_path, tmp_path / "cache", limit=2)


def test_graphs_are_made_once_for_the_same_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, folder, *_ = written(tmp_path, "mnist")
    made: list[int] = []
    real = superpixels.superpixel_graphs

    def counting(*arguments: Any) -> Graphs:
        made.append(1)
        return real(*arguments)

    monkeypatch.setattr(superpixels, "superpixel_graphs", counting)
    first, second = (superpixel_task("MNIST", tmp_path, tmp_path / "cache").graphs.sha256() for _ in range(2))
    assert (first, len(made)) == (second, 1)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    write_mnist(folder, drawn("MNIST", 12, 7), drawn("MNIST", 4, 8))
    with pytest.warns(UserWarning, match="is made anew: it holds other data"):
        assert superpixel_task("MNIST", tmp_path, tmp_path / "cache").graphs.sha256() != first


@needs_data
@pytest.mark.parametrize(("name", "train", "nodes"), [("MNIST", 60_000, 67), ("CIFAR10", 10_000, 109)])
def test_real_images_have_about_the_protocol_s_size(tmp_path: Path, name: str, train: int, nodes: int) -> None:
    first, test = read_images(name)
    assert (len(first.labels), len(test.labels)) == (train, 10_000)
    assert bool((np.bincount(test.labels) > 800).all())
    task = superpixel_task(name, cache=tmp_path, limit=150)
    # "About 66 and 109 nodes on average": 150 images differ by 1 or 2 from the mean of all.
    assert task.graphs.num_nodes / 150 == pytest.approx(nodes, abs=3)
    assert task.graphs.num_edges == 8 * task.graphs.num_nodes
    assert f"of {60_000 if name == 'MNIST' else 50_000} training images" in task.version
