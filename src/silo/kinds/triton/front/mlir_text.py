"""Reads parts of MLIR text: tokens with errors that name the line, source locations, types, floats bit for bit."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from silo.errors import SourceError
from silo.kinds.triton.front.ssa import Type

__all__ = [
    "FLOAT_FORMATS",
    "PLAIN_TYPE",
    "Cursor",
    "FloatFormat",
    "Locations",
    "float_from_bits",
    "is_scalar_type",
    "parse_signature",
    "parse_type",
    "read_type",
    "read_type_list",
    "round_to_format",
]

# ---- A position in MLIR text, with errors that name the line and the expected text ----

# Blanks and comments before a token. The pattern matches the empty string, so there always is a match.
_after_blanks = cast("Callable[[str, int], re.Match[str]]", re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*").match)
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_ESCAPE = re.compile(r"\\(?:([0-9A-Fa-f]{2})|(.))")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"'}
_MAX_DEPTH = 64
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


class Cursor:
    """Reads one text from left to right. Blanks and comments before a token are skipped by every method.

    A text has tens of thousands of tokens, so the methods call each other as little as they can.
    """

    __slots__ = ("depth", "position", "text", "what")

    def __init__(self, text: str, label: str = "TTIR", position: int = 0) -> None:
        self.text = text
        self.what = label
        self.position = position
        self.depth = 0

    def enter(self) -> None:
        """Begins a nested part of the text (an attribute, a type); raises an error if parts nest too deeply.

        Pair with :meth:`leave`.
        """
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error("less deeply nested text")

    def leave(self) -> None:
        """Ends the nested part that the last :meth:`enter` began."""
        self.depth -= 1

    def error(self, expected: str, position: int | None = None) -> SourceError:
        """Returns the error to raise; it names the line, the expected text and the actual text."""
        at = self.position if position is None else position
        line = self.text.count("\n", 0, at) + 1
        excerpt = self.text[at : at + 40].split("\n", 1)[0].strip()
        return SourceError(f"{self.what}, line {line}: expected {expected}, found {excerpt or 'the end of the line'!r}")

    def skip(self) -> int:
        """Skips blanks and comments; returns the new position."""
        self.position = position = _after_blanks(self.text, self.position).end()
        return position

    def at(self, literal: str) -> bool:
        """Whether ``literal`` comes next."""
        self.position = position = _after_blanks(self.text, self.position).end()
        return self.text.startswith(literal, position)

    def take(self, literal: str) -> bool:
        """Skips ``literal`` if it comes next; returns whether it did."""
        position = _after_blanks(self.text, self.position).end()
        is_next = self.text.startswith(literal, position)
        self.position = position + len(literal) if is_next else position
        return is_next

    def need(self, literal: str) -> None:
        """Skips ``literal``, or raises an error."""
        self.position = position = _after_blanks(self.text, self.position).end()
        if not self.text.startswith(literal, position):
            raise self.error(repr(literal))
        self.position = position + len(literal)

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Skips the text that ``pattern`` matches here, and returns the match or None."""
        self.position = position = _after_blanks(self.text, self.position).end()
        match = pattern.match(self.text, position)
        if match is not None:
            self.position = match.end()
        return match

    def need_match(self, pattern: re.Pattern[str], expected: str) -> str:
        """Skips the text that ``pattern`` matches here and returns it, or raises an error."""
        self.position = position = _after_blanks(self.text, self.position).end()
        match = pattern.match(self.text, position)
        if match is None:
            raise self.error(expected)
        self.position = match.end()
        return match.group()

    def string(self) -> str:
        """Reads a quoted string, and resolves its escapes."""
        match = self.match(_STRING)
        if match is None:
            raise self.error("a string")
        body = match.group(1)
        return _ESCAPE.sub(_unescape, body) if "\\" in body else body

    def balanced(self) -> str:
        """Reads the bracketed text that starts here, with its brackets.

        ``->`` closes no bracket; brackets in strings are ignored.
        """
        start = self.skip()
        text, at, pending = self.text, start, list[str]()
        while at < len(text):
            character = text[at]
            if character == '"':
                string = _STRING.match(text, at)
                if string is None:
                    raise self.error("the end of a string", at)
                at = string.end()
                continue
            if character in _CLOSING:
                pending.append(_CLOSING[character])
            elif text.startswith("->", at):
                at += 2
                continue
            elif pending and character == pending[-1]:
                pending.pop()
                if not pending:
                    self.position = at + 1
                    return text[start : at + 1]
            elif character in ")]}>":
                raise self.error(f"{pending[-1]!r}" if pending else "an opening bracket", at)
            at += 1
            if not pending:
                break
        raise self.error(f"a closing {pending[-1]!r}" if pending else "an opening bracket", start)


