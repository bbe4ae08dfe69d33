"""The declaration of the Pallas compiler and of the loader of its programs, read before either is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration, LoaderDeclaration, Option

__all__ = ["JAXEXP", "PALLAS"]

PALLAS = CompilerDeclaration(
    name="pallas",
    compiler="silo.kinds.pallas.pallas_compiler:PallasCompiler",
    sources=("pallas",),
    targets=("tpu", "cpu", "cuda"),
    # Block sizes and every other constant belong to the source, which a config may set. These are for GPUs alone.
    options=(
        Option("num_warps", int, 4, "warps of a block", threads=32),
        Option("num_stages", int, 3, "stages of the pipelined loops"),
    ),
    # A program for a TPU runs there; one for a CPU is compiled to native code of this process when it is loaded.
    blobs=(BlobKind("jaxexp", host_code=True),),
    # Modules that make the program, that define its inputs, and that call it.
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
