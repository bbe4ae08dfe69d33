"""The launch path against the stub of libcuda: bytes of every parameter, grids, streams, contexts, captures."""

import struct
import threading

import numpy as np
import pytest
from gpu_launchers import Array, binding, launcher, module

import gpu_stub
import launch_kernels as kernels
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.values import dtype
from silo.errors import ArgumentError, DeviceError, LaunchError
from silo.launch import native
from silo.launch.runtime import make_bound_launcher, make_launcher
from silo.launch.scratch import set_allocator

INTEGER, FLOAT, BOOL, POINTER = ParameterKind.INTEGER, ParameterKind.FLOAT, ParameterKind.BOOL, ParameterKind.POINTER
F32 = np.zeros(64, dtype=np.float32)


# ---- parameters ----


@pytest.mark.parametrize(
    ("abi", "kind", "name", "values"),
    [
        ("i8", INTEGER, "int8", {-128: "b", 127: "b", 1: "b"}),
        ("u8", INTEGER, "uint8", {0: "B", 255: "B"}),
        ("i16", INTEGER, "int16", {-32768: "h", 32767: "h"}),
        ("u16", INTEGER, "uint16", {65535: "H"}),
        ("i32", INTEGER, "int32", {-(2**31): "i", 2**31 - 1: "i"}),
        ("u32", INTEGER, "uint32", {2**32 - 1: "I"}),
        ("i64", INTEGER, "int64", {-(2**63): "q", 2**63 - 1: "q"}),
        ("u64", INTEGER, "uint64", {2**64 - 1: "Q", 0: "Q"}),
        ("i1", BOOL, "bool", {True: "?", False: "?"}),
        ("fp16", FLOAT, "float16", {0.1: "e", 65504.0: "e", -2.0: "e", float("inf"): "e"}),
        ("fp32", FLOAT, "float32", {0.1: "f", 1e-40: "f", -0.0: "f"}),
        ("fp64", FLOAT, "float64", {0.1: "d"}),
    ],
)
def test_scalars_by_the_exact_abi(stub, abi, kind, name, values):
    kernel = f"scalar_{abi}"
    launch, _ = launcher(kernel, ("ptr", abi), [Parameter("x"), Parameter("v", kind, dtype(name))])
    x = Array(F32)
    for value, code in values.items():
        launch[1](x, value)
        assert stub.last(kernel).parameters == (struct.pack("<Q", x.data_ptr()), struct.pack("<" + code, value))


def test_bfloat16_rounds_to_nearest_even(stub):
    launch, _ = launcher("scalar_bf16", ("ptr", "bf16"), [Parameter("x"), Parameter("v", FLOAT, dtype("bfloat16"))])
    for value, bits in ((1.0, 0x3F80), (1.00390625, 0x3F80), (1.01171875, 0x3F82), (-3.5, 0xC060)):
        launch[1](Array(F32), value)
        assert stub.last("scalar_bf16").parameters[1] == struct.pack("<H", bits)


def test_integers_that_do_not_fit(stub):
    x = Array(F32)
    for abi, name, bad in (("i8", "int8", 128), ("u8", "uint8", -1), ("i32", "int32", 2**31), ("u64", "uint64", 2**64)):
        launch, _ = launcher(f"range_{abi}", ("ptr", abi), [Parameter("x"), Parameter("v", INTEGER, dtype(name))])
        with pytest.raises(ArgumentError, match=f"range_{abi}: argument 'v' needs {name} in"):
            launch[1](x, bad)
        assert stub.last(f"range_{abi}").count == 0


def test_undeclared_integers_of_64_bits(stub):
    launch, asked = launcher("wide", ("ptr", "i64"))
    x = Array(F32)
    for value in (2**40, -(2**40), 2**63 + 5):
        launch[1](x, value)
        assert stub.last("wide").parameters[1] == struct.pack("<Q", value % 2**64)
    assert len(asked.calls) == 2  # int64 and uint64


def test_hidden_parameters_are_null_pointers(stub):
    launch, _ = launcher("hidden", ("ptr", "i32", "scratch", "profile"))
    launch[1](Array(F32), 5)
    assert stub.last("hidden").parameters[2:] == (bytes(8), bytes(8))


