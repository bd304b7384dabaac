"""Archives from untrusted sources: only plain files, only inside the folder, and only up to a limit of size."""

import bz2
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import IO, Any, cast

import numpy as np

from sirgcn.data.validate import DataError

CHUNK = 1 << 20


@dataclass(frozen=True)
class Limits:
    """The limits of an archive.

    Args:
        total: the bytes of all files together.
        files: the number of files.
        ratio: the bytes of all files per byte of the archive. Tables of numbers stay below 30, a bomb reaches 1,000.
        harmless: the bytes that any archive may hold, however small it is.
    """

    total: int = 16 << 30
    files: int = 10_000
    ratio: int = 100
    harmless: int = 100 << 20

    def bytes_of(self, archive: Path) -> int:
        """Return the number of bytes to which this archive may be unpacked."""
        return min(self.total, max(self.harmless, self.ratio * archive.stat().st_size))


ARRAYS = Limits(ratio=200, harmless=1 << 30)
"""The limits for arrays, which may be nearly all zeros and need no more memory than their unpacked size."""


def open_gzip(path: Path, limit: int | None = None) -> IO[bytes]:
    """Open a .gz file that raises when more than `limit` bytes are unpacked; the default is that of `Limits`."""
    return cast("IO[bytes]", _Bounded(gzip.open(path), Limits().bytes_of(path) if limit is None else limit, 0))


def load_npz(path: Path, limit: int | None = None) -> Any:
    """Return the arrays of a .npz file, without pickles and at most `limit` bytes; the default is that of `ARRAYS`.

    A damaged list of members is refused, too.
    """
    with path.open("rb") as file:
        check_zip(file, ARRAYS.bytes_of(path) if limit is None else limit)
    return np.load(path, allow_pickle=False)


