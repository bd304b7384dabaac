"""Every link inside the repository leads somewhere, and the pages that Sphinx built need no network."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BUILT = {"_build", "_generated"}
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for page in sorted(DOCS.rglob("*.md")) if not BUILT & {*page.relative_to(DOCS).parts}),
]
CODE = re.compile(r"^```[a-z].*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
TOOL = runpy.run_path(str(ROOT / "tools" / "check_links.py"))


def slug(heading: str) -> str:
    """The name that GitHub and MyST give to a heading."""
    words = re.sub(r"[`*]", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def broken_links(page: Path, text: str) -> list[str]:
    """The links of a page to files or headings that are not there. Names of the reference are left to Sphinx."""
    found = []
    for link in LINK.findall(CODE.sub("`", text)):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if re.match(r"[a-z]+:", link) or "_generated" in path.split("/"):
            continue
        if path and not target.exists():
            found.append(link)
        elif anchor and target.suffix == ".md" and not anchor.startswith("sirgcn."):
            body = text if target == page else target.read_text("utf-8")
            if anchor not in map(slug, HEADING.findall(body)) and f"({anchor})=" not in body:
                found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken_links(page, page.read_text("utf-8")) == []


@pytest.mark.parametrize("planted", ["[a](gone.md)", "![a](_static/gone.svg)", "[a](index.md#gone)", "[a](#gone)"])
def test_a_planted_link_to_nowhere_is_found(planted: str) -> None:
    sound = "# Here `it` is!\n\n[a](index.md) [b](#here-it-is) [c](https://example.org/gone.md) `[d](gone.md)`\n"
    assert broken_links(DOCS / "page.md", sound) == []
    assert len(broken_links(DOCS / "page.md", f"{sound}\n{planted}")) == 1


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("<a href='gone.html'>a</a>", "gone.html"),
        ("<a href='other.html#gone'>a</a>", "other.html#gone"),
        ("<a href='#gone'>a</a>", "#gone"),
        ("<img src='gone.svg'>", "gone.svg"),
        ("<script src='https://example.org/a.js'></script>", "https://example.org/a.js"),
        ("<link rel='stylesheet' href='//example.org/a.css'>", "//example.org/a.css"),
    ],
)
def test_the_check_of_built_pages_finds_what_is_planted(planted: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text("<p id='there'>x</p>")
    sound = "<a href='other.html#there'>a</a><a href='https://example.org'>b</a><h1 id='top'></h1><a href='#top'>c</a>"
    (tmp_path / "index.html").write_text(sound)
    assert TOOL["problems"](tmp_path) == []
    (tmp_path / "index.html").write_text(sound + planted)
    (problem,) = TOOL["problems"](tmp_path)
    assert problem.startswith("index.html: ")
    assert said in problem
