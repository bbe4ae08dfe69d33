"""Whose threads run launches: the choice over made-up facts, and the look at real threads of OpenMP."""

import ctypes
import ctypes.util
import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from core_native import NATIVE, compiler
from native_builds import ADDRESS, archive
from sanitized_program import build_sanitized, run_sanitized

HERE = Path(__file__).parent
KINDS = {"auto": 0, "own": 1, "openmp": 2}
MS = 1_000_000
S = 1000 * MS


class Facts(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int),
        ("needs_own", ctypes.c_bool),
        ("team", ctypes.c_int),
        ("threads", ctypes.c_int),
        ("cpus", ctypes.c_int),
        ("taken", ctypes.c_bool),
        ("awake", ctypes.c_bool),
        ("late", ctypes.c_bool),
        ("rests", ctypes.c_bool),
    ]


NANOSECONDS = ("since", "apart", "hold", "rests_from", "try_at", "away", "lost", "last")


class Stay(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in NANOSECONDS),
        ("late", ctypes.c_int),
        ("spread", ctypes.c_bool),
        ("vain", ctypes.c_bool),
    ]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    found = shutil.which("cc") or pytest.skip("needs a C compiler")
    built = tmp_path_factory.mktemp("pick") / "pick.so"
    source = [f"-I{NATIVE}", str(NATIVE / "cpu_pick.c")]
    subprocess.run([found, "-std=c11", "-shared", "-fPIC", *source, "-o", str(built)], check=True)
    loaded = ctypes.CDLL(str(built))
    loaded.silo_cpu_picks_team.restype = ctypes.c_bool
    loaded.silo_cpu_grain.restype = ctypes.c_uint64
    loaded.silo_cpu_grain.argtypes = [ctypes.c_int, ctypes.c_bool]
    loaded.silo_cpu_stay_rests.restype = ctypes.c_bool
    loaded.silo_cpu_stay_rests.argtypes = [ctypes.c_void_p, ctypes.c_bool, ctypes.c_uint64, ctypes.c_uint64]
    loaded.silo_cpu_stay_late.restype = ctypes.c_bool
    loaded.silo_cpu_stay_late.argtypes = [ctypes.c_void_p]
    loaded.silo_cpu_stay_tries.restype = ctypes.c_bool
    loaded.silo_cpu_stay_tries.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    loaded.silo_cpu_stay_record.restype = ctypes.c_bool
    loaded.silo_cpu_stay_record.argtypes = [ctypes.c_void_p, *[ctypes.c_uint64] * 3]
    loaded.silo_cpu_stay_spread.argtypes = [ctypes.c_void_p, ctypes.c_bool, *[ctypes.c_uint64] * 2]
    return loaded


def picked(library, setting="auto", **facts):
    """The reason's name, and whether a team runs the launch."""
    usual = {"team": 16, "threads": 16, "cpus": 16}
    reason = library.silo_cpu_pick(ctypes.byref(Facts(kind=KINDS[setting], **(usual | facts))))
    count = len(names := (ctypes.c_char_p * 12).in_dll(library, "silo_cpu_reason_names"))
    assert reason < count
    return names[reason].decode(), library.silo_cpu_picks_team(reason)


@pytest.mark.parametrize(
    ("setting", "facts", "reason"),
    [
        ("own", {"awake": True}, "own_asked"),
        ("auto", {"team": 0}, "own_alone"),
        ("openmp", {"team": 0}, "own_alone"),
        ("auto", {"needs_own": True, "awake": True}, "own_needed"),
        ("openmp", {"needs_own": True}, "own_needed"),
        ("openmp", {}, "team_asked"),
        ("openmp", {"team": 4}, "team_asked"),
        ("openmp", {"taken": True}, "own_taken"),
        ("auto", {"team": 1}, "own_no_team"),
        ("auto", {"cpus": 8, "awake": True}, "own_crowded"),
        ("auto", {}, "own_asleep"),
        ("auto", {"awake": True}, "team_awake"),
        ("auto", {"awake": True, "threads": 3}, "team_awake"),
        ("auto", {"awake": True, "team": 8}, "team_and_own"),
        ("auto", {"awake": True, "late": True}, "own_late"),
        ("auto", {"awake": True, "rests": True}, "own_rests"),
        ("auto", {"late": True, "rests": True}, "own_asleep"),
    ],
)
def test_the_choice_follows_from_the_facts(library, setting, facts, reason):
    assert picked(library, setting, **facts) == (reason, reason.startswith("team"))


