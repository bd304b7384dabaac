"""Atomic writing of files."""

import os
import uuid
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file completely or not at all, even if the process is killed or the disk is full.

    Raises:
        OSError: the file cannot be written. The error names the file, and its old content is unchanged.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_atomic(Path(folder) / "record.json", b"{}")
    ...     [path.name for path in Path(folder).iterdir()]
    ['record.json']
    """
    # A symbolic link stays, and the file that it points to is written.
    path = Path(os.path.realpath(path))
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        # The error of a failed write does not name a file, and others name the temporary one.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        part.unlink(missing_ok=True)
    # The new name must reach the disk too. Only POSIX allows to open a folder for that.
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
