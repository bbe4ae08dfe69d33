"""``silo.emulated_metal``: ``torch.mps.compile_shader`` and MLX's ``metal_kernel`` for programs without a Mac."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeAlias

from silo.errors import ToolchainError
from silo.kinds.metal.programs.mlx_kernels import EmulatedMlxKernel, MlxTexts
from silo.kinds.metal.programs.shader_library import EmulatedLibrary

__all__ = ["EmulatedMetal", "emulated_metal"]

_Place: TypeAlias = tuple[ModuleType, str, object]

NAME = "Silo's emulator of Metal"


class EmulatedMetal:
    """The results of the block of :func:`emulated_metal`: ``libraries`` of torch, ``kernels`` of MLX, in order."""

    def __init__(self) -> None:
        self.libraries: list[EmulatedLibrary] = []
        self.kernels: list[EmulatedMlxKernel] = []

    def compile_shader(self, source: str) -> EmulatedLibrary:
        """Replaces ``torch.mps.compile_shader``. Raises SourceError."""
        made = EmulatedLibrary(source)
        self.libraries.append(made)
        return made

    def metal_kernel(
        self,
        name: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        source: str,
        header: str = "",
        ensure_row_contiguous: bool = True,  # noqa: FBT001, FBT002  # MLX's own signature
        atomic_outputs: bool = False,  # noqa: FBT001, FBT002
        compile_options: Mapping[str, str] | None = None,
    ) -> EmulatedMlxKernel:
        """Replaces ``mlx.core.fast.metal_kernel``. Raises ValueError, as MLX does."""
        if unknown := sorted({*(compile_options or {})} - {"math_mode"}):
            raise ValueError(f"[metal_kernel] Unknown compile option `{unknown[0]}`.")
        texts = MlxTexts(name, tuple(input_names), tuple(output_names), source, header, atomic_outputs)
        made = EmulatedMlxKernel(sys.modules["mlx.core"], texts, ensure_row_contiguous=ensure_row_contiguous)
        self.kernels.append(made)
        return made


@contextmanager
def emulated_metal() -> Generator[EmulatedMetal]:
    """Makes ``torch.mps.compile_shader`` compile for the CPU within the block, and run kernels on CPU tensors.

    If the program has imported ``mlx.core``, ``mlx.core.fast.metal_kernel`` does the same for MLX's arrays on the CPU.
    Results and times are the emulator's: the times do not indicate the speed of Metal. Tensors stay on the CPU, the
    device ``mps`` does not exist, and ``torch.mps.synchronize()`` returns at once. The change applies to all threads.

    Raises:
        ToolchainError: neither torch nor MLX is available.
    """
    made = EmulatedMetal()
    places = [*_torch_places(made), *_mlx_places(made)]
    if not places:
        raise ToolchainError(
            "torch, whose compile_shader is emulated, is not installed, and mlx.core, whose metal_kernel is, is not "
            "imported"
        )
    before = [(module, name, getattr(module, name, None), hasattr(module, name)) for module, name, _ in places]
    for module, name, value in places:
        setattr(module, name, value)
    try:
        yield made
    finally:
        for module, name, value, was_there in before:
            if was_there:
                setattr(module, name, value)
            else:
                delattr(module, name)


def _torch_places(made: EmulatedMetal) -> list[_Place]:
    try:
        import torch  # noqa: PLC0415  # its functions are replaced
        import torch.mps  # noqa: PLC0415
    except ImportError:
        return []
    native: Any = torch._C  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # programs read the GPU's name here
    return [
        (torch.mps, "compile_shader", made.compile_shader),
        (torch.mps, "synchronize", lambda: None),
        (native, "_mps_get_name", lambda: NAME),
    ]


def _mlx_places(made: EmulatedMetal) -> list[_Place]:
    fast: Any = getattr(sys.modules.get("mlx.core"), "fast", None)
    return [] if fast is None else [(fast, "metal_kernel", made.metal_kernel)]
