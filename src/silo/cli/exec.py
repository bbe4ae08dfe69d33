"""``silo exec``: run a program whose Triton kernels Silo launches."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Annotated, cast

import click

from silo.cli.console import say
from silo.cli.parser import Argument, Command, Option

__all__ = ["ExecCommand", "command", "interpreter_options", "with_report_place"]

# matches the word "python" in front of a program's command line that a user copied whole
_PYTHON = re.compile(r"python(3(\.\d+)?)?")


def interpreter_options(command_line: Sequence[str], own_arguments: Sequence[str]) -> list[str]:
    """Returns the options that this Python was started with; the program's Python gets them too.

    >>> interpreter_options(["python", "-O", "-W", "error", "-m", "silo", "exec", "-m", "silo"], ["exec", "-m", "silo"])
    ['-O', '-W', 'error']
    >>> interpreter_options(["python", "-O", "/usr/bin/silo", "exec", "-m", "silo"], ["exec", "-m", "silo"])
    ['-O']

    Args:
        command_line: the command line of this process.
        own_arguments: the end of that command line that follows the name of this program.
    """
    own = list(command_line[1 : len(command_line) - len(own_arguments)])
    return own[:-2] if own[-2:-1] == ["-m"] else own[:-1]


def with_report_place(arguments: Sequence[str], valued: Container[str]) -> list[str]:
    """Replaces ``--report`` without a file by ``--report=-``, which prints the table on standard error.

    The word after ``--report`` is the file, unless it is an option, the last word, or a Python script that exists.

    >>> with_report_place(["--report", "-m", "package", "--report", "x"], {"--report"})
    ['--report=-', '-m', 'package', '--report', 'x']
    >>> with_report_place(["--report", "r.jsonl", "train.py"], {"--report"})
    ['--report=r.jsonl', 'train.py']

    Args:
        arguments: the command line after ``silo exec``.
        valued: the options that take a value: the word after such an option is its value, not the program.
    """
    result: list[str] = []
    words_left = list(arguments)
    while words_left and words_left[0].startswith("-") and words_left[0] not in ("-", "-c", "--"):
        word = words_left.pop(0)
        if word == "--report":
            has_file = len(words_left) > 1 and _is_report_file(words_left[0])
            result.append(f"--report={words_left.pop(0) if has_file else '-'}")
        else:
            result.append(word)
            result += [words_left.pop(0)] if word in valued and words_left else []
    return result + words_left


def _is_report_file(word: str) -> bool:
    if word == "-":
        return True
    is_script = word.endswith((".py", ".pyw", ".pyc", ".pyz")) or Path(word).is_dir()
    return not word.startswith("-") and not (is_script and Path(word).exists())


class ExecCommand(Command):
    """The command ``silo exec``, whose ``--report`` takes an optional file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the command line. An unknown option before the program is a usage error."""
        valued = {name for param in self.params if not getattr(param, "is_flag", True) for name in param.opts}
        arguments = super().parse_args(ctx, with_report_place(args, valued))
        program = ctx.params.get("program") or [""]
        word = program[0].partition("=")[0]
        if word.startswith("-") and word not in ("-", "-c") and not ctx.resilient_parsing and args[:1] != ["--"]:
            raise click.NoSuchOption(word, ctx=ctx)
        return arguments


def command(
    program: Annotated[
        list[str], Argument(metavar="SCRIPT|MODULE [ARGUMENTS]...", help="What Python runs, and its arguments.")
    ],
    *,
    module: Annotated[bool, Option("-m", help="Run a module by its dotted name, as python -m does.")] = False,
    report: Annotated[
        str | None,
        Option(
            "--report",
            metavar="[FILE]",
            help="Report at exit what was launched, and what was left to Triton, with reasons and shares: a table on "
            "standard error, or lines of JSON in FILE.",
        ),
    ] = None,
    record: Annotated[
        Path | None,
        Option("--record", metavar="K.silo", help="Keep there what the kernels compile to and tuners decide."),
    ] = None,
    cover: Annotated[
        list[str] | None,
        Option(
            "--cover",
            metavar="[KERNEL.]NAME=VALUES",
            help="With --record: compile kernels for these values of a constexpr too, as BLOCK=16,32 or "
            "BLOCK=1..4096:pow2; once for each parameter.",
        ),
    ] = None,
    bundle: Annotated[
        Path | None,
        Option("--bundle", metavar="K.silo", help="Serve the kernels from such a recording."),
    ] = None,
    caches: Annotated[
        str | None,
        Option(
            "--caches",
            metavar="NAMES",
            help="With --record: also keep the GPU code that these runtimes cache: deep_gemm, flashinfer_cubins.",
        ),
    ] = None,
    frozen: Annotated[
        bool,
        Option("--frozen", help="With --bundle: what it does not hold is an error, never compiled or measured."),
    ] = False,
    lock: Annotated[
        Path | None,
        Option("--lock", metavar="FILE", help="A lock file (silo cache to-lock) that decides for tuners."),
    ] = None,
    short_measurements: Annotated[
        bool,
        Option("--short-measurements", help="Tuners measure every config shortly and only the fastest in full."),
    ] = False,
    on: Annotated[
        str | None,
        Option("--on", metavar="cpu", help="torch's cuda device is the CPU: a program for CUDA runs without one."),
    ] = None,
    pretend: Annotated[
        str | None,
        Option("--pretend", metavar="DEVICE", help="With --on cpu: the device that torch.cuda reports, as h100."),
    ] = None,
    check: Annotated[
        bool,
        Option("--check", help="Run every kernel in checking mode, on the CPU, as SILO_CHECK=1 does."),
    ] = False,
    check_launches: Annotated[
        Path | None,
        Option(
            "--check-launches",
            metavar="CRASH.silo",
            help="Before each launch like a suspect of this report, copy its arrays and check the launch on the CPU.",
        ),
    ] = None,
) -> None:
    """Run a program, and the programs that it starts, with its Triton kernels launched by Silo.

    Triton compiles and tunes them, and the program is not changed: this process becomes `python SCRIPT ARGUMENTS` with
    SILO_ACCELERATE=1. Its exit code is the program's.
    """
    from silo.errors import SettingsError, SourceError  # noqa: PLC0415
    from silo.settings import absolute_path, program_environment  # noqa: PLC0415
    from silo.sources.kinds import kinds  # noqa: PLC0415
    from silo.sources.source_kind import ServesPrograms  # noqa: PLC0415

    if not module and program[0] != "-c" and not Path(program[0]).exists():
        if _PYTHON.fullmatch(program[0]) and len(program) > 1:
            raise SourceError(f"silo exec runs Python itself: leave {program[0]} out, as in silo exec {program[1]}")
        raise SourceError(f"there is no file {program[0]} to run; a module is run with -m: silo exec -m {program[0]}")
    for kind in kinds().values():
        if isinstance(kind, ServesPrograms) and not (reached := kind.programs_reached()):
            say(f"launches go Triton's own way: {reached.reason}", stderr=True)
    if record is not None and bundle is not None:
        raise SettingsError("a program is recorded (--record) or served (--bundle), not both: leave one of them out")
    if frozen and bundle is None:
        raise SettingsError("--frozen serves the kernels of a bundle and compiles nothing: add --bundle K.silo")
    if caches is not None and record is None:
        raise SettingsError("--caches names the caches that a recording keeps: add --record K.silo")
    changes = {"SILO_ACCELERATE": "1"}
    if record is not None:
        if record.suffix != ".silo":
            raise SettingsError(
                f"{record}: a bundle's name ends in .silo; write for example --record {record.stem or 'kernels'}.silo"
            )
        record = absolute_path(record)
        changes["SILO_RECORD"] = str(record)
        if not os.access(record.parent, os.W_OK):
            raise SettingsError(f"nothing can be recorded into {record}: its folder is not there, or cannot be written")
    if cover:
        changes["SILO_COVER"] = _covering(cover, record)
    if bundle is not None:
        from silo.core.plugins import load_place  # noqa: PLC0415

        journal_of = cast("Callable[[Path], Path]", load_place("silo.kinds.triton.programs.records.journal:journal_of"))
        if bundle.exists() or not journal_of(bundle).exists():  # a recording may exist as its journal alone
            from silo.cli.exec_caches import served_variables  # noqa: PLC0415

            # Reads the bundle, so that an error in it is reported before the program runs.
            changes |= served_variables(bundle, program_environment(), frozen=frozen)
        changes |= {"SILO_BUNDLE": str(absolute_path(bundle)), "SILO_FROZEN": "1" if frozen else "0"}
    if lock is not None:
        from silo.measuring.lock_files import read_lock  # noqa: PLC0415

        read_lock(lock)
        changes["SILO_LOCK"] = str(absolute_path(lock))
    if short_measurements:
        changes["SILO_SHORT_MEASUREMENTS"] = "1"
    if check:
        _require_cpu(on)
        changes["SILO_CHECK"] = "1"
    if check_launches is not None:
        changes |= _checking(check_launches)
    if on is not None or pretend is not None:
        changes |= _stand_in(on, pretend)
    if report is not None:
        changes["SILO_ACCELERATE_REPORT"] = report if report == "-" else str(absolute_path(Path(report)))
        changes.setdefault("SILO_FLIGHT", program_environment().get("SILO_FLIGHT") or "1")
    arguments = [
        sys.executable,
        *interpreter_options(sys.orig_argv, sys.argv[1:]),
        *(["-m"] if module else []),
        *program,
    ]
    sys.stdout.flush()
    sys.stderr.flush()
    if record is not None and caches is not None:
        from silo.cli.exec_caches import names_of, record_run  # noqa: PLC0415

        names = names_of(caches)
        raise click.exceptions.Exit(record_run(arguments, program_environment(**changes), record, names))
    os.execve(sys.executable, arguments, program_environment(**changes))  # noqa: S606  # what the user asked for


def _checking(path: Path) -> dict[str, str]:
    """Returns the environment variables for ``--check-launches``.

    Raises ``BundleError`` if the report cannot be read.
    """
    from silo.checking.crash_report import read_report  # noqa: PLC0415
    from silo.settings import absolute_path  # noqa: PLC0415

    read_report(path)  # reports an error in the file before the program runs
    return {"SILO_FLIGHT": "1", "SILO_FLIGHT_CHECK": str(absolute_path(path))}


def _covering(words: list[str], record: Path | None) -> str:
    """Returns the value of the environment variable for ``--cover``.

    Raises:
        SettingsError: a word is invalid, or nothing is recorded.
    """
    from silo.core.plugins import load_place  # noqa: PLC0415
    from silo.errors import SettingsError  # noqa: PLC0415

    if record is None:
        raise SettingsError("--cover names calls to compile while a program is recorded: add --record K.silo")
    reader_path = "silo.kinds.triton.programs.records.capture:read_covers"
    read_covers = cast("Callable[[list[str]], object]", load_place(reader_path))
    read_covers(words)
    return " ".join(words)


def _stand_in(on: str | None, pretend: str | None) -> dict[str, str]:
    """Returns the environment variables for ``--on cpu``, which makes the CPU serve ``cuda``.

    Prints a line about this substitution on standard error.
    """
    from silo.core.plugins import load_place  # noqa: PLC0415
    from silo.errors import SettingsError  # noqa: PLC0415
    from silo.variables import STAND_INS  # noqa: PLC0415

    if on not in STAND_INS:
        raise SettingsError(
            "--pretend says which device the CPU stands in for: add --on cpu"
            if on is None
            else f"--on is {' or '.join(STAND_INS)}, not {on!r}: write --on {STAND_INS[0]}"
        )
    changes_for = cast(
        "Callable[[str | None], tuple[dict[str, str], str]]",
        load_place("silo.integrations.cuda_on_cpu.activation:program_changes"),
    )
    changes, line = changes_for(pretend)
    say(line, stderr=True)
    return changes


def _require_cpu(on: str | None) -> None:
    """Raises ``SettingsError`` if kernels would run on a GPU, where launches are not checked."""
    from silo.core.plugins import load_place  # noqa: PLC0415
    from silo.errors import SettingsError  # noqa: PLC0415
    from silo.settings import triton_mode  # noqa: PLC0415

    if on is None and triton_mode() != "cpu":
        has_gpus = cast("Callable[[], bool]", load_place("silo.integrations.cuda_on_cpu.activation:has_gpus"))
        if has_gpus():
            raise SettingsError(
                "kernels are checked on the CPU, and this machine has a GPU where they would run: add --on cpu"
            )
