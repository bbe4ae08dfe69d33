"""The declaration of the Pallas compiler and of the loader of what it makes, read before either is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration, LoaderDeclaration

__all__ = ["JAXEXP", "PALLAS"]

PALLAS = CompilerDeclaration(
    name="pallas",
    compiler="silo.backends.pallas.compiler:PallasCompiler",
    sources=("pallas",),
    targets=("tpu", "cpu", "cuda"),
    options=(),  # block sizes and every other constant belong to the source, which a config may set
    # A program for a TPU runs there; one for a CPU is compiled to native code of this process when it is loaded.
    blobs=(BlobKind("jaxexp", host_code=True),),
    # What makes the program, what it is made from, and what calls it.
    code=("silo.backends.pallas", "silo.sources.pallas"),
)

JAXEXP = LoaderDeclaration("jaxexp", host_code=True, load="silo.backends.pallas.loader:load_jaxexp")
