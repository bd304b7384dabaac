"""Every command on a page exists with its options, and every block of TOML is what it says.

Tutorials run their commands (`test_docs.py`), and `tools/check_wheel.py` those of the README's first screen. Here the
others are read by the parser of the command line: a name, an option or a number of arguments that is wrong is found.
"""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from sirgcn.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "_generated" not in page.parts]
SHELL = re.compile(r"^```(?:bash|shell)(?: \w+)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
NAMES_ONLY = {"curl", "git", "python", "srun", "torchrun", "uvicorn"}


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command in the blocks of a page, without comments and settings of the environment."""
    for block in SHELL.findall(text):
        if block.startswith("#!"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            for part in line.split(" && "):
                words = shlex.split(part, comments=True)
                while words and re.match(r"[A-Z_]+=", words[0]):
                    words = words[1:]
                if words:
                    yield words


def check(words: list[str]) -> None:
    """Fail where a command does not exist, or does not take these arguments."""
    command, *arguments = words
    if command == "sirgcn":
        check_ours(arguments)
    elif command == "make":
        for target in (word for word in arguments if "=" not in word):
            assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), f"make {target}"
    elif command == "pip":
        for extra in re.findall(r"sirgcn\[(.*?)\]", " ".join(arguments)):
            assert set(extra.split(",")) <= PROJECT["optional-dependencies"].keys(), extra
    else:
        assert command in NAMES_ONLY, words
        assert all((ROOT / word).exists() for word in arguments if word.startswith(("tools/", "examples/"))), words


def check_ours(arguments: list[str]) -> None:
    """Read the arguments as the command line does, and run nothing."""
    found, context = typer.main.get_command(app), None
    while hasattr(found, "get_command") and not arguments[0].startswith("-"):
        name, *arguments = arguments
        inner = found.get_command(context, name)
        assert inner is not None, f"sirgcn {name}"
        found = inner
    try:
        found.make_context("sirgcn", arguments)
    # Which package the errors belong to depends on the version of typer.
    except Exception as error:
        raise AssertionError(getattr(error, "message", str(error))) from error


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    for words in commands(page.read_text("utf-8")):
        check(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_toml_of_a_page_can_be_read(page: Path) -> None:
    for block in TOML.findall(page.read_text("utf-8")):
        tomllib.loads(block)


@pytest.mark.parametrize(
    "planted",
    [
        "sirgcn trian nodes.csv edges.csv",
        "sirgcn train nodes.csv --targte label",
        "sirgcn predict model nodes.csv --level",
        "sirgcn predict model",
        "sirgcn evaluate model nodes.csv edges.csv --part half",
        "make everything",
        "pip install 'sirgcn[chemistry]'",
        "python tools/gone.py",
        "rm -rf model",
    ],
)
def test_a_planted_mistake_in_a_command_is_found(planted: str) -> None:
    sound = "A_B=1 sirgcn train nodes.csv --target label  # comment\nmake demo && pip install 'sirgcn[chem]'"
    for words in commands(f"```bash\n{sound}\n```\n"):
        check(words)
    (words,) = commands(f"```shell\n{planted}\n```\n")
    with pytest.raises(AssertionError):
        check(words)


def test_the_first_commands_of_the_quickstart_are_those_of_the_readme() -> None:
    first = [SHELL.findall((ROOT / name).read_text("utf-8"))[0] for name in ("README.md", "docs/quickstart.md")]
    assert first[0] == first[1]
