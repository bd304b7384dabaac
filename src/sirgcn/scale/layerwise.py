r"""Exact inference over all nodes, layer by layer and block by block, in a bounded working set.

A layer is computed for all nodes before the next one begins. So every node is computed once per layer, however many
neighbourhoods it lies in, and the output equals that of one pass over the whole graph.

The messages of a `SIRConv` act on each channel by itself. So the keys of all nodes need not fit into memory: they are
kept in slices of a few channels, and one slice after the other is summed over all neighbourhoods.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from sirgcn.nn import SIRNet
from sirgcn.nn.blocks import Block
from sirgcn.nn.conv import SIRConv
from sirgcn.nn.propagate import needs_propagate
from sirgcn.ops import Neighbors, sir_aggregate
from sirgcn.ops.activation import Sigma
from sirgcn.ops.rows import Rows
from sirgcn.scale.budget import Budget, read_bytes
from sirgcn.scale.edgeblocks import EdgeBlock, EdgeBlocks
from sirgcn.scale.inputs import Inputs, inputs_of
from sirgcn.scale.rows import FileTable, Table, drop, new_table


@torch.no_grad()
def layerwise(
    net: SIRNet, data: Any, memory: int | str = "1GB", out: str | Path | None = None, scratch: str | Path | None = None
) -> Tensor:
    """The output of a network for all nodes of one graph, equal to one pass over the whole graph.

    The network must have a row of output for every node: no readout that pools, no virtual node, no random features,
    and no edge features that change from layer to layer.

    Args:
        net: the network; it is computed in eval mode.
        data: PyG's `Data`, `Graphs` of one graph, or a `DiskGraph`.
        memory: the working set besides the network and what `data` and the result hold in memory, in bytes or as a
            text such as `"4GB"`. A neighbourhood that needs more by itself still becomes a block.
        out: a `.npy` file for the output; the result is then a map of that file. None returns it in memory.
        scratch: a folder for what is kept between layers; None keeps it in memory, but for a `DiskGraph` in a
            temporary folder beside the graph.

    >>> from torch_geometric.data import Data
    >>> net = SIRNet.of(3, 8, 2, num_layers=2).eval()
    >>> path = Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    >>> torch.allclose(layerwise(net, path), net(path.x, path.edge_index), atol=1e-6)
    True
    """
    check_layerwise(net)
    budget = Budget(read_bytes(memory))
    inputs = inputs_of(data, net)
    with ExitStack() as stack:
        stack.enter_context(_evaluating(net))
        folder = _scratch(inputs, scratch, stack)
        state = _State(net, inputs, budget, folder)
        return _written(state, None if out is None else Path(out))


@contextmanager
def _evaluating(net: nn.Module) -> Iterator[None]:
    was = net.training
    net.eval()
    try:
        yield
    finally:
        net.train(was)


def _scratch(inputs: Inputs, scratch: str | Path | None, stack: ExitStack) -> Path | None:
    beside = inputs.folder if scratch is None else Path(scratch)
    if beside is None:
        return None
    beside.mkdir(parents=True, exist_ok=True)
    return Path(stack.enter_context(TemporaryDirectory(dir=beside, prefix="layerwise.")))


def check_layerwise(net: nn.Module) -> None:
    """Refuse a network whose output for a node depends on more than neighbourhoods."""
    if not isinstance(net, SIRNet):
        raise TypeError(f"net: expected a SIRNet, got {type(net).__name__}")
    refused = {
        "a readout that pools": net.pool is not None,
        "a virtual node": net.virtual_node is not None,
        "random features": net.random_features is not None,
        f"the convolution {net.conv.name}, which reads the whole graph": "batch" in net.conv.extra_inputs,
        "edge features that change": any(getattr(block, "edge_norm", None) is not None for block in net.blocks),
        "steps of its own": net.has_own_steps(),
    }
    for what, is_there in refused.items():
        if is_there:
            raise ValueError(f"net: layer-wise inference expects none, got {what}")


def _written(state: "_State", path: Path | None) -> Tensor:
    """The output of the last layer, in memory or in a `.npy` file, which appears when it is complete."""
    shape = (state.inputs.num_nodes, state.net.config.out_channels)
    if path is None:
        found = new_table(None, "out", shape, state.dtype)
        state.run(found)
        return found.whole()
    if path.suffix != ".npy":
        raise ValueError(f"out: expected a .npy file, got {path}")
    part = path.with_name(path.name + ".part")
    try:
        state.run(_npy_table(part, shape, state.dtype))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return torch.from_numpy(np.load(path, mmap_mode="c"))


def _npy_table(path: Path, shape: tuple[int, int], dtype: torch.dtype) -> FileTable:
    numpy_dtype = torch.empty(0, dtype=dtype).numpy().dtype
    header = {"descr": np.lib.format.dtype_to_descr(numpy_dtype), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        begin = file.tell()
        file.truncate(begin + shape[0] * shape[1] * dtype.itemsize)
    return FileTable(path, shape, dtype, begin)


@dataclass(eq=False)
class _State:
    """One pass over all layers."""

    net: SIRNet
    inputs: Inputs
    budget: Budget
    folder: Path | None

    def __post_init__(self) -> None:
        self.dtype = next(self.net.parameters()).dtype
        self.nodes = self.inputs.num_nodes
        config = self.net.config
        self.width = max(config.block.channels, config.block.channels * (1 + config.block.feed_forward), 1)
        self.rows = self.budget.rows_of(max(self.width, self.inputs.width), self.dtype)
        edges = self.inputs.in_edges()
        self.blocks = EdgeBlocks(edges, self.net.self_loops, self.budget.edges, self.budget.targets_of(self.width))
        self.count = 0

    def table(self, width: int) -> Table:
        """A new table with a row for every node."""
        self.count += 1
        return new_table(self.folder, f"{self.count}", (self.nodes, width), self.dtype)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Ranges of nodes for what acts on every row by itself."""
        return ((start, min(start + self.rows, self.nodes)) for start in range(0, self.nodes, self.rows))

    def run(self, out: Table) -> None:
        """All layers; the output is written into a table."""
        h = first = self._encoded()
        kept: list[Table] = []
        for block, feed_forward in zip(self.net.blocks, self.net.feed_forwards, strict=True):
            after = self._layer(cast(Block, block), feed_forward, h, first)
            if self.net.jk is None and h is not first:
                drop(h)
            kept.append(after)
            h = after
        nothing = torch.zeros(0, dtype=torch.int64)
        for start, stop in self.ranges():
            last = h.read(start, stop)
            if self.net.jk is not None:
                last = self.net.jk([table.read(start, stop) for table in kept])
            batch = nothing.new_zeros(stop - start)
            out.write(start, self.net._read_out(Rows(last), batch, 1, None))

    def _encoded(self) -> Table:
        """The input of the first block."""
        found: Table | None = None
        for start, stop in self.ranges():
            h = self.net._encoded_nodes(*self.inputs.read(start, stop))
            found = self.table(h.size(1)) if found is None else found
            found.write(start, h)
        assert found is not None
        return found

    def _layer(self, block: Block, feed_forward: nn.Module, h: Table, first: Table) -> Table:
        """The output of one block and of what follows it."""
        after = self.table(self.net.config.block.channels)
        # The keys of all nodes are projected once, unless the convolution has to see whole rows of both ends.
        is_direct = _acts_on_channels(block.conv) and not self.inputs.has_edge_inputs()
        found = self._by_channels(block, h) if is_direct else self._by_rows(block, h, first)
        for start, rows in found:
            after.write(start, feed_forward(rows))
        return after

    def _by_rows(self, block: Block, h: Table, first: Table) -> Iterator[tuple[int, Tensor]]:
        """The block on the nodes of an edge block and their sources, of which the former are kept."""
        for edges in self.blocks:
            nodes, graph = edges.alone()
            edge, weight = self.inputs.edges(self.net, graph, edges.edge)
            context = {"first": first.take(nodes)} if "first" in self.net.conv.extra_inputs else {}
            out = block(h.take(nodes), graph, edge, weight, **context)
            yield edges.start, out[: edges.stop - edges.start]

    def _by_channels(self, block: Block, h: Table) -> Iterator[tuple[int, Tensor]]:
        """The block from sums of messages, one slice of the hidden channels after the other."""
        conv = cast(SIRConv, block.conv)
        slices = self.budget.slices_of(conv.hidden_channels, self.nodes, self.dtype)
        keys = self._keys(block, h, slices)
        sums = []
        for columns, key in zip(slices[:-1], keys[:-1], strict=True):
            sums.append(self.table(columns.stop - columns.start))
            for edges, message in self._messages(block, h, columns, key):
                sums[-1].write(edges.start, message)
            drop(key)
        for edges, message in self._messages(block, h, slices[-1], keys[-1]):
            start, stop = edges.start, edges.stop
            own = h.read(start, stop)
            message = torch.cat([*(table.read(start, stop) for table in sums), message], 1)
            yield start, block.after(_finished(conv, message, block.before(own)), own)
        for table in (keys[-1], *sums):
            drop(table)

    def _keys(self, block: Block, h: Table, slices: list[slice]) -> list[Table]:
        tables = [self.table(columns.stop - columns.start) for columns in slices]
        for start, stop in self.ranges():
            key = cast(SIRConv, block.conv).lin_key(block.before(h.read(start, stop)))
            for table, columns in zip(tables, slices, strict=True):
                table.write(start, key[:, columns])
        return tables

    def _messages(self, block: Block, h: Table, columns: slice, table: Table) -> Iterator[tuple[EdgeBlock, Tensor]]:
        """The sums of messages of every edge block, for some of the hidden channels."""
        conv, key = cast(SIRConv, block.conv), table.whole()
        for edges in self.blocks:
            query = conv.lin_query(block.before(h.read(edges.start, edges.stop)))[:, columns]
            reduce, graph = _weighed(conv.reduction, edges, self.blocks)
            sigma = cast(Sigma, conv.activation).activation
            yield edges, sir_aggregate(query, key, graph, None, None, sigma, reduce, conv.backend)


def _weighed(reduction: str, edges: EdgeBlock, blocks: EdgeBlocks) -> tuple[str, Neighbors]:
    """A reduction and the edges of a block, with the degrees that the sources have in the whole graph."""
    graph = edges.from_all()
    if reduction not in ("sym", "sym_in"):
        return reduction, graph
    into = blocks.in_degree
    out = blocks.out_degree if reduction == "sym" else into
    return "sym", graph.sampled_from(into[edges.start : edges.stop], out)


def _finished(conv: SIRConv, message: Tensor, h: Tensor) -> Tensor:
    """The output of the convolution from its sums of messages: what it adds per node."""
    out: Tensor = conv.lin_relation(message)
    return out if conv.lin_residual is None else out + conv.lin_residual(h)


def _acts_on_channels(conv: nn.Module) -> bool:
    """Whether messages act on each channel by itself, and nothing but them reads neighbours."""
    return (
        type(conv) is SIRConv
        and conv.aggr != "max"
        and conv.message_network is None
        and conv.lin_value is None
        and conv.context is None
        and type(conv.activation) is Sigma
        and conv.flow == "source_to_target"
        and not conv.cached
        and not needs_propagate(conv, SIRConv)
    )
