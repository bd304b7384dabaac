"""The manifest of a graph on disk: sizes, and the sha256 of every block of every file."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sirgcn.data import DataError
from sirgcn.files import write_atomic

FORMAT = 1
NAME = "manifest.json"
BLOCK_BYTES = 2**26
"""The size of a block of features; blocks of edges hold whole neighbourhoods."""


@dataclass(frozen=True)
class FileBlock:
    """A range of bytes of a file, and their sha256.

    >>> FileBlock("x.bin", 0, 8, "ab").end
    8
    """

    file: str
    begin: int
    bytes: int
    sha256: str

    @property
    def end(self) -> int:
        """The first byte behind the block."""
        return self.begin + self.bytes


@dataclass(frozen=True)
class Manifest:
    """What a graph on disk consists of.

    Args:
        num_nodes, num_edges: the size of the graph.
        width: the number of features of a node.
        wide: whether node numbers take 8 bytes, else 4.
        label: the kind of labels, `"class"`, `"number"` or none.
        blocks: all blocks of all files.

    >>> Manifest(2, 1, 0, False, "", ()).wide
    False
    """

    num_nodes: int
    num_edges: int
    width: int
    wide: bool
    label: str
    blocks: tuple[FileBlock, ...]

    def write(self, folder: Path) -> None:
        """Write the manifest; a graph on disk exists as soon as it does."""
        body: dict[str, Any] = {"format": FORMAT, **asdict(self)}
        body["sha256"] = _digest(body)
        write_atomic(folder / NAME, json.dumps(body, indent=1).encode())

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read and check the manifest itself."""
        path = folder / NAME
        try:
            body = json.loads(path.read_bytes())
            digest = body.pop("sha256")
            if body.get("format") != FORMAT:
                raise DataError(f"expected {FORMAT}, got {body.get('format')}", "format", str(path))
            if digest != _digest(body):
                raise DataError("expected the content that was written, got another hash", "sha256", str(path))
            body.pop("format")
            blocks = tuple(FileBlock(**block) for block in body.pop("blocks"))
            return cls(blocks=blocks, **body)
        except FileNotFoundError as error:
            raise DataError("expected a graph on disk, got a folder without a manifest", NAME, str(folder)) from error
        except DataError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"expected a manifest ({type(error).__name__}: {error})", NAME, str(path)) from error

    def check_sizes(self, folder: Path) -> None:
        """Refuse a file that is missing, truncated or longer than it was."""
        ends: dict[str, int] = {}
        for block in self.blocks:
            if Path(block.file).name != block.file:
                raise DataError(f"expected the name of a file, got {block.file!r}", "blocks", str(folder / NAME))
            ends[block.file] = max(ends.get(block.file, 0), block.end)
        for name, end in ends.items():
            path = folder / name
            size = path.stat().st_size if path.is_file() else None
            if size is None:
                raise DataError("expected the file, got none", "blocks", str(path))
            if size != end:
                cut = next(
                    (at for at, block in enumerate(self.blocks) if block.file == name and block.end > size), None
                )
                which = "" if cut is None else f"; block {cut} is truncated"
                raise DataError(f"expected {end} bytes, got {size}{which}", "size", str(path))

    def check_content(self, folder: Path) -> None:
        """Refuse a file in which a byte differs from what was written."""
        for at, block in enumerate(self.blocks):
            if digest_of(folder / block.file, block.begin, block.bytes) != block.sha256:
                raise DataError(
                    f"block {at} (bytes {block.begin} to {block.end}): expected the content that was written, got "
                    "another hash",
                    "sha256",
                    str(folder / block.file),
                )


def blocks_of(path: Path, size: int = BLOCK_BYTES) -> list[FileBlock]:
    """The blocks of a file that has been written."""
    total = path.stat().st_size
    starts = range(0, max(total, 1), size)
    lengths = [min(size, total - start) for start in starts]
    return [
        FileBlock(path.name, start, length, digest_of(path, start, length))
        for start, length in zip(starts, lengths, strict=True)
    ]


def digest_of(path: Path, begin: int, count: int) -> str:
    """The sha256 of a range of bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(begin)
        while count > 0:
            chunk = file.read(min(count, 2**22))
            if not chunk:
                break
            digest.update(chunk)
            count -= len(chunk)
    return digest.hexdigest()


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
