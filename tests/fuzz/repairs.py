"""What Triton's interpreter does differently from the language, put right so that it can be compared bit by bit.

Each function here names one fault or one open case. Open cases are defined as docs/cpu.md defines them.
"""
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import ctypes
import ctypes.util
from dataclasses import replace
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter

from .functions import FUNCTIONS, Functions
from .kinds import from_float64, to_float64

__all__ = ["repair"]

_Builder = interpreter.InterpreterBuilder
_Handle = interpreter.TensorHandle
_TINY = {tl.float8e4nv: "e4m3", tl.float8e5: "e5m2"}
_LIBM = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")
_LIBM.fma.restype, _LIBM.fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3
_LIBM.fmaf.restype, _LIBM.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3


def repair(functions: Functions) -> None:
    """Change the interpreter of this process."""
    _overflow_is_no_error()
    _bf16_is_computed_in_f32()
    _casts()
    _divisions_and_shifts()
    _minimum_and_maximum()
    _fused_multiply_add()
    _approximations(functions)
    _dots()
    _called_functions_patch_once()
    _reductions()
    _atomics()
    _older_faults()


def _atomics() -> None:
    """The interpreter's atomics read the memory behind an array as if its elements lay one after the other."""
    for name in ("create_atomic_rmw", "create_atomic_cas"):
        setattr(_Builder, name, _with_dense_arrays(getattr(_Builder, name)))


def _with_dense_arrays(inner: Any) -> Any:
    def atomic(self: Any, *arguments: Any) -> Any:
        dense = (
            _Handle(np.ascontiguousarray(one.data).reshape(one.data.shape), one.dtype)
            if isinstance(one, _Handle)
            else one
            for one in arguments
        )
        return inner(self, *dense)

    return atomic


def _dense(value: Any) -> Any:
    if not isinstance(value, _Handle):
        return value
    return _Handle(np.ascontiguousarray(value.data).reshape(value.data.shape), value.dtype)


def _overflow_is_no_error() -> None:
    """The interpreter ends a kernel whose integers wrap round, as a debug build does. They wrap."""
    for builder in {
        id(b): b for b in (interpreter.interpreter_builder, interpreter.interpreter_semantic.builder)
    }.values():
        builder.options = replace(builder.options, sanitize_overflow=False)


def _is_bf16(*handles: Any) -> bool:
    return any(handle.dtype.scalar == tl.bfloat16 for handle in handles)


def _wide(handle: Any) -> np.ndarray:
    if handle.dtype.scalar == tl.bfloat16:
        return (handle.data.astype(np.uint32) << 16).view(np.float32)
    if handle.dtype.scalar in _TINY:
        return to_float64(handle.data, _TINY[handle.dtype.scalar]).astype(np.float32)
    return handle.data


def _bf16_is_computed_in_f32() -> None:
    """The interpreter keeps bfloat16 in integers and computes with those integers."""

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        if not _is_bf16(lhs, rhs):
            data = op(lhs.data, rhs.data)
            kind = lhs.dtype.scalar
            if lhs.data.dtype == np.bool_ and data.dtype == np.bool_ and op in _BOOL_ARITHMETIC:
                data = op(lhs.data.astype(np.int8), rhs.data.astype(np.int8)) & 1 != 0
            if data.dtype == np.bool_:  # a comparison: the interpreter gives it the type of its operands
                kind = tl.int1
            if not interpreter._validate_np_data_size(data, kind):
                data = data.astype(interpreter._get_np_dtype(kind))
            return _Handle(data, kind)
        data = op(_wide(lhs), _wide(rhs))
        if data.dtype == np.bool_:
            return _Handle(data, tl.int1)
        return _Handle(from_float64(data.astype(np.float64), "bf16"), tl.bfloat16)

    def unary_op(self: Any, arg: Any, op: Any) -> Any:
        if not _is_bf16(arg):
            return _Handle(op(arg.data), arg.dtype.scalar)
        return _Handle(from_float64(op(_wide(arg)).astype(np.float64), "bf16"), tl.bfloat16)

    _Builder.binary_op = binary_op
    _Builder.unary_op = unary_op
    _Builder.create_fneg = lambda self, arg: unary_op(self, arg, np.negative)
    # int1 is one bit that wraps; numpy's booleans saturate and cannot be subtracted.
    for name, op in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
        setattr(_Builder, f"create_{name}", lambda self, lhs, rhs, op=op: _wrapping(self, lhs, rhs, op))
    # The semantic layer negates a float by subtracting it from a zero of its type; that zero is +0 in the interpreter
    # of some versions, which loses the sign of -0.


