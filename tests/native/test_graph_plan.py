"""Plans as graphs of the driver (``native/core/graph_plan.c``) on the stub: parameters, edges, the ring, errors."""

import ctypes
import textwrap
from pathlib import Path

import pytest

import graph_plans
from core_native import NATIVE, compiler
from native_builds import ADDRESS, THREAD, archive
from repetitions import repetitions
from samples import gpu_stub
from sanitized_program import build_sanitized, run_sanitized

HERE = Path(__file__).parent

DOUBLE = """
import ctypes, os, random, struct
import gpu_stub
from gpu_stub import stub
from graph_plans import DEVICE, HOST, SINGLY, Call, Device, PlanError, trapping

device = Device(trapping(), "cuda", os.environ["SILO_TEST_STUB"])
log = []

def kernel(name, sizes, **options):
    code = gpu_stub.text(name, params=",".join(map(str, sizes)), **options.pop("directives", {}))
    made = device.kernel(code, name, sizes, **options)
    stub.run(name, lambda launch: log.append((name, launch.grid, launch.parameters)))
    return made

def ran(calls, kernels):
    # what launching one by one would have run
    found = []
    for call, each in zip(calls, kernels, strict=True):
        if call.enabled and all(call.grid):
            found.append((each.name, call.grid, tuple(call.parameters)))
    return found

def taken():
    found, log[:] = list(log), []
    return found

def raises(code, *words):
    class Check:
        def __enter__(self):
            return self
        def __exit__(self, kind, error, trace):
            assert isinstance(error, PlanError), error
            self.text = str(error)
            assert error.code == code, (error.code, str(error))
            missing = [word for word in words if word not in str(error)]
            assert not missing, (missing, str(error))
            return True
    return Check()
"""

WAYS = ("DEVICE", "HOST", "SINGLY")


def run(code: str, *defines: str, **more: object) -> str:
    ended = graph_plans.on_stub(gpu_stub.run, DOUBLE + textwrap.dedent(code) + 'print("ended")', *defines, **more)
    assert ended.endswith("ended\n")
    return ended


@pytest.mark.parametrize("way", WAYS)
def test_replays_run_what_launches_one_by_one_would_run(way):
    code = """
    dice = random.Random(7)
    forms = [(8, 8, 4), (8, 4), (4,), (8, 128, 4, 2), (1, 2, 8, 128, 128), (), (8,) * 40]
    kernels = [kernel(f"k{i}", forms[i % len(forms)]) for i in range(21)]
    plan = device.plan(kernels, wanted=WAY)
    assert plan.explain()[0] == {DEVICE: "device", HOST: "host", SINGLY: "singly"}[WAY], plan.explain()

    def call(each):
        grid = tuple(dice.choice((0, 1, 2, 3, 65535) if dice.random() < 0.2 else (1, 2, 7)) for _ in range(3))
        return Call(grid, tuple(dice.randbytes(size) for size in each.sizes), dice.random() < 0.8)

    calls = [call(each) for each in kernels]
    for replay in range(300):
        for node in range(len(kernels)):
            if dice.random() < (0.0, 0.1, 1.0)[replay % 3]:
                calls[node] = call(kernels[node])
        plan.launch(calls, stream=dice.choice((None, 4096, 8192)))
        assert taken() == ran(calls, kernels), replay
    assert plan.counts().replays == 300
    plan.close()
    assert stub.graphs() == 0
    """
    run(code.replace("WAY", way))


