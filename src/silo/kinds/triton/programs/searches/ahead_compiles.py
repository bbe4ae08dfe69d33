"""Compiles the configs of a program's tuner in worker processes, while the tuner measures configs that are compiled.

The result of a compile reaches Triton through Triton's own cache, under Triton's own key. So it does no harm if a
worker fails, refuses or never begins a compile: Triton does not find it in the cache and compiles the config itself.
"""

from __future__ import annotations

import enum
import functools
import logging
import math
import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from silo.core.device import Target
from silo.core.variant import CacheFiles, CompileJob
from silo.errors import CompileCrashError, CompileError, CompileTimeoutError
from silo.forks import Mutex, Notices, in_child
from silo.kinds.triton.front.adapter import (
    CacheEntry,
    CompileRequest,
    FrontEnds,
    TunedLaunch,
    is_cached,
    job_parameters,
    keep_files,
    keeps_in_files,
    launcher_build,
    requested_compile,
)
from silo.settings import available_cpus, local_ranks, settings

if TYPE_CHECKING:
    from silo.compile.pool import WorkerPool

__all__ = [
    "AheadCompiles",
    "AheadCounts",
    "JobState",
    "SearchCompiles",
    "largest_first",
    "next_to_measure",
    "turned",
    "worker_count",
]

_log = logging.getLogger("silo")

_COMPILER = "triton"
# With fewer workers, a config that no worker has begun is compiled here instead of waiting for a worker.
_WORKERS_TO_WAIT_FOR = 4
_MOST_FAULTS = 3  # faults of the machine or of workers in one process, after which Triton compiles everything itself


