"""Blob bytes as they lie in a bundle: raw, or one zstd frame that states its content size."""

from __future__ import annotations

import threading

import zstandard

__all__ = ["LEVEL", "ZSTD_VERSION", "CodecError", "compress", "decompress", "stated_size"]

LEVEL = 19
ZSTD_VERSION = ".".join(str(part) for part in zstandard.ZSTD_VERSION)

# zstandard's objects may not be used by two threads at once.
_local = threading.local()


class CodecError(ValueError):
    """Stored bytes that are not what they say."""


def compress(data: bytes) -> tuple[str, bytes]:
    """The codec and stored form of ``data``: a zstd frame where that is smaller, else the bytes themselves.

    The same bytes for the same version of libzstd.
    """
    frame = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False, write_content_size=True).compress(data)
    return ("zstd", frame) if len(frame) < len(data) else ("raw", data)


def decompress(codec: str, stored: bytes | memoryview, raw_bytes: int) -> bytes:
    """The ``raw_bytes`` bytes behind a stored form; never more memory than that. Raises :class:`CodecError`."""
    if codec == "raw":
        if len(stored) != raw_bytes:
            raise CodecError(f"{len(stored)} raw bytes where {raw_bytes} are stated")
        return bytes(stored)
    try:
        # The frame's own claim decides how much zstd allocates, so it is compared before anything is decompressed.
        stated = zstandard.frame_content_size(stored)
        if stated != raw_bytes:
            raise CodecError(f"the zstd frame holds {stated} bytes where {raw_bytes} are stated")
        data = _decompressor().decompress(stored, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CodecError(f"not a zstd frame: {error}") from None
    if len(data) != raw_bytes:
        raise CodecError(f"the zstd frame gave {len(data)} bytes where {raw_bytes} are stated")
    return data


def stated_size(frame: bytes | memoryview, limit: int) -> int:
    """The content size that a zstd frame states; :class:`CodecError` where it is more than ``limit`` or missing."""
    try:
        size = zstandard.frame_content_size(frame)
    except zstandard.ZstdError as error:
        raise CodecError(f"not a zstd frame: {error}") from None
    if size < 0:
        raise CodecError("the zstd frame does not state its content size")
    if size > limit:
        raise CodecError(f"the zstd frame holds {size} bytes where {limit} are allowed")
    return size


def _decompressor() -> zstandard.ZstdDecompressor:
    found: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if found is None:
        found = _local.decompressor = zstandard.ZstdDecompressor()
    return found
