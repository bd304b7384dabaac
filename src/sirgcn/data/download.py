"""Downloads that can be resumed and are checked. Only a complete file gets its final name."""

import contextlib
import errno
import hashlib
import http.client
import os
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from sirgcn.data.validate import DataError
from sirgcn.strict import checked

CHUNK = 1 << 20
LARGEST = 8 << 30
"""The largest download in bytes. All files of the catalogue are far smaller."""


@checked
def checksum(path: Path, algorithm: str = "sha256") -> str:
    """Return the hash of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


@checked
def check(path: Path, expected: str) -> None:
    """Raise for a file whose hash is not `expected` ("sha256:..." or "md5:...", as it was published)."""
    algorithm, _, digest = expected.partition(":")
    found = checksum(path, algorithm)
    if found != digest:
        raise DataError(
            f"expected {algorithm} {digest}, got {found}: the file is damaged or another version",
            algorithm,
            str(path),
            value=found,
        )


@checked
def download(
    url: str,
    path: Path,
    expected: str | None = None,
    size: int | None = None,
    tries: int = 4,
    wait: float = 1.0,
    timeout: float = 30.0,
) -> Path:
    """Download `url` as the file `path`. If that fails, the error says what to do instead. An existing file is kept.

    The bytes that have arrived stay in `path` + ".part". After an interruption, this call or a later one continues, if
    the server supports it (HTTP Range) and confirms that its file is still the same (ETag or Last-Modified). Only a
    complete file with the expected hash gets the final name.

    Args:
        url: an http or https address.
        path: the file to write; its folder is created.
        expected: "sha256:..." or "md5:...", if a hash was published.
        size: the size in bytes, if it is known.
        tries: the number of connections before giving up. The pause before each is twice as long as the one before.
        wait: the pause before the second connection, in seconds.
        timeout: the time limit of the connection and of every read, in seconds.
    """
    if path.exists():
        return path
    if urlsplit(url).scheme not in ("http", "https"):
        raise DataError(f"expected an http or https address, got {url!r}", "url", value=url)
    reason = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(tries):
            if attempt:
                time.sleep(wait * 2 ** (attempt - 1))
            try:
                _transfer(url, path, size, timeout)
                return _finish(path, expected)
            except _Again as again:
                reason = str(again)
    except (OSError, http.client.HTTPException) as error:
        reason = _reason(error)
    except DataError as error:
        raise DataError(
            f"{error.message}; {by_hand(path, url)}", error.field, error.source, value=error.value
        ) from error
    raise DataError(f"cannot be downloaded ({reason}); {by_hand(path, url)}", path.name, value=url)


def by_hand(path: Path, source: str) -> str:
    """Return the advice for a user without a network."""
    return f"put {path.name} into {path.parent}, from {source}"


class _Again(Exception):
    """A temporary failure: the next try may continue where this one ended."""


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _validator(path: Path) -> Path:
    return path.with_name(path.name + ".part.tag")


def _transfer(url: str, path: Path, size: int | None, timeout: float) -> None:
    """Append to the part of the file what one connection delivers."""
    part, tag = _part(path), _validator(path)
    try:
        with urllib.request.urlopen(_request(url, part, tag), timeout=timeout) as response:
            have = _continued(response, part)
            _remember(tag, response.headers)
            total = _total(response.headers, have)
            _check_size(url, size, total)
            _receive(response, part, have, total or size)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            # The part is longer than the file, so it belongs to another version.
            part.unlink(missing_ok=True)
        elif error.code not in (408, 429) and error.code < 500:
            raise
        raise _Again(_reason(error)) from error
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        if isinstance(getattr(error, "reason", None), socket.gaierror):
            # Without a network, or with an unknown host, another try will not help.
            raise
        raise _Again(_reason(error)) from error


def _request(url: str, part: Path, tag: Path) -> urllib.request.Request:
    """Return the request for the rest of a file, or for the whole file if no part of it can be continued."""
    request = urllib.request.Request(url, headers={"User-Agent": "sirgcn", "Accept-Encoding": "identity"})
    have = part.stat().st_size if part.exists() and tag.exists() else 0
    if have:
        # With If-Range, a server whose file has changed sends the whole file instead of a rest that does not fit.
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", tag.read_text())
    return request


def _continued(response: Any, part: Path) -> int:
    """Return the number of bytes that are there already, if the server continues after them; otherwise 0."""
    have = part.stat().st_size if part.exists() else 0
    is_rest = response.status == 206 and str(response.headers.get("Content-Range")).startswith(f"bytes {have}-")
    return have if is_rest else 0


def _check_size(url: str, size: int | None, total: int | None) -> None:
    if total is not None and (total > LARGEST or size not in (None, total)):
        raise DataError(f"expected {size or f'at most {LARGEST}'} bytes, got {total}", "size", url, value=total)


def _receive(response: Any, part: Path, have: int, total: int | None) -> None:
    # Not in append mode, so that two processes that download the same file write the same bytes to the same places.
    with part.open("r+b" if have else "wb") as file, _progress() as progress:
        file.seek(have)
        task = progress.add_task(part.name.removesuffix(".part"), total=total, completed=have)
        while chunk := response.read(CHUNK):
            have += len(chunk)
            if have > (LARGEST if total is None else total):
                raise DataError(
                    f"expected {total or f'at most {LARGEST}'} bytes, got more", "size", str(part), value=have
                )
            file.write(chunk)
            progress.advance(task, len(chunk))
        file.truncate()
    if total is not None and have < total:
        raise _Again(f"the connection ended after {have} of {total} bytes")


def _finish(path: Path, expected: str | None) -> Path:
    part = _part(path)
    try:
        if expected is not None:
            check(part, expected)
        part.replace(path)
    except FileNotFoundError:
        if not path.exists():
            raise
    except DataError:
        part.unlink(missing_ok=True)
        raise
    finally:
        _validator(path).unlink(missing_ok=True)
    return path


def _remember(tag: Path, headers: Any) -> None:
    # A weak ETag does not promise equal bytes, and is not allowed in If-Range (RFC 9110, 13.1.5).
    etag = headers.get("ETag", "")
    validator = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified")
    if validator:
        tag.write_text(validator)
    else:
        tag.unlink(missing_ok=True)


def _total(headers: Any, have: int) -> int | None:
    with contextlib.suppress(TypeError, ValueError):
        return have + int(headers.get("Content-Length"))
    return None


def _reason(error: Exception) -> str:
    inner = getattr(error, "reason", None)
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    if isinstance(inner, socket.gaierror):
        return f"no network, or no such host: {inner.strerror}"
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno == errno.EROFS):
        return f"{os.fspath(error.filename or 'the folder')} cannot be written"
    return str(inner or error) or type(error).__name__


def _progress() -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
