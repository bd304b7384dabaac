"""The command line: what a user types, and what they are told."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sirgcn import cli
from sirgcn.cli import choose, tell
from sirgcn.data.validate import DataError
from sirgcn.engine import experiment as config
from sirgcn.engine import records
from sirgcn.engine.plan import plan
from sirgcn.engine.run import header
from tests.engine import searched
from tests.report import fake

TOML = """
data = "hetero_edge_count"
preset = "hetero_edge_count"
columns = [{ title = "c=2", options = { c = 2, num_graphs = 20 } }]
[train]
epochs = 2
batch_size = 8
selection = "last"
[[models]]
title = "SIR-GCN"
"""


def run(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    return found.exit_code, found.output


def as_json(*arguments: str) -> Any:
    """What a program reads: standard output alone."""
    return json.loads(CliRunner().invoke(cli.app, arguments, catch_exceptions=False).stdout)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "train",
        "init",
        "predict",
        "evaluate",
        "embed",
        "compare",
        "reproduce",
        "search",
        "results",
        "figures",
        "collisions",
        "bench",
        "backends",
        "models",
        "version",
        "data",
        "data list",
        "data describe",
        "data convert",
    ],
)
def test_every_command_has_help(command: str) -> None:
    code, text = run(*command.split(), "--help")
    assert code == 0
    assert "Usage" in text


def test_version_is_the_package_s() -> None:
    import sirgcn

    assert run("version") == (0, f"{sirgcn.__version__}\n")


def test_backends_say_what_is_there_and_why_not() -> None:
    assert "reference: available" in run("backends")[1]
    assert as_json("backends", "--json")["backends"]["reference"] is None


def test_bench_gets_its_options_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("os.execv", lambda program, arguments: started.append(arguments))
    assert run("bench", "--full", "--shapes", "arxiv")[0] == 0
    assert started[0][1:] == ["-m", "sirgcn.bench", "--full", "--shapes", "arxiv"]


def test_models_are_listed_with_formula_and_reference() -> None:
    rows = as_json("models", "--json")
    assert {"sir", "gcn", "gin", "gatv2", "pna"} <= {row["name"] for row in rows}
    assert {"h2gcn", "jacobiconv"} <= {row["name"] for row in rows if row["key"] == "network"}
    assert all(row["formula"] and row["reference"] and row["complexity"] for row in rows)
    (found,) = as_json("models", "glognn", "--json")
    assert "delta" in found["options"]
    assert len({row["title"] for row in rows}) == len(rows)


@pytest.mark.parametrize("title", ["H2GCN", "h2gcn", "SIR-GCN", "sir-gcn", "GraphSAGE", "GraphSAGE (pool)", "Egc_M"])
def test_model_is_found_by_name_or_title_in_any_case(title: str) -> None:
    (found,) = as_json("models", title, "--json")
    assert title.lower() in (found["name"], found["title"].lower())


@pytest.mark.parametrize("width", [60, 80, 139])
def test_models_are_blocks_of_whole_words_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    narrow = Console(width=width)
    monkeypatch.setattr("sirgcn.cli.shows.out", narrow)
    with narrow.capture() as capture:
        assert run("models")[0] == 0
        assert run("models", "GloGNN")[0] == 0
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    words = set(capture.get().split())
    for row in as_json("models", "--json"):
        assert f'{row["title"]}: {row["key"]} = "{row["name"]}"' in lines
        assert {*row["formula"].split(), *row["complexity"].split(), *row["reference"].split()} <= words
    assert len([line for line in lines if line.startswith("  options: ")]) == 1


def test_data_sets_are_listed_and_described() -> None:
    assert {"ZINC", "minesweeper"} <= {row["name"] for row in as_json("data", "list", "--json")}
    found = as_json("data", "describe", "dictionary_lookup", "--json")
    assert found
    assert "node" in run("data", "describe", "dictionary_lookup")[1].lower()


def test_missing_files_fail_the_check(tmp_path: Path) -> None:
    code, text = run("data", "verify", "Cora", "--data", str(tmp_path))
    assert code == 1
    assert "ind.cora.graph" in text
    assert "missing" in text
    assert run("data", "verify", "pattern")[0] == 0


def test_dry_run_says_what_would_be_run_and_runs_nothing(tmp_path: Path) -> None:
    code, text = run("reproduce", "table1", "-m", "SIR-GCN", "-s", "0-1", "--dry-run", "--results", str(tmp_path))
    assert code == 0
    assert text.startswith("10 runs, 0 finished before; 10 to go: how long is unknown\n")
    assert list(tmp_path.iterdir()) == []
    code, text = run("reproduce", "Table 1", "-m", "GIN", "-s", "0", "--dry-run", "--json", "--results", str(tmp_path))
    assert code == 0
    assert [(row["model"], row["column"]) for row in json.loads(text)] == [("GIN", f"n={n}") for n in range(10, 60, 10)]


def test_dry_run_has_a_line_for_each_cell_with_its_seeds_those_finished_and_the_time(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TOML + '[[models]]\ntitle = "GIN"\nconv = "gin"\n')
    experiment = config.load(tmp_path / "mine.toml")
    for made in plan(experiment, ["SIR-GCN"], seeds=[0, 1, 2, 5]):
        records.append(tmp_path / "results" / "mine.jsonl", header(made) | {"seconds": 600.0, "epochs": 2})
    places = ["--dry-run", "--results", str(tmp_path / "results"), "--jobs", "2"]
    code, text = run("reproduce", str(tmp_path / "mine.toml"), *places)
    assert code == 0
    assert text.splitlines() == [
        "20 runs, 4 finished before; 16 to go: at least 30 min, and 10 runs of unknown length",
        "  mine c=2, SIR-GCN: seeds 0-9; finished 0-2,5; about 30 min",
        "  mine c=2, GIN: seeds 0-9; how long is unknown",
    ]
    text = run("reproduce", str(tmp_path / "mine.toml"), "-m", "SIR-GCN", "-s", "0-2", *places)[1]
    assert text.splitlines() == ["3 runs, 3 finished before; 0 to go", "  mine c=2, SIR-GCN: seeds 0-2; finished 0-2"]


def test_runs_that_nothing_tells_of_are_counted_apart(tmp_path: Path) -> None:
    minutes, unknown = 600.0, None
    assert tell.estimate([minutes, minutes], 1) == "about 20 min"
    assert tell.estimate([minutes, minutes, unknown], 2) == "at least 10 min, and 1 run of unknown length"
    assert tell.estimate([unknown, unknown], 2) == "how long is unknown"
    (tmp_path / "mine.toml").write_text(TOML)
    text = run("reproduce", str(tmp_path / "mine.toml"), "--dry-run", "--results", str(tmp_path))[1]
    assert text.startswith("10 runs, 0 finished before; 10 to go: how long is unknown\n")


def test_table_goes_seed_by_seed_through_all_its_experiments(tmp_path: Path) -> None:
    places = ["-m", "SIR-GCN", "-m", "GCN", "-s", "4,0", "--dry-run", "--json", "--results", str(tmp_path)]
    rows = as_json("reproduce", "table4", *places)
    assert [(row["seed"], row["experiment"], row["model"]) for row in rows] == [
        (seed, experiment, model)
        for seed in (4, 0)
        for experiment in ("ogbg_molhiv", "ogbn_arxiv")
        for model in ("SIR-GCN", "GCN")
    ]


def test_seeds_beyond_the_experiment_s_are_warned_of(tmp_path: Path) -> None:
    arguments = ["reproduce", "zinc", "-m", "GCN", "--dry-run", "--json", "--results", str(tmp_path), "--seeds"]
    found = CliRunner().invoke(cli.app, [*arguments, "8-2000"], catch_exceptions=False)
    assert "zinc has the seeds 0-9; beyond them are 10-2000 (1991 seeds)" in found.stderr
    assert len(json.loads(found.stdout)) == 1993
    assert "beyond" not in CliRunner().invoke(cli.app, [*arguments, "0-9"], catch_exceptions=False).stderr


def test_rows_of_a_table_are_those_of_the_experiments_that_have_them(tmp_path: Path) -> None:
    places = ["-s", "0", "--dry-run", "--json", "--results", str(tmp_path)]
    rows = as_json("reproduce", "table5", "-m", "h2gcn", "-c", "minesweeper", "-c", "tolokers", *places)
    assert {(row["model"], row["column"]) for row in rows} == {("H2GCN", "minesweeper"), ("H2GCN", "tolokers")}
    changed = as_json("reproduce", "table4", "-m", "GIN", "--set", "train.epochs=2", *places)
    assert {row["experiment"] for row in changed} == {"ogbn_arxiv+train.epochs=2", "ogbg_molhiv+train.epochs=2"}


def test_runs_that_the_budget_leaves_are_listed_and_the_same_command_goes_on(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TOML)
    places = ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "runs"), "--threads", "1"]
    found = typed("reproduce", str(tmp_path / "mine.toml"), "-s", "0-1", "--budget", "0s", *places)
    assert found.returncode == 3
    assert "2 runs are left; the same command continues with them:\n  mine c=2, SIR-GCN, seed 0\n" in found.stderr
    assert typed("reproduce", str(tmp_path / "mine.toml"), "-s", "0-1", *places).returncode == 0


def test_data_that_cannot_be_had_are_told_once_and_leave_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(name: str, root: Path | None) -> None:
        asked.append(name)
        raise DataError("cannot be downloaded (no network); put data.json into wikics/raw", "data.json")

    monkeypatch.setattr("sirgcn.data.sets.catalog.fetch", refuse)
    places = ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "runs")]
    code, text = run("reproduce", "wikics", "-s", "0-3", "-m", "GCN", "-m", "GIN", *places)
    assert code == 2
    assert text.count("wikics: 8 runs skipped, the data are not available: data.json: cannot be downloaded") == 1
    assert "put data.json into wikics/raw" in text
    assert asked == ["WikiCS"]
    assert list((tmp_path / "results").iterdir()) == []


def test_runs_whose_data_are_there_are_made_beside_those_whose_are_not(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,size,label\n" + "".join(f"{i},{i % 7},{'ab'[i % 2]}\n" for i in range(40)))
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{i % 40},{i * 3 % 40}\n" for i in range(90)))
    columns = [
        f'{{ title = "{name}", options = {{ nodes = "{tmp_path}/{name}.csv", edges = "{tmp_path}/edges.csv" }} }}'
        for name in ("nowhere", "nodes")
    ]
    (tmp_path / "own.toml").write_text(
        f'data = "tables"\ncolumns = [{", ".join(columns)}]\n[train]\nepochs = 2\nbatch_size = "none"\n'
        '[[models]]\ntitle = "SIR-GCN"\n'
    )
    places = ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "runs"), "--threads", "1"]
    found = typed("reproduce", str(tmp_path / "own.toml"), "-s", "0-1", *places)
    assert found.returncode == 2
    assert found.stderr.count("own: 2 runs skipped, the data are not available") == 1
    assert "nowhere.csv" in found.stderr
    made = records.read(tmp_path / "results" / "own.jsonl")
    assert [(record["column"], record["status"]) for record in made] == [("nodes", "done")] * 2


def own_tables(folder: Path, **options: object) -> Path:
    """An experiment on tables of one's own, whose paths start at its folder."""
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text("id,size,label\n" + "".join(f"{i},{i % 7},{'ab'[i % 2]}\n" for i in range(40)))
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"{i % 40},{i * 3 % 40}\n" for i in range(90)))
    given = {"nodes": "nodes.csv", "edges": "edges.csv", **options}
    told = ", ".join(f"{key} = {json.dumps(value)}" for key, value in given.items())
    (folder / "own.toml").write_text(
        f'data = "tables"\nseeds = 2\ncolumns = [{{ title = "mine", options = {{ {told} }} }}]\n'
        '[train]\nepochs = 2\nbatch_size = "none"\n[[models]]\ntitle = "SIR-GCN"\n'
    )
    return folder / "own.toml"


