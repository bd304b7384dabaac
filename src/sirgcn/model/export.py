"""A trained model for other programs: a `.pt2` program of torch, ONNX, or a script of plain PyTorch and PyG."""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from sirgcn.files import write_atomic
from sirgcn.model.fitted import Model
from sirgcn.model.predictor import Predictor, example_inputs, inputs_of, temperatures_of
from sirgcn.model.script import write_script
from sirgcn.strict import ConfigError, check_name

Target = Literal["pt2", "onnx", "script"]
"""The forms that `export` writes."""

TARGETS: tuple[Target, ...] = ("pt2", "onnx", "script")

ABOUT = "sirgcn.json"
"""The name under which a program holds its description: an extra file of `.pt2`, a property of ONNX."""

TOLERANCE = 1e-5
"""The largest difference between a program and the model, as a part of the largest output (or of 1)."""

# The edges of these tensors are columns; all other tensors have a row for each node or edge.
_COLUMNS = ("edge_index", "edge_label_index")


def export(model: Model, path: str | Path, to: Target = "pt2") -> Path:
    """Write a model as a program that runs where sirgcn is not installed, and return the path.

    The program has the ensemble, the scaling and the temperature inside. Its inputs have the names of PyG, see
    `Predictor.inputs`, and any number of nodes, edges and graphs. Its outputs are `numbers`, or `logits` and
    `probabilities`. A `.pt2` or ONNX program is tried on graphs of other sizes before it is written.

    Args:
        model: the model.
        path: the file that is written.
        to: `"pt2"` for `torch.export.load`, `"onnx"` for any runtime of ONNX, or `"script"` for a readable Python file
            of plain PyTorch and PyG, with the weights in a `.safetensors` file beside it.

    Raises:
        ConfigError: the model has a part that no program of this form can have; the error names it.

    >>> from tempfile import TemporaryDirectory
    >>> from sirgcn.data import load
    >>> from sirgcn.model import Member, Problem, Scaling
    >>> from sirgcn.nn import NetConfig, build_net
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> config = NetConfig.of(2, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    >>> model = Model(Problem.of(task), (Member(config, build_net(config).eval()),), Scaling.of(task))
    >>> batch = task.graphs.batch()
    >>> with TemporaryDirectory() as folder:
    ...     program = torch.export.load(export(model, Path(folder) / "model.pt2")).module()
    >>> found = program(x=batch.x, edge_index=batch.edge_index, batch=batch.batch, batch_size=10)
    >>> torch.allclose(found["numbers"], model.outputs(task.graphs), atol=1e-5)
    True
    """
    check_name("to", to, TARGETS, exact=True)
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: expected a file in a folder that is there, got {path.parent}")
    if to == "script":
        return write_script(model, path)
    data = _pt2(model) if to == "pt2" else _onnx(model)
    write_atomic(path, data)
    return path


def description(model: Model) -> dict[str, Any]:
    """What a program says about itself, as JSON values: its inputs, its outputs and what they mean.

    >>> from sirgcn.data import load
    >>> from sirgcn.model import Member, Problem
    >>> from sirgcn.nn import NetConfig, build_net
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> config = NetConfig.of(2, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    >>> description(Model(Problem.of(task), (Member(config, build_net(config)),)))["outputs"]
    ['numbers']
    """
    problem = model.problem
    return {
        "name": problem.name,
        "level": problem.level,
        "sort": problem.sort,
        "targets": list(problem.targets),
        "classes": list(problem.classes),
        "inputs": list(inputs_of(model)),
        "outputs": ["numbers"] if problem.sort == "numbers" else ["logits", "probabilities"],
        "temperatures": list(temperatures_of(model)),
        "networks": len(model.members),
        "walks": max(member.preparation.walks for member in model.members),
    }


