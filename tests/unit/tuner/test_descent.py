"""The rules of coordinate descent: each test walks a small space by hand."""

import pytest

from silo.core.config import Config
from silo.core.lattice import Lattice
from silo.tuner.search.descent import field_order, move_values
from silo.tuner.search.search_state import Seed
from tuning_samples import make_searcher


def walk(points, times, start=None, name="descent"):
    """The configs in the order they are measured, as tuples of values in order of name; absent times are 100."""
    configs = [Config.of(point) for point in points]
    seeds = [Seed(Config.of(start))] if start else []
    searcher = make_searcher(name, configs, "", seeds)
    order = []
    while batch := searcher.suggest(1):
        key = tuple(value for _, value in sorted(batch[0].as_dict().items()))
        order.append(key)
        searcher.observe(batch[0], times.get(key, 100.0))
    return order


def grid(**axes):
    points = [{}]
    for name, values in axes.items():
        points = [{**point, name: value} for point in points for value in values]
    return points


def places(name, values, value, radius=1):
    axis = Lattice([Config.of({name: one}) for one in values]).axes[0]
    return [[axis.values[at] for at in places] for places in move_values(axis, axis.values.index(value), radius)]


def test_fields_come_in_inductors_order():
    names = ["waves_per_eu", "NUM_STAGES", "num_stages", "num_warps", "BLOCK_K", "BLOCK_N", "BLOCK_M", "R1_BLOCK"]
    names += ["R0_BLOCK", "ZBLOCK", "YBLOCK", "XBLOCK", "XBLOCK_1", "XBLOCK_0", "GROUP", "ALPHA"]
    order = "XBLOCK_0 XBLOCK_1 XBLOCK YBLOCK ZBLOCK R0_BLOCK R1_BLOCK BLOCK_M BLOCK_N BLOCK_K ALPHA GROUP num_warps"
    assert field_order(names) == [*order.split(), "num_stages", "waves_per_eu", "NUM_STAGES"]


POWERS = [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize(
    ("name", "values", "value", "radius", "tried"),
    [
        ("XBLOCK", POWERS, 8, 1, [[16], [4]]),  # doubled first, then halved
        ("XBLOCK", POWERS, 8, 3, [[16, 32], [4, 2, 1]]),  # at the first too large one the way down begins
        ("XBLOCK", POWERS, 32, 1, [[], [16]]),
        ("num_warps", POWERS, 1, 1, [[2], []]),
        ("num_stages", [1, 2, 3, 4], 2, 1, [[3], [1]]),  # stages go by one
        ("num_stages", [1, 2, 4], 2, 1, [[4], [1]]),  # although they are powers of two
        ("NUM_STAGES", [1, 2, 3, 4, 5], 3, 1, [[4, 5], [2, 1]]),  # and these by up to two
        ("XBLOCK", [16, 32, 48, 64], 16, 1, [[32], []]),  # blocks are doubled whatever else there is
        ("XBLOCK", [16, 32, 48, 64], 48, 1, [[], [16]]),
        ("XBLOCK", [16, 64], 16, 1, [[64], []]),  # a gap is stepped over
        ("TILE", [2, 4, 8], 4, 1, [[8], [2]]),
        ("TILE", [1, 2, 3, 4], 2, 1, [[3], [1]]),  # no powers of two: the next value
        ("TILE", [0, 1], 0, 1, [[1], []]),
        ("ORDER", ["a", "b", "c"], "b", 1, [["a"], ["c"]]),  # no order: every other value
        ("FLAG", [True, False], False, 1, [[True]]),
        ("maxnreg", [None, 64, 128], 64, 1, [[128], [], [None]]),
        ("maxnreg", [None, 64, 128], None, 1, [[64], [128]]),
    ],
)
def test_moves_of_one_field(name, values, value, radius, tried):
    assert places(name, values, value, radius) == tried


def test_a_pass_moves_at_once_and_passes_go_on_until_one_brings_nothing():
    points = grid(XBLOCK=[1, 2, 4, 8], num_warps=[1, 2, 4])
    times = {(1, 1): 90.0, (2, 1): 80.0, (2, 2): 70.0, (4, 2): 75.0, (2, 4): 71.0}
    assert walk(points, times) == [
        (1, 1),
        (2, 1),  # XBLOCK of 1: up is better; there is no way down
        (2, 2),  # num_warps of the new best: better
        (4, 2),  # second pass, from (2, 2): up is worse
        (1, 2),  # down is worse
        (2, 4),  # up is worse; down is known
    ]


def test_both_neighbours_are_those_of_the_old_point():
    """After the way up was taken, the way down is still measured from the old point, and not up again from the new."""
    points = grid(XBLOCK=[1, 2, 4, 8, 16])
    times = {(4,): 90.0, (8,): 80.0, (2,): 70.0, (16,): 60.0}
    # Up to 8, then 2 is better still: the search is at 2 and never sees 16.
    assert walk(points, times, start={"XBLOCK": 4}) == [(4,), (8,), (2,), (1,)]


def test_a_gain_of_a_thousandth_or_less_is_none():
    points = grid(XBLOCK=[1, 2, 4])
    assert walk(points, {(1,): 1000.0, (2,): 999.0}) == [(1,), (2,)]
    assert walk(points, {(1,): 1000.0, (2,): 998.9}) == [(1,), (2,), (4,)]


def test_failures_are_no_better():
    points = grid(XBLOCK=[1, 2, 4, 8])
    assert walk(points, {(2,): None}) == [(1,), (2,)]
    assert walk(points, {(1,): None, (2,): None}) == [(1,), (2,)]
    assert walk(points, {(1,): None, (2,): 5.0}) == [(1,), (2,), (4,)]


def test_what_the_space_leaves_out_is_a_limit():
    points = [
        point for point in grid(XBLOCK=[1, 2, 4, 8], num_warps=[1, 2]) if point["XBLOCK"] * point["num_warps"] < 8
    ]
    assert walk(points, {}, start={"XBLOCK": 2, "num_warps": 2}) == [(2, 2), (1, 2), (2, 1)]


def test_all_directions_leave_a_saddle():
    points = grid(XBLOCK=[1, 2, 4], YBLOCK=[1, 2, 4])
    times = {(2, 2): 50.0, (4, 4): 40.0, (1, 1): 45.0}
    start = {"XBLOCK": 2, "YBLOCK": 2}
    one_by_one = [(2, 2), (4, 2), (1, 2), (2, 4), (2, 1)]
    assert walk(points, times, start) == one_by_one
    # Then the product, first field slowest, up before down before staying; what is known costs nothing. From (4, 4)
    # nothing is left to measure.
    product = [(4, 4), (4, 1), (1, 4), (1, 1)]
    assert walk(points, times, start, "descent-all-directions") == one_by_one + product


def test_the_best_seed_is_the_start():
    points = grid(XBLOCK=[1, 2, 4, 8])
    assert walk(points, {}, start={"XBLOCK": 8})[0] == (8,)
    assert walk(points, {})[0] == (1,)
