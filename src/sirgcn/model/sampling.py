"""Training on samples: what takes the place of whole passes over a graph that are too large for the memory."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from sirgcn.data.graphs import Graphs
from sirgcn.data.task import Task
from sirgcn.engine.controls import rows_of
from sirgcn.model.defaults import Candidate
from sirgcn.model.fitted import Model
from sirgcn.model.resources import (
    BACKWARD,
    BASE,
    Memory,
    bytes_of,
    check_memory,
    free_memory,
    kept_by_a_pass,
    memory_of_weights,
)
from sirgcn.model.seen import SeenTask
from sirgcn.nn import build_net
from sirgcn.scale import SampledTask, WholeGraph
from sirgcn.scale.budget import read_bytes
from sirgcn.scale.layerwise import check_layerwise
from sirgcn.strict import ConfigError

LAYERS = 3
"""With more layers than this, a neighbourhood is most of a graph, and samples of it save nothing."""

SEEDS = 1024
"""The most labelled nodes of a batch."""

# A batch of fewer seeds has too noisy a gradient.
_LEAST_SEEDS = 16
# How many seeds have the batch that is measured.
_MEASURED = 128
# The working set of an evaluation has at least so many bytes.
_LEAST_SET = 16 << 20
# The edges, grouped for the sampler and for an evaluation: 16 bytes for each.
_GROUPED = 2 * 16
# About how many steps a training makes, and the fewest epochs.
_STEPS, _LEAST_EPOCHS = 600, 10
_ADVICE = "take a smaller width or fewer layers, give it more memory, close other programs, or use a larger machine"


class SampledSeen(SeenTask, SampledTask):
    """A task as a fit sees it, whose training batches are sampled."""


@dataclass(frozen=True)
class OnSamples:
    """A training on samples that fits into the memory.

    Args:
        candidate: the settings, with fan-outs and a size of batches.
        memory: what the training takes.
        working_set: the bytes for an evaluation of the whole graph, layer by layer.
    """

    candidate: Candidate
    memory: Memory
    working_set: int

    @property
    def told(self) -> str:
        """What the training is, in words."""
        one = self.candidate
        return (
            f"{one.name}: trained on samples of {', '.join(map(str, one.fanouts))} neighbours per hop, "
            f"{one.training.batch_size} nodes at a time, and evaluated on the whole graph layer by layer"
        )


def why_not(one: Candidate, task: Task) -> str | None:
    """Why a candidate cannot be trained on samples of a task; None if it can.

    >>> from sirgcn.data import load
    >>> from sirgcn.model.defaults import candidates
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> why_not(candidates(task)[0], task)
    'samples are drawn around labelled nodes of one graph, and this task has labels of many graphs'
    """
    if task.over != "nodes":
        has = "edges" if task.over == "edges" else "many graphs"
        return f"samples are drawn around labelled nodes of one graph, and this task has labels of {has}"
    if task.unseen:
        return "samples are drawn from the graph of the validation, and this training sees a part of it (inductive)"
    with torch.random.fork_rng(devices=[]):
        try:
            check_layerwise(build_net(one.config))
        except (TypeError, ValueError) as error:
            return str(error)
    return None


def fanouts_of(layers: int) -> tuple[int, ...]:
    """How many neighbours are drawn in each hop.

    >>> fanouts_of(2), fanouts_of(5)
    ((10, 5), (10, 5, 5, 2, 2))
    """
    return ((10, 5, 5) + (2,) * layers)[:layers]


def sampled(task: Task, one: Candidate) -> SampledSeen:
    """The task of a candidate that is trained on samples."""
    found = SampledSeen.of(one.preparation.applied(task), one.fanouts)
    assert isinstance(found, SampledSeen)
    return found


def on_samples(
    one: Candidate, task: Task, limit: int, change: Callable[[Candidate], Candidate], what: str = "free"
) -> OnSamples:
    """The training of a candidate on samples within a limit of memory.

    Args:
        one: the candidate.
        task: the task, as a fit sees it.
        limit: the bytes that the process may take.
        change: makes the changes that the caller asked for.
        what: what the memory is called, for the error.

    Raises:
        TooLarge: the smallest batch does not fit either.
    """
    shallow = one
    if one.config.block.layers > LAYERS:
        shallow = one.with_changes({"num_layers": LAYERS}, {})
    shallow = change(shallow)
    shallow = replace(shallow, fanouts=fanouts_of(shallow.config.block.layers))
    drawn = sampled(task, shallow)
    with torch.random.fork_rng(devices=[]):
        network = build_net(shallow.config)
    weights, rows = memory_of_weights(network), len(rows_of(task, "train"))
    data, rest = _bytes(task.graphs), limit - BASE - _bytes(task.graphs) - weights
    measured = min(rows, _MEASURED)
    batch = next(drawn.batches("train", measured, generator=torch.Generator().manual_seed(0)))
    per_seed = BACKWARD * kept_by_a_pass(deepcopy(network).train(), batch, "node") / measured
    size = min(SEEDS, 1 << max(0, int(rest / per_seed)).bit_length() >> 1)
    needed = Memory(data, weights, max(_LEAST_SET, int(per_seed * max(size, min(_LEAST_SEEDS, rows)))))
    check_memory(needed, limit, _ADVICE, what)
    training = {"batch_size": size, **_shortened(shallow, -(-rows // size))}
    found = change(shallow.with_changes({}, training))
    return OnSamples(found, needed, max(_LEAST_SET, rest // 2))


def _bytes(graphs: Graphs) -> int:
    return bytes_of(graphs) + _GROUPED * graphs.num_edges


def bounded(model: Model, graphs: Graphs, memory: int | str | None, scratch: Path) -> Model:
    """A model that computes a graph layer by layer within the memory that the process may take.

    Args:
        model: the model.
        graphs: what it will compute.
        memory: the bytes, or a text such as `"4GB"`; None is what is free.
        scratch: a folder for what is kept between layers.

    Raises:
        TooLarge: the graph itself does not fit.
        ConfigError: the outputs of this model are not those of the nodes of one graph.

    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> from sirgcn.model.fitting import FitSettings, fit
    >>> nodes = pd.DataFrame({"id": range(20), "size": [1.0, 2.0] * 10, "label": ["x", "y"] * 10})
    >>> edges = pd.DataFrame({"source": range(18), "target": range(2, 20)})
    >>> task = load_tables(nodes, edges)
    >>> model = fit(task, FitSettings("fast"))
    >>> found = bounded(model, task.graphs, "1GB", Path("/tmp")).outputs(task.graphs)
    >>> torch.allclose(found, model.outputs(task.graphs), atol=1e-5)
    True
    """
    if graphs.num_graphs > 1 or model.problem.level != "node":
        raise ConfigError(
            "memory: expected a model for the nodes of one graph, which is computed layer by layer; predictions of "
            "molecules and of many graphs are made in pieces anyway, and those of edges by one pass: leave it out"
        )
    for member in model.members:
        check_layerwise(member.network)
    limit, what = (free_memory(), "free") if memory is None else (read_bytes(memory), "given")
    needed = Memory(_bytes(graphs), sum(memory_of_weights(one.network) for one in model.members), _LEAST_SET)
    check_memory(needed, limit, "give it more memory, or use a larger machine", what)
    rest = 4 * _LEAST_SET if limit is None else limit - needed.total
    return replace(model, whole=WholeGraph(max(_LEAST_SET, rest // 2), scratch))


def _shortened(one: Candidate, batches: int) -> dict[str, int]:
    """The epochs of a training that makes so many steps in each of them."""
    training = one.training
    epochs = min(training.epochs, max(_LEAST_EPOCHS, -(-_STEPS // batches)))
    found = {"epochs": epochs, "warmup": min(training.warmup, epochs // 5)}
    if training.early_stop is not None:
        found["early_stop"] = max(5, min(training.early_stop, epochs // 3))
    return found
