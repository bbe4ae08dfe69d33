"""A launcher with the signature of Helion's launcher for Metal kernels."""

from __future__ import annotations

import copy
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from silo.errors import UnsupportedError
from silo.forks import Mutex
from silo.frozen import frozen
from silo.integrations.helion.launcher_call import Axes, axes, name_of
from silo.kernels.kernel import maker

__all__ = ["default_metal_launcher", "generated_text"]

_KEPT = 512  # the kernels to keep: a program that tunes makes thousands, and uses most of them only briefly
_NAMED = "_mps_get_name"
_WITHOUT_EFFECT = ("num_warps", "num_stages")


@frozen
class _Made:
    kernel: object  # Helion's kernel; kept alive, because the cache finds it by its id
    made: Any


_made: dict[tuple[object, ...], _Made] = {}
_lock = Mutex()


def default_metal_launcher(
    metal_kernel: object,
    grid: tuple[int, ...],
    *args: object,
    _block_dims: tuple[int, int, int] = (256, 1, 1),
    **options: object,
) -> None:
    """Launches a Metal kernel that Helion generated; pass this as ``_launcher=`` of its host function.

    Helion generates the kernel's text. The first launch with arguments of these types compiles it, and Silo's store
    keeps the code. If the tensors are on the CPU, an emulator runs the kernel; on a Mac's GPU, Metal does. An empty
    grid launches nothing.

    Args:
        metal_kernel: the ``@metal_jit`` function.
        grid: threadgroups along one to three axes.
        *args: the kernel's arguments in its order: tensors, and numbers that Helion writes into the text.
        _block_dims: threads of a threadgroup.
        **options: ``num_warps`` and ``num_stages``, which are ignored.

    Raises:
        GridError: the grid or block is not a tuple of one to three numbers.
        UnsupportedError: an option that Metal launches lack; the message names it.
        ArgumentError: the arguments do not fit the kernel.
    """
    if others := [name for name in options if name not in _WITHOUT_EFFECT]:
        raise UnsupportedError(f"{name_of(metal_kernel)}: a Metal launch takes _block_dims=, not {', '.join(others)}")
    blocks, threads = axes("grid", grid), axes("block", _block_dims)
    if min(blocks) <= 0:
        return
    tensors = [
        argument if len(argument.shape) else argument.reshape(1)
        for argument in cast("Any", args)
        if hasattr(argument, "shape")
    ]
    _serving(metal_kernel, args, threads)[blocks](*tensors)


def _serving(kernel: object, args: tuple[object, ...], block: Axes) -> Any:  # noqa: ANN401  # silo.metal's result
    types: list[tuple[object, object]] = [
        (argument.dtype, len(argument.shape)) if hasattr(argument, "shape") else (type(argument), argument)
        for argument in cast("tuple[Any, ...]", args)
    ]
    key = (id(kernel), block, *types)
    cached_kernel = _made.get(key)
    if cached_kernel is not None:
        return cached_kernel.made
    text, name = generated_text(kernel, args, block)
    silo_kernel = maker("metal")(text, kernel=name, group_size=block)
    with _lock:
        _made[key] = _Made(kernel, silo_kernel)
        while len(_made) > _KEPT:
            del _made[next(iter(_made))]
    return silo_kernel


def generated_text(kernel: object, args: tuple[object, ...], block: Axes) -> tuple[str, str]:
    """Returns the text that Helion generates for these arguments, and the kernel's name in it."""
    copied: Any = copy.copy(kernel)  # so that Helion's own cache on the kernel stays unchanged
    copied._compiled = {}  # noqa: SLF001
    copied.required_threads_per_threadgroup = block
    with _lock, _texts():
        text, name = copied(*args)
    cast("Any", kernel).msl_source = text  # Helion's own launch sets this attribute too
    return text, name


@contextmanager
def _texts() -> Generator[None]:
    """Makes ``torch.mps.compile_shader`` return its argument, the text. Called with the lock held."""
    import torch  # noqa: PLC0415  # Helion has imported it
    import torch.mps  # noqa: PLC0415

    native: Any = torch._C  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # Helion reads the GPU's name here
    compile_shader, had_named = torch.mps.compile_shader, hasattr(native, _NAMED)
    torch.mps.compile_shader = lambda source: source  # pyright: ignore[reportAttributeAccessIssue]
    if not had_named:
        setattr(native, _NAMED, lambda: "")
    try:
        yield
    finally:
        torch.mps.compile_shader = compile_shader
        if not had_named:
            delattr(native, _NAMED)
