"""Compiled kernels as sources."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.dtypes import DType
from silo.core.launch_info import LaunchInfo
from silo.core.signature import NoDefault, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.target import Target
from silo.core.values import JSON, FunctionValue, Value, digest
from silo.errors import ArgumentError, SourceError

__all__ = ["BinaryCode", "BinarySource"]


@dataclass(frozen=True)
class BinaryCode:
    """One binary of a kernel.

    ``label`` stands for it in messages (its file's name); ``kind`` is ``cubin``, ``hsaco`` or ``ptx``; ``target`` what
    it was built for; ``assumes`` what must hold of the arguments, constexprs folded into it among that.
    """

    label: str
    kind: str
    data: bytes
    target: Target
    assumes: Specialization
    launch: LaunchInfo

    @cached_property
    def sha256(self) -> str:
        """Of the bytes, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    def to_json(self) -> JSON:
        """Everything but the label, the bytes by their hash."""
        return [self.sha256, self.kind, str(self.target), self.assumes.to_json(), self.launch.to_json()]

    def __str__(self) -> str:
        words = [f"{name} {fact.value}" for name, fact in self.assumes.facts]
        words += [f"{name} = {value!r}" for name, value in self.assumes.constants]
        assumes = f", {', '.join(words)}" if words else ""
        return f"{self.label} ({self.kind} for {self.target}{assumes})"


@dataclass(frozen=True, eq=False)
class BinarySource:
    """A compiled kernel: its signature, typed, and one or more binaries of it in order of preference.

    Implements :class:`silo.sources.kernel_source.KernelSource`.
    """

    name: str
    signature: Signature
    codes: tuple[BinaryCode, ...]
    location: str

    @property
    def kind(self) -> str:
        """Always ``binary``."""
        return "binary"

    @property
    def heuristics(self) -> Mapping[str, Callable[..., object]]:
        """None: a binary's constants are known."""
        return {}

    @property
    def fingerprint(self) -> str:
        """sha256 over the signature and over every binary, what it assumes and how it is launched; free of paths."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return digest("binary-source/1", [self.name, self.signature.to_json(), [code.to_json() for code in self.codes]])

    def fingerprint_of(self, code: BinaryCode) -> str:
        """The fingerprint of this kernel with one of its binaries only, as the variants of a bundle have it."""
        return digest("binary-source/1", [self.name, self.signature.to_json(), [code.to_json()]])

    @property
    def exact(self) -> frozenset[str]:
        """Scalars of which a binary assumes the very value."""
        return frozenset(
            name
            for code in self.codes
            for name, _ in code.assumes.constants
            if self.signature[name].kind is not ParameterKind.CONSTEXPR
        )

    @property
    def extents(self) -> None:
        """None: a binary takes any shape."""
        return

    @cached_property
    def _assumed(self) -> frozenset[tuple[str, Fact]]:
        return frozenset(fact for code in self.codes for fact in code.assumes.facts)

    def specialize(self, arguments: Mapping[str, ArgumentFacts]) -> tuple[Signature, Specialization]:
        """The signature, and those facts of one call that any of the binaries asks for.

        Raises:
            ArgumentError: an argument is missing, unknown, or None.
        """
        unknown = [name for name in arguments if name not in self.signature.names]
        if unknown:
            raise ArgumentError(f"{self.name} has no parameter {', '.join(unknown)}; it takes {self._names}")
        facts: list[tuple[str, Fact]] = []
        constants: list[tuple[str, Value]] = []
        for parameter in self.signature.parameters:
            name, argument = parameter.name, arguments.get(parameter.name)
            if argument is None:
                if isinstance(parameter.default, NoDefault):
                    raise ArgumentError(f"{self.name}: the argument {name} is missing; it takes {self._names}")
                argument = ArgumentFacts(parameter.default)
            if parameter.kind is ParameterKind.CONSTEXPR:
                constants.append((name, argument.value))
            elif argument.is_pointer:
                if argument.address % 16 == 0:
                    facts.append((name, Fact.ALIGNED_16))
                if argument.range32:
                    facts.append((name, Fact.POINTER_RANGE_32))
            elif argument.value is None:
                raise ArgumentError(
                    f"{self.name}: {name} is None, and a compiled kernel takes {parameter.dtype}; "
                    "pass 0 for a null pointer"
                )
            elif isinstance(argument.value, int):
                if argument.value % 16 == 0:
                    facts.append((name, Fact.DIVISIBLE_16))
                if self._asked(name, argument.value):
                    constants.append((name, argument.value))
        return self.signature, Specialization(tuple(fact for fact in facts if fact in self._assumed), tuple(constants))

    def _asked(self, name: str, value: int) -> bool:
        """Whether a binary assumes exactly this value: others are no part of which code serves a call."""
        return any(
            owner == name and type(assumed) is type(value) and assumed == value
            for code in self.codes
            for owner, assumed in code.assumes.constants
        )

    @property
    def _names(self) -> str:
        return ", ".join(self.signature.names) or "nothing"

    def constants_of(self, config: Config, specialization: Specialization) -> Mapping[str, Value]:
        """None: a binary's constants are known."""
        del config, specialization
        return {}

    def constant(self, value: object) -> Value:
        """A constexpr argument as it is. ``SourceError`` for what is no plain value."""
        if value is None or isinstance(value, bool | int | float | str | DType | FunctionValue):
            return value
        if isinstance(value, tuple):
            return tuple(self.constant(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # any tuple
        raise SourceError(f"{self.name}: {value!r} cannot be a constexpr; it takes numbers, text, tuples and None")
