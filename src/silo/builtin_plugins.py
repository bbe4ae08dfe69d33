"""The table of the plug-ins that Silo ships: their import paths, compile options and kinds of blobs.

Without the table, Silo would search every installed distribution and import each compiler's declaration, which takes
longer than launching a kernel. The table lists the import paths (group of entry points, name, ``module:attribute``) and
the options and blob kinds of the compiler declarations. ``pyproject.toml`` repeats the import paths for other programs.
A test compares the table with ``pyproject.toml`` and the declarations. Drivers are not in the table: each folder of
``silo/drivers`` is a driver (:func:`silo.core.plugins.driver_kinds`).
"""

from __future__ import annotations

SHIPPED: dict[str, dict[str, str]] = {
    "silo.compilers": {
        "binary": "silo.kinds.binary.binary_declaration:BINARY",
        "cpu": "silo.kinds.triton.cpu.cpu_declaration:CPU",
        "cudacpu": "silo.kinds.cuda_cpp.cpu.cpu_declaration:CUDACPU",
        "cute": "silo.kinds.cute.cute_declaration:CUTE",
        "hipclang": "silo.kinds.cuda_cpp.cuda_declaration:HIPCLANG",
        "metal": "silo.kinds.metal.metal_declaration:METAL",
        "metalcpu": "silo.kinds.metal.metal_declaration:EMULATOR",
        "nvrtc": "silo.kinds.cuda_cpp.cuda_declaration:NVRTC",
        "pallas": "silo.kinds.pallas.pallas_declaration:PALLAS",
        "triton": "silo.kinds.triton.gpu.gpu_declaration:TRITON",
    },
    "silo.loaders": {
        "cuteobj": "silo.kinds.cute.cute_declaration:CUTEOBJ",
        "jaxexp": "silo.kinds.pallas.pallas_declaration:JAXEXP",
        "msl": "silo.kinds.metal.metal_declaration:MSL",
    },
    "silo.sources": {
        "binary": "silo.kinds.binary.binary_kind:BinaryKind",
        "cuda": "silo.kinds.cuda_cpp.cuda_kind:CudaKind",
        "cute": "silo.kinds.cute.front.cute_kind:CuteKind",
        "metal": "silo.kinds.metal.front.metal_kind:MetalKind",
        "pallas": "silo.kinds.pallas.front.pallas_kind:PallasKind",
        "triton": "silo.kinds.triton.front.triton_kind:TritonKind",
    },
}

# OPTIONS has the names of all compile options; LAUNCH_OPTIONS the names of those options that are also stored in launch
# info.
OPTIONS: tuple[str, ...] = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "kpack",
    "launch_cooperative_grid",
    "launch_pdl",
    "enable_fp_fusion",
    "debug",
    "sanitize_overflow",
    "enable_reflect_ftz",
    "cpu_chunk",
    "cpu_dot_rows",
    "cpu_dot_units",
    "cpu_dot_vectors",
    "cpu_elements_apart",
    "cpu_launch_atomics",
    "cpu_row_parts",
    "cpu_threads",
    "cpu_work",
)
LAUNCH_OPTIONS: tuple[str, ...] = ("cpu_chunk", "cpu_threads", "cpu_work")

# For each kind of blob: whether the blob is code that runs on the host when it is loaded, and whether it is text that
# a check (``silo check``, ``SILO_CHECK=1``) compiles into checking code.
BLOB_KINDS: dict[str, tuple[bool, bool]] = {
    "c": (False, False),
    "cubin": (False, False),
    "cudajob": (False, True),
    "cuteobj": (True, False),
    "hsaco": (False, False),
    "jaxexp": (True, False),
    "metaljob": (False, True),
    "msl": (False, False),
    "ptx": (False, False),
    "so": (True, False),
    "ttir": (False, True),
}
