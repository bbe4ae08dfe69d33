"""Measurements that the evaluators of one study share across their threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from silo.core.config import Config
from silo.forks import Mutex
from silo.tuner.reference_config import ReferenceConfig
from silo.tuner.trial import ReferenceSamples

__all__ = ["Findings", "Measured"]


@dataclass(frozen=True, slots=True)
class Measured:
    """The config some code was measured with, its samples and the reference's beside them, in nanoseconds.

    ``counts_ns`` is its median as it counts beside the reference.
    """

    config: Config
    samples: tuple[int, ...]
    counts_ns: int
    reference: ReferenceSamples | None = None


class Findings:
    """The best time so far, the reference, and what was measured of each code, by the sha256 of its blob.

    Configs that lead to the same code (a CPU ignores ``num_warps``) are one measurement: noise must not rank them.
    """

    def __init__(self) -> None:
        self._lock = Mutex()
        self._best_ns: int | None = None
        self._reference: ReferenceConfig | None = None
        self._first = Mutex()
        self._codes: dict[str, Future[Measured | None]] = {}

    @property
    def best_ns(self) -> int | None:
        """The smallest median as it counts, nanoseconds; None where nothing was measured."""
        return self._best_ns

    @property
    def known_reference(self) -> ReferenceConfig | None:
        """The reference where nobody names another, if it was measured."""
        return self._reference

    def reference(self, measured: Callable[[], ReferenceConfig]) -> ReferenceConfig:
        """The reference where nobody names another: the first config, which ``measured`` measures and returns.

        Called at most once until it returns; other threads wait meanwhile.
        """
        with self._first:
            if self._reference is None:
                self._reference = measured()
            return self._reference

    def claim(self, code: str) -> Measured | None:
        """The measurement of ``code``, once the thread at it is done; None: the caller measures and settles it."""
        while True:
            with self._lock:
                cell = self._codes.get(code)
                if cell is None:
                    self._codes[code] = Future()
                    return None
            found = cell.result()
            if found is not None:
                return found

    def hear(self, best_ns: int | None) -> None:
        """A time that was measured elsewhere, which the best so far is not above."""
        if best_ns is not None:
            with self._lock:
                self._best_ns = best_ns if self._best_ns is None else min(self._best_ns, best_ns)

    def take(self, code: str, found: Measured) -> None:
        """What was measured of ``code`` elsewhere; a measurement that was made here stays."""
        with self._lock:
            if code not in self._codes:
                self._codes[code] = Future()
                self._codes[code].set_result(found)

    def settle(self, code: str, found: Measured | None) -> None:
        """Say what came of a claim; None leaves it to the next."""
        with self._lock:
            cell = self._codes[code]
            if found is None:
                del self._codes[code]
            else:
                counts = found.counts_ns
                self._best_ns = counts if self._best_ns is None else min(self._best_ns, counts)
        cell.set_result(found)
