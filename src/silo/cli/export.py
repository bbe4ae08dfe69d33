"""``silo export``: write a bundle as a folder of C and C++ sources."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import click

from silo.cli.console import ExitCode, print_json, say
from silo.cli.options import Json, Quiet, targets_option
from silo.cli.parser import Argument, Option

__all__ = ["command"]


def command(
    path: Annotated[Path, Argument(metavar="K.silo", help="A bundle.")],
    cpp: Annotated[
        Path | None, Option("--cpp", metavar="DIR", help="Write a folder that C and C++ compilers build.")
    ] = None,
    check: Annotated[
        Path | None,
        Option(
            "--check", metavar="DIR", help="Only list files there that are stale or changed; exit code 1 if any are."
        ),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        Option("--kernel", "--kernels", "-k", metavar="NAME", help="Only this kernel; repeatable. Default: all."),
    ] = None,
    target: Annotated[
        list[str] | None,
        targets_option("Only code for this target, such as cpu or cuda:sm_90; repeatable. Default: all.", "--targets"),
    ] = None,
    namespace: Annotated[
        str | None,
        Option("--namespace", metavar="NAME", help="The namespace of C++. Default: made of the bundle's name."),
    ] = None,
    *,
    no_tests: Annotated[bool, Option("--no-tests", help="Leave out the self-test.")] = False,
    cpu_source: Annotated[
        bool,
        Option("--cpu-source", help="Compile the C text of CPU code into the program, in place of its objects."),
    ] = False,
    torch: Annotated[
        bool, Option("--torch", help="Also the kernels as operators of torch, over its stable ABI.")
    ] = False,
    wheel: Annotated[
        str | None,
        Option("--wheel", metavar="NAME[==VERSION]", help="Build a wheel that needs no Silo; needs CMake."),
    ] = None,
    output: Annotated[
        Path, Option("--output", "-o", metavar="DIR", help="Where the wheel goes. Default: here.")
    ] = Path(),
    trust: Annotated[bool, Option("--trust", help="Export the bundle's host code even if it is not trusted.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write the kernels of K.silo as a C++ library that needs no Python, or check a folder that was written.

    Files that are already right stay as they are. --check uses the options with which the folder was written.
    """
    if (cpp is None and wheel is None) == (check is None):
        raise click.BadParameter("say --cpp DIR to write a folder, --wheel NAME for a wheel, or --check DIR alone")
    from silo.commands.export_bundle import ExportOptions, check_export, export_cpp, export_wheel  # noqa: PLC0415  # heavy

    if check is not None:
        if kernel or target or namespace or no_tests or cpu_source or torch:
            raise click.BadParameter("--check takes the options that the folder was written with: give none")
        differences = check_export(path, check)
        if json:
            print_json(asdict(differences))
        elif not quiet:
            for line in differences.lines or (f"{check} is current",):
                say(line)
        if differences:
            raise click.exceptions.Exit(ExitCode.FAILED)
        return
    options = ExportOptions(
        kernels=tuple(kernel) if kernel else None,
        targets=tuple(target) if target else None,
        namespace=namespace,
        tests=not no_tests,
        cpu_source=cpu_source,
        torch=torch,
    )
    exported = None if cpp is None else export_cpp(path, cpp, options, trust=trust)
    built = None if wheel is None else export_wheel(path, wheel, output, options, trust=trust)
    if json:
        folder = {} if exported is None else {**asdict(exported), "folder": str(exported.folder)}
        print_json({**folder, **({} if built is None else {"wheel": str(built)})})
        return
    if exported is not None and not quiet:
        functions = f"{len(exported.functions)} function" + "s" * (len(exported.functions) != 1)
        say(
            f"{cpp}: namespace {exported.namespace}, {functions}, {exported.files} files, of which "
            f"{len(exported.written)} are new or changed"
            + (f", {len(exported.removed)} removed" if exported.removed else "")
        )
        say(f"build it: cmake -S {cpp} -B {cpp}/build && cmake --build {cpp}/build; see {cpp}/README.md")
    if built is not None and not quiet:
        say(f"{built}: {built.stat().st_size / 1024:.1f} KiB; install it with pip")