def _unescape(match: re.Match[str]) -> str:
    code, character = match.groups()
    return chr(int(code, 16)) if code is not None else _ESCAPES.get(character, character)


# ---- ``loc(...)`` in MLIR text: the source line of each operation ----

_ALIAS = re.compile(r"^(#loc[0-9]*) = loc\((.*)\)[ \t]*$", re.MULTILINE)
_FILE = re.compile(r'"((?:[^"\\\n]|\\.)*)":([0-9]+)(?::[0-9]+)?')
_REFERENCE = re.compile(r"#loc[0-9]*")
_MAX_FRAMES = 64

# Functions of Triton's own library are inlined everywhere, so the line that called them is the one to report.
_LIBRARY = re.compile(r"[/\\]triton[/\\](?:language|experimental)[/\\]")


class Locations:
    """Resolves locations, including aliases, to ``file:line``. Alias lines are before and after the module."""

    def __init__(self, text: str) -> None:
        self._aliases = {match.group(1): match.group(2) for match in _ALIAS.finditer(text)}
        self._resolved: dict[str, str] = {}
        self._named_locations: dict[str, list[str]] = {}
        self._depth = 0

    def __bool__(self) -> bool:
        return bool(self._aliases)

    def resolve(self, text: str) -> str:
        """``file:line`` for the contents of ``loc(...)``; "" if they name no file."""
        location = self._resolved.get(text)
        if location is None:
            places = self._locations_in(text)
            users = [user_location for user_location in places if not _LIBRARY.search(user_location)]
            location = (users or places or [""])[0]
            self._resolved[text] = location
        return location

    def _locations_in(self, text: str) -> list[str]:
        # Files and references in the order of the text; in callsite(callee at caller), the innermost frame comes first.
        by_position: list[tuple[int, list[str]]] = [
            (match.start(), [f"{match.group(1)}:{match.group(2)}"]) for match in _FILE.finditer(text)
        ]
        by_position += [(match.start(), self._alias(match.group())) for match in _REFERENCE.finditer(text)]
        by_position.sort(key=lambda item: item[0])
        return [location for _, places in by_position for location in places][:_MAX_FRAMES]

    def _alias(self, name: str) -> list[str]:
        if name not in self._named_locations:
            self._named_locations[name] = []  # ends the recursion if an alias in a damaged text refers to itself
            self._depth += 1
            if self._depth <= _MAX_FRAMES:
                self._named_locations[name] = self._locations_in(self._aliases.get(name, ""))
            self._depth -= 1
        return self._named_locations[name]


# ---- Floating-point constants, bit for bit, in every format that MLIR prints ----


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """An IEEE-like binary format.

    In ``finite`` formats the top exponent encodes numbers, not infinities. ``nuz`` formats have no negative zero; its
    bits encode their only NaN. E8M0 has neither sign nor zero.
    """

    bits: int
    exponent: int
    mantissa: int
    bias: int
    finite: bool = False
    nuz: bool = False


