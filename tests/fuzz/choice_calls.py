"""Random calls of a kernel, each as Python objects and as the tagged arguments of C."""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass, replace
from typing import Any

from core_choice import Call, Maker, Named, Tagged, element
from dlpack_structs import DLTensor, new_capsule
from fuzz.choice_bundles import BLOCKS, GRIDS, SHAPES, Head, compact, size
from silo.core.compound_arguments import TensorDescriptor
from silo.core.extents import DynamicLayout
from silo.core.signature import ParameterKind
from silo.core.specialization import Fact
from silo.core.values import DTYPES, DType, Value, dtype
from silo.core.variant import Variant

DEVICES = {"cpu": 1, "cuda": 2, "hip": 10}
_NOUGHT = 1 << 16  # where addresses of no memory begin
_KINDS = {
    "absent": 0,
    "array": 2,
    "descriptor": 3,
    "int": 4,
    "bool": 5,
    "float": 6,
    "none": 7,
    "text": 8,
    "type": 9,
}


@dataclass(frozen=True, repr=False)
class Given:
    """One argument. Golden calls are known by their text."""

    kind: str
    value: Any = None
    dtype: DType | None = None
    address: int = 0
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    readonly: bool = False

    def __repr__(self) -> str:
        if self.dtype is None:
            return repr(self.value.name if isinstance(self.value, DType) else self.value)
        block = f" block {self.block}" if self.block else ""
        written = f"{self.dtype.name}{list(self.shape)} strides {list(self.strides)}{block} at {self.address}"
        return f"<{self.kind} {written}{' readonly' * self.readonly}>"


@dataclass
class Case:
    """One call; arguments that are absent are left out of ``given``."""

    given: dict[str, Given]
    options: dict[str, Value]
    grid: tuple[int, int, int] | None


# ---- as Python objects ----


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


