"""Checkpoints: the state of a training on disk. A checkpoint is written in full or not at all, and the last two stay.

A checkpoint consists of two files. `NUMBER.safetensors` has all tensors. `NUMBER.json` has everything else, the sha256
of the other file and one of itself. The JSON file is written last, and the checkpoint exists as soon as it does.
"""

import hashlib
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as dump_safetensors
from torch import Tensor, nn

from sirgcn.data.graphs import sha256_of
from sirgcn.engine.locks import held
from sirgcn.files import write_atomic
from sirgcn.strict import ConfigError
from sirgcn.strict import read as read_setting

FORMAT = 1

# How many seconds a save waits for another process that is saving.
_PATIENCE = 60.0

# A tensor in the JSON file is written as this key with the tensor's name in the other file.
_TENSOR = "$tensor"


class CheckpointError(RuntimeError):
    """A checkpoint that is damaged or incomplete."""


class Checkpoints:
    """The checkpoints of one training, in a folder of their own.

    Args:
        folder: the folder.
        keep: how many checkpoints are kept.
        of: the identity of the training, as JSON values. Checkpoints that were written with another identity are not
            loaded. None is an identity of its own and does not match others. A `Trainer` replaces None by the identity
            of its training.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     checkpoints = Checkpoints(folder, of={"lr": 0.1})
    ...     _ = checkpoints.save({"epoch": 3, "weights": torch.ones(2)})
    ...     checkpoints.load()
    {'epoch': 3, 'weights': tensor([1., 1.])}
    """

    def __init__(self, folder: str | Path, keep: int = 2, of: Any = None) -> None:
        self.folder = Path(folder)
        self.keep = read_setting(int, keep, "keep")
        if self.keep < 1:
            raise ConfigError(f"keep: expected at least 1, got {keep}")
        self.of = json.loads(json.dumps(of))
        self._is_held = False

    @contextmanager
    def held(self, patience: float = 0.0) -> Iterator[None]:
        """Keep other processes out of the folder while the context is open.

        Raises:
            Busy: another process uses the folder for longer than `patience` seconds. The error says which.
        """
        if self._is_held:
            yield
            return
        with held(self.folder / "lock", patience):
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False

    def save(self, state: dict[str, Any]) -> Path:
        """Write a state and drop old checkpoints.

        A state has JSON values, tensors, dicts with text or int keys, lists and tuples.
        """
        with self.held(_PATIENCE):
            return self._save(state)

    def _save(self, state: dict[str, Any]) -> Path:
        number = max(self._numbers(), default=0) + 1
        values, data = packed(state)
        body = {"format": FORMAT, "of": self.of, "state": values}
        body["tensors_sha256"] = hashlib.sha256(data).hexdigest()
        body["sha256"] = _digest(body)
        path = self.folder / f"{number:08d}.json"
        write_atomic(path.with_suffix(".safetensors"), data)
        write_atomic(path, json.dumps(body).encode())
        for old in sorted(self._numbers())[: -self.keep]:
            # The JSON file first: without it there is no checkpoint.
            for suffix in (".json", ".safetensors"):
                (self.folder / f"{old:08d}{suffix}").unlink(missing_ok=True)
        for part in self.folder.glob("*.part"):
            part.unlink(missing_ok=True)
        return path

    def load(self) -> dict[str, Any] | None:
        """The newest state that is undamaged and of this training, or None. Others are skipped with a warning."""
        for number in sorted(self._numbers(), reverse=True):
            path = self.folder / f"{number:08d}.json"
            try:
                of, state = read(path)
            except CheckpointError as error:
                warnings.warn(f"{error}; the checkpoint before it is used if there is one", stacklevel=2)
                continue
            if of == self.of:
                return state
            warnings.warn(f"{path}: of other settings or data; it is not used", stacklevel=2)
        return None

    def clear(self) -> None:
        """Remove all checkpoints. Other files in the folder stay."""
        if self.folder.is_dir():
            for file in self.folder.iterdir():
                if file.suffix in (".json", ".safetensors", ".part"):
                    file.unlink(missing_ok=True)
            # The folder stays if it has other files.
            with suppress(OSError):
                self.folder.rmdir()

    def _numbers(self) -> list[int]:
        return [int(file.stem) for file in self.folder.glob("*.json") if file.stem.isdigit()]


def read(path: Path) -> tuple[Any, dict[str, Any]]:
    """The identity of the training of one checkpoint, and its state.

    Raises:
        CheckpointError: a file is missing, or a byte differs from what was written.
    """
    try:
        text = path.read_bytes()
        body = json.loads(text)
        # Bytes that JSON reads alike, such as 1e-05 and 1E-05, have the same digest.
        is_as_written = text == json.dumps(body).encode()
        digest = body.pop("sha256")
        if not is_as_written or digest != _digest(body):
            raise CheckpointError(f"{path}: expected the content that was written, got another hash")
        if body["format"] != FORMAT:
            raise CheckpointError(f"{path}: expected format {FORMAT}, got {body['format']}")
        data = path.with_suffix(".safetensors").read_bytes()
        if hashlib.sha256(data).hexdigest() != body["tensors_sha256"]:
            raise CheckpointError(
                f"{path.with_suffix('.safetensors')}: expected the content that was written, got another hash"
            )
        return body.get("of"), unpacked(body["state"], data)
    except CheckpointError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a whole checkpoint ({type(error).__name__}: {error})") from error


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def packed(state: dict[str, Any]) -> tuple[Any, bytes]:
    """A state as JSON values that name its tensors, and these tensors as safetensors. Neither holds code.

    >>> values, data = packed({"epoch": 3, "weights": torch.ones(2)})
    >>> unpacked(values, data)
    {'epoch': 3, 'weights': tensor([1., 1.])}
    """
    tensors: dict[str, Tensor] = {}
    values = _flatten(state, tensors)
    return values, dump_safetensors(tensors)


def unpacked(values: Any, data: bytes) -> dict[str, Any]:
    """The state that `packed` was given."""
    state: dict[str, Any] = _restore(values, load_safetensors(data))
    return state


def _flatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        key = str(len(tensors))
        # A copy, because safetensors refuses tensors that share memory.
        tensors[key] = value.detach().cpu().clone().contiguous()
        return {_TENSOR: key}
    if isinstance(value, dict):
        # As pairs, so that the int keys of the optimiser's state stay int.
        return {"$dict": [[key, _flatten(entry, tensors)] for key, entry in value.items()]}
    if isinstance(value, list | tuple):
        tag = "$list" if isinstance(value, list) else "$tuple"
        return {tag: [_flatten(entry, tensors) for entry in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"state: expected JSON values and tensors, got {type(value).__name__}")


def _restore(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == _TENSOR:
        return tensors[content]
    if tag == "$dict":
        return {key: _restore(entry, tensors) for key, entry in content}
    entries = [_restore(entry, tensors) for entry in content]
    return entries if tag == "$list" else tuple(entries)


def random_state(generator: torch.Generator) -> dict[str, Any]:
    """The state of torch's generators and of another generator."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "generator": generator.get_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: dict[str, Any], generator: torch.Generator) -> None:
    """Restore what `random_state` returned."""
    torch.set_rng_state(state["torch"])
    generator.set_state(state["generator"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def weights_sha256(model: nn.Module) -> str:
    """A hash of all weights and buffers. Two runs that are equal bit for bit have the same hash."""
    return sha256_of("", {name: tensor.cpu() for name, tensor in model.state_dict().items()})
