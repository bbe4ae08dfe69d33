"""Servers that never end: every request and its threads end by the deadline and use at most the budget.

Each kind of server extends another part of an answer (heads, interim answers, frames, trailers, arrays), which limits
of single reads and of bodies do not cover.
"""

import resource
import socket
import threading
import time
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from silo.errors import RegistryError, RemoteError
from silo.store.remote import client as link
from silo.store.remote import redis_server, web
from silo.store.remote.address import RemoteAddress
from silo.store.remote.bounded_socket import BoundedSocket, Bounds, TooSlowError
from silo.store.remote.object_protocol import Objects
from silo.store.remote.redis_server import RedisObjects
from silo.store.remote.web import WebObjects

DEADLINE_S = 0.6
BUSY_S = 60  # time that a busy machine may add to a deadline; a request that never ends takes longer
NAME = f"blobs/aa/{'aa' * 32}"


def drip(data):
    for number in data:
        yield bytes([number])
        time.sleep(0.02)


def for_ever(data, begin=b""):
    yield begin
    while True:
        yield data


OK = b"HTTP/1.1 200 OK\r\nDAV: 1\r\n"
INNER = b"*200000\r\n" + b":1\r\n" * 200_000
HTTP = {
    "a head that drips": lambda: drip(OK + b"X: " + b"a" * 60_000),
    "continue for ever": lambda: for_ever(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "continue now and then": lambda: drip(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000),
    "a trailer for ever": lambda: for_ever(
        b"X: y\r\n" * 1000, OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"
    ),
    "frames that drip": lambda: drip(OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 60_000),
    "headers for ever": lambda: for_ever(b"X" + b"a" * 60_000 + b": 1\r\n", OK),
    "a body that drips": lambda: drip(OK + b"Content-Length: 60000\r\n\r\n" + b"a" * 60_000),
    "small chunks for ever": lambda: for_ever(b"1\r\na\r\n" * 1000, OK + b"Transfer-Encoding: chunked\r\n\r\n"),
}
REDIS = {
    "a string that drips": lambda: drip(b"$200000\r\n" + b"a" * 200_000),
    "a line that drips": lambda: drip(b"+" + b"a" * 1000),
    "arrays in arrays": lambda: for_ever(INNER, b"*200000\r\n*200000\r\n"),
    "empty arrays": lambda: for_ever(b"*0\r\n" * 1000, b"*2\r\n$1\r\n0\r\n*199000\r\n"),
    "long keys": lambda: for_ever(b"$262144\r\n" + b"a" * 262_144 + b"\r\n", b"*199000\r\n"),
}


@contextmanager
def serving(answer):
    """A server that answers every request with ``answer()``; gives its port."""

    def talk(connected):
        with connected, suppress(OSError):
            connected.recv(1 << 16)
            for piece in answer():
                connected.sendall(piece)

    def accept():
        with suppress(OSError):
            while True:
                threading.Thread(target=talk, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def asked(objects: Objects) -> None:
    """Sends every kind of request, each of which fails or is answered in time."""
    for question in (
        lambda end: objects.get(NAME, 1000, end),
        lambda end: list(objects.list("blobs", end)),
        lambda end: list(objects.list("records/key", end)),
        lambda end: objects.put(NAME, b"data", end),
    ):
        begin = time.monotonic()
        with suppress(RemoteError):
            question(begin + DEADLINE_S)
        # Twice: where the server ends a connection, it is asked again.
        assert time.monotonic() - begin < 3 * DEADLINE_S + BUSY_S


@contextmanager
def little_memory():
    """At most 150 MiB more than before."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 << 10


@pytest.mark.parametrize("kind", HTTP)
def test_a_web_server_without_an_end(monkeypatch, kind):
    monkeypatch.setattr(web, "LIMIT_S", DEADLINE_S)
    with serving(HTTP[kind]) as port, little_memory():
        objects = WebObjects(urlsplit(f"http://127.0.0.1:{port}/silo"))
        with pytest.raises(RemoteError):
            objects.get(NAME, 1000, time.monotonic() + DEADLINE_S)
        objects._dav = True
        asked(objects)


@pytest.mark.parametrize("kind", REDIS)
def test_a_redis_server_without_an_end(kind):
    with serving(REDIS[kind]) as port, little_memory():
        objects = RedisObjects(urlsplit(f"redis://127.0.0.1:{port}"))
        with pytest.raises(RemoteError):
            objects.get(NAME, 1000, time.monotonic() + DEADLINE_S)
        asked(objects)


def test_arrays_of_one_answer_have_one_number_of_names_together(monkeypatch):
    monkeypatch.setattr(redis_server, "MOST_NAMES", 10)
    answers = iter([b"*2\r\n$1\r\n0\r\n*8\r\n" + b"$6\r\nsilo:a\r\n" * 8, b"*2\r\n$1\r\n0\r\n*9\r\n"])
    with serving(lambda: [next(answers)]) as port:
        objects = RedisObjects(urlsplit(f"redis://127.0.0.1:{port}"))
        assert len(next(objects.list("blobs", time.monotonic() + BUSY_S))) == 8
        objects = RedisObjects(urlsplit(f"redis://127.0.0.1:{port}"))
        with pytest.raises(RemoteError, match="more than 10 names"):
            list(objects.list("blobs", time.monotonic() + BUSY_S))


@pytest.mark.parametrize("kind", HTTP)
def test_a_registry_without_an_end(monkeypatch, tmp_path, kind):
    from silo.shipping import oci_client

    monkeypatch.setattr(oci_client, "_TIMEOUT_S", DEADLINE_S)
    with serving(HTTP[kind]) as port, little_memory():
        begin = time.monotonic()
        with pytest.raises(RegistryError):
            oci_client.Registry(f"127.0.0.1:{port}", "r").manifest("1")
        assert time.monotonic() - begin < 3 * DEADLINE_S + BUSY_S


@pytest.mark.parametrize(
    ("scheme", "answers", "kind"),
    [
        ("http", HTTP, "continue now and then"),
        ("http", HTTP, "a head that drips"),
        ("redis", REDIS, "arrays in arrays"),
        ("redis", REDIS, "a line that drips"),
    ],
)
def test_the_threads_of_a_remote_store_that_is_off_come_to_an_end(monkeypatch, scheme, answers, kind):
    """For stores whose answers never end: they are off after one limit, and no thread goes on reading."""
    for module in (link, web):
        monkeypatch.setattr(module, "LIMIT_S", DEADLINE_S)
    monkeypatch.setattr(link, "limit_s", lambda most: DEADLINE_S)
    monkeypatch.setattr(link, "_WHOLE_S", 2 * DEADLINE_S)
    with serving(answers[kind]) as port:
        store = link.RemoteClient(RemoteAddress.parse(f"{scheme}://127.0.0.1:{port}/0"), writes=False)
        assert store.get(NAME, 1000) is None
        store.list("blobs")
        assert store.off or store._rejected  # an answer that is too long counts as absent
        until = time.monotonic() + BUSY_S
        while store._pool.waiting and time.monotonic() < until:
            time.sleep(0.02)
        assert store._pool.waiting == 0


def stuck(connected):
    """As a library that is kept busy below: it looks at no limit of its own."""
    connected._socket.settimeout(None)
    while connected._socket.recv(1):
        pass


def test_a_step_that_looks_at_no_limit_is_ended_from_outside():
    """For threads in a library: its socket is shut down, and the thread ends."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connected = BoundedSocket("127.0.0.1", port, Bounds(time.monotonic() + DEADLINE_S, 1000, 60))
        thread = threading.Thread(target=lambda: (stuck(connected), ended.set()), daemon=True)
        thread.start()
        assert ended.wait(DEADLINE_S + BUSY_S)


def test_bytes_move_a_deadline_on_by_their_share():
    with serving(lambda: [b"a" * 100]) as port:
        begun = time.monotonic()
        connected = BoundedSocket("127.0.0.1", port, Bounds(begun + 1000, 1000, BUSY_S, bytes_a_second=20))
        connected.sendall(b"?")
        assert connected.makefile("rb").read(100) == b"a" * 100
        left = connected.seconds_left()
        assert begun + 1000 + 101 / 20 - time.monotonic() <= left + 0.001
        assert left <= 1000 + 101 / 20


def test_an_answer_that_stops_in_the_middle_is_too_slow():
    stopped = threading.Event()

    def stopping():
        yield b"a" * 10
        stopped.wait(BUSY_S)

    with serving(stopping) as port:
        connected = BoundedSocket("127.0.0.1", port, Bounds(time.monotonic() + 1.5, 1000, BUSY_S, bytes_a_second=1000))
        connected.sendall(b"?")
        with pytest.raises(TooSlowError, match="too slow: 10 bytes came"):
            connected.makefile("rb").read(100)
        stopped.set()


def test_a_request_that_is_not_read_ends_too():
    """For servers that read nothing: sending ends at the deadline, like reading."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connected = BoundedSocket("127.0.0.1", server.getsockname()[1], Bounds(time.monotonic() + 0.3, 1000, 60))
        begin = time.monotonic()
        with pytest.raises(OSError, match=r"timed out|too slow"):
            connected.sendall(bytes(64 << 20))
        assert time.monotonic() - begin < BUSY_S


def test_a_connection_is_used_again_and_limits_nothing_while_it_waits():
    with serving(lambda: [b"ab"]) as port:
        connected = BoundedSocket("127.0.0.1", port, Bounds(time.monotonic() + 1, 10, BUSY_S))
        connected.end()
        time.sleep(1.5)
        connected.begin(Bounds(time.monotonic() + BUSY_S, 10, BUSY_S))
        connected.sendall(b"?")
        assert connected.makefile("rb").read(2) == b"ab"
