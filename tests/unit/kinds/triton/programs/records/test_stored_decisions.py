"""Decisions of tuners in the store, in programs on the stub driver: a later process measures nothing."""

import math
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import triton_on_stub
import warm_python
from silo.core.config import Config
from silo.core.device import Target
from silo.kinds.triton.programs.records.decider import KeptDecision
from silo.tuner.foreign_decision import ForeignWinner
from triton_programs import HEAD as PROGRAM
from triton_programs import TUNED, program, store_after

pytest.importorskip("torch", reason="Triton's driver for NVIDIA's GPUs asks torch for dtypes here")

CALLS = """
with silo.accelerate():
    for n in (100, 256):
        t[(1,)](x, z, n)
print("measured", len(measured), t.best_config.kwargs["BLOCK"])
"""


def measured(said):
    return next(line for line in said.splitlines() if line.startswith("measured"))


def test_a_kept_decision_round_trips_and_refuses_what_is_none():
    winner = ForeignWinner("k", "f", Target.parse("cuda:sm_90a"), ("n",), (3,), Config.of({"BLOCK": 128}))
    kept = KeptDecision(winner, (1.5, (float("inf"), 2.0)), 1200)
    document: Any = kept.to_json()
    assert KeptDecision.from_json(document) == kept
    for change in ({"times": [3]}, {"times": ["a"]}, {"milliseconds": -1}, {"more": 1}, {"winner": {}}):
        with pytest.raises(ValueError, match=r"kept decision|winner"):
            KeptDecision.from_json({**document, **change})


def test_the_next_process_measures_nothing_and_says_so_once(tmp_path):
    first = program(TUNED + CALLS, SILO_HOME=str(tmp_path), SILO_LOG="info")
    assert measured(first) == "measured 4 128"
    assert first.count("is the fastest of 2 configs") == 2
    second = program(
        TUNED
        + CALLS
        + """
assert list(t.configs_timings.values()) == [[3.0] * 3, [4.0] * 3]
assert type(t.cache) is dict and len(t.cache) == 2
""",
        SILO_HOME=str(tmp_path),
        SILO_LOG="info",
    )
    assert measured(second) == "measured 0 128"
    assert second.count("uses what an earlier process decided") == 1
    assert "s of tuning are saved" in second
    assert measured(program(TUNED + CALLS, SILO_HOME=str(tmp_path), SILO_KEEP_DECISIONS="0")) == "measured 4 128"


@pytest.mark.parametrize(
    "change",
    [
        ("num_warps=8", "num_warps=2"),
        ("mask=i < n), mask=i < n)\n\n@triton.heuristics", "mask=i < n) + 1, mask=i < n)\n\n@triton.heuristics"),
        ("import torch", "import torch"),
    ],
    ids=["configs", "kernel", "nothing"],
)
def test_other_configs_and_another_kernel_are_measured(tmp_path, change):
    home = tmp_path / "home"
    store_after(TUNED + CALLS, home)
    before, after = change
    changed = TUNED.replace(before, after, 1)
    assert (changed != TUNED) == (before != after)
    expected = 4 if before != after else 0
    assert measured(program(changed + CALLS, SILO_HOME=str(home))).startswith(f"measured {expected} ")


def test_what_silo_tune_says(tmp_path):
    known, other = TUNED + CALLS, TUNED + CALLS.replace("256", "300")
    for mode in ("off", "cached"):  # nothing is kept yet
        assert measured(program(known, SILO_HOME=str(tmp_path), SILO_TUNE=mode)) == "measured 0 128"
    refused = program(
        TUNED
        + """
from silo.errors import FrozenError
with silo.accelerate():
    try:
        t[(1,)](x, z, 100)
    except FrozenError as error:
        print(error)
    assert not measured
""",
        SILO_HOME=str(tmp_path),
        SILO_TUNE="frozen",
    )
    assert "t: tuning is frozen (SILO_TUNE=frozen), and the store says nothing of n=100" in refused
    # The second config is the faster one for the processes that follow.
    slow = known.replace("return [len(measured) * 1.0] * 3", "return [-len(measured) * 1.0] * 3")
    assert measured(program(slow, SILO_HOME=str(tmp_path))) == "measured 4 256"
    for mode, expected in (("auto", "256"), ("cached", "256"), ("frozen", "256"), ("leader", "256"), ("off", "128")):
        assert measured(program(known, SILO_HOME=str(tmp_path), SILO_TUNE=mode)) == f"measured 0 {expected}"
    for mode in ("cached", "frozen"):
        said = program(other, SILO_HOME=str(tmp_path), SILO_TUNE=mode)
        assert measured(said) == "measured 0 256"
        assert "as nothing was for n=300" in said