def _program(model: Model) -> ExportedProgram:
    """The traced model, with every size left open."""
    _refuse_random_features(model)
    inputs = example_inputs(model)
    sizes: dict[str, Any] = {name: {1 if name in _COLUMNS else 0: Dim.DYNAMIC} for name in inputs}
    if "batch_size" in inputs:
        sizes["batch_size"] = Dim.DYNAMIC
    predictor = Predictor(model)
    try:
        # Without this, torch makes programs for two or more of everything: not for one graph, nor for no edges.
        with torch.fx.experimental._config.patch(backed_size_oblivious=True), torch.no_grad(), _quiet():  # type: ignore[attr-defined]
            program = torch.export.export(predictor, (), inputs, dynamic_shapes=sizes)
    except Exception as error:
        names = ", ".join(sorted({member.config.conv.name for member in model.members}))
        raise ConfigError(
            f"to: torch cannot trace a network with the convolution {names} and the settings of this model; "
            f"use the model folder with sirgcn. torch says: {_first_line(error)}"
        ) from error
    _drop_unused(program)
    if custom := sorted({str(node.target) for node in program.graph.nodes if "sirgcn" in str(node.target)}):
        raise ConfigError(f"to: expected operators of torch only, got {', '.join(custom)}; use the model folder")
    return program


def _refuse_random_features(model: Model) -> None:
    if any(member.config.context.random_features for member in model.members):
        raise ConfigError(
            "random_features: expected 0, because every prediction draws them anew and no program could repeat one"
        )


def _drop_unused(program: ExportedProgram) -> None:
    """Leave out what no output reads. Checks of dtypes would keep the grouping of edges alive, which ONNX lacks."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _pt2(model: Model) -> bytes:
    program = _program(model)
    _try_program("pt2", program.module(), model)
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={ABOUT: json.dumps(description(model))})
    return file.getvalue()


def _onnx(model: Model) -> bytes:
    about = description(model)
    try:
        import onnxruntime

        with _quiet():
            made = torch.onnx.export(_program(model), output_names=about["outputs"], dynamo=True, verbose=False)
    except ImportError as error:
        raise ImportError(
            f"to: ONNX needs a package that is not installed ({error}); type: pip install 'sirgcn[export]'"
        ) from error
    except torch.onnx.OnnxExporterError as error:
        raise ConfigError(f"to: ONNX lacks an operator of this model; use pt2. {_reason(error)}") from error
    assert made is not None
    proto = made.model_proto
    entry = proto.metadata_props.add()
    entry.key, entry.value = ABOUT, json.dumps(about)
    data = bytes(proto.SerializeToString())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]

    def run(**inputs: Any) -> dict[str, Tensor]:
        found = session.run(None, {name: np.asarray(inputs[name]) for name in names})
        return dict(zip(about["outputs"], map(torch.from_numpy, found), strict=True))

    _try_program("onnx", run, model)
    return data


def _try_program(form: str, program: Callable[..., dict[str, Tensor]], model: Model) -> None:
    """Refuse a program whose outputs are not those of the model for graphs of other sizes, the smallest among them."""
    predictor = Predictor(model)
    for nodes, edges, graphs in ((23, 61, 5), (4, 6, 1), (1, 0, 1)):
        inputs = example_inputs(model, nodes, edges, graphs)
        try:
            with torch.no_grad():
                expected, found = predictor(**inputs), program(**inputs)
        except Exception as error:
            raise ConfigError(
                f"to: {form} cannot hold this model: its program fails for {nodes} nodes, {edges} edges and {graphs} "
                f"graphs ({_first_line(error):.200}); use another form"
            ) from error
        for name, values in expected.items():
            error_of = float((found[name] - values).abs().max() / values.abs().max().clamp(min=1))
            if not error_of <= TOLERANCE:
                raise ConfigError(
                    f"to: {form} cannot hold this model: its {name} differ by {error_of:.1e} for {nodes} nodes and "
                    f"{edges} edges; use another form"
                )


def _reason(error: Exception) -> str:
    """The line of an error of torch's ONNX exporter that says what is missing."""
    lines = [line for line in str(error).splitlines() if "No ONNX function" in line or "Error" in line]
    return lines[0].strip() if lines else _first_line(error)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the notes of torch's exporters, which a user can do nothing about."""
    levels = {name: logging.getLogger(name).level for name in ("torch", "onnx_ir", "onnxscript")}
    for name in levels:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
