"""The declarations of the compilers of CUDA C++ for GPUs, read before a compiler is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration

__all__ = ["HIPCLANG", "NVRTC"]

# The packages whose files decide the code's bytes: modules that make the job or define its inputs, and modules that
# read launch info from the binary. ``-`` excludes a package.
_CODE = ("silo.kinds.cuda_cpp", "-silo.kinds.cuda_cpp.cpu", "silo.artifacts")

NVRTC = CompilerDeclaration(
    name="nvrtc",
    compiler="silo.kinds.cuda_cpp.nvrtc_compiler:NvrtcCompiler",
    sources=("cuda",),
    targets=("cuda",),
    # empty: a config sets macros, template arguments, threads and shared memory, which are constants of the source
    options=(),
    blobs=(BlobKind("cubin"),),
    code=_CODE,
)

HIPCLANG = CompilerDeclaration(
    name="hipclang",
    compiler="silo.kinds.cuda_cpp.hip_compiler:HipCompiler",
    sources=("cuda",),
    targets=("hip",),
    options=(),
    blobs=(BlobKind("hsaco"),),
    code=_CODE,
)
