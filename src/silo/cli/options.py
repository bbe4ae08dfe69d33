"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from silo.settings import TUNE_MODES

__all__ = ["PLACES", "Budget", "Deterministic", "Device", "Json", "Kernels", "OfDevice", "Quiet", "TuneMode"]


PLACES = "A Python file with kernels, a module by its dotted name (pkg.kernels), or a bundle."


def _mode(value: str | None) -> str | None:
    if value is not None and value not in TUNE_MODES:
        raise typer.BadParameter(f"{value!r} is none of {', '.join(TUNE_MODES)}")
    return value


Kernels = Annotated[
    list[str] | None, typer.Option("--kernel", "-k", metavar="NAME", help="Only this kernel; repeatable. Default: all.")
]
TuneMode = Annotated[
    str | None,
    typer.Option(
        "--tune",
        metavar="MODE",
        callback=_mode,
        help="auto: measure what is not known; cached: never measure; frozen: nor guess; off: first config.",
    ),
]
Budget = Annotated[
    float | None, typer.Option("--budget", metavar="SECONDS", help="Time for each kernel and case. Default: no limit.")
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic", help="The same bits on every run and rank: nothing measured decides about kernels that sum."
    ),
]
Device = Annotated[str, typer.Option("--device", "-d", metavar="D", help="The device to run on.")]
OfDevice = Annotated[
    str | None, typer.Option("--device", "-d", metavar="D", help="Only what was measured on this device. Default: all.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
