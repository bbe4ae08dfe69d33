"""Kernels that Inductor generates for an H100, tuned and launched on the stub of libcuda, without a GPU.

It is used in separate processes (``tests/samples/triton_on_stub.py`` has their environment)::

    from inductor_on_stub import *
    kernel = made(SCALE)                 # torch's CachingAutotuner, compiled as torch compiles it
    launched(kernel, array(3000), array(3000), 3000)

Torch's own measurement is replaced by times that :data:`TIMES` computes from a config, and counted in :data:`MEASURED`.
Triton's compiles, except those that its cache has, are counted in :data:`COMPILED`.
"""

# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

torch.cuda.is_available = lambda: False  # a torch built for CUDA would look for devices in the stub, and crash

import torch._dynamo.device_interface as interfaces  # noqa: E402
import triton  # noqa: E402
from torch._inductor import async_compile, codecache, config  # noqa: E402
from torch._inductor.runtime import triton_helpers, triton_heuristics  # noqa: E402

from gpu_stub import stub  # noqa: E402

__all__ = [
    "COMPILED",
    "MEASURED",
    "SCALE",
    "SUMS",
    "TEMPLATE",
    "TIMES",
    "array",
    "forget",
    "heuristics",
    "launched",
    "made",
    "state_of",
    "stub",
    "torch",
]

heuristics: Any = triton_heuristics
COMPILED: list[str] = []
MEASURED: list[str] = []
TIMES = [lambda config: float(config.kwargs.get("XBLOCK", 1)) + config.num_warps / 100]

_HEAD = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
"""
_DEVICE = (
    "DeviceProperties(type='cuda', index=INDEX, multi_processor_count=132, cc=90, major=9,"
    " regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, warp_size=32)"
)
_META = (
    "'optimize_mem': True, 'no_x_dim': False, 'backend_hash': 'X', 'assert_indirect_indexing': True,"
    " 'autotune_local_cache': False, 'autotune_pointwise': True, 'autotune_remote_cache': None,"
    " 'force_disable_caches': True, 'dynamic_scale_rblock': True, 'max_autotune': MAXIMUM,"
    " 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': EXPORTED,"
    " 'coordinate_descent_tuning': DESCENT, 'coordinate_descent_search_radius': 1,"
    " 'coordinate_descent_check_all_directions': False"
)
SCALE = (
    _HEAD
    + """
@triton_heuristics.pointwise(
    size_hints={'x': 4096}, filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'},
                 'device': DEVICE, 'constants': {},
                 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'autotune_hints': set(), 'kernel_name': 'NAME', 'mutated_arg_names': [],
                   'num_load': 1, 'num_reduction': 0, META})
@triton.jit
def NAME(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 3000
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tl.store(out_ptr0 + xindex, tl.load(in_ptr0 + xindex, xmask) * 2.0, xmask)
"""
)
# The template of a matrix product has its only config in its text, and gets its grid from the caller.
TEMPLATE = (
    _HEAD
    + """
@triton_heuristics.template(
    num_stages=3, num_warps=4, filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32'}, 'device': DEVICE, 'constants': {},
                 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'FixedGrid', 'fixed_grid': ['_grid_0', '_grid_1', '_grid_2'],
                   'extra_launcher_args': ['_grid_0', '_grid_1', '_grid_2'], 'kernel_name': 'NAME', META})
@triton.jit
def NAME(in_ptr0, out_ptr0):
    XBLOCK : tl.constexpr = 128
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < 3000
    tl.store(out_ptr0 + xindex, tl.load(in_ptr0 + xindex, xmask) * 2.0, xmask)
"""
)
SUMS = (
    _HEAD
    + """
@triton_heuristics.reduction(
    size_hints={'x': 64, 'r0_': 4096}, reduction_hint=ReductionHint.INNER, filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'r0_numel': 'i32',
                               'XBLOCK': 'constexpr', 'R0_BLOCK': 'constexpr'},
                 'device': DEVICE, 'constants': {},
                 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'autotune_hints': set(), 'kernel_name': 'NAME', 'mutated_arg_names': [],
                   'num_load': 1, 'num_store': 1, 'num_reduction': 1, META})
