"""Atomic writing of files and of whole folders."""

import ctypes
import os
import shutil
import sys
import uuid
from collections.abc import Mapping
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
    _sync(path.parent)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of files completely or not at all. An old folder of this name is replaced, with all its files.

    The files are written into a hidden folder beside it, and the two change places when the last file is on the disk.

    Raises:
        OSError: a file cannot be written. The error names the folder, and its old content is unchanged.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as parent:
    ...     write_folder(Path(parent) / "model", {"old.txt": b"1"})
    ...     write_folder(Path(parent) / "model", {"new.txt": b"2"})
    ...     [str(path.relative_to(parent)) for path in Path(parent).rglob("*.*")]
    ['model/new.txt']
    """
    # A symbolic link stays, and the folder that it points to is written.
    folder = Path(os.path.realpath(folder))
    part = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.part")
    try:
        part.mkdir(parents=True)
        for name, data in files.items():
            with (part / name).open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        _sync(part)
        _put(part, folder)
        _sync(folder.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error
    finally:
        # After the two have changed places, this is the old folder.
        shutil.rmtree(part, ignore_errors=True)


def _put(part: Path, folder: Path) -> None:
    """Give a folder the name of another one, which takes the name of the first."""
    if not folder.exists():
        part.rename(folder)
    elif not _exchange(part, folder):
        old = part.with_suffix(".old")
        folder.rename(old)
        try:
            part.rename(folder)
        except BaseException:
            old.rename(folder)
            raise
        old.rename(part)


def _exchange(one: Path, other: Path) -> bool:
    """Whether two folders have changed names in one step. Only Linux can, and not on every file system."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    # The working directory as the start of relative paths, and the flag "exchange", from Linux's headers.
    at_cwd, exchange = -100, 2
    return rename is not None and rename(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), exchange) == 0


def _sync(folder: Path) -> None:
    """Bring the names in a folder to the disk. Only POSIX allows to open a folder for that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
