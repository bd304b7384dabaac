"""Files that are there in full or not at all."""

import os
import uuid
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that it is there in full or not at all, whatever interrupts the writing.

    Raises:
        OSError: names the file, also where the disk is full; what stood there before is still there.
    """
    # What a link points to is written, and the link stays.
    path = Path(os.path.realpath(path))
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        # A write that fails knows its descriptor alone, and a reader the name that was asked for.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        part.unlink(missing_ok=True)
    # The new name itself must reach the disk; only POSIX lets a folder be opened for that.
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