_BOOL_ARITHMETIC = {np.multiply}


def _wrapping(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
    if lhs.data.dtype == np.bool_:
        return _Handle((op(lhs.data.astype(np.int8), rhs.data.astype(np.int8)) & 1) != 0, lhs.dtype.scalar)
    return self.binary_op(lhs, rhs, op)


def _casts() -> None:
    """bfloat16 is rounded to nearest even (the interpreter cuts it off); floats out of an integer's range give its
    nearest integer, NaN 0 (numpy leaves it open); integers become halves through float32, as on a GPU; 8-bit floats are
    rounded to nearest even (the interpreter rounds halves up), and what is too large becomes the largest of them.
    """

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if source == target:
            return _Handle(src.data, target)
        return _Handle(_converted(src, target), target)

    for name in ("si_to_fp", "ui_to_fp", "fp_ext", "fp_trunc", "fp_to_si", "fp_to_ui"):
        setattr(_Builder, f"create_{name}", lambda self, src, dst: self.cast_impl(src, dst))
    _Builder.create_int_cast = lambda self, src, dst, is_signed: self.cast_impl(src, dst)
    _Builder.cast_impl = cast_impl
    general = _Builder.create_fp_to_fp

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding: Any) -> Any:
        names = {src.dtype.scalar, dst_type.scalar}
        if rounding in (None, ir.ROUNDING_MODE.RTNE) and names <= {
            tl.float16,
            tl.bfloat16,
            tl.float32,
            tl.float64,
            *_TINY,
        }:
            return self.cast_impl(src, dst_type)
        return general(self, src, dst_type, rounding)

    _Builder.create_fp_to_fp = create_fp_to_fp


def _converted(src: Any, target: Any) -> np.ndarray:
    data, storage = _wide(src), interpreter._get_np_dtype(target)
    if src.dtype.scalar.is_floating() and target.is_int() and target != tl.int1:
        return _saturated(data.astype(np.float64), storage)
    if target in _TINY:
        return from_float64(data.astype(np.float64), _TINY[target])
    if target == tl.bfloat16:
        if src.dtype.scalar.is_int():
            data = data.astype(np.float32)
        return from_float64(data.astype(np.float64), "bf16")
    if target == tl.float16 and src.dtype.scalar.is_int():
        data = data.astype(np.float32)
    return data.astype(storage)


def _saturated(values: np.ndarray, storage: np.dtype) -> np.ndarray:
    info = np.iinfo(storage)
    whole = np.where(np.isnan(values), 0.0, np.trunc(values))
    inside = (whole > float(info.min)) & (whole < float(info.max))
    result = np.where(inside, whole, 0.0).astype(storage)
    result = np.where(whole >= float(info.max), info.max, result).astype(storage)
    return np.where(whole <= float(info.min), info.min, result).astype(storage)


def _divisions_and_shifts() -> None:
    """Division by zero, the least integer by -1, and shifts by the width or more, as docs/cpu.md defines them."""

    def divided(self: Any, lhs: Any, rhs: Any) -> Any:
        return _Handle(_quotient(lhs.data, rhs.data), lhs.dtype.scalar)

    def remainder(self: Any, lhs: Any, rhs: Any) -> Any:
        a, b = np.broadcast_arrays(lhs.data, rhs.data)
        safe = _safe_divisor(a, b)
        return _Handle(np.where(b == 0, a, np.where(safe != b, 0, np.fmod(a, safe))).astype(a.dtype), lhs.dtype.scalar)

    _Builder.create_idiv = _Builder.create_sdiv = _Builder.create_udiv = divided
    _Builder.create_srem = _Builder.create_urem = remainder

    def shifted(self: Any, lhs: Any, rhs: Any, op: Any, *, arithmetic: bool = False) -> Any:
        a, count = np.broadcast_arrays(lhs.data, rhs.data)
        bits = a.dtype.itemsize * 8
        unsigned = np.dtype(f"uint{bits}")
        places = count.view(unsigned) if count.dtype.itemsize * 8 == bits else count.astype(unsigned)
        kept = np.minimum(places, bits - 1).astype(unsigned)
        if arithmetic:
            signed = np.dtype(f"int{bits}")
            return _Handle((a.view(signed) >> kept.view(signed)).view(a.dtype), lhs.dtype.scalar)
        data = np.where(places >= bits, 0, op(a.view(unsigned), kept)).astype(unsigned)
        return _Handle(data.view(a.dtype), lhs.dtype.scalar)

    _Builder.create_shl = lambda self, lhs, rhs: shifted(self, lhs, rhs, np.left_shift)
    _Builder.create_lshr = lambda self, lhs, rhs: shifted(self, lhs, rhs, np.right_shift)
    _Builder.create_ashr = lambda self, lhs, rhs: shifted(self, lhs, rhs, np.right_shift, arithmetic=True)


