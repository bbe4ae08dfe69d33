"""Metal kernels on the CPU without their source plug-in: compile jobs made from a text and a signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from silo.core.launch_info import AbiType, LayoutSlot
from silo.core.signature import ParameterKind
from silo.core.specialization import Specialization
from silo.core.variant import Compiled
from silo.drivers.cpu.levels import host_target
from silo.emulation.clang import find_clang
from silo.errors import CompilerMissingError
from silo.kinds.binary.binary_source import parse_signature
from silo.kinds.metal.clang import digest_of_headers, includes_headers
from silo.kinds.metal.compile_job import compile_job
from silo.kinds.metal.metal_job import BufferRole, EmulatorJob, MetalArgument, may_wait, rewritten
from silo.launch.native import CpuModule, LoadedKernel
from silo.launch.runtime import bind, make_launcher

_TYPES = {"u32": "uint", "i32": "int", "fp32": "float", "i64": "long", "fp16": "half"}


def require_clang() -> None:
    """Skip the module's tests if clang is missing."""
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
    """Return a job whose function takes the signature's parameters, then threadgroup memory, then positions."""
    parsed = parse_signature(name, signature)
    arguments = [
        MetalArgument(BufferRole.POINTER, one.name, "", at)
        if one.kind is ParameterKind.POINTER
        else MetalArgument(BufferRole.VALUE, one.name, _TYPES[one.dtype.short], at)
        for at, one in enumerate(parsed.signature.parameters)
    ]
    arguments += [MetalArgument(BufferRole.THREADGROUP, f"given{at}", "", size) for at, size in enumerate(given)]
    arguments += [MetalArgument(BufferRole.POSITION, one, one) for one in positions]
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
    """Compile a job."""
    return compile_job(made.to_job(name, host_target()), find_clang(), "tests")


def kernel(text: str, name: str, signature: str, *args: Any, **options: Any) -> Any:
    """Return a launcher, which is called as ``kernel(...)[groups](arrays and numbers)``."""
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
