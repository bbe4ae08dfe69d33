"""The results of compile jobs: blobs and launch info, or the files of a framework's own cache."""

from __future__ import annotations

from silo.core.launch_info import LaunchInfo
from silo.frozen import frozen

__all__ = ["CacheFiles", "Compiled", "CompiledBlob"]


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


@frozen
class CacheFiles:
    """The files that a framework's own compile would leave in its cache, in the order it writes them.

    ``files`` holds the ending of each file's name, and its content. Empty: ``reason`` says why the framework has to
    compile this itself.
    """

    files: tuple[tuple[str, bytes], ...]
    reason: str = ""