class Array:
    """An array that says where it is, and is nowhere."""

    def __init__(self, given: Given, device: int) -> None:
        numbers = (ctypes.c_int64 * (2 * len(given.shape) or 1))(*given.shape, *given.strides)
        start = ctypes.addressof(numbers)
        self.shape, self.dtype, self.given = given.shape, given.dtype, given
        assert given.dtype is not None
        tensor = DLTensor(
            given.address,
            device,
            0,
            len(given.shape),
            given.dtype.code,
            given.dtype.bits,
            1,
            start,
            start + 8 * len(given.shape),
            0,
        )
        self._managed = _Versioned(1, 0, None, None, int(given.readonly), tensor)
        self._numbers = numbers
        self._device = device

    def __repr__(self) -> str:
        return "<an array>"

    def __dlpack__(self, **_: object) -> object:
        return new_capsule(ctypes.addressof(self._managed), b"dltensor_versioned", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0


def python_object(given: Given, device: int) -> Any:
    """What Python's call is given."""
    if given.kind == "array":
        return Array(given, device)
    if given.kind == "descriptor":
        return TensorDescriptor(Array(given, device), given.shape, given.strides, given.block)
    return given.value


# ---- as tagged arguments ----


def tagged(given: Given | None, maker: Maker, device: int) -> Tagged:
    """What C's call is given."""
    made = Tagged()
    if given is None:
        return made
    made.kind = _KINDS[given.kind]
    match given.kind:
        case "array" | "descriptor":
            assert given.dtype is not None
            made.element, made.rank, made.value.integer = element(given.dtype), len(given.shape), given.address
            made.flags = int(given.readonly) | (8 if device == DEVICES["hip"] and in_range32(given) else 0)
            made.shape = maker.array(ctypes.c_int64, given.shape)
            made.strides = maker.array(ctypes.c_int64, given.strides)
            if given.kind == "descriptor":
                made.block = maker.array(ctypes.c_int64, given.block)
        case "int" | "bool":
            made.value.integer = int(given.value)
        case "float":
            made.value.real = given.value
        case "text":
            made.value.text = maker.keep(given.value.encode())
        case "type":
            made.element = element(given.value)
        case _:
            pass
    return made


def tagged_call(case: Case, maker: Maker) -> Call:
    """The options and the grid."""
    names = [
        Named(maker.keep(name.encode()), tagged(of_value(value), maker, 0)) for name, value in case.options.items()
    ]
    grid = None if case.grid is None else maker.array(ctypes.c_int64, case.grid)
    return maker.keep(Call(grid, maker.array(Named, names), len(names)))


def of_value(value: Value) -> Given:
    """A constant as an argument."""
    if value is None:
        return Given("none")
    if isinstance(value, bool):
        return Given("bool", value)
    if isinstance(value, int):
        return Given("int", value)
    if isinstance(value, float):
        return Given("float", value)
    return Given("text" if isinstance(value, str) else "type", value)


def in_range32(given: Given) -> bool:
    """Whether all of an array's memory is below 2 GiB."""
    assert given.dtype is not None
    last = sum((extent - 1) * step for extent, step in zip(given.shape, given.strides, strict=True))
    return (last + 1) * given.dtype.itemsize <= 0x7FFFFFFF


# ---- at random ----


def random_case(source: random.Random, head: Head, variant: Variant | None) -> Case:
    """A call that a variant might serve, and often does not, for one thing or another is changed."""
    case = _fitting(source, head, variant)
    for _ in range(source.choice((0, 0, 0, 1, 1, 2))):
        _change(source, head, case)
    return case


def _fitting(source: random.Random, head: Head, variant: Variant | None) -> Case:
    given: dict[str, Given] = {}
    for one in head.signature.parameters:
        found = _argument(source, head, one.name, variant)
        if found is not None:
            given[one.name] = found
    grid = variant.specialization.grid if variant is not None else None
    if grid is None and (head.grid is None or source.random() < 0.15):
        grid = source.choice(GRIDS)
    _derived(source, head, given, variant)
    return Case(given, {}, grid)


def _derived(source: random.Random, head: Head, given: dict[str, Given], variant: Variant | None) -> None:
    """Sizes of which a derived constant is often the one that the variant has."""
    if head.name == "softmax" and variant is not None and source.random() < 0.8:
        block = dict(variant.specialization.constants)["BLOCK"]
        assert isinstance(block, int)
        columns = block if "columns" not in variant.specialization.constant_values else given["columns"].value
        if (("columns", Fact.DIVISIBLE_16) not in variant.specialization.facts) and source.random() < 0.5:
            columns = block // 2 + 1 + source.randrange(block // 2)
        if ("columns", Fact.EQUAL_1) not in variant.specialization.facts:
            given["columns"] = Given("int", columns)


def _argument(source: random.Random, head: Head, name: str, variant: Variant | None) -> Given | None:
    role, parameter = head.roles[name], head.signature[name]
    special = None if variant is None else variant.specialization
    constant = None if special is None else special.constant_values.get(name)
    match role:
        case "array":
            return _array(source, head, name, variant)
        case "int":
            if constant is not None:
                return Given("int", int(constant))  # pyright: ignore[reportArgumentType]  # a number, or True
            facts = frozenset[Fact]() if special is None else special.facts_of(name)
            number = 1 if Fact.EQUAL_1 in facts else size(source)
            if Fact.DIVISIBLE_16 in facts:
                number = number // 16 * 16 or 16
            if parameter.dtype is not None and source.random() < 0.9:
                number %= 1 << 15
            return Given("int", number)
        case "float":
            return Given("float", source.choice((1.0, 0.125, 3.5, 1e-5)))
        case "bool":
            return Given("bool", source.choice((True, False)) if constant is None else bool(constant))
        case "constant":
            if constant is not None or (special is not None and name in special.constant_values):
                return of_value(constant)
            return None if variant is not None else of_value(source.choice(head.constants[name]))
        case _:
            return None


def _array(source: random.Random, head: Head, name: str, variant: Variant | None) -> Given:
    found = head.signature[name].dtype or dtype("float32")
    shape: tuple[int, ...] = source.choice(SHAPES)
    strides: tuple[int, ...] | None = None
    address = _NOUGHT + 16 * source.randrange(1 << 20)
    if variant is not None:
        parameter, special = variant.signature[name], variant.specialization
        facts, found = special.facts_of(name), parameter.dtype or found
        if Fact.NONE in facts:
            return Given("none")
        if parameter.kind is ParameterKind.DESCRIPTOR:
            block = special.constant_values[name]
            assert isinstance(block, tuple)
            return _descriptor(source, found, tuple(map(int, block)), address)  # pyright: ignore[reportArgumentType]
        extents = dict(special.extents).get(name)
        if isinstance(extents, DynamicLayout):
            shape = tuple(one.divisor * source.randrange(1, 5) for one in extents.axes)
            strides = compact(shape) if source.random() < 0.7 else compact(shape[::-1])[::-1]
        elif extents is not None:
            shape, strides = extents.shape, extents.strides
        if Fact.ALIGNED_16 not in facts and source.random() < 0.3:
            address += found.itemsize
    if strides is None:
        strides = compact(shape)
        if shape and source.random() < 0.2:
            strides = tuple(2 * step for step in strides)
    readonly = source.random() < 0.02
    return Given("array", None, found, address, shape, strides, (), readonly)


def _descriptor(source: random.Random, of: DType, block: tuple[int, ...], address: int) -> Given:
    shape = tuple(extent * 16 * source.randrange(1, 4) for extent in block)
    return Given("descriptor", None, of, address // 16 * 16, shape, compact(shape), block)


def _change(source: random.Random, head: Head, case: Case) -> None:
    chance = source.random()
    if chance < 0.12:
        name = source.choice(("num_warps", "num_stages", "maxnreg", "num_ctas"))
        case.options[name] = source.choice((4, 8, 2, 3, True, 4.0, "4"))
        return
    if chance < 0.18:
        case.grid = None if case.grid is not None else source.choice(GRIDS)
        return
    name = source.choice(head.signature.names)
    one = case.given.get(name)
    if chance < 0.28:
        case.given.pop(name, None)
    elif chance < 0.36:
        case.given[name] = _other(source, head, name)
    elif head.roles[name] == "array" and (one is None or one.kind not in ("array", "descriptor")):
        case.given[name] = Given("none")
    elif one is None:
        values: tuple[Value, ...] = head.constants.get(name, (16, 32, 64, 128, True, "relu", 1.0, None))
        case.given[name] = of_value(source.choice(values))
    elif one.kind in ("array", "descriptor"):
        case.given[name] = _changed_array(source, one)
    elif one.kind == "int":
        case.given[name] = Given(
            "int", source.choice((1, 0, -16, 16, 17, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 40, size(source)))
        )
    elif one.kind == "float":
        case.given[name] = source.choice((Given("int", 3), Given("float", float("inf")), Given("bool", True)))
    else:
        case.given[name] = of_value(source.choice(head.constants.get(name, (True, False, 0, 1))))


def _changed_array(source: random.Random, one: Given) -> Given:
    assert one.dtype is not None
    chance = source.random()
    if one.kind == "descriptor":
        if chance < 0.5:
            return _descriptor(source, one.dtype, source.choice(BLOCKS), one.address)
        if chance < 0.7:
            return replace(one, dtype=dtype("float32"))
        return replace(one, readonly=True)
    if chance < 0.25:
        return replace(one, address=one.address + one.dtype.itemsize)
    if chance < 0.5:
        return replace(one, dtype=source.choice(DTYPES))
    if chance < 0.6:
        return replace(one, readonly=True)
    if chance < 0.75:
        shape = source.choice((*SHAPES, (1 << 20, 1 << 12), (1 << 29,), (0, 5)))
        return replace(one, shape=shape, strides=compact(shape))
    if chance < 0.9 and one.shape:
        return replace(one, strides=tuple(3 * step for step in one.strides))
    return _descriptor(source, one.dtype, source.choice(BLOCKS), one.address)


def _other(source: random.Random, head: Head, name: str) -> Given:
    """Something of another kind."""
    # An integer in the place of a pointer is an address, which C gives as a pointer.
    points = head.signature[name].kind is ParameterKind.POINTER
    chosen = source.choice(("none", "bool", "float", "array") if points else ("none", "int", "bool", "float", "array"))
    match chosen:
        case "int":
            return Given("int", size(source))
        case "bool":
            return Given("bool", True)
        case "float":
            return Given("float", 2.5)
        case "array":
            return Given("array", None, dtype("float32"), _NOUGHT, (64,), (1,))
        case _:
            return Given("none")
