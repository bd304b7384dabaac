"""The raw images behind the superpixel graphs: MNIST and CIFAR-10."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sirgcn.data.files import locate, reading
from sirgcn.data.sets import sources
from sirgcn.data.validate import DataError
from sirgcn.strict import checked

Array = np.ndarray[Any, Any]

FULL = {"MNIST": 60_000, "CIFAR10": 50_000}
"""Training images of the whole data sets; both have 10,000 for the test."""


@dataclass(frozen=True)
class Images:
    """Images, uint8 `[N, H, W]` or `[N, H, W, 3]`, and their classes, int64 `[N]`."""

    pixels: Array
    labels: Array


@checked
def read_images(name: str, root: str | Path | None = None) -> tuple[Images, Images]:
    """The training and the test images of MNIST or CIFAR10, in the order of the files; downloaded if not there.

    CIFAR-10 is read from its binary version, or from PNG files of one image a row (`data_batch_1.png`, ...), of which
    the first training file is enough.

    Args:
        name: MNIST or CIFAR10.
        root: see `data_root`.
    """
    if name not in FULL:
        raise DataError(f"expected one of {', '.join(FULL)}, got {name!r}", "name")
    raw, folder = locate(sources.mnist() if name == "MNIST" else sources.cifar10(), root)
    paths = [folder / file.name for file in raw.files]
    if name == "MNIST":
        return _mnist(*paths[:2]), _mnist(*paths[2:])
    if paths[0].suffix == ".bin":
        parts = [_binary(path) for path in paths]
        return _joined(parts[:-1]), parts[-1]
    *train, test, train_labels, test_labels = paths
    return _png(train, train_labels), _png([test], test_labels)


def _joined(parts: list[Images]) -> Images:
    return Images(np.concatenate([part.pixels for part in parts]), np.concatenate([part.labels for part in parts]))


def _mnist(images: Path, labels: Path) -> Images:
    pixels, classes = _idx(images, 2051, (28, 28)), _idx(labels, 2049, ())
    return _checked(pixels, classes.astype(np.int64), labels)


def _idx(path: Path, magic: int, shape: tuple[int, ...]) -> Array:
    """A file of MNIST's format: big-endian numbers (a magic one, the count, the shape), then bytes."""
    with reading(path), gzip.open(path) as file:
        found = np.frombuffer(file.read(4 * (2 + len(shape))), ">u4").tolist()
        if len(found) != 2 + len(shape) or found[0] != magic or tuple(found[2:]) != shape or found[1] > FULL["MNIST"]:
            raise DataError(f"expected the header {[magic, 'count', *shape]}, got {found}", path.name, str(path))
        size = int(np.prod([found[1], *shape]))
        # One byte more than there should be: an archive that unpacks to more is not unpacked.
        data = file.read(size + 1)
        if len(data) != size:
            raise DataError(f"expected {size} bytes after the header, got {len(data)} or more", path.name, str(path))
        return np.frombuffer(data, np.uint8).reshape(found[1], *shape)


def _binary(path: Path) -> Images:
    """A file of CIFAR-10's binary version: a label, then the planes red, green, blue, row by row."""
    with reading(path):
        size = path.stat().st_size
        if size % 3073 or not 0 < size <= 10_000 * 3073:
            raise DataError(f"expected at most 10,000 images of 3,073 bytes, got {size} bytes", path.name, str(path))
        rows = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 3073)
        pixels = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return _checked(np.ascontiguousarray(pixels), rows[:, 0].astype(np.int64), path)


def _png(images: list[Path], labels: Path) -> Images:
    """PNG files of one image a row: 1,024 pixels, row by row."""
    from PIL import Image

    pixels = []
    for path in images:
        with reading(path), Image.open(path) as image:
            if image.mode != "RGB" or image.width != 1024 or not 0 < image.height <= 10_000:
                found = f"{image.width} x {image.height} {image.mode}"
                raise DataError(f"expected at most 10,000 rows of 1,024 RGB pixels, got {found}", path.name, str(path))
            pixels.append(np.asarray(image).reshape(-1, 32, 32, 3))
    joined = np.concatenate(pixels)
    with reading(labels):
        classes = json.loads(labels.read_text())
        if not isinstance(classes, list) or not all(type(label) is int for label in classes):
            raise DataError("expected a list of whole numbers, got something else", labels.name, str(labels))
        if not len(joined) <= len(classes) <= FULL["CIFAR10"]:
            raise DataError(f"expected a label for each of {len(joined)} images, got {len(classes)}", labels.name)
        return _checked(joined, np.array(classes[: len(joined)], np.int64), labels)


def _checked(pixels: Array, labels: Array, path: Path) -> Images:
    if len(pixels) != len(labels) or len(labels) == 0:
        raise DataError(f"expected as many labels as images, got {len(labels)} and {len(pixels)}", path.name, str(path))
    wrong = np.flatnonzero((labels < 0) | (labels > 9))
    if len(wrong):
        row, value = int(wrong[0]), int(labels[wrong[0]])
        raise DataError(f"expected a class of 0 to 9, got {value}", path.name, str(path), row, value)
    return Images(pixels, labels)
