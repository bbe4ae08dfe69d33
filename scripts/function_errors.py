"""Measures the largest error of the CPU runtime's f32 functions, in units in the last place, over all 2^32 arguments.

``python scripts/function_errors.py [NAME ...] [--stride N] [--level x86-64-v3] [--no-fma]`` compares every N-th
argument with the C library in f64. The default is every argument, which takes about two minutes for a function.
``docs/cpu.md`` has the figures.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
from pathlib import Path

from silo.compile.c_compiler import find_compiler
from silo.drivers.cpu.levels import LEVELS, host_target
from silo.kinds.triton.cpu import runtime
from silo.kinds.triton.cpu.object_build import build, compile_flags
from silo.kinds.triton.front.operations.nvidia.libdevice import FUNCTIONS

ALL = [
    "exp",
    "exp2",
    "exp10",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "sinpi",
    "cospi",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "cbrt",
    "rsqrt",
    "erf",
    "erfc",
]
# Expressions in f64 for functions that the C library lacks; the argument is x.
REFERENCE = {
    "exp10": "pow(10.0, x)",
    "rsqrt": "1.0 / __builtin_sqrt(x)",
    "sinpi": "silo_sinpi_f64(x)",
    "cospi": "silo_cospi_f64(x)",
}
CHECK = """
static __attribute__((noinline)) void ours(const float *x, float *y) {
#pragma omp simd
    for (int i = 0; i < 4096; i++) y[i] = OURS(x[i]);
}
/* The largest error and where; failed counts wrong special values, and failed_at is the last of them. */
double worst(uint32_t stride, uint64_t count, uint32_t *at, uint64_t *failed, uint32_t *failed_at) {
    static float in[4096], out[4096];
    double largest = 0.0;
    *failed = 0;
    for (uint64_t start = 0; start < count; start += 4096) {
        for (uint32_t i = 0; i < 4096; i++) in[i] = silo_f32_of_bits((uint32_t)(start + i) * stride);
        ours(in, out);
        for (int i = 0; i < 4096; i++) {
            double x = (double)in[i], exact = REFERENCE, got = (double)out[i];
            float near = (float)exact;
            int right = exact != exact ? got != got : got == got;
            if (near == 0.0f || __builtin_fabsf(near) == __builtin_inff()) /* or a neighbour, where it rounds */
                right = right && (out[i] == near || (exact != 0.0 && exact - exact == 0.0)) &&
                        __builtin_signbit(out[i]) == __builtin_signbit(near);
            if (!right) {
                *failed += 1;
                *failed_at = silo_bits_f32(in[i]);
            } else if (exact - exact == 0.0 && got - got == 0.0) {
                uint32_t exponent = silo_bits_f32(__builtin_fabsf(near)) >> 23;
                exponent = exponent < 1 ? 1 : exponent > 254 ? 254 : exponent;
                double unit = silo_f64_of_bits((uint64_t)(exponent + 873) << 52);
                double error = __builtin_fabs(got - exact) / unit;
                if (error > largest) {
                    largest = error;
                    *at = silo_bits_f32(in[i]);
                }
            }
        }
    }
    return largest;
}
"""


def main() -> int:
    """Print one line for each function; return 1 if the result for a special value is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", default=ALL)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--level", choices=sorted(LEVELS), default=host_target().arch)
    parser.add_argument("--no-fma", action="store_true")
    options = parser.parse_args()
    wrong = 0
    for name in options.names:
        largest, at, failed, failed_at = measure(name, options.level, options.stride, contract=not options.no_fma)
        note = f"; {failed} special values are wrong, the last at {failed_at.hex()}" if failed else ""
        sys.stdout.write(f"{name:6} {largest:.4f} at {at.hex()}{note}\n")
        sys.stdout.flush()
        wrong += failed
    return 1 if wrong else 0


def measure(name: str, level: str, stride: int, *, contract: bool) -> tuple[float, float, int, float]:
    """Return the largest error, its argument, how many special values have wrong results, and the last of these."""
    function = FUNCTIONS[name]
    text = CHECK.replace("OURS", function.f32).replace("REFERENCE", REFERENCE.get(name, f"{name}(x)"))
    pieces = {piece for piece in (function.piece32, "pi", "libm") if piece}
    flags = compile_flags(LEVELS[level], contract=contract, libm=True)
    built = build(runtime.text(pieces, LEVELS[level].vector_bits) + text, flags, find_compiler(None))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "check.so")
        path.write_bytes(built.data)
        worst = ctypes.CDLL(str(path)).worst
    worst.restype = ctypes.c_double
    at, failed, failed_at = ctypes.c_uint32(), ctypes.c_uint64(), ctypes.c_uint32()
    largest = worst(
        ctypes.c_uint32(stride),
        ctypes.c_uint64(-(-(1 << 32) // stride)),
        ctypes.byref(at),
        ctypes.byref(failed),
        ctypes.byref(failed_at),
    )
    return largest, _float(at.value), failed.value, _float(failed_at.value)


def _float(bits: int) -> float:
    return ctypes.c_float.from_buffer(ctypes.c_uint32(bits)).value


if __name__ == "__main__":
    sys.exit(main())
