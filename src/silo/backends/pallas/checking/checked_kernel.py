"""A Pallas kernel that is checked while it runs: launched like any other, interpreted in each mode over copies."""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from silo.backends.pallas.blocks import BlockedLaunch
from silo.backends.pallas.bridge import Arrays
from silo.backends.pallas.call_plan import CallPlan, PlannedArray, PlannedScalar
from silo.backends.pallas.checking.heard import Heard, listening, races_in
from silo.backends.pallas.checking.modes import Interpreted, Mode, forget, interpreted
from silo.backends.pallas.checking.waits import endless_waits_raise, stuck_in
from silo.backends.pallas.host_call import given_scalar
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Effect
from silo.core.values import Value
from silo.errors import CheckError
from silo.forks import Mutex
from silo.launch.array_libraries.table import library_of
from silo.launch.native import LibraryCode, LoadedKernel
from silo.sources.pallas.installation import jax_module
from silo.sources.pallas.source import PallasSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CheckedKernel"]

_log = logging.getLogger("silo")
_HOST = (1, 2, 3)  # DLPack's types of memory that a host reads: its own, and what GPUs of two makers pin
# What jax's interpreter says of an access, and of a block that an index map asks for.
_OUTSIDE = "Out-of-bounds "
_NOWHERE = "a line that jax does not tell"


