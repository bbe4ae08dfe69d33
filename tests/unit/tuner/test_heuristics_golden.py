"""The values that PyTorch 2.13's Inductor gives on an H100, and what differs on purpose."""
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false

import pytest

from silo import heuristics
from silo.core.config import Config
from silo.core.device import Target
from silo.errors import SpaceError
from silo.heuristics import (
    AutotuneHint,
    KernelFacts,
    ReductionHint,
    SizeHints,
    SubKernel,
    TargetFacts,
    TileHint,
    TuningEffort,
)
from silo.heuristics.blocks import pointwise_config

H100 = TargetFacts.of("cuda:sm_90", {"sm_count": 132, "warp_size": 32})
INNER, OUTER, TINY, DEFAULT = ReductionHint
EXHAUSTIVE = TuningEffort(exhaustive=True)


def short(candidates):
    """``256x16 w8`` for each config: blocks in the order x, y, z, r0; then warps."""
    rows = []
    for config in candidates.configs:
        members = config.as_dict()
        blocks = [members[n] for n in ("XBLOCK", "YBLOCK", "ZBLOCK", "R0_BLOCK", "R1_BLOCK") if n in members]
        rows.append("x".join(map(str, blocks)) + f" w{members['num_warps']}")
    return ", ".join(rows)


@pytest.mark.parametrize(
    ("sizes", "facts", "expected"),
    [
        ({"x": 64}, {}, "64 w1"),
        ({"x": 1024}, {}, "256 w4, 128 w4"),
        ({"x": 1 << 20}, {}, "1024 w4, 512 w8"),
        ({"x": 1 << 33}, {}, "1024 w4, 512 w8"),
        ({"x": 1 << 20}, {"min_elements_per_thread": 8}, "1024 w4, 2048 w8"),
        ({"x": 1024, "y": 1024}, {}, "32x32 w4, 64x64 w8, 256x16 w8, 16x256 w8, 1024x1 w4, 1x1024 w4"),
        ({"x": 65536, "y": 16}, {}, "64x16 w4, 256x16 w8, 1024x1 w4"),
        ({"x": 8, "y": 1 << 20}, {}, "8x128 w4, 8x512 w8, 1x1024 w4"),
        ({"x": 64, "y": 64, "z": 64}, {}, "16x16x16 w8"),
    ],
)
def test_pointwise(sizes, facts, expected):
    assert short(heuristics.pointwise(H100, sizes, KernelFacts(**facts))) == expected


ROWS = {"x": 4096, "r": 4096}
MANY = {"x": 1 << 20, "r": 128}


@pytest.mark.parametrize(
    ("sizes", "facts", "effort", "expected"),
    [
        (ROWS, {"reduction_hint": INNER}, {}, "1x2048 w16"),
        (ROWS, {"reduction_hint": OUTER}, {}, "16x32 w4"),
        (ROWS, {}, {}, "1x2048 w16, 16x32 w4, 64x64 w16, 8x512 w16, 64x4 w8"),
        (ROWS, {}, {"deterministic": True}, "8x512 w16"),
        (ROWS, {"loads": 9, "reduction_hint": INNER}, {}, "1x1024 w8"),
        (MANY, {"reduction_hint": INNER}, {}, "2x128 w2"),
        (MANY, {"reduction_hint": OUTER}, {}, "256x2 w4"),
        (MANY, {"reduction_hint": TINY}, {}, "4x128 w4"),
    ],
)
def test_reduction(sizes, facts, effort, expected):
    facts = KernelFacts(**{"loads": 2, "reductions": 1, **facts})
    assert short(heuristics.reduction(H100, sizes, facts, TuningEffort(**effort))) == expected


