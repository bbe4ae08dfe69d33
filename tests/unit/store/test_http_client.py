"""The HTTP client: one reason for one answer, whatever its pieces; logins and redirections; kept connections."""

import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from silo.store.remote.http_client import HttpClient, HttpFault, HttpLimits

MOST = 300_000


class FaultError(Exception):
    def __init__(self, fault: HttpFault) -> None:
        super().__init__(fault.words)
        self.fault = fault


@contextmanager
def serving(talk):
    """A server that has ``talk(socket, request)`` answer each request; gives its port and the requests."""
    requests = []

    def connected(one):
        with one, suppress(OSError):
            while head := read_head(one):
                requests.append(head)
                if talk(one, head) == "end":
                    return

    def accept():
        with suppress(OSError):
            while True:
                threading.Thread(target=connected, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], requests
        server.shutdown(socket.SHUT_RDWR)


def read_head(one):
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        piece = one.recv(1)
        if not piece:
            return ""
        data += piece
    return data.decode()


def client(port, **more):
    return HttpClient(f"http://127.0.0.1:{port}/base", FaultError, **more)


def fault_of(port, limits):
    """What the reading of one answer comes to."""
    with pytest.raises(FaultError) as caught, client(port).request("GET", "x", limits) as reply:
        reply.body()
    return caught.value.fault


def answer(one, body=b"", *headers, status="200 OK"):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    one.sendall("\r\n".join([*lines, "", ""]).encode() + body)


ENDLESS = {
    "one byte a time, then all": ("", [b"a"] * 50 + [bytes(1 << 20)] * 10),
    "large pieces": ("", [bytes(1 << 20)] * 10),
    "pieces as long as allowed": ("", [bytes(MOST)] * 10),
    "large chunks": ("Transfer-Encoding: chunked\r\n", [b"100000\r\n" + bytes(1 << 20) + b"\r\n"] * 10),
    "chunks of one byte": ("Transfer-Encoding: chunked\r\n", [b"1\r\na\r\n" * 10_000] * 200),
    "chunks of one byte with notes": ("Transfer-Encoding: chunked\r\n", [b"1;" + b"n" * 1000 + b"\r\na\r\n"] * 10_000),
    "a trailer": ("Transfer-Encoding: chunked\r\n", [b"1\r\na\r\n0\r\n" + b"X: y\r\n" * 1_000_000]),
    "a length": (f"Content-Length: {10 << 20}\r\n", [bytes(1 << 20)] * 10),
}


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("pause_s", [0, 0.002])
def test_an_answer_that_is_too_long_is_told_by_the_same_reason_however_it_arrives(kind, pause_s):
    header, pieces = ENDLESS[kind]

    def talk(one, _):
        one.sendall(f"HTTP/1.1 200 OK\r\n{header}\r\n".encode())
        for number, piece in enumerate(pieces):
            one.sendall(piece)
            time.sleep(pause_s if number < 60 else 0)
        return "end"

    with serving(talk) as (port, _):
        fault = fault_of(port, HttpLimits(60, MOST, seconds=60))
    words = (
        f"it sends {10 << 20} bytes, where {MOST} are the most"
        if kind == "a length"
        else f"it sends more than {MOST} bytes"
    )
    assert fault == HttpFault("long", words, "GET /base/x", 0, MOST)


@pytest.mark.parametrize(
    ("sent", "kind", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "broken", "it ended 7 bytes early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nx", "broken", "IncompleteRead"),
        (b"nonsense\r\n\r\n", "silent", "nonsense"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000, "silent", "more than"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200, "silent", "more than 100 headers"),
    ],
)
def test_each_way_to_fail_has_a_reason(sent, kind, words):
    def talk(one, _):
        one.sendall(sent)
        return "end"

    with serving(talk) as (port, _):
        fault = fault_of(port, HttpLimits(60, 1000, seconds=60))
    assert fault.kind == kind
    assert words in fault.words


