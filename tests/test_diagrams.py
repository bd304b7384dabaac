"""The diagrams that are kept for the README are those that the code draws."""

import runpy
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).parent.parent / "tools" / "diagrams.py"))


@pytest.mark.parametrize("name", TOOL["DIAGRAMS"])
def test_a_diagram_is_drawn_from_the_rooms_of_today(name: str) -> None:
    kept = (TOOL["FOLDER"] / name).read_text("utf-8")
    assert kept == TOOL["DIAGRAMS"][name](), "run python tools/diagrams.py"
    assert ElementTree.fromstring(kept).tag.endswith("svg")


def test_every_room_has_words() -> None:
    assert {room for level in TOOL["layers"]() for room in level} <= TOOL["WORDS"].keys()
