import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo.tuner.statistics import Estimate, estimate, indistinguishable, median

SAMPLES = st.lists(st.integers(0, 10**9), min_size=1, max_size=80)


def test_median():
    assert median([3]) == 3
    assert median([4, 1]) == 2
    assert median([9, 1, 5]) == 5
    with pytest.raises(ValueError, match="no samples"):
        median([])


@pytest.mark.parametrize(("count", "dropped"), [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (12, 2), (15, 3), (60, 21)])
def test_interval_by_order_statistics(count, dropped):
    # The ranks of tables of the sign test, two-sided 5 %.
    time = estimate(range(count))
    assert (time.low_ns, time.high_ns) == (dropped, count - 1 - dropped)


@given(SAMPLES)
def test_interval_is_as_sure_as_it_says_and_as_narrow_as_can_be(samples):
    time = estimate(samples)
    count, ordered = len(samples), sorted(samples)
    assert time.samples == count
    assert time.low_ns <= time.median_ns <= time.high_ns
    # Recomputed with the tail taken from the other end: how many ranks may go before less than 95 % is covered.
    drop = 0
    while drop + 1 <= (count - 1) // 2:
        if sum(math.comb(count, k) for k in range(drop + 2, count - drop - 1)) / 2**count < 0.95:
            break
        drop += 1
    assert (time.low_ns, time.high_ns) == (ordered[drop], ordered[-1 - drop])


@given(SAMPLES, st.randoms(use_true_random=False))
def test_order_of_samples_does_not_matter(samples, random):
    shuffled = samples[:]
    random.shuffle(shuffled)
    assert estimate(shuffled) == estimate(samples)


def test_indistinguishable():
    best = Estimate(1000, 990, 1010, 20)
    assert indistinguishable(best, best)
    assert indistinguishable(best, Estimate(1001, 1001, 1001, 20))  # below resolution
    assert indistinguishable(best, Estimate(1009, 1005, 1015, 20))  # overlapping
    assert not indistinguishable(best, Estimate(1009, 1011, 1015, 20))  # apart
    assert not indistinguishable(best, Estimate(1011, 500, 2000, 20))  # noise is not an excuse beyond 1 %
    assert not indistinguishable(Estimate(1000, 1000, 1000, 9), Estimate(1002, 1002, 1002, 9))


def test_noise_is_relative():
    assert Estimate(1000, 990, 1010, 20).noise_permille == 10
