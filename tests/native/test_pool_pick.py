"""Whose threads run launches: the comparison of the pool's with an OpenMP runtime's, over made-up times."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native" / "core"
ROUND = 14  # seven launches on each side


@pytest.fixture(scope="module")
def pick(tmp_path_factory):
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("pick") / "pick.so"
    source = [f"-I{NATIVE}", str(NATIVE / "cpu_pick.c")]
    subprocess.run([compiler, "-std=c11", "-shared", "-fPIC", *source, "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.silo_cpu_pick_of.restype = ctypes.c_void_p
    loaded.silo_cpu_pick_of.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_int]
    loaded.silo_cpu_pick_team.restype = ctypes.c_bool
    loaded.silo_cpu_pick_team.argtypes = [ctypes.c_void_p]
    loaded.silo_cpu_pick_tell.argtypes = [ctypes.c_void_p, ctypes.c_bool, ctypes.c_uint64]
    loaded.silo_cpu_pick_forget()
    return loaded


def launches(pick, kernel, count, own, team, programs=100, threads=(16, 16)):
    """Whether each of ``count`` launches ran on the runtime's threads; ``own`` and ``team``: times by turn.

    ``threads`` are how many the pool and the runtime may have.
    """
    said = []
    for turn in range(count):
        known = pick.silo_cpu_pick_of(kernel, programs, *threads)
        there = pick.silo_cpu_pick_team(known)
        pick.silo_cpu_pick_tell(known, there, (team if there else own)(turn))
        said.append(there)
    return said


def always(time):
    return lambda turn: time


def test_the_runtime_is_picked_where_it_is_clearly_faster(pick):
    said = launches(pick, 0x1000, 100, always(1000), always(800))
    assert said[:ROUND] == [False] * 7 + [True] * 7
    assert all(said[ROUND:])


@pytest.mark.parametrize("team", [950, 1000, 1500])
def test_the_pool_stays_where_the_runtime_is_not_clearly_faster(pick, team):
    said = launches(pick, 0x2000 + 16 * team, 100, always(1000), always(team))
    assert not any(said[ROUND:])


def test_a_team_that_waits_for_a_busy_machine_is_given_up_early(pick):
    said = launches(pick, 0x3000, 100, always(1000), always(8_000_000))
    assert sum(said) == 3


def test_one_slow_launch_decides_nothing(pick):
    said = launches(pick, 0x4000, 100, always(1000), lambda turn: 4_000_000 if turn == 10 else 500)
    assert all(said[ROUND:])


def test_the_first_launch_of_each_side_does_not_count(pick):
    said = launches(pick, 0x5000, 100, lambda turn: 9_000_000 if turn == 0 else 1000, always(980))
    assert not any(said[ROUND:])


def test_they_are_compared_again_and_more_seldom_where_nothing_changed(pick):
    said = launches(pick, 0x6000, 4000, always(1000), always(2000))
    tried = [turn for turn, there in enumerate(said) if there and not said[turn - 1]]
    assert tried == [7, 7 + ROUND + 512, 7 + 2 * ROUND + 512 + 1024, 7 + 3 * ROUND + 512 + 1024 + 2048][: len(tried)]
    assert len(tried) >= 3


def test_a_team_on_a_machine_that_becomes_busy_is_left_at_once(pick):
    launches(pick, 0x7000, 100, always(1000), always(500))
    later = launches(pick, 0x7000, 400, always(1000), always(8_000_000))
    assert later[:4] == [True, True, True, False]
    assert sum(later) == 3


def test_other_threads_that_come_lead_to_another_comparison(pick):
    launches(pick, 0x7100, 100, always(1000), always(1000))
    later = launches(pick, 0x7100, 100, always(5000), always(1000))
    assert not any(later[:8])
    assert all(later[40:])


def test_launches_that_take_half_as_long_again_lead_to_another_comparison(pick):
    launches(pick, 0x7500, 100, always(1000), always(1100))
    later = launches(pick, 0x7500, 100, always(1800), always(1100))
    assert not any(later[:8])
    assert all(later[40:])


@pytest.mark.parametrize("threads", [(8, 16), (16, 8), (8, 8)])
def test_what_was_found_with_other_numbers_of_threads_is_forgotten(pick, threads):
    assert not any(launches(pick, 0x7600, 100, always(1000), always(1000), threads=threads)[ROUND:])
    later = launches(pick, 0x7600, 100, always(1000), always(500))
    assert later[:ROUND] == [False] * 7 + [True] * 7
    assert all(later[ROUND:])


def test_launches_that_are_slow_now_and_then_lead_to_none(pick):
    launches(pick, 0x7200, 100, always(1000), always(1000))
    assert not any(launches(pick, 0x7200, 400, lambda turn: 9000 if turn % 3 == 0 else 1000, always(1000)))


def test_a_slower_team_is_left_at_the_next_round(pick):
    launches(pick, 0x7300, 100, always(1000), always(500))
    later = launches(pick, 0x7300, 1000, always(1000), always(1400))
    assert later[0]
    assert not later[-1]


def test_kernels_and_sizes_are_apart(pick):
    launches(pick, 0x8000, 50, always(1000), always(500), programs=1000)
    assert launches(pick, 0x8000, 1, always(1000), always(500), programs=1000) == [True]
    assert launches(pick, 0x8000, 1, always(1000), always(500), programs=10) == [False]
    assert launches(pick, 0x8010, 1, always(1000), always(500), programs=1000) == [False]


def test_what_is_counted(pick):
    pick.silo_cpu_pick_forget()
    own, team = ctypes.c_int(), ctypes.c_int()
    launches(pick, 0x9000, 50, always(1000), always(500))
    launches(pick, 0x9100, 50, always(1000), always(2000))
    launches(pick, 0x9200, 5, always(1000), always(2000))
    pick.silo_cpu_pick_count(ctypes.byref(own), ctypes.byref(team))
    assert (own.value, team.value) == (1, 1)
