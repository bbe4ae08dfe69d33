"""Schedules: what a file may say, which task comes next, several runs at once, and a run that was killed."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from silo.commands.tune_cases import run_schedule, schedule_rows
from silo.errors import TuneError
from silo.settings import override
from silo.tuning.schedules import (
    History,
    Schedule,
    ScheduledDevice,
    ScheduledKernels,
    ScheduleState,
    Task,
    Turn,
    choose_task,
    read_schedule,
)
from silo.tuning.store_query import query

KILLS = int(os.environ.get("SILO_TEST_KILLS", "3"))
CPU = ScheduledDevice("cpu", "cpu")
A, B, C = (Task(Path("k.py"), "k", f"n={number}", CPU) for number in range(3))

KERNELS = """
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": [64, 256, 1024]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def third(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 3.0, mask=i < n)


@third.cases(n=[3000, 70000])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 3})
"""


def written(tmp_path, text):
    (tmp_path / "nightly.toml").write_text(text)
    return tmp_path / "nightly.toml"


def turns(*best, stopped="seconds", seconds=10.0):
    return History(tuple(Turn(seconds, 5, one, stopped) for one in best))


# ---- the file ----


def test_a_schedule_is_read(tmp_path):
    path = written(
        tmp_path,
        """
        budget_s = 3600
        turn_s = 30
        patience = 3
        [[kernels]]
        file = "k.py"
        names = ["add"]
        cases = ["n=1*"]
        weight = 2.5
        [[devices]]
        device = "cuda"
        [[devices]]
        name = "gpu7"
        agents = ["ssh gpu7 silo agent --device cuda:0", "ssh gpu7 silo agent --device cuda:1"]
        [[devices]]
        ray = "auto"
        gpus = 8
        """,
    )
    found = read_schedule(path)
    assert (found.budget_s, found.turn_s, found.patience) == (3600, 30, 3)
    assert found.kernels == (ScheduledKernels(tmp_path / "k.py", ("add",), ("n=1*",), 2.5),)
    assert found.kernels[0].takes("n=1024")
    assert not found.kernels[0].takes("n=2048")
    assert [device.name for device in found.devices] == ["cuda", "gpu7", "auto"]
    assert found.state == tmp_path / "nightly.state"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("budget_s = 5", r"names no kernels: add a table \[\[kernels\]\]"),
        ("budget_s = -1\n[[kernels]]\nfile = 'k.py'", "budget_s is a number above 0, not -1"),
        ("turns = 5\n[[kernels]]\nfile = 'k.py'", "the schedule has no member 'turns'"),
        ("[[kernels]]\nnames = ['a']", "needs file"),
        ("[[kernels]]\nfile = 'k.py'\ncases = 'n=5'", "cases is a list of texts"),
        ("[[kernels]]\nfile = 'k.py'\n[[devices]]\ndevice = 'cpu'\nray = 'auto'", "device and ray"),
        ("[[kernels]]\nfile = 'k.py'\n[[devices]]\ngpus = 3", "name the cluster with ray"),
        ("[[kernels]]\nfile = 'k.py'\n[[devices]]\ndevice = 'cpu'\n[[devices]]\ndevice = 'cpu'", "two devices"),
        ("[kernels]\nfile = 'k.py'", "list of tables"),
        ("what", "not TOML"),
        ("patience = 0\n[[kernels]]\nfile = 'k.py'", "whole number from 1"),
    ],
)
def test_a_wrong_schedule_names_its_fault(tmp_path, text, message):
    with pytest.raises(TuneError, match=message):
        read_schedule(written(tmp_path, text))
    with pytest.raises(TuneError, match="cannot be read"):
        read_schedule(tmp_path / "absent.toml")


# ---- what comes next ----


def test_new_tasks_come_first_the_heaviest_first():
    heavy = Task(Path("k.py"), "heavy", "", CPU, 5.0)
    assert choose_task([A, heavy, B], {}, 2) == heavy
    assert choose_task([A, B], {A.key: turns(100)}, 2) == B


def test_the_task_that_gains_most_goes_on():
    histories = {A.key: turns(100, 99), B.key: turns(100, 60), C.key: turns(100, 100)}
    assert choose_task([A, B, C], histories, 2) == B
    histories[B.key] = turns(100, 60, 60, 60)
    assert choose_task([A, B, C], histories, 2) == C, "B is settled; A gained little, and C has not been tried often"


def test_time_and_weight_count():
    histories = {A.key: turns(100, 90, seconds=100), B.key: turns(100, 90, seconds=10)}
    assert choose_task([A, B], histories, 2) == B
    heavy = Task(A.file, A.kernel, A.case, CPU, 100.0)
    assert choose_task([heavy, B], histories, 2) == heavy


def test_done_tasks_do_not_come_and_failed_ones_come_another_time():
    done = {
        A.key: turns(100, stopped="complete"),
        B.key: turns(100, 100, 100),
        C.key: History((Turn(1, 0, None, "failed"),)),
    }
    assert choose_task([A, B], done, 2) is None
    assert choose_task([A, B, C], done, 2) == C
    assert choose_task([A, B, C], done, 2, {C.key}) is None
    assert [done[task.key].state(2) for task in (A, B, C)] == ["complete", "settled", "failed"]


def test_gains_are_counted_from_the_best_so_far():
    assert turns(100, 120, 90).gains == (0.0, pytest.approx(0.1))
    assert turns(None, 100, None, 50).gains == (0.0, pytest.approx(0.5))
    assert turns(100, 100, 99.9).idle == 2


# ---- the state ----


def schedule(tmp_path):
    return Schedule(tmp_path / "s.toml", (), ())


def test_two_runs_share_the_tasks(tmp_path):
    first, second = ScheduleState(schedule(tmp_path)), ScheduleState(schedule(tmp_path))
    one, two = first.claim([A, B], 2), second.claim([A, B], 2)
    assert {one[0], two[0]} == {A, B}
    assert first.claim([A, B], 2) is None
    first.end(one[1], one[0], Turn(5, 3, 100, "complete"))
    assert second.histories()[A.key].state(2) == "complete"
    assert second.histories()[B.key].state(2) == "claimed"


def test_a_claim_of_a_killed_run_is_free_again(tmp_path):
    code = (
        "import sys, os\nfrom pathlib import Path\nfrom silo.tuning.schedules import *\n"
        f"s = ScheduleState(Schedule(Path({str(tmp_path / 's.toml')!r}), (), ()))\n"
        "s.claim([Task(Path('k.py'), 'k', 'n=0', ScheduledDevice('cpu', 'cpu'))], 2)\nos.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    state = ScheduleState(schedule(tmp_path))
    assert state.histories().get(A.key, History()).state(2) == "new"
    assert state.claim([A], 2)[0] == A


def test_damaged_lines_of_the_state_are_skipped(tmp_path):
    state = ScheduleState(schedule(tmp_path))
    claimed = state.claim([A], 2)
    assert claimed is not None
    task, claim = claimed
    state.end(claim, task, Turn(1.5, 3, 100, "seconds"))
    with (tmp_path / "s.state" / "turns.jsonl").open("ab") as file:
        file.write(b"torn")
    assert state.histories()[A.key].turns == (Turn(1.5, 3, 100, "seconds", state.histories()[A.key].turns[0].ended_s),)


# ---- runs ----

needs_triton = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import triton"], capture_output=True, check=False).returncode != 0,
    reason="it compiles a Triton kernel",
)


def no_fleet(_device, _stack):
    return None


@needs_triton
def test_a_run_tunes_every_size_and_the_next_one_finds_nothing_left(tmp_path):
    (tmp_path / "k.py").write_text(KERNELS)
    path = written(tmp_path, "turn_s = 60\n[[kernels]]\nfile = 'k.py'\n[[devices]]\ndevice = 'cpu'")
    with override(home=str(tmp_path / "home")):
        assert [row.state for row in schedule_rows(path)] == ["new", "new"]
        found = run_schedule(path, no_fleet)
        assert found.stopped == "done"
        assert [(row.case, row.state) for row in found.rows] == [("n=3000", "complete"), ("n=70000", "complete")]
        assert all(row.best_ns and row.turns_now == 1 for row in found.rows)
        again = run_schedule(path, no_fleet)
        assert [row.turns_now for row in again.rows] == [0, 0]


@needs_triton
def test_a_case_at_fault_is_reported_and_the_others_go_on(tmp_path):
    wrong = KERNELS.replace("lambda: x.host * 3}", "lambda: x.host * (3 if n == 3000 else 4)}")
    (tmp_path / "k.py").write_text(wrong)
    path = written(tmp_path, "turn_s = 60\n[[kernels]]\nfile = 'k.py'\n[[devices]]\ndevice = 'cpu'")
    with override(home=str(tmp_path / "home")):
        found = run_schedule(path, no_fleet)
    assert [row.state for row in found.rows] == ["complete", "failed"]
    assert found.rows[1].message
    assert len(found.failures) == 1
    assert "third n=70000" in found.failures[0]


@needs_triton
def test_a_schedule_of_agents_ends_well_under_kills(tmp_path):
    (tmp_path / "k.py").write_text(KERNELS)
    agent = f'"{sys.executable} -m silo agent --device cpu"'
    text = f"turn_s = 60\n[[kernels]]\nfile = 'k.py'\n[[devices]]\nname = 'four'\nagents = [{', '.join([agent] * 4)}]"
    path = written(tmp_path, text)
    environment = {**os.environ, "SILO_HOME": str(tmp_path / "home")}
    rng, kills, begun = random.Random(7), 0, time.monotonic()
    while time.monotonic() - begun < 280:
        run = subprocess.Popen(
            [sys.executable, "-m", "silo", "tune", "--schedule", str(path), "--quiet"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        while run.poll() is None and kills < KILLS:
            time.sleep(rng.uniform(0.2, 2))
            if run.poll() is None:
                children = _children(run.pid)
                # an agent, or the run itself
                victim = rng.choice([*children, run.pid]) if children else run.pid
                kills += 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
        error = run.communicate(timeout=280)[1]
        if run.returncode == 0:
            break
        assert kills, error
    with override(home=str(tmp_path / "home")):
        rows = schedule_rows(path)
        decided = query(tmp_path / "home", frame="rows")
    assert [row.state for row in rows] == ["complete", "complete"]
    assert kills >= 1  # a quick run ends before the others
    # No config is lost, and none is blamed for a kill.
    assert [(row.configs, row.failed, row.winner is None) for row in decided] == [(3, 0, False)] * 2


def _children(process):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == process and b"agent" in words:
                found.append(int(entry.name))
    return found
