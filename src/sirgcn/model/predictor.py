"""A trained model as one module: tensors with the names of PyG go in, outputs and probabilities come out."""

from typing import Any

import torch
from torch import Tensor, nn

from sirgcn.model.fitted import Model
from sirgcn.nn.convs import find_conv


class Predictor(nn.Module):
    """A model as a module of torch, with its ensemble, scaling and temperature inside.

    It gives a dictionary. For numbers as targets that is `numbers`, in the units of the targets. For classes and labels
    it is `logits` and `probabilities`, where the logits are already divided by the temperature.

    Args:
        model: the model.

    >>> from sirgcn.data import load
    >>> from sirgcn.model import Member, Problem, Scaling
    >>> from sirgcn.nn import NetConfig, build_net
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> config = NetConfig.of(2, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    >>> model = Model(Problem.of(task), (Member(config, build_net(config).eval()),), Scaling.of(task))
    >>> predictor = Predictor(model)
    >>> predictor.inputs
    ('x', 'edge_index', 'batch', 'batch_size')
    >>> batch = task.graphs.batch()
    >>> predictor(batch.x, batch.edge_index, batch=batch.batch, batch_size=10)["numbers"].shape
    torch.Size([10, 1])
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.networks = nn.ModuleList(member.network for member in model.members)
        self.temperature = temperature_of(model)
        self.inputs = inputs_of(model)
        self.eval()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        edge_label_index: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        pe: Tensor | None = None,
        edge_pe: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The outputs of nodes, edges or graphs; the arguments are those of `SIRNet`."""
        given: dict[str, Any] = {
            "edge_attr": edge_attr,
            "batch": batch,
            "batch_size": batch_size,
            "pe": pe,
            "edge_pe": edge_pe,
        }
        if self.model.problem.level == "edge":
            given["edge_label_index"] = edge_label_index
        return self.finished(self.model.joined([network(x, edge_index, **given) for network in self.networks]))

    def finished(self, outputs: Tensor) -> dict[str, Tensor]:
        """What a user reads, from the outputs of the model."""
        sort = self.model.problem.sort
        if sort == "numbers":
            return {"numbers": outputs}
        logits = outputs / self.temperature
        return {"logits": logits, "probabilities": logits.softmax(1) if sort == "classes" else logits.sigmoid()}


def temperature_of(model: Model) -> float:
    """The temperature that divides the logits of a model; 1 for a model without calibration."""
    found = getattr(getattr(model, "calibration", None), "temperature", None)
    return 1.0 if found is None else float(found)


def inputs_of(model: Model) -> tuple[str, ...]:
    """The names of the tensors that a model reads, in the order of `Predictor.forward`."""
    schema = model.problem.schema
    needed = {
        "x": True,
        "edge_index": True,
        "edge_attr": bool(schema.edge_features or schema.edge_vocabularies),
        "edge_label_index": model.problem.level == "edge",
        "batch": _needs_batch(model),
        "batch_size": _needs_batch(model),
        "pe": schema.encodings > 0,
        "edge_pe": schema.edge_encodings > 0,
    }
    return tuple(name for name, is_needed in needed.items() if is_needed)


def _needs_batch(model: Model) -> bool:
    """Whether an output depends on which nodes belong to one graph."""
    configs = [member.config for member in model.members]
    return any(
        config.readout.pool is not None
        or config.context.virtual_node
        or "batch" in find_conv(config.conv.name).extra_inputs
        for config in configs
    )


def example_inputs(model: Model, nodes: int = 9, edges: int = 12, graphs: int = 3, seed: int = 0) -> dict[str, Any]:
    """Random inputs of the right types and widths, with which a program is traced and tried.

    Args:
        model: the model.
        nodes: how many nodes; they are shared evenly among the graphs.
        edges: how many edges.
        graphs: how many graphs.
        seed: of the random numbers.

    >>> from sirgcn.data import load
    >>> from sirgcn.model import Member, Problem
    >>> from sirgcn.nn import NetConfig, build_net
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> config = NetConfig.of(2, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    >>> example_inputs(Model(Problem.of(task), (Member(config, build_net(config)),)))["batch_size"]
    3
    """
    schema, generator = model.problem.schema, torch.Generator().manual_seed(seed)
    made = {
        "x": _columns(nodes, schema.features, schema.vocabularies, generator),
        "edge_index": torch.randint(0, nodes, (2, edges), generator=generator),
        "edge_attr": _columns(edges, schema.edge_features, schema.edge_vocabularies, generator),
        "edge_label_index": torch.randint(0, nodes, (2, 5), generator=generator),
        "batch": torch.arange(nodes) * graphs // nodes,
        "batch_size": graphs,
        "pe": torch.rand(nodes, schema.encodings, generator=generator),
        "edge_pe": torch.rand(edges, schema.edge_encodings, generator=generator),
    }
    return {name: made[name] for name in inputs_of(model)}


def _columns(rows: int, width: int, vocabularies: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if not vocabularies:
        return torch.randn(rows, width, generator=generator)
    columns = [torch.randint(0, size, (rows,), generator=generator) for size in vocabularies]
    return torch.stack(columns, dim=1)
