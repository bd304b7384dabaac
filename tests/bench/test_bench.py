"""Tiny versions of all that `make bench` runs: the records have the fields that they document; no time is judged."""

import functools
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
    Results,
    Session,
    Shape,
    interleave,
    measure_memory,
    memory,
    read_results,
    records,
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
from sirgcn.engine.environment import environment
from sirgcn.engine.timing import calls_per_sample, ratios, summary
from sirgcn.nn import build_net, hetero_edge_count_preset
from sirgcn.report.sheets import Fact

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
    cell = run.measure_cell(plan(suite, families=families), TINY, TINY.build(), suite, 1)
    assert not cell.left_out
    found = {(row.peer, row.config["mode"]) for row in cell.rows}
    assert found == {(peer.name, mode) for peer in peers_of(suite) for mode in peer.modes}


@pytest.mark.filterwarnings("ignore")
def test_torch_compile_is_measured() -> None:
    cell = run.measure_cell(plan(AGGREGATION, families=(COMPILED,)), TINY, TINY.build(), AGGREGATION, 1)
    if cell.left_out:
        pytest.skip(cell.left_out[0][2])
    assert [row.peer for row in cell.rows] == [OURS, COMPILED] * 2


def test_a_peer_that_fails_or_does_not_fit_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_kibibytes", lambda file, field: 1)
    wanted = plan(AGGREGATION, families=("eager", "MKL SpMM"))
    cell = run.measure_cell(wanted, TINY, TINY.build(), AGGREGATION, 1)
    assert {row.config["family"] for row in cell.rows} == {OURS, "MKL SpMM"}
    assert {peer for _, peer, _ in cell.left_out} == {"eager, propagate", "eager, index_add"}
    assert "GB of memory" in cell.left_out[0][2]


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
    assert [row[:2] for row in rows] == [(OURS, FORWARD), (OURS, BOTH), ("MKL SpMM, int32", FORWARD)]
    for _, _, figures in rows:
        expected = figures["seconds"]["median"] * 1e9 / 320
        assert figures["nanoseconds_per_edge"]["median"] == pytest.approx(expected)


def test_the_clock_of_the_samples_is_an_option() -> None:
    assert command.plan_of(command.parse([])).effort.clock == "wall"
    assert command.plan_of(command.parse(["--clock", "cpu", "--repeats", "3"])).effort == Effort(3, 0.02, 0.6, "cpu")


def test_a_run_of_some_parts_does_not_list_the_targets_of_others_as_missing() -> None:
    path = ROOT / "results" / "bench" / "gated.jsonl"
    (sheet,) = (found for found in sheets(read_results(path)) if found.title.startswith("Must reach"))
    missing = [note.value for note in sheet.notes if isinstance(note, Fact) and note.label == "Not measured"]
    assert not [text for text in missing if "Gated" not in text]


def test_every_target_names_a_family_and_shapes_that_are_measured() -> None:
    for target in TARGETS:
        modes = {mode for p in PEERS if (p.suite, p.label) == (target.suite, target.family) for mode in p.modes}
        assert target.mode in modes
        assert set(target.shapes) <= set(SHAPES)


