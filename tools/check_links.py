"""Check the links of built pages without a network: `python tools/check_links.py docs/_build/html`.

Every link to a page, a picture or a place in a page must lead there, and no page may load a script, a style or a
picture from elsewhere. Links to other sites are not followed.
"""

import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ELSEWHERE = re.compile(r"(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data", "link": "href"}
# Named for browsers and search engines, and loaded by nobody.
NOT_LOADED = {"canonical", "search", "next", "prev", "index", "author", "copyright"}


class Page(HTMLParser):
    """The links of a page, what it loads, and the places in it.

    Args:
        file: the page.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link, a load or a place."""
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        loaded = given.get(LOADED.get(tag, ""), "")
        if loaded and not loaded.startswith("data:") and given.get("rel") not in NOT_LOADED:
            self.loads.append(loaded)


page_of = cache(Page)


def is_broken(link: str, file: Path) -> bool:
    """Whether a link within the pages leads nowhere."""
    path, _, place = link.partition("#")
    target = file.parent / unquote(path.partition("?")[0]) if path else file
    if not target.exists():
        return True
    return bool(place) and target.suffix == ".html" and unquote(place) not in page_of(target).places


def problems(folder: Path) -> list[str]:
    """What is wrong with the pages of a folder, one line for each."""
    page_of.cache_clear()
    found = []
    for file in sorted(folder.rglob("*.html")):
        page, name = page_of(file), file.relative_to(folder)
        found += [f"{name}: loads {load}" for load in page.loads if ELSEWHERE.match(load)]
        inside = [link for link in page.links + page.loads if not ELSEWHERE.match(link)]
        found += [f"{name}: leads nowhere: {link}" for link in dict.fromkeys(inside) if is_broken(link, file)]
    return found


def main() -> None:
    """The exit code is 1 where a link is broken."""
    folder = Path(sys.argv[1])
    found = problems(folder)
    for line in found:
        print(line, file=sys.stderr)
    print(f"{len(list(folder.rglob('*.html')))} pages, {len(found)} broken links")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
