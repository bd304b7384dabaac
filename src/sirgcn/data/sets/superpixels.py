"""MNIST and CIFAR10 of Benchmarking GNNs as graphs of superpixels, made from the raw images."""

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sirgcn.data.graphs import Graphs
from sirgcn.data.schema import Schema
from sirgcn.data.sets.images import FULL, Images, read_images
from sirgcn.data.splits import Split
from sirgcn.data.store import cache_root, cached, progress
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError, check_at_least
from sirgcn.strict import checked

Array = np.ndarray[Any, Any]

# Raised when the rule changes: a cache of another rule is made anew.
_RULE = 1
_NEIGHBOURS = 8
# Images that a worker takes at once.
_AT_ONCE = 100
# A worker takes some seconds to start, in which one process makes this many graphs.
_WORTH_A_WORKER = 5_000


@dataclass(frozen=True)
class _Slic:
    """Superpixels: at most `most`, asked for from `most` + `extra` downwards; SLIC's compactness."""

    most: int
    extra: int
    compactness: float


_SLIC = {"MNIST": _Slic(75, 20, 0.25), "CIFAR10": _Slic(150, 50, 10.0)}
# One of so many training images is for validation: 5,000 of 60,000 and 50,000.
_HELD_OUT = {"MNIST": 12, "CIFAR10": 10}


