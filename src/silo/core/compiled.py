"""What a compiler hands back: blobs and launch info."""

from __future__ import annotations

from silo.core.launch_info import LaunchInfo
from silo.frozen import frozen

__all__ = ["BLOB_KINDS", "HOST_CODE_KINDS", "Compiled", "CompiledBlob"]

BLOB_KINDS = ("cubin", "hsaco", "ptx", "so", "metallib", "spv", "stablehlo", "c", "ttir", "fake")

# Kinds that run on the host when loaded, so that the trust rule applies to them.
HOST_CODE_KINDS = frozenset({"so"})


@frozen
class CompiledBlob:
    """One file of bytes with its kind (one of :data:`BLOB_KINDS`)."""

    kind: str
    data: bytes


@frozen
class Compiled:
    """The outcome of one compile job: launch info, the blob a driver loads, sidecars (C source, TTIR), notes."""

    launch: LaunchInfo
    blob: CompiledBlob
    sidecars: tuple[CompiledBlob, ...] = ()
    log: str = ""