def test_tables_of_ones_own_are_found_beside_their_file_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_tables(tmp_path / "deep")
    monkeypatch.chdir(tmp_path)
    code, text = run("reproduce", "deep/own.toml", "-s", "0", "--threads", "1", "--json")
    assert code == 0
    (record,) = json.loads(text)
    assert record["config"]["options"]["nodes"] == "nodes.csv"
    monkeypatch.chdir(tmp_path / "deep")
    code, text = run("reproduce", "own.toml", "-s", "0", "--results", "../results", "--dry-run")
    assert (code, text.splitlines()[0]) == (0, "1 run, 1 finished before; 0 to go")


def test_training_without_a_test_part_is_shown_as_one_without_a_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_tables(tmp_path, fractions=[0.7, 0.3, 0.0])
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(cli.app, ["reproduce", "own.toml", "-s", "0", "--threads", "1"], catch_exceptions=False)
    assert found.exit_code == 0
    assert "no score (no test part) after 2 epochs" in found.stderr
    assert "No score (-): the split has no test part" in found.stdout
    assert "nan" not in found.output


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"nodes": "nowhere.csv"}, "deep/nowhere.csv: nodes: expected a file, there is none of this name"),
        ({"edges": "nowhere.csv"}, "deep/nowhere.csv: edges: expected a file"),
        ({"nodes": "."}, "expected"),
        ({"nodes": "empty.csv"}, "deep/empty.csv: header: expected a header, got an empty file"),
        ({"target": "lable"}, "target: expected a column"),
        ({"dropped": "no/such/rows.csv", "on_error": "skip"}, "no/such/rows.csv: dropped: expected a file in a folder"),
        ({"fractions": [1.0, 0.0, 0.0]}, "no validation data"),
    ],
)
def test_dry_run_refuses_what_a_run_would_find_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], reason: str
) -> None:
    own_tables(tmp_path / "deep", **options)
    (tmp_path / "deep" / "empty.csv").touch()
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(cli.app, ["reproduce", "deep/own.toml", "--dry-run"], catch_exceptions=False)
    assert found.exit_code == 2
    assert "own: 2 runs would fail before training: " in found.stderr
    assert reason in found.stderr
    assert found.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_dry_run_on_tables_that_can_be_used_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_tables(tmp_path / "deep", dropped="rows.csv", on_error="skip")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    assert run("reproduce", "deep/own.toml", "--dry-run")[0] == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_dry_run_tells_of_files_that_a_run_downloads(tmp_path: Path) -> None:
    places = ["--dry-run", "--results", str(tmp_path / "results"), "--data", str(tmp_path / "data")]
    found = CliRunner().invoke(cli.app, ["reproduce", "minesweeper", "-s", "0", *places], catch_exceptions=False)
    assert found.exit_code == 0
    assert f"minesweeper: its files are not in {tmp_path}/data/" in found.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("file", ["nowhere.toml", "folder.toml"])
