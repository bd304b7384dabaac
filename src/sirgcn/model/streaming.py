"""Predictions of files: at once for one graph, piece by piece for molecules and many graphs.

Pieces are kept in a folder beside the output until all of them are there. A piece is written whole or not at all, so a
prediction that was killed goes on after its last piece, and no row is lost or doubled.
"""

import csv
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from sirgcn.data.molecules import molecule
from sirgcn.data.tables import Inputs
from sirgcn.data.tables.columns import Frame
from sirgcn.data.validate import DataError
from sirgcn.engine.locks import held
from sirgcn.files import write_atomic
from sirgcn.model.fitted import Model
from sirgcn.model.members import weights_of
from sirgcn.model.pieces import BadRow, Piece, has_pieces, read_pieces
from sirgcn.model.predicting import check_ending, check_level, frame_of, frame_text, read_inputs, write_frame
from sirgcn.spreadsheet import csv_text

ROWS = 4096
"""How many molecules are predicted at once."""


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
    rows: int = ROWS,
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
        rows: how many molecules or graphs are predicted at once.
    """
    check_ending(out)
    if level is not None:
        check_level(model, level)
    if not out.parent.is_dir():
        raise FileNotFoundError(f"{out}: expected a file in a folder that is there, got {out.parent}")
    if model.preprocessing is not None and has_pieces(model.preprocessing, tables):
        path = Path(tables["nodes"])
        return _Stream(model, path, out, level, strict, say or (lambda text: None)).run(rows)
    bad = bad_file(out)
    inputs = read_leniently(model, tables, bad, strict)
    frame = frame_of(model, inputs, model.outputs(inputs.graphs), level)
    if tables.get("known") is not None:
        frame = frame
    write_frame(frame, out)
    return Written(len(frame), inputs.dropped, bad, inputs.unseen)


class _Stream:
    """A prediction of molecules, piece by piece, with a folder of the finished pieces beside the output."""

    def __init__(self, model: Model, path: Path, out: Path, level: float | None, strict: bool, say: Say) -> None:
        self.model, self.path, self.out, self.level, self.strict, self.say = model, path, out, level, strict, say
        self.work = out.with_name(f"{out.name}.work")
        self.ending = check_ending(out)

    def run(self, rows: int) -> Written:
        """Predict what is left, and put the pieces together."""
        with held(self.work.with_name(f"{self.work.name}.lock")):
            self._begin(rows)
            found = list(self._pieces(rows))
            self._join(found)
            shutil.rmtree(self.work, ignore_errors=True)
        unseen: Counter[str] = Counter()
        for piece in found:
            unseen.update(piece["unseen"])
        dropped = sum(piece["dropped"] for piece in found)
        return Written(sum(piece["rows"] for piece in found), dropped, bad_file(self.out), dict(unseen))

    def _begin(self, rows: int) -> None:
        """Keep the pieces of the same prediction, and remove those of another one."""
        status = self.path.stat()
        about = {
            "weights": sha256(weights_of(self.model.members)).hexdigest(),
            "file": [str(self.path.resolve()), status.st_size, status.st_mtime_ns],
            "settings": [self.level, self.strict, rows, self.ending],
        }
        of = self.work / "of.json"
        text = json.dumps(about).encode()
        if of.exists() and of.read_bytes() == text:
            return
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        write_atomic(of, text)

    def _pieces(self, rows: int) -> Iterator[dict[str, Any]]:
        """What is known of each piece, which is predicted if that is nothing."""
        assert self.model.preprocessing is not None
        done = 0
        for number, piece in enumerate(read_pieces(self.path, self.model.preprocessing.missing, rows)):
            path = self.work / f"{number:08d}.json"
            if not path.exists():
                write_atomic(path, json.dumps(self._predict(number, piece)).encode())
            found: dict[str, Any] = json.loads(path.read_bytes())
            done += found["rows"] + found["dropped"]
            self.say(f"{done:,} rows")
            yield found

    def _predict(self, number: int, piece: Piece) -> dict[str, Any]:
        """Write the predictions of a piece, and return what is to be known of it."""
        if piece.bad and self.strict:
            table, row, column, _, reason = piece.bad[0]
            raise DataError(reason, column, table, row)
        inputs, bad = self._read(piece)
        rows, columns = 0, []
        if inputs is not None:
            frame = frame_of(self.model, inputs, self.model.outputs(inputs.graphs), self.level)
            frame["id"] = frame["id"].map(str)
            rows, columns = len(frame), list(frame.columns)
            data = (
                frame.to_parquet(index=False) if self.ending == "parquet" else frame_text(frame, header=False).encode()
            )
            write_atomic(self._data(number), data)
        if bad:
            write_atomic(self._bad(number), csv_text(bad).encode())
        unseen = {} if inputs is None else dict(inputs.unseen)
        return {"rows": rows, "columns": columns, "dropped": len(bad), "unseen": unseen}

    def _read(self, piece: Piece) -> tuple[Inputs | None, list[BadRow]]:
        """The molecules of a piece, None if none can be read, and its bad rows."""
        if self.strict:
            return read_inputs(self.model, piece.frame, None, unknown="raise"), []
        with tempfile.TemporaryDirectory() as folder:
            noted = Path(folder) / "bad.csv"
            try:
                options = {"unknown": "other", "on_error": "skip", "dropped": noted}
                inputs = read_inputs(self.model, piece.frame, None, **options)
            except DataError:
                bad = unreadable(self.model, piece.frame)
                if len(bad) < len(piece.frame):
                    raise
                return None, _in_order(piece.bad + bad)
            with noted.open(newline="", encoding="utf-8") as file:
                found: list[BadRow] = [
                    (table, int(row), column, value, reason)
                    for table, row, column, value, reason in list(csv.reader(file))[1:]
                ]
            return inputs, _in_order(piece.bad + found)

    def _data(self, number: int) -> Path:
        return self.work / f"{number:08d}.{self.ending}"

    def _bad(self, number: int) -> Path:
        return self.work / f"{number:08d}.bad"

    def _join(self, found: list[dict[str, Any]]) -> None:
        """Put the pieces together into the output, and the bad rows into the file beside it."""
        bad = bad_file(self.out)
        part = self.work / "bad.part"
        with part.open("wb") as file:
            file.write(csv_text([("table", "row", "column", "value", "reason")]).encode())
            for number, piece in enumerate(found):
                if piece["dropped"]:
                    file.write(self._bad(number).read_bytes())
        if any(piece["dropped"] for piece in found):
            part.replace(bad)
        else:
            bad.unlink(missing_ok=True)
        part = self.work / "all.part"
        numbers = [number for number, piece in enumerate(found) if piece["rows"]]
        if not numbers:
            raise DataError("expected at least one molecule, got none", "nodes", str(self.path))
        files = [self._data(number) for number in numbers]
        if self.ending == "parquet":
            join_parquet(files, part)
        else:
            join_text(found[numbers[0]]["columns"], files, part)
        part.replace(self.out)


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


def _in_order(bad: list[BadRow]) -> list[BadRow]:
    return sorted(bad, key=lambda row: row[1])


def unreadable(model: Model, frame: Frame) -> list[BadRow]:
    """The rows of a table of molecules that are none, with the reason."""
    assert model.preprocessing is not None
    smiles = model.preprocessing.roles.smiles
    assert smiles is not None
    texts = frame.categories(frame.find("smiles", smiles))
    return [
        (frame.source, int(row), smiles, str(frame.value(smiles, place)), "expected a molecule as SMILES")
        for place, (row, text) in enumerate(zip(frame.rows, texts, strict=True))
        if text is None or molecule(text) is None
    ]


def read_leniently(model: Model, tables: Mapping[str, Any], bad: Path, strict: bool) -> Inputs:
    """Tables as graphs. Without `strict`, bad rows are written to a file, and unknown categories count as others."""
    given = {name: tables.get(name) for name in ("nodes", "edges", "graphs")}
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
