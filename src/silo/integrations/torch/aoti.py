"""Hook points in AOTInductor: CPU kernels that Silo compiled go into a package, with a launcher in torch's ABI.

Two methods of torch are replaced. ``CachingAutotuner.save_cpu_kernel`` stores a kernel for the package: the replacement
adds the launcher, and the grid of the chosen config. ``DeferredCpuTritonCallWrapper._generate_launch`` writes the C++
call: torch's own method passes the launcher's extra arguments as the grid, which is right only for a kernel with one
config (``FixedGrid``). For an autotuned kernel (``PrecomputedGrid``) the extra arguments are the sizes from which the
grid is computed, so the replacement passes the expressions of the stored grid.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from silo.core.decisions import Decision
from silo.errors import UnsupportedError
from silo.frozen import frozen
from silo.integrations.torch.torch_patching import HookPoint

__all__ = ["connect", "state"]

_KEPT = ["kernel_bytes", "launcher_bytes", "kernel_symbol", "signature"]
_GRID = "silo_grid"  # the key under which torch's entry for a kernel holds the grid of the chosen config
_CHANGED = (
    "keeps kernels for AOTInductor in another way than Silo knows: packages with Triton kernels for the CPU "
    "need torch 2.13"
)
_hook_point = HookPoint(
    "CachingAutotuner.save_cpu_kernel",
    ["self", "launcher"],
    unused="torch's Inductor was not used in this process",
    connected="packages hold a launcher for each kernel",
    changed=_CHANGED,
    level=logging.INFO,
)
_call = HookPoint(
    "DeferredCpuTritonCallWrapper._generate_launch",
    ["self", "prefix", "kernel_arg_names", "grid_arg_names", "signature"],
    unused="no kernel was kept for AOTInductor in this process",
    connected="calls in packages take the grid of the chosen config",
    changed=_CHANGED,
    level=logging.INFO,
)


def state() -> Decision:
    """Returns whether AOTInductor packs kernels that Silo compiled for the CPU, and why."""
    return _hook_point.state


def connect(module: Any) -> None:  # noqa: ANN401  # torch._inductor.runtime.triton_heuristics
    """Makes torch's AOTInductor call Silo when it saves a kernel into a package."""
    _hook_point.connect(module, _with_launcher)


@frozen
class _Grid:
    """A grid in C++: lines that compute intermediate values, then one expression for each axis."""

    lines: tuple[str, ...]
    axes: tuple[str, str, str]


def _with_launcher(plain: Callable[..., None]) -> Callable[..., None]:
    def save_cpu_kernel(self: Any, launcher: Any) -> None:  # noqa: ANN401
        compiled = launcher.bin
        ours = getattr(compiled.run, "ahead_of_time", None)
        if ours is None:  # another backend compiled the kernel
            plain(self, launcher)
            return
        cache: Any = import_module("torch._inductor.codecache").CpuTritonKernelCache
        if not {*_KEPT}.issubset(inspect.signature(cache.set).parameters):
            raise UnsupportedError(
                "this torch keeps kernels for AOTInductor in another way than Silo knows: use torch 2.13"
            )
        name = self.inductor_meta["kernel_name"]
        grid = _grid_of(name, self.inductor_meta, launcher.config)
        launcher_bytes, symbol = ours()
        cache.set(
            name,
            kernel_bytes=compiled.asm["so"],
            launcher_bytes=launcher_bytes,
            kernel_symbol=symbol,
            signature=compiled.src.signature,
        )
        if grid is not None:
            cache.get(name)[_GRID] = grid
        self.cpu_kernel_saved = True

    return save_cpu_kernel


def _grid_of(name: str, meta: dict[str, Any], config: Any) -> _Grid | None:  # noqa: ANN401  # triton.Config
    """Returns the grid of ``config``, or None if the launcher's extra arguments are the grid.

    Raises:
        UnsupportedError: neither torch nor Silo can write a correct call of this kernel.
    """
    kind = meta.get("grid_type")
    if kind == "FixedGrid":
        return None
    if kind != "PrecomputedGrid":
        raise UnsupportedError(
            f"{name}: Inductor generated this Triton kernel itself (its grid is a {kind}), and AOTInductor for the CPU "
            "packs only Triton kernels that the model calls: export with torch._inductor.config.cpu_backend = 'cpp'"
        )
    _call.connect(import_module("torch._inductor.codegen.cpp_wrapper_cpu"), _with_grid)
    if not _call.state:
        raise UnsupportedError(
            f"{name} has several configs, each with a grid of its own, and a call in a package would not take the "
            f"grid of the chosen config ({_call.state.reason}): give the kernel one config"
        )
    try:
        expressions: Any = import_module("torch._inductor.runtime.triton_heuristics").GridExpr.from_meta(
            meta, config, mode="cpp"
        )
    except (AssertionError, AttributeError, KeyError, TypeError) as error:  # another version of torch may raise these
        raise UnsupportedError(
            f"{name}: torch has no grid in C++ for the chosen config {config}: give the kernel one config"
        ) from error
    return _Grid(tuple(expressions.prefix), (str(expressions.x_grid), str(expressions.y_grid), str(expressions.z_grid)))


def _with_grid(plain: Callable[..., None]) -> Callable[..., None]:
    def _generate_launch(  # named like the method of torch that it replaces
        self: Any,  # noqa: ANN401
        prefix: Any,  # noqa: ANN401
        kernel_arg_names: Sequence[str],
        grid_arg_names: Sequence[str],
        signature: Any,  # noqa: ANN401
    ) -> None:
        cache: Any = import_module("torch._inductor.codecache").CpuTritonKernelCache
        entry: dict[str, Any] = cache.get(self.kernel_name) or {}
        grid: _Grid | None = entry.get(_GRID)
        if grid is None:
            plain(self, prefix, kernel_arg_names, grid_arg_names, signature)
            return
        for line in grid.lines:
            prefix.writeline(line)
        plain(self, prefix, kernel_arg_names, [*grid.axes], signature)

    return _generate_launch
