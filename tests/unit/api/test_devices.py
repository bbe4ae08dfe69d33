import subprocess
import sys
from types import SimpleNamespace

import pytest

import silo
from silo.core.decisions import Rejected
from silo.core.device import HOST_MEMORY, Memory, Target, available_sms, drivers
from silo.core.expressions import Bindings, evaluate
from silo.core.plugins import shipped_places
from silo.core.trace import trace_grid
from silo.errors import DeviceError, TraceError
from silo.launch.arguments import read_call
from silo.launch.buffers import split_device
from silo.launch.native import reserve_sms
from silo.machine import device_info, device_plugins


def test_listing_the_cpu_loads_no_framework_and_no_gpu_code():
    code = (
        "import sys, silo; silo.device('cpu'); from silo.machine.device_plugins import device_for;"
        "device_for('k', (0, 0), lambda device: True);"
        "print([name for name in ('torch', 'jax', 'numpy', 'silo.drivers.cuda.cuda_device') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_cpu():
    cpu = silo.device("cpu")
    assert (cpu.kind, cpu.index, cpu.warp_size) == ("cpu", 0, 1)
    assert cpu.target == str(device_plugins.device_named("cpu").target)
    assert cpu.shared_per_block is None
    assert cpu in silo.devices()
    with pytest.raises(DeviceError, match=r"no device 'warp'.*\n  - cpu:0"):
        silo.device("warp")


def test_available_multiprocessors():
    assert [available_sms(132, n) for n in (-1, 0, 8, 131, 132, 500)] == [132, 132, 124, 1, 1, 1]


def test_reserved_cores_are_facts_of_grids():
    device = device_plugins.device_named("cpu")
    grid = trace_grid(lambda a: (a.num_sms, a.sm_count - a.reserved_sms), [], [])
    try:
        silo.device("cpu").reserve(1)
        facts = device.facts()
        assert facts["num_sms"] == max(facts["sm_count"] - 1, 1)
        values = [evaluate(axis, Bindings(facts=facts)) for axis in grid]
        assert values == [facts["num_sms"], facts["sm_count"] - 1]
    finally:
        reserve_sms("cpu", 0, 0)


def test_arguments_and_constexprs_hide_facts():
    (axis,) = trace_grid(lambda a: (a.num_sms,), ["num_sms"], [])
    assert evaluate(axis, Bindings(values={"num_sms": 7}, facts={"num_sms": 1})) == 7
    (axis,) = trace_grid(lambda a: (a.device.num_sms,), ["num_sms"], [])
    assert evaluate(axis, Bindings(values={"num_sms": 7}, facts={"num_sms": 1})) == 1
    with pytest.raises(TraceError, match=r"device facts such as a\.sm_count"):
        trace_grid(lambda a: (a.sm_counts,), ["n"], [])


def test_names_of_places():
    names = ("cpu", "cuda", "cuda:1", "hip:12")
    assert [split_device(name) for name in names] == [("cpu", 0), ("cuda", 0), ("cuda", 1), ("hip", 12)]


def test_a_broken_plugin_is_told_from_an_absent_gpu(monkeypatch):
    def nothing_here():
        raise DeviceError("no driver")

    def oops():
        raise ZeroDivisionError("oops")

    plugged(monkeypatch, absent=nothing_here, npu=oops, gone="a_module_that_is_not_there:devices")
    assert ("absent", Rejected("no driver")) in device_plugins.absent_devices()
    assert dict(device_plugins.broken_plugins()) == {
        "npu": Rejected("ZeroDivisionError: oops"),
        "gone": Rejected("ModuleNotFoundError: No module named 'a_module_that_is_not_there'"),
    }


def test_calls_without_arrays_prefer_gpus():
    preferred = {one.preference: one.kind for one in drivers() if one.preference is not None}
    assert [preferred[place] for place in sorted(preferred)] == ["cuda", "hip", "cpu"]


def test_only_the_driver_of_a_memory_is_read_for_it():
    assert [device_plugins._owners(memory) for memory in (1, 2, 3, 13, 10, 11, 8, 12, 99)] == [
        *(("cpu",), *[("cuda",)] * 3, *[("hip",)] * 2, (), (), ())
    ]


# ---- where a call runs ----


class Toy:
    """A device of somebody else's."""

    index = 0

    def __init__(self, *memory, kind="toy"):
        self.memory, self.target = Memory(memory), Target("fake", kind)


@pytest.fixture(autouse=True)
def _forget_plugins():
    yield
    device_plugins._listed_devices.cache_clear()


def plugged(monkeypatch, **plugins):
    """Plug-ins besides Silo's own: functions, or the place where one should be."""
    places = {name: one if isinstance(one, str) else f"silo_test_plugins:{name}" for name, one in plugins.items()}
    monkeypatch.setitem(sys.modules, "silo_test_plugins", SimpleNamespace(**plugins))
    own = dict(shipped_places("silo.devices"))
    monkeypatch.setattr(device_plugins, "_plugins", lambda: own | places)
    device_plugins._listed_devices.cache_clear()


def test_memory_and_kind_choose_the_device(monkeypatch):
    host, metal = Toy(HOST_MEMORY), Toy(8)
    plugged(monkeypatch, toy=lambda: [host], apple=lambda: [metal])
    cpu = device_plugins.device_named("cpu")
    for place in ((0, 0), (1, 0), (1, 7)):
        assert device_plugins.device_for("k", place, lambda _: True) is cpu
        assert device_plugins.device_for("k", place, lambda device: device is host) is host
        # Nothing has code for it: the memory's own device is where it is missed.
        assert device_plugins.device_for("k", place, lambda _: False) is cpu
    assert device_plugins.device_for("k", (8, 0), lambda _: False) is metal
    with pytest.raises(DeviceError, match=r"k: its arrays are in memory of metal \(DLPack device type 8\), which no"):
        device_plugins.device_for("k", (8, 1), lambda _: True)


def test_entry_points_are_not_read_where_a_device_of_silos_own_serves(monkeypatch):
    monkeypatch.setattr(device_plugins, "_plugins", lambda: pytest.fail("they were read"))
    assert device_plugins.device_for("k", (0, 0), lambda _: True).target.kind == "cpu"


def test_a_device_that_is_insisted_on_takes_the_memory():
    cpu = device_plugins.device_named("cpu")
    for place in ((0, 0), (1, 0), (1, 3)):
        device_plugins.require_memory("k", cpu, place)
    with pytest.raises(DeviceError, match=r"k: its arrays are in memory of cuda:1, .* cpu:0, which takes .* cpu$"):
        device_plugins.require_memory("k", cpu, (2, 1))
    with pytest.raises(DeviceError, match="rocm:1"):
        device_plugins.require_memory("k", Toy(10), (10, 1))


def test_a_call_without_arrays_runs_where_it_is_told():
    place = (2, 1)  # a GPU is current
    facts = ((4, 0, 32, 0, -1, None),)
    call = read_call("k", ("n",), (facts, (3,), {}, place, None))
    assert (call.device, call.memory) == (place, (0, 0))
    device_plugins.require_memory("k", device_plugins.device_named("cpu"), call.memory)
    given = read_call("k", ("x",), (((2, 0, 0, 1, -1, None),), (4096,), {}, place, None))
    assert given.memory == place  # an address lies somewhere


# ---- devices that other libraries know ----


def fake(monkeypatch, name, **members):
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(__version__="9", **members))


