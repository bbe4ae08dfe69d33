<<<<<<< HEAD
"""Metal kernels on the CPU without their source plug-in: a text, a signature, and what its function is called with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from silo.backends.cpu.levels import host_target
from silo.backends.metal.clang import find_clang
from silo.backends.metal.compile_job import compile_job
from silo.backends.metal.job import CallArgument, EmulatorJob, Role
from silo.backends.metal.rewriting import may_wait, rewritten
from silo.backends.metal.torch_headers import digest_of_headers, includes_headers
from silo.core.compiled import Compiled
from silo.core.launch_info import AbiType, LayoutSlot
from silo.core.signature import ParameterKind
from silo.core.specialization import Specialization
from silo.errors import CompilerMissingError
from silo.launch.binding import bind
from silo.launch.native import CpuModule, LoadedKernel
from silo.launch.runtime import make_launcher
from silo.sources.binary.parameters import parse_signature

_TYPES = {"u32": "uint", "i32": "int", "fp32": "float", "i64": "long", "fp16": "half"}


def require_clang() -> None:
    """Skip where there is none."""
    try:
        find_clang()
    except CompilerMissingError as error:
        pytest.skip(str(error), allow_module_level=True)


def job(
    text: str,
    name: str,
    signature: str,
    positions: Sequence[str] = (),
    group: tuple[int, int, int] = (32, 1, 1),
    *,
    function: str = "",
    waits: bool | None = None,
    cut: bool = False,
    given: Sequence[int] = (),
) -> EmulatorJob:
    """A job: a kernel's function takes the signature's parameters, then threadgroup memory, then positions."""
    parsed = parse_signature(name, signature)
    arguments = [
        CallArgument(Role.POINTER, one.name, "", at)
        if one.kind is ParameterKind.POINTER
        else CallArgument(Role.VALUE, one.name, _TYPES[one.dtype.short], at)
        for at, one in enumerate(parsed.signature.parameters)
    ]
    arguments += [CallArgument(Role.THREADGROUP, f"given{at}", "", size) for at, size in enumerate(given)]
    arguments += [CallArgument(Role.POSITION, one, one) for one in positions]
    layout = parsed.layout
    if cut:
        layout = (*layout, *(LayoutSlot(f"threads_{axis}", AbiType.U32) for axis in "xyz"))
    return EmulatorJob(
        source=rewritten(text),
        file=f"{name}.metal",
        function=function or name,
        arguments=tuple(arguments),
        layout=layout,
        group=group,
        waits=may_wait(text) if waits is None else waits,
        cut=cut,
        headers=digest_of_headers() if includes_headers(text) else "",
    )


def compiled(made: EmulatorJob, name: str) -> Compiled:
    """The artifact."""
    return compile_job(made.to_job(name, host_target()), find_clang(), "tests")


def kernel(text: str, name: str, signature: str, *args: Any, **options: Any) -> Any:
    """A launcher: ``kernel(...)[groups](arrays and numbers)``."""
    out = compiled(job(text, name, signature, *args, **options), name)
    if options.get("cut"):
        signature += ", threads_x: u32, threads_y: u32, threads_z: u32"
    described = parse_signature(name, signature)
    loaded = LoadedKernel(CpuModule(out.blob.data), out.launch.entry, name, scratch_bytes=out.launch.scratch_bytes)
    return make_launcher(
        name,
        described.signature,
        on_miss=lambda _call: bind(loaded, out.launch, described.signature, Specialization(), {}),
    )
=======
"""Jobs of the Metal emulator from a kernel's text whose parameters are written plainly; launches that are checked."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from silo.backends.metal.checking.code import CheckedKernel
from silo.backends.metal.checking.compiling import compile_checked
from silo.backends.metal.clang import find_clang
from silo.backends.metal.job import CallArgument, EmulatorJob, Role
from silo.backends.metal.rewriting import rewritten
from silo.core.launch_info import AbiType, LayoutSlot
from silo.core.signature import Effect
from silo.core.target import Target

__all__ = ["check_launch", "checked_kernel", "job_of"]

TARGET = Target.parse("cpu:x86-64-v3")
_SCALARS = {"uint": AbiType.U32, "int": AbiType.I32, "float": AbiType.FP32}
_CELLS = {AbiType.U32: ctypes.c_uint32, AbiType.I32: ctypes.c_int32, AbiType.FP32: ctypes.c_float}


def job_of(text: str, group: tuple[int, int, int] = (64, 1, 1)) -> tuple[EmulatorJob, tuple[Effect, ...]]:
    """The job of the kernel ``k``, and what it does through each parameter."""
    arguments: list[CallArgument] = []
    layout: list[LayoutSlot] = []
    effects: list[Effect] = []
    for declared in re.search(r"void k\((.*?)\) \{", text, re.DOTALL).group(1).split(","):
        name, attribute = re.search(r"(\w+) \[\[(\w+)", declared).groups()
        number = len(layout)
        if attribute != "buffer":
            arguments.append(CallArgument(Role.POSITION, name, attribute))
            continue
        if "*" in declared:
            arguments.append(CallArgument(Role.POINTER, name, "", number))
            layout.append(LayoutSlot(name, AbiType.POINTER))
            effects.append(Effect.READ if "const" in declared else Effect.BOTH)
        else:
            kind = re.search(r"constant (\w+)&", declared).group(1)
            arguments.append(CallArgument(Role.VALUE, name, kind, number))
            layout.append(LayoutSlot(name, _SCALARS[kind]))
            effects.append(Effect.READ)
    return EmulatorJob(rewritten(text), "k.metal", "k", tuple(arguments), tuple(layout), group), tuple(effects)


def checked_kernel(text: str, group: tuple[int, int, int] = (64, 1, 1), *, nan: bool = False) -> CheckedKernel:
    """The kernel, compiled to check itself."""
    job, effects = job_of(text, group)
    return compile_checked("k", job, effects, target=TARGET, nan=nan, clang=find_clang())


def check_launch(
    kernel: CheckedKernel,
    arguments: Mapping[str, Any],
    grid: tuple[int, int, int] = (1, 1, 1),
    *,
    uninitialized: Sequence[str] = (),
    steps: int = 10_000_000,
    seeds: Sequence[int] | None = None,
) -> None:
    """Check one launch, as a launcher does. Raises CheckError."""
    cells = [
        ctypes.c_uint64(arguments[slot.name].ctypes.data)
        if isinstance(arguments[slot.name], np.ndarray)
        else _CELLS[slot.type](arguments[slot.name])
        for slot in kernel.launch.layout
    ]
    params = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(cell) for cell in cells])
    scratch = ctypes.create_string_buffer(kernel.launch.scratch_bytes + 64)
    place = (ctypes.addressof(scratch) + 63) & ~63
    with kernel.over(arguments, uninitialized=uninitialized, steps=steps, seeds=seeds):
        kernel.front(ctypes.addressof(params), (ctypes.c_uint32 * 3)(*grid), 0, 1, place, 0)
        error = kernel.error
    if error is not None:
        raise error
>>>>>>> main
