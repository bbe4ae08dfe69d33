"""Whether a plan on the CPU runs in order or together: the decision over times that a made-up clock gives."""

import ctypes
import random
import shutil
import subprocess

import pytest

from core_native import NATIVE

IN_ORDER, TOGETHER = 0, 1
REASONS = ("one thread", "large", "measures", "again", "short", "near", "faster", "confirmed")
US = 1000
COMPARED = 8  # replays of a comparison


class Trial(ctypes.Structure):
    _fields_ = [
        ("least", ctypes.c_uint64 * 2),
        ("order", ctypes.c_uint64),
        ("tried", ctypes.c_uint32 * 2),
        ("left", ctypes.c_uint32),
        ("hold", ctypes.c_uint32),
        ("slow", ctypes.c_uint32),
        ("best", ctypes.c_uint8),
        ("settled", ctypes.c_uint8),
        ("reason", ctypes.c_uint8),
        ("counts", ctypes.c_bool),
    ]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    found = shutil.which("cc") or pytest.skip("needs a C compiler")
    built = tmp_path_factory.mktemp("trials") / "trials.so"
    source = [f"-I{NATIVE}", str(NATIVE / "cpu_plan_trial.c")]
    traps = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    subprocess.run([found, "-std=c11", "-shared", "-fPIC", *traps, *source, "-o", str(built)], check=True)
    loaded = ctypes.CDLL(str(built))
    loaded.silo_plan_trial_record.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
    loaded.silo_plan_trial_next.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_bool]
    return loaded


class Plan:
    """A plan whose replays take made-up times; ``ways`` has the way of each, ``spent`` their sum."""

    def __init__(self, library):
        self.library, self.trial = library, Trial()
        self.ways, self.spent = [], 0
        library.silo_plan_trial_init(ctypes.byref(self.trial))

    def run(self, count, in_order, together, *, threads=2, large=False):
        """Replays that take so many microseconds in order and together."""
        for _ in range(count):
            way = self.library.silo_plan_trial_next(ctypes.byref(self.trial), threads, large)
            took = int((together if way == TOGETHER else in_order) * US)
            self.library.silo_plan_trial_record(ctypes.byref(self.trial), way, took)
            self.ways.append(way)
            self.spent += took

    def settle(self, in_order, together):
        """Replays up to the middle of a hold."""
        while self.trial.hold != 1000 or not 300 < self.trial.left < 700:
            self.run(1, in_order, together)

    @property
    def reason(self):
        return REASONS[self.trial.reason]


@pytest.fixture
def plan(library):
    return Plan(library)


def test_both_ways_are_tried_by_turns_and_the_faster_one_is_kept(plan):
    plan.run(COMPARED, 100, 52)
    assert plan.ways == [IN_ORDER, TOGETHER] * 4
    assert plan.reason == "measures"
    plan.run(20, 100, 52)
    assert plan.ways[COMPARED:] == [TOGETHER] * 20
    assert plan.reason == "faster"
    assert plan.trial.order == 100 * US
    plan.settle(100, 52)
    plan.run(2000, 100, 52)
    assert plan.reason == "confirmed"
    assert plan.ways[-1] == TOGETHER
    slower = plan.ways[-2000:].count(IN_ORDER)
    assert slower <= 2 * 4  # a comparison in a thousand replays


def test_a_noisy_comparison_is_repeated_soon(plan):
    """The first comparison meets a busy machine: together takes longer than in order, clearly or by little."""
    for noisy in (101, 113, 300):
        one = Plan(plan.library)
        one.run(COMPARED, 100, noisy)
        one.run(1000, 100, 52)
        assert one.ways[COMPARED:].count(IN_ORDER) <= 64 + 2 * 4 * 4, noisy
        assert one.ways[-1] == TOGETHER
        assert one.spent / US < 1000 * 62


def test_every_noisy_comparison_costs_few_replays(plan):
    """One comparison in five meets noise of either way, for thousands of replays: the faster way runs mostly."""
    chance = random.Random(2)
    for _ in range(3000):
        noise = chance.random() < 0.2
        plan.run(4, 100 * (chance.uniform(1, 3) if noise else 1), 52 * (chance.uniform(1, 3) if noise else 1))
    assert plan.ways.count(TOGETHER) > 0.9 * len(plan.ways)


def test_ways_that_take_about_as_long_are_compared_again_soon_and_for_little(plan):
    plan.run(3000, 100, 97)
    assert plan.reason in {"near", "measures"}
    assert plan.trial.hold == 64
    assert plan.spent / US < 3000 * 97 * 1.01
    plan.run(200, 100, 50)
    plan.run(1000, 100, 50)
    assert plan.ways[-500:].count(IN_ORDER) <= 2 * 4


def test_replays_slower_than_the_other_way_had_been_end_the_hold(plan):
    plan.settle(100, 52)
    compared = len(plan.ways)
    plan.run(100, 100, 140)  # the machine has other work now
    assert plan.ways[compared:].count(TOGETHER) <= 8 + 62 + 4
    assert plan.ways[-1] == IN_ORDER
    plan.run(30, 100, 140)
    assert plan.ways[-30:].count(TOGETHER) <= 4
    one = Plan(plan.library)
    one.settle(100, 52)
    one.run(8, 100, 140)
    assert one.reason == "again"


def test_replays_that_all_became_longer_are_compared_a_few_times_only(plan):
    """Larger arguments: both ways take longer than they had, which ends a hold once."""
    plan.settle(100, 52)
    before = len(plan.ways)
    plan.run(3000, 1000, 520)
    assert plan.ways[before:].count(IN_ORDER) <= 5 * 4
    assert plan.ways[-1] == TOGETHER
    # Sizes that change all the time: the least time of the larger size is always slow for the smaller one's comparison.
    for turn in range(300):
        plan.run(30, *((1000, 520) if turn % 2 else (100, 52)))
    assert plan.ways[-9000:].count(IN_ORDER) < 0.12 * 9000


def test_short_replays_stay_in_order_until_they_are_long(plan):
    plan.run(3000, 2, 9)
    assert plan.ways.count(TOGETHER) == 0
    assert plan.reason == "short"
    plan.run(200, 100, 52)
    assert plan.ways[-50:] == [TOGETHER] * 50


def test_a_first_replay_that_is_slow_does_not_hide_that_they_are_short(plan):
    plan.run(1, 500, 9)
    plan.run(500, 2, 9)
    assert plan.ways.count(TOGETHER) <= 4
    assert plan.reason == "short"


def test_replays_that_no_comparison_is_about_do_not_count(plan):
    plan.run(100, 100, 52, threads=1)
    assert plan.reason == "one thread"
    plan.run(100, 100, 52, large=True)
    assert plan.reason == "large"
    assert set(plan.ways) == {IN_ORDER}
    plan.run(COMPARED, 100, 52)
    assert plan.ways[-COMPARED:] == [IN_ORDER, TOGETHER] * 4


def test_every_reason_has_a_sentence(library):
    texts = (ctypes.c_char_p * len(REASONS)).in_dll(library, "silo_plan_trial_texts")
    assert len({text for text in texts if text}) == len(REASONS)
