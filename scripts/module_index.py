"""Prints docs/modules.md: every module with the first line of its docstring.

``python scripts/module_index.py`` updates the page; ``--check`` only checks whether it is up to date.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "modules.md"
BEGIN = "<!-- modules: printed by python scripts/module_index.py -->\n"
END = "<!-- end of modules -->\n"


def contract(package: str) -> list[str]:
    """Return the folders of a package in the order of their layers: the reversed contract of `pyproject.toml`."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one.get("containers") == [package])
    return layers[::-1]


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring, as a cell of a table."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].replace("|", "\\|")


def folders() -> list[str]:
    """Return every package of Silo in the order of its layers; Silo itself, with its own modules, comes first."""
    home = ROOT / "src" / "silo"
    layers = contract("silo")
    found = {str(path.parent.relative_to(home)) for path in home.rglob("__init__.py")} - {"."}

    def place(folder: str) -> tuple[int, str]:
        return layers.index(folder.partition("/")[0]), folder

    return [".", *sorted(found, key=place)]


def index() -> str:
    """Return one table for each folder."""
    parts: list[str] = []
    for folder in folders():
        home = ROOT / "src" / "silo" / folder
        modules = sorted(path for path in home.glob("*.py") if path.name != "__init__.py")
        parts.append(f"### {'silo' if folder == '.' else folder}\n\n{first_line(home / '__init__.py')}\n")
        if modules:
            parts.append("\n| module | |\n| --- | --- |\n")
        parts += [f"| `{path.stem}` | {first_line(path)} |\n" for path in modules]
        parts.append("\n")
    return "".join(parts)


def updated(page: str) -> str:
    """Return the page with the current index."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} lacks the lines that mark the index")
    return before + begin + "\n" + index() + end + after


def main() -> int:
    """Update the page, or check it; return 1 if the check fails."""
    page = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        return 0 if updated(page) == page else 1
    PAGE.write_text(updated(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
