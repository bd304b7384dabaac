"""A model's folder: whole or not at all, verified before it is read, and readable for years."""

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sirgcn import files
from sirgcn.model import FolderError, Model, load, predict, rewrite, save
from sirgcn.model.verified import MANIFEST, as_json, manifest_of
from tests.model import corrupt

FIRST = Path(__file__).parent / "format_1"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folder") / "model"
    corrupt.make(folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of the folder of a model."""
    made = tmp_path / "model"
    made.mkdir()
    for path in whole.iterdir():
        (made / path.name).write_bytes(path.read_bytes())
    return made


def sign(folder: Path) -> None:
    """Write the manifest anew, as somebody with bad intentions would."""
    names = sorted(path.name for path in folder.iterdir() if path.name != MANIFEST)
    contents = {name: (folder / name).read_bytes() for name in names}
    (folder / MANIFEST).write_bytes(manifest_of(contents))


def changed(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change the JSON value in a file, and sign the folder."""
    found = json.loads((folder / name).read_bytes())
    change(found)
    (folder / name).write_bytes(as_json(found))
    sign(folder)


def equal(one: Model, other: Model) -> None:
    assert one.problem == other.problem
    assert one.scaling == other.scaling
    assert one.preprocessing == other.preprocessing
    assert one.calibration == other.calibration
    assert json.loads(json.dumps(one.about)) == json.loads(json.dumps(other.about))
    for a, b in zip(one.members, other.members, strict=True):
        assert (a.config, a.preparation) == (b.config, b.preparation)
        weights = b.network.state_dict()
        assert all(torch.equal(tensor, weights[name]) for name, tensor in a.network.state_dict().items())


def test_a_model_comes_back_equal_and_loading_draws_no_numbers(whole: Path, tmp_path: Path) -> None:
    model = load(whole)
    state = torch.get_rng_state()
    again = load(save(model, tmp_path / "again"))
    assert torch.equal(torch.get_rng_state(), state)
    equal(model, again)


def test_damaged_folders_are_never_loaded_silently(folder: Path) -> None:
    assert corrupt.damage_all(folder, flips=50, truncations=20, seed=0)["silent"] == 0


def test_a_folder_of_the_first_format_predicts_what_it_predicted() -> None:
    model = load(FIRST / "model")
    found = predict(model, FIRST / "nodes.csv", FIRST / "edges.csv", level=0.8)
    expected = pd.read_csv(FIRST / "expected.csv")
    assert list(found.columns) == list(expected.columns)
    assert found["id"].tolist() == expected["id"].tolist()
    assert found["prediction"].tolist() == expected["prediction"].tolist()
    assert found["set"].tolist() == expected["set"].tolist()
    for name in ("probability_no", "probability_yes"):
        # Other machines and versions of torch multiply in another order.
        assert found[name].to_numpy() == pytest.approx(expected[name].to_numpy(), abs=1e-4)


def refused(folder: Path) -> str:
    with pytest.raises(FolderError) as found:
        load(folder)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_missing_changed_and_extra_files_are_named(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    assert "notes.txt: expected only the files of manifest.json" in refused(folder)
    (folder / "notes.txt").unlink()
    (folder / "README.md").write_text("mine")
    assert "README.md: expected the content that was written" in refused(folder)
    (folder / "README.md").unlink()
    assert "README.md: expected the file, got none" in refused(folder)
    (folder / MANIFEST).unlink()
    assert "without manifest.json" in refused(folder)
    assert "got none" in refused(folder / "nowhere")


def test_links_pipes_and_folders_are_refused_before_they_are_opened(folder: Path, tmp_path: Path) -> None:
    path = folder / "README.md"
    (tmp_path / "elsewhere.md").write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere.md")
    assert "expected a plain file, got a link" in refused(folder)
    path.unlink()
    os.mkfifo(path)
    assert "expected a plain file" in refused(folder)
    path.unlink()
    path.mkdir()
    assert "expected a plain file" in refused(folder)


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/passwd", "more/config.json", "run.py", "CONFIG.JSON", ""])
def test_a_manifest_names_no_file_elsewhere(folder: Path, name: str) -> None:
    changed_manifest = json.loads((folder / MANIFEST).read_bytes())
    changed_manifest["sha256"][name] = "0" * 64
    (folder / MANIFEST).write_bytes(as_json(changed_manifest))
    assert "expected names among" in refused(folder)


@pytest.mark.parametrize("number", [2, 0, -1, "1", 1.0, True, None, 10**30])
def test_another_format_is_refused(folder: Path, number: Any) -> None:
    found = json.loads((folder / MANIFEST).read_bytes())
    (folder / MANIFEST).write_bytes(as_json(found | {"format": number}))
    assert "expected format 1" in refused(folder)


class Bomb:
    """A pickle of it would make a file where it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "calibration.json", "history.jsonl"])
def test_a_pickle_under_a_safe_name_is_refused_and_not_run(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / name).write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    sign(folder)
    assert name in refused(folder)
    assert not (tmp_path / "ran").exists()


def test_huge_numbers_are_refused_before_anything_is_allocated(folder: Path) -> None:
    def widen(key: str, part: str, value: Any) -> Callable[[Any], None]:
        def change(found: Any) -> None:
            network = found["members"][0]["network"]
            (network[part] if part else network)[key] = value

        return change

    for key, part in (("channels", "block"), ("layers", "block"), ("in_channels", ""), ("pe_dim", "context")):
        for value in (10**9, 2**62, 10**30):
            whole = (folder / "config.json").read_bytes()
            changed(folder, "config.json", widen(key, part, value))
            assert "expected" in refused(folder)
            (folder / "config.json").write_bytes(whole)
    # The networks have other shapes than the weights, within what the file could hold.
    changed(folder, "config.json", widen("channels", "block", 16))
    assert "model.safetensors: expected 0." in refused(folder)


def test_a_header_that_promises_more_than_the_file_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    headers: list[Any] = [
        {"0.x": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}},
        {"0.x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"0.x": {"dtype": "X9", "shape": [1], "data_offsets": [0, 4]}},
        {"0.x": [1, 2]},
        {},
        [],
    ]
    for header in headers:
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 4)
        sign(folder)
        assert "model.safetensors" in refused(folder)
    path.write_bytes(struct.pack("<Q", 2**63) + b"{}")
    sign(folder)
    assert "got another beginning" in refused(folder)


def test_wrong_types_are_refused_in_one_line(folder: Path) -> None:
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    cases: list[tuple[str, Any]] = [
        ("config.json", []),
        ("config.json", {"problem": 1}),
        ("config.json", {"problem": {}, "members": [], "scaling": None}),
        ("config.json", {**json.loads(kept["config.json"]), "members": {}}),
        ("config.json", {**json.loads(kept["config.json"]), "members": [1]}),
        ("config.json", {**json.loads(kept["config.json"]), "scaling": {"mean": [0.0], "scale": [0.0]}}),
        ("preprocess.json", {"version": 99}),
        ("calibration.json", {"sort": "numbers"}),
        ("calibration.json", []),
        ("splits.json", []),
        ("training.json", 5),
        ("evaluation.json", "x"),
    ]
    for name, value in cases:
        (folder / name).write_bytes(as_json(value))
        sign(folder)
        assert name in refused(folder)
        (folder / name).write_bytes(kept[name])
    for name, data in (("history.jsonl", b"[1]\n"), ("config.json", b"[" * 10**5), ("config.json", b'{"a": NaN}')):
        (folder / name).write_bytes(data)
        sign(folder)
        assert name in refused(folder)
        (folder / name).write_bytes(kept[name])


def test_files_of_another_task_are_refused(folder: Path) -> None:
    changed(folder, "preprocess.json", lambda found: found["classes"].append("z"))
    assert "preprocess.json: expected the task of config.json" in refused(folder)


def test_a_new_folder_replaces_an_old_one_whole(folder: Path) -> None:
    model = load(folder)
    save(model, folder)
    assert not (folder / "report.html").exists()
    rewrite(folder, {"report.html": b"<p>new</p>"})
    assert load(folder).problem == model.problem
    assert (folder / "report.html").read_bytes() == b"<p>new</p>"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    with pytest.raises(FolderError, match=r"expected one of .*report.html"):
        rewrite(folder, {"run.py": b""})


def test_a_folder_with_something_else_is_never_replaced(whole: Path, tmp_path: Path) -> None:
    model = load(whole)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FolderError, match=r"got one with 'thesis.tex'"):
        save(model, tmp_path)
    save(model, tmp_path / "model")
    (tmp_path / "model" / "notes.txt").write_text("mine")
    with pytest.raises(FolderError, match=r"got 'notes.txt'; move it away"):
        save(model, tmp_path / "model")
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="got a file"):
        save(model, tmp_path / "file")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("atomic", [True, False])
def test_a_write_that_fails_anywhere_leaves_the_old_folder(
    folder: Path, error: BaseException, atomic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(folder)
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    if not atomic:
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    real, rename = os.fsync, Path.rename
    for failing in range(9):
        calls = 0

        def broken(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > failing:  # noqa: B023
                raise error
            return real(*arguments)

        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(type(error)):
            save(model, folder)
        monkeypatch.setattr(os, "fsync", real)
        names = {path.name for path in folder.parent.iterdir()}
        assert names == {"model"}
        found = {path.name: path.read_bytes() for path in folder.iterdir()}
        # The last call comes after the two folders have changed places.
        assert found == kept or load(folder).problem == model.problem
    assert Path.rename is rename


def test_ids_in_the_split_are_those_of_the_tables(whole: Path) -> None:
    split = load(whole).about["split"]
    parts = [split[part] for part in ("train", "val", "calibration", "test")]
    assert sorted(int(name) for part in parts for name in part) == list(range(200))
    assert np.array([len(part) for part in parts]).tolist() == [120, 20, 20, 40]
