"""Conversions of ``fp8e4b15``, which Triton leaves to its backends: NVIDIA's are inline assembly.

The format is float16 without the last 7 bits of the mantissa and with an exponent of four bits: bias 15, no infinities,
no NaN. The results are the same as from Triton's NVIDIA backend: a number too large, and a NaN, becomes 1.75; ties
round away.
"""

from __future__ import annotations

from typing import Any

from silo.kinds.triton.front.adapter.triton_toolchain import module

__all__ = ["convert_fp8e4b15"]

_LARGEST = 0x3F00  # 1.75 in float16


def convert_fp8e4b15(argument: Any, target: Any, rounding: Any = None, _semantic: Any = None) -> Any:  # noqa: ANN401
    """Triton's ``convert_custom_types``: to or from fp8e4b15, through float16. Its rounding is fixed."""
    del rounding
    if argument.type.scalar.is_fp8e4b15():
        return _semantic.cast(_widened(argument, _semantic), target)
    if argument.type.scalar.is_bf16():
        argument = _semantic.cast(argument, module("triton.language").float32)
    if not argument.type.scalar.is_fp16():
        argument = _semantic.cast(argument, module("triton.language").float16, "rtz")
    return _semantic.bitcast(_narrowed(argument, _semantic), target)


def _widened(argument: Any, semantic: Any) -> Any:  # noqa: ANN401
    language = module("triton.language")
    byte = semantic.cast(semantic.bitcast(argument, language.uint8), language.int32)
    sign = semantic.shl(semantic.and_(byte, 0x80), 8)
    size = semantic.shl(semantic.and_(byte, 0x7F), 7)
    return semantic.bitcast(semantic.cast(semantic.or_(sign, size), language.uint16), language.float16)


def _narrowed(half: Any, semantic: Any) -> Any:  # noqa: ANN401
    language = module("triton.language")
    bits = semantic.cast(semantic.bitcast(half, language.uint16), language.int32)
    size = semantic.minimum(semantic.and_(bits, 0x7FFF), semantic.to_tensor(_LARGEST), language.PropagateNan.NONE)
    rounded = semantic.lshr(semantic.add(semantic.shl(size, 1), 0x80, sanitize_overflow=False), 8)
    sign = semantic.and_(semantic.lshr(bits, 8), 0x80)
    return semantic.cast(semantic.or_(rounded, sign), language.uint8)
