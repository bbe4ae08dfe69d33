"""What the doctor says of the threads of the CPU."""

import pytest

from silo.launch.cpu_pool import describe, explain

STATE = {
    "threads": 16,
    "affinity": 16,
    "quota": 0,
    "runtimes": "one",
    "runtime": "/usr/lib/libgomp.so.1",
    "team": 16,
    "spin": 50,
    "own_faster": 3,
    "team_faster": 2,
}


@pytest.mark.parametrize(
    ("setting", "state", "words"),
    [
        ("own", {}, "Silo's own, 16 at most"),
        ("auto", {}, "2 of 5 compared so far"),
        ("openmp", {}, "16 of /usr/lib/libgomp.so.1 (SILO_POOL=openmp)"),
        ("auto", {"runtimes": "none"}, "no OpenMP runtime is loaded"),
        ("auto", {"runtimes": "several"}, "several OpenMP runtimes are loaded"),
        ("openmp", {"team": 0}, "this process was forked from one that had loaded /usr/lib/libgomp.so.1"),
        ("own", {"quota": 4}, "4 by the control group's quota"),
    ],
)
def test_whose_threads_and_why(setting, state, words):
    assert words in explain(setting, STATE | state)


def test_of_this_process():
    assert "at most" in describe()