def test_a_graph_is_an_updater_and_the_plans_edges():
    code = """
    parts = [
        kernel("a", (8,), block=(64, 2, 1), shared_bytes=1024),
        kernel("b", (8,), block=(128, 1, 1), cluster=(2, 1, 1)),
        kernel("c", (8,), pdl=True),
        kernel("d", (8,)),
    ]
    plan = device.plan(parts, after=[[], [], [0, 1], [1]], slots=4)
    assert stub.graph() == [
        "0 silo_plan_update block=512,1,1 shared=0 after=",
        "1 a block=64,2,1 shared=1024 updatable after=0",
        "2 b block=128,1,1 shared=0 updatable after=0 attribute4=2 attribute5=1",
        "3 c block=128,1,1 shared=0 updatable after=1,2",
        "4 d block=128,1,1 shared=0 updatable after=2",
    ], stub.graph()
    way, reason = plan.explain()
    assert way == "device" and "1 of 4 kernels run without programmatic dependent launch" in reason, reason
    # a program of a cluster is a grid of its blocks
    calls = [Call((3, 1, 1), (b"12345678",)) for _ in parts]
    plan.launch(calls)
    assert [grid for _, grid, _ in taken()] == [(3, 1, 1), (6, 1, 1), (3, 1, 1), (3, 1, 1)]
    plan.close()

    plan = device.plan(parts, after=[[], [], [0, 1], [1]], wanted=HOST)
    assert [line.split(" ", 1)[1] for line in stub.graph()] == [
        "a block=64,2,1 shared=1024 after=",
        "b block=128,1,1 shared=0 after= attribute4=2 attribute5=1",
        "c block=128,1,1 shared=0 after=0,1",
        "d block=128,1,1 shared=0 after=1",
    ], stub.graph()
    plan.close()
    """
    run(code)


@pytest.mark.parametrize("way", ["DEVICE", "HOST"])
def test_a_graph_among_the_kernels_runs_in_its_place_and_never_in_a_trial(way):
    code = """
    a, b, c = (kernel(name, (8, 4)) for name in "abc")
    fixed = Call((5, 1, 1), (b"constant", b"four"))
    captured = device.graph(b, fixed)
    before = stub.graphs()
    plan = device.plan([captured, a, captured, c], wanted=WAY)
    device.library.plan_release(captured.handle)  # the plan has its own
    assert plan.explain()[0] == {DEVICE: "device", HOST: "host"}[WAY], plan.explain()
    assert not taken()  # the trial ran no kernel and no graph
    lines = [line.split(" ", 1)[1] for line in stub.graph()][-4:]
    first = int(WAY == DEVICE)
    assert lines[0] == "graph nodes=1 after=" + ("0" if first else ""), lines
    assert lines[2] == f"graph nodes=1 after={first + 1}", lines
    assert lines[3].endswith(f"after={first + 2}"), lines
    for replay in range(30):
        calls = [Call((1 + replay, 1, 1), (bytes([replay]) * 8, b"abcd")) for _ in range(2)]
        if replay % 3 == 1:
            calls[1] = Call((0, 1, 1), calls[1].parameters)
        plan.set(1, calls[0])
        plan.set(3, calls[1])
        plan.launch()
        assert taken() == ran([fixed, calls[0], fixed, calls[1]], [b, a, b, c]), replay
    plan.close()
    device.plan([a], wanted=SINGLY).close()
    assert stub.graphs() == before - 1 == 0
    """
    run(code.replace("WAY", way))


def test_a_graph_among_the_kernels_needs_graphs():
    code = """
    a = kernel("a", (8,))
    captured = device.graph(a, Call((1, 1, 1), (b"12345678",)))
    with raises(45, "a plan with captured work (1 of its 2 nodes) needs a graph of the driver", "another way"):
        device.plan([a, captured], wanted=SINGLY)
    stub.fail("cuGraphAddChildGraphNode", 801, -1)
    with raises(45, "needs a graph of the driver", "(801)"):
        device.plan([a, captured])
    stub.fail_no_more()
    assert stub.graphs() == 1 and stub.count("streams") == 0
    """
    run(code)