def test_a_struct_without_members_is_a_byte_of_zero(stub):
    launch, _ = launcher("emptied", ("ptr", "empty"), scratch_bytes=96)
    launch[1](Array(F32))
    assert stub.last("emptied").parameters[1] == bytes(1)


def test_none_and_addresses(stub):
    launch, _ = launcher("pointers", ("ptr", "ptr"), [Parameter("x"), Parameter("p", POINTER, dtype("float32"))])
    launch[1](Array(F32), None)
    assert stub.last("pointers").parameters[1] == bytes(8)
    launch[1](Array(F32), 0xDEADBEE0)
    assert stub.last("pointers").parameters[1] == struct.pack("<Q", 0xDEADBEE0)


def test_no_parameters_and_many(stub):
    x = Array(F32)
    launch, _ = launcher("many", ("ptr",) + ("i32",) * 200)
    launch[1](x, *range(200))
    assert stub.last("many").parameters[1:] == tuple(struct.pack("<i", i) for i in range(200))
    native_launch = make_bound_launcher(launch.name, binding("none", ()), Signature(()))
    native_launch[3]()
    assert stub.last("none").grid == (3, 1, 1)


# ---- grids and attributes ----


def test_grids(stub):
    launch, _ = launcher("grids", ("ptr",))
    x = Array(F32)
    for grid in ((2**31 - 1,), (1, 65535, 65535), (65536, 65535), 7):
        launch[grid](x)
        assert stub.last("grids").grid == tuple(grid if isinstance(grid, tuple) else (grid,)) + (1,) * (
            3 - (len(grid) if isinstance(grid, tuple) else 1)
        )
    count = stub.last("grids").count
    for grid in ((0,), (3, 0), (3, 3, 0)):
        launch[grid](x)
    for grid, axis, limit in (((2**31,), "x", 2**31 - 1), ((1, 65536), "y", 65535), ((1, 1, 2**33), "z", 65535)):
        with pytest.raises(ArgumentError, match=f"grids: grid .*dimension {axis} is limited to {limit}"):
            launch[grid](x)
    with pytest.raises(ArgumentError, match="negative"):
        launch[(-1,)](x)
    assert stub.last("grids").count == count


def test_clusters_multiply_the_grid(stub):
    launch, _ = launcher("clustered", ("ptr",), cluster=(4, 1, 1), block=(128, 1, 1), shared_bytes=1000)
    launch[(5, 2)](Array(F32))
    last = stub.last("clustered")
    assert (last.grid, last.block, last.shared) == ((20, 2, 1), (128, 1, 1), 1000)
    assert last.attributes[4] == (4, 1, 1)  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    assert last.attributes[5][0] == 1  # CLUSTER_SCHEDULING_POLICY_PREFERENCE: SPREAD
    with pytest.raises(ArgumentError, match=f"limited to {(2**31 - 1) // 4}"):
        launch[(2**30,)](Array(F32))


def test_grids_that_count_blocks_are_of_whole_clusters(stub):
    launch, _ = launcher("whole", ("ptr",), cluster=(4, 2, 1), counts_blocks=True)
    x = Array(F32)
    launch[(8, 2, 3)](x)
    last = stub.last("whole")
    assert (last.grid, last.attributes[4]) == ((8, 2, 3), (4, 2, 1))
    launch[(2**31 - 4, 2)](x)  # nothing is multiplied, so the device's own limits hold
    launch[(0, 1)](x)
    count = stub.last("whole").count
    for grid, said in (
        ((6, 2), r"the 6 blocks along x are no whole clusters of 4; round the grid up to a multiple of 4"),
        ((4, 3), r"the 3 blocks along y are no whole clusters of 2; .*or use a cluster that divides it"),
    ):
        with pytest.raises(ArgumentError, match=rf"whole: grid \({grid[0]}, {grid[1]}, 1\): {said}"):
            launch[grid](x)
    with pytest.raises(ArgumentError, match="limited to 65535"):
        launch[(4, 65536)](x)
    assert stub.last("whole").count == count
    alone, _ = launcher("alone", ("ptr",), counts_blocks=True)
    alone[(5, 3)](x)
    assert stub.last("alone").grid == (5, 3, 1)
    assert 4 not in stub.last("alone").attributes


