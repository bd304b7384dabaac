"""One strict reader for settings, wherever they enter: TOML, JSON, or arguments in Python.

Values are read by type annotations. A wrong type, an unknown name and an unknown key are refused with the place of the
setting, what was expected and what came. Nothing is guessed: the text "no" is not a truth value.
"""

import inspect
import math
import operator
import os
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache, partial, wraps
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class ConfigError(ValueError):
    """A setting that cannot be used: the file, the key, what was expected and what came."""


@dataclass(frozen=True)
class Between:
    """A range for an annotated number, both ends included: `Annotated[int, Between(1)]`.

    >>> read(Annotated[int, Between(1)], 0, "heads")
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: heads: expected at least 1, got 0
    """

    least: float
    most: float = math.inf

    def check(self, value: float, where: str) -> None:
        """Refuse a number outside; NaN lies nowhere."""
        if self.least <= value <= self.most:
            return
        if math.isinf(self.most):
            raise ConfigError(f"{where}: expected at least {self.least}, got {value}")
        raise ConfigError(f"{where}: expected a number from {self.least} to {self.most}, got {value}")


Count = Annotated[int, Between(0)]
"""How many there are of something that may be absent."""

Size = Annotated[int, Between(1)]
"""A width, a number of layers or of heads."""

Probability = Annotated[float, Between(0, 1)]
"""Of dropout, say."""


def check_name(what: str, name: str, known: Iterable[str], also: str = "") -> None:
    """Refuse a name that is not known with those that are, and the nearest of them; letter case makes no difference."""
    titles = {title.lower(): title for title in known}
    if name.lower() not in titles:
        hint = _nearest(name, titles.values())
        raise ConfigError(f"{what}: expected {also}one of {', '.join(titles.values())}, got {name!r}{hint}")


def changed(config: Any, changes: Mapping[str, Any], where: str) -> Any:
    """A dataclass with some of its fields changed, as strictly as it is read."""
    hints = get_type_hints(type(config))
    _check_keys(changes, hints, where)
    return replace(config, **{key: read(hints[key], value, f"{where}.{key}") for key, value in changes.items()})


def from_dict(cls: Any, data: Mapping[str, Any], where: str) -> Any:
    """A dataclass from TOML's or JSON's values: an unknown key, an absent one and a wrong type are refused by name."""
    hints = get_type_hints(cls)
    _check_keys(data, hints, where)
    for entry in fields(cls):
        if entry.default is MISSING and entry.default_factory is MISSING and entry.name not in data:
            raise ConfigError(f"{where}: {entry.name} is not set")
    values = {key: read(hints[key], value, f"{where}: {key}") for key, value in data.items()}
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def check_fields(config: Any) -> None:
    """Read every field of a dataclass by its annotation; for the `__post_init__` of a dataclass built in Python.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     shuffle: bool = True
    ...
    ...     def __post_init__(self) -> None:
    ...         check_fields(self)
    >>> Settings(shuffle="no")
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: shuffle: expected true or false, got 'no'
    """
    hints = get_type_hints(type(config))
    for entry in fields(config):
        value = getattr(config, entry.name)
        # A frozen dataclass can be written to only this way, and a float may have been given as an int.
        object.__setattr__(config, entry.name, read(hints[entry.name], value, entry.name))


