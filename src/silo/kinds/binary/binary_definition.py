"""``silo.binary``: kernels compiled by other tools."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from silo.core.target import Target
from silo.core.values import Value
from silo.errors import SourceError
from silo.kinds.binary.binary_parameters import parse_signature
from silo.kinds.binary.binary_source import BinarySource
from silo.kinds.binary.description import Binary, Code, binary_code, completed, guarded
from silo.sources.declaration import Declaration

__all__ = ["Binary", "binary"]


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
    """Make a Silo kernel of a compiled one: a cubin, an hsaco, or PTX.

    Args:
        code: the path of a file, its bytes, or PTX text; or several of them, each perhaps a :class:`Binary` with fields
            of its own (target, facts, entry). Of the binaries that run on its device, a call gets the one with the most
            assumptions that hold.
        signature: the parameters in the binary's order, ``"x: in *fp32, y: out *fp32, n: i32"`` or a mapping: arrays
            with their effect (``in``, ``out``, ``inout``), scalars, ``null`` for pointers that are always null,
            ``scratch``, and constexprs for values folded into the code.
        grid: as for :func:`silo.kernel`; with clusters it counts clusters.
        name: the kernel's name; its entry by default.
        entry: the symbol to launch, if the binary has several.
        threads: threads of a block: 256, or (16, 16) or (8, 8, 4) for blocks of two or three dimensions; needed if the
            binary does not fix them.
        shared_bytes: dynamic shared memory of a block, in bytes.
        cluster: blocks of a cluster along each axis; read from the binary by default.
        cooperative: launch cooperatively, so that blocks may wait for each other.
        pdl: programmatic dependent launch (NVIDIA).
        target: the target that the binary was built for, such as ``cuda:sm_100a``; read from it by default. A cubin
            does not record whether it is for an ``a`` architecture, so name the target for one.
        facts: the binary's assumptions: ``{"x": "aligned16", "n": "divisible16", "k": 4096}``. A call for which they do
            not hold is an error.
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
    codes = [binary_code(completed(one, everything), declared.signature, declared.layout) for one in several]
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
