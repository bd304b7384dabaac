"""Contextualised messages on graphs: SIR-GCN for PyTorch Geometric.

The main names are found here, `from sirgcn import SIRConv`; `import sirgcn` itself loads neither torch nor PyG.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sirgcn.model.estimator import SIRClassifier, SIRRegressor, load
    from sirgcn.nn import SIRGCN, RandomFeatures, SIRConv, SIRNet, SIRReadout, VirtualNode, preset
    from sirgcn.ops import Neighbors, sir_aggregate, tiled_aggregate

_ROOMS = {
    "sirgcn.model.estimator": ("SIRClassifier", "SIRRegressor", "load"),
    "sirgcn.nn": ("SIRConv", "SIRGCN", "SIRNet", "SIRReadout", "VirtualNode", "RandomFeatures", "preset"),
    "sirgcn.ops": ("Neighbors", "sir_aggregate", "tiled_aggregate"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__version__ = version("sirgcn")
__all__ = [
    "SIRGCN",
    "Neighbors",
    "RandomFeatures",
    "SIRClassifier",
    "SIRConv",
    "SIRNet",
    "SIRReadout",
    "SIRRegressor",
    "VirtualNode",
    "load",
    "preset",
    "sir_aggregate",
    "tiled_aggregate",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'sirgcn' has no attribute {name!r}; its names are {', '.join(__all__)}")
    value = getattr(import_module(_ROOM_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