def test_cooperative_and_dependent_launches(stub):
    launch, _ = launcher("both", ("ptr",), cooperative=True, pdl=True)
    launch[2](Array(F32))
    attributes = stub.last("both").attributes
    assert attributes[2][0] == 1  # COOPERATIVE
    assert attributes[6][0] == 1  # PROGRAMMATIC_STREAM_SERIALIZATION


# ---- devices ----


def test_each_device_has_its_own_code(stub):
    launch, asked = launcher("devices", ("ptr",))
    for index in (0, 1, 0, 1):
        launch[1](Array(F32, f"cuda:{index}"))
        assert stub.last("devices").device == index
    assert [call.device for call in asked.calls] == [(2, 0), (2, 1)]


def test_arrays_of_two_devices(stub):
    launch, _ = launcher("mixed", ("ptr", "ptr"))
    with pytest.raises(ArgumentError, match="mixed: argument 'p0' is on cuda:0 and 'p1' on cuda:1"):
        launch[1](Array(F32), Array(F32, "cuda:1"))
    with pytest.raises(ArgumentError, match=r"'p0' is on cuda:0 and 'p1' on cpu:0.*pinned"):
        launch[1](Array(F32), F32)
    assert stub.last("mixed").count == 0


def test_a_bound_launcher_stays_on_its_device(stub):
    guarded, _ = launcher("bound", ("ptr",))
    x = Array(F32)
    guarded[1](x)
    typed = Signature((Parameter("p0", POINTER, dtype("float32")),))
    bound = make_bound_launcher(guarded.name, guarded.resolve(x), typed)
    bound[1](x)
    with pytest.raises(ArgumentError, match="bound: argument 'p0' is on cuda:1, and this code is loaded on cuda:0"):
        bound[1](Array(F32, "cuda:1"))
    with pytest.raises(ArgumentError, match="bound: argument 'p0'"):
        bound[1](F32)
    assert stub.last("bound").count == 2


def test_pinned_host_memory_is_asked_about_at_every_call(stub):
    launch, asked = launcher("pinned", ("ptr", "ptr"))
    pinned, plain = np.zeros(64, dtype=np.float32), np.zeros(64, dtype=np.float32)
    stub.register(pinned.ctypes.data, pinned.nbytes)
    launch[1](Array(F32), pinned)
    launch[1](pinned, Array(F32))
    launch[1](np.zeros(0, dtype=np.float32), Array(F32))
    for arguments in ((Array(F32), plain), (plain, Array(F32))):
        with pytest.raises(ArgumentError, match="host memory beside a GPU's has to be pinned"):
            launch[1](*arguments)
    assert stub.last("pinned").count == 3
    assert {call.device for call in asked.calls} == {(2, 0)}


def test_calls_without_arrays_go_where_their_first_address_is(stub):
    typed = [Parameter(name, POINTER, dtype("float32")) for name in ("a", "b")]
    launch, asked = launcher("addresses", ("ptr", "ptr"), typed)
    here, there = (np.zeros(64, dtype=np.float32) for _ in range(2))
    stub.register(here.ctypes.data, here.nbytes, kind=2, device=0)
    stub.register(there.ctypes.data, there.nbytes, kind=2, device=1)
    for array, index in ((here, 0), (there, 1), (here, 0)):
        launch[1](None, array.ctypes.data)
        assert stub.last("addresses").device == index
    assert [call.device for call in asked.calls] == [(2, 0), (2, 1)]


def test_calls_with_nothing_to_go_by_use_the_current_device(stub):
    launch, asked = launcher("anywhere", ("i32",))
    module("anywhere", index=1)
    stub.set_context(stub.primary(1))
    launch[1](5)
    assert asked.calls[-1].device == (2, 1)
    stub.set_context(stub.primary(0))
    launch[1](5)
    assert asked.calls[-1].device == (2, 0)