def test_only_what_changes_is_updated():
    code = """
    parts = [kernel(f"k{i}", (8, 4)) for i in range(5)]
    plan = device.plan(parts)
    before = stub.updates()
    assert before == (5, 5, 5, 1) and not taken()  # the trial that no kernel runs in
    calls = [Call((2, 1, 1), (bytes([i]) * 8, b"abcd")) for i in range(5)]

    def updates():
        global before
        now = stub.updates()
        found = tuple(b - a for a, b in zip(before, now))
        before = now
        return found

    def replay():
        plan.launch(calls)
        assert taken() == ran(calls, parts)
        return updates()

    assert replay() == (5, 5, 5, 1)
    assert replay() == (0, 0, 0, 1)
    calls[3] = Call((9, 1, 1), calls[3].parameters)
    assert replay() == (1, 0, 0, 1)
    calls[0] = Call((2, 1, 1), (b"otherptr", b"abcd"))
    assert replay() == (0, 0, 1, 1)
    calls[2] = Call((0, 1, 1), (b"otherptr", b"dcba"))  # an empty grid: it is switched off, and the rest is kept
    assert replay() == (0, 1, 0, 1)
    assert replay() == (0, 0, 0, 1)
    calls[2] = Call((4, 1, 1), (b"otherptr", b"dcba"))
    assert replay() == (1, 1, 1, 1)
    assert plan.counts().updates == 5 + 1 + 1 + 1 + 1
    plan.close()
    """
    run(code)


def test_replays_queue_and_a_block_in_use_is_not_overwritten():
    code = """
    parts = [kernel(f"k{i}", (8, 4)) for i in range(3)]
    plan = device.plan(parts, slots=4, wait_ns=30_000_000)
    assert plan.counts().slots == 4
    queued = []
    stub.hold()
    for replay in range(4):
        calls = [Call((replay + 1, 1, 1), (bytes([replay, node]) * 4, b"abcd")) for node in range(3)]
        plan.launch(calls)
        queued += ran(calls, parts)
    assert not taken()
    calls = [Call((9, 1, 1), (b"fifth" + bytes([node]) * 3, b"efgh")) for node in range(3)]
    with raises(45, "4 replays of a plan are queued", "nothing was launched"):
        plan.launch(calls)
    stub.release(1)  # one block is free again
    plan.launch(calls)
    queued += ran(calls, parts)
    with raises(45, "4 replays of a plan are queued"):
        plan.launch(calls)
    assert stub.release() == 0
    assert taken() == queued
    plan.launch(calls)
    assert taken() == ran(calls, parts)
    plan.close()
    assert stub.count("streams") == 0 and stub.count("events") == 0
    """
    run(code)


def test_a_plan_that_is_closed_while_it_runs_keeps_what_it_reads():
    code = """
    parts = [kernel(f"k{i}", (8, 4)) for i in range(3)]
    kept = stub.count("allocations")
    plan = device.plan(parts)
    calls = [Call((1, 1, 1), (bytes([node]) * 8, b"abcd")) for node in range(3)]
    stub.hold()
    plan.launch(calls)
    plan.close()
    assert stub.count("allocations") > kept and not taken()
    stub.release()
    assert taken() == ran(calls, parts)
    device.plan(parts, wanted=HOST).close()  # the next plan gives back what the last one left
    assert stub.count("allocations") == kept, (stub.count("allocations"), kept)
    assert stub.graphs() == 0
    """
    run(code)


@pytest.mark.parametrize("replays", [2000, pytest.param(1_000_000, marks=pytest.mark.all)])
def test_replays_do_not_grow(replays):
    code = """
    import grown
    parts = [kernel(f"k{i}", (8, 4)) for i in range(3)]
    counted = ("modules", "allocations", "bytes", "events", "streams")
    plan = device.plan(parts)
    before = [stub.count(what) for what in counted]
    def run(count):
        for replay in range(count):
            plan.launch([Call((1 + replay % 3, 1, 1), (replay.to_bytes(8, "little"), b"abcd"))] * 3)
            log.clear()
    run(1000)
    memory, opened = grown.resident(), grown.descriptors()
    run(REPLAYS)
    assert [stub.count(what) for what in counted] == before
    assert grown.resident() - memory < 2 << 20 and grown.descriptors() == opened
    plan.close()
    for _ in range(20):
        plan = device.plan(parts)
        plan.launch([Call((1, 1, 1), (b"12345678", b"abcd"))] * 3)
        plan.close()
    after = [stub.count(what) for what in counted]
    assert [a <= b for a, b in zip(after, before)] == [True] * 5, (before, after)
    """
    run(code.replace("REPLAYS", str(replays)), timeout=1200)


