"""The runs of a checked Pallas kernel: jax interprets the kernel in each mode, with copies of the arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from silo.checking.machine import CheckedLaunch, CheckFinding, Difference, Doubt, Exchange, Ran, Unseen
from silo.core.protocols import CheckLimits
from silo.core.values import Value
from silo.kinds.pallas.bridge import Arrays
from silo.kinds.pallas.call_plan import ArrayPlace, CallLayout, ScalarPlace
from silo.kinds.pallas.checking.interpreter_modes import (
    CapturedReports,
    CheckMode,
    Interpreted,
    endless_waits_raise,
    forget,
    interpreted,
    listening,
    races_in,
    stuck_in,
)
from silo.kinds.pallas.front.pallas_installation import jax_module
from silo.kinds.pallas.front.pallas_source import PallasSource
from silo.kinds.pallas.pallas_blocks import BlockedLaunch
from silo.kinds.pallas.pallas_loader import given_scalar
from silo.launch.array_libraries.library_table import library_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CheckedProgram", "PallasLaunch"]

# The interpreter's errors begin with this text if an access, or a block that an index map returns, is out of bounds.
_OUTSIDE = "Out-of-bounds "
_NOWHERE = "a line that jax does not tell"


class CheckedProgram:
    """A Pallas kernel to be checked: its interpreted programs, each compiled when first needed."""

    def __init__(  # the parameters are the parts of a launch
        self,
        source: PallasSource,
        blocked: BlockedLaunch,
        constants: Mapping[str, Value],
        plan: CallLayout,
        entry: str,
    ) -> None:
        self.source, self.plan = source, plan
        self._blocked, self._constants = blocked, constants
        self._modes: dict[CheckMode, Interpreted] = {}
        device = jax_module().local_devices(backend="cpu")[0]
        self.arrays = Arrays(entry, source.signature.names, device)

    def program(self, mode: CheckMode) -> Interpreted:
        """Returns the program, interpreted in ``mode``."""
        if mode not in self._modes:
            self._modes[mode] = interpreted(self.source, self._blocked, self._constants, mode)
        return self._modes[mode]

    def begin(
        self, arguments: Mapping[str, object], limits: CheckLimits, notes: list[str]
    ) -> Callable[[tuple[Any, ...]], PallasLaunch]:
        """Returns a function that makes a launch from a call's arguments; each run copies them."""
        del arguments
        if limits.memory:
            notes.append("memory= is not looked at: a Pallas kernel's arrays are its arguments")
        return lambda given: PallasLaunch(self, given, limits, notes)


