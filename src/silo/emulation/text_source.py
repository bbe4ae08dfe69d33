"""The base class of kernels in C-like languages, whose constants are macros or literals in the text."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from silo.core.argument_facts import ArgumentFacts, describe
from silo.core.config import Config
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import DType, DTypeKind, Value
from silo.core.variant import Variant
from silo.errors import ArgumentError, SourceError
from silo.sources.written_values import constants_of

__all__ = ["TextSource"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TextSource(abc.ABC):
    """One kernel in a source text. Its signature has the kernel's parameters, then its constants.

    Subclasses implement the rest of :class:`silo.sources.kernel_source.KernelSource`.
    """

    name: str
    signature: Signature
    location: str
    exact: frozenset[str] = frozenset()  # no scalar's exact value decides the code
    extents: None = None  # no array's shape decides the code

    def __str__(self) -> str:
        return f"{self.name} ({self.location})"

    @property
    def heuristics(self) -> Mapping[str, Callable[..., object]]:
        """Empty: no constants are computed from the arguments."""
        return {}

    def constants_of(self, config: Config, specialization: Specialization) -> Mapping[str, Value]:
        """Returns an empty mapping: a config sets only constants that are in the signature."""
        del config, specialization
        return {}

    def specialize(self, arguments: Mapping[str, ArgumentFacts]) -> tuple[Signature, Specialization]:
        """Returns the typed signature of one call, and its constants. Raises ArgumentError."""
        if unknown := [argument for argument in arguments if argument not in self.signature.names]:
            names = ", ".join(self.signature.names)
            raise ArgumentError(f"{self.name} has no parameter {', '.join(unknown)}; it takes {names}")
        parameters: list[Parameter] = []
        constants: list[tuple[str, Value]] = []
        for parameter in self.signature.parameters:
            argument = arguments.get(parameter.name)
            if parameter.kind is ParameterKind.CONSTEXPR:
                if argument is not None:
                    if argument.is_pointer:
                        raise ArgumentError(
                            f"{self.name}: {parameter.name} is a constant, so it takes a value, not an array"
                        )
                    constants.append((parameter.name, argument.value))
                parameters.append(parameter)
            elif argument is None:
                raise ArgumentError(f"{self.name}: the argument {parameter.name} is missing")
            else:
                parameters.append(self._typed(parameter, argument))
                if argument.block_shape:
                    constants.append((parameter.name, argument.block_shape))
        return Signature(tuple(parameters)), Specialization((), tuple(constants))

    @abc.abstractmethod
    def _typed(self, parameter: Parameter, facts: ArgumentFacts) -> Parameter:
        """Returns a parameter with the type that an argument gives it.

        Raises ArgumentError if the argument cannot be passed to the parameter.
        """

    def _check_scalar(self, name: str, kind: DType, spelled: str, facts: ArgumentFacts) -> None:
        """Raises ArgumentError if the argument is not a number or does not fit the type ``spelled``."""
        value = facts.value
        if facts.is_pointer:
            raise ArgumentError(f"{self.name}: {name} is {spelled}; it takes a number, not an array")
        if not isinstance(value, bool | int | float):
            raise ArgumentError(f"{self.name}: {name} is {spelled}; it cannot be {describe(value)}")
        if kind.kind in (DTypeKind.FLOAT, DTypeKind.BOOL):
            return
        low = 0 if kind.kind is DTypeKind.UINT else -(1 << (kind.bits - 1))
        if not isinstance(value, int):
            raise ArgumentError(f"{self.name}: {name} is {spelled}; {describe(value)} is not an integer")
        if not low <= value < low + (1 << kind.bits):
            raise ArgumentError(f"{self.name}: {name} is {spelled}; {value} does not fit")

    def constant(self, value: object) -> Value:
        """Returns the value of a constant: a number, a bool, or the text of a macro. Raises SourceError."""
        if isinstance(value, bool | int | float | str):
            return value
        raise SourceError(f"{self}: a constant cannot be {describe(value)}: give a number, a bool or a text")

    def constants(self, variant: Variant) -> dict[str, Value]:
        """Returns every constant of a variant: the call's, else the config's, else the default. Raises SourceError."""
        return constants_of(self, self.signature, variant)
