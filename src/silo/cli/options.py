"""Options that several commands share, and the form of help texts: flags, arguments, exit codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from silo.variables import TUNE_MODES

__all__ = [
    "EPILOG",
    "PLACES",
    "Budget",
    "Command",
    "CommandGroup",
    "Deterministic",
    "Device",
    "Json",
    "Kernels",
    "OfDevice",
    "Quiet",
    "TuneMode",
    "one_of",
    "target_named",
    "targets_option",
]

# ---- Options that several commands share ----

PLACES = "A Python file with kernels, a module by its dotted name (pkg.kernels), or a bundle."


def one_of(choices: Sequence[str]) -> Callable[[str | None], str | None]:
    """Returns a callback that raises a usage error unless an option is None or has one of these values."""

    def checked(value: str | None) -> str | None:
        if value is not None and value not in choices:
            raise typer.BadParameter(f"{value!r} is none of {', '.join(choices)}")
        return value

    return checked


def target_named(value: str | None) -> str | None:
    """Checks that a target parses; raises a usage error otherwise."""
    if value is not None:
        from silo.core.target import Target  # noqa: PLC0415  # after the options are read
        from silo.errors import TargetError  # noqa: PLC0415

        try:
            Target.parse(value)
        except TargetError as error:
            raise typer.BadParameter(str(error)) from None
    return value


def targets_option(help: str, *others: str) -> Any:  # noqa: A002, ANN401  # typer's parameter name and class
    """Returns the repeatable option for targets; ``help`` is the command's text for it."""
    return typer.Option("--target", *others, "-t", metavar="T", callback=_targets_named, help=help)


def _targets_named(values: list[str] | None) -> list[str] | None:
    for value in values or ():
        target_named(value)
    return values


def _seconds(value: float | None) -> float | None:
    if value is not None and not value > 0:
        raise typer.BadParameter(f"{value:g} seconds measure nothing; give more than 0, or leave it out for no limit")
    return value


Kernels = Annotated[
    list[str] | None, typer.Option("--kernel", "-k", metavar="NAME", help="Only this kernel; repeatable. Default: all.")
]
TuneMode = Annotated[
    str | None,
    typer.Option(
        "--tune",
        metavar="MODE",
        callback=one_of(tuple(mode for mode in TUNE_MODES if mode not in ("leader", "background"))),  # for calls
        help="auto: measure if unknown; cached: never measure; frozen: never measure or guess; off: first config.",
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget", metavar="SECONDS", callback=_seconds, help="Time for each kernel and case. Default: no limit."
    ),
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic", help="The same bits on every run and rank: measurements do not choose how kernels sum."
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        "-d",
        metavar="D",
        help="The device to run on. Default: where the kernel's kind runs, the CPU first.",
    ),
]
OfDevice = Annotated[
    str | None, typer.Option("--device", "-d", metavar="D", help="Only trials of this device. Default: all.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]


# ---- The help texts of the commands: flags, arguments, exit codes ----

EPILOG = (
    "Exit codes: 0 all is well; 1 a check failed (a wrong result, a damaged bundle, a missing part); 2 wrong usage; "
    "3 an error, with its message; 130 interrupted."
)


def _untyped(**_: object) -> None:
    """Prints no type for an argument: its name is enough, and the parser would print ``<list[Path]>``."""


def _plain(params: list[Any]) -> list[Any]:
    """Returns the parameters without the types that newer versions of the parser print."""
    for one in params:
        if getattr(one, "is_flag", False) and one.metavar is None:
            one.metavar = ""
        if getattr(one, "param_type_name", "") == "argument":
            one.display_type_rich = _untyped
    return params


class Command(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401, D102  # the parser's own
        return _plain(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401, D102  # the parser's own
        return _plain(super().get_params(ctx))
