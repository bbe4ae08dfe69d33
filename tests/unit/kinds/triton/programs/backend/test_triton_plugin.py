"""Triton's own calls on the CPU: kernels of a program that knows nothing of Silo, launched by ``kernel[grid]``."""
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false
# ruff: noqa: E402  # what follows needs Triton

import gc
import threading

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed")
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.language.extra import libdevice
from triton.runtime.driver import driver as active_driver
from triton.tools.tensor_descriptor import TensorDescriptor

from silo.drivers.cpu.levels import host_target
from silo.errors import ArgumentError, CheckError, CompileError, LaunchError, UnsupportedError
from silo.kinds.triton.programs.backend.compiler import CpuBackend
from silo.kinds.triton.programs.backend.driver import CpuDriver
from silo.launch.native import threads
from silo.settings import override


class Array:
    """The least that Triton takes for a tensor, over numpy's memory."""

    def __init__(self, data, device="cpu"):
        self.data = np.ascontiguousarray(data)
        self.dtype = self.data.dtype
        self.device = device
        self.shape = self.data.shape

    def data_ptr(self):
        return self.data.ctypes.data

    def stride(self, axis=None):
        strides = tuple(step // self.data.itemsize for step in self.data.strides)
        return strides if axis is None else strides[axis]

    def zero_(self):
        self.data[...] = 0


def normal(*shape):
    return Array(np.random.default_rng(7).standard_normal(shape).astype(np.float32))


def zeros(*shape, dtype=np.float32):
    return Array(np.zeros(shape, dtype))


@pytest.fixture(autouse=True)
def plugin(monkeypatch, tmp_path):
    """Silo's backend is Triton's active one, as where no GPU is."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    backend = triton.backends.Backend(CpuBackend, CpuDriver)
    monkeypatch.setitem(triton.backends.backends, "silo", backend)
    before = active_driver._active
    active_driver.set_active(CpuDriver())
    yield
    if before is None:  # from Triton 3.7 on, a compiled kernel that is freed asks the active driver
        gc.collect()
    active_driver._active = before


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def added(grid, n=1000, **options):
    x, y, out = normal(n), normal(n), zeros(n)
    kernel = add[grid](x, y, out, n, **options)
    np.testing.assert_array_equal(out.data, x.data + y.data)
    return kernel


# -- launches --------------------------------------------------------------------------------------------------------


def test_a_kernel_runs_natively():
    kernel = added((8,), BLOCK=128)
    assert list(kernel.asm) == ["source", "ttir", "c", "so"]
    assert kernel.asm["so"][:4] == b"\x7fELF"
    assert "tt.load" in kernel.asm["ttir"]
    assert kernel.metadata.target == GPUTarget("cpu", host_target().arch, 1)
    assert kernel.metadata.name == "add"


def test_a_grid_may_be_computed_from_the_arguments():
    added(lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),), BLOCK=256)


def test_what_is_compiled_once_is_launched_again_with_other_arrays():
    first = added((8,), BLOCK=128)
    assert added((8,), BLOCK=128) is first


def test_options_for_gpus_are_taken_and_lead_to_the_same_code():
    plain = added((8,), BLOCK=128)
    given = added((8,), BLOCK=128, num_warps=8, num_stages=1, num_ctas=2, maxnreg=64, waves_per_eu=2)
    assert given.asm["so"] == plain.asm["so"]
    assert (given.metadata.num_warps, plain.metadata.num_warps) == (8, 4)


@pytest.mark.parametrize("warps", [0, 3, 6.0])
def test_warps_are_counted_as_triton_counts_them(warps):
    """A program that asserts on it, or tries configs until none raises, meets the same as with a GPU."""
    with pytest.raises(AssertionError, match=f"num_warps must be a power of 2, not {warps}"):
        added((8,), BLOCK=128, num_warps=warps)


def test_fusing_can_be_switched_off():
    assert added((8,), BLOCK=128).metadata.enable_fp_fusion
    assert not added((8,), BLOCK=128, enable_fp_fusion=False).metadata.enable_fp_fusion


def test_an_unknown_option_is_an_error():
    with pytest.raises(KeyError, match="num_warp"):
        added((8,), BLOCK=128, num_warp=4)


def test_a_grid_without_programs_runs_nothing():
    out = zeros(4)
    add[(0,)](normal(4), normal(4), out, 4, BLOCK=4)
    assert not out.data.any()


@triton.jit
def programs(out):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    index = x + tl.num_programs(0) * (y + tl.num_programs(1) * z)
    tl.store(out + index, index + 1)


@pytest.mark.parametrize("count", [1, 3])
def test_every_program_runs_once_on_the_pool(count):
    out = zeros(5, 4, 3, dtype=np.int32)
    with threads(count):
        programs[(3, 4, 5)](out)
    np.testing.assert_array_equal(out.data.ravel(), np.arange(60) + 1)


def test_launches_from_several_threads():
    failures = []

    def work():
        try:
            for _ in range(20):
                added((8,), BLOCK=128)
        except BaseException as error:  # noqa: BLE001  # any failure is the test's
            failures.append(error)

    added((8,), BLOCK=128)
    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


# -- arguments -------------------------------------------------------------------------------------------------------


@triton.jit
def biased(x, bias, out, n: tl.constexpr):
    i = tl.arange(0, n)
    value = tl.load(x + i)
    if bias is not None:
        value += tl.load(bias + i)
    tl.store(out + i, value)


def test_none_is_a_constant():
    x, bias, out = normal(16), normal(16), zeros(16)
    biased[(1,)](x, None, out, 16)
    np.testing.assert_array_equal(out.data, x.data)
    biased[(1,)](x, bias, out, 16)
    np.testing.assert_array_equal(out.data, x.data + bias.data)


@triton.jit
def scaled_pair(pair, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, tl.load(pair[0] + i) * pair[1][0] + pair[1][1])


@pytest.mark.parametrize("scale", [3.0, 1, 5])
def test_tuples_are_taken_apart(scale):
    x, out = Array(np.arange(16, dtype=np.float32)), zeros(16)
    scaled_pair[(1,)]((x, (scale, 7)), out, 16)
    np.testing.assert_array_equal(out.data, x.data * scale + 7)


@triton.jit
def summed(out, a, b, c: tl.int64, d: tl.float16, e: tl.uint8, f: tl.uint64):
    tl.store(out, (a + b + c + e).to(tl.float64) + d.to(tl.float64) + f.to(tl.float64))


def test_scalars_of_every_width():
    out = zeros(1, dtype=np.float64)
    summed[(1,)](out, 2**40, True, -3, 0.5, 200, 2**63 + 2048)
    assert out.data[0] == float(2**40 + 1 - 3 + 200) + 0.5 + float(2**63 + 2048)


def test_a_value_outside_its_type_is_an_error():
    with pytest.raises(ArgumentError, match=r"summed.*'e'"):
        summed[(1,)](zeros(1, dtype=np.float64), 1, 1, 1, 0.5, 300, 1)


@triton.jit
def tile(descriptor, out, M: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + offsets, descriptor.load([8, 24]))


def test_tensor_descriptors_made_on_the_host():
    x, out = normal(32, 32), zeros(16, 16)
    tile[(1,)](TensorDescriptor(x, [32, 32], [32, 1], [16, 16]), out, 16, 16)
    expected = np.zeros((16, 16), np.float32)
    expected[:, :8] = x.data[8:24, 24:]
    np.testing.assert_array_equal(out.data, expected)


def test_memory_of_a_gpu_is_refused():
    x = Array(np.zeros(16, np.float32), device="cuda:0")
    with pytest.raises(ArgumentError, match=r"biased: argument 'x' is in memory of cuda"):
        biased[(1,)](x, None, x, 16)
    with pytest.raises(ArgumentError, match=r"'x' is on cpu:0 and 'out' on cuda:0"):
        biased[(1,)](zeros(16), None, x, 16)


def test_torch_tensors():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    small = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
    for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.uint16, *small):
        x = torch.arange(16).to(dtype)
        out = torch.zeros(16, dtype=dtype)
        biased[(1,)](x, None, out, 16)
        assert torch.equal(out.view(torch.uint8), x.view(torch.uint8)), dtype
    with pytest.raises(ArgumentError, match="on meta"):
        biased[(1,)](torch.empty(16, device="meta"), None, torch.empty(16), 16)
    assert active_driver.active.get_active_torch_device() == torch.device("cpu")


def test_a_reinterpreted_tensor_is_read_as_what_it_is_said_to_be():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, out = torch.randn(16), torch.zeros(16, dtype=torch.int32)
    biased[(1,)](triton.reinterpret(x, tl.int32), None, out, 16)
    assert torch.equal(out, x.view(torch.int32))
    bits, copied = torch.arange(256, dtype=torch.uint8), torch.zeros(256, dtype=torch.uint8)
    biased[(1,)](triton.reinterpret(bits, tl.float8e4b15), None, triton.reinterpret(copied, tl.float8e4b15), 256)
    assert torch.equal(copied, bits)


def test_an_array_that_may_only_be_read_is_not_written():
    class Frozen(np.ndarray):
        def data_ptr(self):
            return self.ctypes.data

    data = np.arange(16, dtype=np.float32).view(Frozen)
    data.flags.writeable = False
    out = zeros(16)
    biased[(1,)](data, None, out, 16)
    np.testing.assert_array_equal(out.data, data)
    with pytest.raises(ArgumentError, match=r"'out'.*read"):
        biased[(1,)](out, None, data, 16)


# -- the language ----------------------------------------------------------------------------------------------------


@triton.jit
def sines(x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, libdevice.tanh(tl.load(x + i)))


def test_libdevice():
    x, out = normal(64), zeros(64)
    sines[(1,)](x, out, 64)
    np.testing.assert_allclose(out.data, np.tanh(x.data), rtol=1e-6)


@triton.jit
def doubled(x: tl.const, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, 2 * tl.load(x + i))


def test_pointers_to_what_is_constant():
    x, out = normal(16), zeros(16)
    doubled[(1,)](x, out, 16)
    np.testing.assert_array_equal(out.data, 2 * x.data)


@triton.jit
def small_dot(x, y, out):
    i = tl.arange(0, 4)
    at = i[:, None] * 4 + i[None, :]
    tl.store(out + at, tl.dot(tl.load(x + at), tl.load(y + at), input_precision="ieee"))


def test_dots_may_be_small():
    x, y, out = normal(4, 4), normal(4, 4), zeros(4, 4)
    small_dot[(1,)](x, y, out)
    np.testing.assert_allclose(out.data, x.data @ y.data, rtol=1e-5, atol=1e-6)


@triton.jit
def assembled(out):
    value = tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [tl.load(out)], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out, value)


def test_what_the_cpu_cannot_express_is_one_error_with_places():
    with pytest.raises(UnsupportedError, match=r"(?s)kernel 'assembled'.*elementwise_inline_asm.*test_triton_plugin"):
        assembled[(1,)](zeros(1, dtype=np.int32))


def test_a_constexpr_that_is_missing_stays_tritons_error():
    with pytest.raises(TypeError, match="BLOCK"):
        add[(1,)](zeros(1), zeros(1), zeros(1), 1)


# -- around a launch -------------------------------------------------------------------------------------------------


@triton.jit
def filled(BLOCK: tl.constexpr, out, value):
    tl.store(out + tl.arange(0, BLOCK), value)


def test_a_compiled_kernel_wants_its_constexprs_too():
    out = zeros(16)
    compiled = filled[(1,)](16, out, 2.0)
    compiled[(1, 1, 1)](16, out, 3.0)
    assert (out.data == 3.0).all()
    with pytest.raises(LaunchError, match=r"filled was launched with 2 values.* out, value: .* constexprs too"):
        compiled[(1, 1, 1)](out, 3.0)


def test_warmup_compiles_and_runs_nothing():
    out = zeros(16)
    kernel = biased.warmup(zeros(16), None, out, 16, grid=(1,))
    assert kernel.asm["c"].startswith("/*") or "int32_t" in kernel.asm["c"]
    assert kernel.asm["so"]


def test_launch_hooks_see_the_kernel():
    seen = []
    hooks = triton.knobs.runtime

    def enter(metadata):
        seen.append(("enter", metadata.get()["name"]))

    def leave(_):
        seen.append("exit")

    hooks.launch_enter_hook.add(enter)
    hooks.launch_exit_hook.add(leave)
    try:
        added((8,), BLOCK=128)
    finally:
        hooks.launch_enter_hook.remove(enter)
        hooks.launch_exit_hook.remove(leave)
    assert seen == [("enter", "add"), "exit"]


def test_what_is_cached_is_loaded_and_not_compiled(monkeypatch):
    hits = []
    monkeypatch.setattr(triton.knobs.compilation, "listener", lambda **facts: hits.append(facts["cache_hit"]))

    def fresh():  # a function that has compiled nothing yet, of the same text
        again = triton.JITFunction(biased.fn)
        x, bias, out = normal(16), normal(16), zeros(16)
        again[(1,)](x, bias, out, 16)
        np.testing.assert_array_equal(out.data, x.data + bias.data)

    fresh()
    fresh()
    assert hits == [False, True]


def test_the_key_in_tritons_cache_names_level_and_compilers(monkeypatch):
    name = host_target().arch
    backend = CpuBackend(GPUTarget("cpu", name, 1))
    identity = backend.hash()
    assert name in identity
    other = "x86-64-v2" if name != "x86-64-v2" else "x86-64-v3"
    assert CpuBackend(GPUTarget("cpu", other, 1)).hash() != identity
    monkeypatch.setattr("silo.kinds.triton.cpu.cpu_identity.code_digest", lambda *_: "f" * 32)
    assert backend.hash() != identity


def test_a_level_can_be_compiled_for_ahead_of_time():
    source = triton.compiler.ASTSource(
        fn=add,
        signature={"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constexprs={"BLOCK": 64},
    )
    kernel = triton.compile(source, target=GPUTarget("cpu", "x86-64-v2", 1))
    assert kernel.metadata.target.arch == kernel.metadata.arch == "x86-64-v2"
    assert kernel.asm["so"][:4] == b"\x7fELF"


def test_a_file_of_ttir_can_be_compiled(tmp_path):
    file = tmp_path / "add.ttir"
    file.write_text(added((8,), BLOCK=128).asm["ttir"])
    kernel = triton.compile(str(file), target=GPUTarget("cpu", host_target().arch, 1))
    x, y, out = normal(1000), normal(1000), zeros(1000)
    kernel[8, 1, 1](x, y, out, 1000)
    np.testing.assert_array_equal(out.data, x.data + y.data)


def test_a_level_that_does_not_exist_is_named():
    with pytest.raises(Exception, match="x86-64-v9 names no CPU level"):
        CpuBackend(GPUTarget("cpu", "x86-64-v9", 1))


def test_a_kernel_that_was_kept_by_another_backend_is_refused():
    kernel = added((8,), BLOCK=128)
    launcher = active_driver.active.launcher_cls
    with pytest.raises(CompileError, match="not one of Silo's"):
        launcher(kernel.src, kernel.metadata._replace(silo_launch=None))
    shorter = {**kernel.metadata.silo_launch, "layout": kernel.metadata.silo_launch["layout"][:-1]}
    with pytest.raises((LaunchError, ValueError), match=r"compiled for the parameters|zip"):
        launcher(kernel.src, kernel.metadata._replace(silo_launch=shorter))


@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 256})], key=["n"], reset_to_zero=["out"]
)
@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})
@triton.jit
def accumulated(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i) if EVEN else tl.load(x + i, mask=i < n)
    tl.store(out + i, tl.load(out + i, mask=i < n) + value, mask=i < n)


@pytest.mark.parametrize("n", [512, 1000])
def test_autotune_and_heuristics(n):
    x, out = normal(n), zeros(n)
    accumulated[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    np.testing.assert_array_equal(out.data, x.data)
    assert accumulated.best_config in accumulated.configs
    assert all(times[0] > 0 for times in accumulated.configs_timings.values())


def test_programs_that_size_their_grid_by_the_device_find_numbers_to_divide_by():
    kernel = added((8,), BLOCK=128)
    kernel._init_handles()
    found = active_driver.active.utils.get_device_properties(active_driver.active.get_current_device())
    by_registers = found["max_num_regs"] // (kernel.n_regs * found["warpSize"])
    by_memory = found["max_shared_mem"] // kernel.metadata.shared
    assert found["multiprocessor_count"] * min(by_registers, by_memory) >= 1


def test_the_clock_of_benchmarks():
    interface = active_driver.active.get_device_interface()
    start, end = interface.Event(enable_timing=True), interface.Event(enable_timing=True)
    start.record()
    threading.Event().wait(0.02)
    end.record()
    interface.synchronize()
    assert 20 <= start.elapsed_time(end) < 5000
    assert interface.current_device() == active_driver.active.get_current_device()


@pytest.mark.parametrize(
    ("target", "pointer"),
    [
        (GPUTarget("cuda", 80, 32), "CUdeviceptr"),
        (GPUTarget("hip", "gfx942", 64), "hipDeviceptr_t"),
        (GPUTarget("cpu", host_target().arch, 1), "uintptr_t"),
    ],
    ids=["cuda", "hip", "cpu"],
)
def test_types_have_c_names_of_the_target_that_was_compiled_for(target, pointer):
    triton.compiler.make_backend(target)
    names = ["*fp32", "i1", "i8", "u16", "i32", "i64", "fp16", "bf16", "fp32", "fp64"]
    found = [active_driver.active.map_python_to_cpp_type(name) for name in names]
    assert found[:4] == [pointer, "int8_t", "int8_t", "uint16_t"]
    assert "float" in found
    assert not any(" " in name for name in found), "triton.tools.link leaves out parameters whose type has two words"


# -- checks ----------------------------------------------------------------------------------------------------------


@triton.jit
def add_too_far(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.device_assert(n > 0, "nothing to add")
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i), mask=i < n)


@triton.jit
def scale_rows(pair, n, BLOCK: tl.constexpr):
    rows = pair[0].load([0, 0])
    pair[1].store([n, 0], rows * 2)


@pytest.fixture
def checks(monkeypatch):
    with override(check=True):
        yield


@pytest.mark.usefixtures("checks")
def test_checks_of_plain_launches_find_what_is_wrong():
    n = 100
    x, y, out = normal(n), normal(n), zeros(n)
    with pytest.raises(
        CheckError, match=r"add_too_far: a load out of bounds at .*program \(3, 0, 0\), index \(4\)(?s:.*)byte 400 of y"
    ):
        add_too_far[(4,)](x, y, out, n, BLOCK=32)
    assert not out.data.any()
    with pytest.raises(CheckError, match="nothing to add"):
        add_too_far[(1,)](x, y, out, 0, BLOCK=32)
    add_too_far[(3,)](x, y, out, n, BLOCK=32)
    np.testing.assert_array_equal(out.data[:96], (x.data + y.data)[:96])


@pytest.mark.usefixtures("checks")
def test_checks_of_plain_launches_with_descriptors_in_a_tuple():
    x, out = normal(32, 16), zeros(32, 16)
    pair = tuple(TensorDescriptor(one, [32, 16], [16, 1], [16, 16]) for one in (x, out))
    scale_rows[(1,)](pair, 16, BLOCK=16)
    np.testing.assert_array_equal(out.data[16:], x.data[:16] * 2)
    assert not out.data[:16].any()


@pytest.mark.usefixtures("checks")
def test_a_clean_launch_leaves_what_an_ordinary_one_does():
    added((8,), BLOCK=128)


def test_kernels_compiled_without_checks_are_not_taken_for_checked_ones(monkeypatch):
    plain = CpuBackend(GPUTarget("cpu", host_target().arch, 1)).hash()
    with override(check=True):
        assert CpuBackend(GPUTarget("cpu", host_target().arch, 1)).hash() != plain
