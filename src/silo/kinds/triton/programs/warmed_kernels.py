"""Compiled kernels that a program launches by hand, as ``kernel.warmup`` returns them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from silo.core.dtypes import dtype
from silo.errors import SiloError, UnsupportedError
from silo.kinds.triton.front import adapter
from silo.kinds.triton.front.adapter import CompiledProgram
from silo.kinds.triton.programs.compiled_code import (
    bind_program,
    descriptor_block,
    device_at,
    read_launch,
    target_of,
)
from silo.kinds.triton.programs.program_kernels import SLOT, TABLE, ProgramKernel, guarded, loaded_code
from silo.launch.arguments import CallArgument, SeenCall, ValueKind
from silo.launch.native import TritonKernel
from silo.launch.runtime import make_triton_launcher

__all__ = ["WarmedKernel"]


class WarmedKernel:
    """One compiled kernel of a Triton program, which holds this. Its launches are counted as its function's.

    As with Triton, every launch runs this code: neither alignment nor divisibility nor a constexpr is compared.
    """

    def __init__(self, compiled: Any, kernel: ProgramKernel) -> None:  # noqa: ANN401  # Triton's CompiledKernel
        self._compiled = weakref.ref(compiled)
        self._kernel = kernel
        launcher, refused = None, None
        try:
            launcher = make_triton_launcher(
                kernel.name, guarded(kernel.signature), on_miss=self._on_miss, options=(), defaults={}
            )
        except SiloError as error:
            refused = kernel.refuse(str(error)).reason
        self.native = TritonKernel(compiled, launcher, kernel.left, refused, kernel.native)
        vars(compiled)[SLOT] = self.native
        TABLE.also(self)

    @staticmethod
    def native_of(compiled: Any) -> TritonKernel | None:  # noqa: ANN401
        """The object that serves a compiled kernel's launches.

        None: it was not compiled from a function of Triton's.
        """
        function = getattr(getattr(compiled, "src", None), "fn", None)
        if not adapter.is_kernel(function):
            return None
        return WarmedKernel(compiled, ProgramKernel.of(function)).native

    def detach(self) -> None:
        """Leave the compiled kernel as it was."""
        compiled = self._compiled()
        members: dict[str, object] = {} if compiled is None else compiled.__dict__
        if members.get(SLOT) is self.native:
            del members[SLOT]

    def _on_miss(self, call: SeenCall, own_way: Callable[[], object]) -> tuple[object, object]:
        """Launch as Triton does, and use the code for calls of this kind from then on."""
        result = own_way()
        try:
            program = adapter.read_compiled(self._compiled())
            for one in call.arguments:
                _check(one, program)
            target, launch = target_of(program), read_launch(program)
            code: Any = loaded_code(self._kernel.name, program, launch, device_at(target.kind, call.device[1]))
            binding = bind_program(code, launch, self._kernel.signature, None)
        except SiloError as error:
            return self._kernel.refuse(str(error)), result
        return binding, result


def _check(argument: CallArgument, program: CompiledProgram) -> None:
    """Raise UnsupportedError for an argument of another kind than the code takes; Triton passes it, or raises."""
    kind = program.signature.get(argument.name)
    if not isinstance(kind, str):
        raise UnsupportedError(f"the argument {argument.name} is a tuple")
    block = descriptor_block(kind)
    if block is not None and (
        argument.kind is not ValueKind.DESCRIPTOR
        or (argument.dtype, argument.block_shape) != (dtype(block[0]), block[1])
    ):
        raise UnsupportedError(f"the descriptor {argument.name} is not of the kernel's type {kind}")
    signed = argument.kind is ValueKind.INT and argument.dtype is not None and argument.dtype.short.startswith("i")
    if kind.startswith("u") and signed:
        raise UnsupportedError(f"the argument {argument.name} may be below 0, and the kernel's type is {kind}")
