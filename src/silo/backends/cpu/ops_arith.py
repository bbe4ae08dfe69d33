"""C expressions of the ``arith`` dialect's arithmetic and of Triton's own elementwise operations.

Where MLIR leaves a result undefined it is defined here: integer division by zero gives -1 (all ones) and its remainder
the dividend, MIN / -1 gives MIN, shifts by the width or more give 0 (or the sign), conversions to integers saturate and
turn NaN into 0. Integer arithmetic wraps.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from silo.backends.cpu.ops_call import Call, RefusedError, Renderer
from silo.backends.cpu.ops_types import C_TYPES, FP8, HALVES, literal, zero
from silo.sources.triton.ssa import Dense

__all__ = ["ARITH"]

# MLIR's order of integer predicates: eq ne slt sle sgt sge ult ule ugt uge.
_CMPI = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")
# MLIR's order of floating-point predicates; ordered ones are false with a NaN, unordered ones true.
_CMPF = (
    "0",
    "{a} == {b}",
    "{a} > {b}",
    "{a} >= {b}",
    "{a} < {b}",
    "{a} <= {b}",
    "__builtin_islessgreater({a}, {b})",
    "!__builtin_isunordered({a}, {b})",
    "!__builtin_islessgreater({a}, {b})",
    "!({a} <= {b})",
    "!({a} < {b})",
    "!({a} >= {b})",
    "!({a} > {b})",
    "{a} != {b}",
    "__builtin_isunordered({a}, {b})",
    "1",
)


def _constant(call: Call) -> str:
    value = call.operation.attributes.get("value")
    if isinstance(value, Dense):
        value = value.splat
        if value is None:
            raise RefusedError("a constant whose elements differ")
    if not isinstance(value, int | float):
        raise RefusedError(f"a constant of an unknown kind: {value!r}")
    if call.element not in C_TYPES or call.result.pointer:
        raise RefusedError(f"a constant of type {call.element}")
    return literal(value, call.element)


def _float_binary(sign: str) -> Renderer:
    def render(call: Call) -> str:
        call.pointer_free()
        return call.float_result(f"({call.float_operand(0)} {sign} {call.float_operand(1)})")

    return render


def _float_call(stem: str, piece: str) -> Renderer:
    def render(call: Call) -> str:
        call.pointer_free()
        call.use(piece)
        arguments = ", ".join(call.float_operand(index) for index in range(len(call.operands)))
        return call.float_result(f"silo_{stem}_{call.suffix}({arguments})")

    return render


def _wrapping(sign: str, on_bool: str) -> Renderer:
    def render(call: Call) -> str:
        call.pointer_free()
        if call.integer_bits() == 1:
            return call.cast(f"({call.operands[0]}) {on_bool} ({call.operands[1]})")
        return call.cast(f"{call.unsigned(0)} {sign} {call.unsigned(1)}")

    return render


def _bitwise(sign: str) -> Renderer:
    def render(call: Call) -> str:
        call.pointer_free()
        call.integer_bits()
        return call.cast(f"({call.operands[0]}) {sign} ({call.operands[1]})")

    return render


def _integer_call(stem: str, *, signed: bool, least: int = 8) -> Renderer:
    def render(call: Call) -> str:
        call.pointer_free()
        if call.integer_bits() < least:
            raise RefusedError(f"it is not defined on {call.element}")
        call.use("integer")
        width = max(call.integer_bits(), 32)
        read = call.signed if signed else call.unsigned
        arguments = ", ".join(read(index) for index in range(len(call.operands)))
        return call.cast(f"silo_{stem}_i{width}({arguments})")

    return render


def _minmax(stem: str, *, signed: bool, on_bool: str) -> Renderer:
    general = _integer_call(stem, signed=signed)

    def render(call: Call) -> str:
        if call.element == "i1":
            return _bitwise(on_bool)(call)
        return general(call)

    return render


def _shift(stem: str) -> Renderer:
    def render(call: Call) -> str:
        call.pointer_free()
        bits = call.integer_bits()
        if bits == 1:
            raise RefusedError("it is not defined on i1")
        call.use("integer")
        value = call.signed(0) if stem == "shrsi" else call.unsigned(0)
        return call.cast(f"silo_{stem}_i{max(bits, 32)}({value}, {call.unsigned(1)}, {bits}u)")

    return render


def _floor_ceil(stem: str, *, signed: bool) -> Renderer:
    def render(call: Call) -> str:
        call.pointer_free()
        if call.integer_bits() == 1:
            raise RefusedError("it is not defined on i1")
        call.use("integer")
        read = call.signed if signed else call.unsigned
        return call.cast(f"silo_{stem}_i64({read(0)}, {read(1)})")

    return render


def _differ(call: Call, *, equal: bool = False) -> str:
    """Whether two conditions differ, as a choice: gcc 12 does not vectorise an exclusive or of two comparisons."""
    call.use("integer")
    return f"silo_{'same' if equal else 'differ'}_i1({call.operands[0]}, {call.operands[1]})"


def _xori(call: Call) -> str:
    return _differ(call) if call.element == "i1" and not call.result.pointer else _bitwise("^")(call)


def _cmpi(call: Call) -> str:
    predicate = call.attribute("predicate")
    if not 0 <= predicate < len(_CMPI):
        raise RefusedError(f"integer predicate {predicate} is unknown")
    sign = _CMPI[predicate]
    if call.types[0].pointer:
        return f"(uint8_t)((uint64_t)({call.operands[0]}) {sign} (uint64_t)({call.operands[1]}))"
    call.pointer_free()
    if call.types[0].element == "i1" and predicate < 2:
        return _differ(call, equal=predicate == 0)
    read = call.signed if predicate < 6 else call.unsigned
    return f"(uint8_t)({read(0)} {sign} {read(1)})"


def _cmpf(call: Call) -> str:
    call.pointer_free()
    predicate = call.attribute("predicate")
    if not 0 <= predicate < len(_CMPF):
        raise RefusedError(f"floating-point predicate {predicate} is unknown")
    return f"(uint8_t)({_CMPF[predicate].format(a=call.float_operand(0), b=call.float_operand(1))})"


def _poison(call: Call) -> str:
    """A value that nobody may depend on, such as a loop's variable after the loop: zero, the same each time."""
    return zero(call.result)