# Every function of graphs, and the way that is left when it fails always; what an update refuses.
REFUSALS = [
    ("cuGraphCreate", "singly"),
    ("cuGraphAddKernelNode_v2", "singly"),
    ("cuGraphKernelNodeSetAttribute", "host"),
    ("cuGraphKernelNodeGetAttribute", "host"),
    ("cuGraphInstantiateWithFlags", "singly"),
    ("cuGraphUpload", "host"),
    ("cuGraphLaunch", "host"),
]


@pytest.mark.parametrize(("symbol", "way"), REFUSALS)
def test_what_the_driver_refuses_is_replaced_with_the_reason(symbol, way):
    code = f"""
    parts = [kernel(f"k{{i}}", (8, 4)) for i in range(3)]
    stub.fail({symbol!r}, 801, -1)
    plan = device.plan(parts)
    stub.fail_no_more()
    way, reason = plan.explain()
    assert way == {way!r} and "(801)" in reason, (way, reason)
    calls = [Call((1, 1, 1), (bytes([node]) * 8, b"abcd")) for node in range(3)]
    plan.launch(calls)
    assert taken() == ran(calls, parts)
    plan.close()
    device.plan(parts, wanted=SINGLY).close()
    assert stub.graphs() == 0 and stub.count("streams") == 0
    """
    run(code)


@pytest.mark.parametrize("field", [1, 2, 4])
def test_an_update_that_the_device_refuses_in_the_trial_is_made_from_the_host(field):
    code = f"""
    parts = [kernel(f"k{{i}}", (8, 4)) for i in range(3)]
    stub.refuse_update({field}, 77)
    plan = device.plan(parts)
    way, reason = plan.explain()
    assert way == "host" and "the device refuses an update of kernel k0 (77)" in reason, reason
    # Only a node that could not be switched off has run: with zeros.
    assert taken() == ([("k0", (1, 1, 1), (bytes(8), bytes(4)))] if {field} == 2 else [])
    calls = [Call((1, 1, 1), (bytes([node]) * 8, b"abcd")) for node in range(3)]
    plan.launch(calls)
    assert taken() == ran(calls, parts)
    plan.close()
    """
    run(code)


def test_an_update_that_fails_later_is_a_fault_of_the_device():
    code = """
    parts = [kernel(f"k{i}", (8, 4)) for i in range(3)]
    plan = device.plan(parts)
    calls = [Call((1, 1, 1), (bytes([node]) * 8, b"abcd")) for node in range(3)]
    plan.launch(calls)
    taken()
    stub.refuse_update(4, 77)
    plan.launch([Call((1, 1, 1), (b"otherptr", b"abcd"))] * 3)
    assert not taken()  # nothing of that replay ran with the parameters of an earlier one
    with raises(46, "update of node 0 failed on the device", "cudaError 77", "cuda:0"):
        plan.launch(calls)
    plan.close()
    """
    run(code)


@pytest.mark.parametrize("way", WAYS)
def test_a_grid_that_cannot_be_is_refused_before_anything_is_launched(way):
    code = """
    parts = [kernel(f"k{i}", (8, 4)) for i in range(3)]
    plan = device.plan(parts, wanted=WAY)
    calls = [Call((1, 1, 1), (bytes([node]) * 8, b"abcd")) for node in range(3)]
    plan.launch(calls)
    taken()
    with raises(28, "k2", "65535"):
        plan.launch([*calls[:2], Call((1, 65536, 1), calls[2].parameters)])
    assert not taken()
    changed = [Call((2, 1, 1), (b"otherptr", b"abcd"))] * 3
    plan.launch(changed)
    assert taken() == ran(changed, parts)
    plan.close()
    """
    run(code.replace("WAY", way))


