"""``silo.binary``: kernels compiled by other tools."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from silo.artifacts.binary_inspection import BinaryKernel as Inspected
from silo.artifacts.device_code import DeviceCode, check_layout, read_device_code
from silo.core.device import Target, driver_of
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot, TensorMap, format_block
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.values import Value, value_sort_key
from silo.errors import SourceError, TargetError
from silo.kinds.binary.binary_source import BinaryCode, BinarySource, parse_assumptions, parse_signature
from silo.plain_files import read_plain
from silo.sources.declaration import Declaration

__all__ = ["Binary", "Code", "binary", "binary_code", "completed", "guarded"]


# ---- Launch info of a compiled kernel, from its metadata and the arguments of silo.binary ----


Code = bytes | bytearray | memoryview | str | os.PathLike[str]


@dataclass(frozen=True)
class Binary:
    """One of several binaries of a kernel, with the fields that differ from the call of :func:`binary`.

    ``code`` is a file's path, its bytes, or PTX text. A field that is None is taken from the call of :func:`binary`;
    ``facts`` are added to the facts of that call.
    """

    code: Code
    target: str | Target | None = None
    facts: Mapping[str, Value] = field(default_factory=dict[str, Value])
    entry: str | None = None
    threads: int | Sequence[int] | None = None
    shared_bytes: int | None = None
    cluster: Sequence[int] | None = None
    cooperative: bool | None = None
    pdl: bool | None = None
    scratch_bytes: int | None = None
    scratch_align: int | None = None


def completed(code: Code | Binary, everything: Binary) -> Binary:
    """Returns ``code`` with its missing fields taken from ``everything``, the fields given to :func:`binary`."""
    own = code if isinstance(code, Binary) else Binary(code)
    return replace(
        everything,
        code=own.code,
        facts={**everything.facts, **own.facts},
        **{name: value for name in _INHERITED if (value := getattr(own, name)) is not None},
    )


_INHERITED = (
    "target",
    "entry",
    "threads",
    "shared_bytes",
    "cluster",
    "cooperative",
    "pdl",
    "scratch_bytes",
    "scratch_align",
)


def guarded(signature: Signature, codes: Sequence[BinaryCode]) -> Signature:
    """Returns the signature specialized only on the parameters about which a binary assumes a fact.

    Callers may omit a constexpr that has the same value in every binary.
    """
    assumed = {name for code in codes for name, _ in code.assumes.facts}
    parameters: list[Parameter] = []
    for declared in signature.parameters:
        parameter = replace(declared, specialize=declared.name in assumed, align=declared.name in assumed)
        if declared.kind is ParameterKind.CONSTEXPR:
            values = {
                value_sort_key(value): value
                for value in (code.assumes.constant_values[declared.name] for code in codes)
            }
            parameter = replace(declared, default=next(iter(values.values())) if len(values) == 1 else declared.default)
        parameters.append(parameter)
    return Signature(tuple(parameters))


def binary_code(
    binary: Binary, signature: Signature, layout: tuple[LayoutSlot, ...], maps: tuple[TensorMap, ...] = ()
) -> BinaryCode:
    """Returns one binary's bytes, target and launch info, after checking them against its declaration.

    Raises SourceError, TargetError.
    """
    data, label = _read(binary.code)
    device_code = read_device_code(data, label)
    kernel = device_code.kernel(binary.entry, label)
    check_layout(kernel, layout)
    return BinaryCode(
        label=label,
        kind=device_code.kind,
        data=data,
        target=_target(device_code, binary.target, label),
        assumes=parse_assumptions(kernel.entry, binary.facts, signature),
        launch=_launch_info(binary, device_code, kernel, layout, maps, label),
    )


def _read(code: Code) -> tuple[bytes, str]:
    if isinstance(code, bytes | bytearray | memoryview):
        return bytes(code), f"a binary of {len(code)} bytes"
    if not isinstance(code, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]  # from users
        raise SourceError(f"silo.binary takes paths, bytes and PTX text, not {code!r}")
    if isinstance(code, str) and "\n" in code:
        return code.encode(), "PTX text"
    path = Path(code)
    try:
        return read_plain(path), path.name
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


def _target(device_code: DeviceCode, requested: str | Target | None, label: str) -> Target:
    if requested is None:
        if device_code.target is None:
            raise SourceError(f"{label} names no .target; say what it is for with target=, such as target='cuda:sm_80'")
        return device_code.target
    target = Target.parse(requested) if isinstance(requested, str) else requested
    if not target.is_concrete:
        raise TargetError(f"{label}: the target {target} names no arch; write for example cuda:sm_90")
    own = device_code.target
    if own is not None and (own.kind, own.device_arch) != (target.kind, target.device_arch):
        raise TargetError(f"{label} was built for {own}, and target= says {target}")
    return target


def _launch_info(
    binary: Binary,
    device_code: DeviceCode,
    kernel: Inspected,
    layout: tuple[LayoutSlot, ...],
    maps: tuple[TensorMap, ...],
    label: str,
) -> LaunchInfo:
    machine_code = device_code.kind != "ptx"
    target = device_code.target
    if binary.pdl and device_code.kind == "hsaco":
        raise SourceError(f"{label}: pdl=True, and programmatic dependent launch is NVIDIA's alone")
    block = _block(binary.threads, device_code.kind, kernel, label)
    threads = math.prod(block)
    warp = 32 if target is None else driver_of(target.kind).warp_size(target.arch)
    scratch = (binary.scratch_bytes or 0) if any(slot.type is AbiType.SCRATCH for slot in layout) else 0
    if binary.scratch_bytes and not scratch:
        raise SourceError(
            f"{label}: scratch_bytes={binary.scratch_bytes}, and no parameter of the signature is scratch"
        )
    return LaunchInfo(
        entry=kernel.entry,
        layout=layout,
        num_warps=-(-threads // warp),
        threads=threads,
        block=block,
        cluster=_cluster(binary.cluster, kernel, label),
        shared_bytes=_natural(binary.shared_bytes or 0, "shared_bytes", label),
        scratch_bytes=_natural(scratch, "scratch_bytes", label),
        scratch_align=_power_of_two(binary.scratch_align or 1, "scratch_align", label) if scratch else 1,
        cooperative=bool(binary.cooperative),
        pdl=bool(binary.pdl),
        tensor_maps=maps,
        registers=kernel.registers if machine_code else None,
        spills=kernel.spills if machine_code else None,
    )


def _natural(value: int, field: str, label: str) -> int:
    if value < 0:
        raise SourceError(f"{label}: {field}={value} is negative")
    return value


def _power_of_two(value: int, field: str, label: str) -> int:
    if value < 1 or value & (value - 1):
        raise SourceError(f"{label}: {field}={value} is not a power of two")
    return value


def _block(threads: int | Sequence[int] | None, kind: str, kernel: Inspected, label: str) -> tuple[int, int, int]:
    """Returns the threads of a block along x, y and z: the given numbers, or those that the binary requires."""
    required = kernel.required_block
    if threads is None:
        if required is None:
            limit = "" if kernel.most_threads is None else f" (at most {kernel.most_threads})"
            raise SourceError(
                f"{label} does not say how many threads a block of {kernel.entry} has; say threads={limit}"
            )
        return required
    block = _three(threads, "threads", label)
    if required not in (None, block):
        raise SourceError(
            f"{label}: threads={threads}, and {kernel.entry} was compiled for exactly {format_block(required)}"
        )
    for axis, size, largest in zip("xyz", block, (1024, 1024, 1024 if kind == "hsaco" else 64), strict=True):
        if size > largest:
            raise SourceError(f"{label}: threads={threads}; a block has 1 to {largest} threads along {axis}")
    limit = kernel.most_threads or 1024
    if math.prod(block) > limit:
        count = "" if isinstance(threads, int) else f", {math.prod(block)} in all"
        raise SourceError(f"{label}: threads={threads}{count}; a block of {kernel.entry} has 1 to {limit}")
    return block


def _cluster(cluster: Sequence[int] | None, kernel: Inspected, label: str) -> tuple[int, int, int]:
    if cluster is None:
        return kernel.cluster or (1, 1, 1)
    sizes = _three(cluster, "cluster", label)
    if kernel.cluster not in (None, sizes):
        raise SourceError(f"{label}: cluster={sizes}, and {kernel.entry} was compiled for clusters of {kernel.cluster}")
    return sizes


def _three(numbers: int | Sequence[int], field: str, label: str) -> tuple[int, int, int]:
    sizes = tuple(numbers) if isinstance(numbers, Sequence) else (numbers,)
    if not 1 <= len(sizes) <= 3 or any(type(size) is not int or size < 1 for size in sizes):
        raise SourceError(f"{label}: {field}={numbers}; it takes one to three positive sizes")
    x, y, z = (*sizes, 1, 1)[:3]
    return (x, y, z)


# ---- The function silo.binary ----


def binary(
    code: Code | Binary | Sequence[Code | Binary],
    *,
    signature: str | Mapping[str, Value],
    grid: Callable[[Any], object] | Sequence[int] | None = None,
    name: str | None = None,
    entry: str | None = None,
    threads: int | Sequence[int] | None = None,
    shared_bytes: int = 0,
    cluster: Sequence[int] | None = None,
    cooperative: bool = False,
    pdl: bool = False,
    target: str | Target | None = None,
    facts: Mapping[str, Value] | None = None,
    scratch_bytes: int = 0,
    scratch_align: int = 16,
    release_gil: bool = True,
) -> Any:  # noqa: ANN401  # a kernel, called as the signature declares
    """Makes a Silo kernel from a compiled one: a cubin, an hsaco, or PTX.

    Args:
        code: the path of a file, its bytes, or PTX text; or several of them, each perhaps a :class:`Binary` with fields
            of its own (target, facts, entry). A call launches a binary that runs on its device and whose assumptions
            all hold; of several, the one with the most assumptions.
        signature: the parameters in the binary's order, ``"x: in *fp32, y: out *fp32, n: i32"`` or a mapping: arrays
            with their effect (``in``, ``out``, ``inout``), scalars, ``null`` for pointers that are always null,
            ``scratch``, and constexprs for values folded into the code. A struct by value is a mapping of its members,
            ``{"p": {"x": "in *fp32", "n": "i32"}}``; a call passes each as a parameter of its own, ``p_x`` and ``p_n``.
        grid: as for :func:`silo.kernel`; with clusters it counts clusters.
        name: the kernel's name; its entry by default.
        entry: the symbol to launch, if the binary has several.
        threads: threads of a block: 256, or (16, 16) or (8, 8, 4) for blocks of two or three dimensions; needed if the
            binary does not fix them.
        shared_bytes: dynamic shared memory of a block, in bytes.
        cluster: blocks of a cluster along each axis; read from the binary by default.
        cooperative: launch cooperatively, so that blocks may wait for each other.
        pdl: use programmatic dependent launch (NVIDIA).
        target: the target that the binary was built for, such as ``cuda:sm_100a``; read from the binary by default. A
            cubin does not record whether it is for an ``a`` architecture: if it is, name the target.
        facts: the binary's assumptions: ``{"x": "aligned16", "n": "divisible16", "k": 4096}``. A call that no
            binary fits, because each has a false assumption, is an error.
        scratch_bytes: bytes of memory for each program, passed as the ``scratch`` parameter.
        scratch_align: alignment of this memory in bytes.
        release_gil: as for :func:`silo.kernel`.

    Raises:
        SourceError: the file is missing, is not device code, or its parameters differ from the signature.
        TargetError: the target does not parse, or differs from the binary's.
        TraceError: the grid cannot be traced to an expression.
    """
    everything = Binary(
        code=b"",
        target=target,
        facts=dict(facts or {}),
        entry=entry,
        threads=threads,
        shared_bytes=shared_bytes,
        cluster=cluster,
        cooperative=cooperative,
        pdl=pdl,
        scratch_bytes=scratch_bytes,
        scratch_align=scratch_align,
    )
    several = tuple(code) if isinstance(code, list | tuple) else (cast("Code | Binary", code),)
    if not several:
        raise SourceError(f"{name or 'silo.binary'}: the list of binaries is empty")
    declared = parse_signature(name or entry or "the binary", signature)
    codes = [
        binary_code(completed(item, everything), declared.signature, declared.layout, declared.maps) for item in several
    ]
    source = BinarySource(
        name=name or codes[0].launch.entry,
        signature=guarded(declared.signature, codes),
        codes=tuple(codes),
        location=_caller(),
    )
    return Declaration(source=source, grid=grid, release_gil=release_gil)


def _caller() -> str:
    """Returns ``file:line`` of the call of ``silo.binary``."""
    frame = sys._getframe()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # documented; cheaper than a stack
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "silo":
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
