"""The values that keys and manifests hold, dtypes among them; each has one canonical JSON form.

Integers, strings, bools and None are their own form. A value that JSON cannot hold without loss becomes an object with
one member: ``{"float": "0x1.8p+1"}`` (``float.hex``), ``{"tuple": [...]}``, ``{"dtype": "float32"}``,
``{"function": ["<name>", "<fingerprint>"]}``, ``{"record": ["<class>", "<field>", <value>, ...]}``.
Integers outside 64 bits are ``{"int": "..."}``.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeAlias, cast

from silo.errors import CaseError
from silo.frozen import frozen

__all__ = [
    "DTYPES",
    "JSON",
    "MAX_AXES",
    "MAX_BOUNDS",
    "MAX_DIGITS",
    "MAX_NAMES",
    "MAX_NESTING",
    "MAX_NODES",
    "MAX_PARAMETERS",
    "MAX_STEPS",
    "MAX_TUPLES",
    "PARSE_BUDGET",
    "DType",
    "DTypeKind",
    "ExactTuple",
    "FunctionValue",
    "RecordValue",
    "Value",
    "beginning",
    "canonical_json",
    "digest",
    "dtype",
    "dtype_named",
    "footprint",
    "from_dlpack",
    "has_look_alike",
    "identity_of",
    "malformed",
    "parse_json",
    "refuse_large",
    "same_values",
    "value_from_json",
    "value_sort_key",
    "value_to_json",
]


class DTypeKind(Enum):
    """The number format of a dtype: bool, signed or unsigned integer, float."""

    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"


@frozen
class DType:
    """One element type.

    ``name`` is the array libraries' name (``float32``), ``short`` the name in kernels' signatures (``fp32``), ``bits``
    the width in memory, ``code`` the DLPack type code.

    >>> dtype("fp32") is dtype("float32")
    True
    >>> dtype("bfloat16").bits
    16
    """

    name: str
    short: str
    kind: DTypeKind
    bits: int
    code: int

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.bits // 8

    def __str__(self) -> str:
        return self.name


# DLPack codes: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 10 e4m3fn, 11 e4m3fnuz, 12 e5m2, 13 e5m2fnuz, 9 e4m3b11fnuz.
DTYPES: tuple[DType, ...] = (
    DType("bool", "i1", DTypeKind.BOOL, 8, 6),
    DType("int8", "i8", DTypeKind.INT, 8, 0),
    DType("int16", "i16", DTypeKind.INT, 16, 0),
    DType("int32", "i32", DTypeKind.INT, 32, 0),
    DType("int64", "i64", DTypeKind.INT, 64, 0),
    DType("uint8", "u8", DTypeKind.UINT, 8, 1),
    DType("uint16", "u16", DTypeKind.UINT, 16, 1),
    DType("uint32", "u32", DTypeKind.UINT, 32, 1),
    DType("uint64", "u64", DTypeKind.UINT, 64, 1),
    DType("float16", "fp16", DTypeKind.FLOAT, 16, 2),
    DType("bfloat16", "bf16", DTypeKind.FLOAT, 16, 4),
    DType("float32", "fp32", DTypeKind.FLOAT, 32, 2),
    DType("float64", "fp64", DTypeKind.FLOAT, 64, 2),
    DType("float8_e4m3fn", "fp8e4nv", DTypeKind.FLOAT, 8, 10),
    DType("float8_e4m3fnuz", "fp8e4b8", DTypeKind.FLOAT, 8, 11),
    DType("float8_e4m3b11fnuz", "fp8e4b11", DTypeKind.FLOAT, 8, 9),
    DType("float8_e5m2", "fp8e5", DTypeKind.FLOAT, 8, 12),
    DType("float8_e5m2fnuz", "fp8e5b16", DTypeKind.FLOAT, 8, 13),
)

_BY_NAME = {key: value for value in DTYPES for key in (value.name, value.short)}
_BY_NAME["u1"] = _BY_NAME["bool"]
_BY_DLPACK = {(value.code, value.bits): value for value in DTYPES}


def dtype(name: str) -> DType:
    """Returns the dtype called ``name`` (long or short); ``KeyError`` lists the known names."""
    try:
        return _BY_NAME[name]
    except KeyError:
        names = ", ".join(value.name for value in DTYPES)
        raise KeyError(f"unknown dtype {name!r}; known: {names}") from None


def dtype_named(value: object) -> DType:
    """Returns the dtype of a name, a :class:`DType`, or a dtype of numpy, torch or Triton.

    Raises ``CaseError`` for anything else.

    >>> dtype_named("torch.bfloat16").name
    'bfloat16'
    """
    if isinstance(value, DType):
        return value
    name = value if isinstance(value, str) else getattr(value, "name", None) or getattr(value, "__name__", None)
    name = (name if isinstance(name, str) else str(value)).removeprefix("torch.")
    try:
        return dtype(name)
    except KeyError as error:
        raise CaseError(str(error.args[0])) from None


def from_dlpack(code: int, bits: int) -> DType | None:
    """Returns the dtype with this DLPack code and width in bits, or None."""
    return _BY_DLPACK.get((code, bits))


# Limits on values read from files: far above any kernel's need, and so low that their products stay small.

# Parameters of a kernel. A GPU's ABI has room for 4,060 bytes of them, and messages list them for each variant.
MAX_PARAMETERS = 1024
MAX_NAMES = 4096  # names in a key, a config or a specialization
MAX_AXES = 32  # axes of an array, whose extents are multiplied
MAX_NODES = 65_536  # nodes of an expression, which each launch may evaluate
MAX_STEPS = 65_536  # steps of a decision list, which a launch with a new size searches
MAX_BOUNDS = 64  # bounds of one step of a decision list: they become one expression, whose depth is limited
MAX_TUPLES = 64  # tuples nested in each other
MAX_DIGITS = 4300  # digits of an integer; Python's default limit
MAX_NESTING = 256  # nested lists and objects of a document; the limit of Python's parser depends on its version

# An estimate of the bytes that each character of a JSON text takes once it is parsed, in CPython on a 64-bit machine.
# Characters within strings are counted too, so the estimate is about twice the true size of ordinary documents. It is
# too small, by less than half, for an object with very many members.
_COSTS = (
    (b"[", 104),  # a list with space for its first items
    (b"{", 192),  # an object of up to five members
    (b",", 36),  # a further item: its slot in the list, and a number
    (b":", 48),  # a further member of an object
    (b'"', 28),  # half a string, as a string has two quotes
)
_MOST = 54  # the most bytes that parsing takes for each character of any ASCII text
_WIDE = 8  # bytes for each character of a text that is not ASCII: strings may take four, and may exist twice

JSON: TypeAlias = "bool | int | str | Sequence[JSON] | Mapping[str, JSON] | None"


@frozen
class FunctionValue:
    """A function passed as a constexpr, identified by its name and the fingerprint of its source."""

    name: str
    fingerprint: str


@frozen
class RecordValue:
    """A frozen record of a kernel language passed as a constexpr, for example a layout of Gluon.

    ``items`` holds the name of the record's class, then the name and the value of each field, sorted by name.

    >>> RecordValue.of("SliceLayout", {"parent": None, "dim": 0})
    SliceLayout(dim=0, parent=None)
    """

    items: tuple[Value, ...]

    @classmethod
    def of(cls, name: str, fields: Mapping[str, Value]) -> RecordValue:
        """Returns the record of the class ``name`` with these fields."""
        return cls(ExactTuple((name, *(part for pair in sorted(fields.items()) for part in pair))))

    @property
    def name(self) -> str:
        """The name of the record's class."""
        return cast("str", self.items[0])

    @property
    def fields(self) -> dict[str, Value]:
        """The record's fields by name."""
        return dict(zip(cast("tuple[str, ...]", self.items[1::2]), self.items[2::2], strict=True))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.fields.items())})"


