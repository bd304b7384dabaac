"""A model in a folder: files that hold values and never code, and a manifest with their hashes."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sirgcn.data.tables import Preprocessing
from sirgcn.files import write_folder
from sirgcn.model.calibration import Calibration
from sirgcn.model.fitted import Model
from sirgcn.model.members import members_to_dict, read_members, weights_of
from sirgcn.model.problem import Problem
from sirgcn.model.scaling import Scaling
from sirgcn.model.verified import (
    MANIFEST,
    OPTIONAL,
    REQUIRED,
    FolderError,
    as_json,
    complaining,
    manifest_of,
    parse,
    parse_lines,
    read_files,
)
from sirgcn.strict import from_dict

# Where each part of `Model.about` is written. The rest is in training.json.
_OWN_FILES = {"split": "splits.json", "evaluation": "evaluation.json", "history": "history.jsonl"}


def save(model: Model, folder: str | Path, pages: Mapping[str, bytes] | None = None) -> Path:
    """Write a model into a folder completely or not at all, and return the folder. An older model there is replaced.

    Args:
        model: the model.
        folder: a new folder, an empty one, or one with a model.
        pages: files for a reader: `predictions.csv`, `README.md`, `report.html`.

    Raises:
        FolderError: the folder holds something else.
        OSError: the folder cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> from sirgcn.model.fitting import FitSettings, fit
    >>> nodes = pd.DataFrame({"id": range(20), "size": [1.0, 2.0] * 10, "label": ["x", "y"] * 10})
    >>> edges = pd.DataFrame({"source": range(18), "target": range(2, 20)})
    >>> model = fit(load_tables(nodes, edges), FitSettings("fast"))
    >>> with TemporaryDirectory() as folder:
    ...     len(load(save(model, folder)).members)
    1
    """
    folder = Path(folder)
    check_place(folder)
    files = _files(model) | dict(pages or {})
    write_folder(folder, files | {MANIFEST: manifest_of(files)})
    return folder


def check_place(folder: Path) -> None:
    """Raise if a model must not be written to this folder, because it holds something that is no model.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     check_place(Path(folder))
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FolderError(f"{folder}: expected a new folder or one with a model, got a file")
    names = {path.name for path in folder.iterdir()}
    strange = sorted(names - {MANIFEST, *REQUIRED, *OPTIONAL})
    if names and MANIFEST not in names:
        raise FolderError(f"{folder}: expected a new folder or one with a model, got one with {min(names)!r}")
    if strange:
        raise FolderError(f"{folder}: expected a folder with nothing but a model, got {strange[0]!r}; move it away")


def rewrite(folder: str | Path, pages: Mapping[str, bytes]) -> None:
    """Write pages of a model's folder anew, such as `report.html`, and the manifest with them.

    Raises:
        FolderError: the folder is no whole model, or a page is no page of it.

    >>> from tempfile import TemporaryDirectory
    >>> from sirgcn.data import load as load_task
    >>> from sirgcn.model import FitSettings, fit
    >>> task = load_task("hetero_edge_count", c=2, num_graphs=20)
    >>> model = fit(task, FitSettings("fast", train={"epochs": 1, "warmup": 0}))
    >>> with TemporaryDirectory() as parent:
    ...     _ = save(model, f"{parent}/model")
    ...     rewrite(f"{parent}/model", {"report.html": b"<p>anew</p>"})
    ...     (Path(parent) / "model" / "report.html").read_text()
    '<p>anew</p>'
    """
    folder = Path(folder)
    for name in pages:
        if name not in OPTIONAL:
            raise FolderError(f"{folder / name}: expected one of {', '.join(OPTIONAL)}")
    files = read_files(folder) | dict(pages)
    write_folder(folder, files | {MANIFEST: manifest_of(files)})


