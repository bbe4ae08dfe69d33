"""Ways to launch a kernel, in one module for each family; each is a function from a ``Context`` to a ``Call``.

If a launcher is not installed, its function raises ``AbsentError`` with the reason; any other error is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.launch.cases import GRID, Call, Case


class AbsentError(Exception):
    """Raised if a launcher is not installed; the message has the reason."""


@dataclass
class Context:
    """One case on one device, with everything that a launcher needs.

    ``tensors`` are the pointer arguments by name, ``stream`` is the handle of the framework's current stream.
    ``bundle`` has the case's kernel. Members that only some launchers need are made at first use.
    """

    case: Case
    folder: Path
    stream: int = 0
    device: int = 0
    capability: int = 90
    tensors: Mapping[str, Any] = field(default_factory=dict)
    bundle: Path | None = None
    kernels: Any = None  # the module bench.launch.silo_kernels

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments by name, pointers as tensors."""
        return {**self.tensors, **self.case.integer_values(), **self.case.constexpr_values()}

    @property
    def addresses(self) -> dict[str, Any]:
        """All arguments by name, pointers as integers."""
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
        """The PTX of a kernel ``nop`` with the declared parameters, for launchers without a compiler; ends in zero."""
        parameters = [f".param .u64 {name}" for name in self.case.pointer_names]
        parameters += [f".param .u32 {name}" for name in self.case.integer_names]
        # Code for sm_80 runs on every later GPU; drivers refuse code for much older ones.
        head = f".version 7.0\n.target sm_{min(self.capability, 80)}\n.address_size 64\n"
        return f"{head}.visible .entry nop({', '.join(parameters)}) {{ ret; }}\n\0".encode()

    def call(self, statement: str, *, values: Mapping[str, Any] | None = None, constexprs: bool = True, **names: Any):
        """Return a call: ``{arguments}`` in the statement is replaced by the text of the case's arguments."""
        text = self.case.call_text(constexprs=constexprs)
        whole = statement.replace(", {arguments}", f", {text}" if text else "").replace("{arguments}", text)
        return Call(whole, {**(self.arguments if values is None else values), **names})


Prepare = Callable[[Context], Call]


@dataclass(frozen=True)
class Row:
    """One line of the table. ``stub``: the row can be measured without a GPU."""

    name: str
    label: str
    prepare: Prepare
    stub: bool = False
