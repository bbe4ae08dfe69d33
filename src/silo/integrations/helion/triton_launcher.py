"""Two launchers with the signature of Helion's launcher for Triton kernels.

For :func:`launcher`, Triton compiles the kernels and Silo launches them. For :func:`default_launcher`, Silo does both.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from silo.errors import PackageError, UnsupportedError
from silo.forks import Mutex, Notices
from silo.integrations.helion.launcher_call import axes, name_of
from silo.kernels.kernel import kernel as make_kernel
from silo.kinds.triton.programs.triton_patching import served_run

__all__ = ["default_launcher", "launcher"]

_KEPT = 512  # the kernels to keep: a program that tunes makes thousands, and uses most of them only briefly

# Options for work of Helion's launcher besides launching: memory shared with other processes, and state between
# launches. Generated code passes them with an empty value for most kernels.
_HOST_WORK = (
    "_remote_copy_signal_dst",
    "_remote_copy_signal_slots_per_program",
    "_remote_copy_process_group_name",
    "_remote_barrier_signal_slots_per_program",
    "_remote_barrier_process_group_name",
    "_remote_copy_scratch_specs",
    "_persistent_state_specs",
    "_persistent_state_process_group_name",
    "_persistent_state_rank_digest",
    "_minimum_resident_programs",
)

# Triton's message for incompatible shapes, which Helion turns into an error of its own.
_SHAPES = "Cannot make_shape_compatible: incompatible dimensions"

_run: list[Any] = []  # Triton's run method, as Silo replaced it; empty before the first launch
_notices = Notices()
# Silo's kernels, by the id of the Helion kernel. The value also holds the Helion kernel, so that the id is not reused.
_made: dict[int, tuple[object, Any]] = {}
_lock = Mutex()


def launcher(
    triton_kernel: Any,  # noqa: ANN401  # Triton's JITFunction
    grid: tuple[int, ...],
    *args: object,
    num_warps: int,
    num_stages: int,
    ptx_options: str | None = None,
    launch_cooperative_grid: bool = False,
    **options: Any,  # noqa: ANN401
) -> object:
    """Launches a Triton kernel that Helion generated: Triton compiles it, Silo launches it.

    The launcher behaves like Helion's own with regard to Triton's cache, hooks and errors, the error for a changed
    global, and the returned value. It accepts every keyword. If a keyword requests work on the host at each launch
    (symmetric memory, state between launches), Helion's own launcher runs instead, and the log reports this once.

    Args:
        triton_kernel: the ``@triton.jit`` function.
        grid: programs along one to three axes.
        *args: the kernel's arguments in its order.
        num_warps: as in Triton.
        num_stages: as in Triton.
        ptx_options: options of NVIDIA's assembler.
        launch_cooperative_grid: the kernel synchronizes all of its programs.
        **options: options of Triton's compiler, and requests for work on the host.

    Returns:
        Triton's ``CompiledKernel``.

    Raises:
        ToolchainError: Silo does not support the launches of this Triton version.
        PackageError: an option requests work on the host, and Helion is not installed.
    """
    if ptx_options is not None:
        options["ptx_options"] = ptx_options
    host_work = [name for name in _HOST_WORK if options.get(name)]
    if host_work:
        run = _helions(name_of(triton_kernel), host_work)
        places: tuple[Any, ...] = (triton_kernel, grid)
    else:
        for name in _HOST_WORK:
            options.pop(name, None)
        if not _run:
            _run.append(served_run())
        run, places = _run[0], (triton_kernel,)
        options |= {"grid": grid, "warmup": False}
    try:
        return run(
            *places,
            *args,
            num_warps=num_warps,
            num_stages=num_stages,
            launch_cooperative_grid=launch_cooperative_grid,
            **options,
        )
    except Exception as error:
        if _SHAPES not in str(error):
            raise
        raise _errors().ShapeMismatch("kernel operands", str(error)) from error


def _helions(name: str, host_work: list[str]) -> Any:  # noqa: ANN401  # a function
    """Returns Helion's own launcher, for a kernel with work on the host. Logs this once for each kernel."""
    try:
        launcher: Any = import_module("helion.runtime.triton.launcher").default_launcher
    except ImportError as error:
        raise PackageError(
            f"{name}: {', '.join(host_work)} is work of Helion's own launcher, and Helion is not installed: "
            "pip install helion"
        ) from error
    _notices.once(name, f"{name}: {', '.join(host_work)} is work that Helion's own launcher does, so it launches")
    return launcher


def _errors() -> Any:  # noqa: ANN401  # a module
    return import_module("helion.exc")


def default_launcher(
    kernel: object,
    grid: tuple[int, ...],
    *args: object,
    num_warps: int,
    num_stages: int,
    ptx_options: str | None = None,
    launch_cooperative_grid: bool = False,
    **options: object,
) -> None:
    """Launches a Triton kernel that Helion generated; pass this as ``_launcher=`` of its host function.

    The first launch with arguments of these types compiles the kernel for the device of its arrays, which may be the
    CPU; Silo's store keeps the code. An empty grid launches nothing. Helion's launcher returns the result of Triton's
    launch; this launcher returns None.

    Args:
        kernel: the ``@triton.jit`` function.
        grid: programs along one to three axes.
        *args: the kernel's arguments in its order.
        num_warps: as in Triton.
        num_stages: as in Triton.
        ptx_options: options of NVIDIA's assembler, which Silo refuses.
        launch_cooperative_grid: the kernel synchronizes all of its programs.
        **options: options of Triton's compiler.

    Raises:
        GridError: the grid is not a tuple of one to three numbers.
        UnsupportedError: an option that Silo lacks, or a request for work on the host; the message names it.
        ArgumentError: the arguments do not fit the kernel.
    """
    blocks = axes("grid", grid)
    if ptx_options is not None:
        raise UnsupportedError(
            f"{name_of(kernel)}: Silo compiles Triton kernels without ptx_options ({ptx_options!r}); choose a config "
            "of the kernel that does not ask for them, or use Helion's own launcher"
        )
    if options:
        options = _compile_options(kernel, options)
    if min(blocks) <= 0:
        return
    if launch_cooperative_grid:
        options["launch_cooperative_grid"] = True
    _serving(kernel)[blocks](*args, num_warps=num_warps, num_stages=num_stages, **options)


def _compile_options(kernel: object, options: Mapping[str, object]) -> dict[str, object]:
    """Returns the keywords that are options of Triton's compiler. Raises UnsupportedError for work on the host."""
    host_work = [name for name in _HOST_WORK if options.get(name)]
    if host_work:
        raise UnsupportedError(
            f"{name_of(kernel)}: {', '.join(host_work)} is work that Helion's own launcher does at each launch; "
            "use it for this kernel"
        )
    return {name: value for name, value in options.items() if name not in _HOST_WORK}


def _serving(kernel: object) -> Any:  # noqa: ANN401  # the type that silo.kernel returns
    cached_kernel = _made.get(id(kernel))
    if cached_kernel is not None:
        return cached_kernel[1]
    silo_kernel = make_kernel(kernel)
    with _lock:
        _made[id(kernel)] = (kernel, silo_kernel)
        while len(_made) > _KEPT:
            del _made[next(iter(_made))]
    return silo_kernel