Value: TypeAlias = "bool | int | float | str | DType | FunctionValue | RecordValue | tuple[Value, ...] | None"

_OWN_IDENTITY = frozenset([str, int, type(None)])
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)

_INT64 = range(-(1 << 63), 1 << 63)

# The bytes of memory that parsing one document may take by default.
PARSE_BUDGET = 32 << 20
_SHOWN = 200  # the most characters of wrong data that a message shows
_shorten = reprlib.Repr()
_shorten.maxlist = _shorten.maxtuple = _shorten.maxdict = 16
_shorten.maxstring = _shorten.maxlong = _shorten.maxother = _SHOWN


def value_to_json(value: Value) -> JSON:
    """Returns the canonical JSON form of one value; raises ``TypeError`` for a value without such a form.

    >>> value_to_json((1, 1.5, None))
    {'tuple': [1, {'float': '0x1.8000000000000p+0'}, None]}
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if value in _INT64 else {"int": str(value)}
    if isinstance(value, float):
        return {"float": "nan" if math.isnan(value) else value.hex()}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, FunctionValue):
        return {"function": [value.name, value.fingerprint]}
    if isinstance(value, RecordValue):
        return {"record": [value_to_json(item) for item in value.items]}
    if isinstance(value, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        return {"tuple": [value_to_json(item) for item in value]}
    raise TypeError(f"a {type(value).__name__} cannot be part of a key: {value!r}")


def identity_of(value: object) -> object:
    """Returns a hashable object that is equal for two values exactly if they have the same canonical form.

    Python calls 1, True and 1.0 equal, and 0.0 and -0.0; a kernel may be compiled differently for each of them. NaN has
    one canonical form, so its identity equals itself. A value that is neither a number nor a tuple is its own identity.

    >>> identity_of(1) == identity_of(True), identity_of((0.0,)) == identity_of((-0.0,))
    (False, False)
    >>> identity_of(float("nan")) == identity_of(float("nan")), identity_of(2) == 2
    (True, True)
    """
    # Pair the value with its class. Values are never classes, so no tuple of values can equal such a pair.
    if isinstance(value, bool):
        return bool, value
    if isinstance(value, float):
        return float, "nan" if math.isnan(value) else value.hex()
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        if _OWN_IDENTITY.issuperset(map(type, items)):
            # a plain tuple: comparing an ExactTuple calls identity_of, without end if that returned ``value``
            return tuple(items)
        return tuple([item if type(item) in _OWN_IDENTITY else identity_of(item) for item in items])
    return value


def has_look_alike(value: object) -> bool:
    """Whether another common constexpr value compares equal in Python but has a different canonical form.

    Returns True for bools, floats, the integers 0 and 1, and tuples that contain one of them.

    >>> has_look_alike(1), has_look_alike(64), has_look_alike((64, 1.5)), has_look_alike("relu")
    (True, False, True, False)
    """
    if isinstance(value, tuple):
        return any(map(has_look_alike, cast("tuple[object, ...]", value)))
    return isinstance(value, float) or (isinstance(value, int) and value in (0, 1))


class ExactTuple(tuple["Value", ...]):
    """A tuple of values that equals another tuple exactly if both have one canonical form.

    >>> ExactTuple((1, 64)) == (1, 64), ExactTuple((1, 64)) == (True, 64)
    (True, False)
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and identity_of(self) == identity_of(cast("tuple[object, ...]", other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(identity_of(self))


def same_values(left: Mapping[str, Value], right: Mapping[str, Value]) -> bool:
    """Whether ``right`` has every name of ``left``, with the same canonical form of its value.

    >>> same_values({"FLAG": True}, {"FLAG": True, "BLOCK": 64}), same_values({"FLAG": True}, {"FLAG": 1})
    (True, False)
    """
    return all(name in right and identity_of(value) == identity_of(right[name]) for name, value in left.items())


def value_from_json(data: JSON) -> Value:
    """Returns the value of :func:`value_to_json` output; raises ``ValueError`` for anything that it never writes."""
    if type(data) in _PLAIN and (type(data) is not int or data in _INT64):  # the usual case
        return cast("Value", data)
    try:
        value = _decoded(data, 0)
        if value_to_json(value) == data:
            return value
    except (ValueError, KeyError, OverflowError, RecursionError):
        pass  # the error raised below shows the data, which is more useful than these errors
    raise malformed("a value", data)


def _decoded(data: JSON, tuples: int) -> Value:
    if data is None or isinstance(data, bool | str | int):
        return data
    if isinstance(data, Mapping) and len(data) == 1:
        ((tag, body),) = data.items()
        if tag == "int" and isinstance(body, str) and len(body) - body.startswith("-") <= MAX_DIGITS:
            return int(body)
        if tag == "float" and isinstance(body, str):
            return float("nan") if body == "nan" else float.fromhex(body)
        if tag == "dtype" and isinstance(body, str):
            return dtype(body)
        if tag == "function" and isinstance(body, list) and len(body) == 2:
            name, fingerprint = body
            if isinstance(name, str) and isinstance(fingerprint, str):
                return FunctionValue(name, fingerprint)
        if tag in ("tuple", "record") and isinstance(body, list) and tuples < MAX_TUPLES:
            items = tuple(_decoded(item, tuples + 1) for item in body)
            if tag == "tuple":
                return items
            if len(items) % 2 and all(isinstance(name, str) for name in (items[0], *items[1::2])):
                return RecordValue(ExactTuple(items))
    raise malformed("a value", data)


def malformed(label: str, data: object) -> ValueError:
    """Returns the error for data that is not ``label``; it shows only the beginning of the data."""
    return ValueError(f"not {label}: {beginning(data)}")


def beginning(data: object) -> str:
    """Returns the beginning of untrusted data for a message, however large and deep the data is.

    >>> beginning([1, {"a": "b"}]), len(beginning("x" * 1000))
    ("[1, {'a': 'b'}]", 200)
    """
    text = _shorten.repr(data)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def value_sort_key(value: Value) -> tuple[str, bool, float, str]:
    """Returns a key that sorts values of mixed kinds: numbers by size, the rest by their canonical text."""
    if isinstance(value, bool | int | float) and not (isinstance(value, float) and math.isnan(value)):
        return ("number", isinstance(value, bool), float(value), "")
    return (type(value).__name__, False, 0.0, canonical_json(value_to_json(value)).decode())


def canonical_json(data: JSON) -> bytes:
    """Returns canonical JSON: UTF-8, sorted keys, no white space; raises ``TypeError`` for floats.

    Equal data give equal bytes.
    """
    # Encode first: the encoder refuses data that contains itself, on which the check for floats would never end.
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    _refuse_floats(data)
    return text.encode()


_PLAIN = frozenset([str, int, bool, type(None)])
_STRINGS = frozenset([str])


def _refuse_floats(data: object) -> None:
    """Raises ``TypeError`` for floats and for keys that are not strings.

    Made to be fast, because first launches wait for it: most containers hold only plain values, and for those one
    C-level set operation replaces a loop. ``data`` must not contain itself.
    """
    pending: list[object] = [data]
    while pending:
        element = pending.pop()
        if isinstance(element, float):
            raise TypeError(f"canonical JSON holds no floats: {element!r}; encode it with value_to_json")
        if isinstance(element, Mapping):
            members = cast("Mapping[object, object]", element)
            if not _STRINGS.issuperset(map(type, members)):
                _refuse_keys(members)
            items = members.values()
        elif isinstance(element, list | tuple):
            items = cast("Sequence[object]", element)
        else:
            continue
        for item in items:
            kind = type(item)
            if kind in _PLAIN:
                continue
            if kind is dict:
                inner = cast("dict[object, object]", item)
                if _STRINGS.issuperset(map(type, inner)) and _PLAIN.issuperset(map(type, inner.values())):
                    continue
            elif (kind is list or kind is tuple) and _PLAIN.issuperset(map(type, cast("Sequence[object]", item))):
                continue
            pending.append(item)


def _refuse_keys(members: Mapping[object, object]) -> None:
    for key in members:
        if not isinstance(key, str):
            raise TypeError(f"canonical JSON has string keys only: {key!r}")


def parse_json(text: bytes, budget: int = PARSE_BUDGET) -> JSON:
    """Parses UTF-8 JSON without floats and without duplicate keys; raises ``ValueError`` otherwise.

    Text that would take more than ``budget`` bytes of memory, or is nested too deeply, is refused before any of it is
    built.
    """
    refuse_large(text, budget)
    _refuse_deep(text)

    def no_float(literal: str) -> JSON:
        raise ValueError(f"a float in canonical JSON: {literal}")

    def no_duplicates(pairs: list[tuple[str, JSON]]) -> JSON:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError("a key occurs twice in one JSON object")
        return result

    try:
        return cast(
            "JSON",
            json.loads(text.decode(), parse_float=no_float, parse_constant=no_float, object_pairs_hook=no_duplicates),
        )
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def digest(schema: str, data: JSON) -> str:
    """Returns the sha256, in hex, of ``data`` under a schema name such as ``artifact-key/1``.

    The schema name keeps keys of different kinds and versions apart.
    """
    return hashlib.sha256(canonical_json([schema, data])).hexdigest()


def footprint(text: bytes) -> int:
    """Estimates the bytes of memory that parsing ``text`` takes, including the decoded text.

    >>> footprint(b'[1,2]'), footprint(b'[[],[]]')
    (150, 362)
    """
    wide = 2 if text.isascii() else _WIDE
    return wide * len(text) + sum(cost * text.count(mark) for mark, cost in _COSTS)


_BRACKETS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b'[]{}"'))


