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
) -> Any:  # noqa: ANN401  # what silo.binary gives: a kernel, whose call takes what the signature says
    """Make a Silo kernel of a compiled one: a cubin, an hsaco, or PTX.

    Args:
        code: the path of a file, its bytes, or PTX text; or several of them, each perhaps a :class:`Binary` with what
            is its own (target, facts, entry). A call gets the one that runs on its device and assumes most of what
            holds.
        signature: the parameters in the binary's order, ``"x: in *fp32, y: out *fp32, n: i32"`` or a mapping: arrays
            with what the kernel does with them (``in``, ``out``, ``inout``), scalars, ``null`` for pointers that are
            always null, ``scratch``, and constexprs for values folded into the code.
        grid: as for :func:`silo.kernel`; with clusters it counts clusters.
        name: what the kernel is called; its entry by default.
        entry: the symbol to launch, where the binary has several.
        threads: of a block: 256, or (16, 16) or (8, 8, 4) for blocks of two or three dimensions; needed where the
            binary does not fix them.
        shared_bytes: dynamic shared memory of a block, in bytes.
        cluster: blocks of a cluster on each axis; what the binary says by default.
        cooperative: launch cooperatively, so that blocks may wait for each other.
        pdl: programmatic dependent launch (NVIDIA).
        target: what the binary was built for, such as ``cuda:sm_100a``; read from it by default. A cubin does not say
            whether it is of an ``a`` form, so say it here.
        facts: what the binary assumes: ``{"x": "aligned16", "n": "divisible16", "k": 4096}``. A call where that does
            not hold is an error.
        scratch_bytes: memory that a ``scratch`` parameter points at, for each program.
        scratch_align: its alignment.
        release_gil: as for :func:`silo.kernel`.

    Raises:
        SourceError: no such file, not device code, or the binary takes other parameters than the signature says.
        TargetError: a target that does not parse, or is another than the binary's.
        TraceError: the grid cannot become an expression.
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
    """``file:line`` of the call of ``silo.binary``."""
    frame = sys._getframe()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # documented; cheaper than a stack
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "silo":
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
