"""The declaration of the CPU compiler, read before the plug-in is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration, Option

__all__ = ["CPU"]

CPU = CompilerDeclaration(
    name="cpu",
    compiler="silo.kinds.triton.cpu.cpu_compiler:CpuCompiler",
    sources=("triton",),
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
            "cpu_dot_rows",
            int,
            0,
            "rows of a dot's sums kept in registers, 1 to 16; 0 for the usual",
            allowed=range(17),
        ),
        Option(
            "cpu_dot_units",
            int,
            2,
            "0 the level's instructions, 1 vector instructions beyond it, 2 matrix tiles too",
            allowed=range(3),
        ),
        Option(
            "cpu_dot_vectors",
            int,
            0,
            "vectors of a row of a dot's sums kept in registers, 1 to 4; 0 for the usual",
            allowed=range(5),
        ),
        Option(
            "cpu_elements_apart",
            bool,
            meaning="an element of a block reads nothing that another writes, and no two write one place",
            default=False,
        ),
        Option(
            "cpu_launch_atomics",
            bool,
            meaning="atomics need hold among the programs of one launch only: nothing else reaches their memory then",
            default=False,
        ),
        Option(
            "cpu_row_parts",
            bool,
            meaning="a product writes no memory that it reads: threads may share one of its programs",
            default=False,
        ),
        Option(
            "cpu_threads", int, 0, "the most threads that share a launch; 0 for all", allowed=range(1025), launch=True
        ),
        Option(
            "cpu_work",
            int,
            0,
            "nanoseconds that a program takes, until launches have told; 0 for an estimate",
            allowed=range((1 << 30) + 1),
            launch=True,
        ),
        # The options of Triton that have an effect on a CPU; Triton's other options change nothing.
        Option("launch_cooperative_grid", bool, meaning="all programs run at once, and may wait", default=False),
        Option("enable_fp_fusion", bool, meaning="multiply and add may be rounded once", default=True, arithmetic=True),
    ),
    blobs=(BlobKind("so", host_code=True), BlobKind("c"), BlobKind("ttir", checked_text=True)),
    # The modules that turn a kernel into C text: its front end and parser, and this package with the C runtime it
    # emits.
    code=("silo.kinds.triton.cpu", "silo.kinds.triton.front", "silo.kinds.triton.programs.backend", "silo.drivers.cpu"),
)
