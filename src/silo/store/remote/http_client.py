"""The HTTP client of remote stores and registries: redirections, logins, deadlines and limits of bytes.

Every request has :class:`HttpLimits`. If a request fails, the client makes an :class:`HttpFault` and raises the
exception that its user's function returns for this fault. The same answer of a server always gives the same fault.
"""

from __future__ import annotations

import base64
import http.client
import math
import netrc
import ssl
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from silo.frozen import frozen
from silo.store.remote.bounded_socket import BoundedSocket, Bounds, TooLongError, TooSlowError

__all__ = ["Body", "HttpClient", "HttpFault", "HttpLimits", "Reply", "basic_login"]

_PIECE_BYTES = 1 << 18
_MOST_DRAINED = 1 << 16
_MOST_HEAD_BYTES = 256 << 10  # the most bytes of status lines, headers and trailers together
_REDIRECTIONS = frozenset({301, 302, 303, 307, 308})

Body = bytes | Path


@frozen
class HttpLimits:
    """The limits of one request and its answer.

    ``patience_s`` is the time that connecting, or waiting for the next bytes, may take; ``most`` is the longest body
    that the answer may have, in bytes. The answer must be complete by ``deadline``, a moment of ``time.monotonic``, and
    within ``seconds``, which start anew after each redirection. With ``bytes_a_second``, each byte that is sent or
    arrives extends ``seconds`` by ``1 / bytes_a_second``.
    """

    patience_s: float
    most: int = _MOST_DRAINED
    deadline: float = math.inf
    seconds: float = math.inf
    bytes_a_second: int = 0

    def bounds(self) -> Bounds:
        """Returns the limits for a request that begins now: time, and all bytes that arrive.

        The limit of bytes includes room for the frames of a body that arrives in chunks of 32 bytes or more.
        """
        until = min(self.deadline, time.monotonic() + self.seconds)
        arriving = self.most + self.most // 8 + _MOST_HEAD_BYTES
        return Bounds(until, arriving, self.patience_s, self.bytes_a_second)


_Kind = Literal["address", "silent", "long", "slow", "broken"]


@frozen
class HttpFault:
    """The reason why a request got no answer, or only a part of one.

    The values of ``kind`` are: ``address``: the server redirects to an address that cannot be used; ``silent``: no head
    of an answer came (no server, not HTTP, or not in time); ``long``: the body, or the body with its frames, has more
    than ``most`` bytes; ``slow``: the body did not come in time; ``broken``: the body ended early, or is not HTTP.
    """

    kind: _Kind
    words: str  # the reason as text for a message, in which "it" is the server
    request: str  # the method and the path
    received: int = 0  # bytes of the body that came
    most: int = 0


