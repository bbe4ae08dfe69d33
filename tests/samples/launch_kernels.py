"""Small C functions with the CPU kernel ABI and launchers of them, for tests of the native module."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from silo.core.signature import Parameter, ParameterKind, Signature
from silo.launch import native
from silo.launch.arguments import SeenCall
from silo.launch.runtime import make_launcher

TYPES = {
    "i1": "uint8_t",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "u8": "uint8_t",
    "u16": "uint16_t",
    "u32": "uint32_t",
    "u64": "uint64_t",
    "fp16": "uint16_t",
    "bf16": "uint16_t",
    "fp32": "float",
    "fp64": "double",
    "ptr": "uint64_t",
}

HEAD = """
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#define KERNEL(name) int32_t name(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end, \\
                                  void *scratch, void *context)
#define UNUSED (void)params, (void)grid, (void)begin, (void)end, (void)scratch, (void)context
KERNEL(nothing) { UNUSED; return 0; }
KERNEL(add) {
    UNUSED;
    const float *x = *(const float **)params[0], *y = *(const float **)params[1];
    float *out = *(float **)params[2];
    const int32_t n = *(int32_t *)params[3];
    for (uint64_t p = begin; p < end; p++)
        for (uint64_t i = p * 64; i < (p + 1) * 64 && i < (uint64_t)n; i++)
            out[i] = x[i] + y[i];
    return 0;
}
/* out[p] = x | y << 16 | z << 32, as the ABI defines program ids. */
KERNEL(ids) {
    UNUSED;
    uint64_t *out = *(uint64_t **)params[0];
    for (uint64_t p = begin; p < end; p++)
        out[p] = p % grid[0] | (p / grid[0] % grid[1]) << 16 | (p / grid[0] / grid[1]) << 32;
    return 0;
}
/* out[p] = which call of this function ran program p, counted from 1; out[n] counts. */
KERNEL(order) {
    UNUSED;
    int64_t *out = *(int64_t **)params[0];
    const int64_t turn = __atomic_add_fetch(&out[grid[0]], 1, __ATOMIC_SEQ_CST);
    for (uint64_t p = begin; p < end; p++)
        out[p] = turn;
    return 0;
}
KERNEL(fail_at_3) { UNUSED; return begin <= 3 && 3 < end ? 7 : 0; }
/* Every program fails; the first to say so has the text. */
struct fault { uint32_t bytes; int32_t claimed; char text[]; };
KERNEL(fail_with_text) {
    UNUSED;
    struct fault *fault = context;
    if (begin > 3 || end <= 3)
        return 0;
    if (fault->bytes < 1024)
        return 9;
    if (!__atomic_exchange_n(&fault->claimed, 1, __ATOMIC_RELAXED))
        memcpy(fault->text, "program 3 divides by zero", 26);
    return 7;
}
/* Every program fails and says which it is. */
KERNEL(all_fail) {
    UNUSED;
    struct fault *fault = context;
    if (__atomic_exchange_n(&fault->claimed, 1, __ATOMIC_RELAXED))
        return 1;
    memset(fault->text, 'a' + (int)(begin % 26), 1015);
    fault->text[1015] = 0;
    return 1;
}
/* Cuts programs into at most four parts: out[4 p .. 4 p + 3] counts how often each quarter of program p ran, the last
 * of out says how many parts the launch made. */
