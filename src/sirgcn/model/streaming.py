"""Predictions of files: at once for one graph, piece by piece for molecules and many graphs.

Pieces are kept in a folder beside the output until all of them are there. A piece is written whole or not at all, so a
prediction that was killed goes on after its last piece, and no row is lost or doubled.
"""

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from sirgcn.data.tables import Inputs
from sirgcn.data.tables.stream import Chunk, stream_tables
from sirgcn.data.validate import DataError
from sirgcn.engine.locks import held
from sirgcn.files import write_atomic
from sirgcn.model.fitted import Model
from sirgcn.model.joining import count_new, join_known
from sirgcn.model.members import weights_of
from sirgcn.model.predicting import check_ending, check_level, frame_of, frame_text, read_inputs, write_frame
from sirgcn.model.sampling import bounded
from sirgcn.spreadsheet import csv_text
from sirgcn.strict import ConfigError

ROWS = 4096
"""How many molecules, or rows of nodes of many graphs, are predicted at once."""

LARGE = 1 << 25
"""From how many bytes on the files of many graphs are read piece by piece."""

# A line on standard error in so many seconds.
_SECONDS = 10.0


@dataclass(frozen=True)
class Written:
    """What a prediction of files wrote.

    Args:
        rows: how many rows were predicted.
        dropped: how many rows were left out.
        bad: the file with these rows and the reasons; it is there only if there are such rows.
        unseen: for each column, how many values training had not seen.

    >>> Written(3, 0, Path("predictions.bad.csv")).to_dict()["rows"]
    3
    """

    rows: int
    dropped: int
    bad: Path
    unseen: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"bad": str(self.bad) if self.dropped else None, "unseen": dict(self.unseen)}


@dataclass(frozen=True)
class Pieces:
    """What is predicted piece by piece.

    Args:
        rows: how many molecules, or rows of nodes of many graphs, are predicted at once.
        large: from how many bytes on the files of many graphs are read piece by piece.

    >>> Pieces(rows=100).large == LARGE
    True
    """

    rows: int = ROWS
    large: int = LARGE


Say = Callable[[str], None]


def bad_file(out: Path) -> Path:
    """The file for the bad rows of a prediction, beside its output.

    >>> bad_file(Path("found/predictions.csv")).name
    'predictions.bad.csv'
    """
    return out.with_name(f"{out.stem}.bad.csv")


def predict_files(
    model: Model,
    tables: Mapping[str, Any],
    out: Path,
    level: float | None = None,
    strict: bool = False,
    say: Say | None = None,
    memory: int | str | None = None,
    pieces: Pieces = Pieces(),  # noqa: B008 (frozen)
) -> Written:
    """Predict for files, and write the predictions completely or not at all.

    Args:
        model: the model.
        tables: the arguments nodes, edges and graphs of `load_tables`. `known` has the nodes and edges of a graph that
            the new nodes join; they are not predicted.
        out: a file that ends in .csv or .parquet.
        level: the level of sets and intervals; None for neither.
        strict: whether bad rows and unknown categories stop the prediction. Otherwise bad rows are written to
            `bad_file(out)` with their reasons, and unknown categories count as other ones.
        say: called with a line of progress.
        memory: what the process may take, in bytes or as a text such as `"4GB"`: the nodes of one graph are then
            computed layer by layer, see `layerwise`, and exactly. None: by one pass, unless the model was trained on
            samples, because passes needed too much memory; then it is what is free.
        pieces: what is predicted piece by piece.

    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> from sirgcn.model import FitSettings, fit
    >>> nodes = pd.DataFrame({"id": range(20), "size": [1.0, 2.0] * 10, "label": ["x", "y"] * 10})
    >>> edges = pd.DataFrame({"source": range(18), "target": range(2, 20)})
    >>> model = fit(load_tables(nodes, edges), FitSettings("fast", train={"epochs": 1, "warmup": 0}))
    >>> with TemporaryDirectory() as folder:
    ...     written = predict_files(model, {"nodes": nodes, "edges": edges}, Path(folder) / "predictions.csv")
    >>> written.rows
    20
    """
    check_ending(out)
    if level is not None:
        check_level(model, level)
    if not out.parent.is_dir():
        raise FileNotFoundError(f"{out}: expected a file in a folder that is there, got {out.parent}")
    if is_streamed(model, tables, pieces.large):
        if memory is not None:
            raise ConfigError("memory: molecules and many graphs are predicted in pieces anyway; leave it out")
        return _Stream(model, tables, out, level, strict).run(pieces.rows, say or (lambda text: None))
    bad = bad_file(out)
    inputs = read_leniently(model, tables, bad, strict)
    if memory is not None or "working_set" in model.about.get("plan", {}):
        model = bounded(model, inputs.graphs, memory, out.parent)
    frame = frame_of(model, inputs, model.outputs(inputs.graphs), level)
    if tables.get("known") is not None:
        frame = frame.iloc[: count_new(model, tables)]
    write_frame(frame, out)
    return Written(len(frame), inputs.dropped, bad, inputs.unseen)