@pytest.mark.parametrize("way", ["DEVICE", "HOST"])
def test_a_launch_that_fails_launches_nothing_and_the_next_one_is_whole(way):
    code = """
    parts = [kernel(f"k{i}", (8, 4)) for i in range(3)]
    plan = device.plan(parts, wanted=WAY)
    calls = [Call((1, 1, 1), (bytes([node]) * 8, b"abcd")) for node in range(3)]
    stub.fail("cuGraphLaunch", 1)
    with raises(45, "cannot launch a plan of 3 kernels (the first is k0)", "INVALID_VALUE"):
        plan.launch(calls)
    assert not taken()
    plan.launch()
    assert taken() == ran(calls, parts)
    plan.launch()
    assert taken() == ran(calls, parts)
    plan.close()
    """
    run(code.replace("WAY", way))


@pytest.mark.parametrize("symbol", ["cuGraphExecKernelNodeSetParams_v2", "cuGraphNodeSetEnabled"])
def test_a_node_that_the_host_cannot_update_is_named(symbol):
    code = f"""
    parts = [kernel(f"k{{i}}", (8, 4)) for i in range(3)]
    plan = device.plan(parts, wanted=HOST)
    calls = [Call((1, 1, 1), (bytes([node]) * 8, b"abcd")) for node in range(3)]
    stub.fail({symbol!r}, 1)
    with raises(45, "cannot update the node of kernel k0, number 0 of the 3 of a plan"):
        plan.launch(calls)
    assert not taken()
    plan.launch()
    assert taken() == ran(calls, parts)
    plan.close()
    """
    run(code)


def test_a_launch_one_by_one_that_fails_says_how_many_were_launched():
    code = """
    parts = [kernel("a", (8,)), kernel("b", (8,), directives={"max_threads": 128}), kernel("c", (8,))]
    plan = device.plan(parts, wanted=SINGLY)
    calls = [Call((1, 1, 1), (b"12345678",))] * 3
    stub.run("a", lambda launch: stub.fail("cuLaunchKernelEx", 1))
    with raises(45, "1 kernels were launched; cannot go on with the launch of kernel b, number 1 of the 3"):
        plan.launch(calls)
    plan.close()
    """
    run(code)


def test_what_a_driver_lacks_decides_the_way():
    old = """
    parts = [kernel("a", (8,))]
    plan = device.plan(parts)
    way, reason = plan.explain()
    assert (way, WORDS in reason) == (WAY, True), (way, reason)
    calls = [Call((1, 1, 1), (b"12345678",))]
    plan.launch(calls)
    assert taken() == ran(calls, parts)
    plan.close()
    """
    words = "'the driver is for CUDA 12.3, and kernels update nodes from 12.4 on'"
    run(old.replace("WAY", "'host'").replace("WORDS", words), STUB_CUDA_VERSION="12030")
    words = "'Silo makes no graphs with this cuda driver'"
    run(old.replace("WAY", "'singly'").replace("WORDS", words), "-DSTUB_NO_GRAPHS")


def test_a_cooperative_kernel_is_updated_from_the_host():
    code = """
    parts = [kernel("a", (8,)), kernel("b", (8,), cooperative=True)]
    plan = device.plan(parts)
    way, reason = plan.explain()
    assert way == "host" and "1 of 2 kernels are cooperative" in reason, reason
    assert stub.graph()[1].endswith("after=0 attribute2=1"), stub.graph()
    plan.close()
    """
    run(code)


