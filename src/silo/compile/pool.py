"""Compiles in worker processes, with time limits. A crash fails only one job, and equal jobs are compiled once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from silo.compile.wire import decode_outcome, encode
from silo.compile.worker_process import WorkerDiedError, WorkerHungError, WorkerProcess
from silo.core.variant import CacheFiles, Compiled, CompileJob
from silo.errors import CompileCrashError, CompileError, CompileTimeoutError, SiloError
from silo.forks import Condition, in_child
from silo.settings import settings

__all__ = ["WorkerPool", "learned_limit"]

IDLE_S = 30.0  # an idle worker ends after this time: it holds 40 to 100 MB, and starting another takes 0.1 s

# A config that compiles far longer than the kernel's other configs is hardly ever the fastest, and occupies a worker
# meanwhile. Helion measured that limits of 15 to 30 s lose nothing if the 90th percentile is below the limit
# (pytorch/helion #1384).
_LEAST_S = 30.0
_FACTOR = 4.0
_ENOUGH = 8  # a time limit is learnt from at least this many jobs

# Variables of workers. numpy, which some compilers import, would start a thread for every core but one, and each would
# spin for a tenth of a second, although no compiler uses its linear algebra. A worker never launches or records
# kernels, whatever the settings of the program that started it.
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "SILO_ACCELERATE": "0",
    "SILO_RECORD": "",
    "SILO_COVER": "",
    "SILO_BUNDLE": "",
    "SILO_FROZEN": "",
    "SILO_LOCK": "",
}


@dataclass(slots=True, eq=False)
class _Entry:
    """A job and the futures that wait for it. Changed only under the pool's lock."""

    job: CompileJob
    limit_s: float
    trial: bool
    makes: str  # "code" or "files": which of the compiler's methods runs
    retries: int = 1  # further attempts after a worker died, because the fault may have been the machine's
    waiters: list[Future[Any]] = field(default_factory=list[Future[Any]])
    running: bool = False

    @property
    def key(self) -> str:
        # The compiler's identity can stay empty: all jobs of a pool use the same compilers.
        return f"{self.makes} {self.job.key('')}"