def test_file_of_an_experiment_that_is_none_is_refused_by_its_path(tmp_path: Path, file: str) -> None:
    (tmp_path / "folder.toml").mkdir()
    expected = "there is no such file" if file == "nowhere.toml" else "expected a file, got a folder"
    with pytest.raises(ValueError, match=f"{tmp_path / file}: {expected}"):
        run("reproduce", str(tmp_path / file), "--dry-run")


def test_names_are_completed() -> None:
    assert choose.completions("table") == [f"table{number}" for number in range(1, 9)]
    assert choose.completions("zi") == ["zinc", "zinc_plus", "zinc_step"]


def test_experiment_of_ones_own_is_trained_and_shown(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TOML)
    places = ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "runs"), "--threads", "1"]
    code, text = run("reproduce", str(tmp_path / "mine.toml"), "-s", "0", *places, "--json")
    assert code == 0
    (record,) = json.loads(text)
    assert record["status"] == "done"
    code, text = run("reproduce", str(tmp_path / "mine.toml"), "-s", "0", *places)
    assert code == 0
    assert "1 run, 1 finished before; 0 to go\n" in text


def test_search_is_announced_made_shown_and_continued(tmp_path: Path) -> None:
    file = searched.write(tmp_path, searched.TEXT.replace("trials = 3", "trials = 1"))
    places = ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "runs"), "--threads", "1"]
    code, text = run("search", str(file), *places, "--dry-run")
    assert code == 0
    assert "0 of 1" in text
    assert "5 runs to go: how long is unknown" in text
    assert not (tmp_path / "results").exists()
    rows = as_json("search", str(file), *places, "-m", "Boosting with neighbours", "--json")
    assert [(row["model"], len(row["trials"]), row["runs"], row["runs_asked"]) for row in rows] == [
        ("Boosting with neighbours", 1, 1, 1)
    ]
    assert rows[0]["settings"] == rows[0]["trials"][0]["settings"]
    code, text = run("search", str(file), *places, "--budget", "0s")
    assert code == 3
    assert "1 run is left; the same command continues with it:" in text
    assert "3 runs to go" in text
    code, text = run("results", "--results", str(tmp_path / "results"))
    assert code == 0
    assert "Boosting with neighbours" in text


