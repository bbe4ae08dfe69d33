"""C expressions of arithmetic, of Triton's elementwise operations, and of conversions between numbers, bits, pointers.

Results that MLIR leaves undefined are defined here: integer division by zero gives -1 (all ones) and its remainder the
dividend, MIN / -1 gives MIN, shifts by the width or more give 0 (or the sign), conversions to integers saturate and
turn NaN into 0. Integer arithmetic wraps.

f32 (and, through it, every narrower type) uses the runtime's own vectorisable code, compiler builtins for roundings and
square roots, and libm for the few remaining functions; f64 uses the runtime or libm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from silo.kinds.triton.front.operations.cpu.c_types import (
    C_TYPES,
    FLOATS,
    FP8,
    HALVES,
    NARROW,
    RefusedError,
    Renderer,
    ScalarCall,
    c_type,
    literal,
    zero,
)
from silo.kinds.triton.front.ssa import Dense

__all__ = [
    "MathFunction",
    "absf",
    "addptr",
    "bitcast",
    "bitwise",
    "builtin",
    "clampf",
    "classify",
    "cmpf",
    "cmpi",
    "constant",
    "ctpop",
    "extend",
    "float_binary",
    "float_call",
    "float_cast",
    "float_to_int",
    "floor_ceil",
    "fma",
    "index_cast",
    "int_to_float",
    "int_to_ptr",
    "integer_call",
    "library",
    "minmax",
    "negf",
    "own",
    "own_f32",
    "own_f64",
    "poison",
    "ptr_to_int",
    "remf",
    "select",
    "shift",
    "triton_float_cast",
    "trunc",
    "wrapping",
    "xori",
]

# ---- C expressions of the arith dialect and of Triton's own elementwise operations ----


# The C operators in MLIR's order of integer predicates: eq ne slt sle sgt sge ult ule ugt uge.
_CMPI = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")
# C texts in MLIR's order of floating-point predicates; with a NaN, ordered ones are false and unordered ones true.
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


def constant(call: ScalarCall) -> str:
    """The C expression of a number, or a tensor of one number."""
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


def float_binary(sign: str) -> Renderer:
    """Returns a function that writes the C text of an operator between two floating-point numbers."""

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        return call.float_result(f"({call.float_operand(0)} {sign} {call.float_operand(1)})")

    return render


def float_call(stem: str, piece: str) -> Renderer:
    """Returns a function that writes a call of a runtime function on floating-point numbers, in f32 or f64.

    ``piece`` is the part of the C runtime that defines the function; kernels include only the parts that they call.
    """

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        call.use(piece)
        arguments = ", ".join(call.float_operand(index) for index in range(len(call.operands)))
        return call.float_result(f"silo_{stem}_{call.suffix}({arguments})")

    return render


def wrapping(sign: str, on_bool: str) -> Renderer:
    """Returns a function that writes the C text of integer arithmetic that wraps.

    ``on_bool`` is the operator between two i1.
    """

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        if call.integer_bits() == 1:
            return call.cast(f"({call.operands[0]}) {on_bool} ({call.operands[1]})")
        return call.cast(f"{call.unsigned(0)} {sign} {call.unsigned(1)}")

    return render


def bitwise(sign: str) -> Renderer:
    """Returns a function that writes the C text of an operator between the bits of two integers."""

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        call.integer_bits()
        return call.cast(f"({call.operands[0]}) {sign} ({call.operands[1]})")

    return render


def integer_call(stem: str, *, signed: bool, least: int = 8) -> Renderer:
    """Returns a function that writes a call of a runtime function on integers of at least ``least`` bits.

    The integers are taken as signed or unsigned.
    """

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        if call.integer_bits() < least:
            raise RefusedError(f"it is not defined on {call.element}")
        call.use("integer")
        width = max(call.integer_bits(), 32)
        read = call.signed if signed else call.unsigned
        arguments = ", ".join(read(index) for index in range(len(call.operands)))
        return call.cast(f"silo_{stem}_i{width}({arguments})")

    return render


def minmax(stem: str, *, signed: bool, on_bool: str) -> Renderer:
    """Returns a function that writes the C text of the smaller or the larger of two integers.

    ``on_bool`` is the operator between two i1.
    """
    general = integer_call(stem, signed=signed)

    def render(call: ScalarCall) -> str:
        if call.element == "i1":
            return bitwise(on_bool)(call)
        return general(call)

    return render


def shift(stem: str) -> Renderer:
    """Returns a function that writes the C text of a shift by any distance."""

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        bits = call.integer_bits()
        if bits == 1:
            raise RefusedError("it is not defined on i1")
        call.use("integer")
        value = call.signed(0) if stem == "shrsi" else call.unsigned(0)
        return call.cast(f"silo_{stem}_i{max(bits, 32)}({value}, {call.unsigned(1)}, {bits}u)")

    return render


def floor_ceil(stem: str, *, signed: bool) -> Renderer:
    """Returns a function that writes the C text of a quotient that is rounded down or up."""

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        if call.integer_bits() == 1:
            raise RefusedError("it is not defined on i1")
        call.use("integer")
        read = call.signed if signed else call.unsigned
        return call.cast(f"silo_{stem}_i64({read(0)}, {read(1)})")

    return render


def _differ(call: ScalarCall, *, equal: bool = False) -> str:
    """The C expression of whether two conditions differ (or, with ``equal``, are equal), written with ``? :``.

    gcc 12 does not vectorise an exclusive or of comparisons.
    """
    call.use("integer")
    return f"silo_{'same' if equal else 'differ'}_i1({call.operands[0]}, {call.operands[1]})"


def xori(call: ScalarCall) -> str:
    """The C expression of an exclusive or; for two conditions, of whether they differ."""
    return _differ(call) if call.element == "i1" and not call.result.pointer else bitwise("^")(call)


def cmpi(call: ScalarCall) -> str:
    """The C expression of a comparison of two integers or pointers."""
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


def cmpf(call: ScalarCall) -> str:
    """The C expression of a comparison of two floating-point numbers."""
    call.pointer_free()
    predicate = call.attribute("predicate")
    if not 0 <= predicate < len(_CMPF):
        raise RefusedError(f"floating-point predicate {predicate} is unknown")
    return f"(uint8_t)({_CMPF[predicate].format(a=call.float_operand(0), b=call.float_operand(1))})"


def poison(call: ScalarCall) -> str:
    """The C expression of a value that no result may depend on, such as a loop's variable after the loop: zero."""
    return zero(call.result)


