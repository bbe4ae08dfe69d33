"""How long the pages are: people read them, so their prose is bounded.

A word is a run of characters between spaces that holds a letter or a digit, outside of code blocks, in the prose that
people write: printed pages and the printed blocks of a page do not count.
"""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PRINTED_PAGES = {"api", "commands", "modules", "settings"}
PRINTED_BLOCK = re.compile(r"<!-- [a-z ]+: printed by.*?<!-- end of [a-z ]+ -->", re.DOTALL)

# The pages that every part of Silo had from the beginning, and the pages that were split from them.
FIRST_PAGES = [
    "README",
    "adding-a-backend",
    "architecture",
    "binaries",
    "bundle-format",
    "c-and-cpp",
    "cases",
    "checking",
    "coming-from-autotune",
    "concepts",
    "cpu",
    "cute",
    "debugging",
    "deploying",
    "descriptors",
    "devices",
    "errors",
    "existing-programs",
    "fleets",
    "frameworks",
    "helion",
    "heuristics",
    "inductor",
    "internals",
    "internals-of-launches",
    "jax",
    "keeping",
    "launching",
    "metal",
    "pallas",
    "performance",
    "plain-triton",
    "quickstart",
    "reports",
    "searchers",
    "security",
    "torch",
    "troubleshooting",
]
FURTHER_PAGES = sorted({page.stem for page in DOCS.glob("*.md")} - {*FIRST_PAGES, *PRINTED_PAGES})


def words_of(text: str) -> int:
    lines, in_code = [], False
    for line in PRINTED_BLOCK.sub("", text).splitlines():
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            lines.append(line)
    return sum(bool(re.search("[A-Za-z0-9]", word)) for word in " ".join(lines).split())


def words_in(page: str) -> int:
    return words_of((DOCS / f"{page}.md").read_text(encoding="utf-8"))


def test_the_first_pages_have_45_000_words_at_most():
    counts = {page: words_in(page) for page in FIRST_PAGES}
    longest = ", ".join(f"{page} {counts[page]}" for page in sorted(counts, key=counts.__getitem__)[:-9:-1])
    assert sum(counts.values()) <= 45_000, f"{sum(counts.values())} words; the longest pages: {longest}"


@pytest.mark.parametrize("page", FURTHER_PAGES)
def test_a_further_page_has_1200_words_at_most(page):
    assert words_in(page) <= 1200


def test_words_are_counted_in_prose_alone():
    text = "# One two\n\n| a | 1.5 |\n| --- | --- |\n\n```sh\nnot counted\n```\n"
    assert words_of(text) == 4
    assert words_of(text + "<!-- figures: printed by x -->\nnot counted\n<!-- end of figures -->\nfive\n") == 5
