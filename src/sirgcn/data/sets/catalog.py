"""All data sets by name, with their sizes, licences, sources and readers."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sirgcn.data.encodings import with_encodings
from sirgcn.data.files import Raw, locate
from sirgcn.data.graphs import Level
from sirgcn.data.sets import benchmarking, moleculenet, ogb, public, sources
from sirgcn.data.sets.sbm import cluster_task, pattern_task
from sirgcn.data.sets.superpixels import superpixel_task
from sirgcn.data.sets.synthetic import dictionary_lookup_task, hetero_edge_count_task, unique_signature_task
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError
from sirgcn.strict import Count, check_arguments, checked, expected_one_of

WALK_OPTIONS = ("random_walk", "edge_walks")
"""The options of `load` that every data set has."""


@dataclass(frozen=True)
class Dataset:
    """One data set.

    Args:
        name: the name by which it is loaded.
        level: what a target belongs to.
        metric: a name of `METRICS`.
        size: the number of graphs, and the mean numbers of nodes and directed edges of a graph, without options.
        licence: the licence of the data.
        source: the web page of its owners.
        reader: the function that returns the task, from the folder of the files and their `version`. If the data are
            drawn, it gets the data root instead. Its parameter `seed` gets the seed; the others are options of `load`.
        raw: the layouts in which the files may be stored; the first one is downloaded.
        drawn: whether graphs are made here, from a seed or from images, instead of read.

    >>> zinc = DATASETS["ZINC"]
    >>> zinc.level, zinc.metric, zinc.options, zinc.how
    ('graph', 'mae', ('bonds',), 'downloaded')
    """

    name: str
    level: Level
    metric: str
    size: tuple[int, float, float]
    licence: str
    source: str
    reader: Callable[..., Task]
    raw: tuple[Raw, ...] = ()
    drawn: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """The options of `load` for this data set, besides the seed."""
        bound = self.reader.keywords if isinstance(self.reader, partial) else {}
        own = {"root", "folder", "version", "seed", *bound}
        return tuple(name for name in inspect.signature(self.reader).parameters if name not in own)

    @property
    def how(self) -> str:
        """Where the graphs come from, in words."""
        if self.drawn:
            return "made here from downloaded images" if self.raw else "made here"
        return "downloaded"


@checked
def find(name: str) -> Dataset:
    """Return the data set of this name; letter case, "-" and "_" make no difference.

    >>> find("roman_empire").name
    'roman-empire'
    """
    known = {_plain(name): name for name in DATASETS}
    if _plain(name) not in known:
        raise DataError(expected_one_of(name, DATASETS), "name", value=name)
    return DATASETS[known[_plain(name)]]


@checked
def load(
    name: str,
    root: str | Path | None = None,
    seed: int = 0,
    download: bool = True,
    check: bool = True,
    random_walk: Count = 0,
    edge_walks: bool = False,
    **options: Any,
) -> Task:
    """Return the task of this name.

    Args:
        name: one of `DATASETS`.
        root: the data root; see `data_root`.
        seed: the seed of graphs that are drawn, or of a split if none was published.
        download: whether missing files are downloaded.
        check: whether to refuse files that are neither the published ones, as far as their hashes are known, nor a
            known copy.
        random_walk: the number of steps of a random-walk encoding of the nodes; 0 for none. See `with_encodings`.
        edge_walks: whether the edges get that encoding, too.
        **options: the options in `DATASETS[name].options`.

    >>> load("dictionary_lookup", seed=1, n=4, num_graphs=5).name
    'DictionaryLookup(4)'
    """
    dataset = find(name)
    for option in options:
        if option not in dataset.options:
            raise TypeError(f"{dataset.name}: {expected_one_of(option, dataset.options or ['no options'])}")
    if edge_walks and not random_walk:
        raise DataError("expected at least 1 step with edge_walks, got 0", "random_walk")
    # Options are checked before anything is downloaded.
    options = check_arguments(dataset.reader, options, f"{dataset.name}: ")
    if "seed" in inspect.signature(dataset.reader).parameters:
        options["seed"] = seed
    task = _read(dataset, root, download, check, options)
    return with_encodings(task, "random_walk", random_walk, edges=edge_walks) if random_walk else task


def _read(dataset: Dataset, root: str | Path | None, download: bool, check: bool, options: dict[str, Any]) -> Task:
    if not dataset.raw:
        return dataset.reader(root, **options)
    raw, folder = locate(dataset.raw, root, download)
    version = raw.version(folder, check)
    return dataset.reader(root, **options) if dataset.drawn else dataset.reader(folder, version=version, **options)


@checked
def fetch(name: str, root: str | Path | None = None) -> Path:
    """Download the missing files of a data set, and return their folder.

    >>> fetch("pattern")
    Traceback (most recent call last):
    sirgcn.data.validate.DataError: name: pattern is made here: there is nothing to download
    """
    dataset = find(name)
    if not dataset.raw:
        raise DataError(f"{dataset.name} is made here: there is nothing to download", "name", value=name)
    return locate(dataset.raw, root)[1]


@checked
def verify(name: str, root: str | Path | None = None) -> dict[str, str]:
    """Return what each file is by its hash: "as published", a known copy, "unknown", "missing", or an error message.

    >>> from tempfile import mkdtemp
    >>> set(verify("Cora", root=mkdtemp()).values())
    {'missing'}
    """
    dataset = find(name)
    if not dataset.raw:
        return {}
    raw = next((raw for raw in dataset.raw if not raw.missing(root)), dataset.raw[0])
    found = {}
    for file in raw.files:
        path = raw.at(root) / file.name
        try:
            found[str(path)] = (file.identify(path) or "unknown") if path.is_file() else "missing"
        except DataError as error:
            found[str(path)] = error.message
    return found


def row(dataset: Dataset) -> list[str]:
    """Return the row of a data set in a table.

    Its cells are the level, the numbers of graphs, nodes and edges, the metric, the licence, the origin and the source.
    """
    size = [f"{number:,.2f}".rstrip("0").rstrip(".") for number in dataset.size]
    return [dataset.level, *size, dataset.metric, dataset.licence, dataset.how, dataset.source]


def _plain(name: str) -> str:
    return str(name).lower().replace("_", "-")


def _dictionary_lookup(root: Any, seed: int = 0, n: int = 10, num_graphs: int = 5000) -> Task:
    return dictionary_lookup_task(n, seed, num_graphs)


def _hetero_edge_count(root: Any, seed: int = 0, c: int = 2, num_graphs: int = 5000) -> Task:
    return hetero_edge_count_task(c, seed, num_graphs)


def _unique_signature(root: Any, seed: int = 0, p: float = 0.5, r: int = 5, num_graphs: int = 5000) -> Task:
    return unique_signature_task(p, r, seed, num_graphs)


def _pattern(root: Any, seed: int = 0, num_graphs: int = 14_000) -> Task:
    return pattern_task(seed, num_graphs)


def _cluster(root: Any, seed: int = 0, num_graphs: int = 12_000) -> Task:
    return cluster_task(seed, num_graphs)


def _superpixels(
    root: Any,
    name: str,
    limit: int | None = None,
    colour: bool = False,
    edge_values: bool = False,
    workers: int | None = None,
) -> Task:
    return superpixel_task(name, root, limit=limit, colour=colour, edge_values=edge_values, workers=workers)


def _drawn(
    name: str, level: Level, metric: str, size: tuple[int, float, float], reader: Callable[..., Task]
) -> Dataset:
    # SIR-GCN's paper, unless the data are of another one.
    of_others = {
        "pattern": sources.BENCHMARKING,
        "cluster": sources.BENCHMARKING,
        "unique_signature": "https://arxiv.org/abs/2511.11046",
    }
    source = of_others.get(name, "https://arxiv.org/abs/2403.12529")
    return Dataset(name, level, metric, size, "none needed", source, reader, drawn=True)


def _heterophilous(name: str, nodes: int, edges: int, metric: str = "accuracy") -> Dataset:
    file = name.replace("-", "_")
    reader, raw = partial(public.heterophilous, name=file), sources.heterophilous(file)
    return Dataset(name, "node", metric, (1, nodes, edges), "MIT", sources.HETEROPHILOUS, reader, raw)


def _planetoid(name: str, nodes: int, edges: int) -> Dataset:
    reader, raw = partial(public.planetoid, name=name), sources.planetoid(name)
    return Dataset(name, "node", "accuracy", (1, nodes, edges), "MIT", sources.PLANETOID, reader, raw)


def _benchmark(name: str, level: Level, metric: str, size: tuple[int, float, float]) -> Dataset:
    reader = partial(benchmarking.sbm_files if level == "node" else benchmarking.superpixel_files, name=name)
    raw = sources.benchmark(name)
    return Dataset(f"{name.lower()}-files", level, metric, size, "MIT", sources.BENCHMARKING, reader, raw)


def _tu(name: str, size: tuple[int, float, float], *parts: str) -> Dataset:
    reader, raw = partial(public.tu, name=name), sources.tu(name, *parts)
    return Dataset(name, "graph", "accuracy", size, "none stated", sources.TU, reader, raw)


def _moleculenet(name: str, file: str, size: tuple[int, float, float]) -> Dataset:
    stem = file.split(".")[0]
    metric = "mse" if moleculenet.TABLES[stem].numbers else "roc_auc"
    licence = "CC0" if name in ("ESOL", "BBBP") else "none stated"
    # The folders have PyG's names, which are those of the data sets except for one.
    folder = "lipo" if name == "Lipophilicity" else name.lower()
    reader, raw = partial(moleculenet.moleculenet, file=stem, name=name), sources.moleculenet(folder, file)
    return Dataset(name, "graph", metric, size, licence, sources.MOLECULENET, reader, raw)


DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        _drawn("dictionary_lookup", "node", "accuracy", (5_000, 20, 100), _dictionary_lookup),
        _drawn("hetero_edge_count", "graph", "mse", (5_000, 26.0, 547.5), _hetero_edge_count),
        _drawn("unique_signature", "node", "balanced_accuracy", (5_000, 50.0, 1_288.0), _unique_signature),
        _drawn("pattern", "node", "class_accuracy", (14_000, 117.0, 5_870), _pattern),
        _drawn("cluster", "node", "class_accuracy", (12_000, 117.0, 4_290), _cluster),
        Dataset(
            name="mnist",
            level="graph",
            metric="accuracy",
            size=(70_000, 67.0, 536),
            licence="CC BY-SA 3.0",
            source=sources.MNIST,
            reader=partial(_superpixels, name="MNIST"),
            raw=sources.mnist(),
            drawn=True,
        ),
        Dataset(
            name="cifar10",
            level="graph",
            metric="accuracy",
            size=(60_000, 108.7, 869),
            licence="none stated",
            source=sources.CIFAR10,
            reader=partial(_superpixels, name="CIFAR10"),
            raw=sources.cifar10(),
            drawn=True,
        ),
        Dataset(
            name="WikiCS",
            level="node",
            metric="accuracy",
            size=(1, 11_701, 431_726),
            licence="MIT",
            source=sources.WIKICS,
            reader=public.wikics,
            raw=sources.wikics(),
        ),
        Dataset(
            name="ZINC",
            level="graph",
            metric="mae",
            size=(12_000, 23.16, 49.83),
            licence="MIT",
            source=sources.BENCHMARKING,
            reader=benchmarking.zinc,
            raw=sources.zinc(),
        ),
        _benchmark("PATTERN", "node", "class_accuracy", (14_000, 118.9, 6_098.9)),
        _benchmark("CLUSTER", "node", "class_accuracy", (12_000, 117.2, 4_303.9)),
        _benchmark("MNIST", "graph", "accuracy", (70_000, 70.6, 564.5)),
        _benchmark("CIFAR10", "graph", "accuracy", (60_000, 117.6, 941.2)),
        Dataset(
            name="ogbn-arxiv",
            level="node",
            metric="accuracy",
            size=(1, 169_343, 2_484_941),
            licence="ODC-BY",
            source=f"{sources.OGB}/docs/nodeprop/#ogbn-arxiv",
            reader=ogb.arxiv,
            raw=sources.arxiv(),
        ),
        Dataset(
            name="ogbg-molhiv",
            level="graph",
            metric="roc_auc",
            size=(41_127, 25.51, 54.94),
            licence="MIT",
            source=f"{sources.OGB}/docs/graphprop/#ogbg-mol",
            reader=partial(ogb.molecules, name="ogbg-molhiv"),
            raw=sources.molhiv(),
        ),
        _heterophilous("roman-empire", 22_662, 65_854),
        _heterophilous("amazon-ratings", 24_492, 186_100),
        _heterophilous("minesweeper", 10_000, 78_804, "roc_auc"),
        _heterophilous("tolokers", 11_758, 1_038_000, "roc_auc"),
        _heterophilous("questions", 48_921, 307_080, "roc_auc"),
        _heterophilous("actor", 7_600, 53_318),
        _heterophilous("squirrel-filtered", 2_223, 93_996),
        _heterophilous("texas", 183, 558),
        _heterophilous("wisconsin", 251, 900),
        _heterophilous("cornell", 183, 554),
        _planetoid("Cora", 2_708, 10_556),
        _planetoid("CiteSeer", 3_327, 9_104),
        _planetoid("PubMed", 19_717, 88_648),
        _tu("MUTAG", (188, 17.93, 39.59), "node_labels", "edge_labels"),
        _tu("ENZYMES", (600, 32.63, 124.27), "node_labels", "node_attributes"),
        _tu("PROTEINS", (1_113, 39.06, 145.63), "node_labels", "node_attributes"),
        _tu("NCI1", (4_110, 29.87, 64.60), "node_labels"),
        _tu("IMDB-BINARY", (1_000, 19.77, 193.06)),
        _moleculenet("ESOL", "delaney-processed.csv", (1_128, 13.29, 27.35)),
        _moleculenet("FreeSolv", "SAMPL.csv", (642, 8.7, 16.8)),
        _moleculenet("Lipophilicity", "Lipophilicity.csv", (4_200, 27.0, 59.0)),
        _moleculenet("BACE", "bace.csv", (1_513, 34.1, 73.7)),
        _moleculenet("BBBP", "BBBP.csv", (2_039, 24.06, 51.91)),
        _moleculenet("Tox21", "tox21.csv.gz", (7_831, 18.6, 38.6)),
        _moleculenet("SIDER", "sider.csv.gz", (1_427, 33.6, 70.7)),
        _moleculenet("ClinTox", "clintox.csv.gz", (1_484, 26.1, 55.5)),
    )
}
"""All data sets. A new one needs an entry here, its files in `sources`, and a reader if its format is new."""