FLOAT_FORMATS = {
    "f64": FloatFormat(64, 11, 52, 1023),
    "f32": FloatFormat(32, 8, 23, 127),
    "tf32": FloatFormat(19, 8, 10, 127),
    "f16": FloatFormat(16, 5, 10, 15),
    "bf16": FloatFormat(16, 8, 7, 127),
    "f8E5M2": FloatFormat(8, 5, 2, 15),
    "f8E4M3FN": FloatFormat(8, 4, 3, 7, finite=True),
    "f8E5M2FNUZ": FloatFormat(8, 5, 2, 16, finite=True, nuz=True),
    "f8E4M3FNUZ": FloatFormat(8, 4, 3, 8, finite=True, nuz=True),
    "f8E4M3B11FNUZ": FloatFormat(8, 4, 3, 11, finite=True, nuz=True),
    "f4E2M1FN": FloatFormat(4, 2, 1, 1, finite=True),
}


def float_from_bits(bits: int, name: str) -> float:
    """The number that ``bits`` encode in the format ``name``; ``ValueError`` if ``bits`` has more bits than the format.

    >>> float_from_bits(0x7F800000, "f32"), float_from_bits(0x3FC0, "bf16")
    (inf, 1.5)
    """
    if name == "f8E8M0FNU":
        _check_width(bits, 8, name)
        return math.nan if bits == 0xFF else math.ldexp(1.0, bits - 127)
    form = FLOAT_FORMATS[name]
    _check_width(bits, form.bits, name)
    if name == "f64":
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    mantissa = bits & ((1 << form.mantissa) - 1)
    top = (1 << form.exponent) - 1
    exponent = bits >> form.mantissa & top
    sign = -1.0 if bits >> (form.bits - 1) else 1.0
    if form.nuz and bits == 1 << (form.bits - 1):
        return math.nan
    if exponent == top and not form.finite:
        return math.copysign(math.nan, sign) if mantissa else sign * math.inf
    if name == "f8E4M3FN" and exponent == top and mantissa == 7:
        return math.copysign(math.nan, sign)
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - form.bias - form.mantissa)
    return sign * math.ldexp(mantissa | 1 << form.mantissa, exponent - form.bias - form.mantissa)


def _check_width(bits: int, width: int, name: str) -> None:
    if bits < 0 or bits >> width:
        raise ValueError(f"{bits:#x} has more than the {width} bits of {name}")


def round_to_format(value: float, name: str) -> float:
    """``value`` rounded to nearest even in the format ``name``, returned as a Python float.

    >>> round_to_format(0.1, "f32")
    0.10000000149011612
    """
    form = FLOAT_FORMATS.get(name)
    if form is None or name == "f64" or value == 0 or not math.isfinite(value):
        return value
    top = (1 << form.exponent) - (1 if form.finite else 2)
    _, exponent = math.frexp(value)
    if exponent - 1 > top - form.bias:  # beyond the exponent of the largest number
        return math.copysign(math.nan if form.finite else math.inf, value)
    # The exponent of the last mantissa bit, which for subnormals is fixed.
    unit = max(exponent - 1, 1 - form.bias) - form.mantissa
    rounded = math.ldexp(round(math.ldexp(value, -unit)), unit)
    limit = math.ldexp(2.0 - math.ldexp(1.0, -form.mantissa), top - form.bias)
    if not form.finite and abs(rounded) > limit:
        return math.copysign(math.inf, value)
    return rounded


# ---- Types in MLIR text ----

_INTEGERS = ("i1", "i4", "i8", "i16", "i32", "i64", "i128", "index", "none")
_SCALARS = frozenset((*_INTEGERS, *FLOAT_FORMATS, "f8E8M0FNU"))
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")
_DIALECT = re.compile(r"![A-Za-z_][A-Za-z0-9_.$]*")
_ATTRIBUTE = re.compile(r"#[A-Za-z_][A-Za-z0-9_.$]*")
_EXTENT = re.compile(r"([0-9]{1,18})x")
_STRANGE_EXTENT = re.compile(r"[?*]")
_SPACE = re.compile(r'[0-9]+|"[a-z_]+"')  # Triton 3.9 writes "constant" for tl.const; other address spaces are numbers


def is_scalar_type(name: str) -> bool:
    """Whether ``name`` is a builtin scalar type (``i32``, ``bf16``, ...)."""
    return name in _SCALARS


