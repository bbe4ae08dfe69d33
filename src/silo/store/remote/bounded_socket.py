"""Sockets on which one request and its answer end by a deadline, within the bytes that the request allows.

A limit for each read does not limit an answer: one byte a second resets it for ever, and headers, interim answers,
trailers and nested arrays may never end. So every byte that arrives is counted here, below the protocols, and every
step waits for the time left until the deadline. A thread of the process shuts sockets down whose deadline has passed,
for steps that do not return, for example in a TLS library that is kept busy.
"""

from __future__ import annotations

import heapq
import io
import itertools
import math
import socket
import ssl
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from silo.forks import Condition, in_child
from silo.frozen import frozen

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["BoundedSocket", "Bounds", "BoundsError", "TooLongError", "TooSlowError"]

_BUFFER_BYTES = 1 << 16
_LATE_S = 0.05  # a step that waits for the deadline itself ends before it is shut down


class BoundsError(OSError):
    """An answer does not keep to the limits of its request."""


class TooLongError(BoundsError):
    """More bytes arrived than the request allows."""


class TooSlowError(BoundsError):
    """The answer began, or the request was sent in part, and the deadline came."""


@frozen
class Bounds:
    """The limits of one request and its answer.

    ``deadline`` is a moment of ``time.monotonic``. With ``bytes_a_second`` each byte that is sent or arrives moves the
    deadline on by its share of a second, so that a long answer may take its time and a slow one may not.
    ``step_s`` is how long one connection, or the wait for the next bytes, may take. ``most_bytes`` counts all that
    arrives: heads and the frames of the protocol too.
    """

    deadline: float
    most_bytes: int
    step_s: float
    bytes_a_second: int = 0


