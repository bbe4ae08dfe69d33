"""Many processes on one remote store, and killed clients and servers: nothing that was acknowledged is lost."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

import killed_servers
import remote_servers
import remote_trials

COUNT, EACH = 16, int(os.environ.get("SILO_TEST_TRIALS", "12"))
KILLS = int(os.environ.get("SILO_TEST_KILLS", "6"))

# The limit of one test grows with what it is asked for.
pytestmark = pytest.mark.timeout(300 + 4 * KILLS + EACH)

SAMPLES = Path(remote_trials.__file__).parent


@pytest.fixture(params=remote_servers.SERVERS)
def remote(request, tmp_path):
    """The address of a remote store that nobody has used."""
    with remote_servers.SERVERS[request.param](tmp_path) as address:
        yield address


def environment():
    paths = [str(SAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


LIMIT_S = 280 + EACH


def run(*arguments):
    command = [sys.executable, remote_trials.__file__, *map(str, arguments)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def test_processes_that_keep_trials_at_once_lose_none(tmp_path, remote):
    told = run("many", tmp_path, remote, COUNT, EACH)
    assert told["codes"] == [0] * COUNT
    for look in told["looks"]:
        assert look["trials"] == list(range(1, COUNT * EACH + 1))
        assert (look["notes"], look["off"]) == ([], "")
    assert len({look["winner"] for look in told["looks"]}) == 1


class Servants:
    """A program that begins a process for each line that it gets, and says its number."""

    def __init__(self, *command):
        self._program = subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def begin(self, *words):
        self._program.stdin.write(" ".join(map(str, words)) + "\n")
        self._program.stdin.flush()
        return int(self._program.stdout.readline())

    def close(self):
        self._program.stdin.close()
        self._program.stdout.close()
        self._program.wait()


class Writer:
    """A process that keeps trials, and what it says that the remote store has."""

    def __init__(self, servants, folder, number, homes, each=1):
        self._heard = folder / f"heard-{number}"
        self.home = folder / f"writer-{number % homes}"
        self.process = servants.begin(self.home, self._heard, each)

    def _lines(self):
        """What was said; a line without an end was cut by a kill."""
        return self._heard.read_text().rpartition("\n")[0].splitlines()

    def wait_for(self, count):
        """Until so many trials were acknowledged, or it has ended by itself; whether it has."""
        end = time.monotonic() + 60
        while len(lines := self._lines()) < count and "end" not in lines:
            assert time.monotonic() < end
            time.sleep(0.002)
        return "end" in lines

    def kill(self):
        """End it; the trials that were acknowledged."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        while alive(self.process):
            time.sleep(0.001)
        return [int(line) for line in self._lines() if line != "end"]


def alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def begun():
    """Start programs that begin processes; they end with the test."""
    with contextlib.ExitStack() as stack:

        def begin(*command):
            made = Servants(*command)
            stack.callback(made.close)
            return made

        yield begin


def test_a_client_that_is_killed_loses_nothing_that_was_acknowledged(tmp_path, remote, begun):
    chance = random.Random(7)
    writers = begun(remote_trials.__file__, "writers", remote)
    acknowledged = []
    for number in range(KILLS):
        writer = Writer(writers, tmp_path, number, 2, each=chance.choice([1, 1, 7, 40]))
        assert not writer.wait_for(chance.randint(0, 3))
        time.sleep(chance.uniform(0, 0.05))
        acknowledged += writer.kill()
    found = run("read", tmp_path / "fresh", remote)
    assert acknowledged
    assert set(acknowledged) <= set(found["trials"])
    assert (found["notes"], found["off"]) == ([], "")


class Redis:
    """It has written down what it acknowledges."""

    keeps = True

    def __init__(self, folder, begun):
        self._folder, self._port = folder, remote_servers.free_port()
        self.address = f"redis://127.0.0.1:{self._port}"
        self._server = None

    def start(self):
        options = ("--appendonly", "yes", "--appendfsync", "always")
        self._server = remote_servers.start_redis(self._folder, self._port, *options)

    def kill(self):
        self._server.kill()
        self._server.wait()


class Forked:
    """A server of ``killed_servers.py``."""

    def __init__(self, begun, *command):
        self._servants = begun(killed_servers.__file__, *command)
        self._server = 0

    def start(self):
        self._server = self._servants.begin()

    def kill(self):
        os.kill(self._server, signal.SIGKILL)
        while alive(self._server):
            time.sleep(0.001)


class WebDav(Forked):
    """Its files stay."""

    keeps = True

    def __init__(self, folder, begun):
        pytest.importorskip("wsgidav", reason="no WebDAV server: pip install wsgidav cheroot")
        port = remote_servers.free_port()
        (folder / "served").mkdir()
        super().__init__(begun, "webdav", port, folder / "served")
        self.address = f"http://127.0.0.1:{port}/"


class S3(Forked):
    """It forgets everything."""

    keeps = False

    def __init__(self, folder, begun):
        pytest.importorskip("obstore", reason="obstore is not installed: pip install 'kernel-silo[remote]'")
        pytest.importorskip("moto", reason="no S3 server: pip install 'moto[server]'")
        port = remote_servers.free_port()
        super().__init__(begun, "s3", port)
        self.address = "s3://bucket/silo"
        for name, value in remote_servers.s3_environment(port).items():
            os.environ[name] = value


@pytest.mark.parametrize("kind", [Redis, WebDav, S3])
def test_a_server_that_is_killed_loses_nothing_that_was_acknowledged(tmp_path, begun, kind):
    chance = random.Random(8)
    with mock.patch.dict(os.environ):
        server = kind(tmp_path, begun)
        server.start()
        try:
            writers = begun(remote_trials.__file__, "writers", server.address)
            acknowledged = []
            for number in range(KILLS):
                writer = Writer(writers, tmp_path, number, 4, each=chance.choice([1, 1, 7, 40]))
                writer.wait_for(chance.randint(1, 4))
                time.sleep(chance.uniform(0, 0.05))
                server.kill()
                assert writer.wait_for(sys.maxsize)  # it noticed, and did not hang
                acknowledged += writer.kill()
                server.start()
            assert len(acknowledged) >= KILLS
            if server.keeps:
                found = run("read", tmp_path / "fresh", server.address)
                assert set(acknowledged) <= set(found["trials"])
                assert (found["notes"], found["off"]) == ([], "")
            # What a machine kept while the server was away, or what the server forgot, is sent when it next asks.
            own = []
            for number in range(min(4, KILLS)):
                run("read", tmp_path / f"writer-{number}", server.address)
                own += run("read", tmp_path / f"writer-{number}", "file:/nowhere")["trials"]
            assert set(acknowledged) <= set(own) <= set(run("read", tmp_path / "other", server.address)["trials"])
        finally:
            server.kill()
