"""Every Python block of the README and of docs/ runs, page by page, in the order in which a reader meets them, and no
measured figure is typed by hand."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from sirgcn import cli
from sirgcn.data.molecules import has_rdkit

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIALS = ROOT / "docs" / "tutorials"
STEP = re.compile(r"^```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Written from the records, run or quoted: generated blocks, code and formulas.
NOT_TYPED = re.compile(
    r"<!-- (results|bench|release)\b.*?<!-- /\1 -->|^```.*?^```|`[^`\n]+`|\$\$.+?\$\$|\$[^$\n]+\$",
    re.MULTILINE | re.DOTALL,
)
COUNT = "two|three|four|five|six|seven|eight|nine|ten"
UNIT = (
    r"%|(?:[num]?s|seconds?|min|minutes?|hours?|[kMG]B|GFLOPS|x)\b|times (?:as (?:fast|slow|long)|faster|slower|plain)"
)
PART = "third|quarter|fifth|sixth|seventh|eighth|ninth|tenth"
THAN = r"of [^.]*\btime|less|more|shorter|longer|faster|slower"
MEASURED = re.compile(rf"\b(?:(?:\d[\d.,]*|{COUNT})\s*(?:{UNIT})|(?:a|{COUNT}) (?:{PART})s? (?:{THAN})\b)")
# A score has no unit: on the pages that have them any decimal is one.
SCORED = (ROOT / "README.md", ROOT / "docs" / "results.md")
SCORE = re.compile(r"\b\d+\.\d+")
# Not measured: an invitation, versions, an example.
EXCEPTIONS = (
    "# Your own graph in five minutes",
    "[your own graph in five minutes]",
    "[Your own graph in five minutes]",
    "# Your first change, in ten minutes",
    "[your first change in ten minutes]",
    "version 0.1.0",
    "Python 3.11",
    "PyTorch (2.9 or newer)",
    "PyTorch Geometric (2.7 or newer)",
    "(0.10 ± 0.00: from 0.085 to 0.115)",
)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if BLOCK.search(page.read_text()) and page.parent != TUTORIALS],
    ids=lambda page: page.name,
)
def test_the_python_blocks_of_a_page_run(page: Path) -> None:
    namespace: dict[str, object] = {}
    for block in BLOCK.findall(page.read_text()):
        exec(compile(block, page.name, "exec"), namespace)


SHELL = re.compile(r"^```bash( cluster)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
RANKS = SHELL.findall((ROOT / "docs" / "distributed.md").read_text("utf-8"))


@pytest.mark.parametrize("block", [block for tag, block in RANKS if not tag])
def test_a_launch_line_for_one_machine_runs(block: str) -> None:
    command = shlex.split(block.replace("python", sys.executable, 1))
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("block", [block for tag, block in RANKS if tag])
def test_a_launch_line_for_a_cluster_names_options_and_files_that_exist(block: str) -> None:
    _, is_torchrun, line = block.replace("\\\n", " ").partition("torchrun ")
    words = [word.replace("FIRST_MACHINE", "machine") for word in shlex.split(line if is_torchrun else block)]
    script, arguments = words[0], words[1:]
    if is_torchrun:
        given = get_args_parser().parse_args(words)
        script, arguments = given.training_script, given.training_script_args
    if script in ("sirgcn", "sirgcn.cli"):
        assert arguments[0] == "train"
        script = "src/sirgcn/cli/train.py"
    known = (ROOT / script).read_text("utf-8")
    assert all(f'"{word}"' in known for word in arguments if word[:2] == "--")


@pytest.mark.parametrize(
    "page", [page for page in sorted(TUTORIALS.glob("*.md")) if page.stem != "index"], ids=lambda page: page.stem
)
def test_the_blocks_and_commands_of_a_tutorial_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.stem == "molecules" and not has_rdkit():
        pytest.skip("needs RDKit")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for language, block in STEP.findall(page.read_text("utf-8")):
        if language == "python":
            exec(compile(block, page.name, "exec"), namespace)
            continue
        for line in block.splitlines():
            monkeypatch.setattr("sys.argv", shlex.split(line))
            with pytest.raises(SystemExit) as ended:
                cli.main()
            assert not ended.value.code, line


def measured_figures(text: str, pattern: re.Pattern[str] = MEASURED) -> list[str]:
    """Numbers of a pattern, by default those with a unit, outside of what is generated, run or quoted."""
    for exception in EXCEPTIONS:
        text = text.replace(exception, "")
    return [match.group() for match in pattern.finditer(NOT_TYPED.sub("`", text))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_measured_figure_is_typed_by_hand(page: Path) -> None:
    text = page.read_text("utf-8")
    found = measured_figures(text) + (measured_figures(text, SCORE) if page in SCORED else [])
    assert found == [], "write it from a record (`sirgcn results --docs`), compute it in a test, or leave it out"


@pytest.mark.parametrize(
    "planted",
    [
        "takes 4.6 s on",
        "in 15ms",
        "about three minutes",
        "1.1 GB of memory",
        "at 53 GFLOPS",
        "8 % of it",
        "is 2.5x as fast",
        "five times slower",
        "takes two thirds of the time",
        "a quarter less",
    ],
)
def test_a_planted_figure_is_found(planted: str) -> None:
    generated = "<!-- bench -->\n| 4.58 s |\n<!-- /bench -->\n<!-- results: summary -->5 %<!-- /results -->"
    page = f"{generated}\n\nIt runs 200 epochs of 3 layers, `timeout=3 s`.\n\n$$2 s$$\n\n```bash\nsleep 5 s\n```\n\n"
    assert measured_figures(page) == []
    assert len(measured_figures(f"{page}It {planted}.")) == 1


@pytest.mark.parametrize(
    "planted", ["GIN reaches 0.267", "it has 94.02 on minesweeper", "a loss below 0.003", "| 0.3 |"]
)
def test_a_planted_score_is_found(planted: str) -> None:
    page = "<!-- results: table 1 / GIN / n=10 -->0.80<!-- /results --> with Python 3.11 and `lr=0.01`.\n\n"
    assert measured_figures(page, SCORE) == []
    assert len(measured_figures(f"{page}{planted}.", SCORE)) == 1
