"""Whose threads run launches: the comparison of the pool's with an OpenMP runtime's, over made-up times."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native" / "core"
FIRST = 15  # launches of the first round: the one that begins it, then seven on each side
ROUND = 14  # and of a later one
SETTLES = 20_000_000  # nanoseconds in which launches on the pool's threads tell nothing


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
    loaded.silo_cpu_pick_tell.argtypes = [ctypes.c_void_p, ctypes.c_bool, ctypes.c_uint64, ctypes.c_uint64]
    loaded.silo_cpu_pick_forget()
    return loaded


class Clock:
    """A clock of nanoseconds that only launches and ``apart`` between them move."""

    def __init__(self):
        self.now = 1

    def tick(self, nanoseconds):
        self.now += nanoseconds
        return self.now


CLOCK = Clock()


def launches(pick, kernel, count, own, team, programs=100, threads=(16, 16), apart=SETTLES):
    """Whether each of ``count`` launches ran on the runtime's threads; ``own`` and ``team``: times by turn.

    ``threads`` are how many the pool and the runtime may have; ``apart`` is the time from one launch to the next. The
    first launch of a round begins it, and is not one of its samples, however long the time since.
    """
    said = []
    for turn in range(count):
        known = pick.silo_cpu_pick_of(kernel, programs, *threads)
        there = pick.silo_cpu_pick_team(known)
        pick.silo_cpu_pick_tell(known, there, (team if there else own)(turn), CLOCK.tick(apart))
        said.append(there)
    return said


def always(time):
    return lambda turn: time


def test_the_runtime_is_picked_where_it_is_clearly_faster(pick):
    said = launches(pick, 0x1000, 100, always(1000), always(800))
    assert said[:FIRST] == [False] * 8 + [True] * 7
    assert all(said[FIRST:])


@pytest.mark.parametrize("team", [950, 1000, 1500])
def test_the_pool_stays_where_the_runtime_is_not_clearly_faster(pick, team):
    said = launches(pick, 0x2000 + 16 * team, 100, always(1000), always(team))
    assert not any(said[FIRST:])


def test_a_team_that_waits_for_a_busy_machine_is_given_up_early(pick):
    said = launches(pick, 0x3000, 100, always(1000), always(8_000_000))
    assert sum(said) == 3


def test_one_slow_launch_decides_nothing(pick):
    said = launches(pick, 0x4000, 100, always(1000), lambda turn: 4_000_000 if turn == 11 else 500)
    assert all(said[FIRST:])


def test_the_first_launch_of_each_side_does_not_count(pick):
    said = launches(pick, 0x5000, 100, lambda turn: 9_000_000 if turn == 0 else 1000, always(980))
    assert not any(said[FIRST:])


def test_they_are_compared_again_and_more_seldom_where_nothing_changed(pick):
    said = launches(pick, 0x6000, 4000, always(1000), always(2000))
    tried = [turn for turn, there in enumerate(said) if there and not said[turn - 1]]
    assert tried == [8, 8 + ROUND + 512, 8 + 2 * ROUND + 512 + 1024, 8 + 3 * ROUND + 512 + 1024 + 2048][: len(tried)]
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
    assert not any(launches(pick, 0x7600, 100, always(1000), always(1000), threads=threads)[FIRST:])
    later = launches(pick, 0x7600, 100, always(1000), always(500))
    assert later[:FIRST] == [False] * 8 + [True] * 7
    assert all(later[FIRST:])


def test_launches_that_are_slow_now_and_then_lead_to_none(pick):
    launches(pick, 0x7200, 100, always(1000), always(1000))
    assert not any(launches(pick, 0x7200, 400, lambda turn: 9000 if turn % 3 == 0 else 1000, always(1000)))


def test_a_slower_team_is_left_at_the_next_round(pick):
    launches(pick, 0x7300, 100, always(1000), always(500))
    later = launches(pick, 0x7300, 1000, always(1000), always(1400))
    assert later[0]
    assert not later[-1]


def test_the_pools_launches_count_when_the_runtimes_threads_are_off_the_cpus(pick):
    """They look for work for milliseconds after their last, which may have been before the round began."""
    own = lambda turn: 5000 if turn < 40 else 1000  # noqa: E731  # beside them, and alone
    said = launches(pick, 0x7700, 60, own, always(2000), apart=SETTLES // 40)
    assert said[:54] == [False] * 47 + [True] * 7
    assert not any(said[54:])


def test_launches_just_after_a_round_lead_to_no_other(pick):
    """The runtime's threads, which the round gave work, still look for more."""
    apart = SETTLES // 40
    launches(pick, 0x7800, FIRST, always(1000), always(1000))
    assert not any(launches(pick, 0x7800, 39, always(5000), always(1000), apart=apart))
    assert not any(launches(pick, 0x7800, 300, always(1000), always(1000), apart=apart))


def test_other_threads_that_stay_are_seen_after_a_while(pick):
    apart = SETTLES // 40
    launches(pick, 0x7900, FIRST, always(1000), always(1000))
    later = launches(pick, 0x7900, 200, always(5000), always(1000), apart=apart)
    assert not any(later[:88])  # 40 that tell nothing, eight slow ones, 40 that tell nothing
    assert all(later[105:])


def test_rounds_are_a_small_part_of_all_launches(pick):
    apart = SETTLES // 400
    said = launches(pick, 0x7A00, 8000, always(1000), always(500), apart=apart)
    ends = [turn for turn, there in enumerate(said[:-1]) if there and not said[turn + 1]]
    assert said[:400] == [False] * 400
    assert ends[0] >= 16 * 400
    assert sum(said) > 0.85 * len(said)


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
