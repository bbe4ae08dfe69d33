"""Benches run and time candidates: in this process, or in a separate one, whose faults do not end this process."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

from silo.artifacts.artifact import Artifact
from silo.building.loaded_kernels import stored_code
from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.device import Measuring
from silo.core.expressions import Bindings, Node, evaluate
from silo.core.protocols import Device
from silo.core.values import Value
from silo.errors import ArgumentError, TuneError
from silo.launch.array_parts import ArrayExtent, extent_of, is_descriptor
from silo.launch.hooks import without_hooks
from silo.launch.runtime import VouchedCode
from silo.machine.array_copies import array_behind, is_array, restorers, to_host
from silo.machine.process_session import session
from silo.measuring.device_energy import energy_of
from silo.measuring.measuring_process import ArgumentCopy, MeasuredCandidate, MeasuringProcess
from silo.measuring.sent_calls import describable, shared_limit
from silo.tuner.measure import Contender, MeasurePolicy, PairedReference, Timing, interleave, measure
from silo.tuner.statistics import ReferenceConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "RUN_LIMIT_S",
    "Bench",
    "ConfinedBench",
    "LocalBench",
    "ReferenceCode",
    "benches_on",
    "confines",
    "contender_of",
    "grid_at",
]

# The seconds that a candidate may take to run once.
RUN_LIMIT_S = 10.0

_log = logging.getLogger("silo")


@dataclass(frozen=True, slots=True)
class ReferenceCode:
    """The reference config with its artifact."""

    reference: ReferenceConfig
    artifact: Artifact


class Bench(Protocol):
    """Runs and times candidates on one set of arguments. Failures of a candidate are raised as LaunchErrors."""

    def start(self) -> None:
        """Begins the steps that take long (starting a process, copying arguments), and returns at once."""
        ...

    def results(self, config: Config, artifact: Artifact) -> Mapping[str, NDArray[Any]]:
        """Runs a config once on the arguments' original content; returns every array's content afterwards, on the host.

        The arrays are valid until the next call of a method of this object. Arrays that were not written are read-only
        and stay valid.
        """
        ...

    def measure(
        self, config: Config, artifact: Artifact, best_ns: int | None, beside: ReferenceCode | None = None
    ) -> Timing:
        """Measures samples in nanoseconds, in turns with the reference ``beside`` if it is given.

        Sampling ends early for a config that is far slower than ``best_ns``.
        """
        ...

    def compare(self, artifacts: Mapping[Config, Artifact]) -> Mapping[Config, tuple[int, ...]]:
        """Measures configs in turns; returns the samples of each in nanoseconds."""
        ...

    def energy(self, config: Config, artifact: Artifact, once_ns: int) -> tuple[float, ...]:
        """Measures energy; returns samples in nanojoules for one launch, which takes about ``once_ns``.

        Raises DeviceError if the device has no energy counter.
        """
        ...

    def interrupt(self) -> None:
        """Stops a launch that another thread waits for; the launch then fails soon. Any thread may call this method."""
        ...

    def close(self) -> None:
        """Releases the bench's resources."""
        ...


@dataclass
class LocalBench:
    """Runs candidates in this process. ``launcher_of`` returns the function that launches an artifact with a config."""

    device: Device
    arguments: Mapping[str, object]
    launcher_of: Callable[[Config, Artifact], Callable[[], object]]

    def start(self) -> None:
        """Does nothing: this process is ready."""

    def results(self, config: Config, artifact: Artifact) -> Mapping[str, NDArray[Any]]:
        """See :class:`Bench`."""
        for put_back in set(self._restorers.values()):
            put_back()
        with without_hooks():
            self.launcher_of(config, artifact)()
        self.device.synchronize()
        bases = {name: array_behind(value) for name, value in self.arguments.items()}
        return {name: to_host(array) for name, array in bases.items() if array is not None}

    def measure(
        self, config: Config, artifact: Artifact, best_ns: int | None, beside: ReferenceCode | None = None
    ) -> Timing:
        """See :class:`Bench`."""
        other = None
        if beside is not None:
            reference = beside.reference
            other = PairedReference(self._contender(reference.config, beside.artifact), reference.time_ns)
        with without_hooks():
            contender = self._contender(config, artifact)
            return measure(contender, self._timer, self._policy, best_ns=best_ns, beside=other)

    def compare(self, artifacts: Mapping[Config, Artifact]) -> Mapping[Config, tuple[int, ...]]:
        """See :class:`Bench`."""
        return dict(zip(artifacts, self.side_by_side(tuple(artifacts.items())), strict=True))

    def side_by_side(self, codes: Sequence[tuple[Config, Artifact]]) -> Sequence[tuple[int, ...]]:
        """Like :meth:`compare`, for code that may have equal configs: returns the samples in the order of ``codes``."""
        contenders = {number: self._contender(*code) for number, code in enumerate(codes)}
        with without_hooks():
            samples = interleave(contenders, self._timer, self._policy)
        return [samples[number] for number in contenders]

    def energy(self, config: Config, artifact: Artifact, once_ns: int) -> tuple[float, ...]:
        """See :class:`Bench`."""
        with without_hooks():
            return energy_of(self.device, self._contender(config, artifact), once_ns)

    def interrupt(self) -> None:
        """Does nothing: a launch in this process cannot be stopped."""

    def close(self) -> None:
        """Does nothing: Python frees the bench's objects."""

    @cached_property
    def _timer(self) -> Any:  # noqa: ANN401  # the types of devices' timers differ
        return self.device.timer()

    @cached_property
    def _policy(self) -> MeasurePolicy:
        return MeasurePolicy.of(self.device.timing)

    @cached_property
    def _restorers(self) -> Mapping[str, Callable[[], None]]:
        """Maps the name of each array argument to a function that restores the content from before the first launch."""
        return restorers(self.arguments)

    def _contender(self, config: Config, artifact: Artifact) -> Contender:
        return contender_of(self.launcher_of(config, artifact), artifact, self._restorers)