class CheckedKernel:
    """Implements :class:`silo.core.protocols.CheckedKernel`. ``launch`` and ``effects`` are the artifact's."""

    def __init__(  # what a launch is made of
        self,
        source: PallasSource,
        blocked: BlockedLaunch,
        constants: Mapping[str, Value],
        plan: CallPlan,
        launch: LaunchInfo,
        *,
        nan: bool,
    ) -> None:
        self.launch = launch
        effects = {one.parameter: Effect.READ for one in plan.operands}
        for one in plan.results:
            effects[one.parameter] = Effect.BOTH if one.parameter in effects else Effect.WRITE
        self.effects = tuple(effects[place] for place in sorted(effects))
        self._source, self._blocked, self._constants, self._plan = source, blocked, constants, plan
        self._nan = nan
        self._lock = Mutex()
        self._uninitialized: tuple[str, ...] = ()
        self._told: set[str] = set()
        self._notes: list[str] = []
        self._modes: dict[Mode, Interpreted] = {}
        device = jax_module().local_devices(backend="cpu")[0]
        self._arrays = Arrays(launch.entry, source.signature.names, device)
        self.loaded = LoadedKernel(LibraryCode(self._call, "cpu", 0, _HOST), launch.entry, launch.entry)

    def _in(self, mode: Mode) -> Interpreted:
        """The program interpreted in ``mode``; compiled when a check first comes to it."""
        if mode not in self._modes:
            self._modes[mode] = interpreted(self._source, self._blocked, self._constants, mode)
        return self._modes[mode]

    @contextmanager
    def over(
        self,
        arguments: Mapping[str, object],
        *,
        uninitialized: Sequence[str] = (),
        memory: Sequence[object] = (),
        steps: int,
        views: bool = False,
    ) -> Generator[list[str]]:
        """Check launches within the block. What was noted goes to the log, once. Raises CheckError."""
        # The call brings the arguments, and each as a copy of its elements; loops of a body are jax's.
        del arguments, steps, views
        with self._lock:
            notes = self._notes = (
                ["memory= is not looked at: a Pallas kernel's arrays are its arguments"] if memory else []
            )
            self._uninitialized = tuple(uninitialized)
            try:
                yield notes
            finally:
                self._uninitialized = ()
                for note in set(notes) - self._told:
                    self._told.add(note)
                    _log.info("%s: %s", self.launch.entry, note)

    def _call(self, arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object) -> None:
        del grid, stream  # the code is for one grid
        for one in (*self._plan.operands, *self._plan.results):
            if isinstance(one, PlannedArray):
                self._arrays.check(one, arguments[one.parameter])
        eager, heard = self._run(Mode.EAGER, arguments)
        if heard.races:
            self._refuse_race(heard)
        late = eager
        if self._in(Mode.EAGER).schedules:
            late, _ = self._run(Mode.LATE, arguments)
            self._compare(eager, late, "race", "it depends on when copies move, or in which order programs run")
        zero, _ = self._run(Mode.ZERO, arguments)
        self._compare(
            late, zero, "uninitialized", "it depends on memory to which nothing was written, or is not written itself"
        )
        if self._nan:
            self._refuse_nan(late, arguments)
        for one, result in zip(self._plan.results, eager, strict=True):
            self._arrays.put(arguments[one.parameter], result)

    def _run(self, mode: Mode, arguments: tuple[Any, ...]) -> tuple[list[Any], Heard]:
        function = self._in(mode).function
        given = [self._operand(one, arguments[one.parameter], mode) for one in self._plan.operands]
        with listening() as heard, endless_waits_raise(self._notes):
            try:
                results = [jax_module().block_until_ready(one) for one in function(*given)]
            except Exception as error:
                forget()
                self._explain(error, heard)
                raise
        return results, heard

    def _operand(self, one: PlannedArray | PlannedScalar, value: Any, mode: Mode) -> Any:  # noqa: ANN401
        """A copy: what an argument holds that holds nothing yet is what other memory holds."""
        import numpy as np  # noqa: PLC0415  # jax needs it

        jnp = jax_module("jax.numpy")
        if isinstance(one, PlannedScalar):
            return jnp.asarray(given_scalar(value, jnp.dtype(one.dtype.name)))
        held: NDArray[Any] = np.array(library_of(value).read(value), copy=True)
        if self._arrays.name(one) in self._uninitialized:
            unset = float("nan") if jnp.issubdtype(held.dtype, jnp.floating) else jnp.iinfo(held.dtype).max
            held[...] = 0 if mode is Mode.ZERO else unset
        return jnp.asarray(held)

    def _explain(self, error: Exception, heard: Heard) -> None:
        """Raise what an error of jax's means, where it is one of the kernel."""
        text = str(error)
        name, place = self._source.name, heard.places[-1] if heard.places else ""
        if (stuck := stuck_in(text)) is not None:
            at, reason = stuck
            raise CheckError(
                f"{name}: a wait for a semaphore that does not end at {at or _NOWHERE}\n  {reason}",
                kind="endless",
                place=at,
            ) from None
        if (revisited := re.search(r"Revisited block .* of output (\d+) .*", text)) is not None:
            argument = self._arrays.name(self._plan.results[int(revisited[1])])
            raise CheckError(
                f"{name}: programs come back to a block of {argument} ({self._source.location})\n  "
                f"{revisited[0].rstrip(' .')}\n  Only programs that follow one another may write one block of an "
                "output: it goes to memory when another block's turn comes, and is not read again",
                kind="revisited block",
                place=self._source.location,
                argument=argument,
            ) from None
        if races := races_in(text):  # a jax that raises them
            heard.races.extend(races)
            self._refuse_race(heard)
        at = text.find(_OUTSIDE)
        if at < 0:
            return
        said = text[at:].splitlines()[0]
        raise CheckError(
            f"{name}: an access out of bounds at {place or _NOWHERE}\n  {said}",
            kind="out of bounds",
            place=place,
        ) from None

    def _refuse_race(self, heard: Heard) -> None:
        first, second = heard.races[0].first, heard.races[0].second
        more = f"\n  {len(heard.races) - 1} more such pairs" if len(heard.races) > 1 else ""
        raise CheckError(
            f"{self._source.name}: a race in {first.memory} at {first.place} and {second.place}\n"
            f"  {first}, and {second}: nothing says which is first{more}",
            kind="race",
            place=first.place,
        )

    def _compare(self, one: list[Any], other: list[Any], kind: str, why: str) -> None:
        import numpy as np  # noqa: PLC0415

        for planned, first, second in zip(self._plan.results, one, other, strict=True):
            left, right = np.asarray(first), np.asarray(second)
            if left.size and left.tobytes() != right.tobytes():
                wide = left.view(np.uint8).reshape(*left.shape, -1) != right.view(np.uint8).reshape(*left.shape, -1)
                self._refuse_element(planned, np.argwhere(wide.any(-1))[0], kind, why)

    def _refuse_nan(self, results: list[Any], arguments: tuple[Any, ...]) -> None:
        import numpy as np  # noqa: PLC0415

        jnp = jax_module("jax.numpy")

        def has_nan(array: Any) -> Any:  # noqa: ANN401
            held = np.asarray(array)
            return np.isnan(held.astype(np.float32)) if jnp.issubdtype(held.dtype, jnp.floating) else np.zeros(1, bool)

        given = [one for one in self._plan.operands if isinstance(one, PlannedArray)]
        if any(has_nan(library_of(value).read(value)).any() for value in (arguments[one.parameter] for one in given)):
            return
        for planned, result in zip(self._plan.results, results, strict=True):
            found = has_nan(result)
            if found.any():
                self._refuse_element(planned, np.argwhere(found)[0], "NaN", "no argument has one")

    def _refuse_element(self, planned: PlannedArray, index: Any, kind: str, why: str) -> None:  # noqa: ANN401
        place = tuple(int(one) for one in index)
        name = self._arrays.name(planned)
        what = {"race": "a race", "uninitialized": "a value of memory that was never written", "NaN": "a NaN"}[kind]
        raise CheckError(
            f"{self._source.name}: {what} reaches {name}[{', '.join(map(str, place))}] "
            f"({self._source.location})\n  {why}",
            kind=kind,
            place=self._source.location,
            index=place,
            argument=name,
        )
