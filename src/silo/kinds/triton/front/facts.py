"""Facts of code, read from a kernel's TTIR; the text is parsed once for all facts."""

from __future__ import annotations

from collections.abc import Mapping

from silo.core.code_facts import CodeFacts, Numerics, Traits
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.signature import Effect, Signature
from silo.core.specialization import Specialization
from silo.errors import SourceError
from silo.kinds.triton.front.ssa import Module
from silo.kinds.triton.front.triton_specialize import module_arguments
from silo.kinds.triton.front.ttir import parse_ttir

__all__ = ["TtirFacts", "shows_its_memory"]


class TtirFacts(CodeFacts):
    """The facts of one lowered variant. ``module`` is the parsed ``text``; with None, the text is parsed on demand."""

    def __init__(
        self, text: str, signature: Signature, specialization: Specialization, module: Module | None = None
    ) -> None:
        self._text = text
        self._signature = signature
        self._specialization = specialization
        self._parsed = module

    @property
    def _module(self) -> Module:
        if self._parsed is None:
            self._parsed = parse_ttir(self._text)
        return self._parsed

    @property
    def effects(self) -> Mapping[str, Effect]:
        """The effect through each parameter. Empty if the text cannot be read: pointers then count as written."""
        from silo.kinds.triton.front.ssa_facts import effects_of  # noqa: PLC0415  # code that is stored has them beside it

        try:
            return effects_of(self._module, self._signature, self._specialization)
        except SourceError:
            return {}

    @property
    def shows_its_memory(self) -> Decision:
        """Whether all memory that the kernel accesses belongs to its arguments."""
        return shows_its_memory(self._module)

    @property
    def traits(self) -> Traits:
        """The numbers of the kernel's operations of each kind, and the axes of its blocks."""
        from silo.kinds.triton.front.ssa_facts import traits_of  # noqa: PLC0415  # few kernels leave their space to a guess

        arguments = module_arguments(self._signature, self._specialization, self._module)
        return traits_of(self._module, [argument.parameter for argument in arguments])

    @property
    def numerics(self) -> Numerics:
        """The order of each sum of the kernel, and a digest of the expression of each value that it stores."""
        from silo.kinds.triton.front.ssa_facts import numerics_of  # noqa: PLC0415  # asked for in deterministic mode alone

        return numerics_of(self._module)


def shows_its_memory(module: Module) -> Decision:
    """Whether all memory that a kernel (with the functions it calls) accesses belongs to its arguments.

    The answer is no for a kernel that loads addresses, or makes them of integers, as grouped matrix products do.
    """
    from silo.kinds.triton.front.operations import tt  # noqa: PLC0415  # asked of code that was just lowered

    for operation in module.walk():
        if operation.name == tt.INT_TO_PTR:
            return Rejected("it makes addresses of integers")
        if operation.name == tt.LOAD and operation.result.type.pointer:
            return Rejected("it loads addresses from memory")
    return Accepted()
