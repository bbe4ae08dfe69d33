"""Plans of libsilo on the stub GPUs: the driver gets what separate launches give it."""
# pyright: reportAttributeAccessIssue=false

import os
import random
from dataclasses import replace
from itertools import pairwise

import pytest

import silo
from libsilo import CUDA, RANGE32, ROCM, Bundle, LibraryError, Plan, Queue, array
from made_bundles import write_made

KINDS = {"cuda": CUDA, "hip": ROCM}
UNSUPPORTED, CAPTURING = 33, 32
LIBRARY = os.environ.get("SILO_TEST_STUB", "").encode()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_made(tmp_path_factory.mktemp("made") / "made.silo")


@pytest.fixture(autouse=True)
def sizes(stub):
    for name in ("add_64", "add_256", "add_any"):
        stub.parameters(name, 8, 8, 8, 4)
    stub.parameters("add_wide", 8, 8, 8, 8)
    stub.parameters("rows", 8, 4)


@pytest.fixture
def bundle(made):
    with Bundle(made, cuda_library=LIBRARY, hip_library=LIBRARY) as opened:
        yield opened


def of(buffer):
    return array(buffer.address, str(buffer.dtype), buffer.shape, buffer.strides, flags=RANGE32)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_reach_the_driver_as_separate_launches_do(stub, bundle, kind):
    dice = random.Random(5)
    queue = Queue(KINDS[kind], 0, None)
    buffers = [silo.Buffer((4096,), "float32", f"{kind}:0") for _ in range(5)]
    entries = {"add": lambda n: "add_64" if n % 16 == 0 else "add_any"}
    seen = []
    for name in ("add_64", "add_any"):
        stub.run(name, lambda launch, name=name: seen.append((name, replace(launch, count=0, stream=0))))
    with Plan(bundle.library, queue) as plan:
        for step in range(40):
            calls = []
            for _ in range(3 if step % 2 else 5):
                x, y, out = dice.sample(buffers, 3)
                calls.append((of(x), of(y), of(out), dice.choice((0, 16, 17, 640, 4096))))
            for call in calls:
                bundle["add"].add_to(plan, *call)
            assert not seen
            plan.run()
            ours, seen[:] = list(seen), []
            for call in calls:
                bundle["add"](*call, queue=queue)
            theirs, seen[:] = list(seen), []
            assert [name for name, _ in ours] == [entries["add"](call[3]) for call in calls if call[3]]
            assert ours == theirs
        assert plan.explain()[0] == ("device" if kind == "cuda" else "singly")


def test_a_tensor_map_is_made_anew_in_each_step(stub, bundle):
    queue = Queue(CUDA, 0, None)
    stub.parameters("mapped", 128, 128)
    source, out = (silo.Buffer((1024, 512), "float16", "cuda:0") for _ in range(2))
    seen = []
    stub.run("mapped", lambda launch: seen.append(launch.parameters))
    with Plan(bundle.library, queue) as plan:
        for offset, rows in ((0, 1024), (32, 511), (64, 300)):
            given = array(source.address + offset, "float16", (rows, 256), (512, 1))
            bundle["mapped"].add_to(plan, given, of(out))
            plan.run()
            bundle["mapped"](given, of(out), queue=queue)
            assert seen[-1] == seen[-2]
            assert [len(one) for one in seen[-1]] == [128, 128]
        assert plan.explain()[0] == "device"
    assert len({one[0] for one in seen}) == 3


def test_scratch_memory_is_the_plans_own_and_grows_with_the_grid(stub, bundle):
    """256 bytes and 16 of profiling for each program: a piece for each node, which no other node has."""
    queue = Queue(CUDA, 0, None)
    stub.parameters("scratched", 8, 4, 8, 8)
    out = silo.Buffer((64,), "int32", "cuda:0")
    seen = []
    stub.run("scratched", lambda launch: seen.append((launch.grid[0], launch.parameters[2:])))
    places = {}
    with Plan(bundle.library, queue) as plan:
        for n in (3, 4, 1, 0, 4, 5, 8, 2, 100, 3):
            for count in (n, 2):
                bundle["scratched"].add_to(plan, of(out), count)
            plan.run()
            ran, seen[:] = list(seen), []
            assert [grid for grid, _ in ran] == [count for count in (n, 2) if count]
            pieces = []
            for grid, (scratch, profile) in ran:
                pieces += [(int.from_bytes(scratch, "little"), 256 * grid, 128)]
                pieces += [(int.from_bytes(profile, "little"), 16 * grid, 16)]
            assert all(address and address % align == 0 for address, _, align in pieces)
            pieces.sort()
            assert all(low + size <= high for (low, size, _), (high, _, _) in pairwise(pieces))
            places.setdefault(n, pieces)
        assert plan.explain()[0] == "device"
    first, second = (address for address, _, _ in places[4][:2])
    assert first
    assert second
    assert places[8][0] != places[4][0]  # from 5 programs on the memory is another


def test_scratch_memory_stays_while_it_is_enough(stub, bundle):
    queue = Queue(CUDA, 0, None)
    stub.parameters("scratched", 8, 4, 8, 8)
    out = silo.Buffer((64,), "int32", "cuda:0")
    seen = []
    stub.run("scratched", lambda launch: seen.append(launch.parameters[2:]))
    with Plan(bundle.library, queue) as plan:
        for n in (7, 8, 5, 1, 8):
            bundle["scratched"].add_to(plan, of(out), n)
            plan.run()
    assert len(set(seen)) == 1


def test_a_plan_that_is_no_graph_has_no_scratch_memory(stub, bundle):
    stub.parameters("scratched", 8, 4, 8, 8)
    out = silo.Buffer((64,), "int32", "hip:0")
    with Plan(bundle.library, Queue(ROCM, 0, None)) as plan:
        bundle["scratched"].add_to(plan, of(out), 2)
        with pytest.raises(LibraryError, match="scratched: it needs scratch memory, which plans give") as caught:
            plan.run()
        assert caught.value.code == UNSUPPORTED


def test_what_a_plan_does_not_take(stub, bundle):
    queue = Queue(CUDA, 0, None)
    out = silo.Buffer((64,), "int32", "cuda:0")
    with Plan(bundle.library, queue) as plan:
        bundle["bare"].add_to(plan, of(out), 2, grid=(2, 1, 1))
        plan.run(4096)
        assert stub.last("rows").stream == 4096
        stub.capture(4096)
        with pytest.raises(LibraryError, match="being captured") as caught:
            plan.run(4096)
        stub.capture(4096, 0)
        assert caught.value.code == CAPTURING
        plan.run(4096)
