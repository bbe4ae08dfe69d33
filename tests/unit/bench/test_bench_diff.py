"""The counts of ``bench.diff``, on made-up noise."""

import random

from bench.diff import PPM, Compared, Replay, replayed, report_of


def rows(equal, planted, seconds=1.0):
    made = [Compared(False, verdict, 1.0, 16, seconds) for verdict in equal]
    return made + [Compared(True, verdict, 1.02, 16, seconds) for verdict in planted]


def test_the_bars_are_about_both_sorts():
    good = report_of(rows(["same"] * 100, ["slower"] * 95 + ["undecided"] * 5))
    assert good.holds
    assert (good.false_part, good.found_part) == (0.0, 0.95)
    assert report_of(rows(["same"] * 99 + ["faster"], ["slower"] * 100)).holds
    assert not report_of(rows(["same"] * 98 + ["faster", "slower"], ["slower"] * 100)).holds
    assert not report_of(rows(["same"] * 100, ["slower"] * 94 + ["same"] * 6)).holds
    assert not report_of(rows(["same"], ["slower"], seconds=61)).holds
    assert not report_of([]).holds


def test_a_replay_goes_round_and_makes_one_side_slower():
    take = Replay([(100, 200), (300, 400)], 1, 0, PPM // 2)
    assert take(3) == ([450, 150, 450], [400, 200, 400])
    assert Replay([(100, 200)], 0, 1, 0)(1) == ([200], [100])


def test_noise_of_both_sides_alike_is_decided_rightly():
    draw = random.Random(5)
    levels = [draw.gauss(30_000, 300) for _ in range(4000)]
    series = [tuple(int(level + draw.gauss(0, 200)) for _ in range(2)) for level in levels]
    found = report_of(replayed(series, 40, 20_000, 60.0, seed=2))
    assert found.holds
    assert found.planted == {"slower": 40}
