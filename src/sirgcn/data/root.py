"""Where data sets lie, and where what is computed from them may be written."""

import os
import sys
from pathlib import Path


def data_root(root: str | Path | None = None) -> Path:
    """The folder of the raw files: the argument, then `SIRGCN_DATA`, then the user's cache folder.

    It may be read-only: nothing but a download writes into it.
    """
    return _folder(root, "SIRGCN_DATA")


def cache_root(root: str | Path | None = None) -> Path:
    """The folder of what was computed or drawn: the argument, then `SIRGCN_CACHE`, then the user's cache folder.

    It can be removed at any time: everything in it is computed again.
    """
    return _folder(root, "SIRGCN_CACHE")


def _folder(root: str | Path | None, variable: str) -> Path:
    given = root if root is not None else os.environ.get(variable)
    return Path(given).expanduser() if given else _user_cache() / "sirgcn"


def _user_cache() -> Path:
    # An empty variable counts as none, and a relative XDG path is to be ignored (XDG Base Directory Specification).
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    given = os.environ.get(variable, "")
    return Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
