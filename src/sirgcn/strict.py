"""The strict reader of settings: from TOML, from JSON, or from arguments in Python.

A type annotation says how a value is read. The reader raises a `ConfigError` for a wrong type, an unknown name and an
unknown key. The error names the setting, what was expected and what was given. The reader never guesses: the text "no"
is not a truth value.
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
Name = TypeVar("Name")


class ConfigError(ValueError):
    """A setting is wrong. The message names the file, the key, what was expected and what was given.

    >>> issubclass(ConfigError, ValueError)
    True
    """


@dataclass(frozen=True)
class Between:
    """The range of an annotated number, both ends included: `Annotated[int, Between(1)]`.

    >>> read(Annotated[int, Between(1)], 0, "heads")
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: heads: expected at least 1, got 0
    """

    least: float
    most: float = math.inf

    def check(self, value: float, where: str) -> None:
        """Raise a `ConfigError` for a number outside the range, and for NaN."""
        if self.least <= value <= self.most:
            return
        if math.isinf(self.most):
            raise ConfigError(f"{where}: expected at least {self.least}, got {value}")
        raise ConfigError(f"{where}: expected a number from {self.least} to {self.most}, got {value}")


Count = Annotated[int, Between(0)]
"""A number of things, possibly none."""

Size = Annotated[int, Between(1)]
"""A number of things, at least one: channels, layers, heads."""

Probability = Annotated[float, Between(0, 1)]
"""A number from 0 to 1, such as the probability of dropout."""


def check_name(what: str, name: object, known: Iterable[Name], also: str = "", *, exact: bool = False) -> Name:
    """Return the known name that equals `name`, or raise a `ConfigError` with the known names and the nearest of them.

    Args:
        what: the setting or argument that holds the name; the message begins with it.
        name: the name that was given.
        known: the names to choose from.
        also: what else is accepted, such as "a .toml file or "; it stands before "one of" in the message.
        exact: whether letter case matters. Without it, "gcn" is the known name "GCN".

    >>> check_name("model", "gin", ["GCN", "GIN"])
    'GIN'
    >>> check_name("conv", "GIN", ["gcn", "gin"], exact=True)
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: conv: expected one of gcn, gin, got 'GIN'; did you mean gin?
    """
    names = tuple(known)
    if name in names:
        return names[names.index(name)]
    titles = {} if exact else {str(title).lower(): title for title in names}
    folded = name.lower() if isinstance(name, str) else None
    if folded in titles:
        return titles[folded]
    raise ConfigError(f"{what}: {expected_one_of(name, names, also)}")


def expected_one_of(name: object, known: Iterable[object], also: str = "") -> str:
    """The sentence of `check_name`, for an error of another type: the known names, what was given, and the nearest.

    >>> expected_one_of("gim", ["gcn", "gin"])
    "expected one of gcn, gin, got 'gim'; did you mean gin?"
    """
    titles = [str(title) for title in known]
    return f"expected {also}one of {', '.join(titles)}, got {name!r}{nearest(name, titles)}"


def nearest(name: object, known: Iterable[object]) -> str:
    """The hint "; did you mean X?" for the known name most like `name`; empty if no known name is like it.

    Letter case makes no difference.

    >>> nearest("epoch", ["epochs", "patience"])
    '; did you mean epochs?'
    >>> nearest("epoch", ["width"])
    ''
    """
    if not isinstance(name, str):
        return ""
    titles = {str(title).lower(): str(title) for title in known}
    near = get_close_matches(name.lower(), titles, 1)
    return f"; did you mean {titles[near[0]]}?" if near else ""


def changed(config: Any, changes: Mapping[str, Any], where: str) -> Any:
    """A copy of a dataclass with some fields changed. The new values are read as strictly as in `from_dict`.

    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     epochs: int = 10
    >>> changed(Settings(), {"epochs": 3}, "train").epochs
    3
    >>> changed(Settings(), {"epoch": 3}, "train")
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: train: unknown key 'epoch'; known are epochs; did you mean epochs?
    """
    hints = get_type_hints(type(config))
    _check_keys(changes, hints, where)
    return replace(config, **{key: read(hints[key], value, f"{where}.{key}") for key, value in changes.items()})


def from_dict(cls: Any, data: Mapping[str, Any], where: str) -> Any:
    """A dataclass from the values of a TOML or JSON table.

    An unknown key, a missing key and a value of the wrong type raise a `ConfigError` that names the key.

    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     epochs: int
    >>> from_dict(Settings, {"epochs": 3}, "mine.toml").epochs
    3
    >>> from_dict(Settings, {}, "mine.toml")
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: mine.toml: epochs is not set
    """
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
    """Read every field of a dataclass by its annotation. Call it in the `__post_init__` of the dataclass.

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
    hints = _fields_of(type(config))
    for entry in fields(config):
        value = getattr(config, entry.name)
        # A field may change its type: a float can be given as an int. A frozen dataclass has no other way to set it.
        object.__setattr__(config, entry.name, read(hints[entry.name], value, entry.name))


