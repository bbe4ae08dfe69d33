"""C expressions of the ``arith`` dialect and of Triton's own elementwise operations.

Where MLIR leaves a result undefined it is defined here: integer division by zero gives -1 (all ones) and its remainder
the dividend, MIN / -1 gives MIN, shifts by the width or more give 0 (or the sign), conversions to integers saturate and
turn NaN into 0. Integer arithmetic wraps.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from silo.backends.cpu.ops_call import Call, RefusedError, Renderer
from silo.backends.cpu.ops_types import C_TYPES, FLOATS, HALVES, c_type, literal
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


def _floor_ceil(stem: str) -> Renderer:
    def render(call: Call) -> str:
        call.pointer_free()
        if call.integer_bits() == 1:
            raise RefusedError("it is not defined on i1")
        call.use("integer")
        return call.cast(f"silo_{stem}_i64({call.signed(0)}, {call.signed(1)})")

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


def _select(call: Call) -> str:
    return f"(({call.operands[0]}) ? ({call.operands[1]}) : ({call.operands[2]}))"


def _negf(call: Call) -> str:
    call.pointer_free()
    if call.element in HALVES:
        return call.cast(f"({call.operands[0]}) ^ 0x8000u")
    return f"(-({call.float_operand(0)}))"


def _absf(call: Call) -> str:
    call.pointer_free()
    if call.element in HALVES:
        return call.cast(f"({call.operands[0]}) & 0x7fffu")
    return f"__builtin_fabs{'' if call.element == 'f64' else 'f'}({call.float_operand(0)})"


def _remf(call: Call) -> str:
    call.pointer_free()
    call.use("libm")
    function = "fmod" if call.element == "f64" else "fmodf"
    return call.float_result(f"{function}({call.float_operand(0)}, {call.float_operand(1)})")


def _float_cast(call: Call) -> str:
    """extf, truncf and tt.fp_to_fp between f16, bf16, f32 and f64."""
    rounding = call.operation.attributes.get("rounding", call.operation.attributes.get("roundingmode"))
    call.pointer_free()
    source, target = call.types[0].element, call.element
    if source not in FLOATS or target not in FLOATS:
        raise RefusedError(f"no conversion from {source} to {target}")
    narrows = {"f64": 3, "f32": 2, "f16": 1, "bf16": 1}
    # Triton's rounding: 0 toward zero, 1 to nearest even; MLIR's: 0 to nearest even.
    nearest = {"tt.fp_to_fp": 1}.get(call.operation.name, 0)
    if rounding not in (None, nearest) and (
        narrows[target] < narrows[source] or ({source, target} <= HALVES and source != target)
    ):
        raise RefusedError(f"rounding mode {rounding}: only rounding to nearest even is supported")
    if source == target:
        return call.operands[0]
    if source == "f64" and target in HALVES:
        call.use("half")
        return f"silo_f64_to_{target}({call.operands[0]})"
    wide = call.float_operand(0)
    return (
        call.float_result(f"(float)({wide})" if target == "f32" else wide) if target != "f64" else f"(double)({wide})"
    )


def _int_to_float(*, signed: bool) -> Renderer:
    def render(call: Call) -> str:
        """Through f32 for f16 and bf16, as array libraries do."""
        call.pointer_free()
        value = call.signed(0) if signed else call.unsigned(0)
        return call.float_result(f"({call.compute})({value})")

    return render


def _float_to_int(*, signed: bool) -> Renderer:
    def render(call: Call) -> str:
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


def _extend(*, signed: bool) -> Renderer:
    def render(call: Call) -> str:
        call.pointer_free()
        call.integer_bits()
        return call.cast(call.signed(0) if signed else call.unsigned(0))

    return render


def _index_cast(call: Call) -> str:
    return (
        _trunc(call) if call.integer_bits() < call.integer_bits(call.types[0].element) else _extend(signed=True)(call)
    )


def _trunc(call: Call) -> str:
    call.pointer_free()
    if call.integer_bits() == 1:
        return f"(uint8_t)(({call.operands[0]}) & 1)"
    return call.cast(call.operands[0])


def _bitcast(call: Call) -> str:
    source, target = call.types[0], call.result
    if source.pointer != target.pointer:
        raise RefusedError("a cast between pointers and numbers")
    if target.pointer or source.element == target.element:
        return call.cast(call.operands[0])
    call.pointer_free()
    pair = (source.element, target.element)
    if "f32" in pair or "f64" in pair:
        float_type = "f32" if "f32" in pair else "f64"
        bits = "32" if float_type == "f32" else "64"
        other = pair[0] if pair[1] == float_type else pair[1]
        if other != f"i{bits}":
            raise RefusedError(f"a bitcast from {source.element} to {target.element}")
        if pair[1] == float_type:
            return f"silo_{float_type}_of_bits((uint{bits}_t)({call.operands[0]}))"
        return call.cast(f"silo_bits_{float_type}({call.operands[0]})")
    return call.cast(call.operands[0])  # i16, f16 and bf16 share their representation


def _int_to_ptr(call: Call) -> str:
    return f"({c_type(call.result)})(uint64_t)({call.operands[0]})"


def _ptr_to_int(call: Call) -> str:
    call.integer_bits()
    return f"({c_type(call.result)})(uint64_t)({call.operands[0]})"


def _addptr(call: Call) -> str:
    if not call.result.pointer:
        raise RefusedError("the first operand is no pointer")
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
        "arith.floordivsi": _floor_ceil("floordiv"),
        "arith.ceildivsi": _floor_ceil("ceildiv"),
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
        "arith.extf": _float_cast,
        "arith.truncf": _float_cast,
        "arith.sitofp": _int_to_float(signed=True),
        "arith.uitofp": _int_to_float(signed=False),
        "arith.fptosi": _float_to_int(signed=True),
        "arith.fptoui": _float_to_int(signed=False),
        "arith.extsi": _extend(signed=True),
        "arith.extui": _extend(signed=False),
        "arith.trunci": _trunc,
        "arith.index_cast": _index_cast,
        "arith.bitcast": _bitcast,
        "math.absf": _absf,
        "math.absi": _integer_call("absi", signed=True),
        "math.ctlz": _integer_call("ctlz", signed=False, least=32),
        "math.cttz": _integer_call("cttz", signed=False, least=32),
        "tt.addptr": _addptr,
        "tt.bitcast": _bitcast,
        "tt.fp_to_fp": _float_cast,
        "tt.int_to_ptr": _int_to_ptr,
        "tt.ptr_to_int": _ptr_to_int,
        "tt.mulhiui": _integer_call("mulhiui", signed=False, least=32),
        "tt.clampf": _clampf,
        "tt.precise_divf": _float_binary("/"),
    }
)