class _Connection(http.client.HTTPConnection):
    """An HTTP connection over a bounded socket: all bytes from the server count, and each step has a deadline."""

    sock: BoundedSocket | None  # pyright: ignore[reportIncompatibleVariableOverride]  # as far as http.client calls it

    def __init__(self, server: tuple[str, str, int | None], context: ssl.SSLContext | None) -> None:
        _, host, port = self.server = server
        super().__init__(host, port or (http.client.HTTP_PORT if context is None else http.client.HTTPS_PORT))
        self._bounds: Bounds | None = None
        self._tls = context
        if context is not None:
            self.default_port = (
                http.client.HTTPS_PORT
            )  # http.client adds the port to the Host header unless it equals this member, which is 80 by default

    def ask(
        self, bounds: Bounds, method: str, target: str, body: Body | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        """Sends a request and reads the head of its answer. A failure closes the connection."""
        self._bounds = bounds
        try:
            if self.sock is not None:
                self.sock.begin(bounds)
            if isinstance(body, Path):
                with body.open("rb") as file:
                    self.request(method, target, file, dict(headers))
            else:
                self.request(method, target, body, dict(headers))
            return self.getresponse()
        except BaseException:
            self.close()
            raise

    def connect(self) -> None:
        """Connects within the bounds; :meth:`request` calls this method if there is no connection."""
        assert self._bounds is not None, "a request without limits"
        self.sock = BoundedSocket(self.host, self.port, self._bounds, self._tls)

    def end(self) -> None:
        """Ends a request whose answer was read: the connection can be used for the next one."""
        if self.sock is not None:
            self.sock.end()


class Reply:
    """The head of an answer, and its body, which is read on demand."""

    def __init__(
        self,
        connection: _Connection,
        answer: http.client.HTTPResponse,
        request: str,
        limits: HttpLimits,
        error: Callable[[HttpFault], Exception],
    ) -> None:
        self.status = answer.status
        self.reason = answer.reason
        self._connection = connection
        self._answer = answer
        self._request = request
        self._limits = limits
        self._error = error

    def header(self, name: str) -> str:
        """Returns the value of a header; "" if it is missing."""
        return self._answer.getheader(name) or ""

    def pieces(self) -> Generator[bytes]:
        """Yields the body, piece by piece. Raises if it exceeds a limit of the request."""
        byte_limit, length = self._limits.most, self._answer.length
        if length is not None and length > byte_limit:
            raise self._failed("long", f"it sends {length} bytes, where {byte_limit} are the most")
        received = 0
        while piece := self._read(received):
            received += len(piece)
            if received > byte_limit:
                raise self._too_long()
            yield piece
        if self._answer.length:  # the body ended early, which http.client does not report
            raise self._failed("broken", f"it ended {self._answer.length} bytes early", received)

    def body(self) -> bytes:
        """Returns the whole body."""
        return b"".join(self.pieces())

    def drain(self) -> _Connection | None:
        """Reads the rest of a short body; returns the connection, for the next request, or None if the body is long."""
        remaining = self._answer.length
        if not self._answer.isclosed() and (remaining is None or remaining > _MOST_DRAINED):
            return None
        while self._read(0):
            pass
        self._answer.close()
        self._connection.end()
        return self._connection

    def drop(self) -> None:
        """Closes the connection without reading the rest."""
        self._answer.close()
        self._connection.close()

    def _read(self, received: int) -> bytes:
        try:
            return self._answer.read1(_PIECE_BYTES)
        except TooLongError as error:
            raise self._too_long() from error
        except (OSError, http.client.HTTPException) as error:
            kind = "slow" if isinstance(error, TimeoutError | TooSlowError) else "broken"
            raise self._failed(kind, _words(error, self._limits), received) from error

    def _too_long(self) -> Exception:
        return self._failed("long", f"it sends more than {self._limits.most} bytes")

    def _failed(self, kind: _Kind, message: str, received: int = 0) -> Exception:
        return self._error(HttpFault(kind, message, self._request, received, self._limits.most))


class HttpClient:
    """A client of one server, for the objects below an address. Any thread may use it; each thread keeps a connection.

    Args:
        base: the address without user, password and last slash (``https://host/v2/name``).
        error: returns the exception to raise for a fault.
        authorization: the header that is sent with each request to this server, and to no other.
        answer: returns a new ``authorization`` for the challenge of a server that answers 401, once for each request;
            it may use the client, and raises if it has no login.
        redirections: the most redirections to follow, for GET and HEAD; they must lead to TLS, or from plain HTTP to
            plain HTTP. With 0 the redirection itself is the reply.
    """

    def __init__(
        self,
        base: str,
        error: Callable[[HttpFault], Exception],
        *,
        authorization: str = "",
        answer: Callable[[str], str] | None = None,
        redirections: int = 0,
    ) -> None:
        self.base = base
        self._error = error
        self._authorization = authorization
        self._answer = answer
        self._redirections = redirections
        split = urlsplit(base)
        self._origin = split[:2]
        self._server = split.scheme, split.hostname or "", split.port
        self._tls: ssl.SSLContext | None = None
        self._own_connection = threading.local()  # each thread's connection to the client's own server

    def url(self, path: str) -> str:
        """Returns the address of a path below the base; an address is returned unchanged."""
        return path if "://" in path else f"{self.base}/{path}"

    def joined(self, url: str, path: str) -> str:
        """Returns the full address of ``path``, which an answer of ``url`` named and which may be relative to it."""
        try:
            return urljoin(url, path)
        except ValueError as error:
            raise self._refused(f"sends to a place that cannot be read: {error}") from None

    @contextmanager
    def request(
        self,
        method: str,
        path: str,
        limits: HttpLimits,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        once: bool = False,
    ) -> Generator[Reply]:
        """Sends a request and yields the reply; at the end of the block the rest of the reply is discarded.

        ``path`` is a path below the base, or an address. With ``once``, redirections are not followed, and the
        client's login is not sent: use it for a request that carries its own password in ``headers``. If a request
        fails, the exception that ``error`` returns is raised.
        """
        headers = {"Accept-Encoding": "identity", **(headers or {})}
        if once:
            reply = self._sent(method, self.url(path), limits, body, headers)
        else:
            reply = self._replied(method, path, limits, body, headers)
        try:
            yield reply
            self._ended(reply)
        except BaseException:
            reply.drop()
            raise

    # -- one request after the other -----------------------------------------------------------------------------------

    def _replied(
        self, method: str, path: str, limits: HttpLimits, body: Body | None, headers: Mapping[str, str]
    ) -> Reply:
        """Returns the reply after the login that the server requires, and after redirections."""
        url, asked_for_login = self.url(path), False
        for _ in range(self._redirections + 2):
            own = self._is_own(url)
            login = {"Authorization": self._authorization} if own and self._authorization else {}
            reply = self._sent(method, url, limits, body, {**headers, **login})
            challenge = reply.header("WWW-Authenticate")
            if reply.status == 401 and own and challenge and self._answer is not None and not asked_for_login:
                reply.drop()
                asked_for_login = True
                self._authorization = self._answer(challenge)
            elif reply.status in _REDIRECTIONS and self._redirections and method in ("GET", "HEAD"):
                reply.drop()
                url = self._redirected(url, reply.header("Location"))
            else:
                return reply
        raise self._refused(f"redirects {path} again and again")

    def _redirected(self, url: str, path: str) -> str:
        new = self.joined(url, path)
        if not self._is_safe(urlsplit(new).scheme):
            raise self._refused("redirects to a place that is not asked by TLS")
        return new

    def _is_own(self, url: str) -> bool:
        return urlsplit(url)[:2] == self._origin

    def _is_safe(self, scheme: str) -> bool:
        return scheme in ("https", self._origin[0])

    def _refused(self, message: str) -> Exception:
        return self._error(HttpFault("address", message, ""))

    def _sent(self, method: str, url: str, limits: HttpLimits, body: Body | None, headers: Mapping[str, str]) -> Reply:
        try:
            parts = urlsplit(url)
            server = parts.scheme, parts.hostname or "", parts.port
        except ValueError as error:
            raise self._refused(f"sends to a place that cannot be read: {error}") from None
        if not self._is_safe(parts.scheme):
            raise self._refused(f"sends to {parts.scheme}://, and not by TLS")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        request = f"{method} {parts.path}"
        try:
            connection, answer = self._answered(server, limits.bounds(), method, target, body, headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._error(HttpFault("silent", _words(error, limits), request)) from error
        return Reply(connection, answer, request, limits, self._error)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _answered(
        self,
        server: tuple[str, str, int | None],
        bounds: Bounds,
        method: str,
        target: str,
        body: Body | None,
        headers: Mapping[str, str],
    ) -> tuple[_Connection, http.client.HTTPResponse]:
        open_connection: _Connection | None = getattr(self._own_connection, "connection", None)
        if open_connection is not None and open_connection.server == server:
            self._own_connection.connection = None  # a nested request opens its own connection
            with suppress(http.client.RemoteDisconnected, ConnectionError, http.client.CannotSendRequest):
                return open_connection, open_connection.ask(bounds, method, target, body, headers)
            # The server has ended the kept connection, so a new one is opened.
        if server[0] == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
        fresh = _Connection(server, self._tls if server[0] == "https" else None)
        return fresh, fresh.ask(bounds, method, target, body, headers)

    def _ended(self, reply: Reply) -> None:
        """Keeps the connection of a reply that was read to its end, or closes it."""
        free = reply.drain()
        if free is None or free.server != self._server:
            reply.drop()
            return
        older: _Connection | None = getattr(self._own_connection, "connection", None)
        self._own_connection.connection = free
        if older is not None:
            older.close()


def basic_login(split: SplitResult) -> str:
    """Returns the header of basic authentication, from the address or the user's ``.netrc``; "" without a login."""
    user, password = unquote(split.username or ""), unquote(split.password or "")
    if not user:
        try:
            login = netrc.netrc().authenticators(split.hostname or "")
        except (OSError, netrc.NetrcParseError):
            login = None
        if login is None:
            return ""
        user, password = login[0], login[2] or ""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _words(error: Exception, limits: HttpLimits) -> str:
    if isinstance(error, TimeoutError):
        return f"it does not answer within {limits.patience_s:g} s"
    return str(error) or type(error).__name__
