"""Sphinx's settings for the site of the pages; ``scripts/docs`` builds it."""

# ruff: noqa: ANN401  # Sphinx's classes are not installed where this is checked

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import page_list  # noqa: E402  # beside this file
import pictures  # noqa: E402

import silo  # noqa: E402

project = "Silo"
author = "the authors of Silo"
copyright = "the authors of Silo"  # noqa: A001  # Sphinx's name
version = release = silo.__version__
commit = os.environ.get("SILO_DOCS_COMMIT", "")

extensions = ["myst_parser"]
root_doc = page_list.START
source_suffix = {".md": "markdown"}
exclude_patterns = ["pictures"]
myst_heading_anchors = 6
myst_enable_extensions = ["attrs_inline"]
nitpicky = True
suppress_warnings = ["myst.header"]  # some pages skip a heading level

html_theme = "furo"
html_title = f"Silo {release}"
html_static_path = ["static"]
html_css_files = ["site.css", "pictures.css"]
html_copy_source = html_show_sourcelink = True
html_last_updated_fmt = None  # without a date, so that equal pages give equal bytes
html_theme_options: dict[str, Any] = {
    "footer_icons": [],
    "navigation_with_keys": True,
    # shows the page's source: a copy, or the file at the project's address if one is set
    "top_of_page_buttons": ["view"],
    "light_css_variables": {"color-brand-primary": "#0a7d5a", "color-brand-content": "#0a6e50"},
    "dark_css_variables": {"color-brand-primary": "#3fb68b", "color-brand-content": "#5cc9a1"},
}
if address := os.environ.get("SILO_PROJECT_URL"):
    html_theme_options["source_view_link"] = f"{address}/blob/v{release}/docs/{{filename}}"
templates_path = ["templates"]
html_context = {"commit": commit}

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")
_PICTURE = re.compile(r"<style>.*?</style>", re.DOTALL)


def _toctrees(text: str) -> str:
    """Return the start page with a toctree for each of its sections, which Sphinx shows as the sidebar."""
    parts = [text]
    for section in page_list.sections(text):
        pages = "\n".join(f"{title} <{name}>" for title, name in section.pages)
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {section.caption}\n\n{pages}\n```\n")
    return "\n".join(parts)


def _outside(match: re.Match[str]) -> str:
    """Replace a link that leads out of docs: a link to a file becomes a download, a link to a folder becomes text."""
    words, target, _ = match.groups()
    path = (page_list.DOCS / target).resolve()
    if path.is_file() and path.suffix != ".md":
        return f"{{download}}`{words.replace('`', '')} <{target}>`"
    if not path.exists():
        raise FileNotFoundError(f"a page links to {target}, which does not exist")
    return words


def read_page(app: Any, name: str, content: list[str]) -> None:
    """Adapt one page to Sphinx: add the sidebar to the start page, and replace links out of docs."""
    del app
    text = _OUTSIDE.sub(_outside, content[0])
    content[0] = _toctrees(text) if name == root_doc else text


def inline_pictures(app: Any, tree: Any, name: str) -> None:
    """Put the SVG pictures into the page itself, so that they follow the page's choice of light or dark."""
    from docutils import nodes

    del name
    if app.builder.format != "html":
        return
    for image in list(tree.findall(nodes.image)):
        if image["uri"].endswith(".svg"):
            drawn = (page_list.DOCS / image["uri"]).read_text(encoding="utf-8")
            image.replace_self(nodes.raw("", _PICTURE.sub("", drawn), format="html"))


def finish(app: Any, problem: Exception | None) -> None:
    """Write index.html, which leads to the start page, and the style sheet of the pictures."""
    if problem is None and app.builder.format == "html":
        out = Path(app.outdir)
        home = f"{root_doc}.html"
        (out / "index.html").write_text(
            f'<!doctype html><meta charset="utf-8"><title>Silo</title>'
            f'<meta http-equiv="refresh" content="0; url={home}"><a href="{home}">Silo</a>\n',
            encoding="utf-8",
        )
        (out / "_static" / "pictures.css").write_text(pictures.page_style(), encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Connect the functions above to Sphinx's events; Sphinx calls this."""
    app.connect("source-read", read_page)
    app.connect("doctree-resolved", inline_pictures)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