def test_an_answer_that_stops_is_slow_and_none_is_silent():
    stop = threading.Event()

    def talk(one, head):
        if " /base/x " in head:
            one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        stop.wait(60)
        return "end"

    with serving(talk) as (port, _):
        slow = fault_of(port, HttpLimits(60, 1000, seconds=0.5))
        assert (slow.kind, slow.received) == ("slow", 3)
        with pytest.raises(FaultError) as caught, client(port).request("GET", "y", HttpLimits(7, seconds=0.2)):
            pass
        assert caught.value.fault == HttpFault("silent", "it does not answer within 7 s", "GET /base/y")
        stop.set()
    with pytest.raises(FaultError, match="refused"), client(port).request("GET", "z", HttpLimits(60)):
        pass


def test_a_login_is_for_one_server_and_asked_for_once():
    with serving(lambda one, _: answer(one, b"elsewhere")) as (other, foreign):

        def talk(one, head):
            if " /base/gone " in head:
                answer(one, b"", f"Location: http://127.0.0.1:{other}/there", status="307 Temporary Redirect")
            elif " /token " in head:
                answer(one, b"", 'WWW-Authenticate: Basic realm="again"', status="401 Unauthorized")
            elif "Authorization: new" in head:
                answer(one, b"in")
            else:
                answer(one, b"no", 'WWW-Authenticate: Basic realm="x"', status="401 Unauthorized")

        with serving(talk) as (port, requests):

            def logged_in(challenge):
                assert challenge == 'Basic realm="x"'
                token = f"http://127.0.0.1:{port}/token"
                with asked.request("GET", token, HttpLimits(60), headers={"Authorization": "pw"}, once=True) as reply:
                    assert reply.status == 401  # and no further login is asked for
                return "new"

            asked = client(port, authorization="old", answer=logged_in, redirections=5)
            with asked.request("GET", "a", HttpLimits(60)) as reply:
                assert reply.body() == b"in"
            assert [head.split()[1] for head in requests] == ["/base/a", "/token", "/base/a"]
            with asked.request("GET", "gone", HttpLimits(60)) as reply:
                assert reply.body() == b"elsewhere"
            assert "Authorization: new" in requests[-1]
            assert "Authorization" not in foreign[0]
            with asked.request("PUT", "gone", HttpLimits(60), b"data") as reply:
                assert reply.status == 307  # what is sent is sent once
            with asked.request("GET", "gone", HttpLimits(60), headers={"Authorization": "pw"}, once=True) as reply:
                assert reply.status == 307
            assert len(foreign) == 1
            with client(port).request("GET", "gone", HttpLimits(60)) as reply:
                assert reply.status == 307


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("file:///etc/passwd", "not asked by TLS"),
        ("http://[::1", "cannot be read"),
        ("https://host:port/", "cannot be read"),
        ("/base/gone", "again and again"),
    ],
)
def test_a_redirection_that_leads_nowhere(place, words):
    with serving(lambda one, _: answer(one, b"", f"Location: {place}", status="302 Found")) as (port, requests):
        asked = client(port, redirections=3)
        with pytest.raises(FaultError, match=words) as caught, asked.request("GET", "gone", HttpLimits(60)):
            pass
        assert caught.value.fault.kind == "address"
        assert len(requests) <= 5


def test_a_connection_is_kept_for_a_thread_and_made_anew_where_the_server_ended_it(tmp_path):
    connections = set()

    def talk(one, head):
        connections.add(one.getpeername())
        length = int(head.partition("Content-Length: ")[2].partition("\r")[0] or 0)
        while length:
            length -= len(one.recv(length))
        answer(one, b"x" * 10)
        return "end" if "/last" in head else None

    file = tmp_path / "body"
    file.write_bytes(b"b" * 100_000)
    with serving(talk) as (port, requests):
        asked = client(port)
        for _ in range(3):
            with asked.request("GET", "a", HttpLimits(60)) as reply:
                pass  # the rest is read
            assert reply.status == 200
        assert len(connections) == 1
        limits = HttpLimits(60)
        with asked.request("GET", "a", limits) as outer, asked.request("GET", "b", limits) as inner:
            assert inner.body() == outer.body() == b"x" * 10
        assert len(connections) == 2
        with asked.request("GET", "last", HttpLimits(60)) as reply:
            assert reply.body() == b"x" * 10
        time.sleep(0.1)
        with asked.request("PUT", "c", HttpLimits(60), file, {"Content-Length": "100000"}) as reply:
            assert reply.status == 200
        assert len(connections) == 3
        assert len(requests) == 7
