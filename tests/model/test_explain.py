"""Explanations: exact, named as the tables name things, and better than chance."""

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
import torch
from torch import Tensor

from sirgcn.data import load_tables
from sirgcn.data.graphs import Graphs
from sirgcn.data.schema import Schema
from sirgcn.data.task import Task
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.loop import Trainer
from sirgcn.model import Member, Model, Preparation, Problem
from sirgcn.model import effects as effects_module
from sirgcn.model.effects import Links, link_effects
from sirgcn.model.explain import deletion_test, explain
from sirgcn.model.messages import messages_of
from sirgcn.model.naming import names_of
from sirgcn.model.removal import Change, neighbourhood_of, outputs_after
from sirgcn.model.scoring import Score, score_of
from sirgcn.nn import NetConfig, build_net
from tests.model.small import small_model, tables, with_statistics

EDGES = Schema(features=8, edge_features=4, outputs=3)
WALKS = Schema(features=8, encodings=3, outputs=3)


def graphs_for(model: Model, nodes: int = 30, edges: int = 45, seed: int = 0) -> Graphs:
    """A directed graph with the inputs of a model, so sparse that few layers do not see all of it."""
    generator, schema = torch.Generator().manual_seed(seed), model.problem.schema
    level = model.problem.level
    x = torch.randn(nodes, schema.features, generator=generator)
    edge_attr = torch.randn(edges, schema.edge_features, generator=generator) if schema.edge_features else None
    edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
    pointers = {}
    if level == "graph":
        edge_index = edge_index.remainder(nodes // 3) + torch.arange(3).repeat_interleave(edges // 3) * (nodes // 3)
        pointers = {"node_ptr": torch.arange(4) * (nodes // 3), "edge_ptr": torch.arange(4) * (edges // 3)}
    y = torch.zeros({"node": nodes, "edge": edges, "graph": 3}[level], dtype=torch.int64)
    of_graphs = torch.randn(3, schema.graph_features, generator=generator) if schema.graph_features else None
    return Graphs(x, edge_index, y, level, edge_attr, **pointers, graph_attr=of_graphs)


MODELS: dict[str, dict[str, Any]] = {
    **{f"aggregator {name}": {"aggr": name} for name in ("sum", "mean", "sym", "sym_in", "max")},
    "context": {"context": "mean", "gated": True},
    "gcn": {"conv": "gcn"},
    "pna": {"conv": "pna"},
    "virtual node": {"virtual_node": True, "encoder": "linear"},
    "edge features": {"schema": EDGES},
    "edges": {"level": "edge", "schema": EDGES},
    "graphs": {"level": "graph", "networks": 2},
    "features of graphs": {"level": "graph", "schema": Schema(features=8, graph_features=5, outputs=3)},
}


def model_of(options: dict[str, Any]) -> Model:
    return small_model(**options)


def walking_model() -> Model:
    """A model whose network reads random walks, which leave the neighbourhood."""
    model = small_model(schema=WALKS, encoder="linear", positional="random_walk")
    member = model.members[0]
    problem = replace(model.problem, schema=Schema(features=8, outputs=3))
    return Model(problem, (Member(member.config, member.network, Preparation(walks=3, normalise=True)),))


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_the_neighbourhood_gives_the_output_of_the_whole_graph(options: dict[str, Any]) -> None:
    model = model_of(options)
    graphs = graphs_for(model)
    expected = model.outputs(graphs)
    for row in range(0, len(expected), 4):
        near = neighbourhood_of(model, graphs, row)
        found = outputs_after(model, near, [Change(), Change()])
        torch.testing.assert_close(found, expected[row].expand(2, -1), rtol=1e-4, atol=1e-5)


def test_the_neighbourhood_of_a_network_with_walks_gives_the_output_of_the_whole_graph() -> None:
    model = walking_model()
    graphs = graphs_for(model)
    for row in (0, 7, 19):
        found = outputs_after(model, neighbourhood_of(model, graphs, row), [Change()])
        torch.testing.assert_close(found[0], model.outputs(graphs)[row], rtol=1e-4, atol=1e-5)


def test_a_small_neighbourhood_is_not_the_whole_graph() -> None:
    model = small_model()
    near = neighbourhood_of(model, graphs_for(model, 200, 250), 0)
    assert near.graphs.num_nodes < 100


def without(graphs: Graphs, edges: list[int]) -> Graphs:
    """The graphs without some edges."""
    kept = torch.ones(graphs.num_edges, dtype=torch.bool)
    kept[edges] = False
    y = graphs.y[kept] if graphs.level == "edge" else graphs.y
    edge_attr = None if graphs.edge_attr is None else graphs.edge_attr[kept]
    pointers: dict[str, Any] = {}
    if graphs.edge_ptr is not None:
        pointers["edge_ptr"] = torch.cat([torch.zeros(1, dtype=torch.int64), kept.cumsum(0)])[graphs.edge_ptr]
    return replace(graphs, edge_index=graphs.edge_index[:, kept], y=y, edge_attr=edge_attr, **pointers)


@pytest.mark.parametrize("options", [MODELS[name] for name in MODELS if name != "edges"])
def test_the_effect_of_an_edge_is_that_of_the_model_without_it(options: dict[str, Any]) -> None:
    model = model_of(options)
    graphs = graphs_for(model)
    row = 1 if graphs.level == "graph" else 4
    near = neighbourhood_of(model, graphs, row)
    score = score_of(model, outputs_after(model, near, [Change()]), None)
    links = Links(near, directed=True)
    found = link_effects(score, near, links)
    before = score(model.outputs(graphs)[[row]])
    for place, effect in zip(found.places, found.effect, strict=True):
        gone = near.edges[list(links[place].edges)].tolist()
        after = score(model.outputs(without(graphs, gone))[[row]])
        assert effect == pytest.approx(float(before - after), abs=1e-4)


def test_edges_that_have_no_link_do_not_matter() -> None:
    model = small_model()
    graphs = graphs_for(model, 60, 60)
    near = neighbourhood_of(model, graphs, 3)
    known = {int(near.edges[edge]) for link in Links(near, directed=True) for edge in link.edges}
    score = Score(model, 0, "class 0")
    before = score(model.outputs(graphs)[[3]])
    for edge in sorted(set(range(60)) - known):
        after = score(model.outputs(without(graphs, [edge]))[[3]])
        torch.testing.assert_close(after, before)


def test_the_two_directions_of_an_undirected_edge_are_one_link() -> None:
    model = small_model()
    graphs = graphs_for(model)
    both = torch.cat([graphs.edge_index, graphs.edge_index.flip(0)], dim=1)
    graphs = replace(graphs, edge_index=both)
    near = neighbourhood_of(model, graphs, 4)
    links = Links(near, directed=False)
    pairs = [frozenset((link.source, link.target)) for link in links]
    assert len(set(pairs)) == len(pairs)
    for link in links:
        ends = {frozenset(near.graphs.edge_index[:, edge].tolist()) for edge in link.edges}
        assert ends == {frozenset((link.source, link.target))}
        assert near.hops[link.target] <= near.hops[link.source]
    hops = [int(near.hops[link.target]) for link in links]
    assert hops == sorted(hops)


@pytest.mark.parametrize("aggr", ["sum", "mean", "sym"])
def test_the_derivative_points_to_the_edges_with_the_strongest_effects(
    aggr: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(aggr=aggr)
    graphs = graphs_for(model, 60, 400)
    near = neighbourhood_of(model, graphs, 4)
    score, links = Score(model, 0, "class 0"), Links(near, directed=True)
    exact = link_effects(score, near, links)
    monkeypatch.setattr(effects_module, "_MOST_EDGES", 0)
    chosen = link_effects(score, near, links)
    assert len(chosen.places) == 24 < len(exact.places)
    ranked = sorted(exact.places, key=lambda place: -abs(exact.effect[place]))
    assert len(set(ranked[:10]) & set(chosen.places)) >= 6


def test_a_network_without_weights_of_edges_tries_the_nearest_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(aggr="max")
    near = neighbourhood_of(model, graphs_for(model, 60, 400), 4)
    monkeypatch.setattr(effects_module, "_MOST_EDGES", 0)
    links = Links(near, directed=True)
    chosen = link_effects(Score(model, 0, "class 0"), near, links)
    direct = [place for place in range(len(links)) if near.hops[links[place].target] == 0]
    assert set(direct) <= set(chosen.places)


@pytest.mark.parametrize(
    "options", [{"gated": True}, {"context": "sum"}, {"schema": EDGES}, {"sigma_layers": 1}], ids=str
)
def test_the_messages_of_a_node_add_up_to_the_output_of_its_layer(options: dict[str, Any]) -> None:
    model = small_model(**options)
    graphs = graphs_for(model)
    row = int(graphs.edge_index[1].mode().values)
    near = neighbourhood_of(model, graphs, row)
    edges = (near.graphs.edge_index[1] == near.ends[0]).nonzero().squeeze(1).tolist()
    network: Any = model.members[0].network
    conv = network.blocks[1].conv
    seen: list[Tensor] = []
    handle = conv.register_forward_hook(lambda *found: seen.append(found[2]))
    model.outputs(graphs)
    handle.remove()
    messages = messages_of(model, near, edges)
    assert messages is not None
    assert set(messages.layer) == {2}
    total = torch.tensor(messages.vectors).sum(0) + conv.lin_relation.bias
    torch.testing.assert_close(total, seen[0][row], rtol=1e-4, atol=1e-5)


def test_a_message_that_does_not_read_its_receiver_has_no_contextual_part() -> None:
    model = small_model(gated=True)
    near = neighbourhood_of(model, graphs_for(model), 4)
    edges = list(range(near.graphs.num_edges))
    found = messages_of(model, near, edges)
    assert found is not None
    assert max(found.contextual) > 0.01
    network: Any = model.members[0].network
    for block in network.blocks:
        torch.nn.init.zeros_(block.conv.lin_query.weight)
    plain = messages_of(model, near, edges)
    assert plain is not None
    assert max(plain.contextual) == 0
    assert min(plain.norm) > 0


def test_layers_without_contextual_messages_tell_none() -> None:
    model = small_model(conv="gcn")
    found = explain(model, graphs_for(model), 4)
    assert {edge.message_norm for edge in found.edges} == {None}
    assert "masks" in found.notes[0]


# A trained model


def trained(task: Task, epochs: int = 60, **options: Any) -> Model:
    """A model of a task, trained for a short time."""
    torch.manual_seed(0)
    schema = task.schema
    given = schema.vocabularies or schema.features
    config = NetConfig.of(given, 16, schema.outputs, options.pop("num_layers", 2), **options)
    network = build_net(config)
    Trainer(network, task, TrainConfig(epochs=epochs, lr=1e-2), seed=0).run()
    preprocessing = task.details["preprocessing"]
    return Model(Problem.of(task), (Member(config, network.eval()),), None, preprocessing)


@pytest.fixture(scope="module")
def votes() -> tuple[Model, Task]:
    """A model of nodes whose label is the colour of most neighbours."""
    task = load_tables(**tables(120))
    return trained(task, encoder="embedding" if task.schema.vocabularies else "none", aggr="sum"), task


def test_removing_the_named_edges_changes_a_prediction_more_than_removing_random_ones(
    votes: tuple[Model, Task],
) -> None:
    model, task = votes
    found = [deletion_test(model, task, f"A{row:03d}") for row in range(0, 120, 8)]
    tests = [test for test in found if test is not None]
    assert len(tests) >= 14
    assert sum(test.passed for test in tests) == len(tests)
    assert sum(test.share for test in tests) / len(tests) > 0.95
    named, random = (sum(values) for values in zip(*((test.change, test.random_mean) for test in tests), strict=True))
    assert named > 3 * random


def test_the_colour_of_the_neighbours_moved_the_prediction(votes: tuple[Model, Task]) -> None:
    model, task = votes
    strongest = [explain(model, task, f"A{row:03d}", masks=False).columns[0] for row in range(0, 120, 12)]
    assert sum((column.column, column.of) == ("colour", "neighbours") for column in strongest) >= 7


def test_direct_neighbours_come_before_distant_ones(votes: tuple[Model, Task]) -> None:
    model, task = votes
    first = [explain(model, task, f"A{row:03d}", masks=False).edges[0] for row in range(0, 120, 12)]
    assert sum(edge.hops == 0 for edge in first) >= 9


def test_neighbours_are_for_the_prediction_where_they_have_its_colour(votes: tuple[Model, Task]) -> None:
    model, task = votes
    colours = dict(zip(tables(120)["nodes"]["id"], tables(120)["nodes"]["colour"], strict=True))
    right = []
    for row in range(0, 120, 12):
        found = explain(model, task, f"A{row:03d}", "yes", masks=False)
        direct = [edge for edge in found.edges if edge.hops == 0 and abs(edge.effect) > 0.3]
        right += [(edge.effect > 0) == (colours[edge.source] == "blue") for edge in direct]
    assert len(right) > 20
    assert sum(right) / len(right) > 0.85


# What is told


def test_an_explanation_names_things_as_the_tables_do(votes: tuple[Model, Task]) -> None:
    model, task = votes
    found = explain(model, task, "A017")
    given = tables(120)
    assert found.row == "A017"
    assert found.target in ("yes", "no")
    pairs = {frozenset(pair) for pair in given["edges"].itertuples(index=False, name=None)}
    assert {frozenset((edge.source, edge.target)) for edge in found.edges} <= pairs
    assert {edge.target for edge in found.edges if edge.hops == 0} == {"A017"}
    own = {column.column: column.value for column in found.columns if column.of == "this row"}
    row = given["nodes"].set_index("id").loc["A017"]
    assert own["colour"] == row["colour"]
    assert float(own["size"]) == pytest.approx(row["size"], rel=1e-3)
    assert all(edge.mask is not None and 0 <= edge.mask <= 1 for edge in found.edges)
    assert all(edge.message_norm is not None and edge.layer in (1, 2) for edge in found.edges)


def test_effects_come_strongest_first_and_as_many_as_asked(votes: tuple[Model, Task]) -> None:
    model, task = votes
    found = explain(model, task, "A017", most=4, masks=False)
    sizes = [abs(edge.effect) for edge in found.edges]
    assert len(sizes) == 4
    assert sizes == sorted(sizes, reverse=True)


def test_the_other_class_has_the_opposite_effects(votes: tuple[Model, Task]) -> None:
    model, task = votes
    yes, no = (explain(model, task, "A017", name, masks=False) for name in ("yes", "no"))
    assert yes.prediction + no.prediction == pytest.approx(1, abs=1e-5)
    effects = {(edge.source, edge.target): edge.effect for edge in no.edges}
    assert all(effects[edge.source, edge.target] == pytest.approx(-edge.effect, abs=1e-4) for edge in yes.edges[:5])


def test_an_explanation_repeats_and_leaves_the_model_and_the_generator_as_they_were(votes: tuple[Model, Task]) -> None:
    model, task = votes
    before = {name: tensor.clone() for name, tensor in model.members[0].network.state_dict().items()}
    needed = [weight.requires_grad for weight in model.members[0].network.parameters()]
    state = torch.get_rng_state()
    first = explain(model, task, "A017")
    assert torch.equal(torch.get_rng_state(), state)
    assert explain(model, task, "A017").to_json() == first.to_json()
    after = model.members[0].network.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert [weight.requires_grad for weight in model.members[0].network.parameters()] == needed
    assert all(weight.grad is None for weight in model.members[0].network.parameters())


def test_an_explanation_is_a_table_json_a_drawing_and_a_page(votes: tuple[Model, Task]) -> None:
    model, task = votes
    found = explain(model, task, "A017")
    plain = json.loads(found.to_json())
    assert [edge["source"] for edge in plain["edges"]] == list(found.to_frame("edges")["source"])
    assert list(found.to_frame("columns")["column"]) == [column["column"] for column in plain["columns"]]
    assert plain["deletion"]["text"] in str(found)
    svg = ElementTree.fromstring(found.to_svg())
    texts = ["".join(element.itertext()) for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"A017", found.edges[0].source} <= set(texts)
    assert found.edges[0].source in (svg.findtext("{http://www.w3.org/2000/svg}desc") or "")
    page = found.to_html()
    assert found.to_svg() in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_names_cannot_break_a_drawing_or_a_page(votes: tuple[Model, Task]) -> None:
    model, _ = votes
    given = tables(120)
    evil = "<script>alert('A&B')</script>"
    frames: dict[str, Any] = {name: frame.replace("A017", evil) for name, frame in given.items()}
    found = explain(model, load_tables(**frames), evil, masks=False)
    ElementTree.fromstring(found.to_svg())
    assert "<script" not in found.to_html()


def test_an_unknown_row_is_refused_with_the_nearest_ids(votes: tuple[Model, Task]) -> None:
    model, task = votes
    with pytest.raises(ValueError, match=r"expected the id of a node, got 'a01'; the nearest ids are A010, A011, A012"):
        explain(model, task, "a01")
    with pytest.raises(ValueError, match="did you mean yes"):
        explain(model, task, "A017", "yess")


def test_rows_with_the_same_id_are_asked_for_by_number() -> None:
    model = small_model()
    graphs, names = names_of(graphs_for(model))
    double = replace(names, rows={"A": [0, 4]})
    with pytest.raises(ValueError, match="2 rows are named 'A'"):
        double.find("node", "A", 30)
    with pytest.raises(ValueError, match="from 0 to 29, got 30"):
        names.find("node", 30, graphs.num_nodes)


def test_a_node_without_edges_is_explained_by_its_columns() -> None:
    model = small_model()
    graphs = graphs_for(model, 30, 12)
    alone = next(iter(set(range(30)) - set(graphs.edge_index.flatten().tolist())))
    found = explain(model, graphs, alone)
    assert found.edges == ()
    assert found.deletion is None
    assert found.columns
    ElementTree.fromstring(found.to_svg())


def test_an_edge_is_explained_by_both_of_its_ends() -> None:
    model = small_model("edge", schema=EDGES)
    graphs = graphs_for(model)
    v, u = graphs.edge_index[:, 5].tolist()
    found = explain(model, graphs, f"{v}->{u}")
    assert found.row == f"{v}->{u}"
    assert {"source", "target", "edges"} <= {column.of for column in found.columns}
    assert found.drawing is not None
    assert sum(node.is_explained for node in found.drawing.nodes) == 2


def test_numbers_are_explained_in_their_units() -> None:
    model = small_model("graph", "numbers", Schema(features=8, outputs=2), networks=2)
    graphs = graphs_for(model)
    found = explain(model, graphs, 1, "target 1", masks=False)
    assert found.prediction == pytest.approx(float(model.outputs(graphs)[1, 1]), abs=1e-4)
    assert found.unit == "target 1"
    for edge in found.edges:
        assert edge.effect == pytest.approx(found.prediction - edge.without, abs=1e-4)


def test_columns_of_a_graph_are_explained_too() -> None:
    model = model_of(MODELS["features of graphs"])
    graphs = graphs_for(model)
    assert graphs.graph_attr is not None
    found = explain(model, graphs, 1, masks=False)
    own = next(column for column in found.columns if column.of == "this row")
    number = int(own.column.removeprefix("graph[").removesuffix("]"))
    other = graphs.graph_attr.clone()
    other[1, number] = other[:, number].mean()
    changed = model.outputs(replace(graphs, graph_attr=other))[1].softmax(0)
    assert own.without == pytest.approx(float(changed[model.problem.classes.index(found.target)]), abs=1e-5)


def test_columns_are_replaced_by_their_mean() -> None:
    model = small_model()
    graphs = graphs_for(model)
    found = explain(model, graphs, 4, masks=False)
    own = next(column for column in found.columns if column.of == "this row")
    number = int(own.column.removeprefix("x[").removesuffix("]"))
    x = graphs.x.clone()
    x[4, number] = graphs.x[:, number].mean()
    changed = model.outputs(replace(graphs, x=x))[4].softmax(0)
    place = model.problem.classes.index(found.target)
    assert own.without == pytest.approx(float(changed[place]), abs=1e-5)


def test_molecules_are_explained_by_atoms_and_bonds_by_their_elements() -> None:
    pytest.importorskip("rdkit")
    texts = ["CCO", "CCN", "CCCO", "CC(C)O", "CCCN", "CCCCO", "CCC", "CCCC", "CCCCC", "CC(C)C", "OCCO", "NCCN"] * 3
    frame = pd.DataFrame({"smiles": texts, "y": [float(any(a in text for a in "ON")) for text in texts]})
    task = load_tables(frame, target="y", task="regression")
    config = NetConfig.of(
        None, 16, 1, 2, encoder="atom", edge_encoder="bond", edge_channels=(5, 6, 2), pool="sum", norm=None
    )
    torch.manual_seed(0)
    network = build_net(config)
    Trainer(network, task, TrainConfig(epochs=40, lr=1e-2, batch_size=12), seed=0).run()
    model = Model(Problem.of(task), (Member(config, network.eval()),), None, task.details["preprocessing"])
    # Molecules without ids have the numbers of their rows, from 1.
    found = explain(model, task, 3)
    assert {node.node for node in found.nodes} == {"C1", "C2", "C3", "O4"}
    assert {frozenset((edge.source, edge.target)) for edge in found.edges} == {
        frozenset(pair) for pair in (("C1", "C2"), ("C2", "C3"), ("C3", "O4"))
    }
    names = names_of(task)[1]
    assert {"element", "bond type"} <= {column.name for column in (*names.columns, *names.edge_columns)}
    assert found.nodes[0].node == "O4"
    ElementTree.fromstring(found.to_svg())


def test_statistics_of_norms_are_not_changed_by_an_explanation() -> None:
    model = small_model("graph")
    graphs = graphs_for(model)
    network = with_statistics(model.members[0].network)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    explain(model, graphs, 0)
    assert all(torch.equal(tensor, network.state_dict()[name]) for name, tensor in before.items())
