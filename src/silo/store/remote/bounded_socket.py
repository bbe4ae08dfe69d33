"""Sockets on which a request and its answer must end by a deadline, and within a number of bytes.

A limit for each read does not limit an answer: a byte each second resets the limit forever, and headers, interim
answers, trailers and nested arrays may never end. So every byte that arrives is counted here, below the protocols, and
every step waits at most for the time left until the deadline. A thread of the process shuts down sockets whose deadline
has passed, for steps that do not return, for example in a TLS library that a server keeps busy.
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
# Seconds from a deadline to the shutdown of the socket, so that a step which itself stops at the deadline ends first.
_LATE_S = 0.05


class BoundsError(OSError):
    """An answer exceeds a limit of its request."""


class TooLongError(BoundsError):
    """More bytes arrived than the request allows."""


class TooSlowError(BoundsError):
    """The deadline passed after the answer had begun, or after a part of the request was sent."""


@frozen
class Bounds:
    """The limits of one request and its answer.

    ``deadline`` is a moment of ``time.monotonic``. With ``bytes_a_second``, each byte that is sent or arrives moves the
    deadline by ``1 / bytes_a_second`` seconds, so that a long answer may take its time and a slow one may not.
    ``step_s`` is the time that connecting, or waiting for the next bytes, may take. ``most_bytes`` limits all bytes
    that arrive, including headers and the frames of the protocol.
    """

    deadline: float
    most_bytes: int
    step_s: float
    bytes_a_second: int = 0


class BoundedSocket:
    """A connection to a server, plain or with TLS, for one request after the other; :meth:`begin` starts each.

    It has those methods of a socket that ``http.client`` calls. Only one thread may use it at a time.
    """

    def __init__(self, host: str, port: int, bounds: Bounds, context: ssl.SSLContext | None = None) -> None:
        """Connects within the bounds of the first request.

        Raises:
            OSError: the server cannot be reached, or not in time.
        """
        self.looked_at_s = math.inf  # when the watchdog checks this socket next; guarded by the watchdog's lock
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
        # Closes the connection if its thread has ended or its client was dropped. This finalizer runs before that of
        # the socket, which would warn about an unclosed socket.
        weakref.finalize(self, self._socket.close).atexit = False

    def _connected(self, host: str, port: int) -> socket.socket:
        failed: OSError = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            connected = socket.socket(family, kind, protocol)
            try:
                connected.settimeout(self._step_s())
                connected.connect(address)
            except OSError as error:
                failed = error
                connected.close()
            else:
                return connected
        raise failed

    # -- requests ------------------------------------------------------------------------------------------------------

    def begin(self, bounds: Bounds) -> None:
        """Starts the next request."""
        self._start(bounds)
        _watchdog.watch(self)

    def end(self) -> None:
        """Ends a request whose answer was read: nothing is limited until the next request."""
        self._is_limited = False

    def _start(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._arrived = self._sent = 0
        self._is_limited = True

    @property
    def is_limited(self) -> bool:
        """Whether a request is in progress."""
        return self._is_limited and not self._is_closed

    def seconds_left(self) -> float:
        """Returns the seconds until the deadline; negative once it has passed."""
        earned = (self._arrived + self._sent) / self._bounds.bytes_a_second if self._bounds.bytes_a_second else 0.0
        return self._bounds.deadline + earned - time.monotonic()

    def shut_down(self) -> None:
        """Ends every step that waits, on any thread. The socket cannot be used afterwards."""
        with suppress(OSError):
            # Shuts down the connection below TLS, because a shutdown of TLS would change state that another thread
            # uses.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _step_s(self) -> float:
        remaining_s = self.seconds_left()
        if remaining_s <= 0:
            raise self._too_slow()
        return min(remaining_s, self._bounds.step_s)

    def _wait_at_most(self) -> None:
        self._socket.settimeout(self._step_s())

    # -- the methods of a socket
    # ------------------------------------------------------------------------------------------

    def sendall(self, data: ReadableBuffer) -> None:
        """Sends all of ``data``.

        Raises:
            OSError: the connection ended, or the deadline passed.
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
        """Receives at most as many bytes as the buffer has; returns their number, 0 at the end.

        Raises:
            OSError: the connection ended, the deadline passed, or more bytes arrived than the request allows.
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
            # raises if the deadline has passed: then the watchdog ended the connection, not the server
            self._refuse_late()
        return count

    def _refuse_late(self) -> None:
        """Raises if the deadline has passed: TooSlowError if the server had begun to answer, else TimeoutError."""
        if self.seconds_left() <= 0:
            raise self._too_slow() if self._arrived else TimeoutError("timed out")

    def _too_slow(self) -> TooSlowError:
        return TooSlowError(f"it is too slow: {self._arrived} bytes came, and {self._sent} were taken")

    def makefile(self, mode: str) -> io.BufferedReader:
        """Returns a reader of the arriving bytes. The connection stays open as long as a reader is open."""
        assert mode == "rb", "it is written to by sendall alone"
        self._readers += 1
        return io.BufferedReader(_Arriving(self), _BUFFER_BYTES)

    def reader_closed(self) -> None:
        """Counts a reader as closed. Closes the connection if :meth:`close` was called and no other reader is open."""
        self._readers -= 1
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Closes the connection, or lets the last open reader close it."""
        self._is_closed = True
        if self._readers <= 0:
            self._socket.close()


class _Arriving(io.RawIOBase):
    """A raw stream of the bytes that arrive on a socket."""

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
    """The thread that shuts down sockets whose deadline has passed. It starts with the first socket, and never ends."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._begin()
        in_child(self._begin)

    def _begin(self) -> None:
        """Resets the state, also in a forked child, which has neither the thread nor the requests of its parent."""
        # a heap ordered by the time of the next check
        self._waiting: list[tuple[float, int, weakref.ref[BoundedSocket]]] = []
        self._numbers = itertools.count()
        self._runs = False

    def watch(self, bounded_socket: BoundedSocket) -> None:
        """Makes the thread shut this socket down when its request's deadline has passed."""
        at = time.monotonic() + bounded_socket.seconds_left() + _LATE_S
        with self._changed:
            if bounded_socket.looked_at_s <= at:
                return  # the thread checks the socket before that time already
            self._push(at, bounded_socket)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="silo-deadlines", daemon=True).start()
            elif self._waiting[0][0] == at:
                self._changed.notify()

    def _push(self, at: float, bounded_socket: BoundedSocket) -> None:
        bounded_socket.looked_at_s = at
        heapq.heappush(self._waiting, (at, next(self._numbers), weakref.ref(bounded_socket)))

    def _run(self) -> None:
        changed = self._changed
        while True:
            with changed:
                while not self._waiting or self._waiting[0][0] > time.monotonic():
                    changed.wait(self._waiting[0][0] - time.monotonic() if self._waiting else None)
                at, _, socket_reference = heapq.heappop(self._waiting)
                waiting_socket = socket_reference()
                if waiting_socket is None or at != waiting_socket.looked_at_s:
                    del waiting_socket  # this thread must not keep the socket alive while it waits
                    continue  # the socket was released, or has another place in the heap
                waiting_socket.looked_at_s = math.inf
                remaining_s = waiting_socket.seconds_left() if waiting_socket.is_limited else None
                # A later request, or bytes that arrived, may have moved the deadline.
                if remaining_s is not None and remaining_s > 0:
                    self._push(time.monotonic() + remaining_s + _LATE_S, waiting_socket)
            if remaining_s is not None and remaining_s <= 0:
                waiting_socket.shut_down()
            del waiting_socket


_watchdog = _Watchdog()
