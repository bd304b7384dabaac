"""Exported models: equal to the model on graphs of other sizes, in every form, without this package."""

import copy
import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from sirgcn.data.graphs import Graphs
from sirgcn.data.schema import Schema
from sirgcn.model import Member, Model, Preparation
from sirgcn.model.calibration import Calibration
from sirgcn.model.export import ABOUT, export
from sirgcn.model.predictor import Predictor, example_inputs
from sirgcn.model.script import script
from sirgcn.nn.conv import SIRConv
from sirgcn.nn.net import SIRNet
from sirgcn.strict import ConfigError
from tests.model.small import small_model

SIZES = [(30, 77, 5), (1, 0, 1), (1, 1, 1), (5, 0, 2), (2, 9, 1), (250, 900, 3)]
"""The numbers of nodes, edges and graphs on which an exported model is compared with the model."""

CATEGORIES = Schema(vocabularies=(5, 3), edge_vocabularies=(4, 2), outputs=3)
EDGES = Schema(features=8, edge_features=4, outputs=3)

PROGRAMS: dict[str, dict[str, Any]] = {
    "node classes": {},
    "graph numbers": {"level": "graph", "sort": "numbers", "schema": Schema(features=8, outputs=2)},
    "graph labels of categories": {"level": "graph", "sort": "labels", "schema": CATEGORIES},
    "ensemble": {"level": "graph", "networks": 2, "schema": EDGES},
    "edge classes": {"level": "edge"},
    "edges with features": {"level": "edge", "schema": EDGES, "edge_encoder": "linear"},
    "features of graphs": {"level": "graph", "schema": Schema(features=8, graph_features=5, outputs=3)},
    "virtual node": {"virtual_node": True, "encoder": "linear"},
    "gates and a context": {"gated": True, "context": "mean", "aggr": "sym"},
    "gcn": {"conv": "gcn"},
}

# What a script must compute bit for bit as the plain route of the layers does.
SCRIPTS: dict[str, dict[str, Any]] = PROGRAMS | {
    **{f"aggregator {name}": {"aggr": name} for name in ("sum", "mean", "sym", "sym_in", "max")},
    **{f"context {name}": {"context": name} for name in ("sum", "mean", "sym", "max")},
    "context of narrower rows": {"context": "sum", "channels": 4},
    **{
        f"activation {name}": {"activation": name, "act": name, "encoder": "linear", "encoder_act": True}
        for name in (
            *("identity", "leaky_relu(0.3)", "elu", "gelu", "gelu_tanh"),
            *("silu", "tanh", "sigmoid", "softplus", "square"),
        )
    },
    **{
        f"block {name} with norm {norm}": {"level": "graph", "block": name, "norm": norm, "encoder": "linear"}
        for name in ("residual", "skip", "pre_norm", "transformer")
        for norm in ("batch", "layer", None)
    },
    "feed-forward": {"block": "skip", "encoder": "linear", "feed_forward": 2, "act": "gelu"},
    "feed-forward of GNN+": {
        "block": "skip",
        "encoder": "linear",
        "feed_forward": 2,
        "feed_forward_norm": "around",
        "conv_norm": False,
    },
    **{f"jk {name}": {"block": "skip", "encoder": "linear", "jk": name} for name in ("cat", "max", "sum", "lstm")},
    "jk and pre_norm": {"block": "pre_norm", "encoder": "linear", "jk": "cat"},
    "learned slopes": {"activation": "prelu"},
    "deeper sigma": {"activation": "prelu", "sigma_layers": 2, "aggr": "max"},
    "published": {"variant": "published", "aggr": "sym", "schema": EDGES},
    "published gates": {"variant": "published", "gated": True},
    "edge features": {"schema": EDGES, "edge_encoder": "linear"},
    "raw edge features": {"schema": EDGES},
    "one row for all edges": {"edge_encoder": "constant"},
    "too many combinations for a table": {
        "schema": Schema(features=8, edge_vocabularies=(80, 70), outputs=3),
    },
    "self-loops": {"self_loops": True},
    "edges with raw features": {"level": "edge", "schema": EDGES},
    "edges with categories": {"level": "edge", "schema": CATEGORIES},
    "no residual, no activation": {"residual": False, "act": None, "norm": None},
    "random-walk encoding beside": {
        "schema": Schema(features=8, encodings=4, outputs=3),
        "encoder": "linear",
        "positional": "random_walk",
        "pe_channels": 5,
        "pe_norm": True,
    },
    "laplacian encoding": {
        "schema": Schema(features=8, encodings=4, outputs=3),
        "encoder": "linear",
        "positional": "laplacian",
    },
    "encoding of edges": {
        "schema": Schema(features=8, edge_features=4, edge_encodings=3, outputs=3),
        "edge_encoder": "linear",
        "edge_pe_dim": 3,
    },
    "encoding of categories of edges": {
        "schema": Schema(features=8, edge_vocabularies=(4, 2), edge_encodings=3, outputs=3),
        "edge_pe_dim": 3,
    },
    "head": {"level": "graph", "readout_layers": 2, "head_channels": (8, 6), "pool": "sum", "out_bias": False},
    "features of graphs with a head": {
        "level": "graph",
        "schema": Schema(features=8, graph_features=5, outputs=3),
        "head_channels": (8,),
    },
    "head without readout": {"level": "graph", "readout_layers": 0, "head_channels": (8,), "head_norm": None},
    "atoms and bonds": {
        "level": "graph",
        "schema": Schema(
            vocabularies=(119, 5, 12, 12, 10, 6, 6, 2, 2), edge_vocabularies=(5, 6, 2), edge_encodings=0, outputs=3
        ),
        "encoder": "atom",
        "edge_encoder": "bond",
        "virtual_node": True,
        "virtual_residual": True,
    },
}
del SCRIPTS["gcn"]