def test_launches_beside_a_team_that_spins_have_few_threads(library):
    names = (ctypes.c_char_p * 12).in_dll(library, "silo_cpu_reason_names")
    few = {name.decode() for reason, name in enumerate(names) if library.silo_cpu_grain(reason, True) == 100_000}
    assert few == {"own_late", "own_rests"}
    own_asleep = list(names).index(b"own_asleep")
    assert [library.silo_cpu_grain(own_asleep, awake) for awake in (True, False)] == [2500, 12_000]


def rests(library, stay, until, *, awake=True, gap=MS // 2, begin=MS, step=MS):
    """When the team rests, of launches that come every ``step`` nanoseconds; ``awake`` may be a function."""
    said = []
    for now in range(begin, until, step):
        is_awake = awake(now, said) if callable(awake) else awake
        if library.silo_cpu_stay_rests(ctypes.byref(stay), is_awake, gap, now):
            said.append(now)
    return said


def test_a_team_that_launches_alone_keep_awake_is_left_after_a_second(library):
    """Its threads sleep while it rests, and then it is not awake any more."""
    asleep = lambda now, said: not said or now - said[0] < 5 * MS  # noqa: E731
    said = rests(library, Stay(), 10 * S, awake=asleep)
    assert len(said) == 5
    assert S < said[0] <= S + 2 * MS


def test_a_team_that_others_keep_awake_is_left_ever_more_seldom(library):
    said = rests(library, Stay(), 20 * S)
    begun = [now for before, now in zip([0, *said], said, strict=False) if now - before > 10 * MS]
    gaps = [later - before for before, later in itertools.pairwise(begun)]
    assert len(begun) == 4
    assert gaps == sorted(gaps)
    assert len(said) < 0.01 * 20 * S / MS


def test_launches_without_time_between_them_leave_a_team_soon(library):
    """No other call of this thread can have kept it awake."""
    asleep = lambda now, said: not said or now - said[0] < 40 * MS  # noqa: E731  # slow to sleep: a busy machine
    said = rests(library, Stay(), 10 * S, awake=asleep, gap=1000)
    assert len(said) == 40
    assert 100 * MS < said[0] <= 102 * MS


def test_a_team_that_never_sleeps_is_used_after_all(library):
    said = rests(library, Stay(), 60 * S, gap=1000)
    assert len(said) < 0.03 * 60 * S / MS


def spread(library, stay, now, *, apart=True, took=MS // 10):
    library.silo_cpu_stay_spread(ctypes.byref(stay), apart, took, now)


def tell(library, stay, took, worked, now, **spreading):
    """Whether the team was spread after that launch."""
    if wanted := library.silo_cpu_stay_record(ctypes.byref(stay), took, worked, now):
        spread(library, stay, now, **spreading)
    return wanted


def late(library, stay):
    return library.silo_cpu_stay_late(ctypes.byref(stay))


def tries(library, stay, now):
    return library.silo_cpu_stay_tries(ctypes.byref(stay), now)


def left(library, lost=8 * MS):
    """A team that three launches were late for at 0, although it was spread."""
    stay = Stay()
    for _ in range(3):
        assert not late(library, stay)
        tell(library, stay, lost + 10_000, 10_000, 0, apart=False)
    assert late(library, stay)
    return stay


def test_a_launch_that_lost_milliseconds_spreads_the_team_at_once(library):
    """Two threads of the team that share a CPU are moved apart, and the team is not left for it."""
    stay = Stay()
    for turn in range(20):
        assert tell(library, stay, 8 * MS, 10_000, MS * turn)
        assert not tell(library, stay, 20_000, 10_000, MS * turn)
        assert not late(library, stay)


def test_a_team_that_is_late_although_it_was_spread_is_left(library):
    """On a busy machine no CPU is free for a thread that wakes."""
    stay = Stay()
    assert [tell(library, stay, 8 * MS, 10_000, MS * turn) for turn in range(4)] == [True, False, False, False]
    assert late(library, stay)


def test_launches_that_lost_less_than_spreading_is_worth_do_not_spread_the_team(library):
    stay = Stay()
    assert not any(tell(library, stay, 600_000, 10_000, MS * turn) for turn in range(4))
    assert late(library, stay)


def test_a_team_that_was_left_is_tried_by_spreading_it(library):
    """Soon: launches beside its spinning threads take several times as long."""
    stay = left(library)
    assert not tries(library, stay, 3 * MS)
    assert tries(library, stay, 5 * MS)
    spread(library, stay, 5 * MS)
    assert not late(library, stay)
    assert not tries(library, stay, 9 * S)


@pytest.mark.parametrize(("apart", "took"), [(False, MS // 10), (True, 8 * MS)])
def test_a_try_that_fails_costs_a_twentieth_of_the_time_until_the_next(library, apart, took):
    stay = left(library)
    spread(library, stay, 5 * MS, apart=apart, took=took)
    assert late(library, stay)
    assert not tries(library, stay, 5 * MS + 19 * took)
    assert tries(library, stay, 5 * MS + 20 * took)


def test_a_launch_that_is_late_after_a_try_leaves_the_team_for_long(library):
    """Ever longer, until a launch is on time; then it is tried soon again."""
    stay, now, waits = left(library), 5 * MS, []
    for _ in range(4):
        spread(library, stay, now)
        tell(library, stay, 8 * MS, 10_000, now)
        waits.append(next(wait for wait in range(0, 9 * S, MS) if tries(library, stay, now + wait)) // MS)
        now += waits[-1] * MS
    assert waits == [250, 500, 1000, 2000]
    spread(library, stay, now)
    tell(library, stay, 20_000, 10_000, now)
    for _ in range(3):
        assert not late(library, stay)
        tell(library, stay, 8 * MS, 10_000, now, apart=False)
    assert tries(library, stay, now + 5 * MS)


def test_a_team_is_left_for_as_long_as_its_lateness_is_worth(library):
    """Launches of 10 us that lose a quarter of a millisecond leave it for milliseconds, not for seconds."""
    stay = left(library, MS // 4)
    spread(library, stay, 5 * MS)
    tell(library, stay, MS // 4 + 10_000, 10_000, 5 * MS)
    assert not tries(library, stay, (5 + 21) * MS)
    assert tries(library, stay, (5 + 23) * MS)  # 4 launches and one try, twenty times


def test_the_launches_that_find_a_late_team_cost_little(library):
    """Over ten seconds in which it is late each time although it can be spread, and after them it is on time."""
    for lost in (MS // 4, MS, 4 * MS):
        stay, now, tried = Stay(), 0, 0
        while now < 10 * S:
            if tries(library, stay, now):
                spread(library, stay, now)
            if not late(library, stay):
                tell(library, stay, lost + 10_000, 10_000, now)
                tried += 1
            now += MS // 10
        assert tried > 3  # it is looked at again
        assert tried * (lost + MS // 10) <= 10 * S / 20
        assert tries(library, stay, now + 400 * lost + 40 * MS)


def test_a_launch_that_lost_years_overflows_nothing(library):
    stay = left(library, 2**63)
    spread(library, stay, 5 * MS)
    tell(library, stay, 2**63, 0, 5 * MS)
    assert not tries(library, stay, 200 * MS)
    assert tries(library, stay, 300 * MS)


def test_a_long_launch_is_not_a_late_one(library):
    stay = Stay()
    for turn in range(100):
        tell(library, stay, 20 * MS, 19 * MS, MS * turn)
        tell(library, stay, MS // 5, MS // 100, MS * turn)
    assert not late(library, stay)


def test_single_late_launches_do_not_count(library):
    stay = Stay()
    for turn in range(100):
        tell(library, stay, 20 * MS if turn % 2 else MS, MS, MS * turn, apart=False)
    assert not late(library, stay)


# Each case of watch_check.c, and how long idle threads of the runtime spin in it.
CASES = {
    "spinning": "active",
    "asleep": "passive",
    "never_used": "active",
    "another_thread": "active",
    "fewer_threads": "active",
    "spread": "active",
    "on_one_cpu": "passive",
    "launches": "active",
    "launches_asleep": "passive",
    "forked": "active",
}


@pytest.fixture(scope="module")
def watch_check(tmp_path_factory):
    if ctypes.util.find_library("gomp") is None:
        pytest.skip("needs libgomp")
    words = (*ADDRESS, f"-I{NATIVE}", HERE / "watch_check.c", archive(ADDRESS), "-fopenmp", "-ldl", "-lm", "-pthread")
    return build_sanitized(tmp_path_factory.mktemp("watch") / "check", compiler("gcc"), *words)


@pytest.mark.parametrize("case", CASES)
def test_whether_the_threads_of_a_team_are_awake(watch_check, case, monkeypatch):
    needed = 3 if case == "fewer_threads" else 1 if case in ("asleep", "on_one_cpu") else 2
    if len(os.sched_getaffinity(0)) < needed:
        pytest.skip(f"needs {needed} CPUs, or a team's threads cannot all be awake")
    monkeypatch.setenv("OMP_WAIT_POLICY", CASES[case])
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert run_sanitized(watch_check, case) == "done\n"
