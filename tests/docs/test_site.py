"""The site: every page is in its sidebar, links and anchors hold, and it builds without a warning."""

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "site"))

import check_site  # noqa: E402  # beside conf.py, as Sphinx finds it
import page_list  # noqa: E402

SPHINX = ROOT / ".venv-docs" / "bin" / "python"


def test_the_sidebar_lists_every_page_once():
    assert page_list.list_faults() == []


def test_links_and_anchors_of_pages_hold():
    assert list(check_site.page_faults()) == []


def test_the_examples_of_the_list_hold():
    assert doctest.testmod(page_list).failed == 0


def test_a_missing_page_and_a_missing_heading_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(page_list, "ROOT", tmp_path)
    monkeypatch.setattr(page_list, "DOCS", tmp_path)
    start = (
        "# Start\n\n## Guides\n\n| page | answers |\n| --- | --- |\n| [One](one.md) | a |\n| [Gone](gone.md) | b |\n"
    )
    (tmp_path / "README.md").write_text(start)
    (tmp_path / "one.md").write_text("# One\n\n[here](#one) [no](two.md#three) [lost](lost.md) `[code](no.md)`\n")
    (tmp_path / "two.md").write_text('# Two\n\n<a id="by-name"></a>\n\n[by name](two.md#by-name)\n')
    assert page_list.list_faults() == [
        "docs/README.md does not list two.md",
        "docs/README.md lists gone.md, which does not exist",
    ]
    assert page_list.link_faults(tmp_path / "one.md") == [
        "one.md: two.md#three names no heading of two.md",
        "one.md: lost.md does not exist",
    ]
    assert page_list.link_faults(tmp_path / "two.md") == []


def test_a_built_site_may_not_load_from_other_hosts(tmp_path):
    (tmp_path / "a.html").write_text(
        '<link rel="stylesheet" href="https://fonts.example/x.css"><h1 id="top"></h1><a href="#top"></a>'
        '<a href="https://elsewhere.example/"></a><a href="b.html"></a><a href="a.html#no"></a><img src="no.png">'
    )
    (tmp_path / "x.css").write_text("@font-face { src: url('https://fonts.example/f.woff2') }")
    assert sorted(check_site.site_faults(tmp_path)) == [
        "a.html loads https://fonts.example/x.css",
        "a.html: a.html#no names no anchor",
        "a.html: b.html does not exist",
        "a.html: no.png does not exist",
        "x.css loads from another host",
    ]


@pytest.mark.all
def test_the_site_builds_without_a_warning(tmp_path):
    if not SPHINX.exists():
        pytest.skip("no .venv-docs: scripts/docs makes it")
    build = [str(SPHINX), "-m", "sphinx", "-b", "html", "--fail-on-warning", "--quiet", "-c", "scripts/site"]
    done = subprocess.run(
        [*build, "-d", str(tmp_path / "cache"), "docs", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(check_site.site_faults(tmp_path / "site")) == []
    assert "tutorial-kernel.html" in (tmp_path / "site" / "README.html").read_text()
    page = (tmp_path / "site" / "quickstart.html").read_text()
    assert 'rel="next"' in page
    assert 'href="_sources/quickstart.md.txt"' in page
    assert (tmp_path / "site" / "searchindex.js").stat().st_size > 100_000