def test_a_lock_file_comes_before_the_store(tmp_path):
    """The lock is written from a recording, which takes over what the store has decided."""
    home = str(tmp_path / "home")
    slow = TUNED.replace("return [len(measured) * 1.0] * 3", "return [-len(measured) * 1.0] * 3")
    recorded = """
from silo.kinds.triton.programs.records.capture_activation import recording
from silo.kinds.triton.programs.records.decision_sources import write_lock
import sys
with recording(sys.argv[0] + ".silo"):
    with silo.accelerate():
        t[(1,)](x, z, 100)
        t[(1,)](x, z, 256)
write_lock(__import__("pathlib").Path(sys.argv[0] + ".silo"), __import__("pathlib").Path(LOCK))
""".replace("LOCK", repr(str(tmp_path / "lock.json")))
    program(slow + recorded, SILO_HOME=str(tmp_path / "other"))
    assert measured(store_after(TUNED + CALLS, home)) == "measured 4 128"
    assert measured(program(TUNED + CALLS, SILO_HOME=home)) == "measured 0 128"
    said = program(TUNED + CALLS, SILO_HOME=home, SILO_LOCK=str(tmp_path / "lock.json"))
    assert measured(said) == "measured 0 256"
    # A kernel that neither has, in frozen mode: the lock's own error.
    refused = program(
        TUNED.replace("tl.store(out + i, ", "tl.store(out + i, 1 + ")
        + """
from silo.errors import FrozenError
with silo.accelerate():
    try:
        t[(1,)](x, z, 100)
    except FrozenError as error:
        print(error)
""",
        SILO_HOME=home,
        SILO_LOCK=str(tmp_path / "lock.json"),
        SILO_TUNE="frozen",
    )
    assert "lock.json says nothing of n=100" in refused


def test_a_recording_takes_what_the_store_decided(tmp_path):
    home, bundle = str(tmp_path / "home"), tmp_path / "K.silo"
    variables = {"SILO_HOME": home, "SILO_ACCELERATE": "1"}
    calls = CALLS.replace("with silo.accelerate():", "if True:")
    assert measured(program(TUNED + calls, **variables)) == "measured 4 128"
    assert measured(program(TUNED + calls, SILO_RECORD=str(bundle), **variables)) == "measured 0 128"
    served = {"SILO_HOME": str(tmp_path / "empty"), "SILO_ACCELERATE": "1"}
    assert measured(program(TUNED + calls, SILO_BUNDLE=str(bundle), SILO_FROZEN="1", **served)) == "measured 0 128"


def test_within_a_process_tuners_measure_as_in_triton(tmp_path):
    program(
        TUNED
        + """
from triton import knobs
other = triton.autotune(list(t.configs), key=["n"], do_bench=bench)(t.fn)
with silo.accelerate():
    t[(1,)](x, z, 100)
    other[(1,)](x, z, 100)  # an equal tuner of this process
    assert len(measured) == 4
    t.cache.clear()
    t[(1,)](x, z, 100)      # a program that wants to measure again
    assert len(measured) == 6
""",
        SILO_HOME=str(tmp_path),
    )
    program(
        TUNED
        + """
from triton import knobs
heard = []
with silo.accelerate():
    if hasattr(knobs.autotuning, "listener"):
        knobs.autotuning.listener = lambda **given: heard.append(given["cache_hit"])
        t[(1,)](x, z, 100)
        assert heard == [False] and len(measured) == 2
        knobs.autotuning.listener = None
        t.cache.clear(), measured.clear()
    else:
        t[(1,)](x, z, 100)
        assert not measured
        t.cache.clear()
    t[(1,)](x, z, 100)
    assert len(measured) == 2
""",
        SILO_HOME=str(tmp_path),
    )


