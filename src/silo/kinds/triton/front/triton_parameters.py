"""The kernel parameter that each argument of a lowered module comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.errors import SourceError
from silo.kinds.triton.front.ssa import Module, Type

__all__ = ["ModuleArgument", "module_arguments"]


@dataclass(frozen=True, slots=True)
class ModuleArgument:
    """One argument of the kernel function.

    ``part`` is "" for a pointer, a scalar or the descriptor itself (its base pointer where descriptors were rewritten
    to pointers). The rest of a descriptor: ``shape.0``, ``stride.0``, ..., ``nan`` (pad with NaN) and ``tf32`` (round
    what is loaded to tf32). Shape and strides come twice where descriptors were rewritten.
    """

    parameter: str
    part: str
    type: Type


def module_arguments(
    signature: Signature, specialization: Specialization, module: Module
) -> tuple[ModuleArgument, ...]:
    """The kernel's arguments in order. Parameters folded into the code have none.

    Raises:
        SourceError: the module was not lowered from this signature and specialization.
    """
    types = [argument.type for argument in module.entry.regions[0].blocks[0].arguments]
    found: list[ModuleArgument] = []
    for parameter in signature.parameters:
        facts = specialization.facts_of(parameter.name)
        if parameter.kind is ParameterKind.CONSTEXPR or facts & {Fact.EQUAL_1, Fact.NONE}:
            continue
        for part in _parts(parameter, specialization, types[len(found) :]):
            if len(found) == len(types):
                break
            found.append(ModuleArgument(parameter.name, part, types[len(found)]))
    if len(found) != len(types):
        raise SourceError(
            f"the module's kernel {module.kernel} takes {len(types)} arguments, "
            f"its signature makes {len(found)} with this specialization"
        )
    return tuple(found)


def _parts(parameter: Parameter, specialization: Specialization, rest: list[Type]) -> Iterator[str]:
    yield ""
    if parameter.kind is not ParameterKind.DESCRIPTOR:
        return
    block = specialization.constant_values.get(parameter.name)
    rank = len(block) if isinstance(block, tuple) else 0
    sizes = [*(f"shape.{axis}" for axis in range(rank)), *(f"stride.{axis}" for axis in range(rank))]
    if rest and rest[0].pointer:  # rewritten: 64-bit sizes and flags come before Triton's usual ones
        yield from sizes
        flags = rest[1 + len(sizes) : 3 + len(sizes)]
        yield from (name for name, kind in zip(("nan", "tf32"), flags, strict=False) if kind.element == "i1")
    yield from sizes