def test_an_xpu(monkeypatch):
    properties = SimpleNamespace(
        name="Arc", gpu_subslice_count=64, sub_group_sizes=[16, 32], max_work_group_size=1024, total_memory=1 << 34
    )
    xpu = SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 2, get_device_properties=lambda index: properties
    )
    fake(monkeypatch, "torch", xpu=xpu, backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: False)))
    info = silo.device("xpu:1")
    assert (info.name, info.sm_count, info.warp_size, info.memory_bytes) == ("xpu:1", 64, 32, 1 << 34)
    assert silo.device("xpu:1", reserved_sms=4).num_sms == 60
    with pytest.raises(DeviceError, match=r"no device 'xpu:2': torch 9 sees 2 xpu devices"):
        silo.device("xpu:2")
    assert [one.name for one in device_info.devices() if one.kind == "xpu"] == ["xpu:0", "xpu:1"]


def test_mtia_and_mps(monkeypatch):
    grid = SimpleNamespace(max_grid_height=8, max_grid_width=8)
    mtia = SimpleNamespace(is_available=lambda: True, device_count=lambda: 1, get_device_properties=lambda index: grid)
    mps = SimpleNamespace(is_available=lambda: True, get_name=lambda: "M9", get_core_count=lambda: 40)
    fake(
        monkeypatch,
        "torch",
        mtia=mtia,
        mps=SimpleNamespace(recommended_max_memory=lambda: 99),
        backends=SimpleNamespace(mps=mps),
    )
    assert silo.device("mtia").sm_count == 64
    assert (silo.device("mps").model, silo.device("mps").sm_count, silo.device("mps").memory_bytes) == ("M9", 40, 99)
    del grid.max_grid_width
    with pytest.raises(DeviceError, match="it says max_grid_height"):
        silo.device("mtia")


