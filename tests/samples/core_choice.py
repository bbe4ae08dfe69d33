"""The choice among variants in C, as a library called by ctypes, and conversions of Silo's values to its structs."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_native import trapping_library
from libsilo import Error
from silo.core.expressions import Argument, ConfigValue, Const, DeviceFact, Extent, ItemSize, OpKind, Stride
from silo.core.expressions import Node as Expression
from silo.core.values import DType, FunctionValue


class String(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("length", ctypes.c_uint32)]


class Value(ctypes.Structure):
    pass


class _Held(ctypes.Union):
    _fields_ = [
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
        ("text", String),
        ("items", ctypes.POINTER(Value)),
    ]


Value._fields_ = [
    ("type", ctypes.c_uint8),
    ("element", ctypes.c_uint16),
    ("count", ctypes.c_uint32),
    ("held", _Held),
    ("fingerprint", String),
]


class NamedValue(ctypes.Structure):
    _fields_ = [("name", String), ("value", Value)]


class Node(ctypes.Structure):
    pass


Node._fields_ = [
    ("type", ctypes.c_uint8),
    ("op", ctypes.c_uint8),
    ("operand_count", ctypes.c_uint8),
    ("value", ctypes.c_int64),
    ("name", String),
    ("operands", ctypes.POINTER(Node) * 3),
]


class SignatureParameter(ctypes.Structure):
    _fields_ = [
        ("name", String),
        ("kind", ctypes.c_uint8),
        ("effect", ctypes.c_uint8),
        ("element", ctypes.c_uint16),
        ("has_default", ctypes.c_bool),
        ("specialize", ctypes.c_bool),
        ("align", ctypes.c_bool),
        ("fallback", Value),
    ]


class Signature(ctypes.Structure):
    _fields_ = [("count", ctypes.c_uint32), ("parameters", ctypes.POINTER(SignatureParameter))]


class Specialization(ctypes.Structure):
    _fields_ = [
        ("fact_count", ctypes.c_uint32),
        ("constant_count", ctypes.c_uint32),
        ("extent_count", ctypes.c_uint32),
        ("facts", ctypes.c_void_p),
        ("constants", ctypes.POINTER(NamedValue)),
        ("extents", ctypes.c_void_p),
        ("has_grid", ctypes.c_bool),
        ("grid", ctypes.c_int64 * 3),
    ]


class Config(ctypes.Structure):
    _fields_ = [
        ("value_count", ctypes.c_uint32),
        ("option_count", ctypes.c_uint32),
        ("values", ctypes.POINTER(NamedValue)),
        ("options", ctypes.POINTER(NamedValue)),
    ]


class Fact(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_int64)]


class Place(ctypes.Structure):
    _fields_ = [
        ("target", ctypes.c_char_p),
        ("model", ctypes.c_char_p),
        ("fact_count", ctypes.c_uint32),
        ("facts", ctypes.POINTER(Fact)),
        ("rule_count", ctypes.c_uint32),
        ("rules", ctypes.c_void_p),
    ]


class Known(ctypes.Structure):
    _fields_ = [
        ("signature", ctypes.POINTER(Signature)),
        ("config", ctypes.POINTER(Config)),
        ("specialization", ctypes.POINTER(Specialization)),
        ("place", ctypes.POINTER(Place)),
    ]


class Program(ctypes.Structure):
    _fields_ = [("code", ctypes.c_void_p), ("count", ctypes.c_int32)]


@functools.cache
def library() -> ctypes.CDLL:
    """Return the library with the functions of the choice that need no bundle."""
    loaded = ctypes.CDLL(str(trapping_library()))
    loaded.silo_cpu_level.restype = ctypes.c_char_p
    loaded.silo_runs_on.restype = ctypes.c_bool
    loaded.silo_runs_on.argtypes = [ctypes.c_char_p] * 4 + [ctypes.c_size_t]
    loaded.silo_bucket_distance.restype = ctypes.c_int64
    return loaded


@functools.cache
def bundle_library() -> ctypes.CDLL:
    """Return the library with the whole choice and the reader, and the functions of choice_check.c."""
    loaded = ctypes.CDLL(str(trapping_library(Path(__file__).parents[1] / "native" / "choice_check.c")))
    loaded.check_open.restype = ctypes.c_void_p
    loaded.check_open.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(Error)]
    loaded.check_close.argtypes = [ctypes.c_void_p]
    loaded.check_kernel.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    loaded.check_kernel.restype = ctypes.c_int64
    loaded.check_held.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p]
    pointers = [ctypes.c_void_p] * 4
    loaded.check_choose.argtypes = [ctypes.c_void_p, ctypes.c_uint32, *pointers]
    return loaded


class Maker:
    """Makes C structs, and keeps the memory that they point to alive as long as it lives."""

    def __init__(self) -> None:
        self._kept: list[object] = []

    def keep(self, thing):
        self._kept.append(thing)
        return thing

    def string(self, text: str) -> String:
        data = self.keep(text.encode())
        return String(data, len(data))

    def value(self, value: object) -> Value:
        made = Value()
        if value is None:
            made.type = 0
        elif isinstance(value, bool):
            made.type, made.held.integer = 1, int(value)
        elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            made.type, made.held.integer = 2, value
        elif isinstance(value, int):
            made.type, made.held.text = 3, self.string(str(value))
        elif isinstance(value, float):
            made.type, made.held.real = 4, value
        elif isinstance(value, str):
            made.type, made.held.text = 5, self.string(value)
        elif isinstance(value, DType):
            made.type, made.element = 6, element(value)
        elif isinstance(value, FunctionValue):
            made.type, made.held.text = 7, self.string(value.name)
            made.fingerprint = self.string(value.fingerprint)
        elif isinstance(value, tuple):
            made.type, made.count = 8, len(value)
            made.held.items = self.array(Value, [self.value(item) for item in value])
        else:
            made.type, made.held.text = 7, self.string(repr(value))  # a text that equals no value of a file
        return made

    def array(self, kind, items):
        return self.keep((kind * max(len(items), 1))(*items))

    def named(self, values) -> ctypes.Array:
        return self.array(NamedValue, [NamedValue(self.string(name), self.value(value)) for name, value in values])

    def node(self, node: Expression) -> Node:
        made = self.keep(Node())
        kinds = list(OpKind)
        match node:
            case Const(value):
                made.type, made.value = 0, value
            case Argument(name):
                made.type, made.name = 1, self.string(name)
            case Extent(name, axis):
                made.type, made.name, made.value = 2, self.string(name), axis
            case Stride(name, axis):
                made.type, made.name, made.value = 3, self.string(name), axis
            case ItemSize(name):
                made.type, made.name = 4, self.string(name)
            case ConfigValue(name):
                made.type, made.name = 5, self.string(name)
            case DeviceFact(name):
                made.type, made.name = 6, self.string(name)
            case _:
                made.type, made.op, made.operand_count = 7, kinds.index(node.kind), len(node.operands)
                for place, operand in enumerate(node.operands):
                    made.operands[place] = ctypes.pointer(self.node(operand))
        return made

    def config(self, config) -> Config:
        return self.keep(
            Config(len(config.values), len(config.options), self.named(config.values), self.named(config.options))
        )

    def place(self, target: str, facts, model: str = "") -> Place:
        rows = [Fact(self.keep(name.encode()), value) for name, value in facts.items()]
        return self.keep(
            Place(
                self.keep(target.encode()),
                self.keep(model.encode()) if model else None,
                len(rows),
                self.array(Fact, rows),
            )
        )


class ArgumentValue(ctypes.Union):
    _fields_ = [("integer", ctypes.c_int64), ("real", ctypes.c_double), ("text", ctypes.c_char_p)]


class Tagged(ctypes.Structure):
    """The struct ``silo_argument`` of silo.h."""

    _fields_ = [
        ("kind", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("element", ctypes.c_uint16),
        ("rank", ctypes.c_int32),
        ("value", ArgumentValue),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("block", ctypes.POINTER(ctypes.c_int64)),
    ]


class Named(ctypes.Structure):
    """The struct ``silo_named`` of silo.h."""

    _fields_ = [("name", ctypes.c_char_p), ("value", Tagged)]


class Call(ctypes.Structure):
    """The struct ``silo_call`` of silo.h."""

    _fields_ = [
        ("grid", ctypes.POINTER(ctypes.c_int64)),
        ("options", ctypes.POINTER(Named)),
        ("option_count", ctypes.c_size_t),
    ]


class _Asked(ctypes.Structure):
    _fields_ = [
        ("arguments", ctypes.POINTER(Tagged)),
        ("count", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("call", ctypes.POINTER(Call)),
        ("place", ctypes.POINTER(Place)),
    ]


class _Found(ctypes.Structure):
    _fields_ = [
        ("number", ctypes.c_uint32),
        ("axes", ctypes.c_uint32),
        ("counts", ctypes.c_int32 * 3),
        ("code", ctypes.c_int64 * (2 * 1024)),
    ]


@dataclass
class Asked:
    """A call of one kernel as C structs, with the maker that keeps their memory."""

    kernel: int
    struct: _Asked
    maker: Maker


class Checker:
    """A bundle opened by the C reader. ValueError has the reader's text if it cannot be opened."""

    def __init__(self, data: bytes) -> None:
        self.details: list[str] = []  # lines of the last error's details
        self._library = bundle_library()
        self._data = ctypes.create_string_buffer(data, len(data) + 64)
        start = -(-ctypes.addressof(self._data) // 64) * 64
        ctypes.memmove(start, data, len(data))
        error = Error()
        self._check = self._library.check_open(start, len(data), ctypes.byref(error))
        if not self._check:
            raise ValueError(error.text.decode())

    def close(self) -> None:
        self._library.check_close(self._check)

    def held(self, name: str, count: int) -> tuple[list[int], list[int], bool]:
        """Return the results of ``silo_held_of``: flags and held extents of parameters; whether the grid is held."""
        flags, extents = (ctypes.c_uint8 * count)(), (ctypes.c_uint8 * count)()
        grid = self._library.check_held(self._check, self._kernel(name), flags, extents)
        return list(flags), list(extents), bool(grid)

    def _kernel(self, name: str) -> int:
        return self._library.check_kernel(self._check, name.encode())

    def asked(self, name: str, names, case, device: int, place) -> Asked:
        """Return a call as C structs, for :meth:`choose` and :meth:`explain`."""
        from fuzz.choice_calls import tagged, tagged_call

        maker = Maker()
        arguments = maker.array(Tagged, [tagged(case.given.get(one), maker, device) for one in names])
        call = ctypes.pointer(tagged_call(case, maker))
        made = ctypes.pointer(maker.place(str(place.target), place.facts(), str(place.model)))
        return Asked(self._kernel(name), _Asked(arguments, len(names), device, call, made), maker)

    def choose(self, asked: Asked) -> tuple[int, Any]:
        """Choose a variant: return (0, (its number, the encoded expressions of its grid)), or (error code, text)."""
        found, error = _Found(), Error()
        code = self._library.check_choose(
            self._check, asked.kernel, ctypes.byref(asked.struct), ctypes.byref(found), None, ctypes.byref(error)
        )
        if code:
            owned = ctypes.c_void_p.from_buffer(error, Error.details.offset)
            self.details = error.details.decode().split("\n") if error.details else []
            _free(owned.value)
            return code, error.text.decode()
        programs: list[bytes] = []
        start = ctypes.addressof(found) + _Found.code.offset
        for count in found.counts[: found.axes]:
            programs.append(ctypes.string_at(start, 16 * count))
            start += 16 * count
        return 0, (found.number, tuple(programs))

    def explain(self, asked: Asked) -> list[str] | None:
        """Return a line for each variant; None if no variant could take these arguments."""
        text, error = ctypes.c_void_p(), Error()
        code = self._library.check_choose(
            self._check, asked.kernel, ctypes.byref(asked.struct), None, ctypes.byref(text), ctypes.byref(error)
        )
        if code:
            return None
        lines = ctypes.string_at(text.value).decode().split("\n")
        _free(text.value)
        return lines[2:]


def _free(address: int | None) -> None:
    if address:
        ctypes.CDLL(None).free(ctypes.c_void_p(address))


def element(dtype: DType | None) -> int:
    """Return the number in ``enum silo_element``; 0 for None."""
    return 0 if dtype is None else dtype.code << 8 | dtype.bits


def programs(nodes, names, constants, config, facts) -> list[bytes] | str:
    """Encode expressions by ``silo_node_encode``; return the instructions of each, or the error's text."""
    maker = Maker()
    rows = [SignatureParameter(name=maker.string(name)) for name in names]
    known = Known(
        ctypes.pointer(maker.keep(Signature(len(rows), maker.array(SignatureParameter, rows)))),
        ctypes.pointer(maker.config(config)),
        ctypes.pointer(
            maker.keep(Specialization(constant_count=len(constants), constants=maker.named(constants.items())))
        ),
        ctypes.pointer(maker.place("cpu:x86-64-v2", facts)),
    )
    found: list[bytes] = []
    for node in nodes:
        program, error = Program(), Error()
        node_at = ctypes.byref(maker.node(node))
        if library().silo_node_encode(node_at, ctypes.byref(known), ctypes.byref(program), ctypes.byref(error)) != 0:
            return error.text.decode()
        found.append(ctypes.string_at(program.code, 16 * program.count))
        ctypes.CDLL(None).free(ctypes.c_void_p(program.code))
    return found