def select(call: ScalarCall) -> str:
    """The C expression of one of two values, chosen by a condition."""
    return f"(({call.operands[0]}) ? ({call.operands[1]}) : ({call.operands[2]}))"


def negf(call: ScalarCall) -> str:
    """The C expression of the number with the opposite sign, also for NaN."""
    call.pointer_free()
    if call.element in HALVES:
        return call.cast(f"({call.operands[0]}) ^ 0x8000u")
    if call.element in FP8:
        call.use(call.element)
        return f"silo_{call.element}_neg({call.operands[0]})"
    return f"(-({call.float_operand(0)}))"


def absf(call: ScalarCall) -> str:
    """The C expression of the number without its sign."""
    call.pointer_free()
    if call.element in HALVES:
        return call.cast(f"({call.operands[0]}) & 0x7fffu")
    if call.element in FP8:
        call.use(call.element)
        return f"silo_{call.element}_abs({call.operands[0]})"
    return f"__builtin_fabs{'' if call.element == 'f64' else 'f'}({call.float_operand(0)})"


def remf(call: ScalarCall) -> str:
    """The C expression of the remainder of a division whose quotient is rounded toward zero."""
    call.pointer_free()
    call.use("libm")
    function = "fmod" if call.element == "f64" else "fmodf"
    return call.float_result(f"{function}({call.float_operand(0)}, {call.float_operand(1)})")


def addptr(call: ScalarCall) -> str:
    """The C expression of a pointer plus an offset in elements."""
    if not call.result.pointer:
        raise RefusedError("the first operand is not a pointer")
    return f"(({call.operands[0]}) + ({call.operands[1]}))"


def clampf(call: ScalarCall) -> str:
    """The C expression of a number clamped to two bounds; an attribute decides whether NaN is kept."""
    # Triton's PropagateNan: 0 is none, 0xFFFF is all.
    propagate = call.operation.attributes.get("propagateNan", 0)
    return float_call("clamp_nan" if propagate not in (0, False) else "clamp", "minmax")(call)


