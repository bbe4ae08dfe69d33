"""Jax's interpreter of TPUs for checks: its modes, its reports of races, and endless waits.

A check interprets one core. While that core waits for a semaphore, nothing else runs. If the count is too low and no
copy that would add to the count is pending, the wait can never end, so the wait raises an error.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from enum import Enum
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from typing import Any, TextIO, cast

from silo.core.values import Value
from silo.errors import CompileError
from silo.frozen import frozen
from silo.kinds.pallas.chips import INTERPRETED_CHIP
from silo.kinds.pallas.front.pallas_installation import jax_module
from silo.kinds.pallas.front.pallas_source import PallasSource
from silo.kinds.pallas.pallas_blocks import BlockedLaunch
from silo.kinds.pallas.pallas_job import diagnosis, held_settings, on_chip
from silo.kinds.pallas.pallas_program import make_program

__all__ = [
    "Access",
    "CapturedReports",
    "CheckMode",
    "Interpreted",
    "Race",
    "endless_waits_raise",
    "forget",
    "interpreted",
    "listening",
    "races_in",
    "stuck_in",
]


class CheckMode(Enum):
    """A mode of the interpreter: when copies move data, what unwritten memory contains, the order of programs."""

    EAGER = "eager"  # copies move data when they are started; races are detected
    # copies move data when they are waited for, and programs along parallel axes run in a different order
    LATE = "late"
    ZERO = "zero"  # like LATE, but memory that was never written reads as zero instead of NaN


_SEED = 1
# Prefixes of the names of primitives that move memory or wait.
_SCHEDULED = ("dma_", "semaphore_", "get_barrier_semaphore")


@frozen
class Interpreted:
    """A program for this machine's CPU: ``function`` takes the program's operands and returns its results.

    ``schedules``: whether results may depend on when copies move data, or on the order of programs.
    """

    function: Callable[..., Any]
    schedules: bool


def interpreted(
    source: PallasSource, launch: BlockedLaunch, constants: Mapping[str, Value], mode: CheckMode
) -> Interpreted:
    """Returns the program, interpreted by jax in ``mode``.

    Raises CompileError if jax refuses the kernel.
    """
    jax, pltpu = jax_module(), jax_module("jax.experimental.pallas.tpu")
    options: dict[str, Any] = {
        "detect_races": mode is CheckMode.EAGER,
        "dma_execution_mode": "eager" if mode is CheckMode.EAGER else "on_wait",
        "uninitialized_memory": "zero" if mode is CheckMode.ZERO else "nan",
        "out_of_bounds_reads": "raise",
        "random_seed": None if mode is CheckMode.EAGER else _SEED,
    }
    program = make_program(source, launch, constants, interpret=pltpu.InterpretParams(**options), limit=None)
    with held_settings(), on_chip(INTERPRETED_CHIP):
        try:
            traced = jax.jit(program.function).trace(*program.operands)
            lowered = traced.lower(lowering_platforms=("cpu",))
        except Exception as error:  # the author's own Python runs here, and may raise anything
            raise CompileError(f"{launch.kernel}, to be checked: {diagnosis(error)}") from error
    return Interpreted(lowered.compile(), _has_schedules(launch, traced.jaxpr))


def _has_schedules(launch: BlockedLaunch, jaxpr: Any) -> bool:  # noqa: ANN401  # jax's
    """Whether a program starts copies or uses semaphores, or has an axis whose programs may run in any order."""
    axes = zip(launch.grid, launch.dimension_semantics, strict=False)
    if any(extent > 1 and semantics != "arbitrary" for extent, semantics in axes):
        return True
    used = set(_primitives(jaxpr))
    # If the jaxpr has no pallas_call, the primitives of the body are unknown.
    return "pallas_call" not in used or any(name.startswith(_SCHEDULED) for name in used)


def _primitives(jaxpr: Any) -> Generator[str]:  # noqa: ANN401
    """Yields the names of the primitives of a jaxpr and of the jaxprs inside it."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield str(equation.primitive.name)
        for value in equation.params.values():
            items = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
            for inner in items:
                if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                    yield from _primitives(inner)


def forget() -> None:
    """Resets jax's interpreter to its initial state, after a kernel has failed in it."""
    jax_module("jax.experimental.pallas.tpu").reset_tpu_interpret_mode_state()


_MARK = "RACE DETECTED"
# The logger of errors in callbacks; such an error contains the line in the body that caused it.
_LOGGER = "jax._src.callback"
_FIRST_DMA = 100  # Race reports name each copy (DMA) as a device with at least this number.


@frozen
class Access:
    """One access of a race: a ``read`` or ``write`` of a part of a buffer, by a copy (DMA) or the body."""

    kind: str
    memory: str
    part: str
    by_copy: bool
    place: str

    def __str__(self) -> str:
        who = "a copy that was started" if self.by_copy else f"the {self.kind}"
        return f"{who} at {self.place} {'reads' if self.kind == 'read' else 'writes'} it"


@frozen
class Race:
    """Two accesses in no fixed order, at least one of which writes."""

    first: Access
    second: Access


@frozen
class CapturedReports:
    """The reports of jax: ``races`` in order, and ``places``, the author's lines at which callbacks failed."""

    races: list[Race]
    places: list[str]


@contextmanager
def listening() -> Generator[CapturedReports]:
    """Returns a context in which races that jax prints are collected instead of printed. Other output is printed."""
    captured = CapturedReports([], [])
    out, logger = sys.stdout, logging.getLogger(_LOGGER)
    handler = _Handler(captured)
    was = logger.propagate
    sys.stdout = _Tee(out, captured)
    logger.addHandler(handler)
    logger.propagate = False  # not logged, because the raised error has the same text
    try:
        yield captured
    finally:
        logger.propagate = was
        logger.removeHandler(handler)
        sys.stdout = out


