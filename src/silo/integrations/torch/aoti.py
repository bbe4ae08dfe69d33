"""The seam in AOTInductor: kernels that Silo compiled for the CPU go into a package with a launcher in torch's ABI."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

from silo.core.decisions import Decision
from silo.errors import UnsupportedError
from silo.integrations.torch.seam import Seam

__all__ = ["connect", "state"]

_KEPT = ["kernel_bytes", "launcher_bytes", "kernel_symbol", "signature"]
_seam = Seam(
    "CachingAutotuner.save_cpu_kernel",
    ["self", "launcher"],
    unused="torch's Inductor was not used in this process",
    connected="packages hold a launcher for each kernel",
    changed="keeps kernels for AOTInductor in another way than Silo knows: packages with Triton kernels for the CPU "
    "need torch 2.13",
    level=logging.INFO,
)


def state() -> Decision:
    """Whether AOTInductor packs kernels that Silo compiled for the CPU, and why not."""
    return _seam.state


def connect(module: Any) -> None:  # noqa: ANN401  # torch._inductor.runtime.triton_heuristics
    """Replace the method that keeps a kernel for a package."""
    _seam.connect(module, _with_launcher)


def _with_launcher(plain: Callable[..., None]) -> Callable[..., None]:
    def save_cpu_kernel(self: Any, launcher: Any) -> None:  # noqa: ANN401
        compiled = launcher.bin
        ours = getattr(compiled.run, "ahead_of_time", None)
        if ours is None:  # another backend's
            plain(self, launcher)
            return
        kept: Any = import_module("torch._inductor.codecache").CpuTritonKernelCache
        if not {*_KEPT}.issubset(inspect.signature(kept.set).parameters):
            raise UnsupportedError(
                "this torch keeps kernels for AOTInductor in another way than Silo knows: use torch 2.13"
            )
        launcher_bytes, symbol = ours()
        kept.set(
            self.inductor_meta["kernel_name"],
            kernel_bytes=compiled.asm["so"],
            launcher_bytes=launcher_bytes,
            kernel_symbol=symbol,
            signature=compiled.src.signature,
        )
        self.cpu_kernel_saved = True

    return save_cpu_kernel