def check_zip(file: IO[bytes], limit: int) -> None:
    """Raise for a zip file that unpacks to more than `limit` bytes, or whose list of members is damaged."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
    file.seek(-_END.size, os.SEEK_END)
    _, listed = _END.unpack(file.read())
    if sum(member.file_size for member in members) > limit:
        raise _too_large(limit)
    # zipfile does not compare these numbers. 65535 means that the number is stored elsewhere.
    if listed not in (len(members), 0xFFFF):
        raise ValueError(f"{len(members)} members where {listed} are listed")


# The record at the end of an archive has 22 bytes; the 2 bytes at offset 10 are the number of members.
_END = struct.Struct("<10sH10x")


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    open: Callable[[], IO[bytes]]


def extract(archive: Path, folder: Path, limits: Limits | None = None) -> Path:
    """Unpack a .zip or .tar archive (also .gz, .bz2, .xz) as the new folder `folder`.

    All names and sizes are checked before the first byte is written, and the sizes again while writing. The folder gets
    its name when it is complete. These are refused:

    - names that are absolute, contain `..`, a drive or a backslash, or occur twice (also in other letter case),
    - links, devices and encrypted members,
    - archives that exceed the limits.
    """
    limits = limits or Limits()
    if folder.exists():
        raise DataError(f"expected a new folder, but {folder} exists", "folder", str(archive))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        inside = Path(temporary) / "files"
        inside.mkdir()
        with _members(archive, limits) as members:
            for member in members:
                _write(member, inside / member.name)
        inside.replace(folder)
    return folder


@contextmanager
def _members(archive: Path, limits: Limits) -> Iterator[list[_Member]]:
    """Yield all files of the archive after checking them; every error names the archive."""
    try:
        with archive.open("rb") as file:
            open_archive = _zip if zipfile.is_zipfile(file) else _tar
            file.seek(0)
            opened, found = open_archive(file, limits.bytes_of(archive))
            with opened:
                yield _checked(found, limits, limits.bytes_of(archive))
    except DataError as error:
        raise DataError(error.message, error.field, str(archive), value=error.value) from error
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError) as error:
        raise DataError(f"expected a readable zip or tar archive: {error}", "archive", str(archive)) from error
    except OSError as error:
        if error.errno is not None:
            raise
        # gzip and bz2 report damage as an OSError without an error number.
        raise DataError(f"expected a readable archive: {error}", "archive", str(archive)) from error


def _zip(file: IO[bytes], limit: int) -> tuple[Any, Iterator[_Member]]:
    archive = zipfile.ZipFile(file)

    def members() -> Iterator[_Member]:
        for info in archive.infolist():
            # `filename` ends at a NUL byte; `orig_filename` is the name in the archive.
            name = info.orig_filename
            if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise DataError("expected a plain file, got a link or device", "name", value=name)
            if info.flag_bits & 0x1:
                raise DataError(f"expected plain files, {name!r} is encrypted", "name", value=name)
            if not info.is_dir():
                yield _Member(name, info.file_size, lambda info=info: archive.open(info))  # type: ignore[misc]

    return archive, members()


def _tar(file: IO[bytes], limit: int) -> tuple[Any, Iterator[_Member]]:
    start = file.read(6)
    file.seek(0)
    openers: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
    opener = next((opener for magic, opener in openers.items() if start.startswith(magic)), None)
    # Listing the members of a tar unpacks all of it, so a bomb must be noticed while reading.
    stream: Any = _Bounded(opener(file), limit) if opener else file
    archive = tarfile.open(fileobj=stream, mode="r:")  # noqa: SIM115 (the caller closes it)

    def members() -> Iterator[_Member]:
        for info in archive:
            if not (info.isreg() or info.isdir()) or info.issparse():
                raise DataError(f"expected a plain file, {info.name!r} is a link or device", "name", value=info.name)
            if info.isreg():
                yield _Member(info.name, info.size, lambda info=info: archive.extractfile(info))  # type: ignore[arg-type, misc]
        # Read to the end, where the hash of the compressed data is.
        while stream.read(CHUNK):
            pass

    return archive, members()


class _Bounded(io.RawIOBase):
    """A stream that raises when it is read beyond a limit, with some room for headers."""

    def __init__(self, file: Any, limit: int, headers: int = CHUNK) -> None:
        self.file, self.limit, self.end = file, limit, limit + headers

    def read(self, size: int = -1) -> bytes:
        room = self.end - self.file.tell()
        if room < 0:
            raise _too_large(self.limit)
        # One byte more than there is room for, so that a larger file is noticed.
        data = self.file.read(room + 1 if size < 0 else min(size, room + 1))
        if room < len(data):
            raise _too_large(self.limit)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence == 0 and offset > self.end:
            raise _too_large(self.limit)
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.file.close()
        super().close()


def _checked(found: Iterator[_Member], limits: Limits, room: int) -> list[_Member]:
    members: dict[str, _Member] = {}
    limit = room
    for member in found:
        _check_name(member.name)
        # On some systems, letter case does not distinguish files.
        key = "/".join(part for part in member.name.split("/") if part != ".").casefold()
        if key in members:
            raise DataError(f"expected every name once, got {member.name!r} again", "name", value=member.name)
        members[key] = member
        room -= member.size
        if room < 0:
            raise _too_large(limit)
        if len(members) > limits.files:
            raise DataError(f"expected at most {limits.files} files, got more", "files", value=len(members))
    for key, member in members.items():
        parents = key.split("/")[:-1]
        if any("/".join(parents[:depth]) in members for depth in range(1, len(parents) + 1)):
            raise DataError(f"expected a folder above {member.name!r}, got a file", "name", value=member.name)
    return list(members.values())


def _check_name(name: str) -> None:
    parts = name.split("/")
    outside = name.startswith("/") or ".." in parts or parts[-1] == "." or PureWindowsPath(name).drive
    strange = any(ord(letter) < 32 or letter in "\\:" for letter in name)
    if outside or strange or "" in parts or len(name) > 1000:
        raise DataError(f"expected a relative name inside the folder, got {name!r}", "name", value=name)


def _write(member: _Member, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with member.open() as source, path.open("xb") as target:
        while written <= member.size and (chunk := source.read(CHUNK)):
            written += len(chunk)
            target.write(chunk)
    if written != member.size:
        message = f"expected {member.size} bytes in {member.name!r}, got {'more' if written > member.size else written}"
        raise DataError(message, "size", value=member.name)


def _too_large(limit: int) -> DataError:
    return DataError(f"expected at most {limit} bytes in it when unpacked, got more", "size", value=limit)
