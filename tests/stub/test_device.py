"""GPUs as devices: identity, facts, loading, buffers, timing."""
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false

import gc
import subprocess
import sys

import numpy as np
import pytest

import gpu_stub
import silo
from silo.artifacts.runs_on import runs_on
from silo.core.device import Target, place_of
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.protocols import Device
from silo.core.recipes import ArrayRecipe
from silo.errors import ArgumentError, CaseError, DeviceError, SettingsError
from silo.launch.array_libraries.library_table import default_library, materialize
from silo.launch.gpu import flush_bytes
from silo.launch.native import reserve_sms
from silo.machine import array_copies
from silo.machine.device_plugins import absent_devices, device_for, device_named, devices_of_kind
from silo.settings import override
from silo.tuner.measure import Contender, MeasurePolicy, measure


def test_identity_and_facts():
    device: Device = device_named("cuda:1")
    assert (str(device.target), device.index, device.model.vendor) == ("cuda:sm_90", 1, "nvidia")
    facts = device.facts()
    assert (facts["sm_count"], facts["warp_size"], facts["memory_bytes"]) == (132, 32, device.model.memory_bytes)
    assert device.runs(Target("cuda", "sm_90a"))
    assert not device.runs(Target("cuda", "sm_80"))
    assert bool(device.runs(Target("cuda", "sm_90"))) == bool(runs_on(Target("cuda", "sm_90"), device.target))
    assert device.model == device_named("cuda:0").model  # which one it is is not part of what it is
    assert str(device_named("hip").target) == "hip:gfx942"
    assert device_named("hip").facts()["warp_size"] == 64
    assert device_named("cuda:sm_90a").index == 0
    assert len(devices_of_kind("cuda")) == 2
    assert {kind for kind, _ in absent_devices()}.isdisjoint({"cpu", "cuda", "hip"})


def test_listing_makes_no_context_and_names_what_is_missing():
    code = """
        from silo.machine.device_plugins import all_devices, device_for
        from gpu_stub import stub
        assert len(all_devices()) >= 5
        assert stub.count("contexts") == 0
        try:
            device_for("k", (2, 9), lambda device: True)
        except Exception as error:
            assert "there is no cuda:9, only 2" in str(error), error
    """
    gpu_stub.run(code, devices=2)


def test_a_call_on_the_cpu_opens_no_driver():
    code = """
        import os, pathlib, silo
        from silo.machine.device_plugins import device_for
        stub = os.environ["SILO_TEST_STUB"]
        assert device_for("k", (0, 0), lambda device: True).target.kind == "cpu"
        silo.device("cpu")
        assert stub not in pathlib.Path("/proc/self/maps").read_text()
        silo.device("cuda")
        assert stub in pathlib.Path("/proc/self/maps").read_text()
    """
    gpu_stub.run(code)


def test_public_facts():
    info = silo.device("cuda:1")
    assert (info.name, info.arch, info.target, info.sm_count) == ("cuda:1", "sm_90", "cuda:sm_90", 132)
    assert info.shared_per_block_optin > info.shared_per_block
    assert silo.device("cuda", reserved_sms=8).num_sms == 124
    assert silo.device("cuda", reserved_sms=500).num_sms == 1
    assert silo.device("cuda", reserved_sms=-3).num_sms == 132
    assert silo.device().name == "cuda:0"
    assert {"cpu:0", "cuda:0", "cuda:1", "hip:0", "hip:1"} <= {one.name for one in silo.devices()}
    with pytest.raises(DeviceError, match="no device 'cuda:7'"):
        silo.device("cuda:7")


def test_reserved_multiprocessors_hold_for_grids():
    before = silo.device("hip:1")
    try:
        assert before.reserve(4).num_sms == before.sm_count - 4
        assert device_named("hip:1").facts()["num_sms"] == before.sm_count - 4
        assert device_named("hip:0").facts()["num_sms"] == before.sm_count
        assert silo.device("hip:1").reserved_sms == 4
        with pytest.raises(SettingsError, match="-1"):
            before.reserve(-1)
    finally:
        reserve_sms("hip", 1, 0)


def test_a_module_is_loaded_once_a_device_and_unloaded_with_its_last_kernel(stub):
    gc.collect()
    before = stub.count("modules")
    code = gpu_stub.text("first", "second")
    device, other = device_named("cuda:0"), device_named("cuda:1")
    kernels = [device.load(LaunchInfo(name, ()), code, "cubin", name) for name in ("first", "second", "first")]
    assert stub.count("modules") == before + 1
    kernels.append(other.load(LaunchInfo("first", ()), code, "cubin", "first"))
    assert stub.count("modules") == before + 2
    kernels.clear()
    gc.collect()
    assert stub.count("modules") == before


PTX = b"""// stub: params=8,4
.version 8.0
.target sm_90
.visible .entry k(.param .u64 .ptr .global .align 1 p, .param .u32 n)
{ ret; }
"""
POINTER, NUMBER = LayoutSlot("p", AbiType.POINTER), LayoutSlot("n", AbiType.I32)
LAYOUTS = {
    "one less": (POINTER,),
    "none": (),
    "one more": (POINTER, NUMBER, NUMBER),
    "larger": (POINTER, LayoutSlot("n", AbiType.I64)),
    "smaller": (LayoutSlot("p", AbiType.I8), NUMBER),
    "in another order": (NUMBER, POINTER),
}


