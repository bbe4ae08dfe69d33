"""Options that several commands share, the text about exit codes, and completion of values for shells.

Completion reads only texts and file names. It imports no kernel's file, no numpy and no compiler.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import click

from silo.cli.parser import Option
from silo.settings import program_environment
from silo.variables import TUNE_MODES

__all__ = [
    "EPILOG",
    "INSTALL_HELP",
    "LIBRARIES",
    "PLACES",
    "SHOW_HELP",
    "Arrays",
    "Budget",
    "Deterministic",
    "Device",
    "Download",
    "Json",
    "Kernels",
    "OfDevice",
    "Quiet",
    "Toolchains",
    "TuneMode",
    "complete_devices",
    "complete_kernels",
    "complete_targets",
    "install_completion",
    "kernels_in",
    "show_completion",
    "target_named",
    "targets_option",
]

_SHELLS = ("bash", "zsh", "fish")
INSTALL_HELP = "Install completion for a shell: bash, zsh, fish, or auto for the shell that runs."
SHOW_HELP = "Print the script of completion for a shell: bash, zsh, fish or auto."

# The definition of a kernel in a Python file: a kernel decorator followed by a function, or an assignment.
_DECORATED = re.compile(
    r"^@[\w.]*\b(?:kernel|metal|pallas|cute|jit)\b.*?^(?:async\s+)?def\s+(\w+)", re.MULTILINE | re.DOTALL
)
_ASSIGNED = re.compile(r"^(\w+)\s*=\s*silo\.(?:kernel|binary|metal|pallas|cute)\b", re.MULTILINE)
_LONGEST_FILE = 4 << 20  # bytes; longer files are not read


def complete_kernels(context: click.Context, text: str) -> list[str]:
    """Returns the kernels of the files, modules or bundles that the command line names."""
    del context, text
    from click.shell_completion import split_arg_string  # noqa: PLC0415  # only for this option

    # Taken from COMP_WORDS, because click passes no arguments while the last option lacks its value.
    words = split_arg_string(program_environment().get("COMP_WORDS", ""))[2:]
    return sorted({name for word in words if not word.startswith("-") for name in kernels_in(word)})


def kernels_in(file_or_module: str) -> list[str]:
    """Returns the names of the kernels in a bundle, a Python file or a module; ``[]`` if it cannot be read.

    A Python file is read as text. A module is looked for in ``sys.path`` and in the current folder.
    """
    try:
        if file_or_module.endswith(".silo"):
            from silo.bundle.reader import open_bundle  # noqa: PLC0415  # only for bundles
            from silo.errors import SiloError  # noqa: PLC0415

            try:
                with open_bundle(Path(file_or_module)) as bundle:
                    return sorted(bundle.kernel_names)
            except SiloError:
                return []
        path = Path(file_or_module) if file_or_module.endswith(".py") else _module_file(file_or_module)
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
    """Completes a target: kinds of targets or, after a colon, the levels of the CPU or an example arch of the kind."""
    del context
    from silo.core.device import (  # noqa: PLC0415
        CPU_LEVELS,
        driver_of,  # imported only for this option
        target_kinds,
    )

    kind = text.partition(":")[0]
    if ":" not in text:
        return [target_kind for target_kind in target_kinds() if target_kind != "fake"]
    levels = [level for group in CPU_LEVELS.values() for level in group] if kind == "cpu" else []
    return [f"{kind}:{arch}" for arch in (*levels, *filter(None, [driver_of(kind).example]))]


def complete_devices(context: click.Context, text: str) -> list[str]:
    """Returns kinds of devices, without opening a driver."""
    del context, text
    from silo.core.plugins import driver_kinds  # noqa: PLC0415  # only for this option

    return list(driver_kinds())


# ---- The script of a shell ----


def _shell_named(name: str) -> str:
    shell_name = Path(program_environment().get("SHELL", "")).name if name == "auto" else name
    if shell_name not in _SHELLS:
        raise click.BadParameter(f"completion is for {', '.join(_SHELLS)}, not for {shell_name or 'an unknown shell'}")
    return shell_name


def _script(shell: str) -> str:
    from click.shell_completion import get_completion_class  # noqa: PLC0415  # only for this option

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(click.get_current_context().find_root().command, {}, "silo", "_SILO_COMPLETE").source()


def show_completion(shell: str | None) -> str | None:
    """Prints the completion script of a shell and exits."""
    if shell is None:
        return None
    click.echo(_script(_shell_named(shell)))
    raise click.exceptions.Exit


def install_completion(shell: str | None) -> str | None:
    """Writes the completion script to the shell's folder for completions, and exits.

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
        existing_text = path.read_text(encoding="utf-8") if path.exists() else ""
        if line not in existing_text:
            path.write_text(f"{existing_text.rstrip()}\n{line}\n".lstrip(), encoding="utf-8")
    else:
        path.write_text(_script(name), encoding="utf-8")
    say(f"{path}: completion of silo for {name}; it works in new shells")
    raise click.exceptions.Exit