PLAIN_TYPE = (
    r"tensor<(?:[0-9]{1,18}x)*(?:!tt\.ptr<[a-zA-Z0-9]+>|[a-zA-Z0-9]+)>|!tt\.ptr<[a-zA-Z0-9]+>|[a-zA-Z_][a-zA-Z0-9_.$]*"
)
"""Matches the types of nearly all values, written without blanks; each such text is parsed once."""
_plain_type = re.compile(rf"(?:[ \t\r\n]+|//[^\n]*)*({PLAIN_TYPE})").match


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Type | None:
    """The type that a text spells; None if it is not a type."""
    cursor = Cursor(text)
    try:
        kind = _read_any(cursor)
    except SourceError:
        return None
    return kind if cursor.position == len(text) else None


def read_type(cursor: Cursor) -> Type:
    """Reads one type: a scalar, a pointer, a tensor, or an opaque dialect type that is kept as text."""
    plain = _plain_type(cursor.text, cursor.position)
    kind = None if plain is None else parse_type(plain[1])
    if plain is not None and kind is not None:
        cursor.position = plain.end()
        return kind
    cursor.enter()
    kind = _read_any(cursor)
    cursor.leave()
    return kind


def _read_any(cursor: Cursor) -> Type:
    if cursor.at("!"):
        return _read_dialect_type(cursor)
    start = cursor.position
    word = cursor.need_match(_WORD, "a type")
    if word in _SCALARS:
        return Type(word)
    if word == "tensor":
        return _read_tensor(cursor)
    raise cursor.error("a scalar, a pointer or a tensor type", start)


def _read_dialect_type(cursor: Cursor) -> Type:
    name = cursor.need_match(_DIALECT, "a type")
    if name == "!tt.ptr":
        cursor.need("<")
        pointee = read_type(cursor)
        if cursor.take(","):
            cursor.need_match(_SPACE, "an address space")
        cursor.need(">")
        if pointee.tensor:  # a block pointer
            return Type(f"!tt.ptr<{_spell(pointee)}>")
        return Type(_spell(pointee), pointer=True)
    return Type(name + (cursor.balanced() if cursor.at("<") else ""))


def _read_tensor(cursor: Cursor) -> Type:
    cursor.need("<")
    shape: list[int] = []
    while (extent := cursor.match(_EXTENT)) is not None:
        shape.append(int(extent.group(1)))
    if _STRANGE_EXTENT.match(cursor.text, cursor.skip()):
        raise cursor.error("a static extent: Triton has no tensors of unknown shape or rank")
    element = read_type(cursor)
    if element.tensor:
        raise cursor.error("the element type of a tensor")
    layout = ""
    if cursor.take(","):
        start = cursor.skip()
        cursor.need_match(_ATTRIBUTE, "the layout of a tensor")
        if cursor.at("<"):
            cursor.balanced()
        layout = cursor.text[start : cursor.position]
    cursor.need(">")
    return Type(element.element, tuple(shape), tensor=True, pointer=element.pointer, layout=layout)


def _spell(kind: Type) -> str:
    scalar = f"!tt.ptr<{kind.element}>" if kind.pointer else kind.element
    layout = f", {kind.layout}" if kind.layout else ""
    return f"tensor<{''.join(f'{extent}x' for extent in kind.shape)}{scalar}{layout}>" if kind.tensor else scalar


def read_type_list(cursor: Cursor) -> tuple[Type, ...]:
    """Reads types in parentheses, or a single type."""
    if not cursor.take("("):
        return (read_type(cursor),)
    types: list[Type] = []
    if not cursor.take(")"):
        types.append(read_type(cursor))
        while cursor.take(","):
            types.append(read_type(cursor))
        cursor.need(")")
    return tuple(types)


@lru_cache(maxsize=4096)
def parse_signature(text: str) -> tuple[tuple[Type, ...], tuple[Type, ...]] | None:
    """``(types) -> types`` as operand and result types; None if it does not parse."""
    cursor = Cursor(text)
    try:
        operands = read_type_list(cursor)
        cursor.need("->")
        results = read_type_list(cursor)
    except SourceError:
        return None
    return (operands, results) if cursor.skip() == len(text) else None
