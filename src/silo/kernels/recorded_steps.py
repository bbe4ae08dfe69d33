"""``silo.step``: functions whose launches a bundle keeps as a plan.

``silo build`` runs a step with its examples on this machine, as :func:`silo.plan` does. The bundle keeps which kernels
were launched, and their arguments as expressions of the function's arguments (:mod:`silo.core.recorded_plans`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from silo.core.expressions import Argument, Const, Extent, Node, Op, OpKind, Stride, make
from silo.core.recorded_plans import (
    ArgumentKind,
    RecordedArgument,
    RecordedForm,
    RecordedLaunch,
    RecordedPlan,
    RecordedSource,
    Source,
)
from silo.core.values import Value, from_dlpack
from silo.errors import ArgumentError, SourceError
from silo.kernels.kernel import Kernel
from silo.kernels.plans import Plan, names_of_arguments
from silo.launch import native
from silo.launch.plan_forms import SeenLaunch
from silo.launch.plan_torch import TorchWork
from silo.launch.plan_tracers import TracedArray, TracedFloat, TracedInt, Trail

__all__ = ["Step", "record_step", "step", "step_of"]

F = TypeVar("F", bound=Callable[..., object])
_MEMBER: Final = "__silo_step__"

# The numbers of enum silo_value_kind in native/core/argument_word.h.
_ABSENT, _POINTER, _INT, _FLOAT, _DESCRIPTOR = 0, 1, 4, 6, 8


@dataclass(frozen=True, slots=True)
class Step:
    """A function whose launches a bundle keeps, and the functions that make its examples."""

    function: Callable[..., object]
    examples: tuple[Callable[[], object], ...]

    @property
    def name(self) -> str:
        """The function's name, which is also the name of the plan in the bundle."""
        return self.function.__name__

    @property
    def location(self) -> str:
        """The file and line of the function."""
        code = getattr(self.function, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else self.name


def step(*examples: Callable[[], object]) -> Callable[[F], F]:
    """Makes ``silo build`` keep the launches of a function in the bundle, as a plan with the function's name.

    The function itself stays unchanged. ``silo.load("K.silo").plans["name"]`` is a plan that takes the function's
    arguments, like the result of :func:`silo.plan`. It launches the bundle's kernels, on every device that the bundle
    has code for, and does not need the function. C programs get the plan by ``silo_bundle_plan``.

    Args:
        examples: functions without parameters, each of which returns the arguments of one call: a tuple by position, or
            a mapping by name. ``silo build`` calls the function with each; calls that need other launches (another
            result of a comparison, another value of an argument that is a constant in the plan) need an example of
            their own.

    Raises:
        ArgumentError: without an example.

    >>> import numpy, silo, triton, triton.language as tl
    >>> @silo.kernel
    ... @triton.jit
    ... def double(x, out, n, BLOCK: tl.constexpr):
    ...     at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ...     tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
    >>> @silo.step(lambda: (*(numpy.ones(1000, "float32") for _ in range(3)), 1000))
    ... def quadruple(x, between, out, n):
    ...     grid = (silo.cdiv(n, 128),)
    ...     double[grid](x, between, n, BLOCK=128)
    ...     double[grid](between, out, n, BLOCK=128)
    """
    if not examples or not all(callable(example) for example in examples):
        raise ArgumentError(
            "silo.step takes functions that make the arguments of a call: @silo.step(lambda: (x, out, 1000))"
        )

    def mark(function: F) -> F:
        setattr(function, _MEMBER, Step(function, examples))
        return function

    return mark


def step_of(value: object) -> Step | None:
    """Returns the step of a function that :func:`step` marked; None for any other object."""
    candidate = getattr(value, "__dict__", {}).get(_MEMBER)
    return candidate if isinstance(candidate, Step) else None


class _RecordingPlan(Plan):
    """A plan that also passes its recordings to a function, ``seen``."""

    seen: Callable[[Mapping[str, object], list[SeenLaunch], list[SeenLaunch], Trail], None]

    def keep(
        self,
        named: Mapping[str, object],
        first: list[SeenLaunch],
        second: list[SeenLaunch],
        trail: Trail,
        work: tuple[TorchWork, TorchWork],
        result: object = None,
    ) -> None:
        super().keep(named, first, second, trail, work, result)
        if nodes := work[0].nodes:
            raise ArgumentError(
                f"the step {self._name}: {nodes[0].name} runs between launches, and a bundle keeps launches of"
                " kernels alone: make it a kernel, or a step for the launches before and one for those after"
            )
        self.seen(named, first, second, trail)


def record_step(step: Step, kernels: Iterable[Kernel]) -> RecordedPlan:
    """Runs a step's function with its examples; returns the plan of the recorded launches for a bundle of ``kernels``.

    Raises:
        ArgumentError: the step's launches cannot be kept (see :func:`silo.plan`); or the step launches a kernel that is
            not in the bundle, or passes memory that is not an argument.
        SourceError: an example is neither a tuple nor a mapping.
    """
    kernels_by_id = {id(kernel.resolver.native): kernel for kernel in kernels}
    forms: list[RecordedForm] = []
    names: tuple[str, ...] = ()
    for number, example in enumerate(step.examples):
        passed = example()
        if not isinstance(passed, tuple | Mapping):
            raise SourceError(
                f"{step.location}: example {number + 1} of the step {step.name} gives {type(passed).__name__}: it gives"
                " the arguments as a tuple, or as a mapping by name"
            )
        positional = cast("tuple[object, ...]", passed if isinstance(passed, tuple) else ())
        keyword_arguments = cast("Mapping[str, object]", {} if isinstance(passed, tuple) else passed)
        these = (*names_of_arguments(step.function, len(positional), keyword_arguments), *keyword_arguments)
        if names and these != names:
            raise SourceError(f"{step.location}: the examples of the step {step.name} give {names} and {these}")
        names = these
        form = _record(step, names, (*positional, *keyword_arguments.values()), len(positional), kernels_by_id)
        if form not in forms:
            forms.append(form)
    return RecordedPlan(step.name, names, tuple(forms))


def _record(
    step: Step,
    names: tuple[str, ...],
    arguments: tuple[object, ...],
    positional: int,
    kernels_by_id: Mapping[int, Kernel],
) -> RecordedForm:
    def run(values: tuple[Any, ...]) -> object:
        return step.function(*values[:positional], **dict(zip(names[positional:], values[positional:], strict=True)))

    forms: list[RecordedForm] = []

    def seen(named: Mapping[str, object], first: list[SeenLaunch], second: list[SeenLaunch], trail: Trail) -> None:
        forms.append(_FormRecorder(step, kernels_by_id, named, trail).form(first, second))

    plan = _RecordingPlan(step.name, names, run)
    plan.seen = seen
    plan.learn(arguments)
    return forms[0]


class _FormRecorder:
    """Converts recorded launches to a plan's form, in which values are expressions over the step's arguments."""

    def __init__(
        self, step: Step, kernels_by_id: Mapping[int, Kernel], arguments: Mapping[str, object], trail: Trail
    ) -> None:
        self._step = step
        self._kernels_by_id = kernels_by_id
        self._arguments = arguments
        self._trail = trail
        self._held: dict[str, int] = {}

    def form(self, first: list[SeenLaunch], second: list[SeenLaunch]) -> RecordedForm:
        """Returns the plan's form for a call: the call's launches, and the conditions under which they may be replayed.

        ``first`` and ``second`` are two recordings of the call, which :class:`silo.launch.plan_forms.FormMaker` has
        compared.
        """
        declared = {name: self._argument(name, value) for name, value in self._arguments.items()}
        self._held = {
            name: argument.value
            for name, argument in declared.items()
            if argument.kind is ArgumentKind.VALUE and type(argument.value) is int
        }
        launches = tuple(
            self._launch(number, *pair) for number, pair in enumerate(zip(first, second, strict=True), start=1)
        )
        holds = dict.fromkeys([*self._shapes(declared), *self._conditions()])
        return RecordedForm(tuple(declared.values()), launches, tuple(holds))

    def _refuse(self, number: int, kernel: str, reason: str) -> ArgumentError:
        return ArgumentError(f"the step {self._step.name}: launch {number} ({kernel}) {reason}")

    # ---- arguments ----

    def _argument(self, name: str, value: object) -> RecordedArgument:
        is_used = name in self._trail.used
        if type(value) is int and not is_used:
            return RecordedArgument(ArgumentKind.INTEGER)
        if type(value) is float and not is_used:
            return RecordedArgument(ArgumentKind.FLOAT)
        if value is None or isinstance(value, bool | int | float | str):
            return RecordedArgument(ArgumentKind.VALUE, value=value)
        try:
            _, code, bits, _, _, sizes, _ = native.read(value)
        except (TypeError, ValueError, RuntimeError):
            raise ArgumentError(
                f"the step {self._step.name}: its argument {name} is {type(value).__name__}, which a bundle does not"
                " hold: give arrays, numbers, texts and None"
            ) from None
        return RecordedArgument(ArgumentKind.ARRAY, from_dlpack(code, bits), len(sizes))

    def _shapes(self, declared: Mapping[str, RecordedArgument]) -> Iterable[Node]:
        """Yields the conditions that an array's shape and strides equal the recorded ones.

        Only arrays that the function used in a way that could not be traced get these conditions.
        """
        for name, argument in declared.items():
            if argument.kind is not ArgumentKind.ARRAY or name not in self._trail.used:
                continue
            *_, sizes, strides = native.read(self._arguments[name])
            for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
                yield make(OpKind.EQ, Extent(name, axis), Const(size))
                yield make(OpKind.EQ, Stride(name, axis), Const(stride))

    def _conditions(self) -> Iterable[Node]:
        for node, truth in self._trail.conditions:
            plain = self._plain(node)
            if not isinstance(plain, Const):
                yield plain if truth else make(OpKind.NOT, plain)

    def _plain(self, node: Node) -> Node:
        """Returns the expression with recorded values in place of the arguments that must have their recorded value.

        Raises:
            ArgumentError: the expression reads the address of an array, which differs from process to process.
        """
        if isinstance(node, Op):
            return make(node.kind, *map(self._plain, node.operands))
        if isinstance(node, Argument) and node.name in self._held:
            return Const(self._held[node.name])
        if isinstance(node, Argument) and type(self._arguments[node.name]) is not int:
            raise ArgumentError(
                f"the step {self._step.name}: it depends on the address of {node.name}, by data_ptr(), which a bundle"
                " does not keep"
            )
        return node

    # ---- launches ----

    def _launch(self, number: int, launch: SeenLaunch, other: SeenLaunch) -> RecordedLaunch:
        name = launch.launcher.name
        kernel = self._kernels_by_id.get(id(launch.launcher))
        if kernel is None:
            raise self._refuse(
                number,
                name,
                "is not of a kernel that the bundle holds: define it by silo.kernel in the file, and call it as"
                " kernel(...) or kernel[grid](...)",
            )
        if launch.stream:
            raise self._refuse(number, name, "is on a stream of its own, which a plan of a bundle does not keep")
        names = kernel.source.signature.names
        absent = [parameter for parameter, code in zip(names, launch.codes, strict=True) if code >> 56 == _ABSENT]
        open_names = [
            *absent,
            *(option for option in kernel.config_names if option not in (*names, *launch.option_names)),
        ]
        if launch.called and open_names:
            raise self._refuse(
                number,
                name,
                f"has a grid by a function, and leaves {', '.join(open_names)} to the config, which differs from device"
                " to device: declare the grid, silo.kernel(grid=lambda a: ...)",
            )
        sources = tuple(
            RecordedSource(parameter, *self._source(number, kernel, position, launch, other))
            for position, parameter in enumerate(names)
            if launch.codes[position] >> 56 != _ABSENT
        )
        options = zip(other.option_names, other.options, strict=True)
        return RecordedLaunch(
            kernel.name,
            sources,
            self._grid(other),
            tuple((option, self._constant(number, kernel, option, value)) for option, value in options),
        )

    def _source(
        self, number: int, kernel: Kernel, index: int, launch: SeenLaunch, other: SeenLaunch
    ) -> tuple[Source, str | Node | Value]:
        argument, kind = other.arguments[index], launch.codes[index] >> 56
        if isinstance(argument, TracedArray) and kind == _POINTER:
            return Source.GIVEN, argument.argument
        if isinstance(argument, TracedFloat) and kind == _FLOAT:
            return self._source_of_argument(argument.argument)
        if isinstance(argument, TracedInt) and kind == _INT:
            node = self._plain(argument.node)
            if isinstance(node, Const):
                return Source.CONSTANT, node.value
            return (Source.GIVEN, node.name) if isinstance(node, Argument) else (Source.COMPUTED, node)
        if kind == _DESCRIPTOR:
            raise self._refuse(
                number,
                kernel.name,
                f"is given a tensor descriptor for {kernel.source.signature.names[index]!r}, which a plan of a bundle"
                " does not keep yet: make the descriptor in the kernel, or launch this kernel by itself",
            )
        if kind == _POINTER:
            return self._array(number, kernel, index, launch)
        return Source.CONSTANT, self._constant(number, kernel, kernel.source.signature.names[index], argument)

    def _source_of_argument(self, name: str) -> tuple[Source, str | Value]:
        is_used = name in self._trail.used
        return (Source.CONSTANT, cast("float", self._arguments[name])) if is_used else (Source.GIVEN, name)

    def _array(self, number: int, kernel: Kernel, index: int, launch: SeenLaunch) -> tuple[Source, str]:
        """Returns the source of an array that a launch takes: the step's argument that is this very array.

        Used if the array is no tracer, because the function does not accept tracers. Raises ArgumentError if no
        argument is the array.
        """
        for name, value in self._arguments.items():
            if value is launch.arguments[index]:
                return Source.GIVEN, name
        raise self._refuse(
            number,
            kernel.name,
            f"is given memory for {kernel.source.signature.names[index]!r} that is no argument of the step, or a part"
            " of one: a bundle holds no memory, so make it an argument",
        )

    def _constant(self, number: int, kernel: Kernel, parameter: str, passed: object) -> Value:
        plain: Any = passed.stands_for if isinstance(passed, native.StandIn) else passed
        if getattr(plain, "shape", None) == () and hasattr(plain, "item"):
            plain = plain.item()
        if plain is None or (isinstance(plain, bool | int | float | str) and "\0" not in str(plain)):
            return plain
        value = kernel.source.constant(plain)
        if isinstance(value, tuple) or not isinstance(value, bool | int | float | str | type(from_dlpack(2, 32))):
            raise self._refuse(
                number, kernel.name, f"is given {plain!r} for {parameter!r}, which a plan of a bundle does not hold"
            )
        return value

    def _grid(self, other: SeenLaunch) -> tuple[Node, ...] | None:
        if other.grid is None:
            return None
        given_grid: object = other.grid
        extents = cast("Iterable[object]", given_grid) if isinstance(given_grid, tuple | list) else (given_grid,)
        return tuple(
            self._plain(extent.node) if isinstance(extent, TracedInt) else Const(int(cast("int", extent)))
            for extent in extents
        )
