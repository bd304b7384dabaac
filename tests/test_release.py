"""The page of the installation says what the record of the release says, and the versions agree everywhere."""

import json
import re
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOL = runpy.run_path(str(ROOT / "tools" / "release.py"))
RECORD = json.loads(TOOL["RECORD"].read_text("utf-8"))
PAGE = TOOL["PAGE"].read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_page_is_written_from_the_record() -> None:
    assert TOOL["rendered"](PAGE, RECORD) == PAGE, "run python tools/release.py render"


@pytest.mark.parametrize("name", ["tried", "sizes", "imports"])
def test_another_record_changes_the_page(name: str) -> None:
    other = json.loads(json.dumps(RECORD))
    other["tried"][0]["python"], other["sizes"]["sirgcn"], other["imports"]["more"] = "3.99.0", 10**9, 99.0
    before, after = PAGE, TOOL["rendered"](PAGE, other)
    block = re.compile(rf"<!-- release: {name} -->(.*?)<!-- /release -->", re.DOTALL)
    assert block.findall(before) != block.findall(after)


def test_the_record_is_of_this_version() -> None:
    assert {found["sirgcn"] for found in RECORD["tried"]} == {PROJECT["version"]}


def test_the_layer_costs_little_beside_pyg_s_layers() -> None:
    assert RECORD["imports"]["more"] < 0.3


def test_the_page_names_every_extra() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) >= PROJECT["optional-dependencies"].keys()


def test_the_readme_names_every_extra_that_a_user_may_want() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    (others,) = re.findall(r"'sirgcn\[chem\]'.*others: (.*)", readme)
    assert {"chem", "dev", *others.split(", ")} >= PROJECT["optional-dependencies"].keys()


def test_the_citation_and_the_changelog_have_this_version() -> None:
    assert f"\nversion: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\n## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_trial_of_this_interpreter_passes() -> None:
    import sys

    import torch

    found = TOOL["trial"](sys.executable)
    assert (found["torch"], found["tried"]) == (torch.__version__, "forward and backward")