# ---- C expressions of the math dialect ----


@dataclass(frozen=True, slots=True)
class MathFunction:
    """A mathematical function in C: its names for f32 and f64, and the parts of the C runtime that define them.

    ``piece32`` and ``piece64`` name these parts; "" for functions of the compiler itself. A function without an f32
    form is computed in f64 and rounded. ``name`` is the function's name in messages.
    """

    name: str
    f32: str
    f64: str
    piece32: str = ""
    piece64: str = "libm"
    arity: int = 1

    def __call__(self, call: ScalarCall) -> str:
        """The C call, in the type in which the result is computed; this makes the object a :data:`Renderer`."""
        call.pointer_free()
        if len(call.operands) != self.arity:
            raise RefusedError(f"{self.name} takes {self.arity} operands, not {len(call.operands)}")
        arguments = [call.float_operand(index) for index in range(self.arity)]
        is_f64 = call.element == "f64"
        stem, piece = (self.f64, self.piece64) if is_f64 or not self.f32 else (self.f32, self.piece32)
        if not stem:
            raise RefusedError(f"{self.name} is not defined on {call.element}")
        if piece:
            call.use(piece)
        if is_f64 or self.f32:
            return call.float_result(f"{stem}({', '.join(arguments)})")
        return call.float_result(f"(float){stem}({', '.join(f'(double){argument}' for argument in arguments)})")


def own_f32(name: str, piece: str, *, stem: str = "", arity: int = 1) -> MathFunction:
    """Returns a function that is the runtime's ``silo_<stem>_f32`` in f32 and the C library's ``<stem>`` in f64.

    ``stem`` is ``name`` if not given.
    """
    stem = stem or name
    return MathFunction(name, f"silo_{stem}_f32", stem, piece, "libm", arity)


def own(name: str, piece: str, piece64: str = "", *, arity: int = 1) -> MathFunction:
    """Returns a function that is the runtime's ``silo_<name>_f32`` and ``silo_<name>_f64``.

    Both are in the runtime part ``piece`` if ``piece64`` is "".
    """
    return MathFunction(name, f"silo_{name}_f32", f"silo_{name}_f64", piece, piece64 or piece, arity)


def own_f64(name: str, piece: str, *, arity: int = 1) -> MathFunction:
    """Returns a function that is the runtime's ``silo_<name>_f64``, also for results of narrower types."""
    return MathFunction(name, "", f"silo_{name}_f64", "", piece, arity)


def builtin(name: str, *, stem: str = "", arity: int = 1) -> MathFunction:
    """Returns a function that is the C compiler's ``__builtin_<stem>f`` in f32 and ``__builtin_<stem>`` in f64.

    The C compiler turns each into an instruction. ``stem`` is ``name`` if not given.
    """
    stem = stem or name
    return MathFunction(name, f"__builtin_{stem}f", f"__builtin_{stem}", "", "", arity)


def library(name: str, *, arity: int = 1) -> MathFunction:
    """Returns a function that is the C library's ``<name>f`` in f32 and ``<name>`` in f64."""
    return MathFunction(name, f"{name}f", name, "libm", "libm", arity)


def fma(call: ScalarCall) -> str:
    """The C expression of a multiply-add with one rounding.

    Types narrower than f32 use f64, in which the product is exact.
    """
    call.pointer_free()
    if call.element in NARROW:
        call.use("narrow", NARROW[call.element])
        operands = ", ".join(f"(double){call.float_operand(index)}" for index in range(3))
        return f"silo_f32_to_{call.element}(silo_f64_to_f32_odd(silo_fma_odd({operands})))"
    call.use("libm")  # on a level without the instruction, this calls the C library
    a, b, c = (call.float_operand(index) for index in range(3))
    return f"__builtin_fma{'' if call.element == 'f64' else 'f'}({a}, {b}, {c})"


def classify(test: str) -> Renderer:
    """Returns a function that writes the C text of isnan, isinf or isfinite.

    The result is an i1 or, for libdevice, an i32.
    """

    def render(call: ScalarCall) -> str:
        return call.cast(f"{test}({call.float_operand(0)}) != 0")

    return render


