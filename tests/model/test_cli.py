"""The command line from a user's files to predictions: every verb, and the mistakes that people make."""

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sirgcn import cli
from sirgcn.cli.configured import from_toml
from sirgcn.cli.shared import Interrupt
from sirgcn.data.molecules import has_rdkit

# Every wait ends by itself; a busy machine needs far less than this.
LIMIT = 300.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files whose labels can be learned: the label is the sign of the size, with some noise."""
    made = tmp_path_factory.mktemp("road")
    write(made)
    return made


def write(folder: Path, count: int = 150, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    size = rng.normal(size=count)
    label = np.where(size + rng.normal(size=count) * 0.3 > 0, "yes", "no")
    ids = np.array([f"A{number:03d}" for number in range(count)])
    nodes = {"id": ids, "size": size.round(3), "kind": rng.choice(["u", "v"], count), "label": label}
    pd.DataFrame(nodes).to_csv(folder / "nodes.csv", index=False)
    edges = {"source": rng.choice(ids, 3 * count), "target": rng.choice(ids, 3 * count)}
    pd.DataFrame(edges).to_csv(folder / "edges.csv", index=False)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command as `sirgcn` does: the exit code, standard output and standard error."""

    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["sirgcn", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return command


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    """A model that a process of its own has trained."""
    command = [sys.executable, "-m", "sirgcn.cli", "train", "nodes.csv", "edges.csv", "-t", "label", "-o", "model"]
    found = subprocess.run(
        [*command, "--preset", "fast"], cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "epoch 1 of at most" in found.stderr
    assert "Boosting with neighbours" in found.stdout
    assert "report: model/report.html" in found.stdout
    assert {path.name for path in folder.iterdir()} >= {"model", "nodes.csv"}
    assert not (folder / "model.work").exists()
    return folder / "model"


def test_the_folder_has_everything_that_a_reader_needs(model: Path) -> None:
    names = {path.name for path in model.iterdir()}
    assert {"model.safetensors", "config.json", "preprocess.json", "splits.json", "history.jsonl"} <= names
    assert {"evaluation.json", "predictions.csv", "manifest.json", "README.md", "report.html"} <= names
    tested = pd.read_csv(model / "predictions.csv")
    assert set(tested["id"]) == set(json.loads((model / "splits.json").read_text())["test"])
    assert (tested["truth"] == tested["prediction"]).mean() > 0.7


def test_predictions_have_one_row_for_each_row_of_the_input(model: Path, tmp_path: Path, run: Run) -> None:
    write(tmp_path, 40, seed=1)
    nodes = pd.read_csv(tmp_path / "nodes.csv").drop(columns="label")
    nodes.loc[3, "kind"] = "w"
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    files = (tmp_path / "nodes.csv", tmp_path / "edges.csv")
    code, text, warnings = run("predict", model, *files, "-o", tmp_path / "found.csv")
    assert (code, "predictions of 40 rows" in text) == (0, True)
    assert "kind: 1 value that training had not seen" in warnings
    found = pd.read_csv(tmp_path / "found.csv")
    assert found["id"].tolist() == nodes["id"].tolist()
    assert list(found.columns) == ["id", "prediction", "probability_no", "probability_yes"]
    code, text, _ = run("predict", model, *files, "-o", tmp_path / "found.parquet", "--json")
    assert json.loads(text) == {
        "predictions": str(tmp_path / "found.parquet"),
        "rows": 40,
        "dropped": 0,
        "bad": None,
        "unseen": {"kind": 1},
    }
    again = pd.read_parquet(tmp_path / "found.parquet")
    assert again["probability_yes"].to_numpy() == pytest.approx(found["probability_yes"].to_numpy())
    code, _, error = run("predict", model, *files, "-o", tmp_path / "strict.csv", "--strict")
    assert (code, "expected a category of training" in error or "'w'" in error) == (2, True)
    assert not (tmp_path / "strict.csv").exists()


def test_bad_rows_are_left_out_and_listed_unless_strict(model: Path, folder: Path, tmp_path: Path, run: Run) -> None:
    edges = (folder / "edges.csv").read_text() + "A001,A999\nA001\n"
    (tmp_path / "edges.csv").write_text(edges)
    files = (folder / "nodes.csv", tmp_path / "edges.csv", "-o", tmp_path / "found.csv")
    code, _, warnings = run("predict", model, *files)
    assert code == 0
    assert "2 bad rows left out" in warnings
    reasons = (tmp_path / "found.bad.csv").read_text()
    assert "A999" in reasons
    assert "expected 2 fields, got 1" in reasons
    code, _, error = run("predict", model, *files, "--strict")
    assert (code, error.count("error:")) == (2, 1)


def test_new_nodes_of_a_known_graph_are_predicted_with_its_edges(
    model: Path, folder: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "new.csv").write_text("id,size,kind\nB1,2.5,u\nB2,-2.5,v\n")
    (tmp_path / "new_edges.csv").write_text("source,target\nB1,A001\nB2,B1\n")
    known = ("--known", folder / "nodes.csv", "--known", folder / "edges.csv")
    new = (tmp_path / "new.csv", tmp_path / "new_edges.csv", "-o", tmp_path / "found.csv")
    assert run("predict", model, *new, *known)[0] == 0
    found = pd.read_csv(tmp_path / "found.csv")
    assert found["id"].tolist() == ["B1", "B2"]
    # The same rows in one table with the known ones.
    whole = pd.concat([pd.read_csv(folder / "nodes.csv").drop(columns="label"), pd.read_csv(tmp_path / "new.csv")])
    edges = pd.concat([pd.read_csv(folder / "edges.csv"), pd.read_csv(tmp_path / "new_edges.csv")])
    whole.to_csv(tmp_path / "whole.csv", index=False)
    edges.to_csv(tmp_path / "whole_edges.csv", index=False)
    both = (tmp_path / "whole.csv", tmp_path / "whole_edges.csv", "-o", tmp_path / "both.csv")
    assert run("predict", model, *both)[0] == 0
    again = pd.read_csv(tmp_path / "both.csv").set_index("id").loc[["B1", "B2"]]
    assert again["probability_yes"].to_numpy() == pytest.approx(found["probability_yes"].to_numpy(), abs=1e-5)


def test_evaluate_embed_and_compare_read_the_folder(model: Path, folder: Path, tmp_path: Path, run: Run) -> None:
    files = (folder / "nodes.csv", folder / "edges.csv")
    code, text, _ = run("evaluate", model, *files, "--part", "test", "--json")
    stored = json.loads((model / "evaluation.json").read_text())["scores"]["accuracy"]["value"]
    assert (code, json.loads(text)["scores"]["accuracy"]["value"]) == (0, pytest.approx(stored))
    code, text, warnings = run("evaluate", model, *files)
    assert (code, "accuracy" in text, "120 of the rows have ids that training used" in warnings) == (0, True, True)
    assert run("embed", model, *files, "-o", tmp_path / "found.csv")[0] == 0
    found = pd.read_csv(tmp_path / "found.csv")
    assert (len(found), found.columns[0], found.columns[1]) == (150, "id", "e0")
    code, text, _ = run("compare", model, model, "--json")
    assert [row["networks"] for row in json.loads(text)["models"]] == [1, 1]
    assert run("compare", model)[0] == 2


def test_init_writes_a_file_that_train_reads_to_the_same_task(folder: Path, tmp_path: Path, run: Run) -> None:
    files = (folder / "nodes.csv", folder / "edges.csv", "-t", "label", "-o", tmp_path / "config.toml")
    code, text, _ = run("init", *files)
    assert (code, "homophily" in text) == (0, True)
    config = (tmp_path / "config.toml").read_text()
    told = from_toml(tmp_path / "config.toml").task()
    # The comments are settings that hold anyway, or examples.
    every = [line.removeprefix("# ") for line in config.splitlines() if line.startswith(("# id", "# dir", "# level"))]
    (tmp_path / "more.toml").write_text(config.replace("[data]", "[data]\n" + "\n".join(every)))
    again = from_toml(tmp_path / "more.toml").task()
    assert told.graphs.sha256() == again.graphs.sha256()
    assert run("init", *files)[0] == 2
    assert run("init", *files, "--force")[0] == 0
    (tmp_path / "typo.toml").write_text(config.replace("preset", "presett"))
    code, _, error = run("train", tmp_path / "typo.toml", "-o", tmp_path / "model")
    assert (code, "did you mean preset?" in error) == (2, True)


def test_version_is_shown_and_experiments_are_led_to_their_command(tmp_path: Path, run: Run) -> None:
    import sirgcn

    assert run("--version")[:2] == (0, f"{sirgcn.__version__}\n")
    code, _, error = run("train", "zinc")
    assert (code, "sirgcn reproduce zinc" in error) == (2, True)
    (tmp_path / "mine.toml").write_text('data = "hetero_edge_count"\n[[models]]\ntitle = "SIR-GCN"\n')
    assert "type: sirgcn reproduce" in run("train", tmp_path / "mine.toml")[2]


def test_settings_without_an_option_of_their_own_are_given_by_set_and_errors_say_so(
    folder: Path, tmp_path: Path, run: Run
) -> None:
    table = pd.read_csv(folder / "nodes.csv").rename(columns={"id": "paper"})
    table.assign(code="5 kg").to_csv(tmp_path / "nodes.csv", index=False)
    edges = (folder / "edges.csv").read_text() + "A001,A999\nA001\n"
    (tmp_path / "edges.csv").write_text(edges)
    files = (tmp_path / "nodes.csv", tmp_path / "edges.csv", "-t", "label")
    given: list[str] = []
    for remedy in ("on_error=skip", "id=paper", "types.code=categorical"):
        code, _, error = run("init", *files, *given, "-o", tmp_path / "config.toml")
        assert (code, error.count("error:")) == (2, 1)
        assert f"--set {remedy.replace('paper', '...')}" in error
        given += ["--set", remedy]
    code, _, warnings = run("init", *files, *given, "-o", tmp_path / "config.toml")
    assert (code, "2 bad rows left out; the reasons are in" in warnings) == (0, True)
    assert "A999" in (tmp_path / "config.bad.csv").read_text()
    assert run("data", "describe", *files, *given)[0] == 0
    # What was typed is in the file, which can be trained from with yet another setting.
    train = ("train", tmp_path / "config.toml", "--preset", "fast", "--no-controls", "--set", "draw=inductive")
    code, _, warnings = run(*train, "-o", tmp_path / "model")
    assert (code, "2 bad rows left out; the reasons are in" in warnings) == (0, True)
    assert "expected 2 fields, got 1" in (tmp_path / "model.bad.csv").read_text()


def test_an_error_about_a_table_with_many_columns_is_short(tmp_path: Path, run: Run) -> None:
    names = [f"word_{place}" for place in range(2000)]
    pd.DataFrame([range(2001)], columns=["id", *names]).to_csv(tmp_path / "nodes.csv", index=False)
    (tmp_path / "edges.csv").write_text("source,target\n0,0\n")
    for target in ((), ("-t", "wrod_3")):
        code, _, error = run("data", "describe", tmp_path / "nodes.csv", tmp_path / "edges.csv", *target)
        assert (code, len(error) < 600, "more" in error) == (2, True, True)
    assert "did you mean word_3?" in error


VERBS = (
    *("train", "init", "predict", "evaluate", "embed", "compare", "explain", "report", "tune", "export"),
    "data describe",
)


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_a_screen_and_has_an_example_of_that_verb(
    verb: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, text, _ = run(*verb.split(), "--help")
    lines = text.rstrip().splitlines()
    assert (code, max(map(len, lines)) <= 80) == (0, True)
    assert len(lines) <= 24
    assert any(f"Example: sirgcn {verb} " in line for line in lines)


def without(column: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        table = pd.read_csv(folder / "nodes.csv").drop(columns=column)
        table.to_csv(folder / "nodes.csv", index=False)

    return change


def with_labels(label: str | None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        table = pd.read_csv(folder / "nodes.csv")
        table["label"] = label
        table.to_csv(folder / "nodes.csv", index=False)

    return change


def with_line(name: str, line: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with (folder / name).open("a") as file:
            file.write(line)

    return change


def with_bytes(name: str, data: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return change


def renamed(folder: Path) -> None:
    (folder / "nodes.csv").rename(folder / "node.csv")


def replaced_by_a_folder(folder: Path) -> None:
    (folder / "nodes.csv").unlink()
    (folder / "nodes.csv").mkdir()


MISTAKES: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing file": (renamed, "did you mean node.csv"),
    "a folder": (replaced_by_a_folder, "got a folder"),
    "wrong column": (without("label"), "label"),
    "mixed types": (with_line("nodes.csv", "A500,many,u,yes\n"), "size"),
    "empty file": (with_bytes("nodes.csv", b""), "got an empty file"),
    "only a header": (with_bytes("nodes.csv", b"id,size,kind,label\n"), "nodes.csv"),
    "binary file": (with_bytes("nodes.csv", bytes(range(256)) * 8), "nodes.csv"),
    "other encoding": (with_bytes("nodes.csv", "id,label\nä,yes\nö,no\n".encode("latin-1")), "UTF-8"),
    "duplicate ids": (with_line("nodes.csv", "A001,1.0,u,yes\n"), "expected every id once, got 'A001'"),
    "unknown node": (with_line("edges.csv", "A001,A999\n"), "got 'A999'; --set on_error=skip leaves such rows out"),
    "no labels": (with_labels(None), "label"),
    "one class": (with_labels("yes"), "expected at least two classes, got yes"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_in_one_clear_line_and_leaves_nothing(mistake: str, tmp_path: Path, run: Run) -> None:
    change, text = MISTAKES[mistake]
    write(tmp_path, 60)
    change(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    files = (tmp_path / "nodes.csv", tmp_path / "edges.csv", "-t", "label")
    for verb, out in (("train", "model"), ("init", "config.toml")):
        code, output, error = run(verb, *files, "-o", tmp_path / out)
        last = error.rstrip().splitlines()[-1]
        assert (code, output, error.count("error:")) == (2, "", 1)
        assert last.startswith("error: ")
        assert text in last
        assert "Traceback" not in error
        assert {path.name for path in tmp_path.iterdir()} == before


def test_a_place_that_cannot_be_written_is_refused_before_the_training(folder: Path, tmp_path: Path, run: Run) -> None:
    files = (folder / "nodes.csv", folder / "edges.csv", "-t", "label")
    (tmp_path / "notes.txt").write_text("mine")
    code, _, error = run("train", *files, "-o", tmp_path)
    assert (code, "got one with 'notes.txt'" in error) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    # Nobody can make a folder here, not even root.
    code, _, error = run("train", *files, "-o", "/proc/model")
    assert (code, error.count("error:"), "epoch" in error) == (2, 1, False)


def test_a_wrong_model_or_option_is_refused_in_one_line(model: Path, folder: Path, tmp_path: Path, run: Run) -> None:
    files = (folder / "nodes.csv", folder / "edges.csv")
    for arguments, text in (
        (("predict", folder, *files), "without manifest.json"),
        (("predict", tmp_path / "nowhere", *files), "expected the folder of a model, got none"),
        (("predict", model, *files, "-o", tmp_path / "found.txt"), "ends in .csv, .parquet or .pq"),
        (("predict", model, *files, "-o", tmp_path / "no" / "found.csv"), "a folder that is there"),
        (("predict", model, *files, "--level", "1.5"), "level: expected a number between 0 and 1"),
        (("predict", model, folder / "nodes.csv"), "edges"),
        (("evaluate", model, tmp_path / "nodes.csv"), "expected a file, got none"),
        (("train", *files, "-t", "lable", "-o", tmp_path / "model"), "did you mean label"),
        (("train", *files, "-t", "label", "--preset", "god", "-o", tmp_path / "model"), "did you mean good"),
        (("train", *files, "-t", "label", "--time-limit", "soon"), "--time-limit: expected a time"),
        (("train", *files, "-t", "label", "--time-limit", "0m"), "--time-limit: expected more than no time"),
        (("train", *files, "-t", "label", "--set", "paper"), "--set: expected NAME=VALUE"),
        (("train", *files, "-t", "label", "--set", "directd=true"), "did you mean directed"),
        (("train", *files, "-t", "label", "--set", "directed=yes"), "expected true or false, got 'yes'"),
        (("train", *files, "-t", "label", "--set", "id.a=b"), "expected a name without a dot"),
    ):
        code, _, error = run(*arguments)
        assert (code, error.count("error:")) == (2, 1), arguments
        assert text in error
    assert list(tmp_path.iterdir()) == []


def limited() -> None:
    """Let no file of this process grow beyond a few KB, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))


def test_a_full_disk_leaves_the_old_files_and_nothing_half_written(model: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.csv"
    out.write_text("old")
    command = ["predict", str(model), "nodes.csv", "edges.csv", "-o", str(out)]
    found = subprocess.run(
        [sys.executable, "-m", "sirgcn.cli", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        preexec_fn=limited,
        timeout=LIMIT,
        check=False,
    )
    assert (found.returncode, found.stderr.count("error:")) == (2, 1), found.stderr
    assert "File too large" in found.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["found.csv"]
    assert out.read_text() == "old"


# The command line with a user who presses Ctrl-C in the first epoch of the second training, however busy the machine.
INTERRUPTED = """
import signal
from sirgcn import cli
from sirgcn.cli.watching import Watching

def epoch(watching, row, epochs, shown=Watching.epoch):
    shown(watching, row, epochs)
    if row["number"] == 2:
        signal.raise_signal(signal.SIGINT)

Watching.epoch = epoch
cli.main()
"""


def heeding() -> None:
    """Heed Ctrl-C, which a process that a shell has started in the background ignores, as do those that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_second_interrupt_does_not_break_the_clean_up_of_the_first() -> None:
    interrupt, quick = Interrupt(), Interrupt(patience=0.0)
    interrupt.check()
    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGINT, None)
    interrupt(signal.SIGINT, None)
    # The exception of the first may have been lost in a destructor.
    with pytest.raises(KeyboardInterrupt):
        interrupt.check()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            quick(signal.SIGINT, None)


def test_after_an_interrupt_the_same_command_goes_on(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        f'[data]\nnodes = "{folder / "nodes.csv"}"\nedges = "{folder / "edges.csv"}"\ntarget = "label"\n'
        "[train]\ncontrols = false\ntrain = { epochs = 5, warmup = 0 }\n"
    )
    arguments = ["train", "config.toml", "-o", "model"]
    options: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": LIMIT}
    stopped = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *arguments], preexec_fn=heeding, check=False, **options
    )
    assert stopped.returncode == 130, stopped.stderr
    assert stopped.stderr.splitlines()[-1] == "stopped; the same command goes on from here"
    assert "training 2 of 3: epoch 1" in stopped.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"config.toml", "model.work"}
    records = (tmp_path / "model.work" / "trials.jsonl").read_text().splitlines()
    found = subprocess.run([sys.executable, "-m", "sirgcn.cli", *arguments], check=False, **options)
    assert found.returncode == 0, found.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"config.toml", "model"}
    # What was finished is not trained again: its epochs are not shown.
    assert "training 1 of 3: epoch" not in found.stderr
    trials = json.loads((tmp_path / "model" / "training.json").read_text())["trials"]
    assert trials[0]["val_loss"] == json.loads(records[0])["val_loss"]


@pytest.mark.skipif(not has_rdkit(), reason="needs RDKit")
def test_molecules_go_from_one_file_to_predictions(tmp_path: Path, run: Run) -> None:
    molecules = ["C" * length + ending for length in range(1, 31) for ending in ("O", "N", "")]
    table = pd.DataFrame({"smiles": molecules, "weight": [len(text) + 0.5 for text in molecules]})
    # As in BBBP, whose published file has molecules that no chemist can draw.
    table.loc[[4, 7], "smiles"] = ["C1CC", "O=N([O-])C"]
    table.to_csv(tmp_path / "molecules.csv", index=False)
    (tmp_path / "config.toml").write_text(
        '[data]\nnodes = "molecules.csv"\ntarget = "weight"\n'
        '[train]\npreset = "fast"\ncontrols = false\ntrain = { epochs = 3, warmup = 0 }\n'
    )
    code, _, warnings = run("train", tmp_path / "config.toml", "-o", tmp_path / "model")
    assert (code, "2 bad rows left out; the reasons are in" in warnings) == (0, True), warnings
    assert "C1CC" in (tmp_path / "model.bad.csv").read_text()
    strict = ("train", tmp_path / "molecules.csv", "-t", "weight", "--set", "on_error=raise", "-o", tmp_path / "none")
    assert run(*strict)[0] == 2
    table.assign(smiles=["CCO", *["nothing"] * (len(table) - 1)]).to_csv(tmp_path / "odd.csv", index=False)
    code, _, error = run("train", tmp_path / "odd.csv", "-t", "weight", "--set", "smiles=smiles", "-o", tmp_path / "x")
    assert (code, "got 89 of 90 rows that are none, such as 'nothing'" in error) == (2, True), error
    (tmp_path / "new.csv").write_text("smiles,name\nCCO,a\nnothing,b\nCC,c\n")
    new = (tmp_path / "new.csv", "-o", tmp_path / "found.csv")
    code, _, warnings = run("predict", tmp_path / "model", *new)
    assert (code, "1 bad row left out" in warnings) == (0, True)
    assert pd.read_csv(tmp_path / "found.csv")["id"].tolist() == [1, 3]
    assert "nothing" in (tmp_path / "found.bad.csv").read_text()
    assert run("predict", tmp_path / "model", *new, "--strict")[0] == 2