class _Stream:
    """A prediction piece by piece, with a folder of the finished pieces beside the output."""

    def __init__(self, model: Model, tables: Mapping[str, Any], out: Path, level: float | None, strict: bool) -> None:
        self.model, self.tables, self.out, self.level, self.strict = model, tables, out, level, strict
        self.work = out.with_name(f"{out.name}.work")
        self.ending = check_ending(out)

    def run(self, size: int, say: Say) -> Written:
        """Predict what is left, and put the pieces together."""
        with held(self.work.with_name(f"{self.work.name}.lock")):
            self._begin(size)
            found, told = self._finished(), time.monotonic()
            start = found[-1]["end"] if found else 0
            if start:
                say(f"going on after {start:,} of them")
            for chunk in self._chunks(size, start):
                found.append(self._predict(len(found), chunk))
                if time.monotonic() - told > _SECONDS:
                    say(f"{chunk.end:,} read")
                    told = time.monotonic()
            self._join(found)
            shutil.rmtree(self.work, ignore_errors=True)
        unseen: Counter[str] = Counter()
        for piece in found:
            unseen.update(piece["unseen"])
        dropped = sum(piece["dropped"] for piece in found)
        return Written(sum(piece["rows"] for piece in found), dropped, bad_file(self.out), dict(unseen))

    def _begin(self, size: int) -> None:
        """Keep the pieces of the same prediction, and remove those of another one."""
        files = {name: Path(path) for name, path in self.tables.items() if path is not None}
        about = {
            "weights": sha256(weights_of(self.model.members)).hexdigest(),
            "files": {name: _identity(path) for name, path in files.items()},
            "settings": [self.level, self.strict, size, self.ending],
        }
        of = self.work / "of.json"
        text = json.dumps(about).encode()
        if of.exists() and of.read_bytes() == text:
            return
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        write_atomic(of, text)

    def _finished(self) -> list[dict[str, Any]]:
        """What is known of the pieces that are there. The file that says so is written last."""
        found: list[dict[str, Any]] = []
        while (path := self._about(len(found))).exists():
            found.append(json.loads(path.read_bytes()))
        return found

    def _chunks(self, size: int, start: int) -> Iterator[Chunk]:
        assert self.model.preprocessing is not None
        return stream_tables(
            self.model.preprocessing,
            self.tables["nodes"],
            self.tables.get("edges"),
            graphs=self.tables.get("graphs"),
            size=size,
            start=start,
            unknown="raise" if self.strict else "other",
        )

    def _predict(self, number: int, chunk: Chunk) -> dict[str, Any]:
        """Write the predictions of a chunk, and return what is to be known of it."""
        if chunk.bad and self.strict:
            table, row, column, value, reason = chunk.bad[0]
            raise DataError(reason, column, table, row, value)
        found: dict[str, Any] = {"rows": 0, "columns": [], "dropped": len(chunk.bad)}
        if chunk.inputs is not None:
            frame = frame_of(self.model, chunk.inputs, self.model.outputs(chunk.inputs.graphs), self.level)
            frame["id"] = frame["id"].map(str)
            found |= {"rows": len(frame), "columns": list(frame.columns)}
            is_parquet = self.ending == "parquet"
            data = frame.to_parquet(index=False) if is_parquet else frame_text(frame, header=False).encode()
            write_atomic(self._data(number), data)
        if chunk.bad:
            write_atomic(self._bad(number), csv_text(chunk.bad).encode())
        found |= {"end": chunk.end, "unseen": chunk.unseen}
        write_atomic(self._about(number), json.dumps(found).encode())
        return found

    def _about(self, number: int) -> Path:
        return self.work / f"{number:08d}.json"

    def _data(self, number: int) -> Path:
        return self.work / f"{number:08d}.{self.ending}"

    def _bad(self, number: int) -> Path:
        return self.work / f"{number:08d}.bad"

    def _join(self, found: list[dict[str, Any]]) -> None:
        """Put the pieces together into the output, and the bad rows into the file beside it."""
        numbers = [number for number, piece in enumerate(found) if piece["rows"]]
        self._join_bad([number for number, piece in enumerate(found) if piece["dropped"]])
        if not numbers:
            raise DataError(f"expected a row that can be used, got none; see {bad_file(self.out)}", "nodes")
        part = self.work / "all.part"
        files = [self._data(number) for number in numbers]
        if self.ending == "parquet":
            join_parquet(files, part)
        else:
            join_text(found[numbers[0]]["columns"], files, part)
        part.replace(self.out)

    def _join_bad(self, numbers: list[int]) -> None:
        bad = bad_file(self.out)
        if not numbers:
            bad.unlink(missing_ok=True)
            return
        part = self.work / "bad.part"
        join_text(["table", "row", "column", "value", "reason"], [self._bad(number) for number in numbers], part)
        part.replace(bad)


