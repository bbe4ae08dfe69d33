"""The declaration of the CuTe DSL compiler, read before the plug-in is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration

__all__ = ["CUTE"]

CUTE = CompilerDeclaration(
    name="cute",
    compiler="silo.backends.cute.compiler:CuteCompiler",
    sources=("cute",),
    targets=("cuda",),
    options=(),  # block, cluster, shared memory and every constexpr belong to the source, which a config may set
    blobs=(BlobKind("cubin"),),
    # What makes the job, what it is made from, and what reads the launch info off the binary.
    code=("silo.backends.cute", "silo.sources.cute", "silo.artifacts"),
)
