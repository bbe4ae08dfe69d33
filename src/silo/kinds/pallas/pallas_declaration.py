"""The declaration of the Pallas compiler and of the loader of its programs, read before either is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration, LoaderDeclaration, Option

__all__ = ["JAXEXP", "PALLAS"]

PALLAS = CompilerDeclaration(
    name="pallas",
    compiler="silo.kinds.pallas.pallas_compiler:PallasCompiler",
    sources=("pallas",),
    targets=("tpu", "cpu", "cuda"),
    # These options are for GPUs only. A config sets block sizes and all other constants as constants of the source.
    options=(
        Option("num_warps", int, 4, "warps of a block", threads=32),
        Option("num_stages", int, 3, "stages of the pipelined loops"),
    ),
    # Host code: a program for a CPU is compiled to native code of this process when it is loaded. A program for a TPU
    # is not.
    blobs=(BlobKind("jaxexp", host_code=True),),
    # The package holds the modules that make the exported program, that define its inputs, and that call it.
    code=("silo.kinds.pallas",),
)

JAXEXP = LoaderDeclaration(
    "jaxexp",
    host_code=True,
    load="silo.kinds.pallas.pallas_loader:load_jaxexp",
    remark="silo.kinds.pallas.call_plan:proof_of",
    unmeasured=(
        ("cpu", "a CPU interprets Pallas kernels: what is fast there has fewer steps, which says nothing of a TPU"),
    ),
)