def _identity(path: Path) -> list[Any]:
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


def is_streamed(model: Model, tables: Mapping[str, Any], least: int) -> bool:
    """Whether tables are predicted piece by piece: files of molecules, and of many graphs if they are large.

    Args:
        model: the model.
        tables: the arguments of `predict_files`.
        least: from how many bytes on many graphs are read piece by piece. Their rows must then stand together.
    """
    given = [table for table in tables.values() if table is not None]
    if model.preprocessing is None or tables.get("known") is not None:
        return False
    if not all(isinstance(table, str | Path) for table in given):
        return False
    roles = model.preprocessing.roles
    if roles.smiles is not None:
        return True
    return roles.graph is not None and sum(Path(table).stat().st_size for table in given) >= least


def join_text(columns: list[str], files: list[Path], out: Path) -> None:
    """Write a header, and the rows of CSV files below it."""
    with out.open("wb") as file:
        file.write(csv_text([columns]).encode())
        for path in files:
            with path.open("rb") as piece:
                shutil.copyfileobj(piece, file)
        file.flush()
        os.fsync(file.fileno())


def join_parquet(files: list[Path], out: Path) -> None:
    """Write Parquet files with the same columns below each other."""
    from pyarrow import parquet

    with parquet.ParquetWriter(out, parquet.read_schema(files[0])) as writer:
        for path in files:
            writer.write_table(parquet.read_table(path))


def read_leniently(model: Model, tables: Mapping[str, Any], bad: Path, strict: bool) -> Inputs:
    """Tables as graphs. Without `strict`, bad rows are written to a file, and unknown categories count as others."""
    given = {name: tables.get(name) for name in ("nodes", "edges", "graphs")}
    if tables.get("known") is not None:
        given |= join_known(model, tables)
    if strict:
        return read_inputs(model, **given, unknown="raise")
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder) / "bad.csv"
        inputs = read_inputs(model, **given, unknown="other", on_error="skip", dropped=noted)
        if inputs.dropped:
            write_atomic(bad, noted.read_bytes())
        else:
            bad.unlink(missing_ok=True)
    return inputs