def _select(call: Call) -> str:
    return f"(({call.operands[0]}) ? ({call.operands[1]}) : ({call.operands[2]}))"


def _negf(call: Call) -> str:
    call.pointer_free()
    if call.element in HALVES:
        return call.cast(f"({call.operands[0]}) ^ 0x8000u")
    if call.element in FP8:
        call.use(call.element)
        return f"silo_{call.element}_neg({call.operands[0]})"
    return f"(-({call.float_operand(0)}))"


def _absf(call: Call) -> str:
    call.pointer_free()
    if call.element in HALVES:
        return call.cast(f"({call.operands[0]}) & 0x7fffu")
    if call.element in FP8:
        call.use(call.element)
        return f"silo_{call.element}_abs({call.operands[0]})"
    return f"__builtin_fabs{'' if call.element == 'f64' else 'f'}({call.float_operand(0)})"


def _remf(call: Call) -> str:
    call.pointer_free()
    call.use("libm")
    function = "fmod" if call.element == "f64" else "fmodf"
    return call.float_result(f"{function}({call.float_operand(0)}, {call.float_operand(1)})")


def _addptr(call: Call) -> str:
    if not call.result.pointer:
        raise RefusedError("the first operand is not a pointer")
    return f"(({call.operands[0]}) + ({call.operands[1]}))"


def _clampf(call: Call) -> str:
    # PropagateNan: 0 none, 0xFFFF all.
    propagate = call.operation.attributes.get("propagateNan", 0)
    return _float_call("clamp_nan" if propagate not in (0, False) else "clamp", "minmax")(call)


ARITH: Mapping[str, Renderer] = MappingProxyType(
    {
        "arith.constant": _constant,
        "arith.addi": _wrapping("+", "^"),
        "arith.subi": _wrapping("-", "^"),
        "arith.muli": _wrapping("*", "&"),
        "arith.andi": _bitwise("&"),
        "arith.ori": _bitwise("|"),
        "arith.xori": _xori,
        "arith.shli": _shift("shl"),
        "arith.shrui": _shift("shrui"),
        "arith.shrsi": _shift("shrsi"),
        "arith.divsi": _integer_call("divsi", signed=True),
        "arith.divui": _integer_call("divui", signed=False),
        "arith.remsi": _integer_call("remsi", signed=True),
        "arith.remui": _integer_call("remui", signed=False),
        "arith.floordivsi": _floor_ceil("floordiv", signed=True),
        "arith.ceildivsi": _floor_ceil("ceildiv", signed=True),
        "arith.ceildivui": _floor_ceil("ceildivui", signed=False),
        "arith.minsi": _minmax("minsi", signed=True, on_bool="|"),
        "arith.maxsi": _minmax("maxsi", signed=True, on_bool="&"),
        "arith.minui": _minmax("minui", signed=False, on_bool="&"),
        "arith.maxui": _minmax("maxui", signed=False, on_bool="|"),
        "arith.cmpi": _cmpi,
        "arith.addf": _float_binary("+"),
        "arith.subf": _float_binary("-"),
        "arith.mulf": _float_binary("*"),
        "arith.divf": _float_binary("/"),
        "arith.remf": _remf,
        "arith.negf": _negf,
        "arith.cmpf": _cmpf,
        "arith.maxnumf": _float_call("maxnum", "minmax"),
        "arith.minnumf": _float_call("minnum", "minmax"),
        "arith.maximumf": _float_call("maximum", "minmax"),
        "arith.minimumf": _float_call("minimum", "minmax"),
        "arith.select": _select,
        "ub.poison": _poison,
        "math.absf": _absf,
        "math.absi": _integer_call("absi", signed=True),
        "math.ctlz": _integer_call("ctlz", signed=False, least=32),
        "math.cttz": _integer_call("cttz", signed=False, least=32),
        "tt.addptr": _addptr,
        "tt.mulhiui": _integer_call("mulhiui", signed=False, least=32),
        "tt.clampf": _clampf,
        "tt.precise_divf": _float_binary("/"),
        "tt.approx_divf": _float_binary("/"),
    }
)
