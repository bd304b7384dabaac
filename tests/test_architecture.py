"""Every name and every path on the page about the architecture exists, so that the page cannot go stale."""

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "sirgcn"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")

QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", PAGE)))
NAMES = [text for text in QUOTED if re.fullmatch(r"sirgcn(\.\w+)+", text)]
PATHS = [text for text in QUOTED if re.fullmatch(r"[\w*]+(/[\w*]+)+(\.\w+)?", text) and not text.startswith("results/")]
FIVE_FILES = re.compile(r"\*\*The plain route[^*]+in five files\*\*: ((?:`[^`]+`(?:, )?)+)\.")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_on_the_page_can_be_imported(name: str) -> None:
    resolve_name(name)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_on_the_page_exists(path: str) -> None:
    assert list(ROOT.glob(path)) or list(PACKAGE.glob(path))


def test_the_page_names_the_three_ways() -> None:
    ways = {"sirgcn.nn.net.SIRNet.forward", "sirgcn.engine.plan.plan", "sirgcn.data.tables.load.load_tables"}
    assert ways <= set(NAMES)
    assert "ops/native/aggregate.c" in PATHS


def test_the_plain_route_is_five_files_that_exist() -> None:
    found = FIVE_FILES.search(PAGE)
    assert found is not None
    files = re.findall(r"`([^`]+)`", found.group(1))
    assert len(files) == 5
    assert all((PACKAGE / file).is_file() for file in files)


def test_every_room_is_on_the_page() -> None:
    rooms = {folder.parent.name for folder in PACKAGE.glob("*/__init__.py")}
    assert {f"sirgcn.{room}" for room in rooms} <= set(NAMES)
