"""The GPUs of Macs, through torch or MLX: the facts of the kind here, the device in ``metal_device``."""

from silo.core.device import DriverDeclaration, Memory

DRIVER = DriverDeclaration(
    kind="metal", memory=Memory((8,), {"torch": "mps"}), vendor="apple", arch=r"[1-9]\.[0-9]", example="3.1"
)
