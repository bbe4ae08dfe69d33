"""Tasks: a reference, cases that are drawn when a candidate is judged, a baseline, limits and a tolerance."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, overload

from silo.core.host_arrays import numpy_dtype, require_numpy
from silo.core.values import DType, DTypeKind, dtype
from silo.errors import CaseError, SourceError
from silo.frozen import frozen
from silo.judging.candidate_data import ArrayShape, CaseShape
from silo.judging.drawn_values import VALUES, draw_integers, draw_values, poison
from silo.machine.user_files import load_module

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

__all__ = [
    "LARGEST",
    "ODD",
    "Draw",
    "DrawnArray",
    "DrawnCase",
    "Role",
    "Sizes",
    "Task",
    "TaskLimits",
    "draw_case",
    "read_task",
    "task",
]


MakesValues: TypeAlias = "Callable[[Generator, tuple[int, ...]], Any]"


ODD: Final = 1
"""The number of the first case whose sizes and addresses are not multiples of 16."""
LARGEST: Final = 3
"""The number of the case of the largest size."""

_ORDINARY = ("normal", "repeated", "integers")


class Role(Enum):
    """The effect that a task declares for an array. A launch that changes an ``INPUT`` array is wrong."""

    INPUT = "input"
    OUTPUT = "output"
    INOUT = "inout"
    SCRATCH = "scratch"


class Sizes(Enum):
    """How the sizes and addresses of one case are drawn."""

    ALIGNED = "aligned"  # multiples of 16, at addresses that are multiples of 64
    ODD = "odd"  # sizes that are no multiples of 16, at an aligned address plus one element
    SMALLEST = "smallest"  # the smallest size, at an aligned address plus one element
    LARGEST = "largest"  # the largest size, at an aligned address


@frozen
class TaskLimits:
    """The limits of one candidate.

    ``configs``: how many configs of the candidate's space are judged. ``programs``: the most programs of one grid.
    ``seconds`` and ``memory_bytes``: the limits of each of the candidate's processes. ``scratch_bytes``,
    ``shared_bytes`` and ``registers`` (of a group of threads): the limits of resources of the candidate's code.
    ``steps``: the most loop iterations and memory accesses of one program.
    """

    configs: int = 4
    programs: int = 1 << 16
    seconds: float = 60.0
    memory_bytes: int = 6 << 30
    scratch_bytes: int = 64 << 20
    shared_bytes: int = 227 << 10
    registers: int = 1 << 16
    steps: int = 20_000_000


class DrawnArray:
    """An array of a case: its shape, its dtype, and the values that the reference computes with."""

    def __init__(
        self, role: Role, element: DType, shape: tuple[int, ...], offset: int, values: Callable[[], NDArray[Any]]
    ) -> None:
        self.role = role
        self.dtype = element
        self.shape = shape
        self.offset = offset
        self._values = values
        self._host: NDArray[Any] | None = None

    @property
    def host(self) -> NDArray[Any]:
        """The values before the launch, in a read-only numpy array."""
        array = self._host
        if array is None:
            array = self._host = self._values()
            array.flags.writeable = False
        return array

    @property
    def double(self) -> NDArray[Any]:
        """The values before the launch as doubles."""
        return self.host.astype("float64")

    def numel(self) -> int:
        """The number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@frozen
class DrawnCase:
    """The arguments of a case in order, and the function that computes the expected arrays."""

    label: str
    arguments: tuple[tuple[str, DrawnArray | int | float | bool], ...]
    expected: Callable[[], Mapping[str, Any]]
    ordinary: bool = False  # whether the values of the case's arrays have a magnitude of about 1

    @property
    def shape(self) -> CaseShape:
        """The part of the case that a candidate's process receives."""
        return CaseShape(
            tuple(
                (
                    name,
                    ArrayShape(argument.dtype.name, argument.shape, argument.offset)
                    if isinstance(argument, DrawnArray)
                    else argument,
                )
                for name, argument in self.arguments
            )
        )

    @property
    def arrays(self) -> dict[str, DrawnArray]:
        """The array arguments by name."""
        return {name: array for name, array in self.arguments if isinstance(array, DrawnArray)}


