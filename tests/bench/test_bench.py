"""Tiny versions of all that `make bench` runs: the record has the keys that it documents; no time is judged."""

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from sirgcn.bench import (
    PEERS,
    SHAPES,
    SUITES,
    TARGETS,
    Case,
    Effort,
    Problem,
    Shape,
    interleave,
    measure_memory,
    memory,
    record,
    run,
    scaling,
    training,
)
from sirgcn.bench import __main__ as command
from sirgcn.bench.graphs import DRAWN, LeftOut, bipartite, chain, evenly, molecules, power_law
from sirgcn.bench.peers import AGGREGATION, BOTH, COMPILED, EDGES, FORWARD, LAYER, MAX, MLP, OURS
from sirgcn.bench.plots import write_plots
from sirgcn.bench.tables import markdown, print_tables, render_page, sheets
from sirgcn.bench.targets import check
from sirgcn.data import load
from sirgcn.engine.timing import calls_per_sample, ratios, summary
from sirgcn.nn import build_net, hetero_edge_count_preset

TINY = Shape("molecules", 8, "tiny", functools.partial(molecules, graphs=3))
ONCE = Effort(repeats=1, sample_seconds=0.0, run_seconds=0.0)


@pytest.fixture(autouse=True)
def threads_of_torch() -> Iterator[None]:
    """A run sets torch's number of threads; other tests must not feel it."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def plan(*parts: str, **options: Any) -> run.Plan:
    return run.Plan(True, (TINY,), parts, (1,), ONCE, **options)


def empty_record(path: Path) -> record.Record:
    return record.Record(path, {"form": "full"})


@pytest.mark.parametrize(
    ("graph", "nodes", "edges"),
    [
        (molecules(), 128 * 23, 128 * 50),
        (bipartite(4), 240, 4 * 900),
        (chain(22_662, 65_854), 22_662, 65_854),
        (power_law(500, 3_000), 500, 3_000),
        (evenly(50, 400), 50, 400),
    ],
    ids=["molecules", "bipartite", "chain", "power_law", "evenly"],
)
def test_a_drawn_graph_has_its_size_and_sorted_sources(graph: Any, nodes: int, edges: int) -> None:
    assert graph.num_nodes == nodes
    assert graph.edge_index.shape == (2, edges)
    assert graph.edge_index.min() >= 0
    assert graph.edge_index.max() < nodes
    assert bool((graph.edge_index[0].diff() >= 0).all())


def test_molecules_stay_apart() -> None:
    source, target = molecules(graphs=5).edge_index
    assert torch.equal(source // 23, target // 23)


def test_a_real_graph_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SIRGCN_DATA", str(tmp_path))
    for name, file in (("real_tolokers", "tolokers.npz"), ("real_zinc", "zinc"), ("real_superpixels", "images")):
        with pytest.raises(LeftOut, match=file):
            SHAPES[name].build()


@pytest.mark.skipif("SIRGCN_DATA" not in os.environ, reason="SIRGCN_DATA is not set")
def test_real_graphs_have_their_published_sizes() -> None:
    tolokers, zinc = SHAPES["real_tolokers"].build(), SHAPES["real_zinc"].build()
    assert (tolokers.num_nodes, tolokers.edge_index.shape[1]) == (11_758, 2 * 519_000)
    assert 20 < zinc.num_nodes / 128 < 26
    assert bool((zinc.edge_index[0].diff() >= 0).all())
    pytest.importorskip("skimage")
    superpixels = SHAPES["real_superpixels"].build()
    assert superpixels.edge_index.shape[1] == 8 * superpixels.num_nodes


def test_runs_take_turns_and_a_long_one_drops_out() -> None:
    turns: list[str] = []
    runs = {name: (functools.partial(turns.append, name), 1) for name in "abc"}
    samples = interleave(runs, Effort(repeats=3, sample_seconds=0.0, run_seconds=1.0))
    assert "".join(turns) == "abcbcacab"
    assert {name: len(found) for name, found in samples.items()} == {"a": 3, "b": 3, "c": 3}
    samples = interleave(runs, Effort(repeats=3, sample_seconds=0.0, run_seconds=0.0))
    assert {name: len(found) for name, found in samples.items()} == {"a": 1, "b": 1, "c": 1}


def test_a_short_call_is_repeated_within_a_sample() -> None:
    assert calls_per_sample(lambda: None, Effort(1, sample_seconds=0.01, run_seconds=1.0)) > 10


def test_ratios_pair_the_repetitions() -> None:
    assert summary([3.0, 1.0, 2.0]) == {"median": 2.0, "q1": 1.5, "q3": 2.5}
    # The machine halved its speed after the first repetition; theirs then dropped out.
    assert ratios([2.0, 4.0], [1.0, 2.0, 2.0])["median"] == 2.0


def peers_of(suite: str) -> list[Any]:
    return [peer for peer in PEERS if peer.suite == suite and peer.label != COMPILED]


@pytest.mark.parametrize("suite", [AGGREGATION, EDGES, MAX, MLP])
def test_peers_of_one_operation_agree_with_ours(suite: str) -> None:
    problem = Problem(TINY.build(), TINY.channels, 1)
    ours, *others = (peer for peer in peers_of(suite) if BOTH in peer.modes)
    torch.manual_seed(0)
    expected = ours.make(problem).forward()
    for peer in others:
        torch.manual_seed(0)
        torch.testing.assert_close(peer.make(problem).forward(), expected)


def test_gcn_on_a_csr_adjacency_is_gcn() -> None:
    problem = Problem(TINY.build(), TINY.channels, 1)
    out = {}
    for peer in peers_of(LAYER):
        if peer.name.startswith("GCNConv"):
            torch.manual_seed(0)
            out[peer.name] = peer.make(problem).forward()
    expected = out.pop("GCNConv")
    assert len(out) == 3
    for found in out.values():
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("suite", SUITES)
def test_every_peer_of_a_suite_is_measured(suite: str) -> None:
    families = tuple(peer.label for peer in peers_of(suite))
    rows, left_out = run.measure_cell(plan(suite, families=families), TINY, TINY.build(), suite, 1)
    assert not left_out
    found = {(row["peer"], row["mode"]) for row in rows}
    assert found == {(peer.name, mode) for peer in peers_of(suite) for mode in peer.modes}


@pytest.mark.filterwarnings("ignore")
def test_torch_compile_is_measured() -> None:
    rows, left_out = run.measure_cell(plan(AGGREGATION, families=(COMPILED,)), TINY, TINY.build(), AGGREGATION, 1)
    if left_out:
        pytest.skip(left_out[0]["reason"])
    assert [row["peer"] for row in rows] == [OURS, COMPILED] * 2


def test_a_peer_that_fails_or_does_not_fit_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_kibibytes", lambda file, field: 1)
    wanted = plan(AGGREGATION, families=("eager", "MKL SpMM"))
    rows, left_out = run.measure_cell(wanted, TINY, TINY.build(), AGGREGATION, 1)
    assert {row["family"] for row in rows} == {OURS, "MKL SpMM"}
    assert {row["peer"] for row in left_out} == {"eager, propagate", "eager, index_add"}
    assert "GB of memory" in left_out[0]["reason"]


def test_memory_is_what_a_pass_adds() -> None:
    shape = Shape("tiny", 16, "", functools.partial(evenly, 100, 200_000))
    ours, eager = (
        measure_memory(Case(AGGREGATION, name, shape, BOTH, threads=1)) for name in (OURS, "eager, index_add")
    )
    assert ours.keys() == {"added_bytes", "peak_bytes"}
    # Eager holds at least two edges-by-channels tensors, ours none.
    assert eager["added_bytes"] > 2 * 200_000 * 16 * 4
    assert ours["added_bytes"] < 200_000 * 16 * 4


def test_memory_of_a_failing_peer_is_left_out() -> None:
    with pytest.raises(LeftOut, match="StopIteration"):
        measure_memory(Case(AGGREGATION, "nobody", TINY, BOTH, threads=1))


def test_every_memory_case_names_a_peer() -> None:
    for case in memory.cases(True, (TINY,), 1):
        assert case.mode in case.find().modes


def test_scaling_gives_the_cost_per_edge() -> None:
    rows = scaling.measure_point(320, 16, 1, ONCE)
    assert [(row["peer"], row["mode"]) for row in rows] == [(OURS, FORWARD), (OURS, BOTH), ("MKL SpMM, int32", FORWARD)]
    for row in rows:
        expected = row["seconds"]["median"] * 1e9 / 320
        assert row["nanoseconds_per_edge"]["median"] == pytest.approx(expected)


def test_every_target_names_a_family_and_shapes_that_are_measured() -> None:
    for target in TARGETS:
        modes = {mode for p in PEERS if (p.suite, p.label) == (target.suite, target.family) for mode in p.modes}
        assert target.mode in modes
        assert set(target.shapes) <= set(SHAPES)


def test_targets_take_the_fastest_setting_and_say_what_was_not_measured(tmp_path: Path) -> None:
    kept = empty_record(tmp_path / "record.json").data
    assert {row["holds"] for row in check(kept)} == {None}
    kept["times"] = [
        {
            "suite": AGGREGATION,
            "shape": "molecules",
            "threads": 2,
            "mode": FORWARD,
            "peer": f"MKL SpMM, {dtype}",
            "family": "MKL SpMM",
            "seconds": {"median": seconds},
            "ratio": {"median": seconds},
        }
        for dtype, seconds in (("int64", 1.5), ("int32", 0.9))
    ]
    (row,) = (row for row in check(kept) if row["holds"] is not None)
    assert (row["setting"], row["measured"], row["holds"]) == ("MKL SpMM, int32", 0.9, False)


KEYS = {
    "format",
    "environment",
    "settings",
    "shapes",
    "peers",
    "times",
    "memory",
    "scaling",
    "training",
    "tables",
    "left_out",
    "targets",
}


def test_the_command_writes_a_record_tables_and_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(SHAPES, "molecules", TINY)
    monkeypatch.setattr(scaling, "QUICK", ((100, 4), (200, 4)))
    few = Shape("sixteen_million", 4, "", functools.partial(evenly, 50, 200))
    monkeypatch.setattr(memory, "cases", lambda *_: [Case(AGGREGATION, OURS, few, BOTH, 1)])
    output = tmp_path / "out" / "record.json"
    parts = [AGGREGATION, LAYER, "memory", "scaling"]
    options = ["--shapes", "molecules", "--threads", "1", "--repeats", "1", "--output", str(output)]
    command.main([*options, "--peers", "eager", "GCNConv", "--parts", *parts])
    kept = json.loads(output.read_text())
    assert kept.keys() == KEYS
    assert {"cpu", "cores", "torch", "torch_geometric", "allocator", "date"} <= kept["environment"].keys()
    assert {row["suite"] for row in kept["times"]} == {AGGREGATION, LAYER}
    where = {"suite", "shape", "threads", "mode", "peer", "family"}
    assert all(row.keys() == where | {"seconds", "ratio", "calls_per_sample", "samples"} for row in kept["times"])
    assert all(row.keys() == where | {"added_bytes", "peak_bytes"} for row in kept["memory"])
    assert len(kept["scaling"]) == 6
    plots = {path.name for path in output.parent.iterdir()} - {"record.json"}
    assert plots == {
        f"record-{name}.{kind}" for name in (AGGREGATION, LAYER, "memory", "scaling") for kind in ("png", "svg")
    }
    printed = capsys.readouterr().out
    assert "Aggregation, forward+backward, 1 thread" in printed
    command.main(["--render", str(output)])
    assert capsys.readouterr().out == markdown(kept)


def test_an_interrupted_run_keeps_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = empty_record(tmp_path / "record.json")

    def interrupt(*_: object) -> list[Any]:
        def stop() -> None:
            raise KeyboardInterrupt

        return [("first", lambda: kept.data["left_out"].append({"shape": "a", "reason": "b"})), ("second", stop)]

    monkeypatch.setattr(command, "steps", interrupt)
    command._measure(plan(AGGREGATION), kept, Console(quiet=True))
    written = json.loads(kept.path.read_text())
    assert written["left_out"] == [{"shape": "a", "reason": "b"}]
    assert written["settings"]["interrupted"]


def test_a_pass_that_adds_no_memory_is_drawn(tmp_path: Path) -> None:
    kept = empty_record(tmp_path / "record.json").data
    kept["memory"] = [
        {"suite": AGGREGATION, "shape": "a", "mode": BOTH, "peer": OURS, "family": OURS, "added_bytes": 0}
    ]
    assert {path.name for path in write_plots(kept, tmp_path / "record")} == {"record-memory.png", "record-memory.svg"}


def test_an_empty_record_has_no_empty_tables(tmp_path: Path) -> None:
    kept = empty_record(tmp_path / "record.json").data
    assert [sheet.title for sheet in sheets(kept)] == ["Peers", "Environment"]
    assert write_plots(kept, tmp_path / "record") == []
    print_tables(kept, Console(quiet=True))


def test_quick_form_needs_no_data() -> None:
    assert not any(name.startswith("real_") for name in DRAWN)
    quick = run.Plan(False, (TINY,), (AGGREGATION,), (1, 2), ONCE)
    assert quick.covers(LAYER, 10**9, 2)
    assert not quick.covers(LAYER, 1, 1)


def test_an_epoch_of_ours_and_of_plain_pyg_learn_alike() -> None:
    def task() -> Any:
        return load("hetero_edge_count", c=2, num_graphs=20)

    small = training.Epoch("small", task, lambda: build_net(hetero_edge_count_preset(2)), 8, 1.0)
    record = empty_record(Path("unused.json"))
    record.write = lambda: None  # type: ignore[method-assign]
    run._epoch(plan(AGGREGATION), record, lambda name: None, small)
    rows = {row["peer"]: row for row in record.data["training"]}
    assert rows.keys() == {OURS, training.PEER, training.LOADER, training.BATCHES}
    assert next(sheet.title for sheet in sheets(record.data)) == "Training, an epoch with its evaluation, 1 thread"


def test_the_page_of_figures_is_written_from_the_record() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "performance.md").read_text("utf-8")
    record = json.loads((root / "results" / "bench" / "quick.json").read_text("utf-8"))
    assert render_page(page, record) == page
    with pytest.raises(ValueError, match="expected <!-- bench -->"):
        render_page("a page without the place", record)