def test_pruning_is_asked_once_a_search_and_decides_what_may_be_used(tmp_path):
    pruned = """
asked = []
def prune(configs, given, **more):
    asked.append(1)
    return configs[:KEEP]
t = triton.autotune(list(t.configs) + [triton.Config({"BLOCK": 512})], key=["n"], do_bench=bench,
                    prune_configs_by={"early_config_prune": prune})(t.fn)
with silo.accelerate():
    t[(1,)](x, z, 100)
    t[(1,)](x, z, 100)
assert len(asked) == 1, asked
print("measured", len(measured), t.best_config.kwargs["BLOCK"])
"""
    three, two, one = (TUNED + pruned.replace("KEEP", str(count)) for count in (3, 2, 1))
    assert measured(program(three, SILO_HOME=str(tmp_path))) == "measured 3 128"
    assert measured(program(three, SILO_HOME=str(tmp_path))) == "measured 0 128"
    assert measured(program(two, SILO_HOME=str(tmp_path))) == "measured 2 128"
    assert measured(program(one, SILO_HOME=str(tmp_path))) == "measured 0 128"


def test_a_tuner_that_no_config_suits_and_a_store_that_cannot_be_written(tmp_path):
    failing = """
@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"], do_bench=bench)
@triton.jit
def never(a, out, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 100)
with silo.accelerate():
    try:
        never[(1,)](x, z, 100)
    except Exception as error:
        print("measured", type(error).__name__)
"""
    first = program(TUNED + failing, SILO_HOME=str(tmp_path))
    assert measured(first) == measured(program(TUNED + failing, SILO_HOME=str(tmp_path)))
    assert not list(tmp_path.glob("records/triton-*"))
    blocked = tmp_path / "file"
    blocked.write_text("")
    said = program(TUNED + CALLS, SILO_HOME=str(blocked / "home"))
    assert measured(said) == "measured 4 128"


# -- processes that decide at once ------------------------------------------------------------------------------------

RANKED = (
    TUNED.replace("return [len(measured) * 1.0] * 3", "return timed()")
    + """
import os, time
from pathlib import Path
meeting, rank, ranks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
def meet(name):
    Path(meeting, f"{name}-{rank}").touch()
    while len(list(meeting.glob(f"{name}-*"))) < ranks:
        time.sleep(0.005)
def timed():
    # Every other process finds another config to be the fastest: what differs is noise.
    number = (len(measured) - 1) % 2
    if len(measured) % 2 == 0:
        meet(f"decides-{len(measured)}")  # both are about to decide
    return [1.0 + (number != rank % 2)] * 3
found = []
with silo.accelerate():
    for n in (100, 256, 500):
        t[(1,)](x, z, n)
        found.append(t.cache[next(reversed(t.cache))].kwargs["BLOCK"])
print("decided", found, len(measured))
"""
)


def commands(home, meeting, code, count, **more):
    """The words and the variables of each rank's process."""
    meeting.mkdir(exist_ok=True)
    file = meeting / "program.py"
    file.write_text(PROGRAM + code)
    for rank in range(count):
        given = triton_on_stub.environment(
            SILO_HOME=str(home),
            SILO_COMPILE_AHEAD="0",
            RANK=str(rank),
            WORLD_SIZE=str(count),
            TRITON_CACHE_DIR=str(meeting / "cache"),
            SILO_LOG="info",
            **more,
        )
        yield [sys.executable, str(file), str(meeting), str(rank), str(count)], given


def ran(*where):
    """Run some at once, to their ends: the exit status of each, and what it said."""

    def run(one):
        words, given = one
        options = {"capture_output": True, "text": True, "timeout": 240, "more": warm_python.TRITON}
        done = warm_python.run(words, env=given, **options)
        return done.returncode, done.stdout + done.stderr

    started = list(commands(*where))
    with ThreadPoolExecutor(len(started)) as threads:
        return tuple(zip(*threads.map(run, started), strict=True))