def test_a_tpu(monkeypatch):
    chip = SimpleNamespace(device_kind="TPU v5e", num_cores=1, memory_stats=lambda: {"bytes_limit": 16})
    fake(monkeypatch, "jax", devices=lambda kind: [chip])
    info = silo.device("tpu")
    assert (info.arch, info.sm_count, info.memory_bytes, info.target) == ("v5e", 1, 16, None)

    def none(kind):
        raise RuntimeError("Unknown backend tpu")

    fake(monkeypatch, "jax", devices=none)
    with pytest.raises(DeviceError, match="jax 9 sees no tpu devices"):
        silo.device("tpu")


def test_reserving_reaches_kernels_that_were_called_before(tmp_path):
    pytest.importorskip("triton", reason="this test compiles a Triton kernel")
    import numpy as np
    import triton
    import triton.language as tl

    from silo.settings import override

    @triton.jit
    def fill(x, n, BLOCK: tl.constexpr = 64):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, 1.0, mask=i < n)

    grids = []
    with override(home=str(tmp_path), tune="off"), silo.launch_hook(lambda event: grids.append(event.grid[0])):
        kernel = silo.kernel(grid=lambda a: (a.reserved_sms + 1,))(fill)
        x = np.zeros(64, dtype=np.float32)
        try:
            kernel(x, 64)
            bound = kernel.bind(x, 64)
            silo.device("cpu").reserve(2)
            kernel(x, 64)
            bound(x, 64)
        finally:
            reserve_sms("cpu", 0, 0)
        kernel(x, 64)
    assert grids == [1, 3, 1, 1]


@pytest.mark.parametrize("made", ["mps:0", "meta"])
def test_an_array_in_unknown_memory_is_an_error_of_the_call(tmp_path, made):
    pytest.importorskip("triton", reason="this test has a Triton kernel")
    import triton
    import triton.language as tl

    from silo.settings import override

    @triton.jit
    def fill(x, n, BLOCK: tl.constexpr = 64):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, 1.0, mask=i < n)

    class Elsewhere:
        dtype, device = "float32", made

        def data_ptr(self):
            return 64

    with override(home=str(tmp_path), tune="off"), pytest.raises(DeviceError, match="fill: its arrays are in memory"):
        silo.kernel(grid=lambda a: (1,))(fill)(Elsewhere(), 64)
