"""The table of the plug-ins that Silo ships: their places, compile options and kinds of blobs.

Looking through every installed distribution, and importing each compiler's declaration, takes longer than launching a
kernel. So the places are known beforehand (group of entry points, name, ``module:attribute``; ``pyproject.toml`` has
the same for other programs), and so are the words that the declarations have between them. A test compares all of it
with ``pyproject.toml`` and the declarations.
"""

from __future__ import annotations

SHIPPED: dict[str, dict[str, str]] = {
    "silo.compilers": {
        "binary": "silo.backends.binary.declaration:BINARY",
        "cpu": "silo.backends.cpu.declaration:CPU",
        "cute": "silo.backends.cute.declaration:CUTE",
        "metal": "silo.backends.metal.declaration:METAL",
        "metalcpu": "silo.backends.metal.declaration:EMULATOR",
        "pallas": "silo.backends.pallas.declaration:PALLAS",
        "triton": "silo.backends.triton.declaration:TRITON",
    },
    "silo.devices": {
        "cpu": "silo.backends.cpu.device:devices",
        "cuda": "silo.backends.cuda.device:devices",
        "hip": "silo.backends.hip.device:devices",
        "metal": "silo.backends.metal.device:devices",
        "tpu": "silo.backends.tpu.device:devices",
    },
    "silo.loaders": {
        "cuteobj": "silo.backends.cute.declaration:CUTEOBJ",
        "jaxexp": "silo.backends.pallas.declaration:JAXEXP",
        "msl": "silo.backends.metal.declaration:MSL",
    },
    "silo.sources": {
        "binary": "silo.sources.binary.kind:Kind",
        "cute": "silo.sources.cute.kind:Kind",
        "metal": "silo.sources.metal.kind:Kind",
        "pallas": "silo.sources.pallas.kind:Kind",
        "triton": "silo.sources.triton.kind:Kind",
    },
}

# Names of compile options, and which of them go to launch info.
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
    "cpu_chunk",
    "cpu_dot_rows",
    "cpu_dot_units",
    "cpu_dot_vectors",
    "cpu_elements_apart",
    "cpu_launch_atomics",
    "cpu_threads",
    "cpu_work",
)
LAUNCH_OPTIONS: tuple[str, ...] = ("cpu_chunk", "cpu_threads", "cpu_work")

# Kinds of blobs: whether they run on the host when loaded, and whether they are the text that a check compiles.
BLOB_KINDS: dict[str, tuple[bool, bool]] = {
    "c": (False, False),
    "cubin": (False, False),
    "cuteobj": (True, False),
    "hsaco": (False, False),
    "jaxexp": (True, False),
    "metaljob": (False, True),
    "msl": (False, False),
    "ptx": (False, False),
    "so": (True, False),
    "ttir": (False, True),
}
