"""Inline assembly: the PTX instructions that kernels carry for their speed, one at a time, as C expressions.

Conversions to e2m1, which take several instructions, are read by ``ptx_fp4``. What is approximate on a GPU is computed
as exactly as the same function elsewhere, and nothing is flushed to zero. Any other text is refused: it may mean
anything. It is imported with the first kernel that holds an instruction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from silo.sources.triton.operations.cpu.c_arith import absf, float_binary, float_call, negf
from silo.sources.triton.operations.cpu.c_call import Call, RefusedError, Renderer
from silo.sources.triton.operations.cpu.c_casts import bitcast, float_cast
from silo.sources.triton.operations.cpu.c_math import fma
from silo.sources.triton.operations.cpu.c_types import HALVES
from silo.sources.triton.operations.nvidia.libdevice import LIBDEVICE, function
from silo.sources.triton.operations.nvidia.ptx_fp4 import FP4, read_fp4
from silo.sources.triton.ssa import Type

__all__ = ["INLINE", "inline_renderer"]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INSTRUCTION = re.compile(r"([a-z][\w.]*)\s+((?:\$\d+\s*,\s*)*\$\d+)\s*;?", re.ASCII)
_CONSTRAINT = re.compile(r"[rfhldb]")
# How PTX and libdevice call the ways to round.
_ROUNDINGS = {"rn": "rn", "rz": "rz", "rm": "rd", "rp": "ru"}
# The elements that an instruction of each type takes; bits are whatever has as many.
_TYPES = {
    "f64": "f64",
    "f32": "f32",
    "f16": "f16",
    "bf16": "bf16",
    "f16x2": "f16",
    "bf16x2": "bf16",
    **{f"{kind}{bits}": f"i{bits}" for kind in "bsu" for bits in (16, 32, 64)},
}
# What Triton before 3.9 writes for waits between launches, which follow one another here; its result means nothing.
_WAITS = frozenset({"griddepcontrol.wait;", "griddepcontrol.launch_dependents;"})
_PAIRS = frozenset({"f16x2", "bf16x2"})


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: the type it works on (and the one it gives, where that differs), and what it computes."""

    kind: str
    render: Renderer
    gives: str = ""


def _reciprocal(call: Call) -> str:
    one = "1.0" if call.element == "f64" else "1.0f"
    return call.float_result(f"({one} / {call.float_operand(0)})")


def _same(call: Call) -> str:
    return call.operands[0]


def _tf32(how: str) -> Renderer:
    def render(call: Call) -> str:
        call.use("round")
        return f"silo_round_tf32_{how}({call.operands[0]})"

    return render


def _directed(name: str, rounding: str, kind: str) -> Renderer | None:
    """Arithmetic that is never fused with its neighbours, as PTX says of what names its rounding."""
    if kind in HALVES:
        if rounding != "rn":
            return None
        sign = {"add": "+", "sub": "-", "mul": "*"}.get(name)
        return None if sign is None else float_binary(sign)
    letter = "f" if kind == "f32" else "d"
    return LIBDEVICE.get(f"__nv_{letter}{name}_{_ROUNDINGS[rounding]}")


def _table() -> dict[str, Instruction]:
    """Every instruction by its name, without ``.ftz``, which changes nothing here."""
    found: dict[str, Instruction] = {}
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
        found |= {f"{name}.approx.{kind}": Instruction(kind, render) for kind in kinds.split()}
    found |= {f"rcp.approx.{kind}": Instruction(kind, _reciprocal) for kind in ("f32", "f64")}
    found |= {f"div.{how}.f32": Instruction("f32", float_binary("/")) for how in ("approx", "full")}
    for kind in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
        element = _TYPES[kind]
        found[f"neg.{kind}"] = Instruction(kind, negf)
        found[f"abs.{kind}"] = Instruction(kind, absf)
        for name in ("min", "max"):
            found[f"{name}.{kind}"] = Instruction(kind, float_call(f"{name}num", "minmax"))
            found[f"{name}.NaN.{kind}"] = Instruction(kind, float_call(f"{name}imum", "minmax"))
        for rounding, libdevice in _ROUNDINGS.items():
            for name in ("add", "sub", "mul", "div", "rcp", "sqrt"):
                render = _directed(name, rounding, element)
                if render is not None:
                    found[f"{name}.{rounding}.{kind}"] = Instruction(kind, render)
                    if rounding == "rn" and name in {"add", "sub", "mul"}:
                        found[f"{name}.{kind}"] = Instruction(kind, render)
            fused = fma if rounding == "rn" else LIBDEVICE.get(f"__nv_fmaf_{libdevice}") if kind == "f32" else None
            if fused is not None:
                found[f"fma.{rounding}.{kind}"] = Instruction(kind, fused)
    found |= {f"mov.{kind}": Instruction(kind, _same) for kind in _TYPES if kind not in {"f16", "bf16", *_PAIRS}}
    found |= {f"cvt.{how}.tf32.f32": Instruction("f32", _tf32(how)) for how in ("rna", "rn")}
    for half in sorted(HALVES):
        found[f"cvt.rn.{half}.f32"] = Instruction("f32", float_cast, half)
        found[f"cvt.f32.{half}"] = Instruction(half, float_cast, "f32")
    return found


