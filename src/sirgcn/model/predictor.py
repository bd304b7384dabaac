"""A trained model as one module: tensors with the names of PyG go in, outputs and probabilities come out."""

from typing import Any

import torch
from torch import Tensor, nn

from sirgcn.model.fitted import Model
from sirgcn.model.preparation import Preparation
from sirgcn.nn.convs import find_conv
from sirgcn.strict import ConfigError


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
        self.temperatures = temperatures_of(model)
        self.inputs = inputs_of(model)
        self.eval()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        edge_label_index: Tensor | None = None,
        edge_label_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        pe: Tensor | None = None,
        edge_pe: Tensor | None = None,
        graph_attr: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The outputs of nodes, edges or graphs.

        Args:
            x: node features or categories.
            edge_index: the edges, `[2, |E|]`.
            edge_attr: edge features or categories.
            edge_label_index: the edges that are predicted, `[2, L]`, of a model of edges.
            edge_label_attr: the features of the edges that are predicted.
            batch: the graph of each node.
            batch_size: the number of graphs.
            pe: the positional encoding of nodes; the walks of PyG's `AddRandomWalkPE` where the model has them.
            edge_pe: the same of edges.
            graph_attr: the features of whole graphs.
        """
        given: dict[str, Any] = {"edge_attr": edge_attr, "pe": pe, "edge_pe": edge_pe}
        if graph_attr is not None:
            given["graph_attr"] = graph_attr
        if self.model.problem.level == "edge":
            given |= {"edge_label_index": edge_label_index, "edge_label_attr": edge_label_attr}
        outputs = []
        for network, member in zip(self.networks, self.model.members, strict=True):
            own = {"x": x, "edge_index": edge_index, **_prepared(x, given, member.preparation)}
            outputs.append(network(**own, batch=batch, batch_size=batch_size))
        return self.finished(self.model.joined(outputs))

    def finished(self, outputs: Tensor) -> dict[str, Tensor]:
        """What a user reads, from the outputs of the model."""
        sort = self.model.problem.sort
        if sort == "numbers":
            return {"numbers": outputs}
        logits = outputs / outputs.new_tensor(self.temperatures)
        return {"logits": logits, "probabilities": logits.softmax(1) if sort == "classes" else logits.sigmoid()}


def _prepared(x: Tensor, given: dict[str, Any], step: Preparation) -> dict[str, Any]:
    """What one network reads of the inputs, beside the edges and the batch."""
    own = dict(given)
    if step.normalise:
        total = x.abs().sum(1, keepdim=True)
        own["x"] = x / torch.where(total > 0, total, torch.ones_like(total))
    if step.walks:
        # A walk of fewer steps is the beginning of a longer one.
        own["pe"] = given["pe"][:, : step.walks]
    if step.edge_walks:
        own["edge_pe"] = given["edge_pe"][:, : step.walks]
    if not step.edges:
        own |= {"edge_attr": None, "edge_pe": None}
        if "edge_label_attr" in own:
            own["edge_label_attr"] = None
    return own


def temperatures_of(model: Model) -> tuple[float, ...]:
    """The temperatures that divide the logits of a model: one for classes, or one for each label."""
    if model.problem.sort == "numbers":
        return ()
    return (1.0,) if model.calibration is None else model.calibration.temperatures


def inputs_of(model: Model) -> tuple[str, ...]:
    """The names of the tensors that a model reads, in the order of `Predictor.forward`."""
    schema, is_of_edges = model.problem.schema, model.problem.level == "edge"
    has_edges = bool(schema.edge_features or schema.edge_vocabularies)
    has_edges = has_edges and any(member.preparation.edges for member in model.members)
    needed = {
        "x": True,
        "edge_index": True,
        "edge_attr": has_edges,
        "edge_label_index": is_of_edges,
        "edge_label_attr": is_of_edges and has_edges,
        "batch": _needs_batch(model),
        "batch_size": _needs_batch(model),
        "pe": encodings_of(model)[0] > 0,
        "edge_pe": encodings_of(model)[1] > 0,
        "graph_attr": schema.graph_features > 0,
    }
    return tuple(name for name, is_needed in needed.items() if is_needed)


def encodings_of(model: Model) -> tuple[int, int]:
    """The widths of the encodings of nodes and edges that a program of the model is given."""
    schema, steps = model.problem.schema, [member.preparation for member in model.members]
    walks = max(step.walks for step in steps)
    if walks and schema.encodings and not all(step.walks for step in steps):
        raise ConfigError("walks: some networks read walks and others the encoding of the data, but pe can be one only")
    edge_walks = max(step.walks * step.edge_walks for step in steps)
    return walks or schema.encodings, edge_walks or schema.edge_encodings


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
    encodings, edge_encodings = encodings_of(model)
    of_edges = schema.edge_features, schema.edge_vocabularies, generator
    made = {
        "x": _columns(nodes, schema.features, schema.vocabularies, generator),
        "edge_index": torch.randint(0, nodes, (2, edges), generator=generator),
        "edge_attr": _columns(edges, *of_edges),
        "edge_label_index": torch.randint(0, nodes, (2, 5), generator=generator),
        "edge_label_attr": _columns(5, *of_edges),
        "batch": torch.arange(nodes) * graphs // nodes,
        "batch_size": graphs,
        "pe": torch.rand(nodes, encodings, generator=generator),
        "edge_pe": torch.rand(edges, edge_encodings, generator=generator),
        "graph_attr": torch.randn(graphs, schema.graph_features, generator=generator),
    }
    return {name: made[name] for name in inputs_of(model)}


def _columns(rows: int, width: int, vocabularies: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if not vocabularies:
        return torch.randn(rows, width, generator=generator)
    columns = [torch.randint(0, size, (rows,), generator=generator) for size in vocabularies]
    return torch.stack(columns, dim=1)
