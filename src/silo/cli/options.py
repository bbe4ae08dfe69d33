"""Options that several commands share, and the text about exit codes."""

from __future__ import annotations

from typing import Annotated

import click

from silo.cli.completion import complete_devices, complete_kernels, complete_targets
from silo.cli.parser import Option
from silo.variables import TUNE_MODES

__all__ = [
    "EPILOG",
    "LIBRARIES",
    "PLACES",
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
    "target_named",
    "targets_option",
]

EPILOG = (
    "Exit codes: 0 all is well; 1 a check failed (a wrong result, a damaged bundle, a missing part); 2 wrong usage; "
    "3 an error, with its message; 130 interrupted."
)

PLACES = "A Python file with kernels, a module by its dotted name (pkg.kernels), or a bundle."


def target_named(value: str | None) -> str | None:
    """Checks that a target parses; raises a usage error otherwise."""
    if value is not None:
        from silo.core.target import Target  # noqa: PLC0415  # after the options are read
        from silo.errors import TargetError  # noqa: PLC0415

        try:
            Target.parse(value)
        except TargetError as error:
            raise click.BadParameter(str(error)) from None
    return value


def targets_option(help: str, *others: str) -> Option:  # noqa: A002  # the parameter's name of Option
    """Returns the repeatable option for targets; ``help`` is the command's text for it."""
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
        choices=tuple(mode for mode in TUNE_MODES if mode not in ("leader", "background")),  # these are for calls
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
# Repeated here, because the libraries are not imported for --help. A test compares them.
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
