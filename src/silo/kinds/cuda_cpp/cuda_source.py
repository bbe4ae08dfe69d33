"""Kernels in CUDA C++ as sources: a text, the name of a kernel in it, and how to launch it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module

from silo.core.argument_facts import ArgumentFacts, describe
from silo.core.launch_info import AbiType, LayoutSlot, TensorMap
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.values import JSON, DType, DTypeKind, Value, digest, dtype
from silo.core.variant import Variant
from silo.emulation.text_source import TextSource
from silo.errors import ArgumentError, CompileError, CompilerMissingError, SourceError
from silo.frozen import frozen, replace
from silo.kinds.cuda_cpp.cuda_unit import CudaParameter, CudaText, CudaType, CudaUnit, Form
from silo.kinds.cuda_cpp.kernel_body import waits_for_grid
from silo.kinds.cuda_cpp.literal_places import LiteralPlaces
from silo.kinds.cuda_cpp.signature_probe import Prober, parameter_types
from silo.sources.written_values import LaunchOptions

__all__ = [
    "CudaSource",
    "DeclaredParameter",
    "PassedValue",
    "entry_expression",
    "macro_text",
    "member_name",
    "scalar_parameter",
]

_KINDS = {DTypeKind.FLOAT: ParameterKind.FLOAT, DTypeKind.BOOL: ParameterKind.BOOL}
_WORD = re.compile(r"[A-Za-z_]\w*")


@frozen
class DeclaredParameter:
    """A parameter as the author declares it: its effect and its type, each None if the text decides.

    ``members``: the members of a struct by value; a call passes each as a separate value. ``map``: the encoding of a
    tensor map.
    """

    name: str
    effect: Effect | None = None
    type: CudaType | None = None
    members: tuple[DeclaredParameter, ...] = ()
    map: TensorMap | None = None

    def to_json(self) -> JSON:
        """Returns the canonical form."""
        effect = None if self.effect is None else self.effect.value
        own = None if self.type is None else self.type.to_json()
        encoding = None if self.map is None else self.map.to_json()
        return [self.name, effect, own, [member.to_json() for member in self.members], encoding]


def member_name(parameter: str, member: str) -> str:
    """Returns the name under which calls pass a member of a struct by value.

    >>> member_name("p", "a.0")
    'p_a_0'
    """
    return f"{parameter}_{member.replace('.', '_')}"


def scalar_parameter(parameter: Parameter, scalar_type: CudaType) -> Parameter:
    """Returns ``parameter`` with the scalar type ``scalar_type``, marked as one whose value never affects the code."""
    kind = dtype(scalar_type.dtype)
    parameter_kind = _KINDS.get(kind.kind, ParameterKind.INTEGER)
    return replace(parameter, kind=parameter_kind, dtype=kind, specialize=False, align=False)


@frozen
class PassedValue:
    """One value that a call passes: a parameter, or a member of a struct by value.

    ``part`` has the same form as in :class:`silo.core.launch_info.LayoutSlot`.
    """

    name: str
    type: CudaType
    effect: Effect
    part: str = ""
    map: TensorMap | None = None


def macro_text(name: str, value: Value) -> str:
    """Returns the text of a macro's value. Raises CompileError for a value that a macro cannot have.

    >>> macro_text("BLOCK", 128), macro_text("FAST", True), macro_text("T", "float")
    ('128', '1', 'float')
    """
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str) and not any(character in value for character in "\n\r\\#"):
        return value
    raise CompileError(f"the macro {name} cannot be {value!r}: give a number, a bool, or a text of one line")


def entry_expression(entry: str, constants: Mapping[str, Value]) -> str:
    """Returns an entry in which the constants that template arguments name are replaced by their values.

    >>> entry_expression("ns::add<T, 2 * BLOCK>", {"T": "float", "BLOCK": 64, "ns": 1})
    'ns::add<float, 2 * 64>'
    """
    name, bracket, arguments = entry.partition("<")

    def value(match: re.Match[str]) -> str:
        word = match.group()
        if word not in constants:
            return word
        constant = constants[word]
        return str(constant).lower() if isinstance(constant, bool) else macro_text(word, constant)

    return name + bracket + _WORD.sub(value, arguments)


@dataclass(frozen=True, kw_only=True, eq=False)
class CudaSource(TextSource):
    """One kernel of a text. Implements :class:`silo.sources.kernel_source.KernelSource`.

    ``signature`` has the kernel's parameters, whose types are read when they are first needed, then the constants.
    ``entry`` names the kernel as the author wrote it. Constants that its template arguments name are substituted there;
    all other constants become macros. ``first`` are the values of the constants that are used to read the types.
    ``typed``: the author has declared all types, so no compiler reads them. ``places``: the lines of the Python file
    that contains the text.
    """

    text: CudaText
    entry: str
    declared: tuple[DeclaredParameter, ...]
    launch: LaunchOptions
    first: tuple[tuple[str, Value], ...] = ()
    flags: tuple[str, ...] = ()
    cooperative: bool = False
    pdl: bool = False
    typed: bool = False
    places: LiteralPlaces | None = None
    kind: str = "cuda"

    @property
    def fingerprint(self) -> str:
        """A digest of the texts and of everything declared about the kernel; it contains no paths."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return digest(
            "cuda-source/1",
            [
                self.name,
                self.signature.to_json(),
                self.text.to_json(),
                self.entry,
                [parameter.to_json() for parameter in self.declared],
                self.launch.to_json(),
                list(self.flags),
                [self.cooperative, self.pdl],
            ],
        )

    # ---- Types ----

    @cached_property
    def parameters(self) -> tuple[CudaParameter, ...]:
        """The kernel's parameters with their types, which a compiler reads unless all are declared.

        Raises:
            SourceError: the kernel is not in the text, its parameters differ from the declared ones, or one of them
                cannot be passed.
            CompileError: the compiler refuses the text.
            CompilerMissingError: no compiler that can read types is installed.
        """
        types = [item.type for item in self.declared]
        if self.declared and all(types) and self.typed:
            return tuple(CudaParameter(item.name, item.type) for item in self.declared if item.type is not None)
        expression, defines = self._named(dict(self.first))
        prober = _prober()
        kinds = parameter_types(
            str(self), self.text, expression, lambda asked: self._probe(prober, defines, asked, expression)
        )
        if len(kinds) != len(self.declared):
            raise SourceError(
                f"{self}: {self.entry} has {len(kinds)} parameters ({', '.join(kind.spelled for kind in kinds)}), and "
                f"{len(self.declared)} are named ({', '.join(item.name for item in self.declared)}): name them in "
                "signature="
            )
        return tuple(self._agreed(item, kind) for item, kind in zip(self.declared, kinds, strict=True))

    def _probe(
        self, prober: Prober, defines: tuple[tuple[str, str], ...], question: object, expression: str
    ) -> tuple[str, ...]:
        from silo.kinds.cuda_cpp.user_headers import explained_text  # noqa: PLC0415  # for refused texts alone

        try:
            return prober(self.text, defines, self.flags, question)  # pyright: ignore[reportArgumentType]
        except CompileError as error:
            if type(error) is not CompileError:
                raise
            message = explained_text(str(error), str(self), expression, self.text)
            raise CompileError(
                message if self.places is None else self.places.renamed(message, self.text.file)
            ) from None

    def _agreed(self, declared: DeclaredParameter, cuda_type: CudaType) -> CudaParameter:
        own = declared.type
        if own is not None:
            same_dtype = not (own.dtype and cuda_type.dtype) or own.dtype == cuda_type.dtype
            if own.form != cuda_type.form or not same_dtype:
                raise SourceError(f"{self}: {declared.name} is declared as {own.spelled}; it is {cuda_type.spelled}")
        if (
            cuda_type.form not in (Form.POINTER, Form.TENSORMAP)
            and declared.effect is not None
            and cuda_type.form != Form.STRUCT
        ):
            raise SourceError(f"{self}: {declared.name} is {cuda_type.spelled}, which has no effect: arrays have")
        if cuda_type.const and declared.effect in (Effect.WRITE, Effect.BOTH):
            raise SourceError(f"{self}: {declared.name} is {cuda_type.spelled}, so it is not written")
        return CudaParameter(declared.name, cuda_type)

    @cached_property
    def passed(self) -> tuple[PassedValue, ...]:
        """The values of a call, in order: parameters, and the members of structs by value. Raises SourceError."""
        values: list[PassedValue] = []
        for parameter, declared in zip(self.parameters, self.declared, strict=True):
            own = parameter.type
            if own.form == Form.STRUCT:
                values += self._members(parameter, declared)
            elif declared.members:
                raise SourceError(f"{self}: {parameter.name} is {own.spelled}, not a struct by value")
            elif own.form == Form.TENSORMAP and declared.map is None:
                raise SourceError(
                    f"{self}: {parameter.name} is a tensor map, and only signature= says how it is encoded: "
                    f'{{"{parameter.name}": "in tensormap fp16 64x32 swizzle64"}}'
                )
            else:
                values.append(PassedValue(parameter.name, own, declared.effect or _effect_of(own), map=declared.map))
        return tuple(values)

    def _members(self, parameter: CudaParameter, declared: DeclaredParameter) -> list[PassedValue]:
        own, names = parameter.type, tuple(member.name for member in declared.members)
        read = tuple(member_name(parameter.name, member.name) for member in own.members)
        if not read or names != read:
            raise SourceError(
                f"{self}: {parameter.name} is {own.spelled}, a struct of {own.bytes} bytes with the members "
                f"({', '.join(read) or 'none that a text defines'}), and the text was read as "
                f"({', '.join(names) or 'none'}): pass a pointer to such a struct instead"
            )
        values: list[PassedValue] = []
        for type_member, member in zip(own.members, declared.members, strict=True):
            self._agreed(member, type_member.type)
            if type_member.type.const and member.effect in (Effect.WRITE, Effect.BOTH):
                raise SourceError(f"{self}: {member.name} is {type_member.type.spelled}, so it is not written")
            part = f"member.{type_member.offset}.{own.bytes}"
            values.append(
                PassedValue(member.name, type_member.type, member.effect or _effect_of(type_member.type), part)
            )
        return values

    @cached_property
    def _passed_by_name(self) -> dict[str, PassedValue]:
        return {value.name: value for value in self.passed}

    def _typed(self, parameter: Parameter, facts: ArgumentFacts) -> Parameter:
        declared = self._passed_by_name[parameter.name]
        match declared.type.form:
            case Form.POINTER:
                return self._array(parameter, declared, facts)
            case Form.SCALAR:
                return self._scalar(parameter, declared.type, facts)
            case Form.TENSORMAP:
                return self._descriptor(parameter, declared, facts)
            case _:
                raise ArgumentError(
                    f"{self.name}: {parameter.name} is {declared.type.spelled}, which a call cannot pass"
                )

    def _array(self, parameter: Parameter, declared: PassedValue, facts: ArgumentFacts) -> Parameter:
        name, own = parameter.name, declared.type
        pointer = replace(parameter, kind=ParameterKind.POINTER, effect=declared.effect)
        if not facts.is_pointer and facts.value is None and facts.dtype is None:
            return replace(pointer, dtype=dtype(own.dtype or "u8"))  # None is passed as a null pointer
        if not facts.is_pointer or facts.block_shape:
            raise ArgumentError(f"{self.name}: {name} takes an array, not {describe(facts.value)}")
        if facts.dtype is None:
            raise ArgumentError(f"{self.name}: the dtype of the array {name} is not known")
        if own.dtype and not _same_bits(dtype(own.dtype), facts.dtype):
            raise ArgumentError(
                f"{self.name}: {name} is an array of {facts.dtype}, and the kernel takes {own.spelled}: pass "
                f"{dtype(own.dtype)}"
            )
        if own.lanes > 1 and own.dtype:
            align = own.lanes * dtype(own.dtype).itemsize if own.lanes != 3 else dtype(own.dtype).itemsize
            if facts.address % min(align, 16):
                raise ArgumentError(
                    f"{self.name}: {name} is {own.spelled}, which begins at a multiple of {min(align, 16)} bytes; this "
                    "array does not"
                )
        return replace(pointer, dtype=facts.dtype)

    def _descriptor(self, parameter: Parameter, declared: PassedValue, facts: ArgumentFacts) -> Parameter:
        name, encoding = parameter.name, declared.map
        assert encoding is not None  # ``passed`` refuses a tensor map without an encoding
        if not facts.block_shape or facts.dtype is None:
            raise ArgumentError(f"{self.name}: {name} is a tensor map; it takes a silo.TensorDescriptor")
        if facts.block_shape != encoding.box or facts.dtype.itemsize != encoding.element_bytes:
            raise ArgumentError(
                f"{self.name}: {name} is a tensor map of blocks {list(encoding.box)} of {encoding.element_bytes} bytes "
                f"an element; the descriptor has blocks {list(facts.block_shape)} of {facts.dtype}"
            )
        return replace(parameter, kind=ParameterKind.DESCRIPTOR, dtype=facts.dtype, effect=declared.effect)

    def _scalar(self, parameter: Parameter, scalar_type: CudaType, facts: ArgumentFacts) -> Parameter:
        self._check_scalar(parameter.name, dtype(scalar_type.dtype), scalar_type.spelled, facts)
        return scalar_parameter(parameter, scalar_type)

    # ---- Variants ----

    def _named(self, constants: Mapping[str, Value]) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Returns the entry's expression, and the macros: all constants that the expression does not name."""
        arguments = set(_WORD.findall(self.entry.partition("<")[2]))
        macros = tuple(
            (name, macro_text(name, value)) for name, value in sorted(constants.items()) if name not in arguments
        )
        return entry_expression(self.entry, constants), macros

    def unit(self, variant: Variant) -> CudaUnit:
        """Returns everything that a compiler needs for one variant.

        Raises CompileError, which rejects only this config.
        """
        constants = self.constants(variant)
        expression, defines = self._named(constants)
        options = self.launch.values(str(self), constants)
        if not self.cooperative and (line := waits_for_grid(self.text.text, expression)):
            raise CompileError(
                f"{self}: {self.text.file}:{line}: the blocks wait for each other (a barrier of the grid), and the "
                "launch does not start all of them at once: pass cooperative=True"
            )
        return CudaUnit(
            text=self.text,
            expression=expression,
            defines=defines,
            flags=self.flags,
            layout=self.layout(variant.signature),
            block=options.block or (0, 0, 0),
            cluster=options.cluster or (0, 0, 0),
            shared_bytes=options.smem or 0,
            cooperative=self.cooperative,
            pdl=self.pdl,
            maps=tuple(value.map for value in self.passed if value.map is not None),
        )

    def layout(self, signature: Signature) -> tuple[LayoutSlot, ...]:
        """Returns the parameters of a typed signature in the form in which a launch passes them."""
        slots: list[LayoutSlot] = []
        for value in self.passed:
            parameter = signature[value.name]
            if value.map is not None:
                slots.append(LayoutSlot(value.name, AbiType.TENSORMAP))
                continue
            pointer = parameter.kind is ParameterKind.POINTER or parameter.dtype is None
            kind = AbiType.POINTER if pointer or parameter.dtype is None else AbiType(parameter.dtype.short)
            slots.append(LayoutSlot(value.name, kind, value.part))
        return tuple(slots)


