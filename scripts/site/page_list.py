"""Reads the list of pages from docs/README.md, whose sections and tables are the site's sidebar, in the same order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
START = "README"

_SECTION = re.compile(r"^## (.+)$")
_ENTRY = re.compile(r"^\| \[([^\]]+)\]\(([\w-]+)\.md\) \|")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
_NAMED = re.compile(r'<a (?:id|name)="([^"]+)">')
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(((?!https?:|mailto:)[^)\s]+)\)")


@dataclass(frozen=True)
class Section:
    """A group of the sidebar: its caption and its pages, as (title, file name without its suffix)."""

    caption: str
    pages: tuple[tuple[str, str], ...]


def sections(text: str) -> tuple[Section, ...]:
    r"""Return the sections of the start page whose tables list pages. Pure.

    >>> sections("## Start\n\n| page | answers |\n| --- | --- |\n| [Quickstart](quickstart.md) | how |\n")
    (Section(caption='Start', pages=(('Quickstart', 'quickstart'),)),)
    """
    found: list[tuple[str, list[tuple[str, str]]]] = []
    for line in text.splitlines():
        if heading := _SECTION.match(line):
            found.append((heading[1], []))
        elif (entry := _ENTRY.match(line)) and found:
            found[-1][1].append((entry[1], entry[2]))
    return tuple(Section(caption, tuple(pages)) for caption, pages in found if pages)


def list_faults() -> list[str]:
    """Return messages about pages that the start page does not list exactly once, and listed pages without a file."""
    listed = [name for section in sections(_read(START)) for _, name in section.pages]
    files = {path.stem for path in DOCS.glob("*.md")} - {START}
    return [
        *(f"docs/README.md does not list {name}.md" for name in sorted(files - set(listed))),
        *(f"docs/README.md lists {name}.md, which does not exist" for name in sorted(set(listed) - files)),
        *(f"docs/README.md lists {name}.md twice" for name in sorted(files) if listed.count(name) > 1),
    ]


def anchors(text: str) -> frozenset[str]:
    r"""Return the anchors of a page, by the rule that code hosts share for headings. Pure.

    >>> sorted(anchors("# One page\n\n## `silo.load(path)`\n\n## One page\n"))
    ['one-page', 'one-page-1', 'siloloadpath']
    """
    found: list[str] = []
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        repeated = sum(1 for one in found if re.fullmatch(re.escape(slug) + r"(-\d+)?", one))
        found.append(f"{slug}-{repeated}" if slug in found else slug)
    return frozenset(found) | frozenset(_NAMED.findall(text))


def link_faults(path: Path) -> list[str]:
    """Return a message for each link of a page whose file or heading does not exist."""
    text = re.sub(r"`[^`\n]*`", "", _FENCED.sub("", path.read_text(encoding="utf-8")))
    faults: list[str] = []
    for target in _LINK.findall(text):
        name, _, anchor = target.partition("#")
        other = path.parent / name if name else path
        if not other.exists():
            faults.append(f"{path.relative_to(ROOT)}: {target} does not exist")
        elif anchor and other.suffix == ".md" and anchor not in anchors(other.read_text(encoding="utf-8")):
            faults.append(f"{path.relative_to(ROOT)}: {target} names no heading of {other.name}")
    return faults


def _read(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")