def ctpop(call: ScalarCall) -> str:
    """The C expression of the number of set bits; the result's type may be narrower than the operand's."""
    call.pointer_free()
    call.integer_bits(call.types[0].element)
    wide = call.types[0].element in ("i64", "index")
    return call.cast(f"__builtin_popcount{'ll' if wide else ''}({call.unsigned(0)})")


# The C suffix for each value of a rounding attribute (None: no attribute). Triton numbers rounding toward zero 0 and to
# nearest even 1; MLIR numbers rounding to nearest even 0 and toward zero 3.
_TRITON_ROUNDINGS: Mapping[int | None, str] = {None: "", 0: "_rtz", 1: ""}
_MLIR_ROUNDINGS: Mapping[int | None, str] = {None: "", 0: "", 3: "_rtz"}
_RANK = {"f64": 3, "f32": 2, **dict.fromkeys(HALVES, 1), **dict.fromkeys(FP8, 0)}
# The integer type with as many bits as each floating-point type.
_BITS_OF = {"f32": "i32", "f64": "i64", **dict.fromkeys(HALVES, "i16"), **dict.fromkeys(FP8, "i8")}


def float_cast(call: ScalarCall, roundings: Mapping[int | None, str] = _MLIR_ROUNDINGS) -> str:
    """The C expression of a conversion between any two floating-point types, rounded once.

    Conversions to 8-bit types saturate. ``roundings`` holds the meanings of the rounding attribute, which is ignored if
    the result type represents every value of the operand type.
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
    """:func:`float_cast` for an operation whose attribute numbers the rounding modes as Triton does."""
    return float_cast(call, _TRITON_ROUNDINGS)


def _rounding(call: ScalarCall, roundings: Mapping[int | None, str]) -> str:
    """The suffix of the C functions that round as the operation does."""
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
    """Returns a function that writes the C text of a conversion from an integer.

    f16 and bf16 are rounded from f32, as array libraries do.
    """

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        value = call.signed(0) if signed else call.unsigned(0)
        if not signed and call.types[0].element in ("i1", "i8", "i16"):
            # The cast keeps the value; gcc does not vectorise the conversion of a truth value that is a uint32_t.
            value = f"(int32_t){value}"
        return call.float_result(f"({call.compute})({value})")

    return render


def float_to_int(*, signed: bool) -> Renderer:
    """Returns a function that writes the C text of a conversion to an integer.

    The conversion rounds toward zero, saturates, and turns NaN into 0.
    """

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
            # As a number, a set i1 is -1 if it is signed and 1 if it is unsigned. Saturation to that range sets the bit
            # for every number below 0 (signed) or above 0 (unsigned).
            return f"(uint8_t)({wide} {'<' if signed else '>'} 0)"
        if signed:
            return call.cast(f"silo_clamp_i32({wide}, {-(1 << (bits - 1))}, {(1 << (bits - 1)) - 1})")
        return call.cast(f"silo_cap_u32({wide}, {(1 << bits) - 1}u)")

    return render


def extend(*, signed: bool) -> Renderer:
    """Returns a function that writes the C text of a conversion to a wider integer."""

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        call.integer_bits()
        return call.cast(call.signed(0) if signed else call.unsigned(0))

    return render


def index_cast(*, signed: bool) -> Renderer:
    """Returns a function that writes the C text of a conversion between an index and an integer of any width."""
    widen = extend(signed=signed)

    def render(call: ScalarCall) -> str:
        narrows = call.integer_bits() < call.integer_bits(call.types[0].element)
        return trunc(call) if narrows else widen(call)

    return render


def trunc(call: ScalarCall) -> str:
    """The C expression of a conversion to a narrower integer."""
    call.pointer_free()
    if call.integer_bits() == 1:
        return f"(uint8_t)(({call.operands[0]}) & 1)"
    return call.cast(call.operands[0])


def bitcast(call: ScalarCall) -> str:
    """The C expression of the operand's bits as another type."""
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
    """The C expression of an address as a pointer."""
    call.integer_bits(call.types[0].element)
    return f"({c_type(call.result)})(uint64_t)({call.operands[0]})"


def ptr_to_int(call: ScalarCall) -> str:
    """The C expression of a pointer as an address."""
    call.integer_bits()
    return f"({c_type(call.result)})(uint64_t)({call.operands[0]})"
