"""The declaration of the compiler of CUDA C++ for the CPU, read before the compiler is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration, Option

__all__ = ["CUDACPU"]

CUDACPU = CompilerDeclaration(
    name="cudacpu",
    compiler="silo.kinds.cuda_cpp.cpu.cuda_cpu_compiler:CudaCpuCompiler",
    sources=("cuda",),
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
    blobs=(BlobKind("so", host_code=True), BlobKind("cudajob", checked_text=True)),
    code=("silo.kinds.cuda_cpp", "silo.emulation"),
)
