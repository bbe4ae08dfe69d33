"""What the doctor says of the threads of the CPU."""

import pytest

from silo.launch import native
from silo.launch.cpu_pool import REASONS, describe, explain

STATE = {
    "threads": 16,
    "affinity": 16,
    "quota": 0,
    "runtimes": "one",
    "runtime": "/usr/lib/libgomp.so.1",
    "team": 16,
    "spin": 50,
    "picks": {"own_asleep": 3, "team_awake": 5, "own_late": 0},
}


@pytest.mark.parametrize(
    ("setting", "state", "words"),
    [
        ("own", {}, "Silo's own, 16 at most"),
        ("auto", {}, "5 on the runtime's, whose threads were on the CPUs, 3 on Silo's own, while"),
        ("openmp", {}, "16 of /usr/lib/libgomp.so.1 (SILO_POOL=openmp)"),
        ("auto", {"runtimes": "none"}, "no OpenMP runtime is loaded"),
        ("auto", {"runtimes": "several"}, "several OpenMP runtimes are loaded"),
        ("openmp", {"team": 0}, "this process was forked from one that had loaded /usr/lib/libgomp.so.1"),
        ("own", {"quota": 4}, "4 by the control group's quota"),
    ],
)
def test_whose_threads_and_why(setting, state, words):
    assert words in explain(setting, STATE | state)


def test_each_reason_of_the_native_module_has_words():
    assert list(native.cpu_state()["picks"]) == list(REASONS)


def test_of_this_process():
    assert "at most" in describe()
