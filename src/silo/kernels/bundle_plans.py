"""Plans of a bundle: recorded when the bundle was built, and run on every device that the bundle has code for.

A plan has one or more forms: recorded sequences of launches, each with the conditions on a call's arguments under which
it may be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from silo.core.expressions import Argument, Const, Extent, Node, Op, OpKind, Stride, evaluate
from silo.core.expressions import Bindings as NodeBindings
from silo.core.recorded_plans import ArgumentKind, RecordedArgument, RecordedForm, RecordedLaunch, RecordedPlan, Source
from silo.core.values import from_dlpack
from silo.errors import ArgumentError, BundleError
from silo.kernels.plans import Plan
from silo.launch import native
from silo.launch.plan_tracers import TracedArray, TracedInt

__all__ = ["BundledPlans"]

_NOTHING = NodeBindings()


class _ByName(Protocol):
    """The interface by which plans find the kernels of a bundle."""

    def __getitem__(self, name: str, /) -> Any: ...  # noqa: ANN401  # a kernel


class BundledPlans(Mapping[str, Plan]):
    """The plans of a bundle by name: ``silo.load("K.silo").plans["step"](x=..., n=...)``.

    A plan is made at its first use, and launches the bundle's kernels: its first call chooses and loads their code for
    the device of its arrays, later calls are replays (:class:`silo.Plan`). A call that none of the plan's recorded
    forms serves raises an ``ArgumentError`` with the reasons.
    """

    def __init__(
        self,
        bundle: str,
        recorded: Mapping[str, RecordedPlan],
        kernels: _ByName,
        consent: Callable[[RecordedPlan], None],
    ) -> None:
        """Makes a view of ``recorded``. ``consent`` raises ``TrustError`` if a plan may not launch native CPU code."""
        self._bundle = bundle
        self._recorded = recorded
        self._kernels = kernels
        self._consent = consent
        self._plans: dict[str, Plan] = {}

    def __getitem__(self, name: str) -> Plan:
        plan = self._plans.get(name)
        if plan is None:
            recorded = self._recorded.get(name)
            if recorded is None:
                names = ", ".join(self._recorded) or "none"
                raise BundleError(f"{self._bundle} holds no plan {name!r}; it holds: {names}")
            plan = self._plans.setdefault(name, self._plan(recorded))
        return plan

    def __contains__(self, name: object) -> bool:
        return name in self._recorded

    def __iter__(self) -> Iterator[str]:
        return iter(self._recorded)

    def __len__(self) -> int:
        return len(self._recorded)

    def _plan(self, recorded: RecordedPlan) -> Plan:
        def run(arguments: tuple[Any, ...]) -> None:
            arguments_by_name = dict(zip(recorded.parameters, arguments, strict=True))
            form = _serving(recorded, arguments_by_name)
            if any(_is_on_host(value) for value in arguments):
                self._consent(recorded)
            for launch in form.launches:
                self._launch(launch, arguments_by_name)

        return Plan(recorded.name, recorded.parameters, run)

    def _launch(self, launch: RecordedLaunch, named: Mapping[str, Any]) -> None:
        arguments: dict[str, Any] = dict(launch.options)
        for argument in launch.arguments:
            match argument.source:
                case Source.GIVEN:
                    arguments[argument.parameter] = named[cast("str", argument.what)]
                case Source.COMPUTED:
                    arguments[argument.parameter] = _computed(cast("Node", argument.what), named)
                case Source.CONSTANT:
                    arguments[argument.parameter] = argument.what
        kernel = self._kernels[launch.kernel]
        if launch.grid is not None:
            kernel = kernel[tuple(_computed(axis, named) for axis in launch.grid)]
        kernel(**arguments)


def _plain(value: Any) -> Any:  # noqa: ANN401  # whatever a call gives
    return value.stands_for if isinstance(value, native.StandIn) else value


def _read(value: Any) -> tuple[Any, ...] | None:  # noqa: ANN401  # as above
    """Returns the result of :func:`native.read` for an array; None for other objects."""
    plain = _plain(value)
    if plain is None or isinstance(plain, bool | int | float | str):
        return None
    try:
        return native.read(plain)
    except (TypeError, ValueError, RuntimeError):
        return None


def _is_on_host(value: Any) -> bool:  # noqa: ANN401  # as above
    array = _read(value)
    return array is not None and array[4][0] == 1


# ---- choosing the form that serves a call ----


def _serving(recorded: RecordedPlan, named: Mapping[str, Any]) -> RecordedForm:
    """Returns the plan's first form (a recorded sequence of launches) that serves a call.

    Raises:
        ArgumentError: no form serves it.
    """
    reasons: list[str] = []
    for number, form in enumerate(recorded.forms, start=1):
        reason = _refusal(recorded, form, named)
        if not reason:
            return form
        reasons.append(f"form {number}: {reason}")
    raise ArgumentError(
        f"the plan {recorded.name} was recorded for other arguments ({'; '.join(reasons)}): add such an example to its"
        " silo.step, and build the bundle again"
    )


def _refusal(recorded: RecordedPlan, form: RecordedForm, named: Mapping[str, Any]) -> str:
    """Returns why the conditions of a plan's recorded form exclude a call; "" if the form serves the call."""
    for name, argument in zip(recorded.parameters, form.arguments, strict=True):
        if reason := _other_argument(argument, named[name]):
            return f"{name} is {reason}"
    for node in form.holds:
        if not _computed(node, named):
            return f"{node} does not hold"
    return ""


