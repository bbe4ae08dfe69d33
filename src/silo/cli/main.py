"""Entry point of the ``silo`` command: options for every command, errors without tracebacks, exit codes."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any, cast

import typer

from silo.cli import (
    agent,
    build,
    cache,
    doctor,
    export,
    fleet,
    inspect,
    report,
    run,
    selftest,
    sign,
    slices,
    trust,
    tune,
)
from silo.cli import exec as exec_
from silo.cli import registries as registry
from silo.cli.console import ExitCode, log_to_stderr, say_error, say_lines
from silo.cli.options import EPILOG, Command, CommandGroup
from silo.errors import SiloError

__all__ = ["app", "main"]

app = typer.Typer(
    name="silo",
    help="Compile, tune, pack and run compute kernels.",
    no_args_is_help=True,
    cls=CommandGroup,
    epilog=EPILOG,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_GROUPS: dict[str, dict[str, tuple[Callable[..., None], str]]] = {
    "Kernels": {
        "build": (build.command, "Compile kernels for every target into one bundle."),
        "tune": (tune.command, "Measure configs, and keep every trial."),
        "run": (run.command, "Run the cases of kernels and check the results."),
        "check": (run.check_command, "Run the cases with every access checked."),
        "inspect": (inspect.command, "Show a bundle: kernels, targets, winners, code."),
        "report": (report.command, "Write a page for each kernel from its trials."),
        "export": (export.command, "Make a C++ library that needs no Python."),
    },
    "Bundles": {
        "slice": (slices.slice_command, "Cut a bundle by target."),
        "merge": (slices.merge_command, "Join bundles."),
        "push": (registry.push_command, "Push a bundle to a registry."),
        "pull": (registry.pull_command, "Pull a bundle from a registry."),
    },
    "Trust": {
        "trust": (trust.command, "Allow native code that others built."),
        "untrust": (trust.untrust_command, "Withdraw that permission."),
        "keygen": (sign.keygen_command, "Make a pair of keys to sign bundles with."),
        "sign": (sign.sign_command, "Sign a bundle."),
        "verify": (sign.verify_command, "Check the bytes and the signature of a bundle."),
    },
    "This machine": {
        "doctor": (doctor.command, "Check what works here, and say why something does not."),
        "selftest": (selftest.command, "Run small kernels of a kind and compare their results."),
        "agent": (agent.command, "Measure here for a silo tune of another machine."),
    },
}
app.command(
    "exec",
    cls=exec_.ExecCommand,
    context_settings=exec_.CONTEXT,
    rich_help_panel="Programs",
    short_help="Run your program, unchanged, with its kernels launched by Silo.",
)(exec_.command)
for _group, _commands in _GROUPS.items():
    for _name, (_command, _line) in _commands.items():
        app.command(_name, cls=Command, rich_help_panel=_group, short_help=_line)(_command)
app.add_typer(
    cache.app, name="cache", rich_help_panel="This machine", short_help="Size, pruning and copies of the store."
)
app.add_typer(fleet.app, name="fleet", rich_help_panel="Kernels", short_help="Show the decisions in shared stores.")


@app.command("help", cls=Command, rich_help_panel="Help", short_help="Show the help of a command.")
def help_command(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="As in: cache prune.")] = None,
) -> None:
    """Show the help of a command, or of all commands, as --help does."""
    at: Any = context.parent
    for name in command or ():
        found = at.command.get_command(at, name) if hasattr(at.command, "get_command") else None
        if found is None:
            raise typer.BadParameter(f"there is no command {' '.join(command or ())!r}")
        at = typer.Context(found, info_name=name, parent=at)
    if text := at.get_help():  # "" if the library has printed it with colours
        say_lines(text)


@app.command("version", cls=Command, rich_help_panel="Help", short_help="Show the version.")
def version_command() -> None:
    """Show the version of Silo, as --version does."""
    _version(asked=True)


# Packages that parts of Silo need, and how to get each.
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


# The common base class of the parser's usage errors; it has no public name.
_USAGE_ERROR: type = typer.BadParameter.__mro__[2]


def _version(asked: bool) -> None:  # noqa: FBT001  # typer's callback form
    if asked:
        import silo  # noqa: PLC0415  # not needed otherwise

        typer.echo(f"silo {silo.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error, and debug messages.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of every command."""
    del version
    from silo.settings import settings  # noqa: PLC0415  # after the options are read

    asked = settings()
    quiet, said = asked.quiet and not debug, "debug" if debug else asked.log or "info"
    level = logging.ERROR if quiet else logging.getLevelNamesMapping()[said.upper()]
    log_to_stderr(level)


def _failed(message: str) -> ExitCode:
    say_error(message)
    return ExitCode.ERROR


def _traced() -> ExitCode:
    """Print the traceback of the current exception; Python itself would exit with 1, as for a failed check."""
    say_lines(traceback.format_exc().rstrip("\n"), stderr=True)
    return ExitCode.ERROR


def main() -> None:
    """Run the command line and leave with its exit code."""
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
    except (KeyboardInterrupt, typer.Abort):
        code = ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001  # a defect of Silo: its traceback is printed
        if isinstance(error, _USAGE_ERROR):
            cast("Any", error).show()
            code = ExitCode.USAGE
        else:
            code = _traced()
    sys.exit(code if isinstance(code, int) else ExitCode.OK)
