"""Requests to one HTTP server, each within a deadline and a number of bytes; a connection is kept for each thread."""

from __future__ import annotations

import base64
import http.client
import netrc
import ssl
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from urllib.parse import SplitResult, quote, unquote

from silo.errors import RemoteError
from silo.store.remote.bounded_socket import BoundedSocket, Bounds
from silo.store.remote.objects import LIMIT_S

__all__ = ["Http", "HttpConnection", "Reply", "most_arriving"]

_CHUNK = 1 << 16
_MOST_DRAINED = 1 << 16
_MOST_HEAD_BYTES = 256 << 10  # of status lines, headers, trailers


def most_arriving(most: int) -> int:
    """The most bytes that may arrive for a body of ``most``: with its head, and in chunks of some 32 bytes at least."""
    return most + most // 8 + _MOST_HEAD_BYTES


class HttpConnection(http.client.HTTPConnection):
    """A connection over a bounded socket: whatever the server sends counts, and every step waits for the deadline.

    :meth:`limit` comes before each request.
    """

    sock: BoundedSocket | None  # pyright: ignore[reportIncompatibleVariableOverride]  # as far as http.client calls it

    def __init__(self, host: str, port: int | None, context: ssl.SSLContext | None = None) -> None:
        super().__init__(host, port or (http.client.HTTP_PORT if context is None else http.client.HTTPS_PORT))
        self._bounds: Bounds | None = None
        self._tls = context
        if context is not None:
            self.default_port = http.client.HTTPS_PORT  # the name of the host is sent without it

    def limit(self, bounds: Bounds) -> None:
        """Set the bounds of the next request, which begins now."""
        self._bounds = bounds
        if self.sock is not None:
            self.sock.begin(bounds)

    def connect(self) -> None:
        """Connect within the bounds, as :meth:`request` does where it must."""
        assert self._bounds is not None, "a request without limits"
        self.sock = BoundedSocket(self.host, self.port, self._bounds, self._tls)

    def close_when_read(self) -> None:
        """Close the connection as soon as the response is closed, which has a reader of its own."""
        if self.sock is not None:
            self.sock.close()

    def end(self) -> None:
        """The answer was read: the connection waits for the next request."""
        if self.sock is not None:
            self.sock.end()


class Reply:
    """The head of an answer, and its body, which is read as far as is asked for."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.reason = answer.reason
        self._answer = answer

    @property
    def length(self) -> int | None:
        """How long the body says it is."""
        return self._answer.length

    def header(self, name: str) -> str:
        """A header; "" where there is none."""
        return self._answer.getheader(name) or ""

    def chunks(self) -> Generator[bytes]:
        """The body, piece by piece."""
        while piece := self._answer.read1(_CHUNK):
            yield piece

    def end(self) -> None:
        """It was read: the connection is free for the next request."""
        self._answer.close()

    def body(self, most: int) -> bytes:
        """The whole body, of so many bytes at most."""
        if self.length is not None and self.length > most:
            raise RemoteError(f"it sends {self.length} bytes, where {most} are the most", kind="lie")
        pieces: list[bytes] = []
        size = 0
        for piece in self.chunks():
            size += len(piece)
            if size > most:
                raise RemoteError(f"it sends more than {most} bytes", kind="lie")
            pieces.append(piece)
        return b"".join(pieces)


class Http:
    """A server and the path on it below which everything lies."""

    def __init__(self, split: SplitResult) -> None:
        self.base = quote(unquote(split.path.rstrip("/")))
        self._host = split.hostname or ""
        self._port = split.port
        self._context = ssl.create_default_context() if split.scheme == "https" else None
        self.origin = f"{split.scheme}://{split.netloc.rpartition('@')[2]}"
        self._authorization = _authorization(split)
        self._own = threading.local()

    @contextmanager
    def request(
        self,
        method: str,
        path: str,
        deadline: float,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        most: int = _CHUNK,
        patience_s: float = LIMIT_S,
    ) -> Generator[Reply]:
        """Send a request for a path below the base, and give the answer, of which the rest is thrown away.

        Answer and request end at ``deadline``, a moment of ``time.monotonic``. ``most`` is the longest body that the
        answer may have, ``patience_s`` how long the next bytes may take.
        """
        try:
            bounds = Bounds(deadline, most_arriving(most), patience_s)
            reply = self._asked(method, f"{self.base}/{path}", bounds, body, headers or {})
            yield reply
            # A connection is used again where little is left to read.
            left = reply.length
            if left is None or left > _MOST_DRAINED:
                self._close()
            else:
                for _ in reply.chunks():
                    pass
                reply.end()
                self._ended()
        except (http.client.HTTPException, OSError) as error:
            self._close()
            raise RemoteError(_told(error, patience_s), kind="fault") from error
        except BaseException:
            self._close()
            raise

    def _asked(self, method: str, path: str, bounds: Bounds, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        all_headers = {"Accept-Encoding": "identity", **self._authorization, **headers}
        kept: HttpConnection | None = getattr(self._own, "connection", None)
        if kept is not None:
            try:
                return _sent(kept, method, path, bounds, body, all_headers)
            except (http.client.RemoteDisconnected, ConnectionError, http.client.CannotSendRequest):
                self._close()  # the server ended it meanwhile
        fresh = self._own.connection = HttpConnection(self._host, self._port, self._context)
        return _sent(fresh, method, path, bounds, body, all_headers)

    def _ended(self) -> None:
        kept: HttpConnection | None = getattr(self._own, "connection", None)
        if kept is not None:
            kept.end()

    def _close(self) -> None:
        kept: HttpConnection | None = getattr(self._own, "connection", None)
        self._own.connection = None
        if kept is not None:
            kept.close()


def _sent(
    connection: HttpConnection,
    method: str,
    path: str,
    bounds: Bounds,
    body: bytes | None,
    headers: Mapping[str, str],
) -> Reply:
    connection.limit(bounds)
    connection.request(method, path, body=body, headers=dict(headers))
    return Reply(connection.getresponse())


def _authorization(split: SplitResult) -> dict[str, str]:
    """Basic authentication by the address, else by the user's ``.netrc``."""
    user, password = unquote(split.username or ""), unquote(split.password or "")
    if not user:
        try:
            found = netrc.netrc().authenticators(split.hostname or "")
        except (OSError, netrc.NetrcParseError):
            found = None
        if found is None:
            return {}
        user, password = found[0], found[2] or ""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def _told(error: Exception, patience_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"it does not answer within {patience_s:g} s"
    return str(error) or type(error).__name__
