"""Packages of AOTInductor with kernels for the CPU: a launcher for each in torch's ABI."""
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false

import ctypes
import importlib
import os
import subprocess
import sys

import pytest
import triton

from silo.core.launch_info import AbiType, LaunchInfo
from silo.errors import UnsupportedError
from silo.kinds.triton.programs.backend.aot_launcher import launcher_object, launcher_text

torch = pytest.importorskip("torch", reason="torch is not installed")

from triton.backends import Backend, backends  # noqa: E402

from packaged_models import Model, Plain, Tuned, running, scaled, wanted  # noqa: E402
from silo.kinds.triton.programs.backend.named_cpu.compiler import NamedCpuBackend  # noqa: E402
from silo.kinds.triton.programs.backend.named_cpu.driver import NamedCpuDriver  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.mark.all
@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the ABI is torch 2.13's")
def test_a_package_with_kernels_runs_on_the_cpu(tmp_path, on_cpu):
    x, y = torch.randn(3, 50), torch.randn(3, 50)
    result = wanted(Model(), x, y)
    exported = torch.export.export(Model(), (x, y), strict=True)
    path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
    loaded = torch._inductor.aoti_load_package(path)
    torch.testing.assert_close(loaded(x, y), result, rtol=1e-4, atol=1e-4)
    from silo.integrations.torch.aoti import state

    assert state()
    torch.save({"args": [x, y], "wanted": result}, tmp_path / "arrays.pt")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.stdout.strip() == "equal", done.stderr[-3000:]


@pytest.fixture
def on_cpu(monkeypatch):
    """Triton's kernels are compiled for the CPU by Silo, in this process."""
    from torch.utils import _triton

    monkeypatch.setitem(backends, "cpu", Backend(NamedCpuBackend, NamedCpuDriver))
    _triton.has_triton.cache_clear()
    config = importlib.import_module("torch._inductor.config")
    with config.patch({"compile_threads": 1, "aot_inductor.compile_wrapper_opt_level": "O0"}):  # torch's own C++
        yield
    _triton.has_triton.cache_clear()


# The kind: the grid in a package depends on the chosen config, for any number of axes, for fixed and dynamic sizes.
@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the ABI is torch 2.13's")
@pytest.mark.parametrize("dynamic", [pytest.param(False, marks=pytest.mark.all), True])
def test_an_autotuned_kernel_in_a_package_has_the_grid_of_the_chosen_config(tmp_path, on_cpu, dynamic):
    x, cube = torch.randn(10000), torch.randn(5, 13, 33)
    shapes = None
    if dynamic:
        sizes = [torch.export.Dim(name, min=2, max=1 << 20) for name in "nabc"]
        shapes = ({0: sizes[0]}, dict(enumerate(sizes[1:])))
    exported = torch.export.export(Tuned(), (x, cube), dynamic_shapes=shapes, strict=True)
    path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "tuned.pt2"))
    loaded = torch._inductor.aoti_load_package(path)
    calls = [(x, cube)]
    if dynamic:
        calls += [(torch.randn(77), torch.randn(3, 2, 90)), (torch.randn(30001), torch.randn(17, 41, 2))]
    for given, solid in calls:
        out, doubled = loaded(given, solid)
        torch.testing.assert_close(out, given + 1)
        torch.testing.assert_close(doubled, 2 * solid)


@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the ABI is torch 2.13's")
def test_kernels_that_inductor_generates_are_refused_with_the_reason(tmp_path, on_cpu):
    exported = torch.export.export(Plain(), (torch.randn(1000),), strict=True)
    triton_kernels = importlib.import_module("torch._inductor.config").patch({"cpu_backend": "triton"})
    with (
        triton_kernels,
        pytest.raises(
            Exception, match="AOTInductor for the CPU packs only Triton kernels that the model calls"
        ) as seen,
    ):
        torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "plain.pt2"))
    reasons, error = [], seen.value
    while error is not None:
        reasons.append(error)
        error = error.__cause__ or error.__context__ or getattr(error, "inner_exception", None)
    assert any(isinstance(one, UnsupportedError) for one in reasons)


