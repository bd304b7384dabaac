"""A model in a folder: files that hold values and never code, and a manifest with their hashes."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load as load_safetensors
from safetensors.torch import save as dump_safetensors
from torch import Tensor

from sirgcn.data.tables import Preprocessing
from sirgcn.files import write_atomic
from sirgcn.model.fitted import Member, Model
from sirgcn.model.preparation import Preparation
from sirgcn.model.problem import Problem
from sirgcn.model.scaling import Scaling
from sirgcn.nn import NetConfig, build_net
from sirgcn.strict import from_dict

FORMAT = 1
"""The version of the format. A newer one is refused; older ones are read."""


class FolderError(ValueError):
    """A folder that is no whole model. The message names the folder, the file and what is wrong."""


def save(model: Model, folder: str | Path) -> Path:
    """Write a model into a folder, and return the folder.

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
    folder.mkdir(parents=True, exist_ok=True)
    files = _files(model)
    for name, data in files.items():
        write_atomic(folder / name, data)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    write_atomic(folder / "manifest.json", _json({"format": FORMAT, "sha256": hashes}))
    return folder


def load(folder: str | Path) -> Model:
    """Read a model from its folder. The hashes of its files are checked first, and nothing in it is run.

    Raises:
        FolderError: a file is missing, was changed, or is of a newer format.
    """
    files = _checked(Path(folder))
    config = json.loads(files["config.json"])
    tensors = load_safetensors(files["model.safetensors"])
    members = tuple(_member(data, place, tensors) for place, data in enumerate(config["members"]))
    scaling = None if config["scaling"] is None else from_dict(Scaling, config["scaling"], "scaling")
    preprocessing = None
    if "preprocess.json" in files:
        preprocessing = Preprocessing.from_json(files["preprocess.json"].decode())
    return Model(Problem.from_dict(config["problem"]), members, scaling, preprocessing)


def _files(model: Model) -> dict[str, bytes]:
    tensors: dict[str, Tensor] = {}
    for place, member in enumerate(model.members):
        state = member.network.state_dict()
        tensors |= {f"{place}.{name}": tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
    config = {
        "problem": model.problem.to_dict(),
        "members": [
            {"network": member.config.to_dict(), "preparation": vars(member.preparation)} for member in model.members
        ],
        "scaling": None if model.scaling is None else vars(model.scaling),
    }
    files = {"model.safetensors": dump_safetensors(tensors), "config.json": _json(config)}
    if model.preprocessing is not None:
        files["preprocess.json"] = model.preprocessing.to_json().encode()
    return files


def _member(config: Mapping[str, Any], place: int, tensors: Mapping[str, Tensor]) -> Member:
    made = NetConfig.from_dict(config["network"], f"members[{place}].network")
    preparation = from_dict(Preparation, config["preparation"], f"members[{place}].preparation")
    network = build_net(made)
    prefix = f"{place}."
    network.load_state_dict({name[len(prefix) :]: own for name, own in tensors.items() if name.startswith(prefix)})
    return Member(made, network.eval(), preparation)


def _checked(folder: Path) -> dict[str, bytes]:
    """The files of a folder, whose hashes are those of the manifest."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    if manifest["format"] > FORMAT:
        raise FolderError(f"{folder}: expected format {FORMAT} or older, got {manifest['format']}")
    files = {name: (folder / name).read_bytes() for name in manifest["sha256"]}
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != manifest["sha256"][name]:
            raise FolderError(f"{folder / name}: expected the content that was written, got another hash")
    return files


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False).encode()