class WorkerPool:
    """Worker processes that compile. They start when jobs arrive, and end after a time without jobs.

    A worker that passes a time limit fails only its current job and is replaced. If a worker dies, its job is tried
    once more in another worker: only a job that kills two workers is at fault. Equal jobs that are not finished yet
    share one compilation.

    A child made by fork has none of the threads, so its pool starts anew, without workers and jobs. Jobs submitted
    before the fork, and their futures, belong to the parent.

    Args:
        workers: the most workers; ``SILO_JOBS`` or the CPUs this process may use by default.
        timeout_s: seconds one job may take; ``SILO_COMPILE_TIMEOUT`` by default.
        plugins: compilers (name to ``module:Class``) besides the installed ones.
        idle_s: seconds without a job after which a worker ends; None: a worker stays until the pool is closed.
        yields: workers run only on CPUs that no other process wants.
    """

    def __init__(
        self,
        workers: int | None = None,
        timeout_s: float | None = None,
        plugins: Mapping[str, str] | None = None,
        idle_s: float | None = IDLE_S,
        *,
        yields: bool = False,
    ) -> None:
        self._yields = yields
        self._most = max(1, settings().jobs if workers is None else workers)
        self._limit_s = settings().compile_timeout_s if timeout_s is None else timeout_s
        self._plugins = dict(plugins or {})
        self._idle_s = idle_s
        self._changed = Condition()
        self._queue: deque[_Entry] = deque()
        self._entries: dict[str, _Entry] = {}  # unfinished jobs by key
        self._processes: set[WorkerProcess] = set()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._compile_seconds: defaultdict[str, list[float]] = defaultdict(
            list
        )  # seconds that successful jobs took, by kernel
        self._closed = False
        in_child(self._begin_anew)

    @property
    def most(self) -> int:
        """The largest number of workers."""
        return self._most

    def _begin_anew(self) -> None:
        # Called in a child after a fork. The fields are replaced, not cleared: a thread of the parent, which does not
        # exist here, may have been changing the old objects at the fork.
        inherited, self._processes = self._processes, set()
        self._queue = deque()
        self._entries = {}
        self._threads = []
        self._idle = 0
        for process in inherited:
            process.close()

    def submit(self, job: CompileJob, *, timeout_s: float | None = None, trial: bool = False) -> Future[Compiled]:
        """Queues ``job``. A job that equals an unfinished job shares that job's result and time limit.

        A ``trial`` is one of many configs of a kernel; its time limit is learnt from the kernel's earlier jobs
        (:func:`learned_limit`).

        Raises:
            CompileError: the pool was closed. All other errors come through the future.
        """
        return self._queued(job, timeout_s, trial=trial, makes="code")

    def make_cache_files(self, job: CompileJob, *, timeout_s: float | None = None) -> Future[CacheFiles]:
        """Queues a compile that fills a framework's cache, as a trial; otherwise like :meth:`submit`."""
        return self._queued(job, timeout_s, trial=True, makes="files")

    def _queued(self, job: CompileJob, timeout_s: float | None, *, trial: bool, makes: str) -> Future[Any]:
        future: Future[Any] = Future()
        limit_s = self._limit_s if timeout_s is None else timeout_s
        new_entry = _Entry(job, limit_s, trial, makes)
        with self._changed:
            if self._closed:
                raise CompileError("the compile pool was closed")
            entry = self._entries.setdefault(new_entry.key, new_entry)
            if entry is new_entry:
                self._queue.append(entry)
                if self._idle < len(self._queue) and len(self._threads) < self._most:
                    self._start_thread()
                self._changed.notify()
            if entry.running:
                future.set_running_or_notify_cancel()
            entry.waiters.append(future)
        return future

    def warm(self, count: int, compiler: str) -> None:
        """Starts ``count`` workers now, up to the pool's limit, and lets each load ``compiler`` for jobs to come."""
        with self._changed:
            for _ in range(min(count, self._most) - len(self._threads)):
                if not self._closed:
                    self._start_thread(compiler)

    def map(self, jobs: Iterable[CompileJob]) -> Iterator[Compiled]:
        """Queues all jobs now and yields the outcomes in their order. A failure is raised when its turn comes."""
        futures = [self.submit(job) for job in jobs]
        return (future.result() for future in futures)

    def _start_thread(self, warm: str = "") -> None:
        # Daemon threads, so that a program that does not call close() can exit; its workers end with it.
        thread = threading.Thread(target=self._serve, args=(warm,), name="silo-compile", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, warm: str) -> None:
        """Serves one worker, only from this thread, because the worker ends when the thread that started it ends."""
        process: WorkerProcess | None = None
        if warm:
            with contextlib.suppress(CompileError):  # the first job fails with the same error and reports it
                process = self._start_process("--warm", warm)
        while (entry := self._take()) is not None:
            try:
                process = self._compile(entry, process)
            except Exception as error:  # noqa: BLE001  # a fault of the pool itself must not leave waiters behind
                self._finish(entry, CompileError(f"the compile pool failed: {type(error).__name__}: {error}"))
        if process is not None:
            self._discard(process)

    def _take(self) -> _Entry | None:
        with self._changed:
            while True:
                while self._queue:
                    entry = self._queue.popleft()
                    entry.waiters = [waiter for waiter in entry.waiters if waiter.set_running_or_notify_cancel()]
                    if entry.waiters:
                        entry.running = True
                        return entry
                    self._entries.pop(entry.key, None)
                if self._closed:
                    return None
                self._idle += 1
                notified = self._changed.wait(self._idle_s)
                self._idle -= 1
                if not notified and not self._queue:
                    self._threads.remove(threading.current_thread())
                    return None

    def _compile(self, entry: _Entry, process: WorkerProcess | None) -> WorkerProcess | None:
        """Compiles one job; returns the worker if it can continue."""
        job_label = f"{entry.job.kernel} for {entry.job.target}"
        if process is None:
            try:
                process = self._start_process()
            except CompileError as error:
                self._finish(entry, error)
                return None
        limit_s = self._limit_of(entry)
        begin = time.monotonic()
        try:
            message = process.exchange(encode({"job": entry.job.to_json(), "makes": entry.makes}), limit_s)
        except WorkerHungError:
            self._discard(process)
            self._finish(
                entry,
                CompileTimeoutError(
                    f"compiling {job_label} took more than {limit_s:g} s and was stopped; "
                    + _allow_longer(limit_s, entry)
                ),
            )
            return None
        except WorkerDiedError:
            how = self._discard(process, died=True)
            if entry.retries and not self._closed:
                entry.retries -= 1
                return self._compile(entry, None)
            self._finish(entry, CompileCrashError(f"the compile worker died twice while compiling {job_label}: {how}"))
            return None
        # the answer was not a valid message, so nothing more can be read from this worker
        except CompileError as error:
            self._discard(process)
            self._finish(entry, error)
            return None
        with self._changed:
            self._compile_seconds[entry.job.kernel].append(time.monotonic() - begin)
        outcome = decode_outcome(message)
        if type(outcome) is CompileError and (complaints := process.complaints()):
            outcome = CompileError(f"{outcome}\n{complaints}")
        self._finish(entry, outcome)
        return process

    def _limit_of(self, entry: _Entry) -> float:
        if not entry.trial:
            return entry.limit_s
        with self._changed:
            return learned_limit(self._compile_seconds[entry.job.kernel], entry.limit_s)

    def _start_process(self, *options: str) -> WorkerProcess:
        plugins = [item for name, plugin in self._plugins.items() for item in ("--plugin", f"{name}={plugin}")]
        when = ("--when", "idle") if self._yields else ()
        process = WorkerProcess([*plugins, *when, *options], environment=_ENVIRONMENT)
        with self._changed:
            self._processes.add(process)
            closed = self._closed
        if closed:  # close() may have copied the set before this worker was added
            process.kill()
        return process

    def _discard(self, process: WorkerProcess, *, died: bool = False) -> str:
        with self._changed:
            self._processes.discard(process)
        return process.close(died=died)

    def _finish(self, entry: _Entry, outcome: Compiled | CacheFiles | SiloError) -> None:
        with self._changed:
            self._entries.pop(entry.key, None)
            waiters, entry.waiters = entry.waiters, []
            if self._closed and isinstance(outcome, SiloError):
                outcome = CompileError(f"the compile pool was closed while it compiled {entry.job.kernel}")
        for waiter in waiters:  # outside the lock, because the futures run their callbacks here
            if isinstance(outcome, SiloError):
                waiter.set_exception(outcome)
            else:
                waiter.set_result(outcome)

    def close(self) -> None:
        """Kills the workers, cancels queued jobs and fails running jobs. Returns within a second."""
        with self._changed:
            self._closed = True
            queued, self._queue = list(self._queue), deque()
            waiters = [waiter for entry in queued for waiter in entry.waiters]
            for entry in queued:
                self._entries.pop(entry.key, None)
            for process in self._processes:
                process.kill()
            self._changed.notify_all()
            threads = list(self._threads)
        for waiter in waiters:
            waiter.cancel()
            waiter.set_running_or_notify_cancel()
        until = time.monotonic() + 1.0
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout=max(0.0, until - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _allow_longer(limit_s: float, entry: _Entry) -> str:
    if limit_s < entry.limit_s:
        return "other configs of the kernel took a fourth of that"
    return "set SILO_COMPILE_TIMEOUT to more seconds to allow it longer"


def learned_limit(seconds: Iterable[float], limit_s: float) -> float:
    """Returns the seconds that the next job may take, from the seconds that earlier jobs took.

    The limit is four times the 90th percentile of ``seconds``, at least 30 and at most ``limit_s``. It is ``limit_s``
    if fewer than 8 jobs are known.

    >>> learned_limit([1.0] * 20, 600.0), learned_limit([20.0] * 20, 600.0), learned_limit([1.0] * 3, 600.0)
    (30.0, 80.0, 600.0)
    """
    ordered = sorted(seconds)
    if len(ordered) < _ENOUGH:
        return limit_s
    slow = ordered[len(ordered) * 9 // 10]
    return min(limit_s, max(_LEAST_S, _FACTOR * slow))
