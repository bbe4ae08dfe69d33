"""Compiled kernels as sources, and the notation in which their authors declare signatures: names, types, effects."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from silo.artifacts.runs_on import runs_on
from silo.core.argument_facts import ArgumentFacts, describe
from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import Target
from silo.core.launch_info import ABI_BYTES, AbiType, LaunchInfo, LayoutSlot, TensorMap
from silo.core.signature import Effect, NoDefault, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import JSON, DType, DTypeKind, FunctionValue, RecordValue, Value, digest, dtype, value_to_json
from silo.core.variant import Variant
from silo.errors import ArgumentError, NoVariantError, SourceError
from silo.sources.kernel_source import GivenCode
from silo.sources.kinds import brought_tools
from silo.sources.written_values import written_map, written_members

__all__ = [
    "BinaryCode",
    "BinarySource",
    "DeclaredParameters",
    "choose_code",
    "holds",
    "parse_assumptions",
    "parse_signature",
    "preference",
]

# ---- The signature of a compiled kernel in its author's notation: names, types, and which memory is written ----

_EFFECTS = {"in": Effect.READ, "out": Effect.WRITE, "inout": Effect.BOTH}
_HIDDEN = {"null": AbiType.PROFILE, "scratch": AbiType.SCRATCH}
_SCALARS = "bool, i8 to i64, u8 to u64, fp16, bf16, fp32, fp64"


@dataclass(frozen=True, slots=True)
class DeclaredParameters:
    """The parameters that callers pass, and all parameters of the binary in its order, including hidden ones."""

    signature: Signature
    layout: tuple[LayoutSlot, ...]
    maps: tuple[TensorMap, ...] = ()


def parse_signature(kernel: str, signature: str | Mapping[str, Value]) -> DeclaredParameters:
    """Parses ``"x: in *fp32, n: i32"`` or ``{"x": "in *fp32", "n": "i32"}``.

    A type is a dtype for a scalar and ``*dtype`` for an array, with the effect ``in``, ``out`` or ``inout`` (the
    default) before it. ``null`` is a pointer that is always null and ``scratch`` a pointer to scratch memory; callers
    pass neither. ``constexpr`` is a value folded into the binary, not one of its parameters; a value that is not text
    is a constexpr with that default. A struct by value is a mapping of its members, ``{"p": {"x": "in *fp32", "n":
    "i32"}}``: each is a parameter of its own, ``p_x`` and ``p_n``, placed in the struct as C lays it out. ``in
    tensormap fp16 64x32 swizzle64`` is a tensor map, for which calls pass a descriptor with these blocks.

    >>> declared = parse_signature("axpy", "x: in *fp32, n: i32, scratch: null, BLOCK: constexpr")
    >>> declared.signature.names, [slot.type.value for slot in declared.layout]
    (('x', 'n', 'BLOCK'), ['ptr', 'i32', 'profile'])

    Raises:
        SourceError: a type is unknown, or a name appears twice or is invalid.
    """
    parameters: list[Parameter] = []
    layout: list[LayoutSlot] = []
    maps: list[TensorMap] = []
    for name, written in written_members(kernel, signature).items():
        if isinstance(written, Mapping):
            _take_struct(kernel, name, cast("Mapping[str, Value]", written), parameters, layout)
            continue
        if isinstance(written, str) and written.strip() in _HIDDEN:
            layout.append(LayoutSlot("", _HIDDEN[written.strip()]))
            continue
        parameter, encoding = _map_parameter(kernel, name, written)
        if encoding is not None:
            maps.append(encoding)
            layout.append(LayoutSlot(name, AbiType.TENSORMAP))
            parameters.append(parameter)
            continue
        parameter = _parameter(kernel, name, written)
        parameters.append(parameter)
        if parameter.kind is not ParameterKind.CONSTEXPR:
            layout.append(LayoutSlot(name, _abi_type(parameter)))
    return DeclaredParameters(Signature(tuple(parameters)), tuple(layout), tuple(maps))


def _map_parameter(kernel: str, name: str, written: Value) -> tuple[Parameter, TensorMap | None]:
    words = written.split() if isinstance(written, str) else []
    effect = _EFFECTS[words.pop(0)] if words and words[0] in _EFFECTS else Effect.BOTH
    encoding = written_map(kernel, name, words)
    element = dtype(words[1]) if encoding is not None else None
    parameter = Parameter(name, ParameterKind.DESCRIPTOR, element, effect=effect, specialize=False, align=False)
    return parameter, encoding


def _take_struct(
    kernel: str, name: str, members: Mapping[str, Value], parameters: list[Parameter], layout: list[LayoutSlot]
) -> None:
    """Adds the members of a struct by value to ``parameters`` and ``layout``. Raises SourceError."""
    own_parameters = [_parameter(kernel, f"{name}_{member}", written) for member, written in members.items()]
    if not own_parameters or any(parameter.kind is ParameterKind.CONSTEXPR for parameter in own_parameters):
        raise SourceError(f"{kernel}: the struct {name} has arrays and scalars as members, at least one")
    types = [_abi_type(parameter) for parameter in own_parameters]
    offsets: list[int] = []
    end = 0
    for kind in types:
        size = ABI_BYTES[kind]
        offsets.append(-(-end // size) * size)
        end = offsets[-1] + size
    align = max(ABI_BYTES[kind] for kind in types)
    size = -(-end // align) * align
    parameters += own_parameters
    layout += [
        LayoutSlot(parameter.name, kind, f"member.{offset}.{size}")
        for parameter, kind, offset in zip(own_parameters, types, offsets, strict=True)
    ]


def _parameter(kernel: str, name: str, written: Value) -> Parameter:
    if not isinstance(written, str):
        try:
            value_to_json(written)
        except TypeError as error:
            raise SourceError(f"{kernel}: {name} in the signature is {written!r}: {error}") from None
        return Parameter(name, ParameterKind.CONSTEXPR, default=written)
    words = written.split()
    if words == ["constexpr"]:
        return Parameter(name, ParameterKind.CONSTEXPR)
    effect = _EFFECTS[words.pop(0)] if words and words[0] in _EFFECTS else None
    spelled = "".join(words)
    try:
        element = dtype(spelled.removeprefix("*"))
    except KeyError:
        raise SourceError(
            f"{kernel}: the type of {name} is {written!r}; write *dtype for an array (such as in *fp32, out *fp16), "
            f"a dtype for a scalar ({_SCALARS}), constexpr, null or scratch"
        ) from None
    if spelled.startswith("*"):
        return Parameter(
            name, ParameterKind.POINTER, element, effect=effect or Effect.BOTH, specialize=False, align=False
        )
    if effect is not None:
        raise SourceError(f"{kernel}: {name} is {written!r}; in, out and inout are for arrays: write *{spelled}")
    if element.kind is DTypeKind.FLOAT and element.bits < 16:
        raise SourceError(f"{kernel}: {name} is a scalar of {element}, which cannot be passed by value; use {_SCALARS}")
    kinds = {DTypeKind.BOOL: ParameterKind.BOOL, DTypeKind.FLOAT: ParameterKind.FLOAT}
    return Parameter(name, kinds.get(element.kind, ParameterKind.INTEGER), element, specialize=False, align=False)


def _abi_type(parameter: Parameter) -> AbiType:
    if parameter.kind is ParameterKind.POINTER:
        return AbiType.POINTER
    assert parameter.dtype is not None  # every scalar has a dtype
    return AbiType(parameter.dtype.short)


# ---- Assumptions of a compiled kernel about its arguments, in the notation of ``silo.binary`` ----

_FACTS = {
    ParameterKind.POINTER: (Fact.ALIGNED_16, Fact.POINTER_RANGE_32),
    ParameterKind.INTEGER: (Fact.DIVISIBLE_16,),
}
_BROKEN = {
    Fact.ALIGNED_16: "is not at a multiple of 16 bytes",
    Fact.POINTER_RANGE_32: "is not known to lie in less than 2 GiB of memory",
    Fact.DIVISIBLE_16: "is not a multiple of 16",
}


_EXACT_KINDS = (ParameterKind.BOOL, ParameterKind.INTEGER)


def parse_assumptions(kernel: str, facts: Mapping[str, Value], signature: Signature) -> Specialization:
    """Returns the assumptions written as ``{"x": "aligned16", "n": "divisible16", "k": 4096}``.

    Several facts of one parameter are a tuple. ``aligned16``: the array begins at a multiple of 16 bytes. ``range32``:
    the array's memory has less than 2 GiB, a fact that is known only of ROCm arrays. ``divisible16``: the integer is a
    multiple of 16. Any other value (4096): the integer, bool or constexpr has this value.

    Raises:
        SourceError: an unknown parameter, a fact that parameters of its kind cannot have, or a constexpr without a
            value.
    """
    assumed: list[tuple[str, Fact]] = []
    constants: dict[str, Value] = {
        parameter.name: parameter.default
        for parameter in signature.parameters
        if parameter.kind is ParameterKind.CONSTEXPR and not isinstance(parameter.default, NoDefault)
    }
    for name, written in facts.items():
        if name not in signature.names:
            raise SourceError(f"{kernel}: facts name {name!r}, and the signature has {', '.join(signature.names)}")
        parameter = signature[name]
        if parameter.kind is ParameterKind.CONSTEXPR:
            constants[name] = written
            continue
        for fact in written if isinstance(written, tuple) else (written,):
            if isinstance(fact, str):
                assumed.append((name, _fact(kernel, parameter, fact)))
            else:
                constants[name] = _exact(kernel, parameter, fact)
    for declared in signature.parameters:
        if declared.kind is ParameterKind.CONSTEXPR and declared.name not in constants:
            raise SourceError(
                f"{kernel}: {declared.name} is a constexpr; say which value the binary was compiled for: "
                f"facts={{{declared.name!r}: 128}}"
            )
    return Specialization(tuple(dict.fromkeys(assumed)), tuple(constants.items()))


def _fact(kernel: str, parameter: Parameter, word: str) -> Fact:
    fitting = _FACTS.get(parameter.kind, ())
    for fact in fitting:
        if fact.value == word:
            return fact
    words = [fact.value for fact in fitting]
    if parameter.kind in _EXACT_KINDS:
        words.append("an exact value")
    raise SourceError(
        f"{kernel}: facts say {word!r} of {parameter.name}, a {parameter.kind.value}; "
        f"of that can be assumed: {', '.join(words) or 'nothing'}"
    )


def _exact(kernel: str, parameter: Parameter, value: Value) -> Value:
    kind = bool if parameter.kind is ParameterKind.BOOL else int
    if parameter.kind not in _EXACT_KINDS or type(value) is not kind:
        raise SourceError(
            f"{kernel}: facts say that {parameter.name}, a {parameter.kind.value}, is {value!r}; "
            "an integer, a bool or a constexpr can have an exact value of its own type"
        )
    return value


def holds(assumed: Specialization, specialization: Specialization) -> Decision:
    """Whether all assumptions hold for a call; the reason names the first that does not."""
    values = specialization.constant_values
    for name, fact in assumed.facts:
        if fact not in specialization.facts_of(name):
            return Rejected(f"{name} {_BROKEN[fact]}, and it assumes {fact.value}")
    for name, value in assumed.constants:
        has = values.get(name)
        if name not in values or type(has) is not type(value) or has != value:
            other = "another" if name not in values else repr(has)
            return Rejected(f"it assumes {name} = {value!r}, and the call has {other}")
    words = [f"{name} {fact.value}" for name, fact in assumed.facts]
    words += [f"{name} = {cast('object', value)!r}" for name, value in assumed.constants]
    return Accepted(f"assumes {', '.join(words)}" if words else "assumes nothing of the arguments")


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
        """Returns all fields except the label; the bytes are replaced by their hash."""
        return [self.sha256, self.kind, str(self.target), self.assumes.to_json(), self.launch.to_json()]

    def __str__(self) -> str:
        words = [f"{name} {fact.value}" for name, fact in self.assumes.facts]
        words += [f"{name} = {value!r}" for name, value in self.assumes.constants]
        assumes = f", {', '.join(words)}" if words else ""
        return f"{self.label} ({self.kind} for {self.target}{assumes})"


# ---- The choice of a binary for a call on a device ----


def choose_code(
    codes: Sequence[BinaryCode], target: Target, specialization: Specialization
) -> tuple[BinaryCode | None, tuple[tuple[BinaryCode, Decision], ...]]:
    """Returns the best binary for a call on a device, or None; and each binary with the decision whether it fits."""
    decisions: list[tuple[BinaryCode, Decision]] = []
    for code in codes:
        runs = runs_on(code.target, target, code.kind)
        decisions.append((code, holds(code.assumes, specialization) if runs else runs))
    fitting = [code for code, decision in decisions if decision]
    return (max(fitting, key=preference) if fitting else None), tuple(decisions)


def preference(code: BinaryCode) -> tuple[int, bool, int]:
    """Returns the sort key of a binary that fits a call: the binary with the greatest key is chosen.

    Of binaries with equal keys, the first is chosen.

    More assumptions have a greater key, then machine code rather than PTX, then (for CUDA) a newer architecture.
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
        """The targets of the binaries, each once."""
        return tuple(dict.fromkeys(code.target for code in self.codes))

    def code_for(self, targets: Sequence[Target]) -> tuple[GivenCode, ...]:
        """Returns every binary that runs on one of the targets, in order of preference.

        Raises:
            NoVariantError: no binary runs on any of them; the message lists each binary with the reason.
        """
        codes: dict[Variant, GivenCode] = {}
        reasons: list[str] = []
        for code in sorted(self.codes, key=preference, reverse=True):
            decisions = [runs_on(code.target, target, code.kind) for target in targets]
            if not any(decisions):
                refusals = [decision.reason for decision in decisions if isinstance(decision, Rejected)]
                reasons.append(f"{code}: {'; '.join(dict.fromkeys(refusals))}")
                continue
            variant = Variant(self.name, self.fingerprint_of(code), self.signature, code.assumes, Config(), code.target)
            codes.setdefault(variant, GivenCode(variant, f"given as {code.label}", _assumes_nothing(code)))
        if not codes:
            listing = ", ".join(map(str, targets))
            raise NoVariantError(f"{self.name} ({self.location}) has no binary for {listing}", reasons)
        return tuple(codes.values())

    def explain(self, target: Target, specialization: Specialization) -> tuple[str, ...]:
        """Returns a line for each binary: whether it is chosen for a call on a device, with the reason."""
        chosen, decisions = choose_code(self.codes, target, specialization)
        words = ("chosen" if code is chosen else "accepted" if decision else "rejected" for code, decision in decisions)
        return tuple(
            f"{word}: {code}: {decision.reason}" for word, (code, decision) in zip(words, decisions, strict=True)
        )

    def code_text(self, form: str, target: str | None) -> tuple[Target, str]:
        """Returns the target and the text of the first binary that has this ``form`` (``ptx``, ``sass``, ``amdgcn``).

        PTX is returned unchanged, and machine code is disassembled. ``target`` None accepts any target. Raises
        SourceError if no binary has the form.
        """
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
        """Empty: no function computes constants for a binary."""
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
        """The names of the scalars for which a binary assumes an exact value."""
        return frozenset(
            name
            for code in self.codes
            for name, _ in code.assumes.constants
            if self.signature[name].kind is not ParameterKind.CONSTEXPR
        )

    @property
    def extents(self) -> None:
        """None: a binary accepts any shape."""
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
                if self._is_assumed(name, argument.value):
                    constants.append((name, argument.value))
        return self.signature, Specialization(tuple(fact for fact in facts if fact in self._assumed), tuple(constants))

    def _require_blocks(self, name: str, argument: ArgumentFacts) -> None:
        box = next(tensor_map.box for tensor_map in self.codes[0].launch.tensor_maps if tensor_map.name == name)
        if argument.block_shape != box:
            description = f"blocks {list(argument.block_shape)}" if argument.block_shape else "no descriptor"
            raise ArgumentError(
                f"{self.name}: {name} is a tensor map of blocks {list(box)}; the call passes {description}: pass a "
                "silo.TensorDescriptor with these blocks"
            )

    def _is_assumed(self, name: str, value: int) -> bool:
        """Whether some binary assumes exactly this value of the parameter ``name``.

        Only then does a call's specialization contain the value.
        """
        return any(
            owner == name and type(assumed) is type(value) and assumed == value
            for code in self.codes
            for owner, assumed in code.assumes.constants
        )

    @property
    def _names(self) -> str:
        return ", ".join(self.signature.names) or "nothing"

    def constants_of(self, config: Config, specialization: Specialization) -> Mapping[str, Value]:
        """Returns an empty mapping: a binary has no constants that a config could set."""
        del config, specialization
        return {}

    def constant(self, value: object) -> Value:
        """Returns a constexpr argument unchanged. Raises SourceError for an object that has no canonical form."""
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
