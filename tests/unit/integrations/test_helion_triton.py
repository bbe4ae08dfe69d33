"""The launcher for Triton kernels that Helion generates: its signature, and what it refuses; and whole, with Helion."""
# pyright: reportMissingImports=false

import inspect
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

import silo
from silo.errors import GridError, UnsupportedError
from silo.integrations.helion import default_launcher, launcher
from silo.kinds.triton.programs.program_kernels import TABLE

_BLOCK_SIZE_0 = tl.constexpr(64)


@triton.jit
def _helion_add(x, y, out, n):
    at = tl.program_id(0) * _BLOCK_SIZE_0 + tl.arange(0, _BLOCK_SIZE_0)
    tl.store(out + at, tl.load(x + at, at < n, 0.0) + tl.load(y + at, at < n, 0.0), at < n)


def arrays():
    x = np.arange(100, dtype=np.float32)
    return x, x * 2, np.zeros_like(x)


def test_a_kernel_is_launched():
    x, y, out = arrays()
    assert default_launcher(_helion_add, (2,), x, y, out, 100, num_warps=4, num_stages=1) is None
    assert (out == x + y).all()


def tensors():
    torch = pytest.importorskip("torch")
    x = torch.arange(100.0)
    return x, x * 2, torch.zeros(100)


def test_over_tritons_compiles_the_contract_is_helions():
    """What Triton's launch gives, and a global that changed; and Triton's class is as it was."""
    x, y, out = tensors()
    before = dict(vars(type(_helion_add)))
    first: Any = launcher(_helion_add, (2,), x, y, out, 100, num_warps=4, num_stages=1)
    assert (out == x + y).all()
    out.zero_()
    second = launcher(_helion_add, (2,), x, y, out, 100, num_warps=4, num_stages=1, _remote_copy_scratch_specs=())
    assert (out == x + y).all()
    assert first is second
    assert first.metadata.num_warps == 4
    assert dict(vars(type(_helion_add))) == before
    with silo.accelerate():
        launcher(_helion_add, (2,), x, y, out, 100, num_warps=4, num_stages=1)
    assert launcher(_helion_add, (0,), x, y, out, 100, num_warps=4, num_stages=1) is not None  # as Triton's
    (kernel,) = TABLE.of(_helion_add)
    assert kernel.launches[0] >= 2
    space = globals()
    own = space["_BLOCK_SIZE_0"]
    space["_BLOCK_SIZE_0"] = tl.constexpr(32)
    try:
        with pytest.raises(RuntimeError, match="has changed since we compiled"):
            launcher(_helion_add, (4,), x, y, out, 100, num_warps=4, num_stages=1)
    finally:
        space["_BLOCK_SIZE_0"] = own


def test_work_on_the_host_is_left_to_helions_launcher_and_its_errors_are_helions(monkeypatch, caplog):
    seen = []

    class ShapeMismatch(Exception):  # noqa: N818  # Helion's name
        pass

    def theirs(kernel, grid, *args, **keywords):
        seen.append((kernel, grid, args, keywords))
        if args:
            raise ValueError("Cannot make_shape_compatible: incompatible dimensions at index 0: 2 and 4")

    for name in ("helion", "helion.runtime", "helion.runtime.triton", "helion.runtime.triton.launcher", "helion.exc"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["helion.runtime.triton.launcher"].__dict__["default_launcher"] = theirs
    sys.modules["helion.exc"].__dict__["ShapeMismatch"] = ShapeMismatch
    kernel = SimpleNamespace(__name__="_helion_signals")
    for _ in range(2):
        launcher(kernel, (2,), num_warps=4, num_stages=1, _remote_barrier_signal_slots_per_program=2, ptx_options="-O1")
    keywords = {"num_warps": 4, "num_stages": 1, "launch_cooperative_grid": False, "ptx_options": "-O1"}
    assert seen == [(kernel, (2,), (), {**keywords, "_remote_barrier_signal_slots_per_program": 2})] * 2
    assert caplog.text.count("_helion_signals: _remote_barrier_signal_slots_per_program is work") == 1
    with pytest.raises(ShapeMismatch):
        launcher(kernel, (2,), 1, num_warps=4, num_stages=1, _minimum_resident_programs=2)


def test_helions_host_work_that_is_nothing_is_taken_and_other_is_refused():
    x, y, out = arrays()
    default_launcher(_helion_add, (0,), x, y, out, 100, num_warps=4, num_stages=1, _remote_copy_scratch_specs=())
    assert not out.any()
    with pytest.raises(UnsupportedError, match="_remote_barrier_signal_slots_per_program is work that Helion's own"):
        default_launcher(
            _helion_add,
            (2,),
            *(x, y, out, 100),
            num_warps=4,
            num_stages=1,
            _remote_barrier_signal_slots_per_program=2,
        )


def test_what_changes_the_code_in_ways_that_silo_lacks_is_refused():
    with pytest.raises(UnsupportedError, match="without ptx_options"):
        default_launcher(_helion_add, (2,), num_warps=4, num_stages=1, ptx_options="--apply-controls x")
    with pytest.raises(GridError, match="tuple of one to three"):
        default_launcher(_helion_add, 2, num_warps=4, num_stages=1)  # type: ignore[arg-type]


def test_the_signature_takes_what_helions_does():
    helion = pytest.importorskip("helion.runtime", reason="its signature is Helion's")
    theirs, ours = (inspect.signature(one).parameters for one in (helion.default_launcher, default_launcher))
    kept = {name for name in theirs if not name.startswith("_")} - {"triton_kernel", "kwargs"}
    assert kept == set(ours) - {"kernel", "options"}


def test_what_helion_generates_is_right_on_the_cpu():
    pytest.importorskip("helion", reason="what Helion generates is generated by Helion")
    torch = pytest.importorskip("torch")
    import helion_triton

    x, y = torch.randn(2, 65, 100)
    assert torch.equal(helion_triton.run(helion_triton.add, (x, y), default_launcher), x + y)
    assert torch.allclose(helion_triton.run(helion_triton.softmax, (x,), default_launcher), x.softmax(1))
