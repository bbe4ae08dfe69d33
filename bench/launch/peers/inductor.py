"""The ways in which torch.compile launches Triton kernels: the static launcher, its C function, the fast launcher."""
# Names that torch does not declare, or not in every version.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import Any

from bench.launch.cases import GRID, Call
from bench.launch.peers import AbsentError, Context, Row


def _static(context: Context) -> Any:
    """Return a statically launched kernel, loaded from the cubin that Triton made."""
    try:
        from torch._inductor.runtime import static_triton_launcher as home  # a private module of torch
    except ImportError:
        try:
            # the module's name in older versions of torch
            from torch._inductor.runtime import static_cuda_launcher as home
        except ImportError as error:
            raise AbsentError(f"this torch has no static launcher: {error}") from error
    kernel = context.compiled
    path = context.folder / f"{context.case.kernel}.cubin"
    path.write_bytes(kernel.asm["cubin"])
    kernel._cubin_path = str(path)  # noqa: SLF001  # what Inductor does
    static = home.StaticallyLaunchedCudaKernel(kernel)
    static.load_kernel(context.device)
    return static


def static_launcher(context: Context) -> Call:
    static = _static(context)
    return context.call(
        f"run({GRID[0]}, 1, 1, stream, {{arguments}})", constexprs=False, run=static.run, stream=context.stream
    )


def c_function(context: Context) -> Call:
    static = _static(context)
    try:
        from torch._C import _StaticCudaLauncher
    except ImportError as error:
        raise AbsentError(f"this torch has no C launcher: {error}") from error
    hidden = sum(bool(getattr(static, name, False)) for name in ("has_global_scratch", "has_profile_scratch"))
    names = [*context.case.pointer_names, *context.case.integer_names, *(["None"] * hidden)]
    arguments = "(" + "".join(f"{name}, " for name in names) + ")"
    return Call(
        f"launch(function, {GRID[0]}, 1, 1, warps, shared, types, {arguments}, stream)",
        {
            **context.arguments,
            "keep": static,
            "launch": _StaticCudaLauncher._launch_kernel,  # noqa: SLF001
            "function": static.function,
            "warps": static.num_warps,
            "shared": static.shared,
            "types": static.arg_tys + "O" * hidden,
            "stream": context.stream,
        },
    )


def fast_launcher(context: Context) -> Call:
    try:
        from torch._C import _FastCudaLauncher
    except ImportError as error:
        import torch

        raise AbsentError(f"torch {torch.__version__} has none (2.13 brought it)") from error
    static = _static(context)
    hidden = sum(bool(getattr(static, name, False)) for name in ("has_global_scratch", "has_profile_scratch"))
    run = _FastCudaLauncher(static.function, static.num_warps, static.shared, static.arg_tys, hidden)
    return context.call(
        f"run({GRID[0]}, 1, 1, stream, {{arguments}})",
        constexprs=False,
        run=run,
        stream=context.stream,
        keep=static,
    )


ROWS = (
    Row("inductor", "Inductor StaticallyLaunchedCudaKernel.run", static_launcher),
    Row("inductor-c", "Inductor _StaticCudaLauncher._launch_kernel", c_function),
    Row("inductor-fast", "Inductor _FastCudaLauncher", fast_launcher),
)
