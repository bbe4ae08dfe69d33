"""Launchers with the signature of Helion's for CuTe kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from silo.integrations.helion.helion_kernels import KernelsOfHelion
from silo.integrations.helion.launcher_call import axes, check_options, name_of, plain_arguments
from silo.kernels.bundle_kernels import Kernels

__all__ = ["bundled_cute_launcher", "default_cute_launcher"]

_kernels = KernelsOfHelion()


def default_cute_launcher(
    kernel: object,
    grid: tuple[int, ...],
    *args: object,
    block: tuple[int, ...] = (256, 1, 1),
    cute_compile_options: str | None = None,
    **options: object,
) -> None:
    """Launch a CuTe kernel that Helion generated; pass this as ``_launcher=`` of its host function.

    The first launch with arguments of these types compiles the kernel, and Silo's store keeps the code. Shapes and
    strides are folded into the code, unless Helion marked the kernel otherwise. An empty grid launches nothing.

    Args:
        kernel: the ``@cute.kernel`` function, with Helion's attributes (cluster, plans of its operands).
        grid: blocks along one to three axes.
        *args: the kernel's arguments in its order: arrays on the GPU, numbers.
        block: threads of a block along one to three axes.
        cute_compile_options: options of the DSL. Only options that change neither results nor speed are accepted.
        **options: must be empty.

    Raises:
        GridError: the grid or block is not a tuple of one to three numbers.
        UnsupportedError: an option, or a plan that is not of one matmul, by name.
        ArgumentError: an argument that is neither an array nor a number.
    """
    check_options(kernel, cute_compile_options, options)
    blocks, threads = axes("grid", grid), axes("block", block)
    if min(blocks) <= 0:
        return
    arguments = plain_arguments(kernel, args)
    _kernels.serving(kernel, arguments, blocks, threads)[blocks](*arguments)


def bundled_cute_launcher(kernels: Kernels) -> Callable[..., None]:
    """Returns a launcher that takes its code from a bundle, for a process that may lack the DSL.

    ``kernels`` is the result of ``silo.load``. The launcher finds a kernel by its name and calls nothing of the object;
    the block size is stored in the bundle.
    """

    def launch(
        kernel: object,
        grid: tuple[int, ...],
        *args: object,
        block: tuple[int, ...] = (256, 1, 1),
        cute_compile_options: str | None = None,
        **options: object,
    ) -> None:
        check_options(kernel, cute_compile_options, options)
        blocks = axes("grid", grid)
        axes("block", block)
        if min(blocks) <= 0:
            return
        bundled: Any = kernels[name_of(kernel)]
        bundled[blocks](*plain_arguments(kernel, args))

    return launch
