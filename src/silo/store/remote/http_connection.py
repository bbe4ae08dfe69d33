"""Requests to one HTTP server, each within a deadline; a connection is kept for each thread."""

from __future__ import annotations

import base64
import http.client
import netrc
import socket
import ssl
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from urllib.parse import SplitResult, quote, unquote

from silo.errors import RemoteError
from silo.store.remote.objects import LIMIT_S

__all__ = ["Http", "Reply"]

_CHUNK = 1 << 16
_MOST_DRAINED = 1 << 16


class Reply:
    """The head of an answer, and its body, which is read as far as is asked for."""

    def __init__(self, answer: http.client.HTTPResponse, deadline: float) -> None:
        self.status = answer.status
        self.reason = answer.reason
        self._answer = answer
        self._deadline = deadline

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
            if time.monotonic() > self._deadline:
                raise RemoteError("it sends too slowly", kind="fault")

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
        patience_s: float = LIMIT_S,
    ) -> Generator[Reply]:
        """Send a request for a path below the base, and give the answer, of which the rest is thrown away.

        ``patience_s`` is how long the next bytes may take.
        """
        try:
            limit_s = min(patience_s, max(deadline - time.monotonic(), 0.01))
            reply = self._asked(method, f"{self.base}/{path}", deadline, limit_s, body, headers or {})
            yield reply
            # A connection is used again where little is left to read.
            left = reply.length
            if left is None or left > _MOST_DRAINED:
                self._close()
            else:
                for _ in reply.chunks():
                    pass
                reply.end()
        except (http.client.HTTPException, OSError) as error:
            self._close()
            raise RemoteError(_told(error, patience_s), kind="fault") from error
        except BaseException:
            self._close()
            raise

    def _asked(
        self, method: str, path: str, deadline: float, limit_s: float, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        all_headers = {"Accept-Encoding": "identity", **self._authorization, **headers}
        kept: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if kept is not None:
            try:
                return self._sent(kept, method, path, deadline, limit_s, body, all_headers)
            except (http.client.RemoteDisconnected, ConnectionError, http.client.CannotSendRequest):
                self._close()  # the server ended it meanwhile
        fresh = self._own.connection = self._made()
        return self._sent(fresh, method, path, deadline, limit_s, body, all_headers)

    def _sent(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        deadline: float,
        limit_s: float,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> Reply:
        connection.timeout = min(LIMIT_S, limit_s)
        _wait_at_most(connection, connection.timeout)
        connection.request(method, path, body=body, headers=dict(headers))
        _wait_at_most(connection, limit_s)
        return Reply(connection.getresponse(), deadline)

    def _made(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=LIMIT_S)
        return http.client.HTTPSConnection(self._host, self._port, timeout=LIMIT_S, context=self._context)

    def _close(self) -> None:
        kept: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        self._own.connection = None
        if kept is not None:
            kept.close()


def _wait_at_most(connection: http.client.HTTPConnection, seconds: float) -> None:
    connected: socket.socket | None = connection.sock
    if connected is not None:
        connected.settimeout(seconds)


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