@pytest.mark.parametrize("states", [True, False], ids=["the driver states them", "an older driver"])
def test_code_that_takes_other_parameters_is_not_loaded(stub, states):
    """The driver would read past the list of a launch, in this process: with a bundle that a stranger wrote."""
    device = device_named("cuda:0")
    if not states:
        stub.fail("cuFuncGetParamInfo", 801, -1)
    try:
        assert device.load(LaunchInfo("k", (POINTER, NUMBER)), PTX, "ptx", "k").parameters == (
            ((0, 8), (8, 4)) if states else None
        )
        for layout in LAYOUTS.values():
            with pytest.raises(DeviceError, match="mine on cuda:sm_90: k takes other parameters than the signature"):
                device.load(LaunchInfo("k", layout), PTX, "ptx", "mine")
        if not states:
            with pytest.raises(DeviceError, match="no device code"):
                device.load(LaunchInfo("k", ()), gpu_stub.text("k"), "ptx", "k")
    finally:
        stub.fail_no_more()


def test_what_cannot_be_loaded():
    device = device_named("cuda:0")
    with pytest.raises(DeviceError, match=r"k: cuda:sm_90 loads code of kind cubin or ptx, not 'hsaco'"):
        device.load(LaunchInfo("k", ()), b"x", "hsaco", "k")
    with pytest.raises(DeviceError, match="mine"):
        device.load(LaunchInfo("k", (), shared_bytes=1 << 20), gpu_stub.text("k"), "cubin", "mine")
    with pytest.raises(DeviceError, match="hsaco"):
        device_named("hip").load(LaunchInfo("k", ()), gpu_stub.text("k"), "cubin", "k")


def test_buffers_of_devices():
    buffer = silo.Buffer((2, 3), "float32", "cuda:1")
    assert (buffer.shape, buffer.strides, buffer.nbytes, buffer.device) == ((2, 3), (3, 1), 24, "cuda:1")
    assert buffer.data_ptr() % 256 == 0
    assert buffer.__dlpack_device__() == (2, 1)
    assert not buffer.numpy().any()
    buffer.copy_from(np.arange(6, dtype=np.float32).tobytes())
    assert buffer.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    buffer.numpy()[...] = 9  # a copy
    out = bytearray(24)
    buffer.copy_to(out)
    assert np.frombuffer(out, np.float32)[4] == 4
    other = silo.Buffer.of(bytes(24), "float32", (2, 3), "cuda:1")
    other.copy_from(buffer)
    assert (np.asarray(other) == buffer.numpy()).all()
    host = silo.Buffer((2, 3))
    host.copy_from(buffer)
    assert (host.numpy() == buffer.numpy()).all()
    host.fill(0)
    other.copy_from(host)
    assert not other.numpy().any()
    with pytest.raises(ArgumentError, match="24"):
        other.copy_from(bytes(20))
    assert repr(other) == "Buffer([2, 3], float32, cuda:1)"
    assert isinstance(other, silo.Buffer)
    with pytest.raises(AttributeError, match=r"on cuda:1 .* numpy\(\) and copy_to\(\)"):
        _ = other.raw
    for device in ("metal", "cuda:x", "cuda:-1"):
        with pytest.raises(ArgumentError, match="not on"):
            silo.Buffer(3, device=device)
    with pytest.raises(DeviceError, match="cuda:9"):
        silo.Buffer(3, device="cuda:9")


def test_copies_of_arrays_on_devices():
    buffer = silo.Buffer.of(np.arange(6, dtype=np.int16).tobytes(), "int16", (2, 3), "cuda:1")
    assert array_copies.is_array(buffer)
    np.testing.assert_array_equal(array_copies.to_host(buffer), [[0, 1, 2], [3, 4, 5]])
    copy = array_copies.duplicate(buffer)
    assert (copy.device, copy.shape, copy.dtype) == ("cuda:1", (2, 3), "int16")
    assert copy.data_ptr() != buffer.data_ptr()
    put_back = array_copies.restorer(buffer)
    buffer.fill(0xFF)
    assert (copy.numpy() == [[0, 1, 2], [3, 4, 5]]).all()
    put_back()
    assert (buffer.numpy() == copy.numpy()).all()
    narrow = silo.Buffer.of(bytes(range(8)), "bfloat16", None, "cuda:0")
    assert array_copies.host_bits(narrow).dtype == np.uint16