@pytest.mark.parametrize(
    ("sizes", "hint", "expected"),
    [
        ({"x": 4096, "r": 256}, INNER, "4 w1"),
        ({"x": 4096, "r": 1024}, INNER, "1 w1"),
        ({"x": 512, "r": 512}, INNER, "1 w4"),
        ({"x": 4096, "r": 2048}, INNER, "1 w8"),
        ({"x": 65536, "r": 64}, INNER, "1 w2, 8 w2, 32 w2"),
        ({"x": 4096, "r": 256}, OUTER, "8 w8"),
        ({"x": 4096, "r": 256}, TINY, "2 w4"),
    ],
)
def test_persistent_reduction(sizes, hint, expected):
    facts = KernelFacts(loads=2, reductions=1, reduction_hint=hint)
    assert short(heuristics.persistent_reduction(H100, sizes, facts)) == expected


def test_mix_order():
    facts = KernelFacts(loads=2, reductions=1, rsplit_size=256, reduction_hint=INNER)
    (only,) = heuristics.mix_order(H100, {"x": 32768, "r": 1024}, facts).configs
    assert only == Config.of(XBLOCK=8, RSPLIT_SIZE=256, NUM_STAGES=3, num_warps=4, num_stages=1)


def test_cooperative():
    facts = KernelFacts(loads=2, reductions=1, reduction_hint=INNER)
    (only,) = heuristics.cooperative_reduction(H100, {"x": 2, "r": 1 << 20}, facts).configs
    assert only == Config.of(XBLOCK=1, R0_BLOCK=2048, RSPLIT=64, num_warps=16, num_stages=1)


def test_split_scan():
    found = heuristics.split_scan(H100, {"r": 1 << 20}, KernelFacts(loads=2, reductions=1))
    assert short(found) == "1x2048 w16, 1x256 w2, 1x512 w4, 1x256 w8"


def test_native_matmul():
    product = heuristics.native_matmul(H100, {"x": 4096, "y": 4096, "r": 4096})
    assert (len(product), str(product.configs[0])) == (
        19,
        "R0_BLOCK=16, XBLOCK=32, YBLOCK=32, num_stages=1, num_warps=2",
    )
    assert heuristics.reduction(H100, {"x": 64, "y": 64, "r": 64}, KernelFacts(native_matmul=True)) == product
    batched = heuristics.native_matmul(H100, {"x": 64, "y": 64, "z": 8, "r": 64})
    assert all(config.as_dict()["ZBLOCK"] == 1 for config in batched.configs)
    whole = heuristics.native_matmul(H100, {"x": 64, "y": 64, "r": 512}, persistent=True)
    assert all("R0_BLOCK" not in config.as_dict() for config in whole.configs)
    assert max(c.as_dict()["XBLOCK"] * c.as_dict()["YBLOCK"] * 512 for c in whole.configs) == 1 << 20
    with pytest.raises(SpaceError, match="inner dimension of 8192 does not fit one block beside 16 x 16"):
        heuristics.native_matmul(H100, {"x": 64, "y": 64, "r": 8192}, persistent=True)


def test_kinds_whose_configs_are_given():
    assert heuristics.template(H100, num_warps=4, num_stages=3).configs == (Config.of(num_warps=4, num_stages=3),)
    given = {"BLOCK": 8, "num_warps": 2, "num_ctas": 2, "maxnreg": 64}
    assert heuristics.fixed(given).configs == (Config.of(given),), "num_ctas and maxnreg are kept"
    assert heuristics.user().configs == (Config(),)
    assert len(heuristics.user([given, {**given, "maxnreg": 128}]).configs) == 2, "they differ in maxnreg alone"
    assert [c.as_dict()["num_warps"] for c in heuristics.foreach(H100).configs] == [8]
    assert [c.as_dict()["num_warps"] for c in heuristics.foreach(H100, EXHAUSTIVE).configs] == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("target", "extra"),
    [("hip:gfx942", 3), ("hip:gfx1100", 3), ("xpu:pvc", 1), ("cuda:sm_90", 0)],
)
def test_the_target_decides_and_not_the_host(target, extra):
    found = heuristics.pointwise(target, {"x": 1 << 20})
    assert len([one for one in found if one.reason.startswith(("AMD", "Intel"))]) == extra


