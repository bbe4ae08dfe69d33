"""The declaration of the emulator of Metal kernels, read before the plug-in is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration, Option

__all__ = ["EMULATOR"]

EMULATOR = CompilerDeclaration(
    name="metalcpu",
    compiler="silo.backends.metal.compiler:EmulatorCompiler",
    sources=("metal",),
    targets=("cpu",),
    options=(
        Option(
            "cpu_chunk",
            int,
            0,
            "the most programs a thread takes at a time; 0 for the usual",
            allowed=range(1 << 20),
            launch=True,
        ),
        Option(
            "cpu_threads", int, 0, "the most threads that share a launch; 0 for all", allowed=range(1025), launch=True
        ),
    ),
    blobs=(BlobKind("so", host_code=True), BlobKind("metaljob", checked_text=True)),
    # The reader of the text, and this package with the headers that the text is compiled against.
    code=("silo.backends.metal", "silo.sources.metal"),
)
