"""Completion for shells: the values of options, and the script that a shell reads.

Everything is answered from texts and file names: no kernel's file is imported, and neither numpy nor a compiler is.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click

from silo.settings import program_environment

__all__ = [
    "INSTALL_HELP",
    "SHOW_HELP",
    "complete_devices",
    "complete_kernels",
    "complete_targets",
    "install_completion",
    "kernels_in",
    "show_completion",
]

_SHELLS = ("bash", "zsh", "fish")
INSTALL_HELP = "Install completion for a shell: bash, zsh, fish, or auto for the shell that runs."
SHOW_HELP = "Print the script of completion for a shell: bash, zsh, fish or auto."

# Where a kernel is defined in a Python file: a decorator that makes one, then its function; or an assignment.
_DECORATED = re.compile(
    r"^@[\w.]*\b(?:kernel|metal|pallas|cute|jit)\b.*?^(?:async\s+)?def\s+(\w+)", re.MULTILINE | re.DOTALL
)
_ASSIGNED = re.compile(r"^(\w+)\s*=\s*silo\.(?:kernel|binary|metal|pallas|cute)\b", re.MULTILINE)
_LONGEST_FILE = 4 << 20  # bytes; a longer text is not read


def complete_kernels(context: click.Context, text: str) -> list[str]:
    """The kernels of the files, modules or bundles that the command line names."""
    del context, text
    from click.shell_completion import split_arg_string  # noqa: PLC0415  # only for this option

    # Of the words themselves: click gives no arguments while the last option lacks its value.
    words = split_arg_string(program_environment().get("COMP_WORDS", ""))[2:]
    return sorted({name for word in words if not word.startswith("-") for name in kernels_in(word)})


def kernels_in(place: str) -> list[str]:
    """The names of the kernels in a bundle, or that a Python file or module defines; ``[]`` if it cannot be read.

    A Python file is read as text. A module is looked for in ``sys.path`` and in the current folder.
    """
    try:
        if place.endswith(".silo"):
            from silo.bundle.reader import open_bundle  # noqa: PLC0415  # only for bundles
            from silo.errors import SiloError  # noqa: PLC0415

            try:
                with open_bundle(Path(place)) as bundle:
                    return sorted(bundle.kernel_names)
            except SiloError:
                return []
        path = Path(place) if place.endswith(".py") else _module_file(place)
        if path is None or path.stat().st_size > _LONGEST_FILE:
            return []
        source = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return sorted({*_DECORATED.findall(source), *_ASSIGNED.findall(source)})


def _module_file(name: str) -> Path | None:
    parts = name.split(".")
    for folder in (os.getcwd(), *sys.path):  # noqa: PTH109  # without pathlib's cost for each folder
        at = os.path.join(folder, *parts)  # noqa: PTH118
        for file in (at + ".py", os.path.join(at, "__init__.py")):  # noqa: PTH118
            if os.path.isfile(file):  # noqa: PTH113
                return Path(file)
    return None


def complete_targets(context: click.Context, text: str) -> list[str]:
    """Kinds of targets, and after a colon the archs that have a name of their own there."""
    del context
    from silo.core.plugins import driver_of  # noqa: PLC0415  # only for this option
    from silo.core.target import CPU_LEVELS, target_kinds  # noqa: PLC0415

    kind = text.partition(":")[0]
    if ":" not in text:
        return [one for one in target_kinds() if one != "fake"]
    levels = [level for group in CPU_LEVELS.values() for level in group] if kind == "cpu" else []
    return [f"{kind}:{arch}" for arch in (*levels, *filter(None, [driver_of(kind).example]))]


def complete_devices(context: click.Context, text: str) -> list[str]:
    """Kinds of devices; no driver is opened."""
    del context, text
    from silo.core.plugins import driver_kinds  # noqa: PLC0415  # only for this option

    return list(driver_kinds())


# ---- The script of a shell ----


def _shell_named(name: str) -> str:
    found = Path(program_environment().get("SHELL", "")).name if name == "auto" else name
    if found not in _SHELLS:
        raise click.BadParameter(f"completion is for {', '.join(_SHELLS)}, not for {found or 'an unknown shell'}")
    return found


def _script(shell: str) -> str:
    from click.shell_completion import get_completion_class  # noqa: PLC0415  # only for this option

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(click.get_current_context().find_root().command, {}, "silo", "_SILO_COMPLETE").source()


def show_completion(shell: str | None) -> str | None:
    """Print the script and leave."""
    if shell is None:
        return None
    click.echo(_script(_shell_named(shell)))
    raise click.exceptions.Exit


def install_completion(shell: str | None) -> str | None:
    """Write the script to the shell's folder for completions, and exit.

    bash and fish read a file for each command from a folder in the user's home; for zsh a line is added to ``.zshrc``.
    """
    if shell is None:
        return None
    from silo.cli.console import say  # noqa: PLC0415  # only for this option

    name = _shell_named(shell)
    home = Path.home()
    data = Path(program_environment().get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(program_environment().get("XDG_CONFIG_HOME") or home / ".config")
    path = {
        "bash": data / "bash-completion" / "completions" / "silo",
        "fish": config / "fish" / "completions" / "silo.fish",
        "zsh": home / ".zshrc",
    }[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    if name == "zsh":
        line = 'eval "$(_SILO_COMPLETE=zsh_source silo)"'
        known = path.read_text(encoding="utf-8") if path.exists() else ""
        if line not in known:
            path.write_text(f"{known.rstrip()}\n{line}\n".lstrip(), encoding="utf-8")
    else:
        path.write_text(_script(name), encoding="utf-8")
    say(f"{path}: completion of silo for {name}; it works in new shells")
    raise click.exceptions.Exit
