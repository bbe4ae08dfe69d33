"""Reads the types of a kernel's parameters: a compiler compiles probes, whose mangled names contain the types.

A compiler mangles the type of ``decltype(kernel)`` into the name of ``silo_probe<decltype(kernel)>`` (Itanium C++ ABI,
5.1), and constants like ``sizeof(T)`` into the name of ``silo_sizes<...>``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from silo.core.values import dtype
from silo.errors import SourceError
from silo.frozen import frozen
from silo.kinds.cuda_cpp.cuda_text import members_of
from silo.kinds.cuda_cpp.cuda_unit import CudaMember, CudaText, CudaType, Form

__all__ = ["PROBE", "Mangled", "Prober", "demangled", "parameter_types", "written_scalar"]

PROBE: Final = (
    "\ntemplate<class silo_f> __global__ void silo_probe() {}\n"
    "template<class silo_t, unsigned long long... silo_v> __global__ void silo_sizes() {}\n"
    "template<class silo_f, int silo_n> struct silo_argument;\n"
    "template<class silo_r, class silo_a, class... silo_s, int silo_n>\n"
    "struct silo_argument<silo_r(silo_a, silo_s...), silo_n> : silo_argument<silo_r(silo_s...), silo_n - 1> {};\n"
    "template<class silo_r, class silo_a, class... silo_s>\n"
    "struct silo_argument<silo_r(silo_a, silo_s...), 0> { using silo_type = silo_a; };\n"
    "template<class silo_t> struct silo_element;\n"
    "template<class silo_t, decltype(sizeof(0)) silo_n>\n"
    "struct silo_element<silo_t[silo_n]> { using silo_type = silo_t; };\n"
    "template<class silo_t, bool> struct silo_underlying { using silo_type = silo_t; };\n"
    "template<class silo_t>\n"
    "struct silo_underlying<silo_t, true> { using silo_type = __underlying_type(silo_t); };\n"
)
"""The text that is appended to the user's text to read types. Its names are reserved, so that no user's macro has one.
"""


class Prober(Protocol):
    """A function that returns mangled names from a compiler."""

    def __call__(
        self, text: CudaText, defines: Sequence[tuple[str, str]], flags: Sequence[str], expressions: Sequence[str], /
    ) -> tuple[str, ...]:
        """Returns the mangled name of each expression, compiled after the text and :data:`PROBE`.

        Raises:
            CompileError: the compiler refuses the text; the message has the file and the lines.
            CompilerMissingError: the compiler is not installed.
        """
        ...


# ---- Parsing mangled names ----


@frozen
class Mangled:
    """A type in a mangled name.

    ``kind``: ``builtin``, ``named``, ``pointer``, ``reference``, ``const``, ``function``, ``array`` or ``number``.
    ``text`` is the name of a builtin or a named type, ``inner`` are the types that it consists of.
    """

    kind: str
    text: str = ""
    inner: tuple[Mangled, ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case "pointer":
                return f"{self.inner[0]} *"
            case "reference":
                return f"{self.inner[0]} &"
            case "const":
                inner = self.inner[0]
                return f"{inner} const" if inner.kind == "pointer" else f"const {inner}"
            case "function":
                return f"{self.inner[0]} ({', '.join(map(str, self.inner[1:]))})"
            case "array":
                return f"{self.inner[0]} [{self.text}]"
            case _:
                return self.text


_BUILTINS = MappingProxyType(
    {
        "v": "void",
        "b": "bool",
        "c": "char",
        "a": "signed char",
        "h": "unsigned char",
        "s": "short",
        "t": "unsigned short",
        "i": "int",
        "j": "unsigned int",
        "l": "long",
        "m": "unsigned long",
        "x": "long long",
        "y": "unsigned long long",
        "n": "__int128",
        "o": "unsigned __int128",
        "f": "float",
        "d": "double",
        "w": "wchar_t",
        "Dn": "decltype(nullptr)",
        "Ds": "char16_t",
        "Di": "char32_t",
        "Du": "char8_t",
        "DF16_": "_Float16",
        "DF16b": "__bf16",
    }
)
_STD = MappingProxyType({"Sa": "std::allocator", "Ss": "std::string", "St": "std"})
_MOST_NESTED = 64


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._seen: list[Mangled] = []
        self._depth = 0

    def fail(self) -> SourceError:
        return SourceError(f"a type in the mangled name {self._text!r} is not understood at {self._at}")

    def peek(self, size: int = 1) -> str:
        return self._text[self._at : self._at + size]

    def take(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False

    def matched(self, pattern: str) -> str:
        match = re.compile(pattern).match(self._text, self._at)
        if match is None:
            raise self.fail()
        self._at = match.end()
        return match.group()

    def remember(self, mangled: Mangled) -> Mangled:
        self._seen.append(mangled)
        return mangled

    def source_name(self) -> str:
        size = int(self.matched(r"\d{1,5}"))
        name = self.peek(size)
        self._at += size
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N") or "_INTERNAL_" in name else name

    def arguments(self) -> tuple[Mangled, ...]:
        """Parses template arguments up to their closing ``E``."""
        arguments: list[Mangled] = []
        while not self.take("E"):
            if self.take("L"):
                self.type()
                arguments.append(Mangled("number", self.matched(r"n?[0-9a-z]*").replace("n", "-")))
                self.matched("E")
            elif self.take("J"):
                arguments += self.arguments()
            elif self.take("X"):
                raise self.fail()
            else:
                arguments.append(self.type())
        return tuple(arguments)

    def with_arguments(self, name: str) -> Mangled:
        listing = ", ".join(map(str, self.arguments()))
        return self.remember(Mangled("named", f"{name}<{listing}>"))

    def substitution(self) -> Mangled:
        self.matched("S")
        if self.take("_"):
            number = 0
        else:
            number = int(self.matched("[0-9A-Z]+"), 36) + 1
            self.matched("_")
        if number >= len(self._seen):
            raise self.fail()
        return self._seen[number]

    def name(self) -> Mangled:
        if not self.take("N"):
            if self.take("St"):
                mangled = self.remember(Mangled("named", f"std::{self.source_name()}"))
            elif self.peek() == "S":
                mangled = self.substitution()
            else:
                mangled = self.remember(Mangled("named", self.source_name()))
            return self.with_arguments(mangled.text) if self.take("I") else mangled
        self.matched("[rVK]*")
        mangled: Mangled | None = None
        while not self.take("E"):
            if self.peek(2) == "St":
                self._at += 2
                mangled = Mangled("named", "std")
            elif self.peek() == "S":
                mangled = self.substitution()
            elif self.take("I"):
                if mangled is None:
                    raise self.fail()
                mangled = self.with_arguments(mangled.text)
            else:
                own = self.source_name()
                while self.take("B"):
                    self.source_name()  # an ABI tag
                mangled = self.remember(Mangled("named", own if mangled is None else f"{mangled.text}::{own}"))
        if mangled is None:
            raise self.fail()
        return mangled

    def type(self) -> Mangled:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise self.fail()
        try:
            return self._type()
        finally:
            self._depth -= 1

    def _type(self) -> Mangled:
        for sign, kind in (("P", "pointer"), ("R", "reference"), ("O", "reference"), ("K", "const")):
            if self.take(sign):
                return self.remember(Mangled(kind, "", (self.type(),)))
        if self.take("V") or self.take("r"):
            return self.remember(self.type())
        if self.take("F"):
            self.take("Y")
            inner: list[Mangled] = []
            while not self.take("E"):
                inner.append(self.type())
            return self.remember(Mangled("function", "", tuple(inner)))
        if self.take("A"):
            count = self.matched(r"\d*")
            self.matched("_")
            return self.remember(Mangled("array", count, (self.type(),)))
        if self.take("Dv"):
            count = self.matched(r"\d+")
            self.matched("_")
            return self.remember(Mangled("named", f"vector of {count} {self.type()}"))
        if self.take("u"):
            return self.remember(Mangled("named", self.source_name()))
        if self.peek() in ("N", "S") or self.peek().isdigit():
            if self.peek() == "S" and self.peek(2) not in ("St", "Sa", "Ss"):
                mangled = self.substitution()
                return self.with_arguments(mangled.text) if self.take("I") else mangled
            return self.name()
        for sign in ("DF16_", "DF16b", "Dn", "Ds", "Di", "Du", self.peek()):
            if sign in _BUILTINS and self.take(sign):
                return Mangled("builtin", _BUILTINS[sign])
        raise self.fail()


def demangled(name: str, probe: str) -> tuple[Mangled, ...]:
    """Returns the template arguments of a probe, from its mangled name. Raises SourceError.

    >>> [str(one) for one in demangled("_Z10silo_probeIFvPKfPff1PmEEvv", "silo_probe")]
    ['void (const float *, float *, float, P, unsigned long)']
    """
    start = f"_Z{len(probe)}{probe}I"
    if not name.startswith(start):
        raise SourceError(f"{name!r} is not the mangled name of {probe}")
    reader = _Reader(name)
    reader.take(start)
    reader.remember(Mangled("named", probe))
    return reader.arguments()


# ---- From mangled types to parameters ----

_SCALARS = MappingProxyType(
    {
        "bool": ("i1", 1),
        "char": ("i8", 1),
        "signed char": ("i8", 1),
        "unsigned char": ("u8", 1),
        "char8_t": ("u8", 1),
        "short": ("i16", 2),
        "unsigned short": ("u16", 2),
        "char16_t": ("u16", 2),
        "int": ("i32", 4),
        "unsigned int": ("u32", 4),
        "char32_t": ("u32", 4),
        "wchar_t": ("i32", 4),
        "long": ("i64", 8),
        "unsigned long": ("u64", 8),
        "long long": ("i64", 8),
        "unsigned long long": ("u64", 8),
        "float": ("fp32", 4),
        "double": ("fp64", 8),
        "__half": ("fp16", 2),
        "_Float16": ("fp16", 2),
        "__nv_bfloat16": ("bf16", 2),
        "__hip_bfloat16": ("bf16", 2),
        "__bf16": ("bf16", 2),
    }
)
_ELEMENTS = MappingProxyType(
    {
        **{name: short for name, (short, _) in _SCALARS.items()},
        "__nv_fp8_e4m3": "fp8e4nv",
        "__nv_fp8_e5m2": "fp8e5",
        "__half2": "fp16",
        "__nv_bfloat162": "bf16",
    }
)
_VECTORS = MappingProxyType(
    {
        "char": "i8",
        "uchar": "u8",
        "short": "i16",
        "ushort": "u16",
        "int": "i32",
        "uint": "u32",
        "long": "i64",
        "ulong": "u64",
        "longlong": "i64",
        "ulonglong": "u64",
        "float": "fp32",
        "double": "fp64",
    }
)
_VECTOR = re.compile(r"(u?char|u?short|u?int|u?longlong|u?long|float|double)([1-4])")
_PAIRS = MappingProxyType({"__half2": ("fp16", 2), "__nv_bfloat162": ("bf16", 2), "dim3": ("u32", 3)})
TENSOR_MAPS: Final = ("CUtensorMap", "CUtensorMap_st")
_LARGEST_ARRAY = 64  # the most elements of an array in a struct: a call passes each element separately


_SPELLED = MappingProxyType(
    {
        **{name: short for name, (short, _) in _SCALARS.items() if name not in ("wchar_t", "__bf16")},
        **_VECTORS,
        "unsigned": "u32",
        "signed": "i32",
        "short int": "i16",
        "unsigned short int": "u16",
        "long int": "i64",
        "unsigned long int": "u64",
        "long long int": "i64",
        "unsigned long long int": "u64",
        "size_t": "u64",
        "int8_t": "i8",
        "uint8_t": "u8",
        "int16_t": "i16",
        "uint16_t": "u16",
        "int32_t": "i32",
        "uint32_t": "u32",
        "int64_t": "i64",
        "uint64_t": "u64",
        "half": "fp16",
        "nv_bfloat16": "bf16",
    }
)


def written_scalar(spelled: str) -> CudaType | None:
    """Returns the type of a scalar by its usual names in C++; None for any other type.

    A text may define these names differently, so the result is compared with the type that the compiler reads.

    >>> written_scalar("unsigned long long").dtype, written_scalar("T")
    ('u64', None)
    """
    short = _SPELLED.get(spelled)
    if short is None:
        return None
    size = dtype(short).itemsize
    return CudaType(Form.SCALAR, spelled, short, bytes=size, align=size)


def _element(of: Mangled) -> tuple[str, int]:
    """Returns the scalar behind a pointer, and the number of scalars in an element; ("", 1) if unknown."""
    name = of.text.rpartition("::")[2]
    if name in _PAIRS:
        return _PAIRS[name]
    if (match := _VECTOR.fullmatch(name)) is not None:
        return _VECTORS[match[1]], int(match[2])
    return _ELEMENTS.get(of.text, _ELEMENTS.get(name, "")), 1


def _plain_type(of: Mangled) -> CudaType | None:
    """Returns the type if the mangled name alone determines it; None for a struct, a vector or an enumeration."""
    if of.kind == "const":
        return _plain_type(of.inner[0])
    if of.kind == "pointer":
        pointee = of.inner[0]
        const = pointee.kind == "const"
        inner = pointee.inner[0] if const else pointee
        dtype, lanes = _element(inner) if inner.kind in ("builtin", "named") else ("", 1)
        return CudaType(Form.POINTER, str(of), dtype, const=const, lanes=lanes)
    name = of.text if of.text in _SCALARS else of.text.rpartition("::")[2]
    if of.kind in ("builtin", "named") and name in _SCALARS:
        short, size = _SCALARS[name]
        return CudaType(Form.SCALAR, str(of), short, bytes=size, align=size)
    return None


def _is_tensor_map(of: Mangled) -> bool:
    return of.kind == "named" and of.text.rpartition("::")[2] in TENSOR_MAPS


class _Probing:
    """Reads the types of one kernel; it runs the compiler once for each level of nesting."""

    def __init__(self, label: str, text: CudaText, mangled_names: Callable[[Sequence[str]], tuple[str, ...]]) -> None:
        self._label = label
        self._text = text
        self._ask = mangled_names

    def types(self, expression: str) -> tuple[CudaType, ...]:
        (name,) = self._ask([f"silo_probe<decltype({expression})>"])
        (function,) = demangled(name, "silo_probe")
        if function.kind != "function":
            raise SourceError(
                f"{self._label}: {expression} is {function}, not one function: name the kernel's arguments"
            )
        parameters = [parameter for parameter in function.inner[1:] if str(parameter) != "void"]
        spelled = [f"silo_argument<decltype({expression}), {at}>::silo_type" for at in range(len(parameters))]
        return tuple(self._typed(list(zip(parameters, spelled, strict=True))))

    def _typed(self, types_and_spellings: Sequence[tuple[Mangled, str]]) -> list[CudaType]:
        types = [_plain_type(item) for item, _ in types_and_spellings]
        open_types = [at for at, type_ in enumerate(types) if type_ is None]
        for at in open_types:
            if types_and_spellings[at][0].kind not in ("named", "array"):
                raise SourceError(
                    f"{self._label}: a parameter is {types_and_spellings[at][0]}, which a launch cannot pass"
                )
        if open_types:
            structs = self._structs([types_and_spellings[at] for at in open_types])
            for at, item in zip(open_types, structs, strict=True):
                types[at] = item
        return [type_ for type_ in types if type_ is not None]

    def _structs(self, types_and_spellings: Sequence[tuple[Mangled, str]]) -> list[CudaType]:
        names = self._ask(
            [
                f"silo_sizes<silo_underlying<{spelled}, __is_enum({spelled})>::silo_type, sizeof({spelled}), "
                f"alignof({spelled}), __is_enum({spelled})>"
                for _, spelled in types_and_spellings
            ]
        )
        types: list[CudaType] = []
        for (of, spelled), name in zip(types_and_spellings, names, strict=True):
            own, *numbers = demangled(name, "silo_sizes")
            size, align, is_enum = (int(number.text) for number in numbers)
            if is_enum:
                plain = _plain_type(own)
                assert plain is not None  # the underlying type of an enumeration is a builtin
                types.append(CudaType(Form.SCALAR, str(of), plain.dtype, bytes=plain.bytes, align=plain.align))
            elif _is_tensor_map(of):
                types.append(CudaType(Form.TENSORMAP, str(of), bytes=size, align=align))
            else:
                members = self._members(of, spelled, size, align)
                types.append(CudaType(Form.STRUCT, str(of), bytes=size, align=align, members=tuple(members)))
        return types

    def _members(self, of: Mangled, spelled: str, size: int, align: int) -> list[CudaMember]:
        """Returns the members of a struct; members of nested structs and arrays are named by their paths.

        Returns [] if no member is found, or if the members found do not fill the struct: base classes, unions and
        virtual functions are not read.
        """
        name = of.text.partition("<")[0].rpartition("::")[2]
        vector = _VECTOR.fullmatch(name)
        if vector is not None or name in _PAIRS:
            names: Sequence[str] = "xyzw"[: _element(of)[1]]
        else:
            texts = (self._text.text, *(text for _, text in self._text.headers))
            names = next((members for text in texts if (members := members_of(text, name))), ())
        if not names:
            return []
        # The mangled name of each probe contains the type of the member and the member's offset in bytes.
        expressions = [
            f"silo_sizes<decltype({spelled}::{item}), __builtin_offsetof({spelled}, {item})>" for item in names
        ]
        read = [demangled(item, "silo_sizes") for item in self._ask(expressions)]
        struct_members: list[CudaMember] = []
        flat: list[tuple[str, int, Mangled, str]] = []
        for own, (kind, offset) in zip(names, read, strict=True):
            flat.append((own, int(offset.text), kind, f"decltype({spelled}::{own})"))
        while any(kind.kind == "array" for _, _, kind, _ in flat):
            flat = self._without_arrays(flat)
        types = self._typed([(kind, spelling) for _, _, kind, spelling in flat])
        if not _covers([(offset, kind) for (_, offset, _, _), kind in zip(flat, types, strict=True)], size, align):
            return []
        for (own, offset, _, _), kind in zip(flat, types, strict=True):
            if kind.form == Form.STRUCT:
                struct_members += [
                    CudaMember(f"{own}.{member.name}", offset + member.offset, member.type) for member in kind.members
                ]
            else:
                struct_members.append(CudaMember(own, offset, kind))
        return struct_members

    def _without_arrays(self, members: list[tuple[str, int, Mangled, str]]) -> list[tuple[str, int, Mangled, str]]:
        flat: list[tuple[str, int, Mangled, str]] = []
        arrays = [member for member in members if member[2].kind == "array"]
        elements = [f"silo_element<{spelling}>::silo_type" for _, _, _, spelling in arrays]
        sizes = self._ask([f"silo_sizes<int, sizeof({element})>" for element in elements])
        size_of = {
            path: int(demangled(size, "silo_sizes")[1].text)
            for (path, _, _, _), size in zip(arrays, sizes, strict=True)
        }
        for path, offset, kind, spelling in members:
            if kind.kind != "array":
                flat.append((path, offset, kind, spelling))
                continue
            count = int(kind.text or 0)
            if not 1 <= count <= _LARGEST_ARRAY:
                raise SourceError(
                    f"{self._label}: {path} is an array of {count} elements in a struct by value; at most "
                    f"{_LARGEST_ARRAY} are passed: pass a pointer to an array instead"
                )
            element = f"silo_element<{spelling}>::silo_type"
            flat += [
                (f"{path}.{index}", offset + index * size_of[path], kind.inner[0], element) for index in range(count)
            ]
        return flat


def _covers(members: Sequence[tuple[int, CudaType]], size: int, align: int) -> bool:
    """Whether members at these offsets, with only C's padding between them, fill the struct up to ``size``."""
    end = 0
    for offset, own in members:
        if offset != -(-end // own.align) * own.align:
            return False
        end = offset + own.bytes
    return size == -(-end // align) * align


def parameter_types(
    label: str,
    text: CudaText,
    expression: str,
    mangled_names: Callable[[Sequence[str]], tuple[str, ...]],
) -> tuple[CudaType, ...]:
    """Returns the types of a kernel's parameters. ``mangled_names`` returns the mangled names of expressions.

    Raises:
        SourceError: the expression names no kernel, or a parameter cannot be passed; ``label`` names the kernel in the
            message.
        CompileError: the compiler refuses the text.
    """
    return _Probing(label, text, mangled_names).types(expression)
