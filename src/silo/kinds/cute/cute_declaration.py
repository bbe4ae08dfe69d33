"""The declaration of the CuTe DSL compiler, read before the plug-in is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration, LoaderDeclaration

__all__ = ["CUTE", "CUTEOBJ"]

CUTE = CompilerDeclaration(
    name="cute",
    compiler="silo.kinds.cute.cute_compiler:CuteCompiler",
    sources=("cute",),
    targets=("cuda",),
    options=(),  # block, cluster, shared memory and every constexpr belong to the source, which a config may set
    blobs=(BlobKind("cubin"), BlobKind("cuteobj", host_code=True)),
    # Modules that make the job, that define its inputs, and that read launch info from the binary.
    code=("silo.kinds.cute", "silo.artifacts"),
)

CUTEOBJ = LoaderDeclaration("cuteobj", host_code=True, load="silo.kinds.cute.host_loader:load_cuteobj")