def worker_count(jobs: int, cpus: int, ranks: int) -> int:
    """The number of workers that one of ``ranks`` processes may start; one CPU stays free for the programs.

    A pure function.

    >>> worker_count(16, 16, 1), worker_count(16, 16, 8), worker_count(4, 16, 1), worker_count(1, 1, 1)
    (15, 1, 4, 0)
    """
    return min(jobs, (cpus - 1) // ranks)


def turned(configs: Sequence[Any], rank: int, ranks: int) -> list[Any]:
    """The configs, rotated for a rank: each rank begins with another config, so that not all compile the same at once.

    >>> turned([0, 1, 2, 3], 1, 2)
    [2, 3, 0, 1]
    """
    first = rank * len(configs) // ranks
    return [*configs[first:], *configs[:first]]


def largest_first(configs: Sequence[Mapping[str, object]]) -> list[int]:
    """The positions of configs by the product of their integers, the largest first: large blocks compile longest.

    A pure function.

    >>> largest_first([{"M": 64, "N": 32}, {"M": 128, "N": 64}, {"M": 64, "N": 32, "FAST": True}])
    [1, 0, 2]
    """

    def size(config: Mapping[str, object]) -> int:
        return math.prod(value for value in config.values() if type(value) is int and value > 0)

    return sorted(range(len(configs)), key=lambda place: (-size(configs[place]), place))


class JobState(enum.Enum):
    """The state of a config's compile.

    READY means that the config can be measured without waiting: its compile has ended, is cached, or was never sent.
    """

    READY = "ready"
    RUNNING = "running"
    QUEUED = "queued"


def next_to_measure(states: Mapping[int, JobState], workers: int) -> int | None:
    """The position of the config to measure next, or None to wait for a worker. A pure function.

    It is the first config that is ready. If none is ready, and no worker is running a compile or there are few workers,
    it is the last queued config, which the caller compiles itself.

    >>> states = {0: JobState.RUNNING, 1: JobState.READY, 2: JobState.QUEUED, 3: JobState.QUEUED}
    >>> next_to_measure(states, 15)
    1
    >>> del states[1]
    >>> next_to_measure(states, 15), next_to_measure(states, 1)
    (None, 3)
    """
    ready = [index for index, state in states.items() if state is JobState.READY]
    if ready:
        return ready[0]
    queued = [index for index, state in states.items() if state is JobState.QUEUED]
    if queued and (workers < _WORKERS_TO_WAIT_FOR or len(queued) == len(states)):
        return queued[-1]
    return None


@dataclass(slots=True)
class AheadCounts:
    """Numbers of compiles for the configs of all tuners: ``asked`` were requested, ``sent`` went to workers.

    ``front_ends`` counts runs of Triton's front end. ``kept`` were compiled by workers, ``stolen`` by Triton before a
    worker began, and ``failed`` in a worker.
    """

    asked: int = 0
    front_ends: int = 0
    sent: int = 0
    kept: int = 0
    stolen: int = 0
    failed: int = 0


@dataclass(slots=True, eq=False)
class _Job:
    """A compile in a worker.

    ``kept`` is done when the files are in Triton's cache, or when it is certain that none will be.
    """

    entry: CacheEntry
    kernel: str
    text: str
    future: Future[CacheFiles]
    here: bool  # whether the pool's own thread may put the files into the cache
    kept: Future[CacheFiles | None] = field(default_factory=Future["CacheFiles | None"])

    @property
    def state(self) -> JobState:
        """Whether a config that needs this compile can be measured at once, is being compiled, or is still queued."""
        if self.kept.done():
            return JobState.READY
        return JobState.RUNNING if self.future.running() or self.future.done() else JobState.QUEUED


@dataclass(frozen=True, slots=True)
class SearchCompiles:
    """The compiles of one search: Triton's keys of the compiles that it sent, and the key for each config by position.

    Two configs, or two searches, may need the same compile, which is sent once. ``launcher`` is done when Triton's
    cache has the launcher for the kernel's signature, or its build has failed; None if Triton builds no launcher.
    """

    sent: tuple[str, ...] = ()
    by_place: Mapping[int, str] = field(default_factory=dict[int, str])
    workers: int = 0
    launcher: Future[None] | None = None


class AheadCompiles:
    """The compiles of all searches of a process. Its methods may be called by any thread."""

    def __init__(self) -> None:
        self.counts = AheadCounts()
        self._jobs: dict[str, _Job] = {}  # compiles by Triton's key; the end of a search removes its compiles
        self._lock = Mutex()
        self._notices = Notices()
        self._pool: WorkerPool | None = None
        self._faults = 0
        in_child(self._forget)

    def _forget(self) -> None:
        # After a fork, the workers and futures belong to the parent; the pool starts anew by itself.
        self._jobs = {}

    # -- a search ------------------------------------------------------------------------------------------------------

    def begin(self, configs: Sequence[Any], launch: TunedLaunch) -> SearchCompiles:
        """Sends the compiles of a tuner's configs to workers; the result is to be passed to :meth:`end`."""
        rank, ranks = local_ranks()
        workers = worker_count(settings().jobs, available_cpus(), ranks)
        if workers < 1 or self._faults >= _MOST_FAULTS:
            return SearchCompiles()
        fronts = FrontEnds()
        sent: list[str] = []
        by_place: dict[int, str] = {}
        launcher: Future[None] | None = None
        try:
            for config_index in turned(largest_first([config.kwargs for config in configs]), rank, ranks):
                config = configs[config_index]
                hooked = config.pre_hook is not None and launch.described
                if hooked or getattr(config, "ir_override", None):
                    continue
                request = requested_compile(functools.partial(launch, config))
                key = None if request is None else self._send(request, fronts, workers, len(configs), sent)
                if request is not None and key is not None:
                    by_place[config_index] = key
                    if launcher is None and keeps_in_files():
                        launcher = _launcher_of(request)
        # for example Ctrl-C: nothing will wait for the compiles already sent, so they are cancelled
        except BaseException:
            self.end(SearchCompiles(tuple(sent)))
            raise
        self.counts.front_ends += fronts.runs
        return SearchCompiles(tuple(sent), by_place, workers, launcher)

    def places_as_ready(self, compiles: SearchCompiles, count: int) -> Generator[int]:
        """Yields the positions of ``count`` configs in the order in which their compiles end.

        In this order a tuner waits least.
        """
        if compiles.launcher is not None:
            compiles.launcher.result()
        pending = list(range(count))
        while pending:
            with self._lock:
                jobs = {index: self._jobs.get(compiles.by_place.get(index, "")) for index in pending}
            states = {index: JobState.READY if job is None else job.state for index, job in jobs.items()}
            index = next_to_measure(states, compiles.workers)
            if index is None:
                wait([job.kept for job in jobs.values() if job is not None], return_when=FIRST_COMPLETED)
            else:
                pending.remove(index)
                yield index

    def _send(
        self, request: CompileRequest, fronts: FrontEnds, workers: int, configs: int, sent: list[str]
    ) -> str | None:
        """Sends a compile to a worker; returns Triton's key for it, or None if no worker compiles it.

        The key is added to ``sent`` unless another search has already sent the compile.
        """
        self.counts.asked += 1
        if request.target.backend not in ("cuda", "hip"):
            return None  # Silo's own workers compile the code for CPUs
        try:
            entry = request.entry
            with self._lock:
                if entry.key in self._jobs:
                    return entry.key
            if is_cached(entry):
                return None
            pool = self._started(workers)
            pool.warm(min(workers, configs), _COMPILER)
            text = fronts.text_of(request, entry)
            job = CompileJob(_COMPILER, entry.name, _named(request.target), text, job_parameters(request, entry))
            future = pool.make_cache_files(job)
        except Exception as error:  # noqa: BLE001  # Triton's own errors have no common base; it meets them in its turn
            _log.debug("a config of %s is not compiled ahead: %s", request.source.name, error)
            return None
        sent_job = _Job(entry, entry.name, text, future, keeps_in_files())
        with self._lock:
            self._jobs[entry.key] = sent_job
        sent.append(entry.key)
        self.counts.sent += 1
        future.add_done_callback(functools.partial(self._finished, sent_job))
        return entry.key

    def _started(self, workers: int) -> WorkerPool:
        with self._lock:
            if self._pool is None:
                import atexit  # noqa: PLC0415  # with the first tuner

                from silo.compile.pool import WorkerPool  # noqa: PLC0415

                self._pool = WorkerPool(workers)
                atexit.register(self._pool.close)
            return self._pool

    def end(self, compiles: SearchCompiles) -> None:
        """Called when the search is over, or its tuner failed: cancels compiles that no worker has begun."""
        with self._lock:
            jobs = [job for key in compiles.sent if (job := self._jobs.pop(key, None)) is not None]
        for job in jobs:
            job.future.cancel()

    # -- a compile -----------------------------------------------------------------------------------------------------

    def await_compile(self, request: CompileRequest) -> None:
        """Called before Triton compiles: waits for the worker that runs the same compile, or cancels a queued one.

        When this method returns, Triton's cache has the result, or Triton compiles.
        """
        if not self._jobs:
            return
        with self._lock:
            job = self._jobs.get(request.entry.key)
        if job is None:
            return
        if job.future.cancel():
            self.counts.stolen += 1
            return
        files = job.kept.result()
        if files is not None and not job.here:
            self._keep(job, files)

    def _finished(self, job: _Job, future: Future[CacheFiles]) -> None:
        """Called in a thread of the pool when a compile has ended: puts the files into the cache."""
        files: CacheFiles | None = None
        try:
            if future.cancelled():
                return
            result = future.result()
            if result.files:
                files = result
                if job.here:
                    self._keep(job, result)
            elif result.reason:
                self._note("left", f"a worker left configs of {job.kernel} to Triton: {result.reason}")
        except (CompileCrashError, CompileTimeoutError) as error:
            self._fault(job, error)
        except CompileError as error:
            # The error is not raised here: Triton will compile this config itself and raise the error, which the tuner
            # may tolerate.
            self.counts.failed += 1
            _log.debug("a config of %s failed in a worker: %s", job.kernel, error)
        finally:
            job.kept.set_result(files)

    def _keep(self, job: _Job, files: CacheFiles) -> None:
        try:
            keep_files(job.entry, job.text, dict(files.files))
            self.counts.kept += 1
        except Exception as error:  # noqa: BLE001  # a full disk; or whatever a cache of the program's own raises
            self._fault(job, error)

    def _fault(self, job: _Job, error: Exception) -> None:
        """Records a failure for which the kernel is not responsible."""
        self.counts.failed += 1
        self._faults += 1
        ends = "; from now on Triton compiles all of them" if self._faults == _MOST_FAULTS else ""
        self._note(
            f"fault{bool(ends)}",
            f"a config of {job.kernel} was not compiled ahead of its tuner, so Triton "
            f"compiles it in its turn: {error}{ends}",
        )

    def _note(self, subject: str, message: str) -> None:
        self._notices.once(subject, message)


def _launcher_of(request: CompileRequest) -> Future[None] | None:
    """Builds the launcher for a kernel's signature in a thread, which mostly waits for the system's C compiler."""
    build = launcher_build(request)
    if build is None:
        return None
    future: Future[None] = Future()

    def run() -> None:
        try:
            build()
        except Exception as error:  # noqa: BLE001  # a compiler that is not there, or whatever Triton raises: it meets it
            _log.debug("a launcher of %s is not built ahead: %s", request.source.name, error)
        finally:
            future.set_result(None)

    threading.Thread(target=run, name="silo-launcher", daemon=True).start()
    return future


def _named(target: Any) -> Target:  # noqa: ANN401  # Triton's GPUTarget
    return Target("cuda", f"sm_{target.arch}") if target.backend == "cuda" else Target("hip", str(target.arch))
