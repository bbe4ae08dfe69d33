"""The CPU: the facts of the kind here, what this machine's can do in ``levels``, the device in ``cpu_device``."""

import re

from silo.core.driver_declaration import HOST_MEMORY, DriverDeclaration, Memory
from silo.core.target import CPU_LEVELS

DRIVER = DriverDeclaration(
    kind="cpu",
    memory=Memory((HOST_MEMORY,)),
    preference=2,
    arch="|".join(re.escape(level) for levels in CPU_LEVELS.values() for level in levels),
    example="x86-64-v3",
    blobs=("so",),
    code_forms=("c", "asm"),
)