OTHERS: dict[str, dict[str, Any]] = {
    "gcn": {"conv": "gcn"},
    "gin": {"conv": "gin"},
    "gin with edges": {"conv": "gin", "schema": EDGES},
    "gin with categories": {"conv": "gin", "schema": CATEGORIES, "conv_options": {"mlp_layers": 3}},
    "sage": {"conv": "sage"},
    "sage_pool": {"conv": "sage_pool"},
    "gatv2": {"conv": "gatv2", "conv_options": {"heads": 2, "share_weights": False}},
    "mlp": {"conv": "mlp"},
}


def plain(model: Model) -> Model:
    """The model with PyG's plain `propagate` in every layer, and without shared rows."""
    model = copy.deepcopy(model)
    for member in model.members:
        for module in member.network.modules():
            if isinstance(module, SIRConv):
                module.fused = False
            if isinstance(module, SIRNet):
                module.share = False
    return model


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def outputs(model: Model, inputs: dict[str, Any]) -> dict[str, Tensor]:
    with torch.no_grad():
        found: dict[str, Tensor] = Predictor(model)(**inputs)
    return found


@pytest.mark.parametrize("options", SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_gives_the_bits_of_the_plain_route(options: dict[str, Any], tmp_path: Path) -> None:
    model = plain(small_model(**options))
    module = imported(export(model, tmp_path / "ejected.py", "script"))
    networks = module.load()
    for size in SIZES:
        inputs = example_inputs(model, *size, seed=1)
        found = module.predict(networks, **inputs)
        for name, expected in outputs(model, inputs).items():
            assert torch.equal(found[name], expected), (name, size)


@pytest.mark.parametrize("options", OTHERS.values(), ids=OTHERS)
def test_a_script_of_another_convolution_gives_the_outputs_of_the_model(
    options: dict[str, Any], tmp_path: Path
) -> None:
    model = small_model(**options)
    module = imported(export(model, tmp_path / "ejected.py", "script"))
    networks = module.load()
    for size in SIZES:
        inputs = example_inputs(model, *size, seed=1)
        found = module.predict(networks, **inputs)
        for name, expected in outputs(model, inputs).items():
            torch.testing.assert_close(found[name], expected)


def test_a_script_holds_networks_of_different_configurations(tmp_path: Path) -> None:
    first, second = small_model(aggr="max"), small_model(channels=8, seed=1)
    model = plain(Model(first.problem, (*first.members, *second.members, *first.members)))
    module = imported(export(model, tmp_path / "ejected.py", "script"))
    inputs = example_inputs(model)
    expected = outputs(model, inputs)
    assert torch.equal(module.predict(module.load(), **inputs)["probabilities"], expected["probabilities"])
    assert not hasattr(module, "Network3")


def test_a_script_runs_where_sirgcn_is_not_installed(tmp_path: Path) -> None:
    model = plain(small_model(level="graph", schema=CATEGORIES))
    path = export(model, tmp_path / "ejected.py", "script")
    inputs = example_inputs(model)
    torch.save(inputs, tmp_path / "inputs.pt")
    code = (
        "import sys; sys.modules['sirgcn'] = None\n"
        "import torch, ejected\n"
        "found = ejected.predict(ejected.load(), **torch.load('inputs.pt'))\n"
        "print(found['probabilities'].tolist())"
    )
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=path.parent, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == outputs(model, inputs)["probabilities"].tolist()


def test_a_script_has_no_code_from_the_names_of_a_model() -> None:
    model = small_model()
    evil = '"""\nimport os\nraise SystemExit(os.name)\n"""'
    problem = model.problem.__class__(
        **vars(model.problem) | {"name": evil, "targets": (evil,), "classes": (evil,) * 3}
    )
    found: dict[str, Any] = {"__file__": "ejected.py", "__name__": "ejected"}
    # MessagePassing looks its module up by name.
    sys.modules["ejected"] = ModuleType("ejected")
    exec(compile(script(Model(problem, model.members)), "ejected.py", "exec"), found)
    assert found["NAME"] == evil


@pytest.mark.parametrize("options", PROGRAMS.values(), ids=PROGRAMS)
def test_a_pt2_program_gives_the_outputs_of_the_model_for_any_sizes(options: dict[str, Any], tmp_path: Path) -> None:
    model = small_model(**options)
    about = {ABOUT: ""}
    program = torch.export.load(export(model, tmp_path / "model.pt2"), extra_files=about)
    targets = {str(node.target) for node in program.graph.nodes}
    assert not any("sirgcn" in target for target in targets)
    assert json.loads(about[ABOUT])["inputs"] == list(example_inputs(model))
    run = program.module()
    for size in SIZES:
        inputs = example_inputs(model, *size, seed=1)
        for name, expected in outputs(model, inputs).items():
            torch.testing.assert_close(run(**inputs)[name].detach(), expected, rtol=1e-5, atol=1e-5)


# Two models, because a conversion takes seconds.
@pytest.mark.parametrize("case", ["graph labels of categories", "gcn"])
def test_an_onnx_program_gives_the_outputs_of_the_model_for_any_sizes(case: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    model = small_model(**PROGRAMS[case])
    session = runtime.InferenceSession(
        str(export(model, tmp_path / "model.onnx", "onnx")), providers=["CPUExecutionProvider"]
    )
    about = json.loads(session.get_modelmeta().custom_metadata_map[ABOUT])
    assert [entry.name for entry in session.get_inputs()] == about["inputs"] == list(example_inputs(model))
    for size in SIZES:
        inputs = example_inputs(model, *size, seed=1)
        given = {name: torch.as_tensor(value).numpy() for name, value in inputs.items()}
        found = dict(zip(about["outputs"], session.run(None, given), strict=True))
        for name, expected in outputs(model, inputs).items():
            torch.testing.assert_close(torch.from_numpy(found[name]), expected, rtol=1e-5, atol=1e-5)


def test_numbers_come_out_in_the_units_of_the_targets() -> None:
    model = small_model("graph", "numbers", Schema(features=8, outputs=2))
    inputs = example_inputs(model)
    with torch.no_grad():
        raw = model.members[0].network(**inputs)
    expected = raw * torch.tensor([2.0, 3.0]) + torch.tensor([10.0, 11.0])
    torch.testing.assert_close(outputs(model, inputs)["numbers"], expected)


def test_the_temperature_divides_the_logits(tmp_path: Path) -> None:
    model = small_model()
    model = replace(model, calibration=Calibration("classes", 3, temperatures=(2.5,)))
    inputs = example_inputs(model)
    with torch.no_grad():
        expected = model.members[0].network(inputs["x"], inputs["edge_index"]) / 2.5
    module = imported(export(model, tmp_path / "ejected.py", "script"))
    for found in (outputs(model, inputs), module.predict(module.load(), **inputs)):
        torch.testing.assert_close(found["logits"], expected)
        torch.testing.assert_close(found["probabilities"], expected.softmax(1))


def test_every_network_of_a_program_reads_what_it_was_trained_on(tmp_path: Path) -> None:
    schema = Schema(features=8, edge_features=4, outputs=3)
    steps = [Preparation(walks=5, edge_walks=True, normalise=True), Preparation(walks=3, edges=False)]
    configs: list[dict[str, Any]] = [
        {"edge_encoder": "linear", "positional": "random_walk", "pe_dim": 5, "edge_pe_dim": 5, "encoder": "linear"},
        {"positional": "random_walk", "pe_dim": 3, "encoder": "linear", "schema": Schema(features=8, outputs=3)},
    ]
    networks = [small_model(**{"schema": schema} | options).members[0] for options in configs]
    members = tuple(Member(old.config, old.network, step) for old, step in zip(networks, steps, strict=True))
    model = plain(Model(small_model(schema=schema).problem, members))
    graph = example_inputs(model, 30, 90, 1)
    graphs = Graphs(graph["x"], graph["edge_index"], torch.zeros(30, dtype=torch.int64), "node", graph["edge_attr"])
    prepared = steps[0].apply(graphs)
    inputs = graph | {"pe": prepared.pe, "edge_pe": prepared.edge_pe}
    expected = model.outputs(graphs)
    torch.testing.assert_close(outputs(model, inputs)["logits"], expected, rtol=1e-5, atol=1e-6)
    module = imported(export(model, tmp_path / "ejected.py", "script"))
    assert torch.equal(module.predict(module.load(), **inputs)["logits"], outputs(model, inputs)["logits"])


@pytest.mark.parametrize("to", ["pt2", "onnx", "script"])
def test_random_features_are_refused_by_name(to: Any, tmp_path: Path) -> None:
    model = small_model(random_features=2, encoder="linear")
    with pytest.raises(ConfigError, match="random_features"):
        export(model, tmp_path / "model.py", to)
    assert list(tmp_path.iterdir()) == []


def test_a_script_refuses_a_convolution_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="got gated_gcn"):
        export(small_model(conv="gated_gcn"), tmp_path / "model.py", "script")


def test_a_program_that_fails_on_a_small_graph_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pt2"):
        export(small_model(block="skip", encoder="linear", jk="lstm"), tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_form_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="onnx"):
        export(small_model(), tmp_path / "model", "onx")  # type: ignore[arg-type]


def test_a_script_needs_a_name_of_python(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.py"):
        export(small_model(), tmp_path / "model.txt", "script")
