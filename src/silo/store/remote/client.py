"""The client of one remote store: all requests of this process to it.

No caller waits for the store longer than the limits of :mod:`silo.store.remote.object_protocol`. After a fault the
client is off for the rest of the process, which is logged once; later requests return at once, without a result.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

from silo.errors import RemoteError, SiloError
from silo.forks import Mutex, Notices, in_child
from silo.store.remote.address import RemoteAddress
from silo.store.remote.object_protocol import LIMIT_S, LISTING_S, MOST_NAMES, Objects, blob_name, limit_s
from silo.store.remote.signed_outcomes import Sealer
from silo.store.remote.upload_queue import UploadQueue

__all__ = [
    "Listing",
    "RemoteClient",
    "ThreadPool",
]


# ---- Threads that use a remote store, so that no other thread waits longer than a limit ----
#
# The threads are daemons and are never joined: a name server, a network file system or a library may block a thread for
# minutes, and the program must not wait for that, not even at its end.


class _Jobs:
    """The jobs of a pool.

    Threads refer to this object and not to the pool, so that they end when the pool is dropped.
    """

    def __init__(self) -> None:
        self.lock = Mutex()
        self.queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.threads = 0
        self.waiting = 0  # queued and running jobs

    def end(self) -> None:
        """Makes every thread end, once it has done its job."""
        for _ in range(self.threads):
            self.queue.put(None)

    def work(self) -> None:
        while (job := self.queue.get()) is not None:
            try:
                job()
            finally:
                # The job refers to its client, which refers to the pool. A reference from this thread would keep the
                # pool alive, and the thread ends only when the pool is dropped.
                del job
                with self.lock:
                    self.waiting -= 1


class ThreadPool:
    """At most ``most`` threads, started when they are needed. A forked child needs a new pool.

    The threads end when the pool is dropped, and their connections are closed with them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs = _Jobs()
        weakref.finalize(self, self._jobs.end).atexit = False

    @property
    def waiting(self) -> int:
        """The number of queued and running jobs."""
        return self._jobs.waiting

    def start(self, job: Callable[[], None]) -> None:
        """Runs ``job`` on a thread. The job must not raise."""
        jobs = self._jobs
        with jobs.lock:
            jobs.waiting += 1
            if jobs.waiting > jobs.threads and jobs.threads < self._most:
                jobs.threads += 1
                threading.Thread(target=jobs.work, name=f"silo-remote-{jobs.threads}", daemon=True).start()
        jobs.queue.put(job)


# ---- The client ----

T = TypeVar("T")

_THREADS = 8
_SLACK_S = 0.25  # seconds that a thread may take beyond the limit of its request, before the client is turned off
_WHOLE_S = 10.0  # the most seconds that one request for many objects may take
_MOST_REJECTED = 8


_Action = Callable[[Objects], "bytes | None"]


class _Slot:
    """The result of one request: the bytes of an object; None while the request runs, and if it failed."""

    __slots__ = ("data", "done")

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.done = threading.Event()


