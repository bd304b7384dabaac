"""What a layer does beside its output: how large its tensors are, and what its ONNX program computes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.utils._python_dispatch import TorchDispatchMode

SHAPES = {"x": {0: Dim("nodes", min=2)}, "edge_index": {1: Dim("edges", min=2)}}
"""Any number of nodes and edges, for `torch.export`."""


class LargestTensor(TorchDispatchMode):
    """Records the largest number of elements of a tensor that an operator returns."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


def onnx_output(layer: nn.Module, given: tuple[Tensor, Tensor], others: tuple[Tensor, Tensor], folder: Path) -> Tensor:
    """The output for `others` of the ONNX program of a layer, exported with `given`; both are (x, edge_index)."""
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    program = torch.onnx.export(layer, given, dynamic_shapes=SHAPES, dynamo=True, verbose=False)
    assert program is not None
    program.save(str(folder / "layer.onnx"))
    session = runtime.InferenceSession(str(folder / "layer.onnx"), providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    (found,) = session.run(None, dict(zip(names, (tensor.numpy() for tensor in others), strict=True)))
    return torch.from_numpy(found)