def check_arguments(
    function: Callable[..., Any], values: Mapping[str, Any], where: str = "", is_toml: bool = False
) -> dict[str, Any]:
    """The arguments of a function by name, each read by its annotation. An argument without annotation is unchanged.

    The text "none" stays text here, because whoever calls a function can write None. With `is_toml` it is None.

    >>> def draw(count: int, scale: float = 1.0) -> float:
    ...     return count * scale
    >>> check_arguments(draw, {"count": 3, "scale": 2})
    {'count': 3, 'scale': 2.0}
    """
    hints = _hints(_annotated(function))
    found = {}
    for name, value in values.items():
        hint = hints.get(name, Any)
        if not is_toml and isinstance(value, str) and value == "none" and type(None) in get_args(hint):
            hint = Union[tuple(choice for choice in get_args(hint) if choice is not type(None))]  # noqa: UP007
        found[name] = read(hint, value, f"{where}{name}")
    return found


def checked(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A decorator: at every call, the arguments of the function are read by their annotations.

    >>> @checked
    ... def draw(count: int, shuffle: bool = True) -> int:
    ...     return count
    >>> draw(3, shuffle="no")
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: shuffle: expected true or false, got 'no'
    """
    signature = inspect.signature(function)
    # What **options collects has no annotations of its own.
    options = {name for name, entry in signature.parameters.items() if entry.kind is entry.VAR_KEYWORD}

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            known = [name for name in signature.parameters if name != "self"]
            raise TypeError(f"{_called(function)}: {error}; its arguments are {', '.join(known)}") from None
        own = {name: value for name, value in bound.arguments.items() if name not in options}
        bound.arguments |= check_arguments(function, own)
        return function(*bound.args, **bound.kwargs)

    return call


def _called(function: Callable[..., Any]) -> str:
    """The name of a function for a user, and of a class for its constructor."""
    return function.__qualname__.removesuffix(".__init__")


_fields_of: Callable[[Any], dict[str, Any]] = cache(get_type_hints)
_hints = cache(partial(get_type_hints, include_extras=True))


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function whose annotations describe the arguments of a call; for a class, its constructor."""
    inside = function.func if isinstance(function, partial) else function
    return inside.__init__ if isinstance(inside, type) else inside  # type: ignore[misc]


def read(hint: Any, value: Any, where: str) -> Any:
    """The value, converted to the type of the annotation; or a `ConfigError` that names the place.

    - `int` accepts whatever `operator.index` accepts, except truth values.
    - `float` accepts any real number, whole numbers included.
    - The text "none" is None where the annotation allows None, because TOML has no null.

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
    origin = get_origin(hint)
    if origin in _BY_ORIGIN:
        return _BY_ORIGIN[origin](get_args(hint), value, where)
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
    # True equals 1 and is none of the choices 1 and 2.
    if type(value) not in map(type, known):
        raise ConfigError(f"{where}: {expected_one_of(value, known)}")
    return check_name(where, value, known, exact=True)


def _read_union(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if type(None) in hints and _is_none(value):
        return None
    if value is None:
        raise ConfigError(f"{where}: expected a value, got None")
    errors = []
    for hint in hints:
        if hint is type(None):
            continue
        try:
            return read(hint, value, where)
        except ConfigError as error:
            errors.append(error)
    raise _union_error(errors, value, where)


def _is_none(value: Any) -> bool:
    """Whether the value stands for None. TOML has no null, so the text "none" does."""
    return value is None or (isinstance(value, str) and value == "none")


def _union_error(errors: list[ConfigError], value: Any, where: str) -> ConfigError:
    """One error for a value that fits no member of a union, from the errors of its members."""
    # "names[1]: expected text" says more than "names: expected text or a list".
    inside = [error for error in errors if not str(error).startswith(f"{where}: ")]
    if inside:
        return inside[0]
    if len(errors) == 1:
        return errors[0]
    expected = " or ".join(str(error).partition("expected ")[2].rpartition(", got ")[0] for error in errors)
    return ConfigError(f"{where}: expected {expected}, got {value!r}")


def _read_tuple(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where}: expected a list, got {value!r}")
    if hints[-1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(value) != len(hints):
        raise ConfigError(f"{where}: expected a list of {len(hints)}, got {value!r}")
    return tuple(read(hint, entry, f"{where}[{i}]") for i, (hint, entry) in enumerate(zip(hints, value, strict=True)))


def _read_collection(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    # A string is a collection of letters, but nobody means that.
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


_BY_ORIGIN: dict[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    Annotated: _read_annotated,
    Literal: _read_choice,
    Union: _read_union,
    types.UnionType: _read_union,
    tuple: _read_tuple,
    dict: _read_mapping,
    Mapping: _read_mapping,
    Sequence: _read_sequence,
    Collection: _read_collection,
}


def _read_bool(value: Any, where: str) -> bool:
    # NumPy has its own type for truth values.
    plain = value.item() if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0 else value
    if not isinstance(plain, bool):
        raise ConfigError(f"{where}: expected true or false, got {value!r}")
    return plain


def _read_int(value: Any, where: str) -> int:
    try:
        # `operator.index` also accepts truth values, those of torch included.
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
            raise ConfigError(f"{where}: unknown key {key!r}; known are {', '.join(known)}{nearest(key, known)}")
