"""The result of a compile job: blobs and launch info."""

from __future__ import annotations

from silo.core.launch_info import LaunchInfo
from silo.frozen import frozen

__all__ = ["Compiled", "CompiledBlob"]


@frozen
class CompiledBlob:
    """One file of bytes with its kind, which the compiler declares."""

    kind: str
    data: bytes


@frozen
class Compiled:
    """The outcome of one compile job: launch info, the blob a driver loads, sidecars (C source, TTIR), notes."""

    launch: LaunchInfo
    blob: CompiledBlob
    sidecars: tuple[CompiledBlob, ...] = ()
    log: str = ""