def load(folder: str | Path) -> Model:
    """Read a model from its folder. The hashes of its files are checked first, and nothing in it is run.

    Raises:
        FolderError: a file is missing, was changed, or is of a newer format.

    >>> from tempfile import TemporaryDirectory
    >>> from sirgcn.data import load as load_task
    >>> from sirgcn.model import FitSettings, fit
    >>> task = load_task("hetero_edge_count", c=2, num_graphs=20)
    >>> model = fit(task, FitSettings("fast", train={"epochs": 1, "warmup": 0}))
    >>> with TemporaryDirectory() as parent:
    ...     _ = save(model, f"{parent}/model")
    ...     load(f"{parent}/model").problem == model.problem
    True
    """
    folder = Path(folder)
    files = read_files(folder)
    config = parse(folder / "config.json", files["config.json"])
    with complaining(folder / "config.json"):
        if set(config) != {"problem", "members", "scaling"}:
            raise FolderError(f"{folder / 'config.json'}: expected the keys problem, members and scaling")
        problem = Problem.from_dict(config["problem"])
        scaling = None if config["scaling"] is None else from_dict(Scaling, config["scaling"], "scaling")
        members = read_members(folder, config["members"], files["model.safetensors"])
    model = Model(problem, members, scaling, _preprocessing(folder, files), _about(folder, files))
    model = _calibrated(folder, files, model)
    _check_parts(folder, model)
    return model


def _files(model: Model) -> dict[str, bytes]:
    config = {
        "problem": model.problem.to_dict(),
        "members": members_to_dict(model.members),
        "scaling": None if model.scaling is None else asdict(model.scaling),
    }
    about = model.about
    history = [as_json(row).replace(b"\n", b"") + b"\n" for row in about.get("history", [])]
    files = {
        "model.safetensors": weights_of(model.members),
        "config.json": as_json(config),
        "splits.json": as_json(about.get("split", {})),
        "history.jsonl": b"".join(history),
        "training.json": as_json({name: value for name, value in about.items() if name not in _OWN_FILES}),
    }
    if "evaluation" in about:
        files["evaluation.json"] = as_json(about["evaluation"])
    if model.preprocessing is not None:
        files["preprocess.json"] = model.preprocessing.to_json().encode()
    if model.calibration is not None:
        files["calibration.json"] = as_json(model.calibration.to_dict())
    return files


def _preprocessing(folder: Path, files: Mapping[str, bytes]) -> Preprocessing | None:
    if "preprocess.json" not in files:
        return None
    with complaining(folder / "preprocess.json"):
        return Preprocessing.from_json(files["preprocess.json"].decode())


def _calibrated(folder: Path, files: Mapping[str, bytes], model: Model) -> Model:
    if "calibration.json" not in files:
        return model
    path = folder / "calibration.json"
    found = parse(path, files["calibration.json"])
    with complaining(path):
        return replace(model, calibration=Calibration.from_dict(found))


def _about(folder: Path, files: Mapping[str, bytes]) -> dict[str, Any]:
    about: dict[str, Any] = parse(folder / "training.json", files["training.json"])
    if not isinstance(about, dict):
        raise FolderError(f"{folder / 'training.json'}: expected an object")
    for name in ("split", "evaluation"):
        file = _OWN_FILES[name]
        if file in files:
            about[name] = parse(folder / file, files[file])
            if not isinstance(about[name], dict):
                raise FolderError(f"{folder / file}: expected an object")
    about["history"] = parse_lines(folder / "history.jsonl", files["history.jsonl"])
    if not all(isinstance(row, dict) for row in about["history"]):
        raise FolderError(f"{folder / 'history.jsonl'}: expected an object in each line")
    return about


def _check_parts(folder: Path, model: Model) -> None:
    """Raise for parts that are whole and do not belong together."""
    problem, preprocessing = model.problem, model.preprocessing
    for member in model.members:
        if member.config.out_channels != problem.schema.outputs:
            raise FolderError(f"{folder / 'config.json'}: expected networks with {problem.schema.outputs} outputs")
    if model.scaling is not None and len(model.scaling.mean) != problem.schema.outputs:
        raise FolderError(f"{folder / 'config.json'}: expected a scaling of {problem.schema.outputs} targets")
    if preprocessing is not None:
        own = (preprocessing.level, preprocessing.targets, preprocessing.classes)
        if own != (problem.level, problem.targets, problem.classes):
            raise FolderError(f"{folder / 'preprocess.json'}: expected the task of config.json, got another one")