def _refuse_deep(text: bytes) -> None:
    """Raises ``ValueError`` if lists and objects are nested more than ``MAX_NESTING`` deep."""
    if text.count(b"[") + text.count(b"{") <= MAX_NESTING:
        return
    if b"\\" in text:
        text = _STRING.sub(b"", text)
    unmatched = text.translate(_BRACKETS, _OTHERS).replace(b'""', b"")
    if b'"' in unmatched:  # some strings contain brackets: remove all strings first
        unmatched = _STRING.sub(b"", text).translate(_BRACKETS, _OTHERS)
    # Remove empty containers repeatedly: each pass removes the innermost level.
    for _ in range(MAX_NESTING):
        shorter = unmatched.replace(b"[]", b"")
        if len(shorter) == len(unmatched):
            return  # no nesting is left; if the text is not JSON, the parser reports it
        unmatched = shorter
    if unmatched:
        raise ValueError("JSON nested too deeply")


def refuse_large(text: bytes, budget: int) -> None:
    """Raises ``ValueError`` if parsing ``text`` would take more than ``budget`` bytes."""
    # Most texts are so short that counting is unnecessary.
    if len(text) * _MOST > budget and (needed := footprint(text)) > budget:
        raise ValueError(
            f"reading it would take about {needed >> 20} MiB of memory, and {budget >> 20} MiB are allowed"
        )
