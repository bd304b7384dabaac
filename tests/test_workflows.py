"""The files for GitHub follow their published schemas."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCHEMAS = {
    "github-workflows": sorted((ROOT / ".github" / "workflows").glob("*.yml")),
    "github-issue-forms": [ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml" for name in ("bug", "idea")],
    "github-issue-config": [ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"],
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_file_for_github_follows_its_schema(schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    run = subprocess.run([*command, *map(str, SCHEMAS[schema])], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
