"""The declaration of the plug-in for finished binaries, read before the plug-in is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration

__all__ = ["BINARY"]

BINARY = CompilerDeclaration(
    name="binary",
    compiler="silo.kinds.binary.binary_compiler:BinaryCompiler",
    sources=("binary",),
    targets=(),  # each binary names the targets that it runs on
    options=(),
    blobs=(BlobKind("cubin"), BlobKind("hsaco"), BlobKind("ptx")),
    code=("silo.kinds.binary", "silo.artifacts"),
    in_process=True,  # checking and copying bytes takes less time than starting a worker process
)
