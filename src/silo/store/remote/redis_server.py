"""Objects in Redis (``redis://``, ``rediss://``), by Redis' own protocol.

Each blob, artifact and job is a string. Each list of records is a hash, whose fields are the records' digests. The
protocol is implemented here and not by a package: that takes less code than configuring a package would. An answer
begins with its length, so a too long one is refused before it is read.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from urllib.parse import SplitResult, unquote

from silo.errors import RemoteError
from silo.store.remote.bounded_socket import BoundedSocket, Bounds, TooLongError
from silo.store.remote.object_protocol import LIMIT_S, MOST_LINE_BYTES, MOST_NAMES, PARTS

__all__ = ["RedisObjects"]

_PREFIX = "silo:"
_CHUNK = 1 << 20
_MOST_LISTING_BYTES = 32 << 20  # the most bytes of the keys or fields that one answer lists
_MOST_FRAME_BYTES = 4096  # bytes around the string in an answer: the line before it, and its end
_MOST_DEPTH = 2  # the most arrays within each other in an answer: an answer to SCAN is an array that contains an array
_REFUSALS = ("NOAUTH", "WRONGPASS", "NOPERM", "READONLY", "ERR invalid password", "OOM")

_Answer = bytes | int | list["_Answer"] | None


class RedisObjects:
    """Keys that begin with ``silo:`` in one database of a server."""

    parts = PARTS

    def __init__(self, split: SplitResult) -> None:
        self._split = split
        self._database = split.path.strip("/")
        if self._database and not self._database.isdigit():
            raise RemoteError(
                f"redis:// takes the number of a database after the host, not /{self._database}", kind="fault"
            )
        self._own_connection = threading.local()

    def get(self, name: str, most: int, deadline: float) -> bytes | None:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        record = _record(name)
        command = ("GET", _PREFIX + name) if record is None else ("HGET", *record)
        answer = self._answer(command, most, deadline)
        if answer is None or isinstance(answer, bytes):
            return answer
        raise RemoteError(f"{command[0]} is answered with something else than bytes", kind="fault")

    def put(self, name: str, data: bytes, deadline: float) -> None:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        record = _record(name)
        command = ("SET", _PREFIX + name, data, "NX") if record is None else ("HSETNX", *record, data)
        self._answer(command, MOST_LINE_BYTES, deadline)

    def remove(self, name: str, deadline: float) -> None:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        record = _record(name)
        command = ("DEL", _PREFIX + name) if record is None else ("HDEL", *record)
        self._answer(command, MOST_LINE_BYTES, deadline)

    def list(self, folder: str, deadline: float) -> Iterator[list[str]]:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        if folder.startswith("records/"):
            yield self._fields(_PREFIX + folder, deadline)
            return
        cursor = "0"
        start = f"{_PREFIX}{folder}/"
        while time.monotonic() < deadline:
            answer = self._answer(
                ("SCAN", cursor, "MATCH", f"{start}*", "COUNT", "1000"), _MOST_LISTING_BYTES, deadline
            )
            match answer:
                case [bytes(following), list(keys)]:
                    names = [key.decode(errors="replace")[len(start) :] for key in keys if isinstance(key, bytes)]
                case _:
                    raise RemoteError("SCAN is answered with something else than keys", kind="fault")
            if folder == "records":
                for key in names:
                    yield [f"{key}/{field}" for field in self._fields(start + key, deadline)]
            else:
                yield names
            cursor = following.decode(errors="replace")
            if cursor == "0":
                return

    def _fields(self, key: str, deadline: float) -> list[str]:
        answer = self._answer(("HKEYS", key), _MOST_LISTING_BYTES, deadline)
        return (
            [field.decode(errors="replace") for field in answer or () if isinstance(field, bytes)]
            if isinstance(answer, list)
            else []
        )

    def _answer(self, command: tuple[str | bytes, ...], most: int, deadline: float) -> _Answer:
        """Sends a command and reads its answer, which has at most ``most`` bytes, by the deadline."""
        connection: _Connection | None = getattr(self._own_connection, "connection", None)
        self._own_connection.connection = (
            None  # dropped first, so that a connection that fails half way is not used again
        )
        answer: _Answer = None
        try:
            if connection is not None:
                try:
                    answer = connection.ask(command, most, deadline)
                except ConnectionError:  # the server has ended the kept connection: open a new one
                    connection = None
            if connection is None:
                connection = self._connected(deadline)
                answer = connection.ask(command, most, deadline)
        except TimeoutError as error:
            raise RemoteError(f"it does not answer within {LIMIT_S:g} s", kind="fault") from error
        except TooLongError as error:
            raise RemoteError(str(error), kind="lie") from error
        except OSError as error:
            raise RemoteError(error.strerror or str(error), kind="fault") from error
        self._own_connection.connection = connection
        return answer

    def _connected(self, deadline: float) -> _Connection:
        split = self._split
        context = ssl.create_default_context() if split.scheme == "rediss" else None
        bounds = _bounds(MOST_LINE_BYTES, deadline)
        connection = _Connection(BoundedSocket(split.hostname or "", split.port or 6379, bounds, context))
        if split.password:
            user = (unquote(split.username),) if split.username else ()
            connection.ask(("AUTH", *user, unquote(split.password)), MOST_LINE_BYTES, deadline)
        if self._database:
            connection.ask(("SELECT", self._database), MOST_LINE_BYTES, deadline)
        return connection


class _Connection:
    """A connection over which commands and answers are sent one after the other."""

    def __init__(self, connected: BoundedSocket) -> None:
        self._socket = connected
        self._file = connected.makefile("rb")
        self._names_left = 0

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, command: tuple[str | bytes, ...], most: int, deadline: float) -> _Answer:
        words = [word.encode() if isinstance(word, str) else word for word in command]
        try:
            self._socket.begin(_bounds(most, deadline))
            self._names_left = MOST_NAMES
            self._socket.sendall(
                b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
            )
            answer = self._read(most)
        except (RemoteError, OSError):
            self.close()
            raise
        self._socket.end()
        return answer

    def _read(self, most: int, depth: int = 0) -> _Answer:
        line = self._file.readline(1024)
        if not line:
            raise ConnectionResetError("the server ended the connection")
        kind, argument = line[:1], line[1:].strip()
        if kind == b"+":
            return argument
        if kind == b"-":
            message = argument.decode(errors="replace")
            raise RemoteError(f"it answers: {message}", kind="refused" if message.startswith(_REFUSALS) else "fault")
        try:
            number = int(argument)
        except ValueError:
            raise RemoteError("it does not speak Redis' protocol", kind="fault") from None
        if kind == b":":
            return number
        if number < 0:
            return None
        if kind == b"$":
            return self._bytes(number, most)
        if kind == b"*" and depth < _MOST_DEPTH:
            self._names_left -= number  # counted over all arrays of the answer together
            if self._names_left < 0:
                raise RemoteError(f"it answers with more than {MOST_NAMES} names", kind="lie")
            return [self._read(most, depth + 1) for _ in range(number)]
        raise RemoteError("it does not speak Redis' protocol", kind="fault")

    def _bytes(self, size: int, most: int) -> bytes:
        if size > most:
            raise RemoteError(f"it sends {size} bytes, where {most} are the most", kind="lie")
        pieces: list[bytes] = []
        remaining = size + 2
        while remaining:
            piece = self._file.read(min(remaining, _CHUNK))
            if not piece:
                raise ConnectionResetError("the server ended the connection")
            pieces.append(piece)
            remaining -= len(piece)
        return b"".join(pieces)[:-2]


def _bounds(most: int, deadline: float) -> Bounds:
    return Bounds(deadline, most + _MOST_FRAME_BYTES, LIMIT_S)


def _record(name: str) -> tuple[str, str] | None:
    """Returns the hash and the field of a record; None for the name of any other object."""
    if not name.startswith("records/"):
        return None
    key, _, digest = name.rpartition("/")
    return _PREFIX + key, digest
