"""Prints the reference of the command line, ``docs/commands.md``, from the commands themselves.

``python scripts/command_reference.py`` updates the page; ``--check`` only compares.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from silo.cli import main as entry

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
HEAD = """# Commands

Every command of `silo`, printed from the commands by `python scripts/command_reference.py`. `silo COMMAND --help`
prints the same; [quickstart](quickstart.md#commands) shows the usual ones, and the exit codes of all.
"""


def prose(text: str) -> str:
    """Return help text as Markdown: its lines joined to paragraphs, its examples as blocks. Pure."""
    parts: list[str] = []
    for paragraph in inspect.cleandoc(text).replace("\b", "").replace("``", "`").split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if lines and all(line.startswith("    ") for line in lines):
            parts.append("```text\n" + "\n".join(line[4:] for line in lines) + "\n```")
        elif lines:
            parts.append("\n".join(line.strip() for line in lines))
    return "\n\n".join(parts)


def cell(text: str) -> str:
    """Return text as a cell of a table. Pure."""
    plain = " ".join(text.replace("``", "`").split())
    return re.sub(r"(?<!`)<([^>`]+)>(?!`)", r"`<\1>`", plain).replace("|", "\\|")


def shown(parameter: Any) -> str:  # noqa: ANN401  # the parser's own class
    """Return the flags of an option with its value, or the name of an argument."""
    name = parameter.metavar or parameter.name.upper()
    if parameter.param_type_name == "argument":
        return f"`{name}`".replace("|", "\\|")
    flags = [*parameter.opts, *parameter.secondary_opts]
    value = "" if parameter.is_flag or parameter.count else f" {parameter.metavar or parameter.type.name.upper()}"
    return ", ".join(f"`{flag}{value}`" for flag in flags).replace("|", "\\|")


def rows(command: Any, sort: str) -> Iterator[str]:  # noqa: ANN401  # the parser's own class
    """Yield a table row for each parameter of one sort, ``argument`` or ``option``."""
    for parameter in command.params:
        help_text = getattr(parameter, "help", None) or ""
        if parameter.param_type_name == sort and help_text and not getattr(parameter, "hidden", False):
            default = parameter.default
            stated = isinstance(default, str | int | float) and not isinstance(default, bool) and default != ""
            note = f" By default `{default}`." if stated and getattr(parameter, "show_default", False) else ""
            yield f"| {shown(parameter)} | {cell((parameter.help or '') + note)} |\n"


def children(command: Any) -> dict[str, Any]:  # noqa: ANN401  # the parser's own class
    """Return the visible commands of a group by name; empty for a command without subcommands."""
    if not hasattr(command, "list_commands"):
        return {}
    context = command.context_class(command)
    found = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return {name: one for name, one in found.items() if not one.hidden}


def sections(command: Any, words: tuple[str, ...]) -> Iterator[str]:  # noqa: ANN401  # the parser's own class
    """Yield the section of one command, then the sections of its subcommands."""
    commands = children(command)
    name = " ".join(words)
    if len(words) > 1:
        named = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        names = [(parameter.metavar or parameter.name.upper(), parameter.required) for parameter in named]
        arguments = " ".join(name if required else f"[{name}]" for name, required in names)
        yield f"{'#' * len(words)} `{name}`\n"
        line = " ".join(part for part in (name, "[OPTIONS]", "COMMAND" if commands else arguments) if part)
        yield f"```text\n{line}\n```\n"
    if command.help:
        yield prose(command.help) + "\n"
    for sort in ("argument", "option"):
        if table := "".join(rows(command, sort)):
            yield f"| {sort} | |\n| --- | --- |\n{table}"
    for child, one in commands.items():
        yield from sections(one, (*words, child))


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *sections(entry.app, ("silo",))])


def main() -> int:
    """Update the page, or compare it; return 1 if it differs."""
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