def _safe_divisor(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    safe = np.where(b == 0, 1, b)
    if np.issubdtype(a.dtype, np.signedinteger):
        safe = np.where((b == -1) & (a == np.iinfo(a.dtype).min), 1, safe)
    return safe.astype(b.dtype)


def _quotient(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    a, b = np.broadcast_arrays(left, right)
    safe = _safe_divisor(a, b)
    # Toward zero: numpy's own division rounds down.
    quotient = (a - np.fmod(a, safe)) // safe
    ones = np.array(-1).astype(a.dtype)
    return np.where(b == 0, ones, np.where(safe != b, a, quotient)).astype(a.dtype)


def _minimum_and_maximum() -> None:
    """The other operand where one is NaN (3.6 gives NaN), or NaN where that is asked for; -0 is below 0."""

    def chosen(self: Any, lhs: Any, rhs: Any, *, larger: bool, nan: bool) -> Any:
        a, b = np.broadcast_arrays(_wide(lhs), _wide(rhs))
        take = (a > b) | ((a == b) & ~np.signbit(a)) if larger else (a < b) | ((a == b) & np.signbit(a))
        data = np.where(take, a, b)
        data = np.where(np.isnan(a), a if nan else b, np.where(np.isnan(b), b if nan else a, data))
        if _is_bf16(lhs):
            data = from_float64(data.astype(np.float64), "bf16")
        return _Handle(data.astype(lhs.data.dtype), lhs.dtype.scalar)

    for name, larger, nan in (
        ("maxnumf", True, False),
        ("minnumf", False, False),
        ("maximumf", True, True),
        ("minimumf", False, True),
    ):
        setattr(
            _Builder,
            f"create_{name}",
            lambda self, lhs, rhs, larger=larger, nan=nan: chosen(self, lhs, rhs, larger=larger, nan=nan),
        )

    def create_clampf(self: Any, x: Any, low: Any, high: Any, propagate: Any) -> Any:
        nan = propagate != ir.PROPAGATE_NAN.NONE
        return chosen(self, chosen(self, x, low, larger=True, nan=nan), high, larger=False, nan=nan)

    _Builder.create_clampf = create_clampf


def _fused_multiply_add() -> None:
    """One rounding (3.6 rounds twice)."""

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        arrays = np.broadcast_arrays(_wide(x), _wide(y), _wide(z))
        if z.data.dtype == np.float64 or z.dtype.scalar == tl.float32:
            function = _LIBM.fma if z.data.dtype == np.float64 else _LIBM.fmaf
            flat = [function(float(a), float(b), float(c)) for a, b, c in zip(*(q.flat for q in arrays), strict=True)]
            return _Handle(np.array(flat).astype(z.data.dtype).reshape(arrays[0].shape), z.dtype.scalar)
        a, b, c = (array.astype(np.float64) for array in arrays)
        total = a * b + c
        data = from_float64(total, "bf16") if _is_bf16(z) else total.astype(np.float16)
        return _Handle(data, z.dtype.scalar)

    _Builder.create_fma = create_fma


def _approximations(functions: Functions) -> None:
    """Functions that are only nearly right are those of the code under test; see :mod:`.functions`."""
    for stem in FUNCTIONS:

        def call(self: Any, arg: Any, stem: str = stem) -> Any:
            return _Handle(functions.call(stem, arg.data), arg.dtype.scalar)

        setattr(_Builder, f"create_{stem}", call)


def _dots() -> None:
    """bfloat16 operands are multiplied as floats (the interpreter multiplies their bits); int8 by int8 is int32."""

    def create_dot(self: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
        total = d.data.dtype
        data = np.matmul(_wide(a).astype(total), _wide(b).astype(total)) + d.data
        return _Handle(data.astype(total), d.dtype.scalar)

    _Builder.create_dot = create_dot


def _reductions() -> None:
    """Sums, minima, maxima and running sums of bfloat16 (the interpreter takes those of the bits), and of unsigned
    integers, which keep their type. Sums of bits by numpy: element by element, a sort took half of all its time.
    """
    reduce_apply, scan_apply = interpreter.ReduceOps.apply_impl, interpreter.ScanOps.apply_impl

    def widened(apply: Any, self: Any, given: Any) -> Any:
        kinds = [value.dtype.scalar for value in given]
        if tl.bfloat16 not in kinds:
            return apply(self, given)
        wide = tuple(
            value if kind != tl.bfloat16 else self.to_tensor(_wide(value.handle), tl.float32)
            for value, kind in zip(given, kinds, strict=True)
        )
        found = apply(self, wide)
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        narrow = [
            self.to_tensor(
                from_float64(value.handle.data.astype(np.float64), "bf16").reshape(value.shape or (1,)), tl.bfloat16
            )
            if kind == tl.bfloat16 and value.dtype.scalar == tl.float32
            else value
            for value, kind in zip(found, kinds, strict=False)
        ]
        return [_scalar(value, wanted) for value, wanted in zip(narrow, found, strict=True)]

    bitwise = {tl.standard._xor_combine: np.bitwise_xor, tl.standard._or_combine: np.bitwise_or}

    def reduced(self: Any, given: Any) -> Any:
        function = bitwise.get(self.combine_fn)
        if function is None:
            return widened(reduce_apply, self, given)
        (value,) = given
        return [self.to_tensor(function.reduce(value.handle.data, self.axis, keepdims=self.keep_dims), value.dtype)]

    interpreter.ReduceOps.apply_impl = reduced
    interpreter.ScanOps.apply_impl = lambda self, given: widened(scan_apply, self, given)


def _scalar(value: Any, like: Any) -> Any:
    if like.type.is_block():
        return value
    return tl.core.tensor(_Handle(value.handle.data.reshape(1), value.handle.dtype), value.dtype)


def _called_functions_patch_once() -> None:
    """The language is patched for a launch, and again, all of it, at every call of a function in the kernel: a third
    of the time of kernels that sort. Here it is patched once a launch for each set of modules that functions see.
    """
    patch = interpreter._patch_lang
    seen: set[tuple[bool, ...]] = set()

    def once(function: Any) -> Any:
        visible = list(function.__globals__.values())
        modules = tuple(any(value is module for value in visible) for module in (tl, tl.core))
        if modules in seen:
            return interpreter._LangPatchScope()
        is_launch = not seen
        seen.add(modules)
        scope = patch(function)
        if is_launch:
            restore = scope.restore

            def ended() -> None:
                seen.clear()
                restore()

            scope.restore = ended
        return scope

    interpreter._patch_lang = once


def _older_faults() -> None:
    """umulhi of signed integers, histograms of other than int32, constants of bfloat16, loops up to a tensor, and
    integers that numpy finds out of range: wrong or missing in 3.6.
    """

    def create_umulhi(self: Any, lhs: Any, rhs: Any) -> Any:
        kind = lhs.data.dtype
        bits = kind.itemsize * 8
        a, b = np.broadcast_arrays(lhs.data, rhs.data)
        mask = (1 << bits) - 1
        flat = [((int(x) & mask) * (int(y) & mask)) >> bits for x, y in zip(a.flat, b.flat, strict=True)]
        data = np.array(flat, object).astype(np.uint64).astype(f"uint{bits}").view(kind).reshape(a.shape)
        return _Handle(data, lhs.dtype.scalar)

    def create_histogram(self: Any, data: Any, bins: int, mask: Any) -> Any:
        keep = np.ones_like(data.data, bool) if mask is None else np.broadcast_to(mask.data, data.data.shape)
        keep = keep & (data.data >= 0) & (data.data < bins)
        counts = np.bincount(data.data[keep].astype(np.int64), minlength=bins)
        return _Handle(counts.astype(np.int32), tl.int32)

    def to_tensor(self: Any, ret: Any, dtype: Any) -> Any:
        data = np.asarray(ret)
        wrapped = (
            data.astype(interpreter._get_np_dtype(dtype))
            if data.shape
            else np.array([ret]).astype(interpreter._get_np_dtype(dtype))
        )
        kind = tl.block_type(dtype, list(data.shape)) if data.shape else dtype
        return tl.core.tensor(_Handle(wrapped, dtype.scalar), kind)

    def get_all_ones_value(self: Any, type_: Any) -> Any:
        return _Handle(np.full(1, -1, np.int64).astype(interpreter._get_np_dtype(type_)), type_.scalar)

    interpreter.ReduceScanOpInterface.to_tensor = to_tensor
    _Builder.get_all_ones_value = get_all_ones_value
    patch = interpreter._patch_lang_tensor

    def with_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))

    interpreter._patch_lang_tensor = with_index
    _Builder.get_bf16 = lambda self, value: _Handle(from_float64(np.array([value], np.float64), "bf16"), tl.bfloat16)
    _Builder.create_umulhi = create_umulhi
    _Builder.create_histogram = create_histogram
