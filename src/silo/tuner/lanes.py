"""Lanes: evaluators of one study that work side by side, one for each device, each in its own thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol, Self, runtime_checkable

from silo.core.config import Config
from silo.errors import SiloError
from silo.tuner.spilling import SpillingConfig
from silo.tuner.statistics import ReferenceConfig
from silo.tuner.trial import Trial

__all__ = ["Evaluator", "InlineLane", "Lanes", "ThreadedLanes", "make_lanes"]


class Evaluator(Protocol):
    """Compiles, checks and measures the configs of one study.

    A failure of a config itself is returned as a trial with a failing status, or raised as a CompileError or
    LaunchError, which the session turns into a trial. Any other failure (no C compiler, a lost device) is raised and
    ends the session.
    """

    def prepare(self, configs: Sequence[Config]) -> None:
        """Starts compiling ``configs`` in the background; may be called again with further configs. Returns at once."""
        ...

    def spills(self, config: Config) -> int | None:
        """Waits for the artifact. Returns how many 32-bit values a thread keeps in local memory; None if unknown."""
        ...

    def evaluate(self, config: Config, reference: ReferenceConfig | None = None) -> Trial:
        """Waits for the artifact, checks its result and measures it, taking turns with ``reference``.

        Without a reference, an evaluator takes the first config as the reference, or it measures every config alone.
        Once it has returned a trial with a reference, every later call passes a reference.
        """
        ...

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """Measures usable configs side by side, taking turns; returns samples in nanoseconds by config.

        A config that fails now is missing in the result, or its error is raised.
        """
        ...

    def interrupt(self) -> None:
        """Stops an ``evaluate`` call of another thread, which then fails soon. Any thread may call this method."""
        ...


Finished = tuple[Config, Trial | SpillingConfig | SiloError]


@runtime_checkable
class Lanes(Protocol):
    """Evaluates the configs of a session: in this thread, on several devices, or anywhere else.

    A session starts a config while a lane is ``free``, and takes results as they finish, in any order.
    """

    @property
    def count(self) -> int:
        """The number of configs that can be evaluated at the same time."""
        ...

    @property
    def free(self) -> int:
        """The number of configs that can be started now."""
        ...

    @property
    def busy(self) -> int:
        """The number of configs that were started and have not been finished."""
        ...

    def prepare(self, configs: Sequence[Config]) -> None:
        """Starts compiling; see :meth:`silo.tuner.lanes.Evaluator.prepare`."""
        ...

    def start(self, config: Config, most_spills: int | None = None, reference: ReferenceConfig | None = None) -> None:
        """Starts evaluating ``config``, taking turns with ``reference``.

        A config that spills more than ``most_spills`` values is compiled but not measured. Must only be called while a
        lane is free.
        """
        ...

    def finish(self) -> Finished:
        """Waits until some started config is finished; returns the config with its outcome.

        The outcome is the config's trial, the config's spill count if that exceeds the limit, or the error that the
        config caused. Other errors are raised.
        """
        ...

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """Measures finalists side by side, on one device, and returns the samples of each.

        Must only be called while no lane is busy.
        """
        ...


class InlineLane:
    """A single evaluator that runs in the caller's thread, when the caller calls ``finish``."""

    count = 1

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._started: list[tuple[Config, int | None, ReferenceConfig | None]] = []

    @property
    def free(self) -> int:
        """See :class:`Lanes`."""
        return 1 - self.busy

    @property
    def busy(self) -> int:
        """See :class:`Lanes`."""
        return len(self._started)

    def prepare(self, configs: Sequence[Config]) -> None:
        """See :class:`Lanes`."""
        self._evaluator.prepare(configs)

    def close(self) -> None:
        """Does nothing: there is no thread to stop."""

    def start(self, config: Config, most_spills: int | None = None, reference: ReferenceConfig | None = None) -> None:
        """See :class:`Lanes`."""
        self._started.append((config, most_spills, reference))

    def finish(self) -> Finished:
        """See :class:`Lanes`."""
        config, most_spills, reference = self._started.pop()
        try:
            return config, _evaluated(self._evaluator, config, most_spills, reference)
        except SiloError as error:
            return config, error

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """See :class:`Lanes`."""
        return self._evaluator.compare(configs)


class ThreadedLanes:
    """Several evaluators, each with a thread of its own.

    Once the first config is started, each evaluator is used only by its own thread. The threads live as long as this
    object, because a process that an evaluator started ends with the thread that started it.
    """

    def __init__(self, evaluators: Sequence[Evaluator]) -> None:
        self._evaluators = tuple(evaluators)
        self._threads = [ThreadPoolExecutor(1, f"silo-lane-{number}") for number in range(len(self._evaluators))]
        self._idle = list(range(len(self._evaluators)))
        self._running: dict[Future[Trial | SpillingConfig], tuple[int, Config]] = {}

    @property
    def count(self) -> int:
        """See :class:`Lanes`."""
        return len(self._evaluators)

    @property
    def free(self) -> int:
        """See :class:`Lanes`."""
        return len(self._idle)

    @property
    def busy(self) -> int:
        """See :class:`Lanes`."""
        return len(self._running)

    def prepare(self, configs: Sequence[Config]) -> None:
        """See :class:`Lanes`. The evaluators share their artifacts, so only the first one starts compiling."""
        self._evaluators[0].prepare(configs)
        for evaluator in self._evaluators[1:]:
            evaluator.prepare(())

    def start(self, config: Config, most_spills: int | None = None, reference: ReferenceConfig | None = None) -> None:
        """See :class:`Lanes`."""
        number = self._idle.pop(0)
        evaluator = self._evaluators[number]
        future = self._threads[number].submit(_evaluated, evaluator, config, most_spills, reference)
        self._running[future] = number, config

    def finish(self) -> Finished:
        """See :class:`Lanes`."""
        done = wait(self._running, return_when=FIRST_COMPLETED).done
        future = min(done, key=lambda one: self._running[one][0])
        number, config = self._running.pop(future)
        self._idle.append(number)
        try:
            return config, future.result()
        except SiloError as error:
            return config, error

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """See :class:`Lanes`."""
        return self._threads[0].submit(self._evaluators[0].compare, configs).result()

    def close(self) -> None:
        """Interrupts running evaluations, and ends the threads."""
        for future in self._running:
            future.cancel()
        for evaluator in self._evaluators:
            evaluator.interrupt()
        for thread in self._threads:
            thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _evaluated(
    evaluator: Evaluator, config: Config, most_spills: int | None, reference: ReferenceConfig | None
) -> Trial | SpillingConfig:
    """Returns the trial of a config, or its spill count if that exceeds ``most_spills``."""
    if most_spills is not None:
        spills = evaluator.spills(config)
        if spills is not None and spills > most_spills:
            return SpillingConfig(config, spills)
    return evaluator.evaluate(config) if reference is None else evaluator.evaluate(config, reference)


def make_lanes(evaluators: Sequence[Evaluator]) -> InlineLane | ThreadedLanes:
    """Returns lanes for these evaluators (at least one): inline for a single one, otherwise with threads."""
    return InlineLane(evaluators[0]) if len(evaluators) == 1 else ThreadedLanes(evaluators)
