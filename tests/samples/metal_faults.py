"""Metal kernels with one fault each, for checks: four of each kind. The faulty line ends with ``// here``."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

__all__ = ["FAULTS", "MetalFault"]


def _floats(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape) / 8


@dataclass(frozen=True)
class MetalFault:
    """A kernel with a fault, its launch, and the expected finding.

    ``kind`` groups faults; ``error`` is the kind of the finding, ``argument`` the argument that it names (None: none).
    ``arrays`` maps parameters to shapes or arrays, ``scalars`` maps them to values.
    """

    kind: str
    name: str
    text: str
    error: str
    argument: str | None
    arrays: dict[str, object]
    scalars: dict[str, int] = field(default_factory=dict)
    group: tuple[int, int, int] = (64, 1, 1)
    grid: tuple[int, int, int] = (1, 1, 1)
    uninitialized: tuple[str, ...] = ()
    places: bool = True

    @property
    def lines(self) -> set[int]:
        """The numbers of the lines that the finding may name."""
        return {number for number, line in enumerate(self.text.splitlines(), 1) if line.endswith("// here")}

    def made(self) -> dict[str, np.ndarray]:
        """Return new arrays for a launch."""
        return {
            name: one.copy() if isinstance(one, np.ndarray) else _floats(*one)  # type: ignore[misc]
            for name, one in self.arrays.items()
        }


def _kernel(parameters: str, body: str, before: str = "") -> str:
    return (
        f"#include <metal_stdlib>\nusing namespace metal;\n{before}"
        f"kernel void k({parameters},\n"
        "    uint t [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]],\n"
        f"    uint lane [[thread_index_in_simdgroup]]) {{\n{body}}}\n"
    )


_XO = "device const float* x [[buffer(0)]], device float* o [[buffer(1)]]"
_BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
_ONE = {"x": (64,), "o": (64,)}


_RACES = [
    MetalFault(
        "race in threadgroup memory",
        "no barrier before a neighbour is read",
        _kernel(_XO, "  threadgroup float s[64];\n  s[t] = x[t]; // here\n  o[t] = s[(t + 1) % 64]; // here\n"),
        "race",
        "s",
        _ONE,
    ),
    MetalFault(
        "race in threadgroup memory",
        "a reduction without its barrier",
        _kernel(
            _XO,
            f"  threadgroup float s[64];\n  s[t] = x[t];\n  {_BARRIER}\n"
            "  for (uint k = 32; k > 0; k >>= 1)\n    if (t < k) s[t] += s[t + k]; // here\n"
            f"  {_BARRIER}\n  o[t] = s[0];\n",
        ),
        "race",
        "s",
        _ONE,
    ),
    MetalFault(
        "race in threadgroup memory",
        "a barrier of another memory",
        _kernel(
            _XO,
            "  threadgroup float s[64];\n  s[t] = x[t]; // here\n  threadgroup_barrier(mem_flags::mem_device);\n"
            "  o[t] = s[63 - t]; // here\n",
        ),
        "race",
        "s",
        _ONE,
    ),
    MetalFault(
        "race in threadgroup memory",
        "all threads write one place",
        _kernel(_XO, f"  threadgroup float s[1];\n  s[0] = x[t]; // here\n  {_BARRIER}\n  o[t] = s[0];\n"),
        "race",
        "s",
        _ONE,
    ),
    MetalFault(
        "race in device memory",
        "threadgroups add up without atomics",
        _kernel(_XO, "  if (t == 0) o[0] += x[g]; // here\n"),
        "race",
        "o",
        _ONE,
        grid=(4, 1, 1),
    ),
    MetalFault(
        "race in device memory",
        "a histogram without atomics",
        _kernel(_XO, "  o[uint(x[t]) % 4] += 1.0; // here\n"),
        "race",
        "o",
        _ONE,
    ),
    MetalFault(
        "race in device memory",
        "in place, and a neighbour is read",
        _kernel("device float* o [[buffer(0)]]", "  if (t > 0) o[t] = o[t - 1]; // here\n"),
        "race",
        "o",
        {"o": (64,)},
    ),
    MetalFault(
        "race in device memory",
        "tiles that overlap",
        _kernel(_XO, "  o[g * 60 + t] = x[t]; // here\n"),
        "race",
        "o",
        {"x": (64,), "o": (256,)},
        grid=(3, 1, 1),
    ),
]
_BOUNDS = [
    MetalFault(
        "bounds of device memory",
        "no guard at the end",
        _kernel(_XO, "  o[g * 64 + t] = x[g * 64 + t]; // here\n"),
        "out of bounds",
        "x",
        {"x": (100,), "o": (128,)},
        grid=(2, 1, 1),
    ),
    MetalFault(
        "bounds of device memory",
        "one too many",
        _kernel(
            f"{_XO}, constant uint& n [[buffer(2)]]",
            "  for (uint i = t; i <= n; i += 64)\n    o[i] = 1.0; // here\n",
        ),
        "out of bounds",
        "o",
        {"x": (100,), "o": (100,)},
        {"n": 100},
    ),
    MetalFault(
        "bounds of device memory",
        "before the start",
        _kernel(_XO, "  int i = int(t) - 1;\n  o[t] = x[i]; // here\n"),
        "out of bounds",
        "x",
        _ONE,
    ),
    MetalFault(
        "bounds of device memory",
        "four at a time beyond the end",
        _kernel(
            _XO,
            "  device const float4* v = (device const float4*)x;\n"
            "  float4 a = v[t]; // here\n  o[t] = a.x + a.y + a.z + a.w;\n",
        ),
        "out of bounds",
        "x",
        {"x": (200,), "o": (64,)},
    ),
    MetalFault(
        "bounds of threadgroup memory",
        "index of the size",
        _kernel(_XO, f"  threadgroup float s[64];\n  s[t] = x[t];\n  {_BARRIER}\n  o[t] = s[t + 1]; // here\n"),
        "out of bounds",
        None,
        _ONE,
    ),
    MetalFault(
        "bounds of threadgroup memory",
        "beyond a row",
        _kernel(
            _XO,
            f"  threadgroup float s[8][8];\n  s[t / 8][t % 8] = x[t];\n  {_BARRIER}\n"
            "  o[t] = s[t / 8][t % 8 + 1]; // here\n",
        ),
        "out of bounds",
        None,
        _ONE,
    ),
    MetalFault(
        "bounds of threadgroup memory",
        "by a pointer",
        _kernel(
            _XO,
            f"  threadgroup float s[64];\n  threadgroup float* p = s;\n  p[t] = x[t];\n  {_BARRIER}\n"
            "  o[t] = p[t + 32]; // here\n",
        ),
        "out of bounds",
        "s",
        _ONE,
    ),
    MetalFault(
        "bounds of threadgroup memory",
        "in a function",
        _kernel(
            _XO,
            "  threadgroup float s[32];\n  put(s, t, x[t]);\n  o[t] = 0;\n",
            "void put(threadgroup float* s, uint i, float v) {\n  s[i] = v; // here\n}\n",
        ),
        "out of bounds",
        "s",
        _ONE,
    ),
    MetalFault(
        "bounds of thread memory",
        "an index that is computed",
        _kernel(_XO, "  float a[4] = {1, 2, 3, 4};\n  o[t] = a[t % 5] + x[t]; // here\n"),
        "out of bounds",
        None,
        _ONE,
    ),
    MetalFault(
        "bounds of thread memory",
        "a loop that goes too far",
        _kernel(
            f"{_XO}, constant uint& n [[buffer(2)]]",
            "  float a[8];\n  for (uint i = 0; i <= n; i++)\n    a[i] = x[i]; // here\n  o[t] = a[t % 8];\n",
        ),
        "out of bounds",
        None,
        _ONE,
        {"n": 8},
    ),
    MetalFault(
        "bounds of thread memory",
        "in a function",
        _kernel(
            _XO,
            "  float a[6] = {1, 2, 3, 4, 5, 6};\n  o[t] = sum(a, 6 + t) + x[t];\n",
            "float sum(thread float* a, uint n) {\n  float s = 0;\n  for (uint i = 0; i < n; i++)\n"
            "    s += a[i]; // here\n  return s;\n}\n",
        ),
        "out of bounds",
        None,
        _ONE,
    ),
    MetalFault(
        "bounds of thread memory",
        "before the start",
        _kernel(_XO, "  float a[4] = {1, 2, 3, 4};\n  int i = int(t) % 4 - 1;\n  o[t] = a[i] + x[t]; // here\n"),
        "out of bounds",
        None,
        _ONE,
    ),
]
_UNSET = [
    MetalFault(
        "unset memory",
        "half of a threadgroup array",
        _kernel(
            _XO,
            f"  threadgroup float s[64];\n  if (t < 32) s[t] = x[t];\n  {_BARRIER}\n  o[t] = s[t]; // here\n",
        ),
        "uninitialized",
        "s",
        _ONE,
    ),
    MetalFault(
        "unset memory",
        "an element of a thread array",
        _kernel(
            _XO,
            "  float a[4];\n  for (uint i = 0; i < 3; i++) a[i] = x[i];\n  o[t] = a[t % 4]; // here\n",
        ),
        "uninitialized",
        "o",
        _ONE,
    ),
    MetalFault(
        "unset memory",
        "a variable on some way",
        _kernel(_XO, "  float v; // here\n  if (x[t] > 4.0) v = x[t]; // here\n  o[t] = v * 2.0; // here\n"),
        "uninitialized",
        "v",
        _ONE,
    ),
    MetalFault(
        "unset memory",
        "an array that the caller says is empty",
        _kernel(_XO, "  o[t] += x[t]; // here\n"),
        "uninitialized",
        "o",
        _ONE,
        uninitialized=("o",),
    ),
]
_BARRIERS = [
    MetalFault(
        "barrier",
        "some threads return before it",
        _kernel(_XO, f"  if (t < 5) return;\n  {_BARRIER} // here\n  o[t] = x[t];\n"),
        "barrier",
        None,
        _ONE,
    ),
    MetalFault(
        "barrier",
        "in one branch",
        _kernel(_XO, f"  if (x[t] > 4.0) {{\n    {_BARRIER} // here\n  }}\n  o[t] = x[t];\n"),
        "barrier",
        None,
        _ONE,
    ),
    MetalFault(
        "barrier",
        "in a loop of different lengths",
        _kernel(_XO, f"  for (uint i = 0; i < t; i++)\n    {_BARRIER} // here\n  o[t] = x[t];\n"),
        "barrier",
        None,
        _ONE,
    ),
    MetalFault(
        "barrier",
        "another in each branch",
        _kernel(
            _XO,
            f"  if (t < 32) {{\n    {_BARRIER} // here\n    o[t] = 1;\n  }} else {{\n    {_BARRIER} // here\n"
            "    o[t] = x[t];\n  }\n",
        ),
        "barrier",
        None,
        _ONE,
    ),
]
_LANES = [
    MetalFault(
        "operation between lanes",
        "a sum in a branch",
        _kernel(_XO, "  float v = x[t];\n  if (lane < 7) v = simd_sum(v); // here\n  o[t] = simd_max(v);\n"),
        "divergence",
        None,
        _ONE,
    ),
    MetalFault(
        "operation between lanes",
        "a shuffle in a loop of different lengths",
        _kernel(
            _XO,
            "  float v = x[t];\n  for (uint i = 0; i < lane; i++)\n    v += simd_shuffle_xor(v, ushort(1)); // here\n"
            "  simdgroup_barrier(mem_flags::mem_none); // here\n  o[t] = v;\n",
        ),
        "divergence",
        None,
        _ONE,
    ),
    MetalFault(
        "operation between lanes",
        "each branch has its own",
        _kernel(
            _XO,
            "  float v = x[t];\n  if (lane % 2 == 0) {\n    v = simd_max(v); // here\n  } else {\n"
            "    v = simd_min(v); // here\n  }\n  o[t] = v;\n",
        ),
        "divergence",
        None,
        _ONE,
    ),
    MetalFault(
        "operation between lanes",
        "while others wait at a barrier",
        _kernel(
            _XO,
            "  float v = x[t];\n  if (lane > 3)\n    v = simd_broadcast(v, ushort(5)); // here\n"
            f"  {_BARRIER} // here\n  o[t] = v;\n",
        ),
        "divergence",
        None,
        _ONE,
    ),
]
_TOO_MUCH = [
    MetalFault(
        "too much threadgroup memory",
        "one array",
        _kernel(_XO, f"  threadgroup float s[9000]; // here\n  s[t] = x[t];\n  {_BARRIER}\n  o[t] = s[t];\n"),
        "threadgroup memory",
        None,
        _ONE,
    ),
    MetalFault(
        "too much threadgroup memory",
        "two arrays",
        _kernel(
            _XO,
            "  threadgroup float a[5000]; // here\n  threadgroup float b[5000]; // here\n  a[t] = x[t];\n"
            f"  b[t] = x[t];\n  {_BARRIER}\n  o[t] = a[t] + b[t];\n",
        ),
        "threadgroup memory",
        None,
        _ONE,
    ),
    MetalFault(
        "too much threadgroup memory",
        "a tile",
        _kernel(
            _XO,
            "  threadgroup half a[128][72], b[128][72]; // here\n  a[t][0] = half(x[t]);\n  b[t][0] = half(x[t]);\n"
            f"  {_BARRIER}\n  o[t] = float(a[t][0] + b[t][0]);\n",
        ),
        "threadgroup memory",
        None,
        _ONE,
    ),
    MetalFault(
        "too much threadgroup memory",
        "vectors",
        _kernel(
            _XO,
            f"  threadgroup float4 a[2049]; // here\n  a[t] = float4(x[t]);\n  {_BARRIER}\n  o[t] = a[t].x;\n",
        ),
        "threadgroup memory",
        None,
        _ONE,
    ),
]
_SPACES = [
    MetalFault(
        "address space",
        "a device pointer for threadgroup memory",
        _kernel(
            _XO,
            "  o[t] = first(x); // here\n",
            "float first(threadgroup const float* s) {\n  return s[0]; // here\n}\n",
        ),
        "address space",
        None,
        _ONE,
    ),
    MetalFault(
        "address space",
        "a threadgroup array for device memory",
        _kernel(
            _XO,
            f"  threadgroup float s[64];\n  s[t] = x[t];\n  {_BARRIER}\n"
            "  device float* p = s; // here\n  o[t] = p[t];\n",
        ),
        "address space",
        None,
        _ONE,
    ),
    MetalFault(
        "address space",
        "a variable for device memory",
        _kernel(
            _XO,
            "  float v = x[t];\n  twice(&v); // here\n  o[t] = v;\n",
            "void twice(device float* v) {\n  *v *= 2; // here\n}\n",
        ),
        "address space",
        None,
        _ONE,
    ),
    MetalFault(
        "address space",
        "a pointer to device memory for a variable",
        _kernel(
            _XO,
            "  o[t] = total(x); // here\n",
            "float total(thread const float* v) {\n  return v[0] + v[1]; // here\n}\n",
        ),
        "address space",
        None,
        _ONE,
    ),
]
_ATOMICS = [
    MetalFault(
        "atomics",
        "beyond a threadgroup array, by one thread",
        _kernel(
            _XO,
            "  threadgroup atomic_uint s[64];\n  for (uint i = t; i <= 64; i += 64)\n"
            "    atomic_store_explicit(&s[i], 0u, memory_order_relaxed); // here\n  o[t] = x[t];\n",
        ),
        "out of bounds",
        "s",
        _ONE,
    ),
    MetalFault(
        "atomics",
        "beyond device memory",
        _kernel(
            "device const float* x [[buffer(0)]], device atomic_uint* o [[buffer(1)]]",
            "  atomic_fetch_add_explicit(&o[uint(x[t]) + 60], 1u, memory_order_relaxed); // here\n",
        ),
        "out of bounds",
        "o",
        _ONE,
    ),
    MetalFault(
        "atomics",
        "counts that begin with nothing, and are set to zero too late",
        _kernel(
            _XO,
            "  threadgroup atomic_uint s[64];\n  atomic_store_explicit(&s[t], 0u, memory_order_relaxed);\n"
            "  atomic_fetch_add_explicit(&s[63 - t], 1u, memory_order_relaxed); // here\n"
            f"  {_BARRIER}\n  o[t] = x[t] + atomic_load_explicit(&s[t], memory_order_relaxed);\n",
        ),
        "uninitialized",
        "s",
        _ONE,
    ),
    MetalFault(
        "atomics",
        "counts of an array that the caller says is empty",
        _kernel(
            "device const float* x [[buffer(0)]], device atomic_uint* o [[buffer(1)]]",
            "  atomic_fetch_add_explicit(&o[uint(x[t])], 1u, memory_order_relaxed); // here\n",
        ),
        "uninitialized",
        "o",
        _ONE,
        uninitialized=("o",),
    ),
]
_NEAR = [
    MetalFault(
        "bounds of threadgroup memory",
        "by a pointer, and by the first thread alone",
        _kernel(
            _XO,
            f"  threadgroup float s[64];\n  threadgroup float* p = s;\n  p[t] = x[t];\n  {_BARRIER}\n"
            "  o[t] = t == 0 ? p[t + 64] : p[t]; // here\n",
        ),
        "out of bounds",
        "s",
        _ONE,
    ),
]
FAULTS: tuple[MetalFault, ...] = (
    *_RACES,
    *_BOUNDS,
    *_UNSET,
    *_BARRIERS,
    *_LANES,
    *_TOO_MUCH,
    *_SPACES,
    *_ATOMICS,
    *_NEAR,
)
