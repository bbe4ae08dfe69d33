"""``silo cache push``, ``pull`` and ``check``, and ``silo doctor``, against every kind of server."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false

import json
import os
import subprocess
import sys

import pytest

import remote_servers
from bundle_samples import variant
from silo.artifacts.artifact import Artifact
from silo.core.launch_info import LaunchInfo
from silo.core.variant import Compiled, CompiledBlob
from silo.store.store import Store

KEY = "5" * 64


@pytest.fixture(params=remote_servers.SERVERS)
def remote(request, tmp_path):
    """The address of a remote store that nobody has used."""
    with remote_servers.SERVERS[request.param](tmp_path) as address:
        yield address


def silo(home, remote, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "silo", *arguments],
        env={**os.environ, "SILO_HOME": str(home), "SILO_REMOTE": remote},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def rows(home, remote, what):
    code, out, err = silo(home, remote, "cache", what, "--json")
    assert code == 0, err
    return {row["part"]: row for row in json.loads(out)}


def test_a_store_is_pushed_checked_and_pulled(tmp_path, remote):
    store = Store(tmp_path / "first")
    for number, kind in enumerate(["cubin", "hsaco", "so"]):
        blob = CompiledBlob(kind, b"code %d" % number)
        outcome = store.artifacts.put_compiled(f"{number:064x}", Compiled(LaunchInfo("f", ()), blob, (), ""))
        item = variant("add", number, "cuda:sm_90")
        made = Artifact(item, outcome.launch, outcome.blob, outcome.sidecars, "made-up 1.0", f"{number:064x}")
        store.artifacts.put(item.artifact_key(made.compiler), made)
    store.records.extend(KEY, [{"n": number, "much": "x" * 400} for number in range(1500)])
    pushed = rows(tmp_path / "first", remote, "push")
    assert {part: row["copied"] for part, row in pushed.items()} == {
        "blobs": 3,
        "artifacts": 2,
        "jobs": 3,
        "records": 1500,
    }
    again = rows(tmp_path / "first", remote, "push")
    assert {part: (row["copied"], row["there"]) for part, row in again.items()} == {
        "blobs": (0, 3),
        "artifacts": (0, 2),
        "jobs": (0, 3),
        "records": (0, 1500),
    }
    checked = rows(tmp_path / "other", remote, "check")
    assert all(row["whole"] and not row["bad"] for row in checked.values())
    assert 3 <= checked["records"]["objects"] <= 6  # folded
    pulled = rows(tmp_path / "second", remote, "pull")
    assert {part: (row["copied"], row["left"]) for part, row in pulled.items()} == {
        "artifacts": (2, 0),
        "jobs": (2, 1),
        "records": (1500, 0),
    }
    alone = Store(tmp_path / "second")
    assert sorted(record["n"] for record in alone.records.read(KEY)) == list(range(1500))
    code, out, err = silo(tmp_path / "second", remote, "doctor")
    assert code == 0, err
    assert "remote" in out
