"""The order of a declared space on a CPU before anything was measured: by the grids of its configs."""

import math

import pytest

from silo.core.config import Config
from silo.heuristics.unmeasured_choices import promising_configs

TILES = [
    Config.of(BM=height, BN=width, BK=depth)
    for height in (16, 32, 64, 128)
    for width in (32, 64, 128)
    for depth in (32, 64, 128)
]


def programs(m, n):
    def of(config):
        values = config.as_dict()
        return math.ceil(m / values["BM"]) * math.ceil(n / values["BN"])

    return of


@pytest.mark.parametrize(
    ("sizes", "threads", "tile"),
    [
        ((1000, 1000), 16, (128, 128)),  # 64 programs
        ((300, 300), 16, (32, 64)),  # 50
        ((1000, 1000), 1, (128, 128)),  # larger tiles are not in the space
    ],
)
def test_the_first_has_about_four_programs_for_each_thread(sizes, threads, tile):
    found = promising_configs(TILES, programs(*sizes), threads, 7)
    assert len(found) == 7
    first = found[0].as_dict()
    assert (first["BM"], first["BN"]) == tile


def test_a_thread_without_a_program_is_worse_than_small_programs():
    blocks = [Config.of(B=512), Config.of(B=8192)]
    found = promising_configs(blocks, lambda config: 30_000 // config.as_dict()["B"], 16, 2)  # pyright: ignore[reportOperatorIssue]
    assert found[0] == Config.of(B=512)


def test_a_space_whose_grids_are_equal_keeps_its_own_order():
    assert promising_configs(TILES, lambda config: 8, 4, 7) == ()


def test_configs_without_a_grid_are_left_out():
    small = programs(1000, 1000)
    found = promising_configs(TILES, lambda one: None if one.as_dict()["BM"] == 128 else small(one), 4, 36)
    assert len(found) == 27
    assert all(config.as_dict()["BM"] in (16, 32, 64) for config in found)