def test_targets_take_the_fastest_setting_and_say_what_was_not_measured() -> None:
    kept = Results()
    assert {row["holds"] for row in check(kept)} == {None}
    kept.times += [
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


@pytest.fixture
def tiny_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of the benchmark in a form that takes a second."""
    monkeypatch.setitem(SHAPES, "molecules", TINY)
    monkeypatch.setattr(scaling, "QUICK", ((100, 4), (200, 4)))
    few = Shape("sixteen_million", 4, "", functools.partial(evenly, 50, 200))
    monkeypatch.setattr(memory, "cases", lambda *_: [Case(AGGREGATION, OURS, few, BOTH, 1)])


def measure(output: Path, *parts: str, peers: tuple[str, ...] = ("eager", "GCNConv"), fresh: bool = False) -> None:
    options = ["--shapes", "molecules", "--threads", "1", "--repeats", "1", "--output", str(output)]
    command.main([*options, "--peers", *peers, "--parts", *parts, *["--fresh"] * fresh])


def test_the_command_writes_records_tables_and_plots(
    tmp_path: Path, tiny_benchmark: None, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out" / "record.jsonl"
    measure(output, AGGREGATION, LAYER, "memory", "scaling")
    assert max(map(len, output.read_text().splitlines())) < 3000
    kept = read_results(output)
    assert {"cpu", "cores", "torch", "torch_geometric", "allocator", "date", "git"} <= kept.environment.keys()
    assert kept.settings.keys() == {"form", "effort", "threads"}
    assert {row["suite"] for row in kept.times} == {AGGREGATION, LAYER}
    where = {"suite", "shape", "threads", "mode", "peer", "family"}
    assert all(row.keys() == where | {"seconds", "ratio", "calls_per_sample", "samples"} for row in kept.times)
    assert all(row.keys() == where | {"added_bytes", "peak_bytes"} for row in kept.memory)
    assert len(kept.scaling) == 6
    assert kept.shapes == {"molecules": {"what": "tiny", "nodes": 69, "edges": 150, "channels": 8}}
    plots = {path.name for path in output.parent.iterdir()} - {"record.jsonl"}
    assert plots == {
        f"record-{name}.{suffix}" for name in (AGGREGATION, LAYER, "memory", "scaling") for suffix in ("png", "svg")
    }
    printed = capsys.readouterr().out
    assert "Aggregation, forward+backward, 1 thread" in printed
    assert "[1/4]" in printed
    command.main(["--render", str(output)])
    assert capsys.readouterr().out == markdown(kept)


@pytest.fixture
def clean_checkout(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A commit that the test can change; no plots are drawn."""
    current = ["0123abcd"]
    monkeypatch.setattr(records, "commit", lambda: current[0])
    monkeypatch.setattr(command, "write_plots", lambda *_: [])
    return current


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_an_interrupted_run_continues_where_it_stopped(
    tmp_path: Path,
    tiny_benchmark: None,
    clean_checkout: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output, real = tmp_path / "record.jsonl", scaling.measure_point

    def interrupt(edges: int, *options: Any, **more: Any) -> Any:
        if edges == 200:
            raise KeyboardInterrupt
        return real(edges, *options, **more)

    monkeypatch.setattr(scaling, "measure_point", interrupt)
    measure(output, AGGREGATION, "scaling", "memory")
    assert "Interrupted" in capsys.readouterr().out
    kept = read_results(output)
    assert {row["edges"] for row in kept.scaling} == {100}
    assert not kept.memory
    monkeypatch.setattr(scaling, "measure_point", real)
    before = lines(output)
    measure(output, AGGREGATION, "scaling", "memory")
    said = capsys.readouterr().out
    assert "2 of 4 steps are left" in said
    assert "[3/4]" in said
    assert "[1/4]" not in said
    # What was measured before stands as it was: a session, three rows of the scaling curve and one of memory are new.
    assert lines(output)[: len(before)] == before
    assert len(lines(output)) == len(before) + 5
    found = read_results(output)
    assert found.times == kept.times
    assert {row["edges"] for row in found.scaling} == {100, 200}
    assert len(found.memory) == 1


def test_a_run_with_all_figures_measures_nothing_again(
    tmp_path: Path, tiny_benchmark: None, clean_checkout: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "record.jsonl"
    measure(output, AGGREGATION, "scaling", "memory")
    kept, before = read_results(output), lines(output)
    measure(output, AGGREGATION, "scaling", "memory")
    assert "0 of 4 steps are left" in capsys.readouterr().out
    assert len(lines(output)) == len(before) + 1
    assert read_results(output).times == kept.times


@pytest.mark.parametrize("change", ["commit", "changed files", "settings", "fresh"])
def test_another_commit_or_other_settings_begin_a_new_run(
    tmp_path: Path, tiny_benchmark: None, clean_checkout: list[str], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "record.jsonl"
    dates = iter(f"2026-01-0{day}" for day in range(1, 9))
    real = environment
    monkeypatch.setattr(records, "environment", lambda: real() | {"date": next(dates)})
    if change == "changed files":
        clean_checkout[0] = "0123abcd+"
    measure(output, AGGREGATION, "memory")
    before = lines(output)
    if change == "commit":
        clean_checkout[0] = "4567"
    if change == "settings":
        monkeypatch.setattr(command, "QUICK", Effort(1, 0.0, 0.5))
    measure(output, AGGREGATION, fresh=change == "fresh")
    found = read_results(output)
    assert lines(output)[: len(before)] == before
    assert not found.memory
    assert len(found.times) == len(lines(output)) - len(before) - 1


def test_a_cell_that_lacks_a_peer_is_measured_as_a_whole(
    tmp_path: Path, tiny_benchmark: None, clean_checkout: list[str]
) -> None:
    output = tmp_path / "record.jsonl"
    measure(output, AGGREGATION, peers=("eager",))
    before = read_results(output)
    measure(output, AGGREGATION, peers=("eager", "MKL SpMM"))
    found = read_results(output)
    assert {row["family"] for row in found.times} == {OURS, "eager", "MKL SpMM"}
    ours = [row["samples"] for row in found.times if row["peer"] == OURS]
    assert ours != [row["samples"] for row in before.times if row["peer"] == OURS]
    assert len(ours) == 2


def test_a_peer_that_was_left_out_and_then_measured_is_not_listed_as_left_out() -> None:
    session = Session(None, {"form": "quick"})
    config = {"suite": AGGREGATION, "shape": "molecules", "threads": 1, "family": "eager", "what": "by hand"}
    data = {"what": "tiny", "nodes": 1, "edges": 1, "channels": 1}
    session.leave_out(records.TIMES, config, "eager, index_add", "needs about 9 GB of memory")
    assert [row["reason"] for row in session.results.left_out] == ["needs about 9 GB of memory"]
    session.add(records.TIMES, {**config, "mode": BOTH}, "eager, index_add", {"seconds": 1.0}, data=data)
    assert session.results.left_out == []


def test_figures_of_other_records_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected the records of a benchmark, got none"):
        read_results(tmp_path / "absent.jsonl")
    other = tmp_path / "other.json"
    other.write_text('{\n "format": 1\n}\n')
    with pytest.raises(SystemExit, match=r"--render: .*other.json, line 1: not a record"):
        command.main(["--render", str(other)])


def test_a_pass_that_adds_no_memory_is_drawn(tmp_path: Path) -> None:
    kept = Results()
    kept.memory += [{"suite": AGGREGATION, "shape": "a", "mode": BOTH, "peer": OURS, "family": OURS, "added_bytes": 0}]
    assert {path.name for path in write_plots(kept, tmp_path / "record")} == {"record-memory.png", "record-memory.svg"}


def test_a_run_without_figures_has_no_empty_tables(tmp_path: Path) -> None:
    kept = Session(None, {"form": "full"}).results
    assert [sheet.title for sheet in sheets(kept)] == ["Environment"]
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
    session = Session(None, {"form": "full"})
    run.measure_epoch(plan(AGGREGATION), session, lambda name: None, small)
    assert [row["peer"] for row in session.results.training] == list(training.PEERS)
    title = next(sheet.title for sheet in sheets(session.results))
    assert title == "Training, an epoch with its evaluation, 1 thread"


ROOT = Path(__file__).parents[2]


def test_the_page_of_figures_is_written_from_the_records() -> None:
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    for name in ("quick", "gated"):
        assert render_page(page, read_results(ROOT / "results" / "bench" / f"{name}.jsonl"), name) == page
    results = Results()
    with pytest.raises(ValueError, match="expected <!-- bench -->"):
        render_page("a page without the place", results)


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "bench").glob("*.jsonl")), ids=lambda path: path.name)
def test_every_committed_record_reads(path: Path) -> None:
    results = read_results(path)
    assert max(map(len, lines(path))) < 3000
    assert results.times or results.ratios
    assert markdown(results)
