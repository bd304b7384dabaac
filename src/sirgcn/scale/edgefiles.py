"""Tables on disk, CSV or Parquet, read in pieces of bounded size."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sirgcn.data import DataError
from sirgcn.strict import check_name

PIECE = 2**21
"""How many cells are read at once."""

_KINDS = (".csv", ".parquet")


def table_files(path: str | Path | Sequence[str | Path], what: str) -> list[Path]:
    """The files of a table: a file, the files of a folder in the order of their names, or a list of files.

    >>> table_files("edges.txt", "edges")
    Traceback (most recent call last):
    sirgcn.data.validate.DataError: edges.txt: edges: expected a .csv or .parquet file, got .txt
    """
    if isinstance(path, str | Path):
        folder = Path(path)
        if not folder.is_dir():
            return [_checked(folder, what)]
        found = sorted(file for file in folder.iterdir() if file.suffix in _KINDS)
        if not found:
            raise DataError("expected .csv or .parquet files in the folder, got none", what, str(path))
        return found
    return [_checked(Path(file), what) for file in path]


def _checked(path: Path, what: str) -> Path:
    if path.suffix not in _KINDS:
        raise DataError(f"expected a .csv or .parquet file, got {path.suffix or 'no ending'}", what, str(path))
    if not path.is_file():
        raise DataError("expected a file, got none of this name", what, str(path))
    return path


def column_names(path: Path) -> list[str]:
    """The names of the columns of a file."""
    if path.suffix == ".parquet":
        return list(_arrow("parquet").ParquetFile(path).schema_arrow.names)
    with _open_csv(path, None) as reader:
        return list(reader.schema.names)


def pieces(files: Sequence[Path], columns: Sequence[str]) -> Iterator[tuple[Path, int, dict[str, npt.NDArray[Any]]]]:
    """The pieces of a table: their file, their first row (from 0), and the columns as arrays."""
    for path in files:
        for column in columns:
            check_name(f"{path}: column", column, column_names(path), exact=True)
        row = 0
        for batch in _batches(path, columns):
            if batch.num_rows:
                yield path, row, {column: _array(batch.column(column), path, column, row) for column in columns}
            row += batch.num_rows


def _batches(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    if path.suffix == ".parquet":
        yield from (
            _arrow("parquet")
            .ParquetFile(path)
            .iter_batches(max(1, PIECE // len(columns)), columns=list(columns), use_threads=False)
        )
        return
    with _open_csv(path, columns) as reader:
        yield from reader


def _open_csv(path: Path, columns: Sequence[str] | None) -> Any:
    csv = _arrow("csv")
    options = csv.ReadOptions(block_size=2**24, use_threads=False)
    wanted = csv.ConvertOptions(include_columns=None if columns is None else list(columns))
    return csv.open_csv(path, read_options=options, convert_options=wanted)


def _array(column: Any, path: Path, name: str, row: int) -> npt.NDArray[Any]:
    if column.null_count:
        at = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise DataError("expected a number, got nothing", name, str(path), row=row + at + 1)
    found = np.asarray(column)
    if found.dtype.kind not in "iuf":
        raise DataError(f"expected numbers, got {column.type}", name, str(path), row=row + 1)
    return found


def whole_numbers(values: npt.NDArray[Any], most: int | None, where: tuple[Path, str, int]) -> npt.NDArray[np.int64]:
    """A column of node numbers, at least 0 and below `most`."""
    path, name, row = where
    if values.dtype.kind == "f":
        raise DataError("expected whole numbers, got numbers with a point", name, str(path), row=row + 1)
    bad = (values < 0) if most is None else (values < 0) | (values >= most)
    if bad.any():
        at = int(bad.argmax())
        below = "" if most is None else f" and below {most}"
        raise DataError(
            f"expected a node number, at least 0{below}, got {values[at]}",
            name,
            str(path),
            row=row + at + 1,
            value=int(values[at]),
        )
    return values.astype(np.int64, copy=False)


def _arrow(part: str) -> Any:
    try:
        if part == "csv":
            import pyarrow.csv as found
        else:
            import pyarrow.parquet as found
    except ImportError as error:
        raise ImportError(f"graphs on disk are read with pyarrow: pip install 'sirgcn[scale]' ({error})") from error
    return found