INLINE: Mapping[str, Instruction] = MappingProxyType(_table())


def inline_renderer(call: Call) -> str:
    """``tt.elementwise_inline_asm`` whose text is one instruction of ``INLINE``, or conversions to e2m1."""
    call.pointer_free()
    if not call.operands and _plain(call) in _WAITS:
        return "0"
    if FP4 in _plain(call):
        return _fp4(call)
    name, order = _parsed(call)
    instruction = INLINE.get(name.replace(".ftz", ""))
    if instruction is None:
        raise _refused(call, f"{name} is not an instruction that is known here")
    pack = call.attribute("packed_element", 1)
    if pack != 1 + (instruction.kind in _PAIRS):
        raise _refused(call, f"{name} takes {1 + (instruction.kind in _PAIRS)} elements at a time, not {pack}")
    taken, given = _TYPES[instruction.kind], _TYPES[instruction.gives or instruction.kind]
    texts = [_as(call, call.operands[place], call.types[place].element, taken) for place in order]
    inner = Call(call.operation, texts, [Type(taken)] * len(texts), Type(given), call.pieces)
    try:
        text = instruction.render(inner)
    except (RefusedError, IndexError) as error:
        raise _refused(call, f"{name} does not take these operands: {error}") from None
    return _as(call, f"({text})", given, call.element)


def _fp4(call: Call) -> str:
    """Pairs of e2m1 as bytes: of one element each with ``pack=4``, else together in one integer."""
    pack = call.attribute("packed_element", 1)
    found = read_fp4(_plain(call), str(call.operation.attributes.get("constraints")), len(call.operands), pack)
    if isinstance(found, str):
        raise _refused(call, found)
    if call.element not in {"i8", "i16", "i32"} or (pack > 1 and call.element != "i8"):
        raise _refused(call, f"it gives {'bytes' if pack > 1 else 'an integer'}, not {call.element}")
    call.use("fp4")
    taken = [_as(call, text, one.element, "f32") for text, one in zip(call.operands, call.types, strict=True)]
    parts = [f"silo_f32_to_e2m1x2({taken[upper]}, {taken[lower]})" for upper, lower in found.pairs]
    together = " | ".join(f"{part} << {8 * place}" if place else part for place, part in enumerate(parts))
    return call.cast(f"({together})")


def _plain(call: Call) -> str:
    """The text without comments and braces round it."""
    plain = _COMMENT.sub(" ", str(call.operation.attributes.get("asm_string"))).strip()
    return plain[1:-1].strip() if plain.startswith("{") and plain.endswith("}") else plain


def _parsed(call: Call) -> tuple[str, list[int]]:
    """The name of the only instruction, and which operand each of its own is, in its order."""
    constraints = str(call.operation.attributes.get("constraints"))
    match = _INSTRUCTION.fullmatch(_plain(call))
    if match is None:
        raise _refused(call, "it is not a single instruction over registers")
    first, *others = (int(number) for number in re.findall(r"\d+", match.group(2)))
    inputs = range(1, len(call.operands) + 1)
    output, *taken = (word.strip() for word in constraints.split(","))
    fits = (
        len(taken) == len(inputs) and output.startswith("=") and all(map(_CONSTRAINT.fullmatch, [output[1:], *taken]))
    )
    if first != 0 or sorted(others) != [*inputs] or not fits:
        raise _refused(call, "it must write $0 and read each operand once")
    return match.group(1), [number - 1 for number in others]


def _as(call: Call, text: str, source: str, target: str) -> str:
    """The bits of a value as another type of the same width."""
    if source == target:
        return text
    try:
        return bitcast(Call(call.operation, [text], [Type(source)], Type(target), call.pieces))
    except RefusedError:
        raise _refused(call, f"it takes or gives {target} where the kernel has {source}") from None


def _refused(call: Call, reason: str) -> RefusedError:
    attributes = call.operation.attributes
    text = " ".join(str(attributes.get("asm_string")).split())
    return RefusedError(
        "inline assembly is for one kind of GPU; of PTX the CPU knows the instructions that docs/cpu.md lists;"
        f" {reason}: {text!r}, constraints {attributes.get('constraints')!r}; write it with Triton's own operations"
    )