def test_targets():
    assert TargetFacts.of("hip:gfx942").warp_size == TargetFacts.of("hip:gfx90a").warp_size == 64
    assert TargetFacts.of("hip:gfx9-4-generic").warp_size == 64
    assert TargetFacts.of("hip:gfx1100").warp_size == TargetFacts.of("hip:gfx11-generic").warp_size == 32
    assert (TargetFacts.of("cuda:sm_90a").major, TargetFacts.of("cuda:sm_120").major) == (9, 12)
    assert TargetFacts.of(Target("cuda", "sm_100")).assumed == ("units", "warp_size")
    assert H100.assumed == ()
    with pytest.raises(SpaceError, match="no heuristic knows the target metal"):
        heuristics.pointwise("metal:3.1", {"x": 64})


def test_newer_nvidia_devices_get_shorter_reduced_blocks_and_amd_s_of_the_same_number_do_not():
    facts = KernelFacts(loads=2, reductions=1, reduction_hint=INNER)
    assert short(heuristics.reduction("cuda:sm_100", ROWS, facts)) == "1x1024 w8"
    assert short(heuristics.reduction("hip:gfx1100", ROWS, facts)) == "1x2048 w16"


def test_a_cpu_gets_blocks_alone():
    found = heuristics.pointwise("cpu:x86-64-v3", {"x": 1 << 20})
    assert [config.as_dict() for config in found.configs] == [{"XBLOCK": 1024}, {"XBLOCK": 512}]


def test_hints_of_the_kernel():
    facts = KernelFacts(autotune_hints=frozenset({AutotuneHint.ONE_ELEMENT_PER_THREAD}))
    assert short(heuristics.pointwise(H100, {"x": 1 << 20}, facts)) == "1024 w4, 512 w8, 256 w8"
    square = KernelFacts(tile_hint=TileHint.SQUARE)
    sizes = {"x": 1024, "y": 1024}
    assert short(heuristics.pointwise(H100, sizes, square)) == "32x32 w4"
    assert len(heuristics.pointwise("hip:gfx942", sizes, square)) == 10
    assert len(heuristics.pointwise(H100, sizes, square, EXHAUSTIVE)) == 6
    assert short(heuristics.pointwise(H100, {"x": 1 << 20}, effort=TuningEffort(tune=False))) == "1024 w4"


def test_descriptors_need_large_blocks():
    facts = KernelFacts(descriptor_minimums={"XBLOCK": 64})
    found = heuristics.pointwise(H100, {"x": 1024, "y": 1024}, facts)
    assert short(found) == "64x32 w4, 64x64 w8, 256x16 w8, 1024x1 w4"
    assert any("XBLOCK below 64" in reason for reason in found.rejected)
    with pytest.raises(SpaceError, match="least YBLOCK, and the pointwise heuristic sets XBLOCK"):
        heuristics.pointwise(H100, {"x": 64}, KernelFacts(descriptor_minimums={"YBLOCK": 8}))


def test_least_blocks_trade_with_one_another():
    facts = KernelFacts(loads=2, reductions=1, reduction_hint=INNER, min_xblock=16)
    assert short(heuristics.reduction(H100, ROWS, facts)) == "16x128 w16"
    with pytest.raises(SpaceError, match="least XBLOCK is 8192, and no block is above 4096"):
        heuristics.reduction(H100, ROWS, KernelFacts(min_xblock=8192))
    with pytest.raises(SpaceError, match="min_rblock=12 is not a power of two"):
        KernelFacts(min_rblock=12)


