"""The raw files of a data set: where they lie below the data root, where they come from, and which version they are."""

import hashlib
import json
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sirgcn.data.archives import extract
from sirgcn.data.download import by_hand, check, checksum, download
from sirgcn.data.store import data_root
from sirgcn.data.validate import DataError

PUBLISHED = "as published"


@dataclass(frozen=True)
class RawFile:
    """One file.

    Args:
        name: below the folder of its data set, "/" between folders.
        url: where it is downloaded from; None where it comes out of an archive.
        checksum: "sha256:..." or "md5:..." of the published file, where its hash is known.
        known: other files that may stand in its place: their sha256, and what they are.
    """

    name: str
    url: str | None = None
    checksum: str | None = None
    known: tuple[tuple[str, str], ...] = ()

    def identify(self, path: Path, strict: bool = True) -> str | None:
        """What the file at `path` is; None if nothing is known of it. `strict` refuses it if something is."""
        label = dict(self.known).get(checksum(path))
        if label is None and self.checksum is not None:
            try:
                check(path, self.checksum)
                return PUBLISHED
            except DataError:
                if strict:
                    raise
        return label


@dataclass(frozen=True)
class Archive:
    """A zip or tar that holds the files.

    Args:
        url: where it is downloaded from.
        folder: of the files inside it; empty for its top.
        checksum: "sha256:..." or "md5:...", where its hash is known.
    """

    url: str
    folder: str = ""
    checksum: str | None = None

    @property
    def name(self) -> str:
        """Of its file."""
        return self.url.split("?")[0].rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Raw:
    """The files of a data set in one layout.

    Args:
        folder: below the data root.
        files: all of them are needed.
        archive: what holds those without an own address.
    """

    folder: str
    files: tuple[RawFile, ...]
    archive: Archive | None = None

    def at(self, root: str | Path | None) -> Path:
        """The folder of the files."""
        return data_root(root) / self.folder

    def missing(self, root: str | Path | None) -> list[RawFile]:
        """The files that are not there."""
        return [file for file in self.files if not (self.at(root) / file.name).is_file()]

    def fetch(self, root: str | Path | None) -> Path:
        """Download what is missing; the folder."""
        folder = self.at(root)
        missing = self.missing(root)
        packed = [file for file in missing if file.url is None]
        if packed and self.archive is None:
            raise DataError(f"there is no download: {by_hand(folder / packed[0].name, 'its owner')}", packed[0].name)
        if packed and self.archive is not None:
            try:
                _unpack(self.archive, folder, packed)
            except OSError as error:
                raise DataError(f"cannot be unpacked into {folder}: {error}", self.archive.name) from error
        for file in missing:
            if file.url is not None:
                try:
                    download(file.url, folder / file.name, file.checksum)
                except DataError as error:
                    # Who brings one file by hand will bring them all.
                    others = [other.name for other in self.missing(root) if other is not file]
                    if not others:
                        raise
                    raise replace(error, message=f"{error.message}; likewise {', '.join(others)}") from error
        return folder

    def version(self, folder: Path, strict: bool = True) -> str:
        """What the files are, by their hashes; `strict` refuses a file that is not the published one or a known one."""
        found = {file.name: file.identify(folder / file.name, strict) for file in self.files}
        others = [folder / name for name, label in found.items() if label is None]
        labels = sorted({label for label in found.values() if label is not None} - {PUBLISHED})
        if others:
            labels.append(f"files of sha256 {digest(others)[:16]}")
        return ", ".join(labels) or PUBLISHED


def locate(layouts: Sequence[Raw], root: str | Path | None, fetch: bool = True) -> tuple[Raw, Path]:
    """The first layout whose files are all there, and its folder; else the first one is downloaded, or refused."""
    for raw in layouts:
        if not raw.missing(root):
            return raw, raw.at(root)
    first = layouts[0]
    if fetch:
        return first, first.fetch(root)
    file = first.missing(root)[0]
    source = file.url or (first.archive.url if first.archive else "its owner")
    raise DataError(f"is not there; {by_hand(first.at(root) / file.name, source)}", file.name)


def digest(paths: Sequence[Path]) -> str:
    """One hash of the content of several files."""
    return hashlib.sha256("\n".join(checksum(path) for path in paths).encode()).hexdigest()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file does to its reader into a refusal that names the file."""
    try:
        yield
    except DataError as error:
        if error.source:
            raise
        raise replace(error, source=str(path)) from error
    except (
        *(OSError, EOFError, UnicodeError, ValueError, KeyError, IndexError, TypeError, AttributeError, RuntimeError),
        *(OverflowError, MemoryError, RecursionError, zipfile.BadZipFile, zlib.error, json.JSONDecodeError),
    ) as error:
        raise DataError(f"cannot be read: {type(error).__name__}: {error}", path.name, str(path)) from error


def _unpack(archive: Archive, folder: Path, files: list[RawFile]) -> None:
    """Only the files that are asked for leave the archive. One that was put there by hand stays."""
    packed = folder / archive.name
    brought = packed.exists()
    if brought and archive.checksum is not None:
        check(packed, archive.checksum)
    download(archive.url, packed, archive.checksum)
    with tempfile.TemporaryDirectory(prefix=".unpack.", dir=folder) as temporary:
        inside = extract(packed, Path(temporary) / "archive") / archive.folder
        for file in files:
            if not (inside / file.name).is_file():
                raise DataError(f"expected {archive.folder}/{file.name} in it, got none", file.name, str(packed))
        for file in files:
            (folder / file.name).parent.mkdir(parents=True, exist_ok=True)
            (inside / file.name).replace(folder / file.name)
    if not brought:
        packed.unlink()
