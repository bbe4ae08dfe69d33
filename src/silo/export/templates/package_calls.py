"""The calls of this package's functions into its library: through torch's operators, or through tvm-ffi.

Both are imported by the first call that needs them; a call names a missing package. Made by `silo export --wheel`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any


class Library:
    """The shared libraries beside this file, loaded on first use; ``operators``: the names of torch's."""

    def __init__(self, name: str, operators: tuple[str, ...]) -> None:
        self.name = name
        self.has_operators = bool(operators)
        self._folder = Path(__file__).resolve().parent
        self._names = operators
        self._functions: Any = None
        self._operators: Any = None

    def functions(self) -> Any:  # noqa: ANN401  # of a package that may be missing
        """The library as a module of tvm-ffi."""
        if self._functions is None:
            try:
                tvm_ffi = import_module("tvm_ffi")
            except ImportError:
                cure = "apache-tvm-ffi, or give torch tensors" if self.has_operators else "apache-tvm-ffi"
                raise ImportError(
                    f"{self.name}: a call with these arguments goes through tvm-ffi: install {cure}"
                ) from None
            self._functions = tvm_ffi.load_module(str(self._folder / f"lib{self.name}.so"))
        return self._functions

    def operators(self) -> Any:  # noqa: ANN401  # of a package that may be missing
        """The operators of torch, ``torch.ops.NAME``; torch.compile is informed that they return nothing."""
        if self._operators is None:
            if not self.has_operators:
                raise ImportError(f"{self.name} has no operators of torch: silo export --torch makes them")
            torch = import_module("torch")
            torch.ops.load_library(self._folder / f"lib{self.name}_torch.so")
            for name in self._names:
                torch.library.register_fake(f"{self.name}::{name}", _returns_nothing)
            self._operators = getattr(torch.ops, self.name)
        return self._operators


def _returns_nothing(*_arguments: object, **_options: object) -> None:
    pass


def _class_of(module: str, name: str) -> Any:  # noqa: ANN401  # of a package that may be missing
    """A class of an imported module; () if the module was not imported."""
    found = sys.modules.get(module)
    return () if found is None else getattr(found, name)


class Kernel:
    """One kernel. ``tensor`` is the place of a tensor argument, -1: none; ``written`` the outputs' places."""

    def __init__(self, library: Library, name: str, tensor: int, written: tuple[int, ...]) -> None:
        self._library = library
        self._name = name
        self._tensor = tensor
        self._written = written
        self._has_operator = library.has_operators and tensor >= 0
        self._function: Any = None
        self._operator: Any = None

    def __call__(
        self,
        arguments: tuple[Any, ...],
        grid: int | Sequence[int] | None,
        blocks: Mapping[str, tuple[int, Sequence[int] | None]],
    ) -> None:
        """Launches; ``blocks`` are the descriptors', by their names, with the places of the tensors."""
        if self._has_operator and isinstance(arguments[self._tensor], _class_of("torch", "Tensor")):
            if self._operator is None:
                self._operator = getattr(self._library.operators(), self._name).default
            named: dict[str, Any] = {name: block for name, (_, block) in blocks.items() if block is not None}
            if grid is not None:
                named["grid"] = (grid,) if isinstance(grid, int) else grid
            self._operator(*arguments, **named)
            return
        array = _class_of("numpy", "ndarray")
        for at in self._written:  # tvm-ffi does not pass this flag on
            if isinstance(arguments[at], array) and not arguments[at].flags.writeable:
                raise ValueError(f"{self._name}: argument {at} is written, and the array is read-only")
        if self._function is None:
            self._function = self._library.functions()[self._name]
        for at, block in blocks.values() if blocks else ():
            if block is not None:
                arguments = (*arguments[:at], (arguments[at], tuple(block)), *arguments[at + 1 :])
        if grid is None:
            self._function(*arguments)
        else:
            self._function(*arguments, (grid,) if isinstance(grid, int) else tuple(grid))