def test_what_a_call_without_arrays_met_is_said(stub):
    on_the_cpu, _ = kernels.nothing("n")
    with pytest.raises(ArgumentError, match="nothing: a call without arrays goes to the current device, which is cuda"):
        on_the_cpu[1](5)
    here = binding("elsewhere", ("i32",))
    stub.set_context(stub.primary(1))
    launch = make_launcher("elsewhere", Signature((Parameter("n"),)), on_miss=lambda call: here)
    with pytest.raises(ArgumentError, match="which is cuda:1, and this code is loaded on cuda:0"):
        launch[1](5)
    stub.set_context(stub.primary(0))


# ---- contexts and threads ----


def test_a_thread_without_a_context(stub):
    launch, _ = launcher("threads", ("ptr",))
    x = Array(F32)
    launch[1](x)
    seen = []

    def work():
        seen.append(stub.context())
        launch[1](x)
        seen.append(stub.last("threads").context)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None, stub.primary(0)]


def test_another_current_context_is_put_back(stub):
    launch, _ = launcher("contexts", ("ptr",))
    x = Array(F32, "cuda:1")
    launch[1](x)
    stub.set_context(stub.primary(0))
    launch[1](x)
    assert stub.last("contexts").context == stub.primary(1)
    assert stub.context() == stub.primary(0)


def test_threads_on_two_devices(stub):
    launch, _ = launcher("crowd", ("ptr", "i32"))
    arrays = [Array(np.zeros(64, dtype=np.float32), f"cuda:{i}") for i in range(2)]
    wrong = []

    def body(last):
        address = struct.unpack("<Q", last.parameters[0])[0]
        if address != arrays[last.device].data_ptr():
            wrong.append(last)

    stub.run("crowd", body)

    def work(index):
        for n in range(300):
            launch[1](arrays[index], n)

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert stub.last("crowd").count == 1200


# ---- streams ----


class Holder:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    "stream",
    [
        0x77,
        Holder(cuda_stream=0x77),
        Holder(__cuda_stream__=lambda: (0, 0x77)),
        Holder(__cuda_stream__=(0, 0x77)),
        Holder(ptr=0x77),
        Holder(handle=0x77),
        Holder(handle=Holder(value=0x77)),
    ],
)
def test_explicit_streams(stub, stream):
    launch, _ = launcher("streams", ("ptr",))
    launch[1](Array(F32), stream=stream)
    assert stub.last("streams").stream == 0x77
    launch[1](Array(F32), stream=None)
    assert stub.last("streams").stream == 0
    launch[1](Array(F32), stream=Holder(handle=Holder(value=None)))
    assert stub.last("streams").stream == 0


@pytest.mark.parametrize("stream", ["side", 1.5, Holder(), object(), -(2**80), Holder(ptr="x")])
def test_what_is_no_stream(stub, stream):
    launch, _ = launcher("no_stream", ("ptr",))
    with pytest.raises(ArgumentError, match="no_stream: argument 'stream' needs a stream"):
        launch[1](Array(F32), stream=stream)
    assert stub.last("no_stream").count == 0


def test_a_registered_source_of_streams(stub):
    class Own(Array):
        pass

    launch, _ = launcher("source", ("ptr",))
    native.set_stream_source(Own, lambda index: 0x1000 + index)
    launch[1](Own(F32, "cuda:1"))
    assert stub.last("source").stream == 0x1001
    launch[1](Array(F32, "cuda:1"))
    assert stub.last("source").stream == 0

    def broken(index):
        raise RuntimeError(f"no stream on {index}")

    native.set_stream_source(Own, broken)
    with pytest.raises(RuntimeError, match="no stream on 1"):
        launch[1](Own(F32, "cuda:1"))


# ---- captures ----


