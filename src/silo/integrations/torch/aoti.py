"""The seam in AOTInductor: kernels that Silo compiled for the CPU go into a package with a launcher in torch's ABI."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import UnsupportedError

__all__ = ["connect", "state"]

_log = logging.getLogger("silo")
_state: Decision = Rejected("torch's Inductor was not used in this process")
_KEPT = ["kernel_bytes", "launcher_bytes", "kernel_symbol", "signature"]


def state() -> Decision:
    """Whether AOTInductor packs kernels that Silo compiled for the CPU, and why not."""
    return _state


def connect(module: Any) -> None:  # noqa: ANN401  # torch._inductor.runtime.triton_heuristics
    """Replace the method that keeps a kernel for a package, once; where this torch has none, say so."""
    global _state  # noqa: PLW0603  # one Inductor a process
    found: Any = getattr(getattr(module, "CachingAutotuner", None), "save_cpu_kernel", None)
    if getattr(found, "of_silo", False):
        return
    if found is None or list(inspect.signature(found).parameters) != ["self", "launcher"]:
        torch: Any = import_module("torch")
        _state = Rejected(
            f"torch {torch.__version__} keeps kernels for AOTInductor in another way than Silo knows: packages with "
            "Triton kernels for the CPU need torch 2.13"
        )
        _log.info("%s", _state.reason)
        return
    module.CachingAutotuner.save_cpu_kernel = _with_launcher(found)
    _state = Accepted("packages hold a launcher for each kernel")


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

    save_cpu_kernel.of_silo = True  # pyright: ignore[reportFunctionMemberAccess]  # how it knows itself
    return save_cpu_kernel