def _effect_of(kind: CudaType) -> Effect:
    """Returns the effect of a pointer parameter: a pointer to const is read, any other is read and written."""
    return Effect.READ if kind.const else Effect.BOTH


def _same_bits(wanted: DType, dtype: DType) -> bool:
    """Whether an array of ``dtype`` may be passed as ``wanted``: integers of one width may differ in sign."""
    integers = (DTypeKind.INT, DTypeKind.UINT, DTypeKind.BOOL)
    return wanted == dtype or (wanted.bits == dtype.bits and wanted.kind in integers and dtype.kind in integers)


# For each compiler that can read types: its module, and the function that finds it. They are given as names and not
# imported here, because these modules import this module's package.
_NVRTC = "silo.kinds.cuda_cpp.nvrtc_process", "silo.kinds.cuda_cpp.nvrtc", "find_nvrtc"
_CLANG = "silo.kinds.cuda_cpp.cpu.clang_probe", "silo.emulation.clang", "find_clang"


def _prober() -> Prober:
    """Returns the function that reads types: NVRTC's, or clang's if NVRTC is missing. Raises CompilerMissingError."""
    missing: list[str] = []
    for prober, search, name in (_NVRTC, _CLANG):
        try:
            getattr(import_module(search), name)()
        except CompilerMissingError as error:
            missing.append(str(error))
        else:
            probe: Prober = import_module(prober).lowered_names
            return probe
    raise CompilerMissingError("; and without NVRTC clang reads the types: ".join(missing))
