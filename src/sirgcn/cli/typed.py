"""Settings of tables as somebody types them: `--set NAME=VALUE`, and messages that name settings in this form."""

import re
import shlex
import tomllib
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

Sets = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=X", help="Any other setting, such as id=paper.")]

# What `load_tables` takes and no option or file can say.
_UNSAYABLE = ("nodes", "edges", "graphs", "dropped", "max_unpacked")
_LISTS = ("target", "features", "edge_features", "graph_features", "molecule_features", "missing")
_PLAIN = ("seed", "folds", "fold", "fractions", "directed", "standardise")
_BY_KEY = ("types", "draw")


def names_of_settings() -> list[str]:
    """The settings of tables that a file or an option can have."""
    import inspect

    from sirgcn.data import load_tables

    return [name for name in inspect.signature(load_tables).parameters if name not in _UNSAYABLE]


def read_sets(given: Sequence[str] | None) -> dict[str, Any]:
    """The settings that options `--set` give.

    >>> read_sets(["id=paper", "directed=true", "types.code=categorical", "features=size,rooms"])
    {'id': 'paper', 'directed': True, 'types': {'code': 'categorical'}, 'features': ['size', 'rooms']}
    """
    from sirgcn.strict import check_name

    found: dict[str, Any] = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        head, dot, key = name.strip().partition(".")
        if not sign or not head:
            raise ValueError(f"--set: expected NAME=VALUE, such as id=paper, got {text!r}")
        check_name("--set", head, names_of_settings(), exact=True)
        if not dot:
            found[head] = _value(head, value.strip())
        elif head in _BY_KEY and isinstance(found.get(head, {}), dict):
            found[head] = {**found.get(head, {}), key: value.strip()}
        else:
            raise ValueError(
                f"--set: expected a name without a dot, types.COLUMN, draw.time or draw.group, got {name!r}"
            )
    return found


def _value(name: str, text: str) -> Any:
    if name in _LISTS:
        return [part.strip() for part in text.split(",")]
    if name not in _PLAIN:
        return text
    try:
        return tomllib.loads(f"value = [{text}]" if name == "fractions" else f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        expected = "true or false" if name in ("directed", "standardise") else "a number"
        raise ValueError(f"--set {name}: expected {expected}, got {text!r}") from None


_OPTIONS = ("target", "split", "metric")
_NAMES = r"\b(id|source|destination|graph|smiles|level|task|draw|target|split|metric)="


def _named(found: re.Match[str]) -> str:
    """A setting, with its value if the message has one."""
    name, value = found[1], found[2]
    if name in _OPTIONS:
        return f"--{name}" if value is None else f"--{name} {shlex.quote(value)}"
    return f"--set {name}=..." if value is None else f"--set {shlex.quote(f'{name}={value}')}"


_AS_TYPED: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"on_error='skip' with dropped=FILE", "--set on_error=skip"),
    (r"types=\{'([^']*)': '(\w+)'\}", lambda found: f"--set {shlex.quote(f'types.{found[1]}={found[2]}')}"),
    (rf"{_NAMES}(?:'([^']*)'|(?=[\s,;]|$))", _named),
)


def as_typed(text: str) -> str:
    """A message about tables, with settings as they are typed in a command.

    >>> as_typed("if these are categories, say types={'size': 'categorical'}")
    'if these are categories, say --set types.size=categorical'
    >>> as_typed("column 'fold': holds test, train, val: split='fold' uses it as the split")
    "column 'fold': holds test, train, val: --split fold uses it as the split"
    """
    for pattern, typed in _AS_TYPED:
        text = re.sub(pattern, typed, text)
    return text
