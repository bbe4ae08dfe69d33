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
    """Launch a kernel that Helion generated for CuTe: what ``_launcher=`` of its host function takes.

    The kernel is compiled when it is first launched with such arguments, and kept by Silo's store. Shapes and strides
    are folded into the code, unless Helion marked the kernel otherwise. A grid without programs launches nothing.

    Args:
        kernel: the ``@cute.kernel`` function, with what Helion wrote on it (cluster, plans of its operands).
        grid: blocks on one to three axes.
        *args: the kernel's arguments in its order: arrays on the GPU, numbers.
        block: threads of a block on one to three axes.
        cute_compile_options: options of the DSL. Those that change no result and no speed are taken, others refused.
        **options: none is known.

    Raises:
        GridError: a grid or block that is no tuple of one to three numbers.
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
    """A launcher that takes its code from a bundle, in a process that need not have the DSL.

    ``kernels`` is what ``silo.load`` gives. The launcher looks a kernel up by its name and calls nothing of it; the
    block is that of the bundle.
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
