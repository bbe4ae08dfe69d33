"""Declares the two compilers of Metal kernels, for the CPU and for Metal devices, and the loader for Metal devices."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration, LoaderDeclaration, Option

__all__ = ["EMULATOR", "METAL", "MSL"]

EMULATOR = CompilerDeclaration(
    name="metalcpu",
    compiler="silo.kinds.metal.metal_compiler:EmulatorCompiler",
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
    # The packages whose code decides the compiled code: they read the text, and have the headers against which it is
    # compiled.
    code=("silo.kinds.metal", "-silo.kinds.metal.programs", "silo.emulation", "silo.drivers.metal"),
)

METAL = CompilerDeclaration(
    name="metal",
    compiler="silo.kinds.metal.shader_compiler:ShaderCompiler",
    sources=("metal",),
    targets=("metal",),
    options=(),  # empty: a config sets group sizes and other values, which are constants of the source
    blobs=(BlobKind("msl"),),
    code=("silo.kinds.metal", "-silo.kinds.metal.programs", "silo.emulation", "silo.drivers.metal"),
    in_process=True,
)

# Not host code: the text runs only on the GPU.
MSL = LoaderDeclaration("msl", host_code=False, load="silo.kinds.metal.metal_loader:load_msl")
