"""What the tuning benchmark makes of its samples."""

import json

import pytest

from bench.tune import command as bench

FAST, SLOW = {"BLOCK": 64, "num_warps": 4}, {"BLOCK": 32, "num_warps": 4}


def results(*, silo=3.0, winner=FAST, one=10.0, agents=10.0, count=2):
    """Triton's cold seconds are 10; the fast config takes 1000 ns and the slow one 1020."""

    def calls(seconds, chosen):
        return [{"seconds": seconds, "winner": chosen}] * 3

    return {
        "calls": {"silo cold": calls(silo, winner), "silo again": calls(0.1, winner), "triton cold": calls(10.0, SLOW)},
        "compared": {
            "medians_ns": {json.dumps(FAST, sort_keys=True): 1000, json.dumps(SLOW, sort_keys=True): 1020, "torch": 900}
        },
        "devices": {"count": count, "one_s": one, "all_s": 6.0, "agents_one_s": agents, "agents_all_s": 6.0},
    }


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ({}, [True, True, True, True]),
        ({"silo": 3.4}, [False, True, True, True]),
        ({"winner": SLOW}, [True, False, True, True]),
        ({"one": 7.0}, [True, True, False, True]),
        ({"agents": 7.0}, [True, True, True, False]),
        ({"count": 4}, [True, True, False, False]),
    ],
)
def test_bars(changes, passed):
    assert [bar.passed for bar in bench.bars_of(results(**changes))] == passed


def test_one_device_is_no_bar_where_it_was_not_measured():
    made = results()
    del made["devices"]
    assert len(bench.bars_of(made)) == 2


def test_the_text_names_what_each_side_chose():
    text = bench.show(results(winner=SLOW))
    assert "silo    chose {'BLOCK': 32, 'num_warps': 4}: 1.0200 of the best, 1.133 of torch" in text
    assert "FAIL  the winner, of the fastest config: 1.020 (at most 1.010)" in text