def test_a_grid_that_no_call_would_take_is_refused(monkeypatch):
    from silo.core.decisions import Rejected
    from silo.integrations.torch import aoti

    meta = {"grid_type": "PrecomputedGrid", "precomputed_grids": [], "extra_launcher_args": []}
    assert aoti._grid_of("k", {"grid_type": "FixedGrid"}, None) is None
    with pytest.raises(UnsupportedError, match="k: torch has no grid in C\\+\\+ for the chosen config"):
        aoti._grid_of("k", meta, triton.Config({"BLOCK": 8}))
    monkeypatch.setattr(aoti._call, "connect", lambda *_: None)
    monkeypatch.setattr(aoti._call, "state", Rejected("torch 2.14 writes calls in another way"))
    with pytest.raises(UnsupportedError, match=r"writes calls in another way.*give the kernel one config"):
        aoti._grid_of("k", meta, triton.Config({"BLOCK": 8}))


# Another process, which compiles no kernel: there is no C compiler for it.
RUN = """
import os, sys
os.environ["CC"] = "/nowhere/cc"
import torch
model = torch._inductor.aoti_load_package(os.path.join(sys.argv[1], "model.pt2"))
given = torch.load(os.path.join(sys.argv[1], "arrays.pt"))
for _ in range(3):
    torch.testing.assert_close(model(*given["args"]), given["wanted"], rtol=1e-4, atol=1e-4)
print("equal")
"""


def described(kernel, *args, **constants):
    """How Triton's plug-in launches a kernel that it compiled."""
    from triton.backends.compiler import GPUTarget

    from silo.kinds.triton.programs.backend.driver import CpuDriver

    triton.runtime.driver.set_active(CpuDriver())
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    types = {**dict(zip(kernel.arg_names, args, strict=False)), **dict.fromkeys(constants, "constexpr")}
    made = triton.compile(triton.compiler.ASTSource(kernel, types, places), target=GPUTarget("cpu", "", 32))
    return made, made.run


@pytest.mark.parametrize(("whole", "real"), [("i32", "fp32"), ("i64", "fp64")])
def test_the_launcher_by_itself(tmp_path, whole, real):
    made, run = described(scaled, "*fp32", "*fp32", "*fp32", whole, real, TWICE=True, BLOCK=8)
    launcher, symbol = run.ahead_of_time()
    (tmp_path / "kernel.so").write_bytes(made.asm["so"])
    (tmp_path / "launcher.so").write_bytes(launcher)
    kernel = getattr(ctypes.CDLL(str(tmp_path / "kernel.so")), symbol)
    start = ctypes.CDLL(str(tmp_path / "launcher.so")).run_from_nativert
    start.argtypes = [ctypes.c_uint32] * 3 + [ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p]
    x, y, out = torch.randn(20), torch.randn(20), torch.zeros(20)
    n, alpha = ctypes.c_int64(20), ctypes.c_float(0.5)
    given = [x.data_ptr(), y.data_ptr(), out.data_ptr(), ctypes.addressof(n), ctypes.addressof(alpha), None, None]
    values = (ctypes.c_void_p * 7)(*given)
    start(0, 1, 1, 1, values, ctypes.cast(kernel, ctypes.c_void_p))
    assert not out.any()
    start(3, 1, 1, 1, values, ctypes.cast(kernel, ctypes.c_void_p))
    torch.testing.assert_close(out, 2 * (0.5 * x + y))


def test_what_cannot_be_launched_ahead_of_time():
    launch = LaunchInfo.from_json(described(running, "*fp32", "*fp32", "i32", BLOCK=16)[1].described[0].to_json())
    assert "run_from_nativert" in launcher_text("running", launch, ("x", "out", "n", "BLOCK"))
    assert launcher_object("running", launch, ("x", "out", "n", "BLOCK")).startswith(b"\x7fELF")
    from silo.frozen import replace

    with pytest.raises(UnsupportedError, match="its programs wait for each other"):
        launcher_text("running", replace(launch, cooperative=True), ("x", "out", "n", "BLOCK"))
    half = (replace(launch.layout[2], type=AbiType.FP16), *launch.layout[3:])
    with pytest.raises(UnsupportedError, match="n is a scalar of type fp16"):
        launcher_text("running", replace(launch, layout=(*launch.layout[:2], *half)), ("x", "out", "n", "BLOCK"))
    parts = (replace(launch.layout[0], part="shape.0"), *launch.layout[1:])
    with pytest.raises(UnsupportedError, match="x is a tensor descriptor"):
        launcher_text("running", replace(launch, layout=parts), ("x", "out", "n", "BLOCK"))