@checked
def superpixel_task(
    name: str,
    root: str | Path | None = None,
    cache: str | Path | None = None,
    limit: int | None = None,
    colour: bool = False,
    edge_values: bool = False,
    workers: int | None = None,
) -> Task:
    r"""MNIST or CIFAR10 as graphs of superpixels (Table 3): which digit or object is it?

    A node is a SLIC superpixel; its features are the mean colour and the centre (row, column) divided by the image's
    size. With the distances c of two centres and f of two colours,

    .. math::
        w_{uv} = \tfrac{1}{2} (e_{uv} + e_{vu}), \qquad
        e_{uv} = \exp\big(-(c_{uv} / s^c_u)^2 - (f_{uv} / s^f_u)^2\big),

    where :math:`s_u` is u's mean distance to its 8 nearest, and f is left out unless `colour` is set. An edge runs from
    each node to the 8 nodes of largest w.

    Validation takes the first 5,000 training images, as the benchmark does.

    Args:
        name: MNIST or CIFAR10.
        root: of the raw images, see `data_root`.
        cache: of the graphs, see `cache_root`.
        limit: images in all, the first ones, of which training and test get their shares; None takes all.
        colour: let w depend on colours; the paper's runs did not.
        edge_values: keep w as edge feature; the paper's runs did not.
        workers: processes; None takes as many as there are CPUs to use, if that is worth it. A script that is to have
            several calls this under `if __name__ == "__main__":`, because they import it.
    """
    train, test = read_images(name, root)
    if limit is not None:
        check_at_least(3, limit=limit)
        train, test = _first(train, test, limit)
    images = Images(np.concatenate([train.pixels, test.pixels]), np.concatenate([train.labels, test.labels]))
    graphs = cached(
        _path(name, len(images.labels), colour, edge_values, cache),
        _header(name, images, colour, edge_values),
        lambda: superpixel_graphs(name, images, colour, edge_values, workers),
    )
    validation = max(1, len(train.labels) // _HELD_OUT[name])
    val, fit, held = torch.arange(graphs.num_graphs).split(
        [validation, len(train.labels) - validation, len(test.labels)]
    )
    version = f"SLIC of the raw images, scikit-image {_skimage().__version__}"
    if len(train.labels) < FULL[name]:
        version += f", {len(train.labels)} of {FULL[name]} training images"
    schema = Schema(features=graphs.x.size(1), edge_features=int(edge_values), outputs=10)
    return Task(name, graphs, schema, (Split(fit, val, held),), "cross_entropy", "accuracy", version)


@checked
def superpixel_graphs(
    name: str, images: Images, colour: bool = False, edge_values: bool = False, workers: int | None = None
) -> Graphs:
    """The graphs of `superpixel_task`, made now from these images, by the numbers for `name`.

    x float32 `[V, 3]` (MNIST) or `[V, 5]`, y int64 `[G]`, edge_attr float32 `[E, 1]` or None. Any number of `workers`
    gives the same.
    """
    if name not in _SLIC:
        raise DataError(f"expected one of {', '.join(_SLIC)}, got {name!r}", "name", value=name)
    _skimage()
    count = len(images.labels)
    check_at_least(1, images=count)
    if workers is None:
        workers = min(_cpus(), 1 + count // _WORTH_A_WORKER)
    check_at_least(1, workers=workers)
    chunks = [images.pixels[start : start + _AT_ONCE] for start in range(0, count, _AT_ONCE)]
    make = partial(_make, slic=_SLIC[name], colour=colour)
    made = list(progress(_mapped(make, chunks, workers), f"{name} superpixels", len(chunks)))
    nodes = torch.from_numpy(np.concatenate([part.nodes for part in made]))
    edges = nodes * (nodes - 1).clamp(max=_NEIGHBOURS)
    node_ptr, edge_ptr = (torch.cat([torch.zeros(1, dtype=torch.int64), each.cumsum(0)]) for each in (nodes, edges))
    local = torch.from_numpy(np.concatenate([part.edge_index for part in made], axis=1))
    values = torch.from_numpy(np.concatenate([part.values for part in made])).unsqueeze(1) if edge_values else None
    return Graphs(
        x=torch.from_numpy(np.concatenate([part.x for part in made])),
        edge_index=local + torch.repeat_interleave(node_ptr[:-1], edges),
        y=torch.from_numpy(images.labels),
        level="graph",
        edge_attr=values,
        node_ptr=node_ptr,
        edge_ptr=edge_ptr,
    )


@dataclass(frozen=True)
class _Made:
    """The graphs of some images, one after the other, each counted from 0."""

    x: Array
    nodes: Array
    edge_index: Array
    values: Array


def _make(pixels: Array, slic: _Slic, colour: bool) -> _Made:
    x = [_nodes(image, slic) for image in pixels]
    edge_index, values = zip(*(_edges(each, colour) for each in x), strict=True)
    nodes = np.array([len(each) for each in x])
    return _Made(np.concatenate(x), nodes, np.concatenate(edge_index, axis=1), np.concatenate(values))


def _nodes(image: Array, slic: _Slic) -> Array:
    """Mean colour and centre of each superpixel, float32 `[n, channels + 2]`."""
    from skimage.segmentation import slic as segment

    pixels = (image / 255).astype(np.float32)
    axis = None if image.ndim == 2 else -1
    for request in _requests(image.shape[:2], slic.most + slic.extra):
        found = segment(pixels, request, slic.compactness, start_label=0, channel_axis=axis)
        label = np.unique(found, return_inverse=True)[1].ravel()
        if label.max() < slic.most:
            break
    place = np.indices(image.shape[:2]).reshape(2, -1) / np.array(image.shape[:2])[:, None]
    columns = [*pixels.reshape(len(label), -1).T, *place]
    size = np.bincount(label)
    return np.column_stack([np.bincount(label, column) / size for column in columns]).astype(np.float32)


@cache
def _requests(shape: tuple[int, int], most: int) -> tuple[int, ...]:
    """The numbers of superpixels to ask for, downwards from `most`.

    SLIC starts from a grid, and the same grid gives the same superpixels whatever it was asked for: only the first
    number of each grid is worth asking.
    """
    from skimage.util import regular_grid

    numbers = range(most, 0, -1)
    grids = [None, *(regular_grid((1, *shape), number) for number in numbers)]  # type: ignore[no-untyped-call]
    return tuple(number for number, (before, grid) in zip(numbers, pairwise(grids), strict=True) if grid != before)


def _edges(x: Array, colour: bool) -> tuple[Array, Array]:
    """Edges uint8 `[2, 8n]` from each node to its 8 strongest (all others if there are fewer), and their weights."""
    count = len(x)
    x = x.astype(np.float64)
    exponent = _scaled(x[:, -2:])
    if colour:
        exponent = exponent + _scaled(x[:, :-2])
    weight = np.exp(-exponent)
    weight = (weight + weight.T) / 2
    # No edge to itself. Rounded, so that the last digit of exp, which is not the same on every CPU, decides no tie.
    rank = np.round(weight, 12)
    np.fill_diagonal(rank, -1)
    target = np.argsort(-rank, axis=1, kind="stable")[:, : min(_NEIGHBOURS, count - 1)]
    source = np.repeat(np.arange(count), target.shape[1])
    values = weight[source, target.ravel()]
    return np.stack([source, target.ravel()]).astype(np.uint8), values.astype(np.float32)


def _scaled(points: Array) -> Array:
    """Squared distances, each row divided by the square of its mean distance to the 8 nearest."""
    squared = np.square(points[:, None] - points[None]).sum(-1)
    near = np.sqrt(np.sort(squared, axis=1)[:, 1 : _NEIGHBOURS + 1])
    # As the benchmark has it: colours are often all the same.
    scale = (near.mean(1) if near.size else np.ones(len(points))) + 1e-8
    return squared / np.square(scale)[:, None]


def _mapped(make: Callable[[Array], _Made], chunks: list[Array], workers: int) -> Iterator[_Made]:
    if workers == 1:
        yield from map(make, chunks)
        return
    # Spawned: a fork would copy torch's threads in whatever state they are.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        try:
            yield from pool.map(make, chunks)
        except BrokenProcessPool as error:
            raise RuntimeError(
                'workers: the processes did not start; in a script call this under `if __name__ == "__main__":`, '
                "or take workers=1"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _skimage() -> Any:
    try:
        import skimage
    except ImportError as error:
        raise ImportError("superpixels need scikit-image: pip install 'sirgcn[data]'") from error
    return skimage


def _first(train: Images, test: Images, limit: int) -> tuple[Images, Images]:
    total = len(train.labels) + len(test.labels)
    # One for the test, and one each for training and validation.
    first = min(max(limit * len(train.labels) // total, 2), limit - 1)
    rest = limit - first
    return Images(train.pixels[:first], train.labels[:first]), Images(test.pixels[:rest], test.labels[:rest])


def _path(name: str, count: int, colour: bool, edge_values: bool, root: str | Path | None) -> Path:
    kind = "".join(word for word, chosen in (("-colour", colour), ("-values", edge_values)) if chosen)
    return cache_root(root) / "superpixels" / f"{name}-{count}{kind}.safetensors"


def _header(name: str, images: Images, colour: bool, edge_values: bool) -> dict[str, Any]:
    digest = hashlib.sha256(np.ascontiguousarray(images.pixels).data)
    digest.update(images.labels.astype("<i8").data)
    return {
        "data": f"superpixels of {name}",
        "rule": _RULE,
        "scikit-image": _skimage().__version__,
        "images": digest.hexdigest(),
        "colour": colour,
        "edge_values": edge_values,
    }
