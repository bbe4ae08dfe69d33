"""Entry point of the ``silo`` command: global options, errors without tracebacks, exit codes."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import click

from silo.cli.console import ExitCode, log_to_stderr, say_error, say_lines
from silo.cli.options import EPILOG, INSTALL_HELP, SHOW_HELP, install_completion, show_completion
from silo.cli.parser import Argument, CommandGroup, LazyCommand, Option, group_from, nearest_word, usage_error
from silo.errors import SiloError

__all__ = ["app", "help_command", "main", "version_command"]

_COMMANDS: dict[str, LazyCommand] = {
    "exec": LazyCommand(
        "silo.cli.exec:command",
        "Run your program, unchanged, with its kernels launched by Silo.",
        "Programs",
        cls="ExecCommand",
        context={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
    ),
    "build": LazyCommand("silo.cli.build:command", "Compile kernels for every target into one bundle.", "Kernels"),
    "tune": LazyCommand("silo.cli.tune:command", "Measure configs, and keep every trial.", "Kernels"),
    "run": LazyCommand("silo.cli.run:command", "Run the cases of kernels and check the results.", "Kernels"),
    "check": LazyCommand("silo.cli.run:check_command", "Run the cases with every access checked.", "Kernels"),
    "inspect": LazyCommand("silo.cli.inspect:command", "Show a bundle: kernels, targets, winners, code.", "Kernels"),
    "diff": LazyCommand("silo.cli.diff:command", "Compare two bundles: code, results, times.", "Kernels"),
    "judge": LazyCommand("silo.cli.judge:command", "Judge kernels by strangers.", "Kernels"),
    "crash": LazyCommand("silo.cli.crash:command", "Name the kernel and the line of a crash.", "Programs"),
    "report": LazyCommand("silo.cli.report:command", "Write a page for each kernel from its trials.", "Kernels"),
    "fleet": LazyCommand("silo.cli.fleet:app", "Show the decisions in shared stores.", "Kernels"),
    "export": LazyCommand("silo.cli.export:command", "Make a C++ library that needs no Python.", "Kernels"),
    "slice": LazyCommand("silo.cli.slices:slice_command", "Cut a bundle by target.", "Bundles"),
    "merge": LazyCommand("silo.cli.slices:merge_command", "Join bundles.", "Bundles"),
    "push": LazyCommand("silo.cli.slices:push_command", "Push a bundle to a registry.", "Bundles"),
    "pull": LazyCommand("silo.cli.slices:pull_command", "Pull a bundle from a registry.", "Bundles"),
    "trust": LazyCommand("silo.cli.trust:command", "Allow native code that others built.", "Trust"),
    "untrust": LazyCommand("silo.cli.trust:untrust_command", "Withdraw that permission.", "Trust"),
    "keygen": LazyCommand("silo.cli.trust:keygen_command", "Make a pair of keys to sign bundles with.", "Trust"),
    "sign": LazyCommand("silo.cli.trust:sign_command", "Sign a bundle.", "Trust"),
    "verify": LazyCommand("silo.cli.trust:verify_command", "Check the bytes and the signature of a bundle.", "Trust"),
    "doctor": LazyCommand(
        "silo.cli.doctor:command", "Check what works here, and say why something does not.", "This machine"
    ),
    "selftest": LazyCommand(
        "silo.cli.doctor:selftest_command", "Run small kernels of a kind and compare their results.", "This machine"
    ),
    "agent": LazyCommand("silo.cli.fleet:command", "Measure here for a silo tune of another machine.", "This machine"),
    "cache": LazyCommand("silo.cli.cache:app", "Size, pruning and copies of the store.", "This machine"),
    "help": LazyCommand("silo.cli.main:help_command", "Show the help of a command.", "Help"),
    "version": LazyCommand("silo.cli.main:version_command", "Show the version.", "Help"),
}


def help_command(
    context: click.Context,
    command: Annotated[list[str] | None, Argument(metavar="[COMMAND]...", help="As in: cache prune.")] = None,
) -> None:
    """Show the help of a command, or of all commands, as --help does."""
    at: Any = context.parent
    for name in command or ():
        subcommand = at.command.get_command(at, name) if isinstance(at.command, CommandGroup) else None
        if subcommand is None:
            commands = at.command.list_commands(at) if isinstance(at.command, CommandGroup) else ()
            raise click.BadParameter(f"there is no command {' '.join(command or ())!r}{nearest_word(name, commands)}")
        at = click.Context(subcommand, info_name=name, parent=at)
    say_lines(at.get_help())


def version_command() -> None:
    """Show the version of Silo, as --version does."""
    _version(requested=True)


# Optional packages that parts of Silo need, and how to install each.
_OPTIONAL = {
    "numpy": "'kernel-silo[numpy]'",
    "jinja2": "'kernel-silo[report]'",
    "ray": "'kernel-silo[ray]'",
    "cryptography": "'kernel-silo[sign]'",
    "ml_dtypes": "ml_dtypes",
    "torch": "torch",
}


def _to_install(package: str) -> str | None:
    from silo.sources.kinds import requirement_of  # noqa: PLC0415  # only if a package is missing

    requirement = requirement_of(package)
    return _OPTIONAL.get(package) or (None if requirement is None else f"'{requirement}'")


def _version(requested: bool) -> None:  # noqa: FBT001  # a check of an option
    if requested:
        import silo  # noqa: PLC0415  # not needed otherwise

        say_lines(f"silo {silo.__version__}")
        raise click.exceptions.Exit


def options(
    *,
    debug: Annotated[bool, Option("--debug", help="Show the traceback of an error, and debug messages.")] = False,
    version: Annotated[bool, Option("--version", check=_version, eager=True, help="Show the version.")] = False,
    install: Annotated[
        str | None,
        Option("--install-completion", metavar="SHELL", check=install_completion, eager=True, help=INSTALL_HELP),
    ] = None,
    show: Annotated[
        str | None, Option("--show-completion", metavar="SHELL", check=show_completion, eager=True, help=SHOW_HELP)
    ] = None,
) -> None:
    """Compile, tune, pack and run compute kernels."""
    del version, install, show
    import logging  # noqa: PLC0415  # completion does without

    from silo.settings import settings  # noqa: PLC0415  # after the options are read

    current = settings()
    quiet, log_level = current.quiet and not debug, "debug" if debug else current.log or "info"
    level = logging.ERROR if quiet else logging.getLevelNamesMapping()[log_level.upper()]
    log_to_stderr(level)


app = group_from(options, "silo", lazy=_COMMANDS, epilog=EPILOG)


def _failed(message: str) -> ExitCode:
    say_error(message)
    return ExitCode.ERROR


def _traced() -> ExitCode:
    """Prints the traceback of the current exception and returns the exit code for an error.

    Python itself would exit with 1, which means a failed check here.
    """
    import traceback  # noqa: PLC0415  # completion does without

    say_lines(traceback.format_exc().rstrip("\n"), stderr=True)
    return ExitCode.ERROR


def main() -> None:
    """Runs the command line and exits with its exit code."""
    debug = "--debug" in sys.argv[1:]
    try:
        code = app(prog_name="silo", standalone_mode=False)
    except SiloError as error:
        code = _traced() if debug else _failed(str(error))
    except ModuleNotFoundError as error:
        package = None if debug else _to_install(error.name or "")
        if package is None:
            code = _traced()
        else:
            code = _failed(f"this needs {error.name}, which is not installed: pip install {package}")
    except (KeyboardInterrupt, click.Abort):
        code = ExitCode.INTERRUPTED
    except click.ClickException as error:
        say_lines(usage_error(error), stderr=True)
        code = ExitCode.USAGE
    except Exception:  # noqa: BLE001  # a defect of Silo: its traceback is printed
        code = _traced()
    sys.exit(code if isinstance(code, int) else ExitCode.OK)
