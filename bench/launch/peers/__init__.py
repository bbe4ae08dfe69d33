"""Ways to launch a kernel, one module a family. Each is a function from a ``Context`` to a ``Call``.

A peer that is not installed raises ``AbsentError`` with the reason; whatever else one raises is its failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.launch.cases import GRID, Call, Case


class AbsentError(Exception):
    """This peer is not here; the message says why."""


@dataclass
class Context:
    """One case on one device, as every peer needs it.

    ``tensors`` are the pointer arguments by name, ``stream`` the stream's handle (the current one of the framework).
    ``bundle`` has the case's kernel. Members that only some peers need are made when one asks.
    """

    case: Case
    folder: Path
    stream: int = 0
    device: int = 0
    capability: int = 90
    tensors: Mapping[str, Any] = field(default_factory=dict)
    bundle: Path | None = None
    kernels: Any = None  # the module of Silo kernels

    @property
    def arguments(self) -> dict[str, Any]:
        """Every argument by name, pointers as tensors."""
        return {**self.tensors, **self.case.integer_values(), **self.case.constexpr_values()}

    @property
    def addresses(self) -> dict[str, Any]:
        """Every argument by name, pointers as integers."""
        raw = {name: t.data_ptr() if hasattr(t, "data_ptr") else t.address for name, t in self.tensors.items()}
        return {**raw, **self.case.integer_values(), **self.case.constexpr_values()}

    @cached_property
    def jit(self) -> Any:
        """The ``@triton.jit`` function."""
        from bench.launch import nop_kernels

        return getattr(nop_kernels, self.case.kernel)

    @cached_property
    def compiled(self) -> Any:
        """Triton's ``CompiledKernel`` for these arguments, loaded."""
        compiled = self.jit[GRID](*self.arguments.values())
        if compiled is None:
            raise RuntimeError("Triton's launch gave no compiled kernel")
        compiled._init_handles()  # noqa: SLF001  # what its own run property does first
        return compiled

    @cached_property
    def ptx(self) -> bytes:
        """A kernel ``nop`` with just the declared parameters, for launchers that bring no compiler; ends in a zero."""
        parameters = [f".param .u64 {name}" for name in self.case.pointer_names]
        parameters += [f".param .u32 {name}" for name in self.case.integer_names]
        # Code for sm_80 runs on everything later; drivers no longer take what is much older.
        head = f".version 7.0\n.target sm_{min(self.capability, 80)}\n.address_size 64\n"
        return f"{head}.visible .entry nop({', '.join(parameters)}) {{ ret; }}\n\0".encode()

    def call(self, statement: str, *, values: Mapping[str, Any] | None = None, constexprs: bool = True, **names: Any):
        """A call: ``{arguments}`` in the statement becomes the arguments as written, by name."""
        text = self.case.call_text(constexprs=constexprs)
        whole = statement.replace(", {arguments}", f", {text}" if text else "").replace("{arguments}", text)
        return Call(whole, {**(self.arguments if values is None else values), **names})


Prepare = Callable[[Context], Call]


@dataclass(frozen=True)
class Row:
    """One line of the table. ``stub``: can be measured where there is no GPU."""

    name: str
    label: str
    prepare: Prepare
    stub: bool = False
