"""What docs/swap.md says does not work: it is refused with an error and never gives wrong figures."""

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.explain import Explainer
from torch_geometric.explain.algorithm import GraphMaskExplainer

from sirgcn.nn import SIRConv

EDGES = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = SIRConv(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv(x, edge_index)
        return out


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_torchscript_is_refused() -> None:
    with pytest.raises((RuntimeError, AttributeError, TypeError, torch.jit.frontend.NotSupportedError)):
        torch.jit.script(SIRConv(4, 3))
    with pytest.raises((RuntimeError, AttributeError, TypeError)):
        torch.jit.trace(SIRConv(4, 3), (torch.randn(5, 4), EDGES))


def test_graph_mask_explainer_is_refused() -> None:
    explainer = Explainer(
        Net(),
        algorithm=GraphMaskExplainer(1, epochs=1, log=False),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    with pytest.raises(TypeError, match=r"linear\(\): argument 'input' \(position 1\) must be Tensor"):
        explainer(torch.randn(5, 4), EDGES, index=3)
