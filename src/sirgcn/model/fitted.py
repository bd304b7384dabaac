"""`Model`: trained networks with everything that a prediction needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sirgcn.data.graphs import Graphs
from sirgcn.data.tables import Preprocessing
from sirgcn.engine.inference import call
from sirgcn.model.preparation import Preparation
from sirgcn.model.problem import Problem
from sirgcn.model.scaling import Scaling
from sirgcn.nn import NetConfig
from sirgcn.scale import WholeGraph
from sirgcn.strict import Size, checked

if TYPE_CHECKING:
    from sirgcn.model.calibration import Calibration

# Probabilities stay away from 0 and 1, whose logits are infinite.
_SMALLEST = 1e-7


@dataclass(frozen=True, eq=False)
class Member:
    """One network of a model.

    Args:
        config: what it is made of.
        network: the network, in eval mode.
        preparation: what it reads besides the columns of the graphs.

    >>> from sirgcn.nn import build_net
    >>> config = NetConfig.of(2, 8, 1, num_layers=1)
    >>> Member(config, build_net(config).eval()).preparation == Preparation()
    True
    """

    config: NetConfig
    network: nn.Module
    preparation: Preparation = field(default_factory=Preparation)


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model: one network or several, and everything that a prediction needs. A folder holds all of it.

    Args:
        problem: what it predicts.
        members: its networks, whose predictions are averaged.
        scaling: how targets were scaled; None for classes.
        preprocessing: how tables become inputs; None if the model was trained on tensors.
        about: what training knew besides, as JSON values: splits, scores, controls, environment, the command.
        calibration: what turns outputs into probabilities, sets and intervals; None if no rows were left for it.
        whole: computes a graph layer by layer in a bounded working set; None computes it by one pass. It is no part of
            the folder.

    >>> from sirgcn.data import load
    >>> from sirgcn.nn import build_net
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> config = NetConfig.of(2, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    >>> model = Model(Problem.of(task), (Member(config, build_net(config).eval()),), Scaling.of(task))
    >>> model.outputs(task.graphs).shape
    torch.Size([10, 1])
    """

    problem: Problem
    members: tuple[Member, ...]
    scaling: Scaling | None = None
    preprocessing: Preprocessing | None = None
    about: dict[str, Any] = field(default_factory=dict)
    calibration: "Calibration | None" = None
    whole: WholeGraph | None = None

    @checked
    @torch.no_grad()
    def outputs(self, graphs: Graphs, batch_size: Size = 1024) -> Tensor:
        r"""One row for every node, edge or graph: logits of classes or labels, or numbers in the units of the targets.

        Several networks give the logit of their mean probability, or the mean of their numbers.

        Args:
            graphs: the inputs; their targets are not read.
            batch_size: how many graphs are computed at once.
        """
        # Networks often share a preparation, which then is applied once.
        prepared = {step: step.apply(graphs) for step in dict.fromkeys(member.preparation for member in self.members)}
        if self.whole is not None:
            return self._layerwise_outputs(prepared, self.whole)
        rows = [self._batch_outputs(prepared, index) for index in torch.arange(len(graphs)).split(batch_size)]
        return torch.cat(rows)

    def _batch_outputs(self, prepared: Mapping[Preparation, Graphs], index: Tensor) -> Tensor:
        batches = {step: graphs.batch(index) for step, graphs in prepared.items()}
        level = self.problem.level
        return self.joined(
            [call(member.network, batches[member.preparation], level).float() for member in self.members]
        )

    def _layerwise_outputs(self, prepared: Mapping[Preparation, Graphs], whole: WholeGraph) -> Tensor:
        return self.joined(
            [whole.outputs(member.network, prepared[member.preparation]).float() for member in self.members]
        )

    def joined(self, outputs: list[Tensor]) -> Tensor:
        """The outputs of the model from those of its networks."""
        sort = self.problem.sort
        if sort == "numbers":
            mean = torch.stack(outputs).mean(0)
            return mean if self.scaling is None else self.scaling.back(mean)
        if len(outputs) == 1:
            return outputs[0]
        if sort == "classes":
            return torch.stack([output.softmax(1) for output in outputs]).mean(0).clamp_min(_SMALLEST).log()
        return torch.stack([output.sigmoid() for output in outputs]).mean(0).clamp(_SMALLEST, 1 - _SMALLEST).logit()
