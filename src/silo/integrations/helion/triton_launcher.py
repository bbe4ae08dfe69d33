"""A launcher with the signature of Helion's for Triton kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silo.api.kernels.kernel import kernel as make_kernel
from silo.errors import UnsupportedError
from silo.forks import Mutex
from silo.integrations.helion.launch_call import axes, name_of

__all__ = ["default_launcher"]

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

_made: dict[int, tuple[object, Any]] = {}  # by id, with the kernel itself: no other object gets its id
_lock = Mutex()


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