EPILOG = (
    "Exit codes: 0 all is well; 1 a check failed (a wrong result, a damaged bundle, a missing part); 2 wrong usage; "
    "3 an error, with its message; 130 interrupted."
)

PLACES = "A Python file with kernels, a module by its dotted name (pkg.kernels), or a bundle."


def target_named(value: str | None) -> str | None:
    """Returns a target's name unchanged. Raises ``click.BadParameter`` if it does not name a valid target."""
    if value is not None:
        from silo.core.device import Target  # noqa: PLC0415  # after the options are read
        from silo.errors import TargetError  # noqa: PLC0415

        try:
            Target.parse(value)
        except TargetError as error:
            raise click.BadParameter(str(error)) from None
    return value


def targets_option(help: str, *others: str) -> Option:  # noqa: A002  # the parameter's name of Option
    """Returns the repeatable option for targets. ``help`` is its help text in one command."""
    return Option("--target", *others, "-t", metavar="T", check=_targets_named, help=help, complete=complete_targets)


def _targets_named(values: list[str] | None) -> list[str] | None:
    for value in values or ():
        target_named(value)
    return values


def _seconds(value: float | None) -> float | None:
    if value is not None and not value > 0:
        raise click.BadParameter(f"{value:g} seconds measure nothing; give more than 0, or leave it out for no limit")
    return value


Kernels = Annotated[
    list[str] | None,
    Option(
        "--kernel",
        "-k",
        metavar="NAME",
        help="Only this kernel; repeatable. Default: all.",
        complete=complete_kernels,
    ),
]
TuneMode = Annotated[
    str | None,
    Option(
        "--tune",
        metavar="MODE",
        # leader and background are left out: they need calls of a running program
        choices=tuple(mode for mode in TUNE_MODES if mode not in ("leader", "background")),
        help="auto: measure if unknown; cached: never measure; frozen: never measure or guess; off: first config.",
    ),
]
Budget = Annotated[
    float | None,
    Option("--budget", metavar="SECONDS", check=_seconds, help="Time for each kernel and case. Default: no limit."),
]
Deterministic = Annotated[
    bool,
    Option("--deterministic", help="The same bits on every run and rank: measurements do not choose how kernels sum."),
]
Device = Annotated[
    str | None,
    Option(
        "--device",
        "-d",
        metavar="D",
        help="The device to run on. Default: where the kernel's kind runs, the CPU first.",
        complete=complete_devices,
    ),
]
# The names are repeated here because --help must not import the libraries. A test compares them.
LIBRARIES = ("numpy", "torch", "buffer", "cupy", "jax")

Arrays = Annotated[str | None, Option("--arrays", metavar="LIBRARY", choices=LIBRARIES, help="As for silo run.")]

OfDevice = Annotated[
    str | None,
    Option(
        "--device",
        "-d",
        metavar="D",
        help="Only trials of this device. Default: all.",
        complete=complete_devices,
    ),
]
Json = Annotated[bool, Option("--json", help="Print JSON instead of tables.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print errors only.")]
Toolchains = Annotated[
    list[str] | None,
    Option(
        "--toolchain",
        metavar="NAME==VERSION|LABEL=FOLDER",
        help="Compile with this version of a package (triton==3.6.0), or in this virtual environment "
        "(old=/path/to/venv), in processes of its own; repeatable.",
    ),
]
Download = Annotated[
    bool,
    Option(
        "--download",
        help="Let pip fetch the wheels of toolchains that are not installed here (not their dependencies) "
        "into the store's folder.",
    ),
]
