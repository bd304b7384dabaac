"""The examples in docstrings run, and every name of the reference has one."""

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sirgcn

SOURCE = Path(sirgcn.__file__).parent
API = Path(__file__).parent.parent / "docs" / "api.md"

# Packages of the extras. A module that needs one of them is skipped where it is not installed.
OPTIONAL = {"hypothesis", "networkx", "onnx", "onnxruntime", "onnxscript", "pyarrow", "rdkit", "skimage", "triton"}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


WITH_EXAMPLES = sorted(module_name(path) for path in SOURCE.rglob("*.py") if ">>> " in path.read_text("utf-8"))


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_run(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OPTIONAL:
            raise
        pytest.skip(f"{error.name} is not installed")
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for case in doctest.DocTestFinder().find(module, name):
        runner.run(case, out=said.append)
    assert not runner.failures, "".join(said)
    assert runner.tries


DIRECTIVE = re.compile(r"^\.\. auto(function|class|module):: ([\w.]+)\n((?:   .*\n)*)", re.MULTILINE)


def documented_names(page: str) -> Iterator[str]:
    """The functions and classes that the reference documents, with their full names."""
    for sort, name, options in DIRECTIVE.findall(page):
        if sort != "module":
            yield name
        elif ":no-members:" not in options:
            excluded = re.search(r":exclude-members: (.*)", options)
            yield from public_members(name, set() if excluded is None else set(excluded[1].split(", ")))


def public_members(name: str, excluded: set[str]) -> Iterator[str]:
    """The public functions and classes of a module that are defined in it."""
    for member, value in vars(importlib.import_module(name)).items():
        is_own = (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == name
        if is_own and value.__doc__ and not member.startswith("_") and member not in excluded:
            yield f"{name}.{member}"


def has_example(name: str) -> bool:
    """Whether the docstring of a function or class holds an example; that of a method counts for its class."""
    module, _, member = name.rpartition(".")
    value: Any = getattr(importlib.import_module(module), member)
    texts = [value.__doc__]
    if inspect.isclass(value):
        texts += [function.__doc__ for function in vars(value).values() if inspect.isfunction(function)]
    return any(">>> " in text for text in texts if text)


# Names of the reference without an example. The set only shrinks: take a name out when it has one.
WITHOUT_EXAMPLE: set[str] = {
    "sirgcn.bench.Case",
    "sirgcn.bench.Effort",
    "sirgcn.bench.interleave",
    "sirgcn.bench.measure_memory",
    "sirgcn.data.cache.cached",
    "sirgcn.data.cache.load",
    "sirgcn.data.cache.save",
    "sirgcn.data.describe.Description",
    "sirgcn.data.encodings.with_encodings",
    "sirgcn.data.homophily.Homophily",
    "sirgcn.data.homophily.homophily",
    "sirgcn.data.preprocess.Column",
    "sirgcn.data.preprocess.Preprocessing",
    "sirgcn.data.sbm.cluster_task",
    "sirgcn.data.sbm.pattern_task",
    "sirgcn.data.superpixels.superpixel_task",
    "sirgcn.data.synthetic.dictionary_lookup",
    "sirgcn.data.synthetic.dictionary_lookup_task",
    "sirgcn.data.synthetic.hetero_edge_count",
    "sirgcn.data.synthetic.hetero_edge_count_task",
    "sirgcn.data.tables.Inputs",
    "sirgcn.data.tables.apply_tables",
    "sirgcn.data.tables.load_tables",
    "sirgcn.engine.checkpoint.Checkpoints",
    "sirgcn.engine.experiment.AxisConfig",
    "sirgcn.engine.experiment.ColumnConfig",
    "sirgcn.engine.experiment.Experiment",
    "sirgcn.engine.experiment.ModelConfig",
    "sirgcn.engine.experiment.TimingConfig",
    "sirgcn.engine.experiment.TrainConfig",
    "sirgcn.engine.experiment.load",
    "sirgcn.engine.loop.Outcome",
    "sirgcn.engine.loop.Trainer",
    "sirgcn.engine.pool.run_all",
    "sirgcn.engine.records.append",
    "sirgcn.engine.records.read",
    "sirgcn.engine.run.Settings",
    "sirgcn.engine.run.execute",
    "sirgcn.engine.run.plan",
    "sirgcn.engine.runtime.slope",
    "sirgcn.engine.runtime.time_growth",
    "sirgcn.engine.runtime.time_passes",
    "sirgcn.nn.CategoricalEncoder",
    "sirgcn.nn.Conv",
    "sirgcn.nn.ConvThen",
    "sirgcn.nn.PositionalEncoder",
    "sirgcn.nn.RandomFeatures",
    "sirgcn.nn.Repeated",
    "sirgcn.nn.SIRConv",
    "sirgcn.nn.SIRGCN",
    "sirgcn.nn.SIRNet",
    "sirgcn.nn.SIRReadout",
    "sirgcn.nn.Scale",
    "sirgcn.nn.Sigma",
    "sirgcn.nn.VirtualNode",
    "sirgcn.nn.WithSelfLoops",
    "sirgcn.nn.baselines.EGC",
    "sirgcn.nn.baselines.FAGCN",
    "sirgcn.nn.baselines.GAT",
    "sirgcn.nn.baselines.GATv2",
    "sirgcn.nn.baselines.GCN",
    "sirgcn.nn.baselines.GIN",
    "sirgcn.nn.baselines.GatedGCN",
    "sirgcn.nn.baselines.MLP",
    "sirgcn.nn.baselines.PNA",
    "sirgcn.nn.baselines.SAGE",
    "sirgcn.nn.baselines.Transformer",
    "sirgcn.nn.dictionary_lookup_preset",
    "sirgcn.nn.from_dgl_state_dict",
    "sirgcn.nn.from_edge_conv",
    "sirgcn.nn.from_gatv2_scores",
    "sirgcn.nn.from_gcn",
    "sirgcn.nn.from_gin",
    "sirgcn.nn.from_gine",
    "sirgcn.nn.from_sage",
    "sirgcn.nn.hetero_edge_count_preset",
    "sirgcn.nn.make_conv",
    "sirgcn.nn.preset",
    "sirgcn.nn.width_for_budget",
    "sirgcn.ops.Activation",
    "sirgcn.ops.Grouping",
    "sirgcn.ops.Neighbors",
    "sirgcn.ops.backends",
    "sirgcn.ops.rank_one_weights",
    "sirgcn.ops.sir_aggregate",
    "sirgcn.ops.tiled_aggregate",
    "sirgcn.report.Cell",
    "sirgcn.report.Claim",
    "sirgcn.report.Comparison",
    "sirgcn.report.Run",
    "sirgcn.report.compare",
    "sirgcn.report.load_claims",
    "sirgcn.report.paper_figures.write_figures",
    "sirgcn.report.read_runs",
    "sirgcn.report.write_docs",
    "sirgcn.report.write_report",
}


def test_every_name_of_the_reference_has_an_example() -> None:
    lacking = {name for name in documented_names(API.read_text("utf-8")) if not has_example(name)}
    assert lacking - WITHOUT_EXAMPLE == set(), "write an example (`>>> ...`) into the docstring"
    assert WITHOUT_EXAMPLE - lacking == set(), "these have an example now, or are gone: take them out of the set"


def test_the_directives_of_the_reference_are_read() -> None:
    page = """
.. autofunction:: sirgcn.strict.read

.. autoclass:: sirgcn.strict.Between
   :members: check

.. automodule:: sirgcn.spreadsheet
   :exclude-members: as_cell, other

.. automodule:: sirgcn.files
   :no-members:

.. autodata:: sirgcn.strict.Size
"""
    assert list(documented_names(page)) == [
        "sirgcn.strict.read",
        "sirgcn.strict.Between",
        "sirgcn.spreadsheet.csv_text",
    ]