def contender_of(
    launch: Callable[[], object], artifact: Artifact, restore: Mapping[str, Callable[[], None]]
) -> Contender:
    """Makes the contender (a launch and a reset function) that times a candidate.

    The reset function restores, before each sample, the arguments that the kernel both reads and writes. ``restore``
    holds, for each array, a function that restores its original content; arguments that share an array share the
    function.
    """
    parameters = artifact.variant.signature.parameters
    touched = [p.name for p in parameters if p.effect.reads and p.effect.writes]
    resets = {restore[name] for name in touched if name in restore}

    def reset() -> None:
        for put_back in resets:
            put_back()

    return Contender(launch, reset if resets else None)


class ConfinedBench:
    """Runs candidates in a separate process; see :class:`silo.measuring.measuring_process.MeasuringProcess`.

    Args:
        device: the device to run on.
        arguments: copied when the first bench that uses them starts, and never written.
        grid_of: returns the grid of a config, given its artifact.
        code_of: returns an artifact's code, with consent to load it if it needs consent.
        limit_s: seconds that a candidate may take to run once.
        yields: the process runs only on CPUs that no other process wants.
    """

    def __init__(
        self,
        device: Device,
        arguments: ArgumentCopy,
        grid_of: Callable[[Config, Artifact], tuple[int, ...]],
        code_of: Callable[[Artifact], VouchedCode],
        limit_s: float = RUN_LIMIT_S,
        *,
        yields: bool = False,
    ) -> None:
        self._started_process: MeasuringProcess | None = None
        self._make = lambda: MeasuringProcess(device, arguments, limit_s, yields=yields)
        self._copy = arguments
        self._held = False
        self._names = arguments.arrays
        self._grid_of = grid_of
        self._code_of = code_of

    @property
    def _process(self) -> MeasuringProcess:
        if self._started_process is None:
            self._started_process = self._make()
        return self._started_process

    def hold(self) -> None:
        """Copies the arguments now, so that the caller may change them. The copy is kept until this bench is closed."""
        if not self._held:
            copy = self._copy.take()
            self._held = True
            copy.fill()

    def start(self) -> None:
        """Copies the arguments and starts the process, which takes about as long as the first compilation."""
        self._process.start()

    def results(self, config: Config, artifact: Artifact) -> Mapping[str, NDArray[Any]]:
        """See :class:`Bench`."""
        return self._process.results(self._candidate(config, artifact), self._names)

    def measure(
        self, config: Config, artifact: Artifact, best_ns: int | None, beside: ReferenceCode | None = None
    ) -> Timing:
        """See :class:`Bench`."""
        other = None
        if beside is not None:
            reference = beside.reference
            other = self._candidate(reference.config, beside.artifact), reference.time_ns
        return self._process.measure(self._candidate(config, artifact), best_ns, other)

    def compare(self, artifacts: Mapping[Config, Artifact]) -> Mapping[Config, tuple[int, ...]]:
        """See :class:`Bench`."""
        return dict(zip(artifacts, self.side_by_side(tuple(artifacts.items())), strict=True))

    def side_by_side(self, codes: Sequence[tuple[Config, Artifact]]) -> Sequence[tuple[int, ...]]:
        """Like :meth:`compare`, for code that may have equal configs: returns the samples in the order of ``codes``."""
        return self._process.compare([self._candidate(config, artifact) for config, artifact in codes])

    def energy(self, config: Config, artifact: Artifact, once_ns: int) -> tuple[float, ...]:
        """See :class:`Bench`."""
        return self._process.energy(self._candidate(config, artifact), once_ns)

    def interrupt(self) -> None:
        """See :class:`Bench`."""
        if self._started_process is not None:
            self._started_process.interrupt()

    def close(self) -> None:
        """Ends the process, and releases the copy of the arguments."""
        if self._started_process is not None:
            self._started_process.close()
        if self._held:
            self._held = False
            self._copy.give_back()

    def _candidate(self, config: Config, artifact: Artifact) -> MeasuredCandidate:
        return MeasuredCandidate(self._code_of(artifact), self._grid_of(config, artifact))