def test_a_mix_order_block_divides_the_rows_of_a_program():
    facts = KernelFacts(loads=2, reductions=1, rsplit_size=2)
    for config in heuristics.mix_order(H100, {"x": 4096, "r": 256}, facts).configs:
        assert config.as_dict()["RSPLIT_SIZE"] % config.as_dict()["XBLOCK"] == 0
    wide = KernelFacts(rsplit_size=128, descriptor_minimums={"XBLOCK": 64})
    assert heuristics.mix_order(H100, {"x": 4096, "r": 256}, wide).configs[0].as_dict()["XBLOCK"] == 64
    with pytest.raises(SpaceError, match="XBLOCK=64 at least, and it has to divide rsplit_size=32"):
        heuristics.mix_order(H100, {"x": 4096, "r": 256}, KernelFacts(**{**vars(wide), "rsplit_size": 32}))
    with pytest.raises(SpaceError, match="rsplit_size, a power of two; it is 48"):
        heuristics.mix_order(H100, {"x": 4096, "r": 256}, KernelFacts(rsplit_size=48))
    with pytest.raises(SpaceError, match="ask heuristics"):
        heuristics.persistent_reduction(H100, {"x": 4096, "r": 256}, facts)


def test_a_cooperative_grid_never_exceeds_the_device():
    for rows in (1, 2, 4, 64, 128, 1024):
        for config in heuristics.cooperative_reduction(H100, {"x": rows, "r": 1 << 22}).configs:
            assert config.as_dict()["RSPLIT"] * rows <= max(132, rows)


def test_bad_input_says_what_to_give():
    for sizes, said in (
        ({}, "no size hints"),
        ({"w": 3}, "'w' names no dimension"),
        ({"x": -1}, "x=-1 is negative"),
        ({"x": 2.5}, "not an integer"),
        ({"x": 3, "z": 3}, "for z and none for y"),
        ({"x": 3, "r": 3}, "reduces nothing"),
    ):
        with pytest.raises(SpaceError, match=said):
            heuristics.pointwise(H100, sizes)
    with pytest.raises(SpaceError, match="a reduction needs size hints for x and for what it reduces"):
        heuristics.reduction(H100, {"x": 3})
    with pytest.raises(SpaceError, match="none for r0_"):
        heuristics.reduction(H100, {"x": 3, "y": 3, "r": 3}, KernelFacts(tiling_scores={"x": 1, "y": 2}))
    with pytest.raises(SpaceError, match=r"finds no config.*do not fit one block"):
        heuristics.persistent_reduction(H100, {"x": 1, "r": 1 << 17})
    with pytest.raises(SpaceError, match="give the kernel a y dimension"):
        heuristics.pointwise(H100, {"x": 1 << 60})


def test_names_of_a_kernel():
    found = heuristics.pointwise(H100, {"x": 1024}).named({"XBLOCK": "BLOCK_SIZE"})
    assert found.configs[0] == Config.of(BLOCK_SIZE=256, num_warps=4, num_stages=1)
    dropped = heuristics.pointwise(H100, {"x": 1024}).named({"XBLOCK": ""})
    assert dropped.configs == (Config.of(num_warps=4, num_stages=1),)
    with pytest.raises(SpaceError, match="would have one name"):
        heuristics.pointwise(H100, {"x": 64, "y": 64}).named({"XBLOCK": "B", "YBLOCK": "B"})