class Listing:
    """The names in a folder. ``whole`` is False if some names could not be listed."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.whole = False


class RemoteClient:
    """Fetches objects of a remote store and sends objects to it, from any thread.

    ``writes``: whether objects are sent. ``sealer`` signs outcomes of compile jobs.
    """

    def __init__(
        self, address: RemoteAddress, *, writes: bool, sealer: Sealer | None = None, notices: Notices | None = None
    ) -> None:
        self.place = address
        self._sealer = sealer
        self._notices = notices or Notices("silo.store")
        self._lock = Mutex()
        self._wants_writes = writes
        self._off = ""
        self._used = False  # whether this process, or the process that it was forked from, has sent a request
        self._rejected = 0
        self._renew()
        in_child(self._in_child)

    def _renew(self) -> None:
        self._objects: Objects | None = None
        self._answered = False
        self._pool = ThreadPool(_THREADS)
        self._askers = ThreadPool(_THREADS)  # for steps that wait for results of _pool
        self._expected: dict[str, _Slot] = {}
        self._uploads = UploadQueue(self._deliver, self._not_sent)

    def _in_child(self) -> None:
        """Runs in a forked child: resets the state, because requests in progress belong to the parent."""
        if self._used and not self.place.forks and not self._off:
            self._turn_off("its client cannot be used by a child that fork made after the first use")
        self._renew()

    @property
    def off(self) -> str:
        """The reason why the client is off; "" while it works."""
        return self._off

    @property
    def sends(self) -> bool:
        """Whether new results are sent."""
        return self._wants_writes and not self._off

    @property
    def waiting(self) -> int:
        """The number of objects that wait to be sent."""
        return self._uploads.waiting

    def get(self, name: str, most: int) -> bytes | None:
        """Returns the bytes of an object; None if it is absent. Waits for a fetch that :meth:`expect` has begun."""
        return self.get_each([name], most).get(name)

    def get_each(self, names: Sequence[str], most: int) -> Mapping[str, bytes]:
        """Fetches objects in parallel; returns those that exist.

        If fetching takes too long, some existing objects are missing in the result, which is logged once.
        """
        with self._lock:
            begun = {name: slot for name in names if (slot := self._expected.pop(name, None)) is not None}
        end = time.monotonic() + max(_WHOLE_S, limit_s(most))
        slots = begun | self._begin([(name, _getting(name, most)) for name in names if name not in begun], end)
        return {name: data for name, data in self._awaited(slots, most).items() if data is not None}

    def expect(self, names: Iterable[str], most: int) -> None:
        """Begins to fetch objects for a later :meth:`get`, and returns at once."""
        with self._lock:
            new = [(name, _getting(name, most)) for name in names if name not in self._expected]
            self._expected.update(self._begin(new, time.monotonic() + _WHOLE_S))

    def has_come(self, name: str) -> bool:
        """Returns whether an object that was expected has arrived. Sends no request, and does not wait."""
        slot = self._expected.get(name)
        return slot is not None and slot.done.is_set() and slot.data is not None

    def submit(self, step: Callable[[], T]) -> Future[T]:
        """Runs a step on a worker thread and returns a future of its result.

        At most ``_THREADS`` steps run at a time, in the order in which they were submitted.
        """
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                future.set_result(step())
            except BaseException as error:  # noqa: BLE001  # the future raises it in the thread that waits
                future.set_exception(error)

        self._askers.start(work)
        return future

    def reach(self) -> None:
        """Begins to connect to the service because many requests will follow, and returns at once."""
        if not self._off:
            self.submit(lambda: self.parts)

    def _begin(self, actions: Sequence[tuple[str, _Action]], end: float, *, writing: bool = False) -> dict[str, _Slot]:
        """Runs actions on the pool's threads, in order; an action that has not begun at the time ``end`` is left out.

        Returns a slot for the result of each action.
        """
        if self._off or not actions:
            return {}
        slots = {name: _Slot() for name, _ in actions}
        pending = deque(actions)  # a single popleft is atomic, so the threads need no lock

        def work() -> None:
            while pending:
                try:
                    name, action = pending.popleft()
                except IndexError:
                    return
                if time.monotonic() > end:
                    self.tell_once("slow", "has more than can be moved in the time there is; the rest another time")
                elif not self._off:
                    slots[name].data = self._tried(action, writing=writing)
                slots[name].done.set()

        self._used = True
        for _ in range(min(_THREADS, len(actions))):
            self._pool.start(work)
        return slots

    def _awaited(self, slots: Mapping[str, _Slot], most: int) -> dict[str, bytes | None]:
        """Waits for the results of requests.

        At least one of the requests is always running, so no wait is longer than one request's limit.
        """
        answers: dict[str, bytes | None] = {}
        for name, slot in slots.items():
            if self._off:
                break
            if not slot.done.wait(limit_s(most) + _SLACK_S):
                self._turn_off(f"{name} took longer than {limit_s(most):.2g} s")
                break
            answers[name] = slot.data
        return answers

    def list(self, folder: str) -> Listing:
        """Returns the names in a folder that arrive in time."""
        return self.list_each([folder])[folder]

    def list_each(self, folders: Sequence[str]) -> Mapping[str, Listing]:
        """Returns the names in several folders, which are listed in parallel."""
        listings = {folder: Listing() for folder in folders}
        if self._off:
            return listings
        self._used = True
        pages: queue.SimpleQueue[tuple[str, list[str] | bool]] = queue.SimpleQueue()
        end = time.monotonic() + _WHOLE_S
        for folder in folders:
            self._pool.start(lambda folder=folder: self._list_to(folder, end, pages))
        open_ones = set(folders)
        while open_ones and not self._off:
            limit_s = LISTING_S if self._answered else LIMIT_S
            try:
                folder, page = pages.get(timeout=limit_s + _SLACK_S)
            except queue.Empty:
                self._turn_off(f"the listing of {min(open_ones)} did not come within {limit_s:g} s")
                break
            listing = listings[folder]
            if isinstance(page, bool):
                open_ones.discard(folder)
                listing.whole = page
            else:
                listing.names += page
            if len(listing.names) > MOST_NAMES or (open_ones and time.monotonic() > end):
                self.tell_once("long", f"has more objects in {folder} than can be listed: some are not looked at")
                break
        return listings

    def _list_to(self, folder: str, end: float, pages: queue.SimpleQueue[tuple[str, list[str] | bool]]) -> None:
        """Puts the pages of a folder's listing into ``pages``, and then whether these were all pages."""

        def action(objects: Objects) -> bool:
            count = 0
            for page in objects.list(folder, end):
                pages.put((folder, page))
                count += len(page)
                if count > MOST_NAMES or self._off:
                    return False
            return True

        pages.put((folder, self._tried(action) is True))

    def send(self, name: str, data: bytes) -> None:
        """Sends an object in the background, unless the remote store is known to have it or may not be written."""
        if self.sends:
            self._used = True
            self._uploads.put(name, data)

    def send_sealed(self, key: str, line: bytes) -> None:
        """Signs the outcome of a compile job and sends the signed copy, if a signing key is set."""
        if self._sealer is None or not self.sends:
            return
        try:
            self.send(*self._sealer.sealed(key, line))
        except SiloError as error:
            self._sealer = None
            self.tell_once("key", f"gets no signatures of this process: {error}")

    def knows(self, name: str) -> None:
        """Records that the remote store has an object, so that it is not sent."""
        self._uploads.knows(name)

    def flush(self, seconds: float) -> int:
        """Waits until everything is sent, at most this long; returns the number of objects left."""
        return self._uploads.flush(seconds)

    def put_each(self, objects: Sequence[tuple[str, bytes]]) -> int:
        """Sends objects now, in parallel; returns the number that the store has accepted."""

        def putting(name: str, data: bytes) -> _Action:
            def action(one: Objects) -> bytes:
                one.put(name, data, _deadline(len(data)))
                return b""

            return action

        largest = max((len(data) for _, data in objects), default=0)
        return self._changed([(name, putting(name, data)) for name, data in objects], largest)

    def remove_each(self, names: Sequence[str]) -> int:
        """Removes objects now, in parallel; returns the number that were removed."""

        def removing(name: str) -> _Action:
            def action(one: Objects) -> bytes:
                one.remove(name, _deadline(0))
                return b""

            return action

        return self._changed([(name, removing(name)) for name in names], 0)

    def _changed(self, actions: Sequence[tuple[str, _Action]], most: int) -> int:
        if not self.sends:
            return 0
        slots = self._begin(actions, time.monotonic() + _WHOLE_S + limit_s(most), writing=True)
        return sum(data is not None for data in self._awaited(slots, most).values())

    def latency_s(self) -> float:
        """Returns the seconds that one request takes. Raises ``RemoteError`` if it is not answered."""
        begin = time.monotonic()
        self.get(f"blobs/00/{'0' * 64}", 1)
        if self._off:
            raise RemoteError(self._off, kind="fault")
        return time.monotonic() - begin

    def probe_write(self) -> None:
        """Sends a small new blob, fetches it again and removes it.

        Raises ``RemoteError`` if the store does not accept it.

        A service that removes nothing on request (bazel-remote) keeps the blob until it removes old blobs by itself.
        """
        data = b"silo doctor writes this blob and removes it: " + secrets.token_hex(16).encode()
        name = blob_name(hashlib.sha256(data).hexdigest())
        try:
            objects = self._opened()
            objects.put(name, data, _deadline(len(data)))
            probe = objects.get(name, len(data), _deadline(len(data)))
        except RemoteError as error:
            raise RemoteError(f"it answers and takes nothing: {error}", kind=error.kind) from error
        if probe != data:
            raise RemoteError("it took a blob, and does not return it", kind="fault")
        with contextlib.suppress(RemoteError):
            objects.remove(name, _deadline(0))

    def lie(self, name: str, label: str) -> None:
        """Counts an object whose bytes contradict its name. The caller treats the object as absent.

        Turns the client off if there are many such objects.
        """
        with self._lock:
            self._rejected += 1
            many = self._rejected >= _MOST_REJECTED
        self.tell_once("lie", f"gave something else than {name}: {label}; it counts as absent")
        if many:
            self._turn_off(f"{_MOST_REJECTED} objects were not what their names say, the last {name}: {label}")

    def _tried(self, action: Callable[[Objects], T], *, writing: bool = False) -> T | None:
        """Returns the result of ``action``; None if it failed, which is logged. Runs on threads of the client."""
        try:
            done = action(self._opened())
        except RemoteError as error:
            self._failed(error, writing=writing)
        except SiloError as error:
            self._turn_off(str(error))
        except BaseException as error:  # noqa: BLE001  # a client library may raise anything
            self._turn_off(f"{type(error).__name__}: {error}")
        else:
            self._answered = True
            return done
        return None

    def _failed(self, error: RemoteError, *, writing: bool) -> None:
        if error.kind == "lie":
            self.lie("what was asked for", str(error))
        elif error.kind == "refused" and writing:
            self._wants_writes = False
            self.tell_once(
                "refused", f"takes nothing: {error}. It is only read from here on, as SILO_REMOTE_MODE=read has it"
            )
        else:
            self._turn_off(str(error))

    def _opened(self) -> Objects:
        with self._lock:
            if self._objects is None:
                self._objects = self.place.open()
            return self._objects

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a store (blobs, records, ...) that the service can keep; () if it cannot be reached."""
        chunks: list[tuple[str, ...]] = []
        done = threading.Event()

        def work() -> None:
            chunks.append(self._tried(lambda objects: objects.parts) or ())
            done.set()

        if self._off:
            return ()
        self._used = True
        self._pool.start(work)
        if not done.wait(LIMIT_S + _SLACK_S):
            self._turn_off(f"it did not answer within {LIMIT_S:g} s")
            return ()
        return chunks[0]

    def _deliver(self, name: str, data: bytes) -> bool:
        """Sends one object, on a thread of the upload queue. Returns whether to go on."""
        if self.sends:
            self._tried(lambda objects: objects.put(name, data, _deadline(len(data))), writing=True)
        return self.sends

    def _not_sent(self, count: int, why: str) -> None:
        if not self._off:
            self.tell_once("not sent", f"lacks {count} objects of this process: {why}; 'silo cache push' sends them")

    def _turn_off(self, reason: str) -> None:
        with self._lock:
            if self._off:
                return
            self._off = reason
        self.tell_once(
            "off",
            f"is not used any more by this process: {reason}. What it may hold is compiled and measured here; "
            "'silo doctor' asks it again",
        )

    def tell_once(self, subject: str, message: str) -> None:
        """Logs a message about the remote store, once for each subject."""
        self._notices.once(f"remote {self.place.name} {subject}", f"the remote store {self.place.name} {message}")


def _getting(name: str, most: int) -> _Action:
    return lambda objects: objects.get(name, most, _deadline(most))


def _deadline(most: int) -> float:
    return time.monotonic() + limit_s(most)
