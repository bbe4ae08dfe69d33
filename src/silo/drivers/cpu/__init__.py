"""The declaration of the CPU driver. The CPU's levels are in ``levels``, the device is in ``cpu_device``."""

import re
from itertools import chain

from silo.core.device import CPU_LEVELS, HOST_MEMORY, DriverDeclaration, Memory

DRIVER = DriverDeclaration(
    kind="cpu",
    memory=Memory((HOST_MEMORY,)),
    preference=2,
    arch="|".join(map(re.escape, chain.from_iterable(CPU_LEVELS.values()))),
    example="x86-64-v3",
    blobs=("so",),
    code_forms=("c", "asm"),
)
