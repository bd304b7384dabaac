"""Locks of the operating system on files. A lock ends with its process, however the process ends."""

import math
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

# Windows locks bytes, which other processes then cannot read. This byte is far behind any text.
_BYTE = 1 << 40
_WAIT = 0.01


class Busy(RuntimeError):
    """Another process holds the lock. The text says which."""


@contextmanager
def opened(path: Path, patience: float = math.inf) -> Iterator[int]:
    """The descriptor of a file, with its lock held. The file is created if there is none.

    Raises:
        Busy: another process holds the lock for longer than `patience` seconds. The error says which if the file does.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, owner = _open(path, patience), os.getpid()
    _DESCRIPTORS.add(descriptor)
    try:
        yield descriptor
    finally:
        # A fork of this process that continues from here does not own the lock.
        if os.getpid() == owner:
            _DESCRIPTORS.discard(descriptor)
            _release(descriptor)
            os.close(descriptor)


@contextmanager
def held(path: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold a lock that is a file of its own. The text of the file says who holds it. The file is removed at the end.

    Raises:
        Busy: another process, or another part of this process, holds the lock for longer than `patience` seconds. The
            error says which, and since when.
    """
    with opened(path, patience) as descriptor:
        owner = os.getpid()
        # On a full disk the text cannot be written. The lock is held all the same.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, _self().encode())
        try:
            yield
        finally:
            # Windows does not remove an open file. The file stays there and means nothing without its lock.
            with suppress(OSError):
                if os.getpid() == owner:
                    path.unlink()


def holder(path: Path) -> str:
    """The process that wrote its name into the file of a lock."""
    try:
        return path.read_text("utf-8").strip() or "another process"
    except (OSError, UnicodeDecodeError):
        return "another process"


def _self() -> str:
    since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    return f"process {os.getpid()} on {socket.gethostname()} since {since}\n"


def _open(path: Path, patience: float) -> int:
    """A locked descriptor of the file that has the name now. The previous holder may have removed an older file."""
    started = time.monotonic()
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        is_taken = _try_lock(descriptor)
        if is_taken and _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)
        if not is_taken and time.monotonic() - started >= patience:
            raise Busy(f"{path}: held by {holder(path)}")
        time.sleep(0 if is_taken else _WAIT)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            _at_byte(descriptor, msvcrt.LK_NBLCK)
        except OSError:
            return False
        return True

    def _release(descriptor: int) -> None:
        _at_byte(descriptor, msvcrt.LK_UNLCK)

    def _at_byte(descriptor: int, mode: int) -> None:
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, mode, 1)
        finally:
            os.lseek(descriptor, place, os.SEEK_SET)

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _release(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


_DESCRIPTORS: set[int] = set()


def _forget() -> None:
    """Close the descriptors in a fork, which would otherwise hold the locks after the end of their process."""
    for descriptor in _DESCRIPTORS:
        os.close(descriptor)
    _DESCRIPTORS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
