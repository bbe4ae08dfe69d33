"""A plan as a bundle stores it: one or several forms. Each form states which calls it serves, and holds their launches.

A plan names kernels, parameters and arguments. It contains no code, and no address or size that holds only on the
machine that recorded it, so it runs on every target for which the bundle has code of the plan's kernels.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from silo.core import expressions
from silo.core.expressions import Node
from silo.core.json_reader import (
    ANYTHING,
    DTYPE,
    NAME,
    VALUE,
    Form,
    Persisted,
    PersistedRow,
    enumerated,
    integer,
    listed,
    optional,
    paired,
    value_of,
)
from silo.core.values import JSON, DType, Value, malformed
from silo.frozen import field, frozen

__all__ = [
    "MAX_ARGUMENTS",
    "ArgumentKind",
    "RecordedArgument",
    "RecordedForm",
    "RecordedLaunch",
    "RecordedPlan",
    "RecordedSource",
    "Source",
]

MAX_FORMS: Final = 64
MAX_ARGUMENTS: Final = 64
MAX_LAUNCHES: Final = 16384
_MAX_PARAMETERS: Final = 1024
_MAX_AXES: Final = 32
_MAX_HOLDS: Final = 4096

_NODE: Final[Form[Node]] = Form(lambda data, what: expressions.from_json(data), expressions.to_json)  # noqa: ARG005


class ArgumentKind(Enum):
    """The kinds of values that a call gives for an argument of a plan."""

    ARRAY = "array"
    INTEGER = "integer"
    FLOAT = "float"
    VALUE = "value"  # the argument must equal a recorded value


@frozen
class RecordedArgument(Persisted):
    """The requirement of a :class:`RecordedForm` on an argument.

    An array has this ``dtype`` and ``rank`` (its number of axes); an argument of :attr:`ArgumentKind.VALUE` equals
    ``value``.
    """

    title = "an argument of a plan"
    kind: ArgumentKind = field(form=enumerated(ArgumentKind))
    dtype: DType | None = field(default=None, form=optional(DTYPE), left_out=True)
    rank: int = field(default=0, form=integer(0, _MAX_AXES), left_out=True)
    value: Value = field(default=None, form=VALUE, left_out=True)


class Source(Enum):
    """The origin of the value of a launch's parameter."""

    GIVEN = "given"  # an argument of the plan, unchanged
    COMPUTED = "computed"  # an integer: an expression over arguments of the plan
    CONSTANT = "constant"


@frozen
class RecordedSource(PersistedRow):
    """The value of one parameter of a launch: the name of a plan's argument, an expression or a constant."""

    title = "an argument of a recorded launch"
    parameter: str = field(form=NAME)
    source: Source = field(form=enumerated(Source))
    what: str | Node | Value = field(form=ANYTHING)  # its type depends on ``source``

    def to_json(self) -> JSON:
        """Returns ``[parameter, source, what]``."""
        return [self.parameter, self.source.value, _WHAT[self.source].write(self.what)]

    @classmethod
    def from_json(cls, data: JSON) -> RecordedSource:
        """Returns the source with this JSON form; raises ``ValueError`` for any other JSON."""
        match data:
            case [str(parameter), str(source), what] if source in _SOURCES:
                kind = _SOURCES[source]
                return cls(parameter, kind, _WHAT[kind].read(what, f"the argument {parameter} of a recorded launch"))
            case _:
                raise malformed(cls.title, data)


_SOURCES: Final = {one.value: one for one in Source}
_WHAT: Final[dict[Source, Form[Any]]] = {Source.GIVEN: NAME, Source.COMPUTED: _NODE, Source.CONSTANT: VALUE}


@frozen
class RecordedLaunch(Persisted):
    """One launch: the kernel and its arguments.

    A parameter that is missing takes its default or the config's value. ``grid`` has an expression for each of one to
    three axes; None means the grid that the kernel declares. ``options`` are compile options that the call sets.
    """

    title = "a recorded launch"
    kernel: str = field(form=NAME)
    arguments: tuple[RecordedSource, ...] = field(form=listed(value_of(RecordedSource), most=_MAX_PARAMETERS))
    grid: tuple[Node, ...] | None = field(default=None, form=optional(listed(_NODE, 1, 3)), left_out=True)
    options: tuple[tuple[str, Value], ...] = field(default=(), form=paired(VALUE), left_out=True)


@frozen
class RecordedForm(Persisted):
    """The launches for calls whose arguments meet ``arguments``, and for which every expression of ``holds`` is not 0.

    ``arguments`` has one requirement for each parameter of the plan.
    """

    title = "a form of a plan"
    arguments: tuple[RecordedArgument, ...] = field(form=listed(value_of(RecordedArgument), most=MAX_ARGUMENTS))
    launches: tuple[RecordedLaunch, ...] = field(form=listed(value_of(RecordedLaunch), 1, MAX_LAUNCHES))
    holds: tuple[Node, ...] = field(default=(), form=listed(_NODE, most=_MAX_HOLDS), left_out=True)


@frozen
class RecordedPlan(Persisted):
    """A plan of a bundle: ``parameters`` are the names of its arguments. The first form that fits a call is used."""

    title = "a plan"
    name: str = field(form=NAME)
    parameters: tuple[str, ...] = field(form=listed(NAME, most=MAX_ARGUMENTS))
    forms: tuple[RecordedForm, ...] = field(form=listed(value_of(RecordedForm), 1, MAX_FORMS))

    @property
    def kernels(self) -> tuple[str, ...]:
        """Returns the names of the kernels that the plan launches, each once."""
        return tuple(dict.fromkeys(launch.kernel for form in self.forms for launch in form.launches))
