"""Compiled kernels as sources."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from silo.artifacts.runs_on import runs_on
from silo.core.argument_facts import ArgumentFacts, describe
from silo.core.config import Config
from silo.core.decisions import Decision, Rejected
from silo.core.dtypes import DType
from silo.core.launch_info import LaunchInfo
from silo.core.signature import NoDefault, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.target import Target
from silo.core.values import JSON, FunctionValue, RecordValue, Value, digest
from silo.core.variant import Variant
from silo.errors import ArgumentError, NoVariantError, SourceError
from silo.kinds.binary.binary_parameters import holds
from silo.sources.kernel_source import GivenCode
from silo.sources.kinds import brought_tools

__all__ = ["BinaryCode", "BinarySource", "choose_code", "preference"]


# ---- The binaries of one kernel ----


# ---- One binary of a kernel: its bytes, target, assumptions and launch info ----


@dataclass(frozen=True)
class BinaryCode:
    """One binary of a kernel.

    ``label`` names it in messages (the file's name); ``kind`` is ``cubin``, ``hsaco`` or ``ptx``; ``target`` is the
    target it was built for; ``assumes`` are the facts that must hold for the arguments, and the constexprs folded into
    it.
    """

    label: str
    kind: str
    data: bytes
    target: Target
    assumes: Specialization
    launch: LaunchInfo

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the bytes, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    def to_json(self) -> JSON:
        """Returns all fields but the label; the bytes as their hash."""
        return [self.sha256, self.kind, str(self.target), self.assumes.to_json(), self.launch.to_json()]

    def __str__(self) -> str:
        words = [f"{name} {fact.value}" for name, fact in self.assumes.facts]
        words += [f"{name} = {value!r}" for name, value in self.assumes.constants]
        assumes = f", {', '.join(words)}" if words else ""
        return f"{self.label} ({self.kind} for {self.target}{assumes})"


# ---- The choice between a kernel's binaries for a call on a device. Pure ----


def choose_code(
    codes: Sequence[BinaryCode], target: Target, given: Specialization
) -> tuple[BinaryCode | None, tuple[tuple[BinaryCode, Decision], ...]]:
    """Returns the best binary for a device and the facts of a call, and the decision on each in the order given."""
    decisions: list[tuple[BinaryCode, Decision]] = []
    for code in codes:
        runs = runs_on(code.target, target, code.kind)
        decisions.append((code, holds(code.assumes, given) if runs else runs))
    fitting = [code for code, decision in decisions if decision]
    return (max(fitting, key=preference) if fitting else None), tuple(decisions)


def preference(code: BinaryCode) -> tuple[int, bool, int]:
    """Returns the sort key of binaries that fit: more assumptions, then machine code, then the newer architecture.

    The first of equal binaries is chosen.
    """
    number = re.search(r"[0-9]+", code.target.arch)
    newer = int(number.group()) if number and code.target.kind == "cuda" else 0
    return len(code.assumes.facts) + len(code.assumes.constants), code.kind != "ptx", newer


# ---- Compiled kernels as sources ----


@dataclass(frozen=True, eq=False)
class BinarySource:
    """A compiled kernel: its typed signature, and one or more binaries in order of preference.

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

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(map(str, self.codes))}"

    @property
    def own_targets(self) -> tuple[Target, ...]:
        """The targets of its binaries, without repetition."""
        return tuple(dict.fromkeys(code.target for code in self.codes))

    def code_for(self, targets: Sequence[Target]) -> tuple[GivenCode, ...]:
        """Returns every binary that runs on one of the targets, in order of preference.

        Raises:
            NoVariantError: no binary runs on any of them; lists each with the reason.
        """
        found: dict[Variant, GivenCode] = {}
        reasons: list[str] = []
        for code in sorted(self.codes, key=preference, reverse=True):
            decisions = [runs_on(code.target, target, code.kind) for target in targets]
            if not any(decisions):
                refusals = [decision.reason for decision in decisions if isinstance(decision, Rejected)]
                reasons.append(f"{code}: {'; '.join(dict.fromkeys(refusals))}")
                continue
            variant = Variant(self.name, self.fingerprint_of(code), self.signature, code.assumes, Config(), code.target)
            found.setdefault(variant, GivenCode(variant, f"given as {code.label}", _assumes_nothing(code)))
        if not found:
            listing = ", ".join(map(str, targets))
            raise NoVariantError(f"{self.name} ({self.location}) has no binary for {listing}", reasons)
        return tuple(found.values())

    def explain(self, target: Target, specialization: Specialization) -> tuple[str, ...]:
        """Returns a line for each binary: whether it is chosen for a call on a device, with the reason."""
        chosen, decisions = choose_code(self.codes, target, specialization)
        words = ("chosen" if code is chosen else "accepted" if decision else "rejected" for code, decision in decisions)
        return tuple(
            f"{word}: {code}: {decision.reason}" for word, (code, decision) in zip(words, decisions, strict=True)
        )

    def code_text(self, form: str, target: str | None) -> tuple[Target, str]:
        """Returns PTX unchanged, machine code disassembled."""
        from silo.artifacts.disassembly import DISASSEMBLED, disassemble  # noqa: PLC0415  # few programs look at it

        for code in self.codes:
            if target in (None, str(code.target)):
                if code.kind == form:
                    return code.target, code.data.decode()
                if DISASSEMBLED.get(code.kind) == form:
                    return code.target, disassemble(code.data, code.kind, brought_tools())
        have = ", ".join(f"{code.kind} for {code.target}" for code in self.codes)
        raise SourceError(f"{self.name}: there is no {form} of its binaries ({have})")

    @property
    def heuristics(self) -> Mapping[str, Callable[..., object]]:
        """Empty: a binary's constants are known."""
        return {}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the signature and of every binary with its assumptions and launch info; contains no paths."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return digest("binary-source/1", [self.name, self.signature.to_json(), [code.to_json() for code in self.codes]])

    def fingerprint_of(self, code: BinaryCode) -> str:
        """Returns the fingerprint of this kernel with only one of its binaries, for the variants of a bundle."""
        return digest("binary-source/1", [self.name, self.signature.to_json(), [code.to_json()]])

    @property
    def exact(self) -> frozenset[str]:
        """Scalars for which a binary assumes an exact value."""
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
        """Returns the signature, and the facts of one call that a binary may require.

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
            elif parameter.kind is ParameterKind.DESCRIPTOR:
                self._require_blocks(name, argument)
                constants.append((name, argument.block_shape))
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

    def _require_blocks(self, name: str, argument: ArgumentFacts) -> None:
        box = next(one.box for one in self.codes[0].launch.tensor_maps if one.name == name)
        if argument.block_shape != box:
            given = f"blocks {list(argument.block_shape)}" if argument.block_shape else "no descriptor"
            raise ArgumentError(
                f"{self.name}: {name} is a tensor map of blocks {list(box)}; the call passes {given}: pass a "
                "silo.TensorDescriptor with these blocks"
            )

    def _asked(self, name: str, value: int) -> bool:
        """Whether a binary assumes exactly this value; other values do not affect the choice."""
        return any(
            owner == name and type(assumed) is type(value) and assumed == value
            for code in self.codes
            for owner, assumed in code.assumes.constants
        )

    @property
    def _names(self) -> str:
        return ", ".join(self.signature.names) or "nothing"

    def constants_of(self, config: Config, specialization: Specialization) -> Mapping[str, Value]:
        """Returns an empty mapping: a binary's constants are known."""
        del config, specialization
        return {}

    def constant(self, value: object) -> Value:
        """Returns a constexpr argument unchanged. Raises SourceError for a value that is not plain."""
        if value is None or isinstance(value, bool | int | float | str | DType | FunctionValue | RecordValue):
            return value
        if isinstance(value, tuple):
            return tuple(self.constant(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # any tuple
        raise SourceError(
            f"{self.name}: {describe(value)} cannot be a constexpr; it takes numbers, text, tuples and None"
        )


def _assumes_nothing(code: BinaryCode) -> bool:
    constexprs = Specialization(constants=code.assumes.constants)
    return code.assumes == constexprs and not constexprs.constants
