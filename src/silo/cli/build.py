"""``silo build``: compile (and tune, if the device is here) the kernels of Python files into a bundle."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import click

from silo.cli.console import print_json, print_table, say, say_lines
from silo.cli.options import Budget, Deterministic, Download, Json, Kernels, Quiet, Toolchains, TuneMode, targets_option
from silo.cli.parser import Argument, Option
from silo.cli.trust import SigningKey, read_key
from silo.settings import override

__all__ = ["command"]

# The numbers are repeated from silo.compile.build_list, which --help must not import. A test compares them.
_CONFIGS = (
    "How many configs of each case to pack. Default: for targets without a device here, the whole space, up to 128 "
    "configs of each case and 64 MiB of code of each kernel, so that silo tune K.silo on the device finds the best; "
    "for measured targets, their winners."
)


def _number(value: str | None) -> str | None:
    if value not in (None, "all") and not (value.isdecimal() and int(value)):
        raise click.BadParameter(f"{value!r} is neither a number of configs from 1 on nor all")
    return value


def command(
    files: Annotated[
        list[Path],
        Argument(
            metavar="FILE|MODULE...",
            help="Python files or modules (pkg.kernels) with kernels made by silo.kernel or silo.binary.",
        ),
    ],
    output: Annotated[Path, Option("--output", "-o", metavar="K.silo", help="The bundle to write.")],
    target: Annotated[
        list[str] | None,
        targets_option(
            "A target such as cpu, cuda:sm_90, hip:gfx942; repeatable. "
            "Default: cpu; for kernels made by silo.binary, their binaries' targets."
        ),
    ] = None,
    kernel: Kernels = None,
    tune: TuneMode = None,
    budget: Budget = None,
    configs: Annotated[str | None, Option("--configs", metavar="N|all", check=_number, help=_CONFIGS)] = None,
    key: SigningKey = None,
    toolchain: Toolchains = None,
    *,
    download: Download = False,
    deterministic: Deterministic = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Compile the kernels of files and modules for every target, tune if the device is here, and pack one bundle.

    A kernel is built for each target that its kind supports; the others are listed.

    For each kernel the bundle holds the specializations of its cases and one generic fallback per dtype signature, each
    for every value that triton.heuristics computes for a case. For a target that nothing here can measure, it also
    holds the configs of the space; calls use the heuristic's config until silo tune K.silo has measured them there. The
    bundle is written in one piece: an existing file is replaced only by a finished one.

    With --toolchain the kernels are compiled in processes of other environments, once with each, and the bundle holds
    all of their code: each case gets the fastest code whose results are right, of whichever compiler.

    Functions that silo.step marked run with their examples on this machine; the bundle keeps their launches as plans.
    """
    from silo.cli.progress_bars import BuildProgress  # noqa: PLC0415  # heavy: only when the command runs

    # reads the key first, so that an error in it is found before anything is compiled
    signing = None if key is None else read_key(key)
    if download and not toolchain:
        raise click.BadParameter("--download fetches toolchains: name one, such as --toolchain triton==3.6.0")
    changes = {"deterministic": True} if deterministic else {}
    with override(**changes), BuildProgress(enabled=not (quiet or json)) as progress:
        if toolchain:
            from silo.commands.build_with_toolchains import build_with_toolchains  # noqa: PLC0415

            build = partial(
                build_with_toolchains,
                toolchains=toolchain,
                download=download,
                report=lambda line: say(line, stderr=True),
            )
        else:
            from silo.commands.build_bundle import build_bundle as build  # noqa: PLC0415

        summary = build(
            files,
            output,
            targets=target,
            kernels=kernel or None,
            tune=tune,
            budget_s=budget,
            configs=configs,
            key=signing,
            progress=progress.stage,
            tuning=progress.update,
        )
    if json:
        print_json(asdict(summary))
        return
    if not quiet:
        print_table(summary.table())
        for line in summary.lines():
            say_lines(line)
