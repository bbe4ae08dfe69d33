"""The declaration of the driver for TPUs, which jax drives. The devices are in ``tpu_device``."""

from silo.core.device import EXTENSION_MEMORY, DriverDeclaration, Memory

DRIVER = DriverDeclaration(
    kind="tpu", memory=Memory((EXTENSION_MEMORY,), {"jax": "tpu"}), vendor="google", example="v5e"
)
