"""``silo.emulated_metal``: ``torch.mps.compile_shader`` for programs without a Mac."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from silo.errors import ToolchainError
from silo.integrations.metal.shader_library import EmulatedLibrary

__all__ = ["EmulatedMetal", "emulated_metal"]

NAME = "Silo's emulator of Metal"


class EmulatedMetal:
    """What the block of :func:`emulated_metal` has compiled: ``libraries``, in order."""

    def __init__(self) -> None:
        self.libraries: list[EmulatedLibrary] = []

    def compile_shader(self, source: str) -> EmulatedLibrary:
        """What takes the place of ``torch.mps.compile_shader``. Raises SourceError."""
        made = EmulatedLibrary(source)
        self.libraries.append(made)
        return made


@contextmanager
def emulated_metal() -> Generator[EmulatedMetal]:
    """In the block, ``torch.mps.compile_shader`` compiles for the CPU, and kernels run on tensors there.

    Results are the emulator's, and so are times: neither says how fast Metal is. Tensors stay on the CPU, there is no
    device ``mps``, and ``torch.mps.synchronize()`` returns at once. All threads of the program see it.

    Raises:
        ToolchainError: torch is not installed.
    """
    try:
        import torch  # noqa: PLC0415  # whose calls are taken
        import torch.mps  # noqa: PLC0415
    except ImportError as error:
        raise ToolchainError("torch, whose compile_shader is emulated, is not installed") from error
    made = EmulatedMetal()
    native: Any = torch._C  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # where programs ask for its name
    places: list[tuple[ModuleType, str, object]] = [
        (torch.mps, "compile_shader", made.compile_shader),
        (torch.mps, "synchronize", lambda: None),
        (native, "_mps_get_name", lambda: NAME),
    ]
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
