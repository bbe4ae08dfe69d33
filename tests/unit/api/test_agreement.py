"""Whether ranks have decided the same: in one process with made-up ranks, and in processes that measure."""

import json
import os
import subprocess
import sys
import time

import pytest

from silo.calls import resolver
from silo.core.values import canonical_json
from silo.errors import AgreementError, ArgumentError
from silo.kernels import agreement
from silo.kernels import bundle_kernels as bundle
from silo.kernels.agreement import DecidedConfig, Decisions, decisions, same_decisions


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(resolver, "decided", {})
    monkeypatch.setattr(bundle, "decided", {})


def note_decided(*row):
    (bundle if row[1].startswith("bundle") else resolver).decided[row] = None


def rank(*rows):
    """The decisions of another rank."""
    return agreement._decisions([DecidedConfig(*row) for row in rows])


def gather(*others):
    """An all_gather in which this process is rank 0."""

    def all_gather(own):
        if len(own) == 32:
            return [own, *(one.digest for one in others)]
        return [own, *(canonical_json([agreement._row_to_json(row) for row in one.rows]) for one in others)]

    return all_gather


ADD = ("add", "a" * 64, "cpu:x86-64-v3", "n=8192", "BLOCK=256")
SUM = ("sum", "bundle " + "b" * 64, "cpu:x86-64-v3", "n=8192", "BLOCK=512")


def test_equal_decisions_have_equal_bytes_in_whatever_order_they_were_made():
    empty = decisions()
    for row in (SUM, ADD, SUM):
        note_decided(*row)
    mine = decisions()
    assert isinstance(mine, Decisions)
    assert len(mine.digest) == 32
    assert mine == rank(ADD, SUM) != empty
    assert same_decisions(gather(rank(ADD, SUM), rank(SUM, ADD))) == mine


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([ADD, (*SUM[:4], "BLOCK=1024")], "sum.n=8192. for cpu.*rank 0 uses BLOCK=512 .*rank 2 uses BLOCK=1024"),
        ([ADD], "sum.*rank 2 has not called it; make the same calls"),
        ([(*ADD[:1], "c" * 64, *ADD[2:]), SUM], "add.*BLOCK=256 of aaa.*BLOCK=256 of ccc"),
    ],
)
def test_the_first_difference_is_named(rows, told):
    note_decided(*ADD)
    note_decided(*SUM)
    with pytest.raises(AgreementError, match=told):
        same_decisions(gather(rank(ADD, SUM), rank(*rows)))


@pytest.mark.parametrize(
    "answer",
    [None, b"x" * 32, [], ["x"], [b"y" * 32], 7],
)
def test_what_is_not_the_bytes_of_every_rank_is_refused(answer):
    note_decided(*ADD)
    with pytest.raises(ArgumentError, match="all_gather gives"):
        same_decisions(lambda own: answer)


@pytest.mark.parametrize("text", [b"", b"[[1]]", b"\xff", b"[" * 100_000])
def test_what_another_rank_says_is_not_believed_to_be_decisions(text):
    note_decided(*ADD)
    with pytest.raises(ArgumentError, match="rank 1"):
        same_decisions(lambda own: [own, b"z" * 32] if len(own) == 32 else [own, text])


PROGRAM = """
import json, sys
import numpy as np
import silo, triton, sys
import triton.language as tl

@silo.kernel(space={"BLOCK": [64, 128, 256, 512]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)

x = np.arange(5000, dtype=np.float32)
out = np.empty_like(x)
scale(x, out, x.size)
assert (out == 2 * x).all()
if len(sys.argv) > 1:
    silo.load(sys.argv[1]).scale(x, out, x.size)
made = silo.decisions()
print(json.dumps([made.digest.hex(), [[row.kernel, row.bucket, row.config] for row in made.rows]]))
"""


def test_calls_are_decisions_and_candidates_are_not(tmp_path):
    pytest.importorskip("triton", reason="Triton kernels are compiled")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    told = []
    for tune in ("auto", "cached", "off"):
        environment = {**os.environ, "SILO_HOME": str(tmp_path / "store"), "SILO_TUNE": tune}
        done = subprocess.run(
            [sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        told.append(json.loads(done.stdout))
    (kernel, bucket, config), *more = told[0][1]
    assert (kernel, bucket, more) == ("scale", "n=8192", [])
    assert told[0] == told[1]
    assert (told[2][0] == told[0][0]) == (config == "BLOCK=64")


def start(tmp_path, number, **environment):
    variables = {
        **os.environ,
        "SILO_HOME": str(tmp_path / f"store-{number}"),
        "SILO_TUNE": "leader",
        "SILO_LOCK": str(tmp_path / "lock.json"),
        **environment,
    }
    command = [sys.executable, str(tmp_path / "program.py")]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    said, complained = process.communicate(timeout=200)
    assert process.returncode == 0, complained[-3000:]
    return json.loads(said)


def test_processes_with_stores_of_their_own_follow_one_leader_also_when_it_is_killed(tmp_path):
    pytest.importorskip("triton", reason="Triton kernels are compiled")
    (tmp_path / "program.py").write_text(PROGRAM)
    first = start(tmp_path, 0)
    while not (tmp_path / "lock.json.lease").exists() and first.poll() is None:
        time.sleep(0.01)
    first.kill()  # it holds the lease, or has just opened it
    first.communicate()
    told = [finish(process) for process in [start(tmp_path, number) for number in range(1, 4)]]
    assert told[0] == told[1] == told[2]
    assert len(json.loads((tmp_path / "lock.json").read_text())["entries"]) == 1
    # One that comes late measures nothing, whatever it may do.
    assert finish(start(tmp_path, 9)) == told[0]
    assert not list((tmp_path / "store-9").glob("records/*"))


def test_a_leader_needs_a_lock_file_and_patience(tmp_path):
    pytest.importorskip("triton", reason="Triton kernels are compiled")
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / "program.py").write_text(PROGRAM)
    without = start(tmp_path, 1, SILO_LOCK="")
    with (tmp_path / "lock.json.lease").open("w") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        waiting = start(tmp_path, 2, SILO_LEADER_WAIT="0.5")
        for process, told in ((without, "name it with SILO_LOCK"), (waiting, "raise SILO_LEADER_WAIT")):
            _, complained = process.communicate(timeout=200)
            assert process.returncode == 1
            assert told in complained
