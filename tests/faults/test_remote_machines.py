"""Several machines on one remote store, each with a store of its own; against real servers where they are installed."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import remote_program
import remote_servers
from scale_file import write_scale


@pytest.fixture(params=remote_servers.SERVERS)
def remote(request, tmp_path):
    """The address of a remote store that nobody has used."""
    with remote_servers.SERVERS[request.param](tmp_path) as address:
        yield address


def machine(tmp_path, name, remote, *options, **environment):
    """What tuning took on a machine that has nothing but the remote store; and what it complained of."""
    done = subprocess.run(
        [sys.executable, remote_program.__file__, str(write_scale(tmp_path)), *options],
        env={**os.environ, "SILO_HOME": str(tmp_path / name), "SILO_REMOTE": remote, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_a_second_machine_compiles_and_measures_nothing(tmp_path, remote):
    first, said = machine(tmp_path, "first", remote)
    assert (first["compiled"], first["measured"], first["left"], first["off"]) == (3, 3, 0, ""), said
    second, said = machine(tmp_path, "second", remote, "--trust")
    assert (second["compiled"], second["measured"], second["off"]) == (0, 0, ""), said
    assert second["winners"] == first["winners"]
    # A process that only launches what is here asks nothing.
    calling, said = machine(tmp_path, "second", remote, "--only-call")
    assert (calling["compiled"], calling["asked"]) == (0, False), said
    # Now it is all there: the remote store may go.
    alone, _ = machine(tmp_path, "second", "file:/nowhere")
    assert (alone["compiled"], alone["measured"], alone["winners"]) == (0, 0, first["winners"])


def test_native_code_of_a_remote_store_that_nobody_trusts_is_compiled_again(tmp_path, remote):
    first, _ = machine(tmp_path, "first", remote)
    second, said = machine(tmp_path, "second", remote)
    assert (second["compiled"], second["measured"], second["winners"]) == (1, 0, first["winners"])
    assert said.count("has native code that is not used and compiled again") == 1
    assert "silo trust --remote " in said
