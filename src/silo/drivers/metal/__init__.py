"""The declaration of the driver for GPUs of Macs, which torch or MLX drives. The device is in ``metal_device``."""

from silo.core.device import DriverDeclaration, Memory

DRIVER = DriverDeclaration(
    kind="metal", memory=Memory((8,), {"torch": "mps"}), vendor="apple", arch=r"[1-9]\.[0-9]", example="3.1"
)
