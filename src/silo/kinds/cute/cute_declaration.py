"""The declaration of the CuTe DSL compiler, read before the plug-in is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration, LoaderDeclaration

__all__ = ["CUTE", "CUTEOBJ"]

CUTE = CompilerDeclaration(
    name="cute",
    compiler="silo.kinds.cute.cute_compiler:CuteCompiler",
    sources=("cute",),
    targets=("cuda",),
    options=(),  # a config sets block, cluster, shared memory and constexprs as constants of the source instead
    blobs=(BlobKind("cubin"), BlobKind("cuteobj", host_code=True)),
    # A change of one of these modules changes the compiler's identity: modules that make the job, modules that define
    # its inputs, and modules that read launch info from the binary.
    code=("silo.kinds.cute", "silo.artifacts"),
)

CUTEOBJ = LoaderDeclaration("cuteobj", host_code=True, load="silo.kinds.cute.host_loader:load_cuteobj")