class PallasLaunch(CheckedLaunch[CheckMode, CheckFinding, str, tuple[Any, ...]]):
    """One launch: the program, interpreted in each mode with copies of the arguments."""

    def __init__(
        self, program: CheckedProgram, arguments: tuple[Any, ...], limits: CheckLimits, notes: list[str]
    ) -> None:
        """Raises ArgumentError for an array of another shape or dtype than the program's."""
        self._program, self._arguments, self._limits, self._notes = program, arguments, limits, notes
        self._source, self._plan, self._arrays = program.source, program.plan, program.arrays
        for operand in (*self._plan.operands, *self._plan.results):
            if isinstance(operand, ArrayPlace):
                self._arrays.check(operand, arguments[operand.parameter])
        self._results: tuple[Any, ...] = ()

    @property
    def schedules(self) -> Sequence[CheckMode]:
        """The modes to run in: only one, if neither the times of copies nor the order of programs affect results."""
        return (
            (CheckMode.EAGER, CheckMode.LATE)
            if self._program.program(CheckMode.EAGER).schedules
            else (CheckMode.EAGER,)
        )

    @property
    def unseen(self) -> Sequence[Unseen[str]]:
        """One doubt for all memory that was never written, because jax does not report reads of such memory."""
        return (Unseen(Doubt("memory to which nothing was written", (0,))),)

    def run(self, schedule: CheckMode, exchange: Exchange[str] | None = None) -> Ran[CheckFinding, str]:
        """Interprets the program once."""
        mode = schedule if exchange is None else CheckMode.ZERO
        function = self._program.program(mode).function
        values = [self._operand(operand, self._arguments[operand.parameter], mode) for operand in self._plan.operands]
        with listening() as captured, endless_waits_raise(self._notes):
            try:
                self._results = tuple(jax_module().block_until_ready(output) for output in function(*values))
            except Exception as error:
                forget()
                fault = self._fault_of(error, captured)
                if fault is None:
                    raise
                return Ran(fault)
        return Ran(self._race(captured) if captured.races and mode is CheckMode.EAGER else None, comparable=True)

    def results(self) -> tuple[Any, ...]:
        """Returns the results as arrays of jax, which are never written to."""
        return self._results

    def difference(self, results: tuple[Any, ...]) -> Difference | None:
        """Returns the first byte in which ``results`` of an earlier run differ from the last run's, or None."""
        import numpy as np  # noqa: PLC0415  # jax needs it

        for number, (result, other) in enumerate(zip(results, self._results, strict=True)):
            before, now = (np.frombuffer(np.asarray(array).tobytes(), np.uint8) for array in (result, other))
            if (unequal := before != now).any():
                return Difference(number, int(unequal.argmax()))
        return None

    def fault_finding(self, fault: CheckFinding, schedule: CheckMode) -> CheckFinding:
        """Returns ``fault`` unchanged, because it is already a finding."""
        del schedule
        return fault

    def order_finding(self, difference: Difference, schedule: CheckMode) -> CheckFinding:
        """Returns a finding for the first element of a result that differs between the modes."""
        del schedule
        why = "it depends on when copies move, or in which order programs run"
        return self._element("race", "a race", difference, why)

    def doubt_finding(
        self, doubt: Doubt[str], other: int, effect: CheckFinding | Difference | None, schedule: CheckMode
    ) -> CheckFinding:
        """Returns ``effect`` if it is a finding, else a finding for the first element that differs.

        ``effect`` is the difference or the fault of a run in which unwritten memory reads as zeros.
        """
        del doubt, other, schedule
        if isinstance(effect, CheckFinding):
            return effect
        # ``effect`` is None only if no single doubt changes a result, but several together do; this check has only one
        # doubt
        assert effect is not None
        why = "it depends on memory to which nothing was written, or is not written itself"
        return self._element("uninitialized", "a value of memory that was never written", effect, why)

    def results_finding(self, results: tuple[Any, ...]) -> CheckFinding | None:
        """Returns a finding for a NaN, if the caller enabled this check and no argument contains a NaN."""
        import numpy as np  # noqa: PLC0415

        if not self._limits.nan:
            return None
        array_operands = [operand for operand in self._plan.operands if isinstance(operand, ArrayPlace)]
        if any(
            _nans(library_of(array).read(array)).any()
            for array in (self._arguments[array_place.parameter] for array_place in array_operands)
        ):
            return None
        for number, result in enumerate(results):
            nans = _nans(result)
            if nans.any():
                byte = int(nans.argmax()) * np.asarray(result).itemsize
                return self._element("NaN", "a NaN", Difference(number, byte), "no argument has one")
        return None

    def publish(self, results: tuple[Any, ...]) -> None:
        """Writes the results to the caller's arrays."""
        for output, result in zip(self._plan.results, results, strict=True):
            self._arrays.put(self._arguments[output.parameter], result)

    def put_back(self) -> None:
        """Does nothing, because the program has copies of the arguments."""

    def _operand(self, parameter_place: ArrayPlace | ScalarPlace, value: Any, mode: CheckMode) -> Any:  # noqa: ANN401
        """Returns a copy of an argument.

        An argument that the check's limits list as ``uninitialized`` gets the same fill as unwritten memory.
        """
        import numpy as np  # noqa: PLC0415  # jax needs it

        jnp = jax_module("jax.numpy")
        if isinstance(parameter_place, ScalarPlace):
            return jnp.asarray(given_scalar(value, jnp.dtype(parameter_place.dtype.name)))
        copied: NDArray[Any] = np.array(library_of(value).read(value), copy=True)
        if self._arrays.name(parameter_place) in self._limits.uninitialized:
            unset = float("nan") if jnp.issubdtype(copied.dtype, jnp.floating) else jnp.iinfo(copied.dtype).max
            copied[...] = 0 if mode is CheckMode.ZERO else unset
        return jnp.asarray(copied)

    def _fault_of(self, error: Exception, captured: CapturedReports) -> CheckFinding | None:
        """Returns the finding for an error of jax; None if it is not an error of the kernel."""
        text = str(error)
        location = captured.places[-1] if captured.places else ""
        if (stuck := stuck_in(text)) is not None:
            at, reason = stuck
            problem = "a wait for a semaphore that does not end"
            return CheckFinding("endless", problem, (reason,), place=at, at=f" at {at or _NOWHERE}")
        if (revisited := re.search(r"Revisited block .* of output (\d+) .*", text)) is not None:
            argument = self._arrays.name(self._plan.results[int(revisited[1])])
            why = (
                "Only programs that follow one another may write one block of an output: it goes to memory when "
                "another block's turn comes, and is not read again"
            )
            return CheckFinding(
                "revisited block",
                f"programs come back to a block of {argument}",
                (revisited[0].rstrip(" ."), why),
                argument,
                self._source.location,
                f" ({self._source.location})",
            )
        if races := races_in(text):  # some versions of jax raise an error for races
            captured.races.extend(races)
            return self._race(captured)
        at = text.find(_OUTSIDE)
        if at < 0:
            return None
        reason = text[at:].splitlines()[0]
        return CheckFinding(
            "out of bounds", "an access out of bounds", (reason,), place=location, at=f" at {location or _NOWHERE}"
        )

    @staticmethod
    def _race(captured: CapturedReports) -> CheckFinding:
        first, second = captured.races[0].first, captured.races[0].second
        details = [f"{first}, and {second}: nothing says which is first"]
        if len(captured.races) > 1:
            details.append(f"{len(captured.races) - 1} more such pairs")
        problem, at = f"a race in {first.memory}", f" at {first.place} and {second.place}"
        return CheckFinding("race", problem, tuple(details), place=first.place, at=at)

    def _element(self, kind: str, label: str, difference: Difference, why: str) -> CheckFinding:
        """Returns a finding for the element of a result that contains the byte at which runs differ."""
        import numpy as np  # noqa: PLC0415

        array = np.asarray(self._results[difference.region])
        index = tuple(
            int(coordinate) for coordinate in np.unravel_index(difference.byte // array.itemsize, array.shape)
        )
        name = self._arrays.name(self._plan.results[difference.region])
        at = f" reaches {name}[{', '.join(map(str, index))}] ({self._source.location})"
        return CheckFinding(kind, label, (why,), name, self._source.location, at, index=index)


def _nans(array: Any) -> NDArray[np.bool_]:  # noqa: ANN401  # any array
    import numpy as np  # noqa: PLC0415

    jnp, values = jax_module("jax.numpy"), np.asarray(array)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        return np.zeros(1, bool)
    return np.isnan(values.astype(np.float32))