def test_arrays_of_cases_have_the_same_bytes_everywhere():
    for dtype in ("float32", "bfloat16", "bool", "int64"):
        recipe = ArrayRecipe.of(
            "zeros" if dtype == "bool" else "normal" if "float" in dtype else "zeros", (5, 7), dtype=dtype
        )
        host = materialize(recipe, "buffer")
        device = materialize(recipe, None, place_of(device_named("cuda:1")))
        assert device.device == "cuda:1"
        out = bytearray(host.nbytes)
        device.copy_to(out)
        assert bytes(out) == bytes(host.raw)
    assert default_library(place_of(device_named("cuda:0"))) == "buffer"
    with pytest.raises(CaseError, match="numpy has no arrays on cuda:0"):
        materialize(ArrayRecipe.of("zeros", (1,)), "numpy", place_of(device_named("cuda:0")))


def test_the_timer_counts_launches_only(stub):
    stub.cost("timed", 7_000)
    device = device_named("cuda:0")
    kernel = gpu_stub.launcher(device.load(LaunchInfo("timed", ()), gpu_stub.text("timed"), "cubin", "timed"))
    for state, timing in (("cold", "cuda-events-cold/1"), ("warm", "cuda-events-warm/1")):
        with override(l2=state):
            assert device.timing == timing
            timer = device.timer()
        before = stub.last("timed").count
        assert timer.elapsed_ns(kernel, 3) == 21_000
        assert stub.last("timed").count == before + 3


def test_a_cold_sample_is_one_launch_and_a_warm_one_many(stub):
    stub.cost("policy", 1_000)
    device = device_named("cuda:0")
    kernel = gpu_stub.launcher(device.load(LaunchInfo("policy", ()), gpu_stub.text("policy"), "cubin", "policy"))
    for state, samples, launches in (("cold", 100, 1), ("warm", 60, 200)):
        with override(l2=state):
            policy = MeasurePolicy.of(device.timing)
            before = stub.last("policy").count
            taken = measure(Contender(kernel), device.timer(), policy).samples
        assert taken == (1_000,) * samples
        assert stub.last("policy").count - before >= samples * launches
    assert MeasurePolicy.of("cuda-events-cold/1").identity != MeasurePolicy.of("cuda-events-warm/1").identity


def test_the_setting_names_the_state_of_the_cache():
    code = "from silo.machine.device_plugins import device_named; print(device_named('hip').timing)"
    assert gpu_stub.run(code, SILO_L2="warm").strip() == "hip-events-warm/1"
    assert gpu_stub.run(code).strip() == "hip-events-cold/1"


def test_the_flush_is_twice_the_cache():
    assert flush_bytes("cuda", 52_428_800) == 104_857_600
    assert flush_bytes("cuda", 0) > 0
    assert flush_bytes("hip", 4 << 20) == 512 << 20


def test_a_fault_while_timing_is_an_error(stub):
    device = device_named("cuda:0")
    timer = device.timer()
    timer.elapsed_ns(lambda: None, 1)
    stub.fail("cuEventSynchronize", 700)
    with pytest.raises(DeviceError, match="700"):
        timer.elapsed_ns(lambda: None, 1)


def test_without_a_driver_there_is_a_reason(tmp_path):
    code = """
        import silo, logging
        from silo.machine.device_plugins import absent_devices, broken_plugins, device_for
        from silo.commands.examine_machine import examine
        reasons = dict(absent_devices())
        assert set(reasons) >= {"cuda", "hip"}, reasons
        assert "SILO_CUDA_LIBRARY" in reasons["cuda"].reason
        assert broken_plugins() == ()
        (finding,) = [one for one in examine() if one.part == "device cuda"]
        assert finding.state == "optional", finding
        try:
            device_for("add", (2, 0), lambda device: True)
        except silo.SiloError as error:
            assert "add" in str(error) and "SILO_CUDA_LIBRARY" in str(error)
        assert silo.device().kind == "cpu"
    """
    gpu_stub.run(code, SILO_CUDA_LIBRARY=str(tmp_path / "none.so"), SILO_HIP_LIBRARY=str(tmp_path / "none.so"))


def test_grids_see_facts_of_the_device():
    from silo.core.expressions import Bindings, evaluate
    from silo.core.trace import trace_grid

    grid = trace_grid(
        lambda a: (min(a.sm_count - a.reserved_sms, silo.cdiv(a.n, a.BLOCK)), a.num_sms, a.l2_bytes), ["n"], ["BLOCK"]
    )
    facts = device_named("cuda").facts()
    bindings = Bindings(values={"n": 1 << 20}, config={"BLOCK": 128}, facts=facts)
    assert [evaluate(axis, bindings) for axis in grid] == [132, 132, 52_428_800]


def test_devices_of_other_libraries_say_why_they_are_absent():
    code = """
        import sys, silo
        for name in ("xpu", "mps", "mtia", "tpu"):
            try:
                silo.device(name)
            except silo.SiloError as error:
                print(name, error)
            else:
                print(name, "is here")
    """
    text = subprocess.run(
        [sys.executable, "-c", __import__("textwrap").dedent(code)],
        capture_output=True,
        text=True,
        check=True,
        env=gpu_stub.environment(),
    ).stdout
    assert text.count("\n") == 4


def test_a_call_that_has_no_gpu_names_kernel_and_place():
    with pytest.raises(DeviceError, match=r"add: its arrays are in memory of xpu \(DLPack device type 14\), which no"):
        device_for("add", (14, 0), lambda device: True)