def test_a_hit_is_captured_and_its_code_stays(stub):
    x, stream = Array(F32), native.GpuStream("cuda", 0)
    launch, _ = launcher("captured", ("ptr",))
    other, _ = launcher("not_captured", ("ptr",))
    for one in (launch, other):
        one[1](x, stream=stream)
    stub.capture(stream.handle)
    launch[1](x, stream=stream)
    stub.capture(stream.handle, 0)
    before = stub.count("modules")
    launch.forget()
    del launch, _
    assert stub.count("modules") == before
    other.forget()
    del other, one
    assert stub.count("modules") == before - 1


def test_a_miss_during_a_capture(stub):
    launch, asked = launcher("missed", ("ptr",))
    stream = native.GpuStream("cuda", 0)
    stub.capture(stream.handle)
    for call in (lambda: launch[1](Array(F32), stream=stream), lambda: launch.resolve(Array(F32), stream=stream)):
        with pytest.raises(LaunchError, match=r"missed is called in a way .* captured .* missed\.warmup"):
            call()
    assert asked.calls == []
    stub.capture(stream.handle, 0)
    launch[1](Array(F32), stream=stream)
    stub.capture(stream.handle)
    launch[1](Array(F32), stream=stream)
    stub.capture(stream.handle, 0)
    assert stub.last("missed").count == 2
    assert stub.count("broken") == 0


# ---- scratch memory ----


def test_scratch_memory_is_taken_for_every_program(stub):
    asked = []

    class Memory:
        address = 0x7000_0000

    def allocate(size, alignment, stream, device):
        asked.append((size, alignment, stream, device))
        return Memory()

    launch, _ = launcher(
        "scratch", ("ptr", "scratch", "profile"), scratch_bytes=96, scratch_align=128, profile_bytes=16, profile_align=8
    )
    set_allocator(allocate)
    try:
        launch[(3, 5)](Array(F32, "cuda:1"), stream=0x99)
    finally:
        set_allocator(None)
    assert asked == [(96 * 15, 128, 0x99, "cuda:1"), (16 * 15, 8, 0x99, "cuda:1")]
    assert stub.last("scratch").parameters[1:] == (struct.pack("<Q", 0x7000_0000),) * 2


def test_allocators_that_do_not_keep_their_word(stub):
    launch, _ = launcher("bad_scratch", ("ptr", "scratch"), scratch_bytes=8, scratch_align=64)

    class Memory:
        def __init__(self, address):
            self.address = address

    for given, message in (
        (Memory(0x1008), "at a multiple of 64 bytes; the allocator gave"),
        (Memory(0), "the allocator gave"),
        (None, "the allocator gave a NoneType"),
    ):
        set_allocator(lambda *_, given=given: given)
        try:
            with pytest.raises(LaunchError, match=message):
                launch[1](Array(F32))
        finally:
            set_allocator(None)
    big, _ = launcher("big_scratch", ("ptr", "scratch"), scratch_bytes=2**40)
    with pytest.raises(ArgumentError, match=r"more than 2\^63 bytes"):
        big[(2**31 - 1,)](Array(F32))
    assert stub.last("bad_scratch").count == 0


def test_silos_own_scratch_buffers_are_reused(stub):
    launch, _ = launcher("own_scratch", ("ptr", "scratch"), scratch_bytes=64, scratch_align=16)
    x = Array(F32)
    addresses = []
    for grid in (4, 4, 2):
        launch[grid](x)
        addresses.append(struct.unpack("<Q", stub.last("own_scratch").parameters[1])[0])
    assert len(set(addresses)) == 1
    allocations = stub.count("allocations")
    launch[400](x)
    assert stub.count("allocations") == allocations
    launch[400](x, stream=native.GpuStream("cuda", 0))
    assert stub.count("allocations") == allocations + 1


# ---- errors ----


def test_errors_of_the_driver(stub):
    launch, _ = launcher("failing", ("ptr",), config={"BLOCK": 64})
    x = Array(F32)
    launch[1](x)
    for code, name in ((1, "CUDA_ERROR_INVALID_VALUE"), (719, "CUDA_ERROR_LAUNCH_FAILED")):
        stub.fail("cuLaunchKernelEx", code)
        with pytest.raises(LaunchError, match=rf"failing: {name}.*\(code {code}\).*grid=\(3, 1, 1\).*'BLOCK': 64"):
            launch[3](x)
    stub.fail("cuLaunchKernelEx", 700)
    with pytest.raises(LaunchError, match="earlier kernel"):
        launch[3](x)