class BoundedSocket:
    """A connection to a server, plain or with TLS, for one request after the other; :meth:`begin` starts each.

    It has the methods of a socket that ``http.client`` calls. For one thread at a time.
    """

    def __init__(self, host: str, port: int, bounds: Bounds, context: ssl.SSLContext | None = None) -> None:
        """Connect within the bounds of the first request.

        Raises:
            OSError: the server cannot be reached, or not in time.
        """
        self.looked_at_s = math.inf  # the moment when the watchdog looks next; guarded by its lock
        self._readers = 0
        self._is_closed = False
        self._start(bounds)
        self._socket = self._connected(host, port)
        _watchdog.watch(self)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                wrapped = context.wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
                self._socket = wrapped
                self._wait_at_most()
                wrapped.do_handshake()
        except BaseException:
            self.close()
            raise
        # Closes the connection of a thread that has ended, or of a client that is garbage: before the socket itself is
        # looked at, which would warn.
        weakref.finalize(self, self._socket.close).atexit = False

    def _connected(self, host: str, port: int) -> socket.socket:
        failed: OSError = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            made = socket.socket(family, kind, protocol)
            try:
                made.settimeout(self._step_s())
                made.connect(address)
            except OSError as error:
                failed = error
                made.close()
            else:
                return made
        raise failed

    # -- requests ------------------------------------------------------------------------------------------------------

    def begin(self, bounds: Bounds) -> None:
        """Start the next request."""
        self._start(bounds)
        _watchdog.watch(self)

    def end(self) -> None:
        """The answer was read: nothing is limited until the next request."""
        self._is_limited = False

    def _start(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._arrived = self._sent = 0
        self._is_limited = True

    @property
    def is_limited(self) -> bool:
        """Whether a request is under way."""
        return self._is_limited and not self._is_closed

    def seconds_left(self) -> float:
        """Seconds until the deadline; below zero once it has passed."""
        earned = (self._arrived + self._sent) / self._bounds.bytes_a_second if self._bounds.bytes_a_second else 0.0
        return self._bounds.deadline + earned - time.monotonic()

    def shut_down(self) -> None:
        """End every step that waits, on whichever thread. The socket is good for nothing afterwards."""
        with suppress(OSError):
            # The connection below TLS, because a shutdown of TLS would change state that another thread uses.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _step_s(self) -> float:
        left = self.seconds_left()
        if left <= 0:
            raise self._too_slow()
        return min(left, self._bounds.step_s)

    def _wait_at_most(self) -> None:
        self._socket.settimeout(self._step_s())

    # -- as sockets have it --------------------------------------------------------------------------------------------

    def sendall(self, data: ReadableBuffer) -> None:
        """Send all of ``data``.

        Raises:
            OSError: the connection ended, or the deadline came.
        """
        view = memoryview(data).cast("B")
        while view:
            self._wait_at_most()
            try:
                count = self._socket.send(view[:_BUFFER_BYTES])
            except TimeoutError:
                self._refuse_late()
                raise
            self._sent += count
            view = view[count:]

    def recv_into(self, buffer: WriteableBuffer) -> int:
        """Receive up to as many bytes as the buffer has; 0 at the end.

        Raises:
            OSError: the connection ended, the deadline came, or more arrived than the request allows.
        """
        self._wait_at_most()
        try:
            count = self._socket.recv_into(buffer)
        except TimeoutError:
            self._refuse_late()
            raise
        self._arrived += count
        if self._arrived > self._bounds.most_bytes:
            raise TooLongError(f"it sends more than {self._bounds.most_bytes} bytes, heads and frames included")
        if not count:
            self._refuse_late()  # if the watchdog has shut it down, the server has not ended it
        return count

    def _refuse_late(self) -> None:
        """Raise if the deadline has passed: TooSlowError if the server had begun to answer, else TimeoutError."""
        if self.seconds_left() <= 0:
            raise self._too_slow() if self._arrived else TimeoutError("timed out")

    def _too_slow(self) -> TooSlowError:
        return TooSlowError(f"it is too slow: {self._arrived} bytes came, and {self._sent} were taken")

    def makefile(self, mode: str) -> io.BufferedReader:
        """A reader of the arriving bytes. The connection is open as long as a reader is."""
        assert mode == "rb", "it is written to by sendall alone"
        self._readers += 1
        return io.BufferedReader(_Arriving(self), _BUFFER_BYTES)

    def reader_closed(self) -> None:
        """A reader was closed."""
        self._readers -= 1
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Close the connection, as soon as no reader is open."""
        self._is_closed = True
        if self._readers <= 0:
            self._socket.close()


class _Arriving(io.RawIOBase):
    """The bytes that arrive on a socket."""

    def __init__(self, connected: BoundedSocket) -> None:
        self._connected = connected

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        return self._connected.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._connected.reader_closed()


class _Watchdog:
    """The thread that shuts sockets down whose deadline has passed. It starts with the first socket, and never ends."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._begin()
        in_child(self._begin)

    def _begin(self) -> None:
        """Starts without a thread and without requests: a child made by fork has neither."""
        self._waiting: list[tuple[float, int, weakref.ref[BoundedSocket]]] = []  # a heap by the moment to look again
        self._numbers = itertools.count()
        self._runs = False

    def watch(self, one: BoundedSocket) -> None:
        """Shut this socket down when its request's deadline has passed."""
        at = time.monotonic() + one.seconds_left() + _LATE_S
        with self._changed:
            if one.looked_at_s <= at:
                return  # it is checked first, and then repeatedly
            self._push(at, one)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="silo-deadlines", daemon=True).start()
            elif self._waiting[0][0] == at:
                self._changed.notify()

    def _push(self, at: float, one: BoundedSocket) -> None:
        one.looked_at_s = at
        heapq.heappush(self._waiting, (at, next(self._numbers), weakref.ref(one)))

    def _run(self) -> None:
        changed = self._changed
        while True:
            with changed:
                while not self._waiting or self._waiting[0][0] > time.monotonic():
                    changed.wait(self._waiting[0][0] - time.monotonic() if self._waiting else None)
                at, _, found = heapq.heappop(self._waiting)
                one = found()
                if one is None or at != one.looked_at_s:
                    del one  # no reference is kept while this thread waits
                    continue  # it was released, or it has another place
                one.looked_at_s = math.inf
                left = one.seconds_left() if one.is_limited else None
                if left is not None and left > 0:  # a later request, or bytes that moved the deadline on
                    self._push(time.monotonic() + left + _LATE_S, one)
            if left is not None and left <= 0:
                one.shut_down()
            del one


_watchdog = _Watchdog()