def _other_argument(wanted: RecordedArgument, value: Any) -> str:  # noqa: ANN401  # as above
    """Returns in words how an argument differs from the recorded kind, value, dtype or rank; "" if it does not."""
    plain = _plain(value)
    shown = type(plain).__name__
    match wanted.kind:
        case ArgumentKind.INTEGER:
            return "" if type(plain) is int else f"{shown}, not an integer"
        case ArgumentKind.FLOAT:
            return "" if type(plain) is float else f"{shown}, not a float"
        case ArgumentKind.VALUE:
            same = type(plain) is type(wanted.value) and bool(value == wanted.value)
            return "" if same else f"{plain!r}, not {wanted.value!r}"
        case ArgumentKind.ARRAY:
            array = _read(value)
            if array is None:
                return f"{shown}, not an array"
            _, code, bits, _, _, sizes, _ = array
            dtype = from_dlpack(code, bits)
            if dtype != wanted.dtype or len(sizes) != wanted.rank:
                return f"of {dtype} with {len(sizes)} axes, not of {wanted.dtype} with {wanted.rank}"
            return ""


# ---- values ----


def _computed(node: Node, named: Mapping[str, Any]) -> Any:  # noqa: ANN401  # an int, or one with its expression
    """Evaluates an expression over a call's arguments. If an argument is a tracer, the result may be a tracer, too."""
    match node:
        case Const(value):
            return value
        case Argument(name):
            return named[name]
        case Extent(name, axis) | Stride(name, axis):
            return _axis(named[name], axis, stride=isinstance(node, Stride))
        case Op(OpKind.SELECT, (condition, yes, no)):
            return _computed(yes if _computed(condition, named) else no, named)
        case Op(OpKind.AND, (left, right)):
            return int(bool(_computed(left, named)) and bool(_computed(right, named)))
        case Op(OpKind.OR, (left, right)):
            return int(bool(_computed(left, named)) or bool(_computed(right, named)))
        case Op(kind, operands):
            return _applied(kind, [_computed(operand, named) for operand in operands])
        case _:
            raise ArgumentError(f"{node} is nothing that a plan is given")


def _axis(array: Any, axis: int, *, stride: bool) -> Any:  # noqa: ANN401  # as above
    *_, sizes, strides = cast("tuple[Any, ...]", _read(array))
    number = (strides if stride else sizes)[axis]
    return array.traced_axis(axis, number, stride=stride) if isinstance(array, TracedArray) else number


def _applied(kind: OpKind, operands: Sequence[Any]) -> Any:  # noqa: ANN401  # as above
    for operand in operands:
        if isinstance(operand, TracedInt):
            result = operand.combine(kind, tuple(operands))
            if result is not NotImplemented:
                return result
    return evaluate(Op(kind, tuple(Const(int(_plain(operand))) for operand in operands)), _NOTHING)