KERNEL(quarters) {
    UNUSED;
    uint32_t *asked = (uint32_t *)(void *)((char *)context + 1056);
    int64_t *out = *(int64_t **)params[0];
    if (*asked == UINT32_MAX) {
        *asked = 4;
        return 0;
    }
    const uint64_t parts = *asked != 0 ? *asked : 1, size = 4 / parts;
    for (uint64_t part = begin; part < end; part++)
        for (uint64_t i = 0; i < size; i++)
            __atomic_add_fetch(&out[part / parts * 4 + part % parts * size + i], 1, __ATOMIC_RELAXED);
    __atomic_store_n(&out[(uint64_t)grid[0] * 4], (int64_t)parts, __ATOMIC_RELAXED);
    return 0;
}
/* Every program fills its scratch with its id, waits, and finds it unchanged: 1 if not, 2 if misaligned. */
KERNEL(scratch_check) {
    UNUSED;
    int64_t *own = scratch;
    const int64_t words = *(int32_t *)params[0] / 8;
    if (((uintptr_t)scratch & 63) != 0)
        return 2;
    for (uint64_t p = begin; p < end; p++) {
        for (int64_t i = 0; i < words; i++)
            own[i] = (int64_t)p;
        usleep(100);
        for (int64_t i = 0; i < words; i++)
            if (own[i] != (int64_t)p)
                return 1;
    }
    return 0;
}
/* out[p % 8] counts programs; each makes so many turns. */
KERNEL(turn) {
    UNUSED;
    int64_t *out = *(int64_t **)params[0];
    const int32_t turns = *(int32_t *)params[1];
    for (uint64_t p = begin; p < end; p++) {
        for (volatile int32_t turn = 0; turn < turns; turn++)
            ;
        __atomic_add_fetch(&out[p % 8], 1, __ATOMIC_RELAXED);
    }
    return 0;
}
/* out[p] = the thread that ran program p; each takes some milliseconds. */
KERNEL(threads) {
    UNUSED;
    uint64_t *out = *(uint64_t **)params[0];
    for (uint64_t p = begin; p < end; p++) {
        usleep(3000);
        out[p] = (uint64_t)pthread_self();
    }
    return 0;
}
/* The same with the lowest bit, which addresses of threads have not, where the thread is told that it is alone. */
KERNEL(alone) {
    const int error = threads(params, grid, begin, end, scratch, context);
    uint64_t *out = *(uint64_t **)params[0];
    for (uint64_t p = begin; p < end; p++)
        out[p] |= *(uint32_t *)context >= 1048 && *(uint32_t *)((char *)context + 1040) == 1;
    return error;
}
"""


@cache
def blob() -> bytes:
    """Return a shared object with every test kernel; skip the test without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    dumps = "".join(
        f"KERNEL(dump_{name}) {{ UNUSED; memcpy(*(void **)params[0], params[1], sizeof({kind})); return 0; }}\n"
        for name, kind in TYPES.items()
    )
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "k.c"), Path(folder, "k.so")
        source.write_text(HEAD + dumps)
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-pthread", str(source), "-o", str(output)], check=True)
        return output.read_bytes()


@cache
def module() -> native.CpuModule:
    return native.CpuModule(blob())


def loaded(entry: str, **options: int) -> native.LoadedKernel:
    return native.LoadedKernel(module(), entry, **options)


def any_parameters(*names: str) -> Signature:
    return Signature(tuple(Parameter(name) for name in names))


class Asked:
    """An on_miss callable that records its calls and always returns the same binding."""

    def __init__(self, entry, layout=(), config=None, grid=None, **options):
        self.calls: list[SeenCall] = []
        self.binding = native.Binding(loaded(entry, **options), tuple(layout), config or {}, grid)

    def __call__(self, call):
        self.calls.append(call)
        return self.binding


def nothing(*names, parameters=None, **options):
    """Return a launcher of a kernel that does nothing, with these undeclared parameters, and its on_miss callable."""
    asked = Asked("nothing")
    signature = any_parameters(*names) if parameters is None else Signature(tuple(parameters))
    return make_launcher("nothing", signature, on_miss=asked, **options), asked


ADD_LAYOUT = ((0, "ptr", False), (1, "ptr", False), (2, "ptr", True), (3, "i32", False))


def add(**options):
    """Return a launcher of out = x + y over n floats, and its on_miss callable.

    Each program adds 64 elements; the config sets the constexpr BLOCK.
    """
    asked = Asked("add", ADD_LAYOUT, {"BLOCK": 64, "num_warps": 4}, options.pop("program", None))
    signature = Signature(
        (
            Parameter("x"),
            Parameter("y"),
            Parameter("out"),
            Parameter("n"),
            Parameter("BLOCK", ParameterKind.CONSTEXPR),
        )
    )
    return make_launcher("add", signature, on_miss=asked, config_names=("BLOCK",), **options), asked
