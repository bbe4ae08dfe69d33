"""C expressions of conversions: between numbers, between bit patterns, between pointers and integers."""

from __future__ import annotations

from collections.abc import Mapping

from silo.kinds.triton.front.operations.cpu.c_call import RefusedError, Renderer, ScalarCall
from silo.kinds.triton.front.operations.cpu.c_types import FLOATS, FP8, HALVES, NARROW, c_type

__all__ = [
    "bitcast",
    "extend",
    "float_cast",
    "float_to_int",
    "index_cast",
    "int_to_float",
    "int_to_ptr",
    "ptr_to_int",
    "triton_float_cast",
    "trunc",
]

# The meaning of a rounding attribute, by operation: Triton counts 0 toward zero, 1 to nearest even; MLIR the other way.
_TRITON_ROUNDINGS: Mapping[int | None, str] = {None: "", 0: "_rtz", 1: ""}
_MLIR_ROUNDINGS: Mapping[int | None, str] = {None: "", 0: "", 3: "_rtz"}
_RANK = {"f64": 3, "f32": 2, **dict.fromkeys(HALVES, 1), **dict.fromkeys(FP8, 0)}
# The integer that has the bits of each floating-point type.
_BITS_OF = {"f32": "i32", "f64": "i64", **dict.fromkeys(HALVES, "i16"), **dict.fromkeys(FP8, "i8")}


def float_cast(call: ScalarCall, roundings: Mapping[int | None, str] = _MLIR_ROUNDINGS) -> str:
    """A conversion between any two floating-point types, rounded once; to 8-bit types it saturates.

    ``roundings`` holds the meanings of the rounding attribute, which is ignored if the result holds every value of the
    operand.
    """
    call.pointer_free()
    source, target = call.types[0].element, call.element
    if source not in FLOATS or target not in FLOATS:
        raise RefusedError(f"no conversion from {source} to {target}")
    if source == target:
        return call.operands[0]
    if target == "f64":
        return f"(double)({call.float_operand(0)})"
    rounding = ""
    if _RANK[target] < _RANK[source] or _RANK[target] < 2:
        rounding = _rounding(call, roundings)
    return _rounded(call, rounding)


def triton_float_cast(call: ScalarCall) -> str:
    """:func:`float_cast` by the numbers that Triton gives roundings."""
    return float_cast(call, _TRITON_ROUNDINGS)


def _rounding(call: ScalarCall, roundings: Mapping[int | None, str]) -> str:
    """The ending of the C functions that round like the operation."""
    attributes = call.operation.attributes
    mode = attributes.get("rounding", attributes.get("roundingmode"))
    if not (mode is None or isinstance(mode, int)) or mode not in roundings:
        raise RefusedError(f"rounding mode {mode}: there is rounding to nearest even and toward zero")
    return roundings[mode]


def _rounded(call: ScalarCall, rounding: str) -> str:
    source, target = call.types[0].element, call.element
    text = call.float_operand(0)
    if source == "f64" and (target != "f32" or rounding):
        call.use("narrow")
        text = f"silo_f64_to_f32{rounding or '_odd'}({text})"
    elif source == "f64":
        text = f"(float){text}"
    if target == "f32":
        return text
    if not rounding and target in HALVES:
        return call.float_result(text)
    rounding = rounding or "_sat"
    call.use(NARROW[target], *(["narrow"] if target in HALVES else []))
    return f"silo_f32_to_{target}{rounding}({text})"


def int_to_float(*, signed: bool) -> Renderer:
    """From an integer, through f32 for f16 and bf16, as array libraries do."""

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        value = call.signed(0) if signed else call.unsigned(0)
        if not signed and call.types[0].element in ("i1", "i8", "i16"):
            value = f"(int32_t){value}"  # the same number; gcc vectorizes no conversion of a truth value by way of u32
        return call.float_result(f"({call.compute})({value})")

    return render


def float_to_int(*, signed: bool) -> Renderer:
    """To an integer: toward zero, saturated, NaN as 0."""

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        bits = call.integer_bits()
        call.use("convert")
        source = "f64" if call.types[0].element == "f64" else "f32"
        kind = "i" if signed else "u"
        wide = f"silo_{source}_to_{kind}{max(bits, 32)}({call.float_operand(0)})"
        if bits >= 32:
            return call.cast(wide)
        if bits == 1:
            # A signed i1 holds -1 and 0, an unsigned one 0 and 1: saturation leaves one bit either way.
            return f"(uint8_t)({wide} {'<' if signed else '>'} 0)"
        if signed:
            return call.cast(f"silo_clamp_i32({wide}, {-(1 << (bits - 1))}, {(1 << (bits - 1)) - 1})")
        return call.cast(f"silo_cap_u32({wide}, {(1 << bits) - 1}u)")

    return render


def extend(*, signed: bool) -> Renderer:
    """To a wider integer."""

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        call.integer_bits()
        return call.cast(call.signed(0) if signed else call.unsigned(0))

    return render


def index_cast(*, signed: bool) -> Renderer:
    """Between an index and an integer of any width."""
    widen = extend(signed=signed)

    def render(call: ScalarCall) -> str:
        narrows = call.integer_bits() < call.integer_bits(call.types[0].element)
        return trunc(call) if narrows else widen(call)

    return render


def trunc(call: ScalarCall) -> str:
    """To a narrower integer."""
    call.pointer_free()
    if call.integer_bits() == 1:
        return f"(uint8_t)(({call.operands[0]}) & 1)"
    return call.cast(call.operands[0])


def bitcast(call: ScalarCall) -> str:
    """The same bits as another type."""
    source, target = call.types[0], call.result
    if source.pointer != target.pointer:
        raise RefusedError("a cast between pointers and numbers")
    if target.pointer or source.element == target.element:
        return call.cast(call.operands[0])
    call.pointer_free()
    before, after = (_BITS_OF.get(element, element) for element in (source.element, target.element))
    if before != after:
        raise RefusedError(f"a bitcast from {source.element} to {target.element}")
    text = call.operands[0]
    if source.element in ("f32", "f64"):
        text = f"silo_bits_{source.element}({text})"
    if target.element in ("f32", "f64"):
        return f"silo_{target.element}_of_bits(({'u' + after.replace('i', 'int')}_t)({text}))"
    return call.cast(text)


def int_to_ptr(call: ScalarCall) -> str:
    """An address as a pointer."""
    call.integer_bits(call.types[0].element)
    return f"({c_type(call.result)})(uint64_t)({call.operands[0]})"


def ptr_to_int(call: ScalarCall) -> str:
    """A pointer as an address."""
    call.integer_bits()
    return f"({c_type(call.result)})(uint64_t)({call.operands[0]})"