def test_search_refuses_a_model_it_lacks_and_reproduce_an_experiment_with_a_search(tmp_path: Path) -> None:
    file = str(searched.write(tmp_path))
    with pytest.raises(ValueError, match="--models: expected one of SIR-GCN, Boosting with neighbours, got 'SIRGCNN'"):
        run("search", file, "--models", "SIRGCNN")
    with pytest.raises(ValueError, match=r"mine: its settings are searched first; type: sirgcn search .*mine\.toml"):
        run("reproduce", file)


def test_a_model_without_a_winner_is_a_failure_of_the_search(tmp_path: Path) -> None:
    text = searched.TEXT.replace("trials = 3", "trials = 1").replace(
        "{ low = 1e-3, high = 1e-1, log = true }", "[1e36]"
    )
    places = ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "runs"), "--threads", "1"]
    code, text = run("search", str(searched.write(tmp_path, text)), *places, "-m", "SIR-GCN")
    assert code == 1
    assert "not run" in text


def typed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sirgcn.cli", *arguments], capture_output=True, text=True, check=False)


def test_mistake_is_one_line_and_debug_shows_where() -> None:
    found = typed("reproduce", "znc")
    assert found.returncode == 2
    assert "did you mean zinc?" in found.stderr
    assert found.stderr.count("\n") == 1
    assert "Traceback" not in found.stderr
    assert "Traceback" in typed("reproduce", "znc", "--debug").stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["reproduce", "table9"], "table: expected one of 1, 2, .*8, sinc_scores, sinc_unique_signature, got 9"),
        (["reproduce", "tabel3"], r"one of table1, .*table8, .*zinc, .*got 'tabel3'; did you mean table3\?"),
        (["reproduce", "zinc", "--models", "GCNN"], r"got 'GCNN'; did you mean GCN\?"),
        (["reproduce", "table3", "--columns", "zink"], r"got 'zink'; did you mean ZINC\?"),
        (["reproduce", "zinc", "--models", "???"], r"got '\?\?\?'$"),
        (["reproduce", "zinc", "--seeds", "a"], "--seeds: expected such as 0-9"),
        (["reproduce", "zinc", "--budget", "soon", "--dry-run"], "--budget: expected a time such as 2h"),
        (["reproduce", "zinc", "--models", "SIRGCN"], "--models: expected one of SIR-GCN, .*, got 'SIRGCN'"),
        (["reproduce", "table3", "--models", "SIRGCN"], "--models: expected one of SIR-GCN, .*, got 'SIRGCN'"),
        (["reproduce", "table1", "--seeds", "3-0"], "--seeds: expected the smaller one first, got '3-0'"),
        (["models", "glogn"], "jacobiconv, got 'glogn'; did you mean glognn?"),
        (["models", "GPR-GN"], "jacobiconv, got 'GPR-GN'; did you mean GPR-GNN?"),
        (
            ["reproduce", "zinc", "--columns", "ZINC", "--columns", "zink"],
            "--columns: expected one of ZINC, got 'zink'",
        ),
        (["reproduce", "table3", "-m", "PNA", "-c", "WikiCS"], "one of SIR-GCN, .*GatedGCN, got PNA for WikiCS"),
        (["data", "describe", "zink"], "ZINC"),
        (["data", "describe", "zinc", "--target", "y"], "--target: expected none for the name of a data set"),
        (["data", "describe", "a.csv", "b.csv"], "a.csv: expected a file, there is none of this name"),
        (["data", "describe", "a.csv", "b.csv", "c.csv", "d.csv"], "files: expected at most 3"),
        (["search", "zinc"], r"zinc: search: expected a section \[search\], got none"),
        (["search", "zink"], r"got 'zink'; did you mean zinc\?"),
        (["search", "table6"], r"expected a training with a section \[search\], got dictionary_lookup_runtime"),
    ],
)
def test_wrong_argument_is_refused_with_what_is_known(arguments: list[str], error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        run(*arguments)


def test_own_files_are_described(tmp_path: Path) -> None:
    nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    nodes.write_text("id,size,label\n" + "".join(f"n{place},{place % 7},{'ab'[place % 2]}\n" for place in range(12)))
    edges.write_text("source;target\nn0;n1\nn1;n2\n")
    found = as_json("data", "describe", str(nodes), str(edges), "--target", "label", "--json")
    assert found["inferred"]["edges.csv"] == "fields separated by semicolons"
    assert found["labels"] == {"a": 6, "b": 6, "no label": 0}
    code, text = run("data", "describe", str(nodes), str(edges), "--target", "label", "--level", "node")
    assert code == 0
    assert "WARNING: 9 of 12 nodes have no edge" in text
    with pytest.raises(ValueError, match=r"target: expected a column .*did you mean label\?"):
        run("data", "describe", str(nodes), str(edges), "--target", "lable")


@pytest.mark.parametrize(
    ("text", "seconds"), [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("45", 45), ("0.5h", 1800)]
)
def test_budget_is_read(text: str, seconds: float) -> None:
    assert choose.seconds_of(text) == seconds


def test_results_are_shown_written_and_given_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.folder(tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    names = sorted(file.stem for file in (tmp_path / "results").glob("*.jsonl"))
    code, text = run("results")
    assert (code, "SIR-GCN" in text) == (0, True)
    found = as_json("results", names[0].upper(), "--json")
    assert {record["experiment"] for record in found} == {names[0]}
    assert not any("history" in record for record in found)
    written = as_json("results", "--write", "out", "--json")
    assert sorted(row["written"] for row in written) == sorted(str(file) for file in Path("out").iterdir())
    assert (tmp_path / "out" / "report.html").is_file()
    with pytest.raises(
        ValueError, match=f"records in .*: expected an experiment, not a table: one of .*{names[0]}.*got 'nothing'"
    ):
        run("results", "nothing")
    with pytest.raises(FileNotFoundError, match="--results: expected a folder with records, got nowhere"):
        run("results", "--results", "nowhere")
