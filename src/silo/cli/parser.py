"""Makes click commands from Python functions. Annotations of their parameters describe the options and arguments.

This module has everything that commands share: how a parameter becomes an option, the form of help texts, commands
whose modules are imported when they are used, and usage errors that suggest the nearest word.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import click
from click.shell_completion import CompletionItem

from silo.frozen import frozen
from silo.sanitized_text import one_line

__all__ = [
    "Argument",
    "Command",
    "CommandGroup",
    "LazyCommand",
    "Option",
    "command_from",
    "group_from",
    "nearest_word",
    "usage_error",
]

# The largest number of columns in help texts; a narrower terminal reduces it.
_HELP_COLUMNS = 100
CONTEXT: Mapping[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": _HELP_COLUMNS}

Completer = Callable[[click.Context, str], Sequence[str]]


class Option:
    """An option of a command, in the annotation of a parameter: ``Annotated[str, Option("--name", help="...")]``.

    Args:
        names: the spellings, as ``"--kernel", "-k"``.
        metavar: the name of the value in help texts.
        help: a sentence about the option.
        choices: the allowed values; for another value, the usage error suggests the nearest.
        check: returns the value, or raises ``click.BadParameter``.
        eager: whether the option is processed before the others.
        complete: returns the values that begin with a text, for completion in shells.
    """

    def __init__(
        self,
        *names: str,
        metavar: str | None = None,
        help: str = "",  # noqa: A002  # click's name
        choices: Sequence[str] = (),
        check: Callable[[Any], Any] | None = None,
        eager: bool = False,
        complete: Completer | None = None,
    ) -> None:
        self.names, self.metavar, self.help, self.choices = names, metavar, help, tuple(choices)
        self.check, self.eager, self.complete = check, eager, complete


class Argument:
    """An argument of a command, in the annotation of a parameter. It has the parameters of :class:`Option`."""

    def __init__(self, *, metavar: str, help: str = "", complete: Completer | None = None) -> None:  # noqa: A002
        self.metavar, self.help, self.complete = metavar, help, complete


class _Argument(click.Argument):
    """A click argument that also has a line in the command's help."""

    def __init__(self, name: str, line: str, **options: Any) -> None:  # noqa: ANN401  # click's options
        super().__init__([name], **options)
        self.line = line


