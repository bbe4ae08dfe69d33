"""Entry point of the ``silo`` command: options for every command, errors without tracebacks, exit codes."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Annotated, Any, cast

import typer

from silo.cli import agent, build, cache, doctor, export, inspect, report, run, selftest, sign, slices, trust, tune
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
for _name, _command in {
    "build": build.command,
    "tune": tune.command,
    "agent": agent.command,
    "run": run.command,
    "inspect": inspect.command,
    "report": report.command,
    "export": export.command,
    "doctor": doctor.command,
    "selftest": selftest.command,
    "trust": trust.command,
    "untrust": trust.untrust_command,
    "keygen": sign.keygen_command,
    "sign": sign.sign_command,
    "verify": sign.verify_command,
    "slice": slices.slice_command,
    "merge": slices.merge_command,
    "push": registry.push_command,
    "pull": registry.pull_command,
}.items():
    app.command(_name, cls=Command)(_command)
app.command("exec", cls=exec_.ExecCommand, context_settings=exec_.CONTEXT)(exec_.command)
app.add_typer(cache.app, name="cache")


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
    from silo.sources.kinds import requirement_of  # noqa: PLC0415  # only where something is missing

    requirement = requirement_of(package)
    return _OPTIONAL.get(package) or (None if requirement is None else f"'{requirement}'")


# The common base of the parser's errors about the command line, which has no public name.
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
    """Show where the exception in hand comes from; left to Python, it would end as a failed check does, with 1."""
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
    except Exception as error:  # noqa: BLE001  # a defect: its traceback is wanted
        if isinstance(error, _USAGE_ERROR):
            cast("Any", error).show()
            code = ExitCode.USAGE
        else:
            code = _traced()
    sys.exit(code if isinstance(code, int) else ExitCode.OK)
