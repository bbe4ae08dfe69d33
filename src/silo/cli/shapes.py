"""The help texts of the commands: flags, arguments, exit codes."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["EPILOG", "Command", "CommandGroup"]

EPILOG = (
    "Exit codes: 0 all is well; 1 a check failed (a wrong result, a damaged bundle, a missing part); 2 wrong usage; "
    "3 an error, with its message; 130 interrupted."
)


def _untyped(**_: object) -> None:
    """The type of an argument: its name says it already, and the parser would write ``<list[Path]>``."""


def _plain(params: list[Any]) -> list[Any]:
    """The parameters, with nothing where newer versions of the parser would show the type in the code."""
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
    """A command of commands."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401, D102  # the parser's own
        return _plain(super().get_params(ctx))
