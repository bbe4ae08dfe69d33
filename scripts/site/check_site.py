"""Checks the pages and the built site.

``check_site.py pages`` checks the list of pages, and the links of their Markdown. ``check_site.py site FOLDER`` checks
every link of the built site with its anchor, and that no page loads anything from another host. Prints each fault, and
exits with 1 if there is one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import page_list

# The (tag, attribute) pairs whose address a browser loads by itself.
_LOADED = frozenset({("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data")})
_LOADED_LINKS = frozenset({"stylesheet", "icon", "preload", "preconnect", "manifest", "dns-prefetch"})


class Page(HTMLParser):
    """The links, the anchors and the loaded addresses of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the links, anchors and loaded addresses of a tag; the parser calls this for each tag."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if tag == "link" and _LOADED_LINKS & set(given.get("rel", "").split()):
            self.loaded.add(given.get("href", ""))
        self.loaded |= {given[name] for kind, name in _LOADED if kind == tag and name in given}


def site_faults(folder: Path) -> Iterator[str]:
    """Yield the faults of a built site: links to missing files or anchors, and loads from other hosts."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        yield f"{folder} has no pages"
    for path, page in pages.items():
        shown = path.relative_to(folder)
        for address in sorted(page.links | page.loaded):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loaded and parts.scheme != "data":
                    yield f"{shown} loads {address}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{shown}: {address} does not exist"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{shown}: {address} names no anchor"
    for style in sorted(folder.rglob("*.css")):
        text = style.read_text(encoding="utf-8")
        if "url(http" in text.replace('"', "").replace("'", "") or "@import" in text:
            yield f"{style.relative_to(folder)} loads from another host"


def page_faults() -> Iterator[str]:
    """Yield the faults of the list of pages and of their links."""
    yield from page_list.list_faults()
    for path in [
        *sorted(page_list.DOCS.glob("*.md")),
        page_list.ROOT / "README.md",
        page_list.ROOT / "CONTRIBUTING.md",
    ]:
        yield from page_list.link_faults(path)


def main() -> int:
    """Print the faults; return 1 if there are any."""
    match sys.argv[1:]:
        case ["pages"]:
            faults = list(page_faults())
        case ["site", folder]:
            faults = list(site_faults(Path(folder).resolve()))
        case _:
            raise SystemExit(__doc__)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
