"""Searches in the background: calls use the best known config until a search has found a better one.

One thread runs the searches, one after the other. Compiling and measuring happen in processes that only use CPUs that
are otherwise idle. Lowering happens in this process; while the program's other threads are busy, it may use only a
twentieth of the time. A search keeps a copy of its call's arguments, and the arrays themselves, until it ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from silo.building.compilation import Compilation
from silo.calls.first_call import LiveSearch, call_arguments, call_grid_of
from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.variant import Variant
from silo.errors import SiloError
from silo.forks import Mutex, in_child
from silo.machine.process_session import session
from silo.measuring.benches import benches_on
from silo.measuring.evaluators import CompiledArtifacts
from silo.status_line import announce
from silo.tuner.policy import PolicyDecision
from silo.tuner.session_values import Budget

if TYPE_CHECKING:
    from silo.building.call_context import CallContext
    from silo.building.kernel_declaration import DeclaredKernel
    from silo.launch.runtime import Launcher
    from silo.measuring.study_key import StudyKey

__all__ = ["BackgroundSearches", "begin_search", "pause_after", "searches"]

_log = logging.getLogger("silo")

# The largest number of waiting searches, because a waiting search holds a copy of its arrays. If a process calls more
# kernels than this at once, it does not search for the remaining kernels; later processes do.
_MOST_WAITING = 8
# The time limit of a run, only to end runs that would never finish. The limit is long, because a process that gets
# little CPU time takes long for any config.
_RUN_LIMIT_S = 120.0
# Lowering may take the fraction _SHARE of the time if the process's other threads are busy, that is, if they use CPUs
# for at least the fraction _BUSY_SHARE of the time.
_SHARE = 0.05
_BUSY_SHARE = 0.2


def pause_after(lowering_s: float, elapsed_s: float, others_s: float) -> float:
    """Returns the seconds to wait after lowering a config, so that other threads get Python's global lock (the GIL).

    Args:
        lowering_s: The CPU time of the lowering.
        elapsed_s: The wall time since the last config was lowered.
        others_s: The CPU time of the process's other threads during that time.

    >>> pause_after(0.02, 0.04, 0.0), round(pause_after(0.02, 0.04, 0.02), 3)
    (0.0, 0.38)
    """
    if others_s < _BUSY_SHARE * elapsed_s:
        return 0.0
    return lowering_s * (1 / _SHARE - 1)


class BackgroundSearches:
    """The background searches of a process: a queue, and a thread that runs while the queue has entries."""

    def __init__(self) -> None:
        self._lock = Mutex()
        self._queue: deque[Callable[[], None]] = deque()
        self._begun: set[str] = set()
        self._thread: threading.Thread | None = None
        in_child(self._begin_anew)

    def _begin_anew(self) -> None:
        # Called in a child after a fork. The search thread exists only in the parent and runs the queued searches
        # there, so the child starts with an empty queue and no thread.
        self._queue = deque()
        self._thread = None

    def claim(self, study: str) -> bool:
        """Returns whether the caller has to submit the search of ``study``.

        Returns False if an earlier call has claimed the search, or if ``_MOST_WAITING`` searches are waiting.
        """
        with self._lock:
            if study in self._begun or len(self._queue) >= _MOST_WAITING:
                return False
            self._begun.add(study)
            return True

    def release(self, study: str) -> None:
        """Withdraws a claim, so that a later call may claim the search."""
        with self._lock:
            self._begun.discard(study)

    def submit(self, search: Callable[[], None]) -> None:
        """Queues ``search``, which runs after those that were submitted earlier. Returns at once."""
        with self._lock:
            self._queue.append(search)
            if self._thread is None:
                # A daemon thread: the program ends without waiting for it, and every finished trial is stored.
                self._thread = threading.Thread(target=self._run, name="silo-search", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._thread = None
                    return
                search = self._queue.popleft()
            try:
                search()
            except Exception:  # noqa: BLE001  # a search that fails leaves the program as it is
                _log.exception("a search beside the program failed; its calls keep their config")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until no search runs or waits. Returns False if ``timeout_s`` passed before that."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return self._thread is None


searches = BackgroundSearches()


@dataclass
class _PacedArtifacts(CompiledArtifacts):
    """Compiles in the background. Lowering leaves the GIL to the program's other threads most of the time."""

    def prepare(self, configs: Sequence[Config]) -> None:
        """Lowers the configs one after the other, with a pause after each, and passes each to a worker immediately."""
        for config in configs:
            begin, process, own = time.monotonic(), time.process_time(), time.thread_time()
            super().prepare([config])
            lowering = time.thread_time() - own
            others = time.process_time() - process - lowering
            time.sleep(pause_after(lowering, time.monotonic() - begin, others))


def begin_search(
    kernel: DeclaredKernel,
    context: CallContext,
    study_key: StudyKey,
    variant_of: Callable[[Config], Variant],
    decision: PolicyDecision,
    launcher: Launcher,
    lock: Mutex,
) -> Decision:
    """Begins the background search of a call's study, once in a process.

    Returns Rejected if the search can only run during the call itself. Copies the call's arguments before it returns.
    If the search finds another config than ``decision``'s, ``launcher`` forgets the code that it has bound, between two
    calls, so that the next call gets the winner. ``lock`` is held while a config is lowered.
    """
    study = study_key.study(context.specialization, context.bucket)
    if not searches.claim(study.key):
        return Accepted("its search was begun before, or others wait")
    benches = benches_on(
        kernel.name,
        [context.device],
        call_arguments(context),
        lambda _, artifact: call_grid_of(kernel, context, artifact.variant),
        limit_s=_RUN_LIMIT_S,
        in_library=kernel.in_library,
        yields=True,
    )
    if not benches:
        searches.release(study.key)
        return Rejected("its candidates run in this process")
    bench = benches[0]
    try:
        bench.hold()
    except SiloError as error:
        bench.close()
        searches.release(study.key)
        return Rejected(str(error))
    # This Compilation (without ``trials=True``) never gives a config up because it compiles much longer than others: in
    # the background, a long time may only mean that the process waited for a CPU.
    compilation = Compilation(session().background, kernel.source)
    artifacts = _PacedArtifacts(compilation, variant_of, lock)
    live = LiveSearch(kernel, context, study_key, variant_of, bench, artifacts, timeouts_count=False)

    def search() -> None:
        outcome = live.run(Budget(), decision.origin)  # no limit in seconds: it would count waits for CPUs
        if outcome is None or (winner := outcome.require_winner().config) == decision.config:
            return
        announce(f"{study}: calls switch from {decision.config} to {winner}, which was measured beside the program")
        launcher.forget()

    searches.submit(search)
    return Accepted("measured beside the program")