class Draw:
    """Draws the arguments of one case for a task's function.

    Shapes and numbers come from one random generator, the values of arrays from another one, whose seed is drawn after
    the candidate's process has ended.
    """

    def __init__(
        self, label: str, sizes: Sizes, how: str, shapes: Generator, values: Generator, *, mixed: bool, twice: bool
    ) -> None:
        self.label = label
        self._sizes = sizes
        self._how = how
        self._shapes = shapes
        self._values = values
        self._mixed = mixed
        self._twice = twice
        self._drawn: list[tuple[DType, tuple[int, ...], DrawnArray]] = []

    def size(self, low: int, high: int) -> int:
        """Draws a size from ``low`` to ``high``, both included."""
        match self._sizes:
            case Sizes.SMALLEST:
                return low
            case Sizes.LARGEST:
                return high
            case Sizes.ALIGNED if high // 16 > (low - 1) // 16:
                return 16 * int(self._shapes.integers(-(-low // 16), high // 16, endpoint=True))
            case _:
                size = int(self._shapes.integers(low, high, endpoint=True))
                return size - 1 if self._sizes is Sizes.ODD and size % 16 == 0 and size > low else size

    def integer(self, low: int, high: int) -> int:
        """Draws an integer from ``low`` to ``high``, both included, whatever the case's :class:`Sizes`."""
        return int(self._shapes.integers(low, high, endpoint=True))

    def number(self, low: float, high: float) -> float:
        """Draws a float from ``low`` to ``high``."""
        return float(self._shapes.uniform(low, high))

    def choice(self, *options: Any) -> Any:  # noqa: ANN401  # one of them
        """Draws one of the options."""
        return options[int(self._shapes.integers(len(options)))]

    def array(self, *shape: int, dtype: str = "float32", values: str | MakesValues | None = None) -> DrawnArray:
        """Draws an array that the kernel reads.

        ``values`` is one of :data:`~silo.judging.drawn_values.VALUES`, or a function that takes a numpy generator and
        the shape, and returns an array. By default, values are drawn in the way that was chosen for the whole case. In
        the task's last case, the latest array of equal shape and dtype is returned again, so that two arguments share
        memory.
        """
        element = _element(dtype)
        twins = [twin for kind, extents, twin in self._drawn if (kind, extents) == (element, shape)]
        if twins and values is None and self._twice:
            return twins[-1]
        array = self._array(Role.INPUT, element, shape, self._maker(element, shape, values))
        self._drawn.append((element, shape, array))
        return array

    def integers(self, *shape: int, low: int, high: int, dtype: str = "int32") -> DrawnArray:
        """Draws an array of integers from ``low`` to ``high``, both included, that the kernel reads."""
        element = _element(dtype)
        return self._array(Role.INPUT, element, shape, lambda: draw_integers(low, high, element, shape, self._values))

    def inout(self, *shape: int, dtype: str = "float32", values: str | MakesValues | None = None) -> DrawnArray:
        """Draws an array that the kernel changes in place; ``values`` has the meaning that it has for :meth:`array`."""
        element = _element(dtype)
        return self._array(Role.INOUT, element, shape, self._maker(element, shape, values))

    def empty(self, *shape: int, dtype: str = "float32") -> DrawnArray:
        """Returns an array that the kernel writes.

        Before each launch it is filled with NaN (floats) or random bytes (other dtypes).
        """
        element = _element(dtype)
        return self._array(Role.OUTPUT, element, shape, lambda: poison(element, shape, self._values))

    def scratch(self, *shape: int, dtype: str = "float32") -> DrawnArray:
        """Returns memory like that of :meth:`empty`, whose final content does not matter."""
        element = _element(dtype)
        return self._array(Role.SCRATCH, element, shape, lambda: poison(element, shape, self._values))

    def case(self, expected: Callable[[], Mapping[str, Any]], **arguments: DrawnArray | float | bool) -> DrawnCase:
        """Makes a case of the arguments, in the order of the kernel's parameters.

        ``expected`` is a function that computes the expected arrays, by name.
        """
        arrays = {name: argument for name, argument in arguments.items() if isinstance(argument, DrawnArray)}
        if not callable(expected):
            raise CaseError(
                'the expected arrays of a task are given by a function: draw.case(lambda: {"out": x.double * 2}, ...)'
            )
        if not any(array.role in (Role.OUTPUT, Role.INOUT) for array in arrays.values()):
            raise CaseError("a case of a task has an array made by draw.empty or draw.inout, which the kernel writes")
        return DrawnCase(self.label, tuple(arguments.items()), expected, self._how in _ORDINARY)

    def _maker(
        self, element: DType, shape: tuple[int, ...], values: str | MakesValues | None
    ) -> Callable[[], NDArray[Any]]:
        if callable(values):
            return lambda: values(self._values, shape).astype(numpy_dtype(element))
        if element.kind is DTypeKind.FLOAT:
            ordinary = self._mixed and self._shapes.random() < 0.5
            how = values or ("normal" if ordinary else self._how)
            return lambda: draw_values(how, element, shape, self._values)
        low, high = (0, 1) if element.kind is DTypeKind.BOOL else (0 if element.kind is DTypeKind.UINT else -100, 100)
        return lambda: draw_integers(low, high, element, shape, self._values)

    def _array(self, role: Role, element: DType, shape: tuple[int, ...], make: Callable[[], Any]) -> DrawnArray:
        beside = self._sizes in (Sizes.ODD, Sizes.SMALLEST)
        return DrawnArray(
            role, element, tuple(int(extent) for extent in shape), element.itemsize if beside else 0, make
        )


def _element(name: str) -> DType:
    return dtype(name)


@frozen
class Task:
    """A reference, cases, a baseline and limits by which candidates are judged. Made by :func:`task`."""

    name: str
    function: Callable[[Draw], DrawnCase]
    baseline: Path | None
    rtol: float | None
    atol: float | None
    cases: int
    values: tuple[str, ...]
    limits: TaskLimits


@overload
def task(function: Callable[[Draw], DrawnCase], /) -> Task: ...
@overload
def task(
    *,
    baseline: str | Path | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    cases: int = 12,
    values: Sequence[str] = VALUES,
    **limits: float,
) -> Callable[[Callable[[Draw], DrawnCase]], Task]: ...
def task(
    function: Callable[[Draw], DrawnCase] | None = None,
    /,
    *,
    baseline: str | Path | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    cases: int = 12,
    values: Sequence[str] = VALUES,
    **limits: float,
) -> Task | Callable[[Callable[[Draw], DrawnCase]], Task]:
    """Makes a task for :func:`judge` from a function that draws one case.

    Args:
        function: takes a :class:`Draw`, and returns ``draw.case(...)``.
        baseline: a file with the kernel that candidates are timed against, beside the task's file.
        rtol: the relative tolerance; by default the dtype's.
        atol: the absolute tolerance; by default a tenth of ``rtol``, times the largest expected value.
        cases: the number of cases that are drawn.
        values: the ways to draw floats, of which each case takes one; leave out those that the reference does not
            define (``nan`` for a maximum, ``huge`` for a sum).
        limits: members of the limits of a candidate: ``configs``, ``programs``, ``seconds``, ``memory_bytes``,
            ``scratch_bytes``, ``shared_bytes``, ``registers``, ``steps``.

    Raises:
        CaseError: ``values`` or ``limits`` contains an unknown name, ``values`` is empty, or ``cases`` is less than 4.
    """
    unknown = [value for value in values if value not in VALUES]
    if unknown or not values:
        raise CaseError(f"values of a task are some of {', '.join(VALUES)}, not {', '.join(unknown) or 'none'}")
    known = inspect.signature(TaskLimits).parameters
    strange = [name for name in limits if name not in known]
    if strange:
        raise CaseError(f"a task has no limit {strange[0]!r}; there are {', '.join(known)}")
    if cases < 4:
        raise CaseError(f"a task draws 4 cases or more, not {cases}: aligned, odd, the smallest and the largest")

    def made(of: Callable[[Draw], DrawnCase]) -> Task:
        baseline_path = None if baseline is None else Path(inspect.getfile(of)).parent / baseline
        return Task(of.__name__, of, baseline_path, rtol, atol, cases, tuple(values), TaskLimits(**cast("Any", limits)))

    return made if function is None else made(function)


def read_task(path: Path) -> Task:
    """Runs a Python file and returns its task.

    The judge must trust the file, because its code runs without confinement.

    Raises:
        SourceError: the file cannot be run, has no task, or has several tasks.
    """
    tasks = [member for member in vars(load_module(path)).values() if isinstance(member, Task)]
    if len(tasks) != 1:
        raise SourceError(
            f"{path} has {len(tasks)} tasks; a task is one file with one function under @silo.task, which takes draw"
        )
    return tasks[0]


def draw_case(of: Task, number: int, shape_seed: int, value_seed: int, *, timed: bool = False) -> DrawnCase:
    """Draws case ``number`` of a task. Equal shape seeds give equal shapes.

    ``timed``: the case is of the largest size, with ordinary values.

    Raises:
        CaseError: the task's function fails, or returns anything but a case.
    """
    require_numpy("drawing the cases of a task")
    import numpy as np  # noqa: PLC0415  # numpy is optional

    order = (Sizes.ALIGNED, Sizes.ODD, Sizes.SMALLEST, Sizes.LARGEST)
    sizes = order[number] if number < 4 else order[number % 2]
    if timed:
        sizes = Sizes.LARGEST
    # The case of the largest size draws floats in the first way of ``of.values``; the other cases take the ways in
    # turn.
    how = of.values[0] if number == LARGEST or timed else of.values[(number + (number < LARGEST)) % len(of.values)]
    twice = number == of.cases - 1
    mixed = number > max(len(of.values), 4) and not timed
    label = f"case {number} ({sizes.value} sizes, {how} values)"
    rngs = [np.random.Generator(np.random.PCG64([seed, number])) for seed in (shape_seed, value_seed)]
    try:
        case = of.function(Draw(label, sizes, how, *rngs, mixed=mixed, twice=twice))
    except Exception as error:
        raise CaseError(f"the task {of.name} fails at {label}: {type(error).__name__}: {error}") from error
    if not isinstance(case, DrawnCase):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's function
        raise CaseError(f"the task {of.name} returned a {type(case).__name__}; return draw.case(...)")
    return case