def test_code_that_asks_for_too_much(stub):
    with pytest.raises(DeviceError, match="232449"):
        binding("too_much_shared", ("ptr",), shared_bytes=232449)
    binding("just_enough", ("ptr",), shared_bytes=232448)
    assert stub.last("just_enough").max_dynamic == 232448
    with pytest.raises(DeviceError, match="1056"):
        binding("too_many_threads", ("ptr",), block=(1056, 1, 1))


# ---- other lives of a launcher ----


def test_hooks_see_stream_and_device(stub):
    from silo.launch.hooks import launch_hook

    launch, _ = launcher("hooked", ("ptr",))
    events = []
    with launch_hook(events.append):
        launch[2](Array(F32, "cuda:1"), stream=0x55)
    assert (events[0].device, events[0].stream, events[0].grid) == ("cuda:1", 0x55, (2, 1, 1))
    assert stub.last("hooked").count == 1


def test_code_is_shared_and_unloaded_with_its_last_user(stub):
    before = stub.count("modules")
    code = module("shared_a", "shared_b")
    a, b = native.LoadedKernel(code, "shared_a"), native.LoadedKernel(code, "shared_b")
    del code, a
    assert stub.count("modules") == before + 1
    del b
    assert stub.count("modules") == before


def test_hip_gets_its_trailing_pointers(stub):
    asked = []

    def on_miss(call):
        asked.append(call.device)
        return made

    made = binding("amd", ("ptr", "i32", "scratch", "profile"), kind="hip", block=(256, 1, 1))
    stub.parameters("amd", 8, 4, 8, 8)
    launch = make_launcher("amd", Signature((Parameter("x"), Parameter("n"))), on_miss=on_miss)

    x = Array(F32, "cuda:0")
    del x
    buffer = native.GpuBuffer((64,), "float32", "hip", 0)
    launch[3](buffer, 7)
    last = stub.last("amd")
    assert asked == [(10, 0)]
    assert (last.grid, last.block) == ((3, 1, 1), (256, 1, 1))
    assert last.parameters == (struct.pack("<Q", buffer.address), struct.pack("<i", 7), bytes(8), bytes(8))


# ---- calls without arrays ----

PLACED = """
    from silo.core.signature import Parameter, ParameterKind, Signature
    from silo.launch.runtime import inspect_call, make_launcher

    seen = []

    def on_miss(call):
        seen.append(call.device)
        raise LookupError("seen")

    signature = Signature((Parameter("n", ParameterKind.INTEGER),))
    launch = make_launcher("count", signature, on_miss=on_miss, grid=(1,))

    def ask(way):
        if way == "explain":
            return inspect_call(launch, signature, 5).device
        try:
            launch.resolve(5) if way == "bind" else launch(5)
        except LookupError:
            return seen[-1]
"""


@pytest.mark.parametrize("way", ["bind", "call", "explain"])
def test_a_call_without_arrays_goes_to_the_current_gpu_or_else_the_first(way):
    """Whoever asks, and whether or not anything opened the driver or made a context before."""
    gpu_stub.run(PLACED + f"    assert ask({way!r}) == (2, 0), seen")
    gpu_stub.run(
        PLACED
        + f"""
    from silo.launch.native import open_driver
    open_driver("cuda")
    assert ask({way!r}) == (2, 0), seen
    import gpu_stub
    gpu_stub.stub.set_context(gpu_stub.stub.other_context(1))
    assert ask({way!r}) == (2, 1), seen
    """,
        devices=2,
    )


@pytest.mark.parametrize("way", ["bind", "call", "explain"])
def test_a_call_without_arrays_goes_to_the_cpu_where_no_gpu_is(way):
    gpu_stub.run(PLACED + f"    assert ask({way!r}) == (0, 0), seen", SILO_CUDA_LIBRARY="none", SILO_HIP_LIBRARY="none")
