"""The declaration of the Triton compiler, read before the plug-in is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration, Option

__all__ = ["TRITON"]

TRITON = CompilerDeclaration(
    name="triton",
    compiler="silo.kinds.triton.gpu.gpu_compiler:TritonCompiler",
    sources=("triton",),
    targets=("cuda", "hip"),
    # Triton checks the values of these options, because its versions accept different values.
    options=(
        Option("num_warps", int, 4, "warps of a block", threads=32),
        Option("num_stages", int, 3, "stages that loops are pipelined in"),
        Option("num_ctas", int, 1, "blocks of a cluster"),
        Option("maxnreg", int, None, "the most registers a thread may use"),
        Option("waves_per_eu", int, 0, "AMD: waves that share an execution unit; 0 leaves it to the compiler"),
        Option("matrix_instr_nonkdim", int, 0, "AMD: the shape of matrix instructions; 0 leaves it to the compiler"),
        Option("kpack", int, 1, "AMD: how operands of matrix instructions are packed along k"),
        Option("launch_cooperative_grid", bool, meaning="all programs run at once, and may wait", default=False),
        Option("launch_pdl", bool, meaning="NVIDIA: programs may start before the previous launch ends", default=False),
        Option("enable_fp_fusion", bool, meaning="multiply and add may be rounded once", default=True, arithmetic=True),
        Option("debug", bool, meaning="device assertions are kept", default=False),
        Option("sanitize_overflow", bool, meaning="with debug: integer overflow is an assertion too", default=True),
        Option(
            "enable_reflect_ftz",
            bool,
            meaning="NVIDIA: subnormal numbers are zero in functions of its math library",
            default=True,
            arithmetic=True,
        ),
    ),
    blobs=(BlobKind("cubin"), BlobKind("hsaco")),
    # A change of one of these modules changes the compiler's identity: modules that make the job, modules that they
    # use, and modules that read the launch info from the binary. A leading "-" excludes a module.
    code=(
        "silo.kinds.triton.gpu",
        "silo.kinds.triton.front",
        "-silo.kinds.triton.front.operations.cpu",
        "-silo.kinds.triton.front.operations.nvidia",
        "silo.artifacts",
    ),
)
