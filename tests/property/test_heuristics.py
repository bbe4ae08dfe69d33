"""Whatever the sizes and facts: configs within every limit, none twice, never none, the same every time."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silo import heuristics
from silo.errors import SpaceError
from silo.heuristics import AutotuneHint, KernelFacts, ReductionHint, SubKernel, TargetFacts, TileHint, TuningEffort
from silo.heuristics.candidates import max_block
from silo.heuristics.facts import DIMENSIONS, SizeHints, block_name

TARGETS = ["cuda:sm_80", "cuda:sm_90a", "cuda:sm_120", "hip:gfx942", "hip:gfx1100", "xpu:pvc", "cpu:x86-64-v3"]
KINDS = {
    "pointwise": (heuristics.pointwise, [("x",), ("x", "y"), ("x", "y", "z")]),
    "reduction": (heuristics.reduction, [("x", "r"), ("x", "y", "r"), ("x", "r0_", "r1_"), ("x", "y", "r0_", "r1_")]),
    "persistent": (heuristics.persistent_reduction, [("x", "r"), ("x", "y", "r"), ("x", "r0_", "r1_")]),
    "cooperative": (heuristics.cooperative_reduction, [("x", "r")]),
    "split scan": (heuristics.split_scan, [("r",), ("x", "r")]),
    "mix order": (heuristics.mix_order, [("x", "r")]),
}
PERSISTENT = ("persistent", "mix order")
powers = st.sampled_from([1, 2, 4, 8, 16, 64])
sizes = st.integers(0, 40) | st.integers(0, 1 << 16) | st.integers(0, 33).map(lambda n: 1 << n)
short = st.integers(0, 65536)
facts = st.builds(
    KernelFacts,
    loads=st.integers(0, 12),
    stores=st.integers(0, 6),
    reductions=st.integers(0, 4),
    atomic_add=st.booleans(),
    dynamic_sizes=st.integers(0, 3),
    min_elements_per_thread=st.sampled_from([0, 1, 4, 8, 64]),
    autotune_hints=st.sampled_from([frozenset(), frozenset(AutotuneHint)]),
    tile_hint=st.sampled_from(TileHint),
    reduction_hint=st.sampled_from(ReductionHint),
    contiguous_reduction=st.booleans(),
    persistent_block=st.booleans(),
    longest_persistent=st.sampled_from([0, 256, 4096, 65536]),
    single_row=st.booleans(),
    descriptor_minimums=st.just({}) | st.builds(lambda n: {"XBLOCK": n}, powers),
    persistent=st.booleans(),
    several_stages=st.booleans(),
)
efforts = st.builds(
    TuningEffort,
    tune=st.booleans(),
    exhaustive=st.booleans(),
    deterministic=st.booleans(),
    batch_invariant=st.booleans(),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=120, deadline=None)
@given(st.data())
def test_configs_are_within_every_limit(kind, data):
    make, forms = KINDS[kind]
    names = data.draw(st.sampled_from(forms))
    known = data.draw(facts)
    if kind == "mix order":
        known = KernelFacts(**{**vars(known), "rsplit_size": data.draw(powers)})
    whole = kind in PERSISTENT or (kind == "cooperative" and known.persistent)
    hints = {name: data.draw(short if whole and name.startswith("r") else sizes) for name in names}
    target = TargetFacts.of(data.draw(st.sampled_from(TARGETS)))
    effort = data.draw(efforts)
    try:
        found = make(target, hints, known, effort)
    except SpaceError as error:
        # Rows that no block holds; blocks that descriptors cannot have; more elements than any grid of blocks reaches.
        known_reasons = ("one block" if whole else "descriptors", "descriptors", "leaves a grid that")
        assert any(reason in str(error) for reason in known_reasons), error  # noqa: PT017
        return
    assert len(found) >= 1
    assert len(set(found.configs)) == len(found.configs)
    assert found == make(target, dict(reversed(hints.items())), known, effort), "the same every time"
    assert all(one.reason for one in found)
    if effort.deterministic and kind != "pointwise":
        assert len(found) == 1
    read = SizeHints.of({"x": 1, **hints} if "r" in hints else hints)
    for config in found.configs:
        members = config.as_dict()
        blocks = {d: members[block_name(d)] for d in DIMENSIONS if block_name(d) in members}
        for dimension, block in blocks.items():
            assert 1 <= block <= max_block(dimension, target)
            assert max_block(dimension, target) % block == 0
            least = known.descriptor_minimums.get(block_name(dimension), 1)
            free = effort.batch_invariant or kind in ("split scan", "mix order")
            assert block >= least
            assert block <= max(read[dimension], least) or free or known.single_row
        reduced = math.prod(read[d] for d in read.reduced) if kind in PERSISTENT else 1
        assert math.prod(blocks.values()) * reduced <= 1 << 20 or kind == "mix order"
        if target.kind == "cpu":
            assert not config.options
        else:
            warps = members["num_warps"]
            assert warps & (warps - 1) == 0
            assert 1 <= warps <= 32
            assert warps * target.warp_size <= 1024
        programs = -(-read["x"] // members.get("XBLOCK", 1))
        if target.kind == "cuda" and kind in ("pointwise", "reduction") and not known.single_row:
            assert programs < 1 << 31
        if target.kind == "hip" and kind in ("pointwise", "reduction") and not known.single_row:
            assert programs * members["num_warps"] * target.warp_size < 1 << 31


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(SubKernel, st.just("pointwise"), st.builds(lambda x: SizeHints.of({"x": x}), sizes))
        | st.builds(
            SubKernel, st.just("reduction"), st.builds(lambda x, r: SizeHints.of({"x": x, "r": r}), sizes, sizes)
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(TARGETS),
)
def test_a_combo_s_plan_covers_every_sub_kernel_once(kernels, target):
    plan = heuristics.combo(target, kernels)
    assert sorted(index for group in plan.groups for index in group.members) == list(range(len(kernels)))
    for group in plan.groups:
        assert all(kernels[index] == kernels[group.members[0]] for index in group.members)
    volumes = [kernels[group.members[0]].hints.numel for group in plan.groups]
    assert volumes == sorted(volumes, reverse=True)
    names = {name for name, _ in plan.base.config.values}
    assert all({name for name, _ in config.values} == names for config in plan.space.listed)
    assert plan.space.default == plan.base.config
    assert [plan.space.alternatives(plan.base.config, number)[0] for number in range(len(plan.groups))] == [
        plan.base.config
    ] * len(plan.groups)
    limits = dict(plan.limits)
    for step in plan.space.steps:
        assert all(max(step.values) <= limits.get(name, 32) for name in step.names)
