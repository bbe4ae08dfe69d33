"""The mathematical functions of the code under test as a library of their own, for the interpreter to call.

tests/unit/kinds/triton/cpu/test_cpu_math.py measures how far off they are. Here the interpreter uses the same
functions, so
that everything else can be compared bit by bit.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from silo.compile.c_compiler import find_compiler
from silo.drivers.cpu.levels import host_target, level_of
from silo.kinds.triton.cpu import ops, runtime
from silo.kinds.triton.cpu.object_build import build, compile_flags
from silo.kinds.triton.front.ssa import Operation, Type, Value

__all__ = ["FUNCTIONS", "Functions", "build_functions"]

FUNCTIONS = {
    "exp": "math.exp",
    "exp2": "math.exp2",
    "log": "math.log",
    "log2": "math.log2",
    "sin": "math.sin",
    "cos": "math.cos",
    "rsqrt": "math.rsqrt",
    "erf": "math.erf",
}
_TYPES = {"f32": "float", "f64": "double"}


def build_functions(path: Path) -> None:
    """Write the library to ``path``."""
    pieces: set[str] = set()
    texts: list[str] = []
    for stem, name in FUNCTIONS.items():
        for element, ctype in _TYPES.items():
            operation = Operation(name, [Value("x", Type(element))], [], {})
            operation.results.append(Value("r", Type(element), operation))
            pieces |= ops.runtime_pieces(operation)
            text = ops.scalar_expression(operation, ["x[i]"], [Type(element)], Type(element))
            texts.append(
                f"void {stem}_{element}({ctype} const *x, {ctype} *out, int64_t n)"
                f" {{ for (int64_t i = 0; i < n; i++) out[i] = {text}; }}\n"
            )
    level = level_of(host_target())
    source = runtime.text(pieces, level.vector_bits) + "".join(texts)
    path.write_bytes(build(source, compile_flags(level, contract=False, libm=True), find_compiler(None)).data)


class Functions:
    """The library, callable on arrays of float32 and float64."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def call(self, stem: str, values: np.ndarray) -> np.ndarray:
        """One function of every element."""
        source = np.ascontiguousarray(values)
        out = np.empty_like(source)
        function = getattr(self._library, f"{stem}_{'f64' if source.dtype == np.float64 else 'f32'}")
        function(ctypes.c_void_p(source.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_int64(source.size))
        return out
