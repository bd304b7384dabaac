"""Tables on disk become a graph on disk, by an external sort that can be interrupted."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from sirgcn.data import DataError
from sirgcn.engine.locks import held
from sirgcn.files import write_atomic
from sirgcn.ops.sampling import InEdges
from sirgcn.scale.budget import read_bytes
from sirgcn.scale.disk import POINTERS, SOURCES, DiskGraph
from sirgcn.scale.edgefiles import pieces, table_files, whole_numbers
from sirgcn.scale.manifest import NAME, FileBlock, Manifest, blocks_of, digest_of
from sirgcn.scale.nodefiles import Nodes
from sirgcn.scale.rows import bytes_of

# What an edge costs while its bucket is sorted: both ends as they are read, the groups, and what is written.
_SORT_BYTES = 128
_PROGRESS = "progress.json"


@dataclass(frozen=True)
class Ends:
    """The names of the columns with both ends of an edge.

    >>> Ends().target
    'target'
    """

    source: str = "source"
    target: str = "target"


def convert(
    folder: str | Path,
    edges: str | Path | Sequence[str | Path],
    nodes: Nodes | str | Path | Sequence[str | Path] | None = None,
    ends: Ends = Ends(),  # noqa: B008 (frozen)
    num_nodes: int | None = None,
    memory: int | str = "1GB",
    progress: bool = True,
) -> DiskGraph:
    """Make a graph on disk from tables of edges and nodes, CSV or Parquet.

    Nodes are whole numbers from 0 on. The edges are counted, distributed over buckets of targets, and every bucket is
    sorted by itself. So no step holds more than the working set, besides 16 bytes per node. A conversion that was
    interrupted continues with the pieces and buckets that are left; a finished one is not repeated.

    Args:
        folder: the folder of the new graph.
        edges: a file, a folder of files or a list of files with a row per directed edge.
        nodes: the same with a row per node, or `Nodes` to name its columns; None for a graph without features.
        ends: the names of the columns of edges.
        num_nodes: the number of nodes; None takes the rows of `nodes`, else the largest number of an edge.
        memory: the working set, in bytes or as a text such as `"4GB"`.
        progress: show a bar on a terminal.

    Raises:
        DataError: a table cannot be used; the error names file, column and row, and no graph is written.
        Busy: another process converts into this folder.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as given:
    ...     _ = Path(given, "edges.csv").write_text("source,target\\n0,1\\n2,1\\n")
    ...     _ = Path(given, "nodes.csv").write_text("a,b\\n1,2\\n3,4\\n5,6\\n")
    ...     graph = convert(Path(given, "graph"), Path(given, "edges.csv"), Path(given, "nodes.csv"))
    ...     graph.num_nodes, graph.x.tolist()
    (3, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    """
    files = table_files(edges, "edges")
    table = nodes if isinstance(nodes, Nodes) or nodes is None else Nodes(nodes)
    folder = Path(folder)
    with held(folder / "lock"):
        job = _Conversion(folder, files, table, ends, num_nodes, read_bytes(memory), progress)
        if not job.is_done():
            job.run()
    return DiskGraph(folder, verify=False)


@dataclass(eq=False)
class _Conversion:
    """The steps of one conversion, and what has been done of them."""

    folder: Path
    files: list[Path]
    nodes: Nodes | None
    ends: Ends
    given_nodes: int | None
    memory: int
    shows: bool
    done: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.work = self.folder / "work"
        self.of = json.loads(json.dumps([self._files(), repr(self.ends), repr(self.nodes), self.given_nodes]))
        bars = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        self.bars = Progress(*bars, console=console, transient=True, disable=not (self.shows and console.is_terminal))

    def _files(self) -> list[list[Any]]:
        files = self.files + ([] if self.nodes is None else self.nodes.files())
        return [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]

    def is_done(self) -> bool:
        """Whether the folder holds the graph of these tables; a graph of others is refused."""
        if not (self.folder / NAME).exists():
            return False
        try:
            of = json.loads((self.folder / "source.json").read_bytes())
        except (OSError, ValueError):
            of = None
        if of != self.of:
            raise DataError("expected a new folder, got one with a graph of other tables", "folder", str(self.folder))
        return True

    def run(self) -> None:
        """All steps that are left."""
        self._resume()
        with self.bars:
            count, width, label = 0, 0, ""
            blocks: list[FileBlock] = []
            if self.nodes is not None:
                count, width, label, blocks = self.nodes.write(self.folder, self._bar("nodes", None))
            ptr = self._count(self.given_nodes if self.given_nodes is not None else count or None)
            if count and count != len(ptr) - 1:
                raise DataError(f"expected {len(ptr) - 1} rows, one per node, got {count}", "nodes", str(self.folder))
            starts = self._buckets(ptr)
            self._distribute(starts)
            found = self._sort(ptr, starts)
        ptr.tofile(self.folder / POINTERS)
        blocks = [*blocks, *blocks_of(self.folder / POINTERS), *found]
        manifest = Manifest(len(ptr) - 1, int(ptr[-1]), width, self._dtype(ptr) == np.int64, label, tuple(blocks))
        write_atomic(self.folder / "source.json", json.dumps(self.of).encode())
        manifest.write(self.folder)
        shutil.rmtree(self.work)

    def _resume(self) -> None:
        """What an interrupted conversion of the same tables has done; that of others is removed."""
        path = self.work / _PROGRESS
        try:
            self.done = json.loads(path.read_bytes())
        except (OSError, ValueError):
            self.done = {}
        if self.done.get("of") != self.of:
            shutil.rmtree(self.work, ignore_errors=True)
            self.work.mkdir(parents=True)
            self.done = {"of": self.of, "pieces": 0, "sizes": [], "sorted": {}}

    def _save(self) -> None:
        write_atomic(self.work / _PROGRESS, json.dumps(self.done).encode())

    def _bar(self, what: str, total: int | None) -> "_Bar":
        return _Bar(self.bars, self.bars.add_task(what, total=total))

    def _count(self, num_nodes: int | None) -> npt.NDArray[np.int64]:
        """Where the edges of each target begin: a first pass over the edges."""
        path = self.work / "pointers.npy"
        if path.exists():
            return np.asarray(np.load(path))
        counts, largest, bar = np.zeros(num_nodes or 0, np.int64), -1, self._bar("count", None)
        for file, row, columns in pieces(self.files, [self.ends.source, self.ends.target]):
            source, target = self._checked(columns, num_nodes, file, row)
            largest = max(largest, int(source.max()), int(target.max()))
            if largest >= len(counts):
                counts = np.concatenate([counts, np.zeros(max(largest + 1, 2 * len(counts)) - len(counts), np.int64)])
            counts += np.bincount(target, minlength=len(counts))
            bar.advance()
        counts = counts[: largest + 1] if num_nodes is None else counts
        if not len(counts):
            raise DataError("expected at least one node, got none", "edges", str(self.files[0]))
        ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        with path.with_suffix(".part").open("wb") as part:
            np.save(part, ptr)
        path.with_suffix(".part").replace(path)
        return ptr

    def _checked(
        self, columns: dict[str, npt.NDArray[Any]], num_nodes: int | None, file: Path, row: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        source, target = (
            whole_numbers(columns[name], num_nodes, (file, name, row)) for name in (self.ends.source, self.ends.target)
        )
        return source, target

    def _buckets(self, ptr: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where the targets of each bucket begin; a bucket has as many edges as fit into the working set."""
        most, nodes = max(1, self.memory // 2 // _SORT_BYTES), len(ptr) - 1
        starts = [0]
        while starts[-1] < nodes:
            full = np.searchsorted(ptr, ptr[starts[-1]] + most, side="right") - 1
            starts.append(int(min(nodes, max(starts[-1] + 1, full))))
        return np.array(starts)

    def _dtype(self, ptr: npt.NDArray[np.int64]) -> Any:
        return np.int32 if len(ptr) - 1 <= np.iinfo(np.int32).max else np.int64

    def _distribute(self, starts: npt.NDArray[np.int64]) -> None:
        """Write every edge into the bucket of its target, in the order of the input: a second pass."""
        paths = [self.work / f"bucket-{number}" for number in range(len(starts) - 1)]
        sizes = self.done["sizes"] or [0] * len(paths)
        for path, size in zip(paths, sizes, strict=True):
            # What an interrupted run wrote beyond its last note is written again.
            with path.open("ab") as file:
                file.truncate(size)
        bar = self._bar("distribute", None)
        names = [self.ends.source, self.ends.target]
        for number, (_, _, columns) in enumerate(pieces(self.files, names)):
            bar.advance()
            if self.done["sorted"] or number < self.done["pieces"]:
                continue
            edges = np.stack([columns[name].astype(np.int64, copy=False) for name in names], 1)
            bucket = np.searchsorted(starts, edges[:, 1], side="right") - 1
            edges = edges[np.argsort(bucket, kind="stable")]
            counts = np.bincount(bucket, minlength=len(paths))
            for place, part in enumerate(np.split(edges, np.cumsum(counts)[:-1])):
                if len(part):
                    _append(paths[place], part)
                    sizes[place] += part.nbytes
            self.done["pieces"], self.done["sizes"] = number + 1, sizes
            self._save()

    def _sort(self, ptr: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> list[FileBlock]:
        """Sort every bucket by target and write the sources."""
        dtype, path = self._dtype(ptr), self.folder / SOURCES
        with path.open("ab") as file:
            file.truncate(int(ptr[-1]) * np.dtype(dtype).itemsize)
        bar, found = self._bar("sort", len(starts) - 1), []
        for number, (start, stop) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
            begin, size = (int(value) * np.dtype(dtype).itemsize for value in (ptr[start], ptr[stop] - ptr[start]))
            if str(number) not in self.done["sorted"]:
                self._sort_bucket(self.work / f"bucket-{number}", path, (start, stop), begin, dtype)
                self.done["sorted"][str(number)] = digest_of(path, begin, size)
                self._save()
            found.append(FileBlock(path.name, begin, size, self.done["sorted"][str(number)]))
            bar.advance()
        return found

    def _sort_bucket(self, bucket: Path, path: Path, targets: tuple[int, int], begin: int, dtype: Any) -> None:
        edges = torch.from_numpy(np.fromfile(bucket, np.int64).reshape(-1, 2))
        source, target = edges[:, 0], edges[:, 1] - targets[0]
        size = (int(source.max()) + 1 if len(source) else 0, targets[1] - targets[0])
        node = InEdges.of(torch.stack([source, target]), size).node.numpy().astype(dtype, copy=False)
        with path.open("r+b") as file:
            file.seek(begin)
            file.write(bytes_of(node))
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True)
class _Bar:
    bars: Progress
    task: TaskID

    def advance(self) -> None:
        self.bars.advance(self.task)


def _append(path: Path, rows: npt.NDArray[np.int64]) -> None:
    with path.open("ab") as file:
        file.write(bytes_of(np.ascontiguousarray(rows)))
