"""The PTX instructions that inline assembly may contain: their operand and result types, and the C text of each.

Functions that are approximate on a GPU are as exact as the CPU's own functions, and nothing is flushed to zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from silo.kinds.triton.front.operations.cpu.c_arith import (
    absf,
    bitwise,
    extend,
    float_binary,
    float_call,
    float_cast,
    int_to_float,
    integer_call,
    negf,
    shift,
    wrapping,
)
from silo.kinds.triton.front.operations.cpu.c_types import HALVES, Renderer, ScalarCall
from silo.kinds.triton.front.operations.nvidia.libdevice import LIBDEVICE, fma, function

__all__ = ["INLINE", "WIDTHS", "PtxStep"]

# PTX's names of the rounding modes, and libdevice's.
_ROUNDINGS = {"rn": "rn", "rz": "rz", "rm": "rd", "rp": "ru"}
WIDTHS: Mapping[str, int] = MappingProxyType(
    {
        "f64": 64,
        "f32": 32,
        "f16": 16,
        "bf16": 16,
        "f8E4M3FN": 8,
        "f8E5M2": 8,
        "i4": 4,
        "i8": 8,
        "i16": 16,
        "i32": 32,
        "i64": 64,
    }
)
"""The bits of each type that a step reads or returns; an i4 is in the lower bits of an i8."""
_FP8 = {"e4m3": "f8E4M3FN", "e5m2": "f8E5M2"}


@dataclass(frozen=True, slots=True)
class PtxStep:
    """The computation of one instruction: the element types of its operands and of its result, and its C text.

    ``lanes`` is the number of elements in each operand and in the result, all computed in the same way. With ``packs``,
    the instruction takes one operand for each element of the result, the element of the upper half first.
    """

    takes: tuple[str, ...]
    gives: str
    render: Renderer
    lanes: int = 1
    packs: bool = False


def _reciprocal(call: ScalarCall) -> str:
    one = "1.0" if call.element == "f64" else "1.0f"
    return call.float_result(f"({one} / {call.float_operand(0)})")


def _runtime(stem: str, piece: str) -> Renderer:
    """Returns a function that writes a call of a C function of the runtime.

    The operands are converted to the C types of its parameters.
    """

    def render(call: ScalarCall) -> str:
        call.use(piece)
        return f"{stem}({', '.join(call.operands)})"

    return render


def _directed(name: str, rounding: str, kind: str) -> Renderer | None:
    """Returns a function that writes arithmetic with a given rounding mode, which the C compiler must not fuse.

    Returns None if the C runtime lacks this arithmetic.
    """
    if kind in HALVES:
        if rounding != "rn":
            return None
        sign = {"add": "+", "sub": "-", "mul": "*"}.get(name)
        return None if sign is None else float_binary(sign)
    letter = "f" if kind == "f32" else "d"
    return LIBDEVICE.get(f"__nv_{letter}{name}_{_ROUNDINGS[rounding]}")


def _elements(kind: str) -> tuple[str, int]:
    """The element type and the number of elements of a floating-point type."""
    return (kind.removesuffix("x2"), 2) if kind.endswith("x2") else (kind, 1)


def _float_step(kind: str, arity: int, render: Renderer) -> PtxStep:
    element, lanes = _elements(kind)
    return PtxStep((element,) * arity, element, render, lanes)


def _approximate() -> dict[str, PtxStep]:
    steps: dict[str, PtxStep] = {}
    for name, kinds in {
        "sin": "f32",
        "cos": "f32",
        "lg2": "f32",
        "ex2": "f32 f16 bf16 f16x2 bf16x2",
        "tanh": "f32 f16 bf16 f16x2 bf16x2",
        "sqrt": "f32",
        "rsqrt": "f32 f64",
    }.items():
        render = function({"lg2": "log2", "ex2": "exp2"}.get(name, name))
        steps |= {f"{name}.approx.{kind}": _float_step(kind, 1, render) for kind in kinds.split()}
    steps |= {f"rcp.approx.{kind}": _float_step(kind, 1, _reciprocal) for kind in ("f32", "f64")}
    steps |= {f"div.{how}.f32": _float_step("f32", 2, float_binary("/")) for how in ("approx", "full")}
    return steps


def _arithmetic() -> dict[str, PtxStep]:
    steps: dict[str, PtxStep] = {}
    for kind in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
        element, _ = _elements(kind)
        steps[f"neg.{kind}"] = _float_step(kind, 1, negf)
        steps[f"abs.{kind}"] = _float_step(kind, 1, absf)
        for name in ("min", "max"):
            steps[f"{name}.{kind}"] = _float_step(kind, 2, float_call(f"{name}num", "minmax"))
            steps[f"{name}.NaN.{kind}"] = _float_step(kind, 2, float_call(f"{name}imum", "minmax"))
        for rounding, libdevice in _ROUNDINGS.items():
            for name in ("add", "sub", "mul", "div", "rcp", "sqrt"):
                render = _directed(name, rounding, element)
                if render is not None:
                    step = _float_step(kind, 1 if name in {"rcp", "sqrt"} else 2, render)
                    steps[f"{name}.{rounding}.{kind}"] = step
                    if rounding == "rn" and name in {"add", "sub", "mul"}:
                        steps[f"{name}.{kind}"] = step
            fused = fma if rounding == "rn" else LIBDEVICE.get(f"__nv_fmaf_{libdevice}") if kind == "f32" else None
            if fused is not None:
                steps[f"fma.{rounding}.{kind}"] = _float_step(kind, 3, fused)
    return steps


def _integers() -> dict[str, PtxStep]:
    """The steps of integer arithmetic, which wraps, and of bit operations. The distance of a shift has 32 bits."""
    steps: dict[str, PtxStep] = {}
    for bits in (16, 32, 64):
        kind = f"i{bits}"
        two = (kind, kind)
        for sign in "us":
            steps[f"add.{sign}{bits}"] = PtxStep(two, kind, wrapping("+", "^"))
            steps[f"sub.{sign}{bits}"] = PtxStep(two, kind, wrapping("-", "^"))
            steps[f"mul.lo.{sign}{bits}"] = PtxStep(two, kind, wrapping("*", "&"))
            steps[f"mad.lo.{sign}{bits}"] = PtxStep((kind,) * 3, kind, _multiply_add)
            for name in ("min", "max"):
                stem = f"{name}{sign}i"
                steps[f"{name}.{sign}{bits}"] = PtxStep(two, kind, integer_call(stem, signed=sign == "s"))
        for name, operator in (("and", "&"), ("or", "|"), ("xor", "^")):
            steps[f"{name}.b{bits}"] = PtxStep(two, kind, bitwise(operator))
        steps[f"not.b{bits}"] = PtxStep((kind,), kind, _complement)
        steps[f"shl.b{bits}"] = PtxStep((kind, "i32"), kind, shift("shl"))
        steps |= {f"shr.{letter}{bits}": PtxStep((kind, "i32"), kind, shift("shrui")) for letter in "bu"}
        steps[f"shr.s{bits}"] = PtxStep((kind, "i32"), kind, shift("shrsi"))

    for bits in (8, 16, 32):
        for wide in (16, 32, 64):
            if wide > bits:
                signed = PtxStep((f"i{bits}",), f"i{wide}", extend(signed=True))
                steps |= {f"cvt.{letter}{wide}.s{bits}": signed for letter in "us"}
    steps["lop3.b32"] = PtxStep(("i32",) * 4, "i32", _runtime("(int32_t)silo_lop3", "bits"))
    steps["prmt.b32"] = PtxStep(("i32",) * 3, "i32", _runtime("(int32_t)silo_prmt", "bits"))
    return steps


def _multiply_add(call: ScalarCall) -> str:
    return call.cast(f"{call.unsigned(0)} * {call.unsigned(1)} + {call.unsigned(2)}")


def _complement(call: ScalarCall) -> str:
    return call.cast(f"~({call.operands[0]})")


def _conversions() -> dict[str, PtxStep]:
    steps: dict[str, PtxStep] = {}
    for how in ("rna", "rn"):
        steps[f"cvt.{how}.tf32.f32"] = PtxStep(("f32",), "f32", _runtime(f"silo_round_tf32_{how}", "round"))
    for half in ("bf16", "f16"):
        steps[f"cvt.rn.{half}.f32"] = PtxStep(("f32",), half, float_cast)
        steps[f"cvt.rn.{half}x2.f32"] = PtxStep(("f32",), half, float_cast, 2, packs=True)
        toward = _runtime(f"silo_f32_to_{half}_rtz", "narrow")
        steps[f"cvt.rz.{half}.f32"] = PtxStep(("f32",), half, toward)
        steps[f"cvt.rz.{half}x2.f32"] = PtxStep(("f32",), half, toward, 2, packs=True)
        steps[f"cvt.f32.{half}"] = PtxStep((half,), "f32", float_cast)
    for kind, element in _FP8.items():
        steps[f"cvt.rn.satfinite.{kind}x2.f32"] = PtxStep(("f32",), element, float_cast, 2, packs=True)
        steps[f"cvt.rn.satfinite.{kind}x2.f16x2"] = PtxStep(("f16",), element, float_cast, 2)
        steps[f"cvt.rn.f16x2.{kind}x2"] = PtxStep((element,), "f16", float_cast, 2)
    steps["cvt.rn.satfinite.e2m1x2.f32"] = PtxStep(("f32",), "i4", _runtime("silo_f32_to_e2m1", "fp4"), 2, packs=True)
    for half in ("bf16", "f16"):
        steps[f"cvt.rn.{half}x2.e2m1x2"] = PtxStep(("i4",), half, _e2m1, 2)
    for rounding in ("rz", "rp"):
        for words, ending in ((rounding, rounding), (f"{rounding}.satfinite", f"{rounding}_sat")):
            power = _runtime(f"silo_f32_to_e8m0_{ending}", "e8m0")
            steps[f"cvt.{words}.ue8m0x2.f32"] = PtxStep(("f32",), "i8", power, 2, packs=True)
            steps[f"cvt.{words}.ue8m0x2.bf16x2"] = PtxStep(("bf16",), "i8", _of_floats(f"silo_f32_to_e8m0_{ending}"), 2)
    steps["cvt.rn.bf16x2.ue8m0x2"] = PtxStep(("i8",), "bf16", _runtime("silo_e8m0_to_bf16", "e8m0"), 2)
    steps["cvt.f64.f32"] = PtxStep(("f32",), "f64", float_cast)
    for rounding, libdevice in _ROUNDINGS.items():
        steps[f"cvt.{rounding}.f32.f64"] = PtxStep(("f64",), "f32", LIBDEVICE[f"__nv_double2float_{libdevice}"])
        for kind, (name, bits) in {"s32": ("int", 32), "u32": ("uint", 32)}.items():
            to_integer = LIBDEVICE[f"__nv_float2{name}_{libdevice}"]
            steps[f"cvt.{rounding}i.{kind}.f32"] = PtxStep(("f32",), f"i{bits}", to_integer)
    for kind, signed in (("s32", True), ("u32", False)):
        steps[f"cvt.rn.f32.{kind}"] = PtxStep(("i32",), "f32", int_to_float(signed=signed))
    return steps


def _e2m1(call: ScalarCall) -> str:
    call.use("fp4")
    return call.float_result(f"silo_e2m1_to_f32((uint32_t){call.operands[0]})")


def _of_floats(stem: str) -> Renderer:
    def render(call: ScalarCall) -> str:
        call.use("e8m0")
        return f"{stem}({call.float_operand(0)})"

    return render


INLINE: Mapping[str, PtxStep] = MappingProxyType({**_approximate(), **_arithmetic(), **_integers(), **_conversions()})
"""Every instruction that computes a value, by its name without ``.ftz``, which has no effect here."""