def test_a_driver_without_cubins_compiles_the_text():
    code = """
    parts = [kernel("a", (8,))]
    # the stub's device is made one of an architecture without compiled code: the text is PTX, which it loads too
    loaded = stub.count("modules")
    plan = device.plan(parts)
    assert stub.count("modules") == loaded + 1
    way, reason = plan.explain()
    assert way == "host" and "does not confirm" not in reason, (way, reason)
    plan.close()
    """
    # The stub knows no parameters of such text, so the graph's first node cannot be made there.
    run(code, STUB_CUDA_VERSION="12080")


def test_a_stream_that_is_captured_is_refused():
    code = """
    parts = [kernel("a", (8,))]
    calls = [Call((1, 1, 1), (b"12345678",))]
    for way in (DEVICE, HOST):
        plan = device.plan(parts, wanted=way)
        stub.capture(4096)
        with raises(32, "cannot be replayed on a stream that is being captured", "the first is a"):
            plan.launch(calls, stream=4096)
        stub.capture(4096, 0)
        plan.launch(calls, stream=4096)
        assert taken() == ran(calls, parts)
        plan.close()
    """
    run(code)


def test_a_lost_context_ends_a_wait():
    code = """
    parts = [kernel("a", (8,))]
    plan = device.plan(parts, slots=1)
    calls = [Call((1, 1, 1), (b"12345678",))]
    stub.hold()
    plan.launch(calls)
    stub.fail("cuEventQuery", 719, -1)
    with raises(46, "a plan cannot go on", "LAUNCH_FAILED"):
        plan.launch(calls)
    stub.fail_no_more()
    stub.release()
    plan.close()
    """
    run(code)


def test_a_forked_child_is_refused_and_closes():
    code = """
    parts = [kernel("a", (8,))]
    plans = [device.plan(parts, wanted=way) for way in (DEVICE, HOST, SINGLY)]
    calls = [Call((1, 1, 1), (b"12345678",))]
    for plan in plans:
        plan.launch(calls)
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            for plan in plans:
                with raises(47, "made before fork()"):
                    plan.launch()
                plan.close()
            failed = 0
        finally:
            os._exit(failed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for plan in plans:
        plan.launch(calls)
        plan.close()
    """
    run(code)


def test_shapes_that_cannot_be_are_refused():
    code = """
    a = kernel("a", (8,))
    with raises(20, "no kernels on a GPU"):
        device.plan([])
    with raises(20, "waits for itself or a later one"):
        device.plan([a, a], after=[[1], []])
    """
    run(code)


@pytest.mark.parametrize("options", ["", "slots=1", "everything=1", "wanted=HOST"])
def test_random_replacements_compute_what_separate_launches_compute(options):
    code = """
    import plan_mix
    for name in plan_mix.FACTORS:
        stub.run(name, lambda launch, name=name: plan_mix.run_on_host(name, launch.grid, launch.parameters))
    wrong, plan = plan_mix.compare(device, REPLAYS, seed=3, nodes=7, elements=200, checks=8, OPTIONS)
    assert wrong == 0 and plan.counts().replays == REPLAYS
    plan.close()
    """
    replays = str(repetitions("SILO_TEST_REPLACEMENTS", 60, 10_000))
    run(code.replace("OPTIONS", options).replace("REPLAYS", replays), timeout=1200)