class Command(click.Command):
    """A click command whose help lists the arguments before the options."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes usage, text, arguments, options and the closing text."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        rows = [(param.make_metavar(ctx), param.line) for param in self.get_params(ctx) if isinstance(param, _Argument)]
        if rows:
            with formatter.section("Arguments"):
                formatter.write_dl(rows)
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)


@frozen
class LazyCommand:
    """A command whose module is imported when the command is used.

    ``place`` is ``module:name`` of a function or of a group. ``line`` is the sentence in the list of commands, and
    ``panel`` the heading under which it is listed.
    """

    place: str
    line: str
    panel: str
    cls: str = ""
    context: Mapping[str, Any] | None = None

    def command(self, name: str) -> click.Command:
        """Imports and returns the command."""
        module, _, attribute = self.place.partition(":")
        function: Any = getattr(import_module(module), attribute)
        if isinstance(function, click.Command):
            return function
        cls: type[Command] = getattr(import_module(module), self.cls) if self.cls else Command
        return command_from(function, name, cls=cls, context=self.context or {}, line=self.line)


class CommandGroup(click.Group):
    """A group of commands, listed under headings and imported when they are used."""

    def __init__(self, name: str, *, lazy: Mapping[str, LazyCommand], **options: Any) -> None:  # noqa: ANN401  # click's
        super().__init__(name, **options)
        self._lazy = dict(lazy)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order in which help lists them."""
        return [*self._lazy, *(name for name in super().list_commands(ctx) if name not in self._lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns the command with a name; None if there is no such command."""
        if cmd_name in self._lazy and cmd_name not in self.commands:
            self.add_command(self._lazy[cmd_name].command(cmd_name), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that the first word names.

        A usage error for an unknown word suggests the nearest command.
        """
        word = args[0]
        if not ctx.resilient_parsing and not word.startswith("-") and self.get_command(ctx, word) is None:
            ctx.fail(f"there is no command {word!r}{nearest_word(word, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands under their headings. Their lines come from the table, so no command is imported."""
        del ctx
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, lazy in self._lazy.items():
            panels.setdefault(lazy.panel, []).append((name, lazy.line))
        width = max(map(len, self._lazy), default=0)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl([(name.ljust(width), line) for name, line in rows])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Returns the commands, then the options, that begin with a text. No command is imported."""
        items = [
            CompletionItem(name, help=command.line)
            for name, command in self._lazy.items()
            if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]


def command_from(
    function: Callable[..., None],
    name: str,
    *,
    cls: type[Command] = Command,
    context: Mapping[str, Any] = types.MappingProxyType({}),
    line: str = "",
) -> Command:
    """Returns the command that calls ``function``; its docstring is the help text.

    Args:
        function: its parameters are annotated with :class:`Option` or :class:`Argument`, or are ``click.Context``.
        name: the command's name.
        cls: the class of the command.
        context: more settings of click's context.
        line: the sentence in lists of commands.
    """
    params, passes = parameters_of(function)

    def run(**values: Any) -> None:  # noqa: ANN401  # of the types that the annotations name
        if passes:
            values[passes] = click.get_current_context()
        function(**values)

    return cls(
        name,
        callback=run,
        params=params,
        help=_plain_text(inspect.getdoc(function) or ""),
        short_help=line,
        context_settings={**CONTEXT, **context},
    )


def group_from(
    function: Callable[..., None],
    name: str,
    *,
    lazy: Mapping[str, LazyCommand],
    epilog: str = "",
    without_command: bool = False,
) -> CommandGroup:
    """Returns a group of commands whose own options are the parameters of ``function``.

    Args:
        function: called before each command; its docstring is the help text.
        name: the group's name.
        lazy: its commands by name, in the order of their list.
        epilog: the last sentences of the help text.
        without_command: whether the group does something without a command, which ``function`` does.
    """
    base = command_from(function, name)
    return CommandGroup(
        name,
        lazy=lazy,
        callback=base.callback,
        params=base.params,
        help=base.help,
        epilog=epilog,
        no_args_is_help=not without_command,
        invoke_without_command=without_command,
        subcommand_metavar="[COMMAND]..." if without_command else "COMMAND ...",
        context_settings=dict(CONTEXT),
    )


def parameters_of(function: Callable[..., None]) -> tuple[list[click.Parameter], str]:
    """Returns the options and arguments of a function, and the name of its ``click.Context`` parameter or ``""``."""
    hints = get_type_hints(function, include_extras=True)
    params: list[click.Parameter] = []
    passes = ""
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if hint is click.Context:
            passes = name
            continue
        kind, declared = get_args(hint)[:2]
        required = parameter.default is inspect.Parameter.empty
        default = None if required else parameter.default
        if isinstance(declared, Option):
            params.append(_option(name, declared, kind, required=required, default=default))
        else:
            params.append(_argument(name, cast("Argument", declared), kind, required=required, default=default))
    return params, passes


def _option(name: str, declared: Option, kind: object, *, required: bool, default: object) -> click.Option:
    value_type, many = _value_type(kind)
    options: dict[str, Any] = {
        "metavar": declared.metavar,
        "help": declared.help,
        "is_eager": declared.eager,
        "callback": _checked(declared, many=many),
        "shell_complete": _completed(declared),
        **({} if required else {"default": default}),
    }
    if value_type is bool:
        return click.Option([name, *declared.names], is_flag=True, **options)
    shown = default is not None and default != Path()
    return click.Option(
        [name, *declared.names],
        type=_click_type(value_type),
        multiple=many,
        required=required,
        show_default=shown,
        **options,
    )


def _argument(name: str, declared: Argument, kind: object, *, required: bool, default: object) -> click.Argument:
    value_type, many = _value_type(kind)
    return _Argument(
        name,
        declared.help,
        metavar=declared.metavar,
        type=_click_type(value_type),
        nargs=-1 if many else 1,
        required=required,
        callback=_listed if many else None,
        shell_complete=_completed(declared),
        **({} if required else {"default": default}),
    )


def _value_type(kind: object) -> tuple[object, bool]:
    """Returns the type of one value, and whether the parameter takes several: (str, True) for ``list[str] | None``."""
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (argument for argument in get_args(kind) if argument is not types.NoneType)
    return (get_args(kind)[0], True) if get_origin(kind) is list else (kind, False)


def _click_type(value_type: object) -> Any:  # noqa: ANN401  # a class or one of click's types
    return click.Path(path_type=Path) if value_type is Path else value_type


def _checked(declared: Option, *, many: bool) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def check(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:  # noqa: ANN401  # as annotated
        value = list(value) if many and value is not None else value
        if declared.choices and value is not None and value not in declared.choices:
            near = nearest_word(str(value), declared.choices)
            raise click.BadParameter(f"{value!r} is none of {', '.join(declared.choices)}{near}")
        return value if declared.check is None else declared.check(value)

    return check


def _listed(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:  # noqa: ANN401  # as annotated
    return list(value or ())


def _completed(declared: Option | Argument) -> Any:  # noqa: ANN401  # click's callback, or None
    choices = declared.choices if isinstance(declared, Option) else ()
    complete = declared.complete
    if complete is None and not choices:
        return None

    def completed(context: click.Context, _parameter: click.Parameter, text: str) -> list[CompletionItem]:
        values = choices if complete is None else complete(context, text)
        return [CompletionItem(value) for value in values if value.startswith(text)]

    return completed


def _plain_text(text: str) -> str:
    """Removes the marks for code from a docstring, for use as help text."""
    return text.replace("``", "")


# ---- Usage errors ----


def nearest_word(word: str, words: Sequence[str]) -> str:
    """Returns the end of a message about a wrong word: ``"; did you mean tune?"``, or ``""`` if no word is near.

    >>> nearest_word("tuen", ("build", "tune"))
    '; did you mean tune?'
    """
    from difflib import get_close_matches  # noqa: PLC0415  # only for messages: completion is waited for

    near = get_close_matches(word, words, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def usage_error(error: click.ClickException) -> str:
    """Returns the message about a wrong command line: the usage, how to get help, and the reason."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    lines = [] if context is None else [context.get_usage(), f"Try '{context.command_path} --help' for help.", ""]
    return "\n".join([*lines, f"Error: {one_line(_message(error, context))}"])


# click's messages about a value that is not a number, and the messages that replace them.
_NUMBERS = (
    ("is not a valid float.", "is not a number, such as 2.5"),
    ("is not a valid integer.", "is not a whole number, such as 8"),
)


def _message(error: click.ClickException, context: click.Context | None) -> str:
    if isinstance(error, click.NoSuchOption):
        hint = [] if context is None else [name for param in context.command.get_params(context) for name in param.opts]
        return f"there is no option {error.option_name}{nearest_word(error.option_name, hint)}"
    message = error.format_message()
    if isinstance(error, click.MissingParameter) and error.param is not None:
        text = error.param.line if isinstance(error.param, _Argument) else getattr(error.param, "help", "")
        return f"{message.rstrip('.')}: {text}" if text else message
    for words, ours in _NUMBERS:
        message = message.replace(words, ours)
    return message
