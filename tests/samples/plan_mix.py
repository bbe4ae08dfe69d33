"""Kernels of five pointers and three ints for plans; random replays are compared with single launches.

A kernel's result depends on all of its arguments, on its grid, and on the kernels that ran before it.
"""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

import graph_plans
import silo
from graph_plans import Call, Device, Kernel, Plan

SIZES = (8, 8, 8, 8, 8, 4, 4, 4)
THREADS = 64
_ARRAYS = 8
_FORMAT = "<5Q3i"


def ptx(name: str, factor: int) -> bytes:
    """Return the PTX of ``p4[i] = p4[i] * factor + p0[i] + p1[i] * v + (p2[i] ^ w) + p3[i]`` for ``i`` below ``n``.

    The elements are 32-bit ints. The first line is for the stub driver.
    """
    loads = "".join(
        f"ld.param.u64 %rd1, [p{index}]; cvta.to.global.u64 %rd1, %rd1; add.u64 %rd2, %rd1, %rd0;"
        f" ld.global.u32 %v{index}, [%rd2];\n"
        for index in range(5)
    )
    parameters = ", ".join(
        [*(f".param .u64 p{index}" for index in range(5)), ".param .u32 n, .param .u32 v, .param .u32 w"]
    )
    return f"""// stub: params={",".join(map(str, SIZES))}
.version 7.0
.target sm_70
.address_size 64
.visible .entry {name}({parameters})
{{
.reg .pred %p; .reg .b32 %i, %n, %t, %v<5>; .reg .b64 %rd<3>;
mov.u32 %i, %ctaid.x; mov.u32 %t, %ntid.x; mul.lo.u32 %i, %i, %t; mov.u32 %t, %tid.x; add.u32 %i, %i, %t;
ld.param.u32 %n, [n]; setp.ge.u32 %p, %i, %n; @%p ret;
mul.wide.u32 %rd0, %i, 4;
{loads}
mul.lo.u32 %v4, %v4, {factor}; add.u32 %v4, %v4, %v0;
ld.param.u32 %t, [v]; mul.lo.u32 %v1, %v1, %t; add.u32 %v4, %v4, %v1;
ld.param.u32 %t, [w]; xor.b32 %v2, %v2, %t; add.u32 %v4, %v4, %v2;
add.u32 %v4, %v4, %v3; st.global.u32 [%rd2], %v4;
ret;
}}
""".encode()


FACTORS = {"mix3": 3, "mix5": 5}


def run_on_host(name: str, grid: tuple[int, int, int], parameters: Sequence[bytes]) -> None:
    """Compute the result of a kernel in memory of this process."""
    *pointers, n, v, w = struct.unpack(_FORMAT, b"".join(parameters))
    count = min(n, grid[0] * THREADS)
    a, b, c, d, out = (
        np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint32)), (max(count, 1),))[:count]
        for pointer in pointers
    )
    v, w = np.uint32(v & 0xFFFFFFFF), np.uint32(w & 0xFFFFFFFF)
    out[:] = out * np.uint32(FACTORS[name]) + a + b * v + (c ^ w) + d


def kernels(device: Device, count: int) -> list[Kernel]:
    """Return ``count`` kernels, alternately of two kinds."""
    loaded = [device.kernel(ptx(name, factor), name, SIZES, block=(THREADS, 1, 1)) for name, factor in FACTORS.items()]
    return [loaded[index % len(loaded)] for index in range(count)]


def declared() -> list[Any]:
    """Return the same two kernels as Silo kernels over int32 arrays with a declared grid, for calls from Python."""
    names = [f"p{index}" for index in range(5)]
    signature = ", ".join([*(f"{name}: in *i32" for name in names[:4]), "p4: inout *i32, n: i32, v: i32, w: i32"])
    return [
        silo.binary(
            ptx(name, factor).decode(),
            signature=signature,
            threads=THREADS,
            grid=lambda a: (silo.cdiv(a.n, THREADS),),
        )
        for name, factor in FACTORS.items()
    ]


class _Arrays:
    """Arrays on the device; those of two objects with the same seed start with the same numbers."""

    def __init__(self, device: Device, elements: int, seed: int, stream: int) -> None:
        self.device, self.elements, self.stream = device, elements, stream
        first = np.random.default_rng(seed).integers(0, 2**32, (_ARRAYS, elements), np.uint32)
        self.address = device.memory(first.nbytes)
        device.copy(self.address, first.ctypes.data, first.nbytes, stream)

    def call(self, dice_call: tuple[int, bool, Sequence[tuple[int, int]], int, int, int]) -> Call:
        grid, enabled, places, n, v, w = dice_call
        pointers = [self.address + 4 * (array * self.elements + offset) for array, offset in places]
        packed = struct.pack(_FORMAT, *pointers, n, v, w)
        split = [packed[8 * index : 8 * index + 8] for index in range(5)]
        split += [packed[40 + 4 * index : 44 + 4 * index] for index in range(3)]
        return Call((grid, 1, 1), tuple(split), enabled)

    def read(self) -> np.ndarray:
        found = np.empty((_ARRAYS, self.elements), np.uint32)
        self.device.copy(found.ctypes.data, self.address, found.nbytes, self.stream)
        return found


def compare(
    device: Device,
    replays: int,
    *,
    seed: int = 0,
    nodes: int = 12,
    elements: int = 1000,
    checks: int = 64,
    **options: int,
) -> tuple[int, Plan]:
    """Compare replays with single launches; return the number of comparisons that differed, and the plan.

    A comparison follows each ``checks`` replays, which are queued without waiting. Between replays nothing, some or all
    of the pointers, ints, sizes, grids (empty ones too) and enabled nodes change.
    """
    dice = random.Random(seed)
    streams = device.stream(), device.stream()
    planned, single = (_Arrays(device, elements, seed, stream) for stream in streams)
    parts = kernels(device, nodes)
    plan = device.plan(parts, **options)
    one_by_one = device.plan(parts, wanted=graph_plans.SINGLY)
    most = -(-elements // THREADS)

    def draw() -> tuple[int, bool, Sequence[tuple[int, int]], int, int, int]:
        out = dice.randrange(_ARRAYS)
        # so that no thread reads elements that another thread writes
        others = [array for array in range(_ARRAYS) if array != out]
        places = [(dice.choice(others), dice.randrange(17)) for _ in range(4)] + [(out, dice.randrange(17))]
        grid, n = dice.choice((0, 1, most, dice.randrange(1, most + 2))), dice.randrange(elements - 16)
        return grid, dice.random() < 0.8, places, n, dice.randrange(-9, 10), dice.randrange(-9, 10)

    drawn, wrong = [draw() for _ in range(nodes)], 0
    for replay in range(replays):
        share = (0.0, 0.2, 1.0)[dice.randrange(3)]
        changed = [node for node in range(nodes) if replay == 0 or dice.random() < share]
        for node in changed:
            drawn[node] = draw()
            plan.set(node, planned.call(drawn[node]))
            one_by_one.set(node, single.call(drawn[node]))
        plan.launch(stream=streams[0])
        one_by_one.launch(stream=streams[1])
        if (replay + 1) % checks == 0 or replay + 1 == replays:
            for stream in streams:
                device.wait(stream)
            wrong += not np.array_equal(planned.read(), single.read())
    one_by_one.close()
    return wrong, plan