PYTHON = """
import ctypes, random
import numpy as np
import gpu_stub, plan_mix, silo
from gpu_stub import stub

for name in plan_mix.FACTORS:
    stub.run(name, lambda launch, name=name: plan_mix.run_on_host(name, launch.grid, launch.parameters))
kernels = plan_mix.declared()

def step(a, b, c, out, n, v):
    for index in range(20):
        kernels[index % 2](a, b, c, (b, c)[index % 2], out, n, v, index)

def view(buffer):
    return np.ctypeslib.as_array(ctypes.cast(buffer.address, ctypes.POINTER(ctypes.c_int32)), (2000,))

planned, single = ([silo.Buffer(2000, "int32", device="cuda") for _ in range(4)] for _ in range(2))
for one, other in zip(planned, single, strict=True):
    view(one)[:] = view(other)[:] = np.random.default_rng(1).integers(-99, 99, 2000)
plan = silo.plan(step, *planned, 2000, 3)  # which launches as ever
step(*single, 2000, 3)
dice = random.Random(3)
for replay in range(REPLAYS):
    n, rows = dice.choice((0, 1, 640, dice.randrange(2000))), dice.sample(range(4), 4)
    plan(*(planned[row] for row in rows), n, replay)
    step(*(single[row] for row in rows), n, replay)
    assert all((view(one) == view(other)).all() for one, other in zip(planned, single, strict=True)), replay
assert [form.way for form in plan.report().forms] == ["device"], str(plan.report())
"""


def test_a_plan_from_python_computes_what_its_calls_compute(tmp_path):
    replays = str(repetitions("SILO_TEST_REPLACEMENTS", 60, 10_000))
    gpu_stub.run(PYTHON.replace("REPLAYS", replays), SILO_HOME=str(tmp_path), timeout=1200)


@pytest.mark.parametrize("flags", [THREAD, ADDRESS], ids=["thread", "address"])
def test_plans_have_no_data_race_and_no_wrong_access(tmp_path, flags):
    words = (*flags, f"-I{NATIVE}", HERE / "graph_plan_check.c", archive(flags), "-ldl", "-lm", "-pthread")
    program = build_sanitized(tmp_path / "check", compiler("gcc"), *words)
    assert run_sanitized(program, gpu_stub.library()) == "done\n"


class Facts(ctypes.Structure):
    """``struct silo_plan_facts``."""

    _fields_ = (
        ("driver", ctypes.c_char_p),
        ("version", ctypes.c_int),
        ("graphs", ctypes.c_bool),
        ("kernels", ctypes.c_uint32),
        ("cooperative", ctypes.c_uint32),
        ("serialized", ctypes.c_uint32),
        ("places", ctypes.c_char_p),
        ("updater", ctypes.c_char_p),
        ("host", ctypes.c_char_p),
        ("wanted", ctypes.c_int),
    )


def choose(**facts):
    usual = {"driver": b"cuda", "version": 13000, "graphs": True, "kernels": 3}
    reason = ctypes.create_string_buffer(512)
    given = ctypes.byref(Facts(**{**usual, **facts}))
    way = graph_plans.trapping().silo_plan_mode_choose(given, reason, len(reason))
    return way, reason.value.decode()


@pytest.mark.parametrize(
    ("facts", "way", "words"),
    [
        ({}, 1, "one graph, its nodes updated on the device"),
        ({"serialized": 2}, 1, "2 of 3 kernels run without programmatic dependent launch"),
        ({"version": 12030}, 2, "the driver is for CUDA 12.3, and kernels update nodes from 12.4 on"),
        ({"version": 12030, "serialized": 2}, 2, "2 of 3 kernels run without programmatic dependent launch"),
        ({"cooperative": 1}, 2, "1 of 3 kernels are cooperative"),
        ({"places": b"gemm"}, 2, "the driver does not confirm where the parameters of gemm lie"),
        ({"updater": b"no PTX compiler"}, 2, "one graph, its nodes updated from the host: no PTX compiler"),
        ({"updater": b"no", "host": b"no graph"}, 3, "launched one by one: no graph"),
        ({"graphs": False}, 3, "launched one by one: Silo makes no graphs with this cuda driver"),
        ({"driver": b"hip", "graphs": False}, 3, "with this hip driver"),
        ({"wanted": 2}, 2, "another way was asked for"),
        ({"wanted": 3}, 3, "another way was asked for"),
    ],
)
def test_the_way_follows_from_facts(facts, way, words):
    found, reason = choose(**facts)
    assert found == way, reason
    assert words in reason
