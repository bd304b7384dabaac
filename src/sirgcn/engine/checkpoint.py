"""Checkpoints: a training state on disk, whole or not at all, with the one before it kept.

A checkpoint is two files: `NUMBER.safetensors` with all tensors, and `NUMBER.json` with everything else, the sha256 of
the tensors' file and one of itself. The JSON is written last, so that a checkpoint exists once it does.
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

# Seconds for which a save waits for one of another process.
_PATIENCE = 60.0

# How a state's tensors are written in JSON: by the key under which the other file holds them.
_TENSOR = "$tensor"


class CheckpointError(RuntimeError):
    """A checkpoint that is not what was written."""


class Checkpoints:
    """The checkpoints of one training, in a folder of its own.

    Args:
        folder: where they are.
        keep: how many.
        of: the settings of the training, as JSON values: checkpoints that were written with others are not loaded. None
            stands for no settings, not for any; a `Trainer` puts its own in the place of None.
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
        """Keep other processes out of the folder meanwhile.

        Raises:
            Busy: one is in it for longer than so many seconds; says who.
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
        """Write a state of JSON values, tensors, dicts (with text or int keys), lists and tuples; drop the oldest."""
        with self.held(_PATIENCE):
            return self._save(state)

    def _save(self, state: dict[str, Any]) -> Path:
        number = max(self._numbers(), default=0) + 1
        tensors: dict[str, Tensor] = {}
        body = {"format": FORMAT, "of": self.of, "state": _flatten(state, tensors)}
        data = dump_safetensors(tensors)
        body["tensors_sha256"] = hashlib.sha256(data).hexdigest()
        body["sha256"] = _digest(body)
        path = self.folder / f"{number:08d}.json"
        write_atomic(path.with_suffix(".safetensors"), data)
        write_atomic(path, json.dumps(body).encode())
        for old in sorted(self._numbers())[: -self.keep]:
            # The JSON first: without it the other file is no checkpoint.
            for suffix in (".json", ".safetensors"):
                (self.folder / f"{old:08d}{suffix}").unlink(missing_ok=True)
        for part in self.folder.glob("*.part"):
            part.unlink(missing_ok=True)
        return path

    def load(self) -> dict[str, Any] | None:
        """The newest state that is whole and of this training, or None; others are passed over with a warning."""
        for number in sorted(self._numbers(), reverse=True):
            path = self.folder / f"{number:08d}.json"
            try:
                of, state = read(path)
            except CheckpointError as error:
                warnings.warn(f"{error}; the checkpoint before it is used, if there is one", stacklevel=2)
                continue
            if of == self.of:
                return state
            warnings.warn(f"{path}: of other settings or data; it is not used", stacklevel=2)
        return None

    def clear(self) -> None:
        """Remove all of them."""
        if self.folder.is_dir():
            for file in self.folder.iterdir():
                if file.suffix in (".json", ".safetensors", ".part"):
                    file.unlink(missing_ok=True)
            # What else is there is not ours.
            with suppress(OSError):
                self.folder.rmdir()

    def _numbers(self) -> list[int]:
        return [int(file.stem) for file in self.folder.glob("*.json") if file.stem.isdigit()]


def read(path: Path) -> tuple[Any, dict[str, Any]]:
    """The settings of one checkpoint's training and its state, if every byte is as it was written."""
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
        state: dict[str, Any] = _restore(body["state"], load_safetensors(data))
        return body.get("of"), state
    except CheckpointError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a whole checkpoint ({type(error).__name__}: {error})") from error


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _flatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        key = str(len(tensors))
        # A copy: safetensors refuses tensors that share memory.
        tensors[key] = value.detach().cpu().clone().contiguous()
        return {_TENSOR: key}
    if isinstance(value, dict):
        # Pairs, so that int keys (the optimiser's) stay int.
        return {"$dict": [[key, _flatten(entry, tensors)] for key, entry in value.items()]}
    if isinstance(value, list | tuple):
        kind = "$list" if isinstance(value, list) else "$tuple"
        return {kind: [_flatten(entry, tensors) for entry in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"state: expected JSON values and tensors, got {type(value).__name__}")


def _restore(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == _TENSOR:
        return tensors[content]
    if kind == "$dict":
        return {key: _restore(entry, tensors) for key, entry in content}
    entries = [_restore(entry, tensors) for entry in content]
    return entries if kind == "$list" else tuple(entries)


def random_state(generator: torch.Generator) -> dict[str, Any]:
    """The state of torch's generators and of one's own."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "generator": generator.get_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: dict[str, Any], generator: torch.Generator) -> None:
    """Put them back."""
    torch.set_rng_state(state["torch"])
    generator.set_state(state["generator"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def weights_sha256(model: nn.Module) -> str:
    """A hash of all weights and buffers: two runs that are equal bit for bit have the same."""
    return sha256_of("", {name: tensor.cpu() for name, tensor in model.state_dict().items()})
