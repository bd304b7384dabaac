"""The networks of a model as one safetensors file and a part of `config.json`, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as dump_safetensors
from torch import Tensor

from sirgcn.model.fitted import Member
from sirgcn.model.preparation import Preparation
from sirgcn.model.verified import FolderError, check_numbers, tensor_shapes
from sirgcn.nn import NetConfig, build_net
from sirgcn.strict import from_dict

_DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.int32: "I32", torch.bool: "BOOL"}


def members_to_dict(members: Sequence[Member]) -> list[dict[str, Any]]:
    """What the networks are made of and how graphs are prepared for them, as JSON values."""
    return [{"network": member.config.to_dict(), "preparation": asdict(member.preparation)} for member in members]


def weights_of(members: Sequence[Member]) -> bytes:
    """The bytes of a safetensors file with the weights of all networks: `0.name`, `1.name`, ..."""
    tensors: dict[str, Tensor] = {}
    for place, member in enumerate(members):
        state = member.network.state_dict()
        tensors |= {f"{place}.{name}": tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
    return dump_safetensors(tensors)


def read_members(folder: Path, found: Any, data: bytes) -> tuple[Member, ...]:
    """The networks that `members_to_dict` and `weights_of` wrote.

    A network is made only after the file of weights is seen to have the shapes that its configuration says.

    Args:
        folder: the folder of the model, for errors.
        found: what `members_to_dict` returned, through a file.
        data: the bytes of the weights.

    Raises:
        FolderError: weights are missing, too many, or of another shape.
    """
    path = folder / "model.safetensors"
    if not isinstance(found, list) or not found:
        raise FolderError(f"{folder / 'config.json'}: expected a list of at least one network")
    shapes = tensor_shapes(path, data)
    check_numbers(folder / "config.json", found, len(data), len(shapes))
    parts = [_parts(entry, f"members[{place}]") for place, entry in enumerate(found)]
    known: set[str] = set()
    for place, (config, _) in enumerate(parts):
        # A tensor on the device "meta" has a shape and takes no memory.
        with torch.device("meta"):
            expected = build_net(config).state_dict()
        for name, tensor in expected.items():
            wanted = (_DTYPES[tensor.dtype], tuple(tensor.shape))
            if shapes.get(f"{place}.{name}") != wanted:
                got = shapes.get(f"{place}.{name}", "none")
                raise FolderError(f"{path}: expected {place}.{name} of {wanted}, got {got}")
        known |= {f"{place}.{name}" for name in expected}
    if set(shapes) != known:
        raise FolderError(f"{path}: expected the weights of the networks of config.json and no others")
    tensors = load_safetensors(data)
    return tuple(_member(config, step, place, tensors) for place, (config, step) in enumerate(parts))


def _parts(entry: Mapping[str, Any], where: str) -> tuple[NetConfig, Preparation]:
    if set(entry) != {"network", "preparation"}:
        raise ValueError(f"{where}: expected the keys network and preparation")
    config = NetConfig.from_dict(entry["network"], f"{where}.network")
    preparation: Preparation = from_dict(Preparation, entry["preparation"], f"{where}.preparation")
    return config, preparation


def _member(config: NetConfig, preparation: Preparation, place: int, tensors: Mapping[str, Tensor]) -> Member:
    # The first weights are drawn, and the caller's generator must not notice.
    with torch.random.fork_rng(devices=()):
        network = build_net(config)
    prefix = f"{place}."
    network.load_state_dict({name[len(prefix) :]: own for name, own in tensors.items() if name.startswith(prefix)})
    return Member(config, network.eval(), preparation)
