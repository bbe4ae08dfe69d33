"""Many processes on one remote store, and killed clients and servers: nothing that was acknowledged is lost."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import remote_servers
import remote_trials

SAMPLES = Path(remote_trials.__file__).parent
COUNT, EACH = 16, int(os.environ.get("SILO_TEST_TRIALS", "12"))
KILLS = int(os.environ.get("SILO_TEST_KILLS", "6"))


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


class Writer:
    """A process that keeps trials, and what it says that the remote store has."""

    def __init__(self, home, address):
        command = [sys.executable, remote_trials.__file__, "acknowledge", str(home), address]
        self.process = subprocess.Popen(
            command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.heard = []

    def hear(self, count):
        while len(self.heard) < count and (line := self.process.stdout.readline()):
            self.heard.append(int(line))

    def kill(self):
        self.process.kill()
        # A line without an end was cut by the kill.
        rest = self.process.stdout.read().rpartition("\n")[0]
        self.process.wait()
        self.process.stdout.close()
        return self.heard + [int(line) for line in rest.splitlines()]


def test_a_client_that_is_killed_loses_nothing_that_was_acknowledged(tmp_path, remote):
    chance = random.Random(7)
    acknowledged = []
    for number in range(KILLS):
        writer = Writer(tmp_path / f"writer-{number % 2}", remote)
        writer.hear(chance.randint(0, 3))
        time.sleep(chance.uniform(0, 0.02))
        acknowledged += writer.kill()
    found = run("read", tmp_path / "fresh", remote)
    assert acknowledged
    assert set(acknowledged) <= set(found["trials"])
    assert (found["notes"], found["off"]) == ([], "")


def test_a_redis_server_that_is_killed_loses_nothing_that_was_acknowledged(tmp_path):
    chance = random.Random(8)
    port = remote_servers.free_port()
    options = ("--appendonly", "yes", "--appendfsync", "always")
    address = f"redis://127.0.0.1:{port}"
    acknowledged = []
    server = remote_servers.start_redis(tmp_path, port, *options)
    try:
        for number in range(KILLS):
            writer = Writer(tmp_path / f"writer-{number}", address)
            writer.hear(chance.randint(1, 4))
            time.sleep(chance.uniform(0, 0.02))
            server.kill()
            server.wait()
            assert writer.process.wait(60) == 0  # it noticed, and did not hang
            acknowledged += writer.kill()
            server = remote_servers.start_redis(tmp_path, port, *options)
        found = run("read", tmp_path / "fresh", address)
        assert len(acknowledged) >= KILLS
        assert set(acknowledged) <= set(found["trials"])
        # What a machine kept while the server was away is sent when it next asks about the study.
        run("read", tmp_path / "writer-0", address)
        own = run("read", tmp_path / "writer-0", "file:/nowhere")["trials"]
        assert set(own) <= set(run("read", tmp_path / "fresh", address)["trials"])
    finally:
        server.kill()
        server.wait()
