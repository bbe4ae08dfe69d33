"""Imports that a program makes before it launches Triton kernels, for the warm process whose children launch them.

It imports the modules that these programs import, and those that ``silo.accelerate`` imports for them. It compiles
nothing, chooses no driver and reads no setting. Triton's digest of its own installation, which is the same for every
process, is computed once here.
"""

import importlib

for _name in (
    "zstandard",
    "triton.language",
    "triton.backends.nvidia.driver",
    "triton.compiler.code_generator",
    "silo.drivers.cuda.cuda_device",
    "silo.machine.process_session",
    "silo.kinds.triton.programs.program_kernels",
    "silo.kinds.triton.programs.searches.ahead_compiles",
    "silo.kinds.triton.programs.searches.tuner_search",
    "silo.kinds.triton.programs.triton_patching",
    "silo.kinds.triton.programs.launch_report",
    "silo.kinds.triton.programs.records.stored_decisions",
    "silo.kinds.triton.programs.records.stored_decisions",
    "silo.kinds.triton.programs.records.stored_first_compile",
):
    importlib.import_module(_name)
importlib.import_module("triton.runtime.cache").triton_key()
