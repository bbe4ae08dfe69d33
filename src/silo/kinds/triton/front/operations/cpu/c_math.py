"""C expressions of the ``math`` dialect.

f32 (and every narrower type through it) uses the runtime's own vectorisable code, inline instructions for roundings and
square roots, and libm for the few functions that have neither; f64 uses the runtime or libm.
"""

from __future__ import annotations

from dataclasses import dataclass

from silo.kinds.triton.front.operations.cpu.c_call import RefusedError, Renderer, ScalarCall
from silo.kinds.triton.front.operations.cpu.c_types import NARROW

__all__ = ["MathFunction", "builtin", "classify", "ctpop", "fma", "library", "own", "own_f32", "own_f64"]


@dataclass(frozen=True, slots=True)
class MathFunction:
    """The C text of a mathematical function: a call, by its name for f32 and for f64, of the piece that defines each.

    ``piece32`` and ``piece64`` are "" for functions that need none. A function without an f32 form is computed in f64
    and rounded. ``name`` is the function's name in messages.
    """

    name: str
    f32: str
    f64: str
    piece32: str = ""
    piece64: str = "libm"
    arity: int = 1

    def __call__(self, call: ScalarCall) -> str:
        """The call, in the type that the result is computed in; a :data:`Renderer`."""
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
    """``silo_<stem>_f32`` of the runtime, and the C library's ``<stem>`` for f64; the stem is the name if it is ""."""
    stem = stem or name
    return MathFunction(name, f"silo_{stem}_f32", stem, piece, "libm", arity)


def own(name: str, piece: str, piece64: str = "", *, arity: int = 1) -> MathFunction:
    """``silo_<name>_f32`` and ``silo_<name>_f64`` of the runtime; of one piece if ``piece64`` is ""."""
    return MathFunction(name, f"silo_{name}_f32", f"silo_{name}_f64", piece, piece64 or piece, arity)


def own_f64(name: str, piece: str, *, arity: int = 1) -> MathFunction:
    """``silo_<name>_f64`` of the runtime, for every type."""
    return MathFunction(name, "", f"silo_{name}_f64", "", piece, arity)


def builtin(name: str, *, stem: str = "", arity: int = 1) -> MathFunction:
    """An instruction by the C compiler's ``__builtin_<stem>``; the stem is the name if it is ""."""
    stem = stem or name
    return MathFunction(name, f"__builtin_{stem}f", f"__builtin_{stem}", "", "", arity)


def library(name: str, *, arity: int = 1) -> MathFunction:
    """The C library's ``<name>f`` and ``<name>``."""
    return MathFunction(name, f"{name}f", name, "libm", "libm", arity)


def fma(call: ScalarCall) -> str:
    """One rounding; for types narrower than f32 in f64, where the product is exact."""
    call.pointer_free()
    if call.element in NARROW:
        call.use("narrow", NARROW[call.element])
        operands = ", ".join(f"(double){call.float_operand(index)}" for index in range(3))
        return f"silo_f32_to_{call.element}(silo_f64_to_f32_odd(silo_fma_odd({operands})))"
    call.use("libm")  # a level without the instruction calls the function
    a, b, c = (call.float_operand(index) for index in range(3))
    return f"__builtin_fma{'' if call.element == 'f64' else 'f'}({a}, {b}, {c})"


def classify(test: str) -> Renderer:
    """isnan, isinf, isfinite: an i1 or, for libdevice, an i32."""

    def render(call: ScalarCall) -> str:
        return call.cast(f"{test}({call.float_operand(0)}) != 0")

    return render


def ctpop(call: ScalarCall) -> str:
    """How many bits are set; the result's type may be narrower than the operand's."""
    call.pointer_free()
    call.integer_bits(call.types[0].element)
    wide = call.types[0].element in ("i64", "index")
    return call.cast(f"__builtin_popcount{'ll' if wide else ''}({call.unsigned(0)})")
