"""Makes jobs of the Metal emulator from the text of a kernel with simple parameters, and checks launches of them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

from silo.checking.kernel import NativeCall, NativeKernel
from silo.core.device import Target
from silo.core.launch_info import AbiType, LayoutSlot
from silo.core.protocols import CheckLimits
from silo.core.signature import Effect
from silo.emulation import checked_runs as run
from silo.emulation.clang import find_clang
from silo.kinds.metal.checking.compiling import compile_checked
from silo.kinds.metal.metal_job import BufferRole, EmulatorJob, MetalArgument, rewritten

__all__ = ["check_launch", "checked_kernel", "job_of"]

TARGET = Target.parse("cpu:x86-64-v3")
_SCALARS = {"uint": AbiType.U32, "int": AbiType.I32, "float": AbiType.FP32}
_CELLS = {AbiType.U32: ctypes.c_uint32, AbiType.I32: ctypes.c_int32, AbiType.FP32: ctypes.c_float}


def job_of(text: str, group: tuple[int, int, int] = (64, 1, 1)) -> tuple[EmulatorJob, tuple[Effect, ...]]:
    """Return the job of the kernel ``k`` in the text, and its effect through each parameter."""
    arguments: list[MetalArgument] = []
    layout: list[LayoutSlot] = []
    effects: list[Effect] = []
    for declared in re.search(r"void k\((.*?)\) \{", text, re.DOTALL).group(1).split(","):
        name, attribute = re.search(r"(\w+) \[\[(\w+)", declared).groups()
        number = len(layout)
        if attribute != "buffer":
            arguments.append(MetalArgument(BufferRole.POSITION, name, attribute))
            continue
        if "*" in declared:
            arguments.append(MetalArgument(BufferRole.POINTER, name, "", number))
            layout.append(LayoutSlot(name, AbiType.POINTER))
            effects.append(Effect.READ if "const" in declared else Effect.BOTH)
        else:
            kind = re.search(r"constant (\w+)&", declared).group(1)
            arguments.append(MetalArgument(BufferRole.VALUE, name, kind, number))
            layout.append(LayoutSlot(name, _SCALARS[kind]))
            effects.append(Effect.READ)
    return EmulatorJob(rewritten(text), "k.metal", "k", tuple(arguments), tuple(layout), group), tuple(effects)


def checked_kernel(text: str, group: tuple[int, int, int] = (64, 1, 1)) -> NativeKernel:
    """Return the kernel ``k``, compiled with checks."""
    job, effects = job_of(text, group)
    return compile_checked("k", job, effects, target=TARGET, clang=find_clang())


def check_launch(
    kernel: NativeKernel,
    arguments: Mapping[str, Any],
    grid: tuple[int, int, int] = (1, 1, 1),
    *,
    uninitialized: Sequence[str] = (),
    steps: int = 10_000_000,
    nan: bool = False,
    seeds: Sequence[int] = run.SCHEDULES,
) -> None:
    """Check one launch, as a launcher would. Raises CheckError."""
    cells = [
        ctypes.c_uint64(arguments[slot.name].ctypes.data)
        if isinstance(arguments[slot.name], np.ndarray)
        else _CELLS[slot.type](arguments[slot.name])
        for slot in kernel.launch.layout
    ]
    params = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(cell) for cell in cells])
    scratch = ctypes.create_string_buffer(kernel.launch.scratch_bytes + 64)
    place = (ctypes.addressof(scratch) + 63) & ~63
    limits = CheckLimits(nan=nan, uninitialized=tuple(uninitialized), steps=steps)
    with patch.object(run, "SCHEDULES", tuple(seeds)), kernel.over(arguments, limits):
        kernel.check(NativeCall(ctypes.addressof(params), grid, place))