def test_combo():
    add = SubKernel("pointwise", SizeHints.of({"x": 1 << 20}))
    row = SubKernel(
        "persistent_reduction", SizeHints.of({"x": 65536, "r": 64}), KernelFacts(reduction_hint=INNER, reductions=1)
    )
    plan = heuristics.combo(H100, [add, row, add])
    assert plan.base.config == Config.of(XBLOCK_0=1024, XBLOCK_1=1, XBLOCK_2=1024, num_warps=4, num_stages=1)
    assert [group.members for group in plan.groups] == [(1,), (0, 2)], "the largest first, equal ones together"
    assert plan.launches == ((4, 1), (8, 1), (2, 1))
    assert plan.limits == (("XBLOCK_0", 4096), ("XBLOCK_1", 4096), ("XBLOCK_2", 4096))
    assert plan.space.alternatives(plan.base.config, 1)[1].as_dict() == {
        "XBLOCK_0": 512,
        "XBLOCK_1": 1,
        "XBLOCK_2": 512,
        "num_warps": 4,
        "num_stages": 1,
    }
    assert plan.space.default == plan.base.config
    assert len(plan.space.listed) == plan.space.effort == 1 + 2 + 1 + 2
    assert [step.names for step in plan.space.steps] == [("XBLOCK_1",), ("XBLOCK_0", "XBLOCK_2"), ("num_warps",)]
    assert len(heuristics.combo(H100, [add, row, add], grouped=False).groups) == 3
    shared = heuristics.combo(H100, [add, add], names={"XBLOCK"})
    assert shared.base.config == Config.of(XBLOCK=1024, num_warps=4, num_stages=1)
    with pytest.raises(SpaceError, match="without sub-kernels"):
        heuristics.combo(H100, [])


def test_a_lookup_table():
    text = "def triton_poi_fused_add(a, XBLOCK):\n    pass"
    key = heuristics.lookup_key({"x": 1024}, text)
    table = {key: {"XBLOCK": 64, "num_warps": 2, "num_stages": 1}}
    renamed = text.replace("triton_poi_fused_add", "other")
    assert heuristics.lookup(table, {"x": 1000}, renamed).configs == (Config.of(table[key]),)
    assert heuristics.lookup(table, {"x": 2048}, text) is None
    with pytest.raises(SpaceError, match="lacks num_warps"):
        heuristics.lookup({key: {"XBLOCK": 64}}, {"x": 1024}, text)


def test_choosing_between_whole_kernels():
    assert heuristics.fastest({"looped": [2000] * 9, "persistent": [1000] * 9}).name == "persistent"
    tie = heuristics.fastest({"looped": [1001] * 9, "persistent": [1000] * 9})
    assert (tie.name, "not measurably faster" in tie.reason) == ("looped", True)
    assert heuristics.fastest({"looped": [], "persistent": [5]}).name == "persistent"
    with pytest.raises(SpaceError, match="none of the kernels looped"):
        heuristics.fastest({"looped": []})
    made = {"any": None, "a": [(64, 0)], "b": [(64, 4)]}
    assert heuristics.nearest([(64, 1)], made).name == "a", "0 lies one octave below 1"
    assert heuristics.nearest([(64, 3)], made).name == "b"
    assert heuristics.nearest([(1,)], {"any": None}).name == "any"
    with pytest.raises(SpaceError, match="made for arrays"):
        heuristics.nearest([(1,)], {"a": [(1, 1)]})
    assert heuristics.persistent_fits({"x": 8, "r": 64})
    assert not heuristics.persistent_fits({"x": 8, "r": 65})
    assert heuristics.persistent_fits({"x": 8, "r": 16384}, INNER, both=True)
    assert heuristics.persistent_fits({"x": 2, "r": 16384}, INNER, cooperative=True)
    assert heuristics.cooperative_fits({"x": 8, "r": 262144})
    assert not heuristics.cooperative_fits({"x": 9, "r": 262144})


def test_blocks_give_way_where_two_limits_meet():
    """On HIP x must be long for the grid's threads, and the block may hold 2^20 elements: z becomes shorter, not x."""
    config = pointwise_config(TargetFacts.of("hip:gfx942"), SizeHints.of({"x": 1 << 33, "y": 1, "z": 1024}), 1, 1, 1024)
    assert config.as_dict() == {"XBLOCK": 2048, "YBLOCK": 1, "ZBLOCK": 512, "num_stages": 1, "num_warps": 4}
    sizes = SizeHints.of({"x": 1 << 33, "y": 1 << 30, "z": 1 << 30})
    refused = pointwise_config(TargetFacts.of("hip:gfx942"), sizes, 1, 1, 1024)
    assert refused.reason.startswith("no block of 1048576 elements leaves a grid that hip:gfx942 allows")
