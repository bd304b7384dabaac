"""Settings read strictly: TOML's or JSON's values as frozen dataclasses, by their annotations."""

import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


class ConfigError(ValueError):
    """A setting that cannot be used: the file, the key, what was expected and what came."""


def check_name(what: str, name: str, known: Iterable[str], also: str = "") -> None:
    """Refuse a name that is not known with those that are, and the nearest of them; letter case makes no difference."""
    titles = {title.lower(): title for title in known}
    if name.lower() not in titles:
        near = get_close_matches(name.lower(), titles, 1)
        hint = f"; did you mean {titles[near[0]]}?" if near else ""
        raise ConfigError(f"{what}: expected {also}one of {', '.join(titles.values())}, got {name!r}{hint}")


def changed(config: Any, changes: Mapping[str, Any], where: str) -> Any:
    """A dataclass with some of its fields changed, as strictly as it is read."""
    hints = get_type_hints(type(config))
    _check_keys(changes, hints, where)
    return replace(config, **{key: _read(hints[key], value, f"{where}.{key}") for key, value in changes.items()})


def from_dict(cls: Any, data: Mapping[str, Any], where: str) -> Any:
    """A dataclass from TOML's or JSON's values: an unknown key, an absent one and a wrong type are refused by name."""
    hints = get_type_hints(cls)
    _check_keys(data, hints, where)
    for entry in fields(cls):
        if entry.default is MISSING and entry.default_factory is MISSING and entry.name not in data:
            raise ConfigError(f"{where}: {entry.name} is not set")
    values = {key: _read(hints[key], value, f"{where}: {key}") for key, value in data.items()}
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _check_keys(data: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    for key in data:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; known are {', '.join(known)}")


def _read(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: expected a table, got {value!r}")
        return from_dict(kind, value, where)
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{where}: expected one of {', '.join(map(str, arguments))}, got {value!r}")
        return value
    if origin in (Union, types.UnionType):
        # TOML has no null: a key that is None by default is left out, or set to "none".
        if value in (None, "none") and type(None) in arguments:
            return None
        (kind,) = (argument for argument in arguments if argument is not type(None))
        return _read(kind, value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where}: expected a list, got {value!r}")
        return tuple(_read(arguments[0], entry, f"{where}[{i}]") for i, entry in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: expected a table, got {value!r}")
        return dict(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{where}: expected {kind.__name__}, got {value!r}")
    return value
