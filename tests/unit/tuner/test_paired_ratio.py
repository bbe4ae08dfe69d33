"""Comparisons of two times: on machines with noise and drift, equal ones are never told apart, and 2 % are found."""

import random

import pytest

from silo.tuner.measure import Contender, MeasurePolicy, Speed, compare_times, judge_ratio

POLICY = MeasurePolicy("a machine of a test/1", warmup_ns=20_000, window_ns=20_000)
MARGIN = 10_000  # 1 %: half of the 2 % that have to be found


class Machine:
    """A machine with a clock whose speed drifts and on which other work runs; a launch returns its true nanoseconds.

    Implements :class:`silo.core.protocols.Timer`.
    """

    def __init__(self, seed, noise=0.02, bursts=0.1):
        self.random, self.noise, self.bursts = random.Random(seed), noise, bursts
        self.level = 1.0
        self.now = 0.0

    def elapsed_ns(self, launch, repeats):
        self.level = min(max(self.level * (1 + self.random.gauss(0, 0.004)), 0.7), 1.6)
        taken = launch() * repeats * self.level * (1 + abs(self.random.gauss(0, self.noise)))
        if self.random.random() < self.bursts:
            taken *= 1 + self.random.expovariate(1.0)
        self.now += taken / 1e9
        return int(taken)


def compared(seed, old_ns, new_ns, limit_s=60.0, **machine):
    timer = Machine(seed, **machine)
    old, new = Contender(lambda: old_ns), Contender(lambda: new_ns)
    return compare_times(new, old, timer, POLICY, MARGIN, limit_s, clock=lambda: timer.now)


@pytest.mark.parametrize("noise", [0.02, 0.06])
def test_equal_times_are_hardly_ever_told_apart(noise):
    found = [compared(seed, 30_000, 30_000, noise=noise).speed for seed in range(200)]
    assert sum(one in (Speed.SLOWER, Speed.FASTER) for one in found) <= 2


@pytest.mark.parametrize("noise", [0.02, 0.06])
def test_a_slow_down_of_two_percent_is_found(noise):
    found = [compared(seed, 30_000, 30_600, noise=noise).speed for seed in range(100)]
    assert found.count(Speed.SLOWER) >= 95


def test_a_gain_is_found_and_named():
    found = compared(1, 30_000, 20_000)
    assert found.speed is Speed.FASTER
    assert found.low_ppm < 666_667 < found.high_ppm
    assert found.new_ns < found.old_ns


def test_a_difference_at_the_margin_stays_undecided_and_ends():
    timer = Machine(3)
    old, new = Contender(lambda: 30_000), Contender(lambda: 30_300)
    found = compare_times(new, old, timer, POLICY, MARGIN, 0.05, clock=lambda: timer.now)
    assert found.speed is Speed.UNDECIDED
    assert found.low_ppm < 1_010_000 < found.high_ppm
    assert timer.now < 1


def test_arguments_are_put_back_before_each_sample():
    state = {"changed": False, "resets": 0}

    def launch():
        assert not state["changed"]
        state["changed"] = True
        return 30_000

    def reset():
        state.update(changed=False, resets=state["resets"] + 1)

    found = compare_times(Contender(launch, reset), Contender(lambda: 30_000), Machine(1), POLICY, MARGIN, 60.0)
    assert state["resets"] > found.rounds


@pytest.mark.parametrize(("new", "old"), [([], []), ([1], [1, 2])])
def test_samples_that_are_no_pairs_are_refused(new, old):
    with pytest.raises(ValueError, match="no pairs"):
        judge_ratio(new, old, MARGIN)