@triton.jit
def NAME(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
    xnumel = 64
    r0_numel = 4096
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    total = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        total = total + tl.where(r0_mask & xmask, tl.load(in_ptr0 + (r0_index + 4096 * xindex), r0_mask & xmask), 0.0)
    tl.store(out_ptr0 + xindex, tl.sum(total, 1)[:, None], xmask)
"""
)


class _Interface:
    """The functions of torch's CUDA interface that torch's tuner uses."""

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def get_raw_stream(device: int) -> int:
        del device
        return 0


def _prepare() -> None:
    triton_helpers.set_driver_to_gpu = lambda: None
    interfaces.DeviceGuard.__enter__ = lambda self: None
    interfaces.DeviceGuard.__exit__ = lambda self, *_: None
    heuristics.CachingAutotuner.get_device_interface = lambda self: _Interface
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="silo-inductor-"))
    config.compile_threads = 1

    def compiled(*, src: Any, cache_hit: bool, **_: Any) -> None:
        if not cache_hit:
            COMPILED.append(src.name)

    def bench(self: Any, launcher: Any, *args: Any, **kwargs: Any) -> float:
        del args, kwargs
        MEASURED.append(self.fn.__name__)
        return TIMES[0](launcher.config)

    triton.knobs.compilation.listener = compiled
    heuristics.CachingAutotuner.bench = bench


_prepare()


def made(
    text: str,
    number: int = 0,
    *,
    descent: bool = False,
    maximum: bool = False,
    exported: bool = False,
    index: int = 0,
    static: bool = False,
    name: str = "triton_poi_fused_mul",
) -> Any:
    """Compile a kernel in this process; return torch's object for it.

    ``number`` is the kernel's number in its graph.
    """
    config.use_static_cuda_launcher = static
    words = {
        "DEVICE": _DEVICE,
        "META": _META,
        "NAME": f"{name}_{number}",
        "DESCENT": str(descent),
        "MAXIMUM": str(maximum),
        "INDEX": str(index),
        "EXPORTED": str(exported),
    }
    for word, value in words.items():
        text = re.sub(rf"\b{word}\b", value, text)
    found = async_compile.AsyncCompile().triton(words["NAME"], text, device_str="cuda")
    return found.result() if hasattr(found, "result") else found


def forget() -> None:
    """Clear torch's caches of compiled kernels in this process, and the counts."""
    async_compile.CompiledTritonKernels.cache_clear()
    codecache.PyCodeCache.cache_clear()
    COMPILED.clear()
    MEASURED.clear()


class _Array:
    """A duck-typed tensor of a device; with the stub its memory is the host's."""

    def __init__(self, count: int, index: int) -> None:
        self.values = np.zeros(count + 16, np.float32)
        self.dtype, self.shape, self.device = self.values.dtype, (count,), f"cuda:{index}"

    def data_ptr(self) -> int:
        return self.values.ctypes.data

    def stride(self) -> tuple[int, ...]:
        return (1,)


def state_of(kernel: Any) -> dict[str, Any]:
    """Return a launched kernel's config, whether Silo launches it, and the counts."""
    (launcher,) = kernel.launchers
    config_ = {**launcher.config.kwargs, "num_warps": launcher.config.num_warps}
    by_silo = hasattr(launcher, "silo_kernel")
    return {"config": config_, "silo": by_silo, "measured": len(MEASURED), "compiled": len(COMPILED)}


def array(count: int, index: int = 0) -> Any:
    """Return an array of float32 on a device."""
    return _Array(count, index)


def launched(kernel: Any, *arguments: Any) -> Any:
    """Launch in the way of Inductor's generated code; return the stub's record of the launch."""
    kernel.run(*arguments, stream=0)
    return stub.last(kernel.fn.__name__)


def _serve() -> None:
    """Run programs in children of this process, because importing torch's compiler takes seconds.

    Each line of standard input names a program's variables, its file, the files of its output, and the file for its
    exit status.
    """
    for line in sys.stdin:
        wanted = json.loads(line)
        if os.fork():
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        child = os.fork()
        if child:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            Path(wanted["status"] + ".new").write_text(str(status), encoding="utf-8")
            Path(wanted["status"] + ".new").rename(wanted["status"])
            os._exit(0)
        os.environ.update(wanted["variables"])
        for number, name in enumerate(("out", "error"), 1):
            os.dup2(os.open(wanted[name], os.O_WRONLY | os.O_CREAT), number)
        try:
            runpy.run_path(wanted["program"], run_name="__main__")
        except BaseException:  # noqa: BLE001  # the process ends with a status of its own
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    sys.modules["inductor_on_stub"] = sys.modules["__main__"]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    import triton_ready  # noqa: F401  # once, in the place of each child

    _serve()