def benches_on(
    kernel: str,
    devices: Sequence[Device],
    arguments: Mapping[str, object],
    grid_of: Callable[[Config, Artifact], tuple[int, ...]],
    code_of: Callable[[Artifact], VouchedCode] | None = None,
    limit_s: float = RUN_LIMIT_S,
    *,
    in_library: bool = False,
    yields: bool = False,
) -> list[ConfinedBench]:
    """Makes a bench on each device, in processes that share one copy of the arguments.

    Returns an empty list if the arguments cannot be copied. ``devices[0]`` holds the arrays; of the others only devices
    of the same model are used. If memory does not suffice for every device's results, fewer benches are returned.
    ``code_of`` reads the session's store by default. ``in_library``: a library runs the code on this process's own
    objects, so no other process can measure it. ``yields``: the processes run only on CPUs that no other process wants.

    Raises:
        TuneError: ``devices[0]`` does not allow measuring.
    """
    first = devices[0]
    if isinstance(first.measuring, Rejected):
        raise TuneError(f"{kernel} is not measured on {first.target}: {first.measuring.reason}")
    like = [first, *(device for device in devices[1:] if device.index != first.index and device.model == first.model)]
    if not confines(kernel, first, arguments, in_library=in_library):
        return []
    count = next((n for n in range(len(like), 1, -1) if describable(arguments, shared_limit(n))), 1)
    if count < len(like):
        _log.info(
            "%s is measured on %d of %d devices: memory has no room for the results of more", kernel, count, len(like)
        )
    copy = ArgumentCopy(first, arguments)
    return [
        ConfinedBench(device_here, copy, grid_of, code_of or _stored, limit_s, yields=yields)
        for device_here in like[:count]
    ]


def _stored(artifact: Artifact) -> VouchedCode:
    return stored_code(session().store, artifact)


def confines(kernel: str, device: Device, arguments: Mapping[str, object], *, in_library: bool = False) -> bool:
    """Returns whether candidates run in a separate process, so that a fault or an endless run costs only that process.

    Logs the reason if the arguments cannot be passed to another process.
    """
    if device.measuring is not Measuring.CONFINED:
        return False
    decision = Rejected("a library runs it, over objects of this process") if in_library else describable(arguments)
    if isinstance(decision, Rejected):
        _log.info("%s is measured in this process, which a config that faults would end: %s", kernel, decision.reason)
    return bool(decision)


def _described(descriptor: Any) -> ArrayExtent:  # noqa: ANN401  # any class of descriptors
    """Returns a descriptor's own shape and strides, as an extent of its base array."""
    return replace(extent_of(descriptor.base), shape=tuple(descriptor.shape), strides=tuple(descriptor.strides))


def grid_at(
    declared: tuple[Node, ...] | None,
    given_grid: object,
    arguments: Mapping[str, object],
    config: Mapping[str, Value],
    facts: Mapping[str, int],
) -> tuple[int, ...]:
    """Returns the grid of a call: ``given_grid`` (integers or a function of arguments and config) or the declared one.

    Raises:
        ArgumentError: the call and the kernel have no grid, or ``given_grid`` is not a grid.
        ExpressionError: the declared grid cannot be evaluated for these arguments.
    """
    if given_grid is None:
        if declared is None:
            raise ArgumentError("the call gives no grid and the kernel declares none")
        extents = {name: extent_of(value) for name, value in arguments.items() if is_array(value)}
        extents |= {name: _described(value) for name, value in arguments.items() if is_descriptor(value)}
        scalars: Any = {name: value for name, value in arguments.items() if name not in extents}
        bindings = Bindings(
            values={**scalars, **config},
            shapes={name: extent.shape for name, extent in extents.items()},
            strides={name: extent.strides for name, extent in extents.items()},
            itemsizes={name: extent.dtype.itemsize for name, extent in extents.items()},
            config=config,
            facts=facts,
        )
        return tuple(evaluate(axis, bindings) for axis in declared)
    raw_grid: Any = given_grid({**config, **arguments}) if callable(given_grid) else given_grid
    axes = cast("Sequence[Any]", raw_grid) if isinstance(raw_grid, tuple | list) else (raw_grid,)
    try:
        grid = tuple(operator.index(axis) for axis in axes)
    except TypeError:
        grid = ()
    if not 1 <= len(grid) <= 3:
        raise ArgumentError(f"a grid is one to three integers, not {raw_grid!r}")
    return grid
