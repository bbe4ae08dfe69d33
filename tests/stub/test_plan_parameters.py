"""Plans of kernels that take tensor maps, layouts of arrays and scratch memory: the stub gets what launches give it."""
# pyright: reportAttributeAccessIssue=false

import logging
from itertools import pairwise

import pytest

import silo
from made_bundles import write_made
from silo.errors import ArgumentError, DeviceError


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_made(tmp_path_factory.mktemp("made") / "made.silo")


@pytest.fixture
def kernels(stub, made):
    stub.parameters("scratched", 8, 4, 8, 8)
    stub.parameters("described", 128, 8)
    stub.parameters("mapped", 128, 128)
    stub.parameters("rows", 8, 4)
    return silo.load(made)


def watched(stub, *names):
    """What launches of these kernels were given."""
    seen = []
    for name in names:
        stub.run(name, lambda launch, name=name: seen.append((name, launch.grid, launch.parameters)))
    return seen


def taken(seen):
    found, seen[:] = list(seen), []
    return found


def halves(rows=256):
    return silo.Buffer((rows, 512), "float16", "cuda")


def test_descriptors_of_arguments_are_encoded_in_each_replay(stub, kernels):
    seen = watched(stub, "described")

    def step(source, out, rows, columns):
        kernels.described(silo.TensorDescriptor(source, [256, columns], [512, 1], [64, 32]), out)
        kernels.described(silo.TensorDescriptor(source, [256, 2 * columns], [2 * 512, 1], [64, 32]), out)

    out = silo.Buffer((64,), "int32", "cuda")
    plan = silo.plan(step, halves(), out, 256, 128)
    taken(seen)
    for columns in (128, 64, 96, 256, 96):
        source = halves()
        plan(source, out, 256, columns)
        ours = taken(seen)
        step(source, out, 256, columns)
        assert ours == taken(seen)
        assert len(ours) == 2
        assert [len(one) for one in ours[0][2]] == [128, 8]
    assert plan.replays == 5
    assert not plan.report().fixed
    assert plan.report().forms[0].way == "device"
    with pytest.raises(ArgumentError, match="described: argument 'source' has shape"):
        plan(halves(), out, 256, 0)
    plan(source, out, 256, 96)


def test_a_grid_that_reads_the_extent_of_a_descriptor(stub, kernels):
    """The declared grid of the kernel is the number of rows."""
    seen = watched(stub, "described")

    def step(source, out, rows):
        kernels.described(silo.TensorDescriptor(source, [2 * rows, 512], [512, 1], [64, 32]), out)

    out = silo.Buffer((64,), "int32", "cuda")
    plan = silo.plan(step, halves(), out, 128)
    assert not plan.report().fixed
    for rows in (128, 32, 16, 128):
        source = halves()
        taken(seen)
        plan(source, out, rows)
        ours = taken(seen)
        step(source, out, rows)
        assert ours == taken(seen)
        assert ours[0][1][0] == 2 * rows
    assert plan.replays == 4


def test_a_descriptor_that_stays(stub, kernels):
    seen = watched(stub, "described")
    source = halves()
    stays = silo.TensorDescriptor(source, [256, 512], [512, 1], [64, 32])
    plan = silo.plan(lambda out: kernels.described(stays, out), silo.Buffer((64,), "int32", "cuda"))
    out = silo.Buffer((64,), "int32", "cuda")
    taken(seen)
    plan(out)
    ours = taken(seen)
    kernels.described(stays, out)
    assert ours == taken(seen)


def test_maps_of_arrays_are_encoded_in_each_replay(stub, kernels):
    seen = watched(stub, "mapped")

    def step(source, out):
        kernels.mapped(source, out)

    plan = silo.plan(step, halves(1024), halves(1024))
    for rows in (1024, 1024, 512):
        source, out = halves(rows), halves(1024)
        taken(seen)
        plan(source, out)
        ours = taken(seen)
        step(source, out)
        assert ours == taken(seen)
    assert plan.replays > 0
    held = halves(1024)
    with pytest.raises(ArgumentError, match="takes the layout of 'source', which is not an argument of the plan"):
        silo.plan(lambda out: kernels.mapped(held, out), halves(1024))


def test_scratch_memory_is_the_plans_own_and_more_is_another_form(stub, kernels, caplog):
    seen = watched(stub, "scratched")

    def step(out, n, m):
        kernels.scratched(out, n)
        kernels.scratched(out, m)

    out = silo.Buffer((64,), "int32", "cuda")
    with caplog.at_level(logging.INFO, "silo"):
        plan = silo.plan(step, out, 5, 3)
        taken(seen)
        for n, m in ((5, 3), (8, 4), (2, 2), (7, 3), (9, 3), (15, 4), (7, 2)):
            before = plan.replays
            plan(out, n, m)
            ran = taken(seen)
            assert [grid[0] for _, grid, _ in ran] == [count for count in (n, m) if count]
            if plan.replays == before:  # the launches were the function's own
                continue
            pieces = []
            for _, grid, (_, _, scratch, profile) in ran:
                pieces += [(int.from_bytes(scratch, "little"), 256 * grid[0], 128)]
                pieces += [(int.from_bytes(profile, "little"), 16 * grid[0], 16)]
            assert all(address and address % align == 0 for address, _, align in pieces)
            pieces.sort()
            assert all(low + size <= high for (low, size, _), (high, _, _) in pairwise(pieces))
    assert len(plan.report().forms) == 2  # of up to 8 programs, and of up to 16
    assert plan.replays == 6
    assert "plan step: arguments that no recorded form serves" in caplog.text


def test_out_of_memory_for_scratch_is_an_error_of_the_plan(stub, kernels):
    out = silo.Buffer((64,), "int32", "cuda")
    kernels.scratched(out, 4)
    stub.fail("cuMemAlloc_v2", 2, 3)
    with pytest.raises((DeviceError, MemoryError), match="memory"):
        silo.plan(kernels.scratched, out, 4)
    stub.fail_no_more()
    plan = silo.plan(kernels.scratched, out, 4)
    plan(out, 4)
    assert plan.replays == 1
