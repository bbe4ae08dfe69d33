"""The driver for TPUs, through jax. Here: its declaration. The devices are in ``tpu_device``."""

from silo.core.device import EXTENSION_MEMORY, DriverDeclaration, Memory

DRIVER = DriverDeclaration(
    kind="tpu", memory=Memory((EXTENSION_MEMORY,), {"jax": "tpu"}), vendor="google", example="v5e"
)