def check_arguments(function: Callable[..., Any], values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """A function's arguments by name, each read by its annotation; those without one are as they were.

    Arguments come from Python, which has None: the text "none" is text.
    """
    hints = _hints(_annotated(function))
    found = {}
    for name, value in values.items():
        hint = hints.get(name, Any)
        if isinstance(value, str) and value == "none" and type(None) in get_args(hint):
            hint = Union[tuple(choice for choice in get_args(hint) if choice is not type(None))]  # noqa: UP007
        found[name] = read(hint, value, f"{where}{name}")
    return found


def checked(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function with its arguments read by their annotations at every call.

    >>> @checked
    ... def draw(count: int, shuffle: bool = True) -> int:
    ...     return count
    >>> draw(3, shuffle="no")
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: shuffle: expected true or false, got 'no'
    """
    signature = inspect.signature(function)
    # Each of **options is none of the function's own arguments.
    options = {name for name, entry in signature.parameters.items() if entry.kind is entry.VAR_KEYWORD}

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        bound = signature.bind(*args, **kwargs)
        own = {name: value for name, value in bound.arguments.items() if name not in options}
        bound.arguments |= check_arguments(function, own)
        return function(*bound.args, **bound.kwargs)

    return call


_hints = cache(partial(get_type_hints, include_extras=True))


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """What bears the annotations of a call's arguments: of a class its constructor."""
    inside = function.func if isinstance(function, partial) else function
    return inside.__init__ if isinstance(inside, type) else inside  # type: ignore[misc]


def read(hint: Any, value: Any, where: str) -> Any:
    """The value as the annotation has it, or a `ConfigError` that names the place.

    A whole number is whatever `operator.index` takes, except a truth value; a float may be written as a whole number.

    >>> read(bool, "no", "directed")
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: directed: expected true or false, got 'no'
    >>> read(int | None, "none", "clip") is None
    True
    """
    if hint is Any:
        return value
    if is_dataclass(hint):
        return _read_table(hint, value, where)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _read_annotated(arguments, value, where)
    if origin is Literal:
        return _read_choice(arguments, value, where)
    if origin in (Union, types.UnionType):
        return _read_union(arguments, value, where)
    if origin in _INSIDE:
        return _INSIDE[origin](arguments, value, where)
    return _READERS.get(hint, _read_instance(origin or hint))(value, where)


def _read_annotated(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    found = read(hints[0], value, where)
    for bound in hints[1:]:
        if isinstance(bound, Between):
            bound.check(found, where)
    return found


def _read_table(cls: Any, value: Any, where: str) -> Any:
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected a table, got {value!r}")
    return from_dict(cls, value, where)


def _read_choice(known: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, type(known[0])) or value not in known:
        hint = _nearest(value, known) if isinstance(value, str) else ""
        raise ConfigError(f"{where}: expected one of {', '.join(map(str, known))}, got {value!r}{hint}")
    return value


def _read_union(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    # TOML has no null: a key that is None by default is left out, or set to "none".
    if value is None or (isinstance(value, str) and value == "none" and type(None) in hints):
        if type(None) in hints:
            return None
        raise ConfigError(f"{where}: expected a value, got None")
    choices = [hint for hint in hints if hint is not type(None)]
    errors = []
    for hint in choices:
        try:
            return read(hint, value, where)
        except ConfigError as error:
            errors.append(error)
    # What is wrong inside a list says more than that it is no text either.
    inside = [error for error in errors if not str(error).startswith(f"{where}: ")]
    if len(errors) == 1 or inside:
        raise (inside or errors)[0]
    expected = " or ".join(str(error).partition("expected ")[2].rpartition(", got ")[0] for error in errors)
    raise ConfigError(f"{where}: expected {expected}, got {value!r}")


def _read_tuple(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where}: expected a list, got {value!r}")
    if hints[-1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(value) != len(hints):
        raise ConfigError(f"{where}: expected a list of {len(hints)}, got {value!r}")
    return tuple(read(hint, entry, f"{where}[{i}]") for i, (hint, entry) in enumerate(zip(hints, value, strict=True)))


def _read_collection(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    # A text is a collection of letters, which nobody means.
    if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
        raise ConfigError(f"{where}: expected a list, got {value!r}")
    return tuple(read(hints[0], entry, f"{where}[{i}]") for i, entry in enumerate(value))


def _read_sequence(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if isinstance(value, set | frozenset):
        raise ConfigError(f"{where}: expected a list, got a set, which has no order")
    return _read_collection(hints, value, where)


def _read_mapping(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected a table, got {value!r}")
    of_key, of_value = hints
    return {read(of_key, key, where): read(of_value, entry, f"{where}[{key!r}]") for key, entry in value.items()}


_INSIDE: dict[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    tuple: _read_tuple,
    dict: _read_mapping,
    Mapping: _read_mapping,
    Sequence: _read_sequence,
    Collection: _read_collection,
}


def _read_bool(value: Any, where: str) -> bool:
    # NumPy's truth values have a type of their own.
    plain = value.item() if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0 else value
    if not isinstance(plain, bool):
        raise ConfigError(f"{where}: expected true or false, got {value!r}")
    return plain


def _read_int(value: Any, where: str) -> int:
    try:
        # A truth value of torch is an index to `operator.index`, too.
        if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ConfigError(f"{where}: expected a whole number, got {value!r}") from None


def _read_float(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(f"{where}: expected a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ConfigError(f"{where}: expected a smaller number, got {value!r:.40}") from None


_READERS: dict[Any, Callable[[Any, str], Any]] = {bool: _read_bool, int: _read_int, float: _read_float}


_CALLED: dict[Any, str] = {str: "text", Path: "a path", os.PathLike: "a path"}


def _read_instance(cls: Any) -> Callable[[Any, str], Any]:
    def read_instance(value: Any, where: str) -> Any:
        if not isinstance(value, cls):
            raise ConfigError(f"{where}: expected {_CALLED.get(cls, cls.__name__)}, got {value!r}")
        return value

    return read_instance


def _check_keys(data: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    for key in data:
        if key not in known:
            hint = _nearest(key, known)
            raise ConfigError(f"{where}: unknown key {key!r}; known are {', '.join(known)}{hint}")


def _nearest(name: str, known: Iterable[Any]) -> str:
    titles = {str(title).lower(): str(title) for title in known}
    near = get_close_matches(name.lower(), titles, 1)
    return f"; did you mean {titles[near[0]]}?" if near else ""
