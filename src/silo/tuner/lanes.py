"""Lanes: several evaluators of one study, one for each device, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol, Self, runtime_checkable

from silo.core.config import Config
from silo.errors import SiloError
from silo.tuner.evaluator import Evaluator
from silo.tuner.spilling import SpillingConfig
from silo.tuner.statistics import ReferenceConfig
from silo.tuner.trial import Trial

__all__ = ["InlineLane", "Lanes", "ThreadedLanes", "make_lanes"]

Finished = tuple[Config, Trial | SpillingConfig | SiloError]


@runtime_checkable
class Lanes(Protocol):
    """Where the configs of a session are evaluated: here, on several devices, or anywhere else.

    A session starts a config while one is ``free``, and takes them as they finish, in any order.
    """

    @property
    def count(self) -> int:
        """How many configs can be evaluated at the same time."""
        ...

    @property
    def free(self) -> int:
        """How many more can be started now."""
        ...

    @property
    def busy(self) -> int:
        """How many were started and not taken back."""
        ...

    def prepare(self, configs: Sequence[Config]) -> None:
        """Start compiling; see :meth:`silo.tuner.evaluator.Evaluator.prepare`."""
        ...

    def start(self, config: Config, most_spills: int | None = None, reference: ReferenceConfig | None = None) -> None:
        """Start evaluating ``config`` beside ``reference``; it is not measured if it spills more than ``most_spills``.

        Only while one is free.
        """
        ...

    def finish(self) -> Finished:
        """Wait for one that was started: its trial, how much it spills if that is too much, or the error it raised.

        What is not a config's fault is raised.
        """
        ...

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """Measure finalists side by side, on one device. Only while none is busy."""
        ...


class InlineLane:
    """One evaluator, in the caller's thread: a config is evaluated when it is asked for."""

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
        """Nothing runs but what the caller waits for."""

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
    """Several evaluators, one thread each, which is the only one that uses it from the first config on.

    The threads live as long as this object: processes that evaluators started in them end with them.
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
        """See :class:`Lanes`. The evaluators have their artifacts in common, and one starts them."""
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
        """Stop what runs, and end the threads."""
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
    """The trial of a config; how much it spills instead, where that is more than ``most_spills`` values."""
    if most_spills is not None:
        spills = evaluator.spills(config)
        if spills is not None and spills > most_spills:
            return SpillingConfig(config, spills)
    return evaluator.evaluate(config) if reference is None else evaluator.evaluate(config, reference)


def make_lanes(evaluators: Sequence[Evaluator]) -> InlineLane | ThreadedLanes:
    """The lanes for these evaluators, of which there is at least one."""
    return InlineLane(evaluators[0]) if len(evaluators) == 1 else ThreadedLanes(evaluators)