def races_in(text: str) -> list[Race]:
    r"""Returns the races that are reported in a text printed by jax.

    >>> said = "RACE DETECTED\n  read of ('vmem', 102, 0, 0)[()] from 0, 0, k.py:15:6 (k)\n  clock: [4 0]\n"
    >>> (race,) = races_in(said + "  write of ('vmem', 102, 0, 0)[()] from 100, 0 k.py:14:40 (k)\n  clock: [1 3]\n")
    >>> race.first.place, race.second.by_copy
    ('k.py:15', True)
    """
    races: list[Race] = []
    for part in text.split(_MARK)[1:]:
        accesses = [access for line in part.splitlines() if (access := _access(line.strip())) is not None]
        if len(accesses) >= 2:  # a race needs two accesses
            races.append(Race(accesses[0], accesses[1]))
    return races


def _access(line: str) -> Access | None:
    kind, joined, rest = line.partition(" of (")
    if kind not in ("read", "write") or not joined:
        return None
    key, _, rest = rest.partition(")[")
    part, _, rest = rest.partition("] from ")
    device, _, rest = rest.partition(", ")
    source = rest.partition(" (")[0].rpartition(" ")[2]
    file, _, numbers = source.partition(":")
    if "/" in source or ":" in source:
        file, _, numbers = Path(source).name.partition(":")
    memory = key.partition(",")[0].strip("'\" ")
    location = f"{file}:{numbers.partition(':')[0]}" if numbers else source
    return Access(kind, memory, part, device.isdigit() and int(device) >= _FIRST_DMA, location)


class _Tee(io.TextIOBase):
    def __init__(self, out: TextIO, captured: CapturedReports) -> None:
        self._out, self._captured = out, captured
        self._swallows = False  # whether to drop the line end that print writes after a dropped text

    def write(self, text: str) -> int:
        if text.startswith(_MARK):
            self._captured.races.extend(races_in(text))
            self._swallows = True
        elif not (self._swallows and text == "\n"):
            self._swallows = False
            self._out.write(text)
        else:
            self._swallows = False
        return len(text)

    def flush(self) -> None:
        self._out.flush()


class _Handler(logging.Handler):
    def __init__(self, captured: CapturedReports) -> None:
        super().__init__()
        self._captured = captured

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and (location := _failed_place(error)):
            self._captured.places.append(location)


def _failed_place(error: BaseException) -> str:
    """Returns the innermost line of the author's own code in the traceback of an error, or of its causes."""
    folder = str(Path(str(jax_module().__file__)).parent)
    while True:
        frames = [(traced_frame.f_code.co_filename, line) for traced_frame, line in walk_tb(error.__traceback__)]
        own = [frame for frame in frames if not frame[0].startswith((folder, "<")) and "/silo/kinds/" not in frame[0]]
        if own:
            return f"{Path(own[-1][0]).name}:{own[-1][1]}"
        if error.__cause__ is None:
            return ""
        error = error.__cause__
    return ""


_MODULE = "jax._src.pallas.mosaic.interpret.shared_memory"
_WAIT = "SILO: a wait that does not end at "
_NONE_LEFT = "no copy or signal is left to add to it"


@contextmanager
def endless_waits_raise(notes: list[str]) -> Generator[None]:
    """Returns a context in which waits that cannot end raise RuntimeError, with a text that :func:`stuck_in` reads.

    ``notes`` gets a line if this version of jax waits in an unknown way: then an endless wait hangs.
    """
    kind: Any = getattr(import_module(_MODULE), "Semaphore", None)
    plain: Any = getattr(kind, "wait", None)
    if plain is None or not hasattr(kind, "num_cores"):
        notes.append("this jax waits for semaphores in a way that Silo does not know: a wait that never ends will hang")
        yield
        return

    def wait(self: Any, value: Any, global_core_id: Any, **options: Any) -> Any:  # noqa: ANN401
        condition: Any = self.cv
        if self.num_cores == 1:
            location = _location(options.get("logging_info"))
            # jax calls condition.wait only if the count is too low and no task is left.

            def stuck(timeout: float) -> None:
                del timeout
                count, mark = int(self.count_by_core[int(global_core_id)]), f"{_WAIT}{location}"
                raise RuntimeError(f"{mark}: It needs {int(value)}, the semaphore has {count}, and {_NONE_LEFT}")

            condition.wait = stuck
        try:
            return plain(self, value, global_core_id, **options)
        finally:
            if "wait" in vars(condition):  # removes the replacement, so that the class's own method is used again
                del condition.wait

    kind.wait = wait
    try:
        yield
    finally:
        kind.wait = plain


def _location(information: Any) -> str:  # noqa: ANN401  # jax's, or None
    """Returns ``file:line`` of a wait; "" if jax does not pass the location."""
    if getattr(information, "source_info", None) is None:
        return ""
    file, _, rest = str(information.get_source_info_str()).partition(" (")[0].partition(".py:")
    return f"{Path(file).name}.py:{rest.partition(':')[0]}" if rest else ""


def stuck_in(text: str) -> tuple[str, str] | None:
    r"""Returns the place and the reason from the text of an endless wait's error; None for any other error.

    >>> stuck_in("INTERNAL: SILO: a wait that does not end at k.py:8: It needs 8, the semaphore has 0\nTraceback")
    ('k.py:8', 'It needs 8, the semaphore has 0')
    >>> stuck_in("Out-of-bounds read")
    """
    _, mark, rest = text.partition(_WAIT)
    if not mark:
        return None
    location, _, reason = rest.splitlines()[0].partition(": ")
    return location, reason