def decided(said):
    return next(line for line in said.splitlines() if line.startswith("decided"))


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.all)])
def test_processes_with_other_noise_that_decide_at_once_agree(tmp_path, count):
    codes, said = ran(tmp_path / "home", tmp_path / "first", RANKED, count)
    assert codes == (0,) * count, said
    assert len({decided(one) for one in said}) == 1, said
    assert decided(said[0]).endswith(" 6")
    assert sum(one.count("which another process decided on") for one in said) == 3 * (count - 1)
    # And so does every later process, which measures nothing.
    _, (later,) = ran(tmp_path / "home", tmp_path / "later", RANKED, 1)
    assert decided(later) == decided(said[0])[:-1] + "0"


def test_a_process_that_is_killed_while_it_measures_holds_nobody_up(tmp_path):
    dying = RANKED.replace(
        "    if len(measured) % 2 == 0:\n",
        "    if len(measured) == 1:\n        meet('measures')  # none can have decided\n"
        "        if rank == 1:\n            os.kill(os.getpid(), 9)\n    if 0:\n",
    )
    codes, said = ran(tmp_path / "home", tmp_path / "first", dying, 3)
    assert codes == (0, -9, 0), said
    assert decided(said[0])[:-1] == decided(said[2])[:-1]
    _, (later,) = ran(tmp_path / "home", tmp_path / "later", RANKED, 1)
    assert decided(later) == decided(said[0])[:-1] + "0"


FROZEN = (
    TUNED
    + """
import os, time
import torch.distributed as dist
@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"], do_bench=bench)
@triton.jit
def undecided(a, out, n, BLOCK: tl.constexpr):
    tl.store(out, n)
meeting, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=rank, world_size=ranks)
with silo.accelerate():
    t[(1,)](x, z, 100)
    dist.barrier()
    if rank == 1:
        print("asks", flush=True)
        try:
            undecided[(1,)](x, z, 100)
        finally:
            time.sleep(120)  # as a rank that waits for its peers before anybody sees its error
    dist.all_reduce(torch.ones(1))
"""
)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.all)])
def test_a_rank_that_would_measure_in_frozen_mode_says_so_at_once(tmp_path, count):
    home = tmp_path / "home"
    program(TUNED + "with silo.accelerate():\n    t[(1,)](x, z, 100)\n", SILO_HOME=str(home))
    running = [
        subprocess.Popen(words, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for words, given in commands(home, tmp_path / "ranks", FROZEN, count, SILO_TUNE="frozen")
    ]
    late = threading.Timer(100, running[1].kill)
    late.start()
    try:
        rank = running[1]
        assert rank.stdout is not None
        seen, asked = [], math.inf
        for line in rank.stdout:
            seen.append(line)
            asked = time.monotonic() if line == "asks\n" else asked
            if "goes no further" in line:
                break
        assert time.monotonic() - asked < 5, seen  # a second on a machine that has nothing else to do
        assert f"rank 1 of {count} goes no further: undecided: tuning is frozen (SILO_TUNE=frozen)" in seen[-1]
        assert rank.poll() is None
        rank.kill()  # and its peers end as well
        ended = [one.communicate(timeout=60)[0] for one in running]
        assert all("Connection" in text or "gloo" in text.lower() for place, text in enumerate(ended) if place != 1)
    finally:
        late.cancel()
        for one in running:
            one.kill()
            one.communicate()


def test_without_ranks_an_error_of_frozen_mode_is_raised_and_not_logged_too(tmp_path):
    code = (
        TUNED
        + """
with silo.accelerate():
    try:
        t[(1,)](x, z, 100)
    except silo.errors.FrozenError as error:
        print("raised", "t: tuning is frozen" in str(error))
"""
    )
    said = program(code, SILO_HOME=str(tmp_path), SILO_TUNE="frozen", RANK="0", WORLD_SIZE="1")
    assert "raised True" in said
    assert "goes no further" not in said
