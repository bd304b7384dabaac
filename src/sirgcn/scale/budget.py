"""A working set in bytes, and what fits into it."""

import re
from dataclasses import dataclass

import torch

from sirgcn.strict import ConfigError

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SMALLEST = 10**4

# What an edge of a block costs: both ends and both groupings of them, 4 bytes each, some twice for a moment.
_EDGE_BYTES = 64
# How many tensors of the width of a row are alive at once while a row passes through a layer.
_ROW_COPIES = 8


def read_bytes(memory: int | str) -> int:
    """A number of bytes from a number or a text such as `"4GB"` (10^9 bytes each) or `"512MiB"` (2^20 bytes each).

    >>> read_bytes("4GB"), read_bytes("1.5 MiB")
    (4000000000, 1572864)
    """
    if isinstance(memory, bool) or not isinstance(memory, int | str):
        raise ConfigError(f"memory: expected a number of bytes or a text such as '4GB', got {memory!r}")
    found = memory
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", memory)
        if match is None or match[2].upper() not in _UNITS:
            raise ConfigError(f"memory: expected a text such as '4GB' (units {', '.join(_UNITS)[2:]}), got {memory!r}")
        found = int(float(match[1]) * _UNITS[match[2].upper()])
    if int(found) < _SMALLEST:
        raise ConfigError(f"memory: expected at least 10KB, got {memory!r}")
    return int(found)


@dataclass(frozen=True)
class Budget:
    """How a working set is divided: half for the keys of all nodes, a quarter for edges, an eighth each for rows.

    Args:
        memory: the working set, in bytes.

    >>> Budget(2**20).slices_of(8, nodes=2**16, dtype=torch.float32)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None), slice(6, 8, None)]
    """

    memory: int

    @property
    def edges(self) -> int:
        """How many edges a block may have."""
        return max(1, self.memory // 4 // _EDGE_BYTES)

    def rows_of(self, width: int, dtype: torch.dtype) -> int:
        """How many rows of this width pass through a layer at once."""
        return max(1, self.memory // 8 // (_ROW_COPIES * width * dtype.itemsize))

    def targets_of(self, width: int) -> int:
        """How many nodes an edge block may have, besides its limit of edges."""
        return self.rows_of(width, torch.float64)

    def slices_of(self, channels: int, nodes: int, dtype: torch.dtype) -> list[slice]:
        """Channels in slices, of which one fits into half of the working set for all nodes."""
        most = max(1, min(channels, self.memory // 2 // max(1, nodes * dtype.itemsize)))
        return [slice(start, min(start + most, channels)) for start in range(0, channels, most)]
