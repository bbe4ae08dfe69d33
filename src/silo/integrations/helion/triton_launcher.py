"""Launchers with the signature of Helion's for Triton kernels: over Triton's own compiles, and over Silo's."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from silo.core.notices import Notices
from silo.errors import PackageError, UnsupportedError
from silo.forks import Mutex
from silo.integrations.helion.launcher_call import axes, name_of
from silo.kernels.kernel import kernel as make_kernel
from silo.kinds.triton.programs.triton_patching import served_run

__all__ = ["default_launcher", "launcher"]

_KEPT = 512  # a program that tunes Helion kernels makes thousands, each used for a moment

# What Helion's launcher does besides launching: memory that other processes see, and state between launches. Each is
# said with a value that asks for nothing in the code of most kernels.
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

# Triton's words for shapes that do not go together, which Helion gives an error of its own.
_SHAPES = "Cannot make_shape_compatible: incompatible dimensions"

_run: list[Any] = []  # Triton's run by Silo, once it was asked for
_notices = Notices()
_made: dict[int, tuple[object, Any]] = {}  # by id, with the kernel itself: no other object gets its id
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
    """Launch a kernel that Helion generated for Triton, as Helion's own launcher does: Triton compiles, Silo launches.

    The whole contract of Helion's: Triton's cache, hooks and errors, a changed global that raises, what a launch
    returns. It takes every keyword; where one of them is work on the host at each launch (symmetric memory, state
    between launches), Helion's own launcher does that, and one line of the log says so.

    Args:
        triton_kernel: the ``@triton.jit`` function.
        grid: programs on one to three axes.
        *args: the kernel's arguments in its order.
        num_warps: as Triton has it.
        num_stages: as Triton has it.
        ptx_options: options of NVIDIA's assembler.
        launch_cooperative_grid: the kernel waits for all of its programs.
        **options: of Triton's compiler, and work on the host, by name.

    Returns:
        Triton's ``CompiledKernel``.

    Raises:
        ToolchainError: a Triton whose launches Silo does not know.
        PackageError: work on the host is asked for, and Helion is not installed.
    """
    if ptx_options is not None:
        options["ptx_options"] = ptx_options
    asked = [name for name in _HOST_WORK if options.get(name)]
    if asked:
        run = _helions(name_of(triton_kernel), asked)
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


def _helions(name: str, asked: list[str]) -> Any:  # noqa: ANN401  # a function
    """Helion's own launcher for a kernel that asks it for work."""
    try:
        own: Any = import_module("helion.runtime.triton.launcher").default_launcher
    except ImportError as error:
        raise PackageError(
            f"{name}: {', '.join(asked)} is work of Helion's own launcher, and Helion is not installed: "
            "pip install helion"
        ) from error
    _notices.once(name, f"{name}: {', '.join(asked)} is work that Helion's own launcher does, so it launches")
    return own


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
    """Launch a kernel that Helion generated for Triton: what ``_launcher=`` of its host function takes.

    The kernel is compiled when it is first launched with such arguments, for the device of its arrays, which may be the
    CPU, and kept by Silo's store. A grid without programs launches nothing. Helion's gives what Triton's launch gives;
    this one gives None.

    Args:
        kernel: the ``@triton.jit`` function.
        grid: programs on one to three axes.
        *args: the kernel's arguments in its order.
        num_warps: as Triton has it.
        num_stages: as Triton has it.
        ptx_options: options of NVIDIA's assembler, with which Silo compiles nothing.
        launch_cooperative_grid: the kernel waits for all of its programs.
        **options: of Triton's compiler, by name.

    Raises:
        GridError: a grid that is no tuple of one to three numbers.
        UnsupportedError: an option that Silo does not have, or work that Helion's launcher does on the host, by name.
        ArgumentError: as any call.
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
    """Those of the keywords that are options of Triton's compiler."""
    asked = [name for name in _HOST_WORK if options.get(name)]
    if asked:
        raise UnsupportedError(
            f"{name_of(kernel)}: {', '.join(asked)} is work that Helion's own launcher does at each launch; "
            "use it for this kernel"
        )
    return {name: value for name, value in options.items() if name not in _HOST_WORK}


def _serving(kernel: object) -> Any:  # noqa: ANN401  # what silo.kernel gives
    found = _made.get(id(kernel))
    if found is not None:
        return found[1]
    made = make_kernel(kernel)
    with _lock:
        _made[id(kernel)] = (kernel, made)
        while len(_made) > _KEPT:
            del _made[next(iter(_made))]
    return made
