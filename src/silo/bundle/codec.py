"""The stored form of blobs in a bundle: raw, or one zstd frame that states its content size."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

import zstandard

from silo.bundle.format import MAX_RATIO, aligned

__all__ = ["LEVEL", "ZSTD_VERSION", "CodecError", "believed", "compress", "decompress", "digest_of"]

LEVEL = 19
ZSTD_VERSION = ".".join(str(part) for part in zstandard.ZSTD_VERSION)

_PIECE = 1 << 20
_WINDOW = 1 << 25  # the most bytes of a frame's window; frames of compression level 19 need a quarter of this

# One zstandard object for each thread, because two threads must not use one at the same time.
_local = threading.local()


class CodecError(ValueError):
    """The stored bytes of a blob contradict their header or digest."""


def compress(data: bytes) -> tuple[str, bytes]:
    """Returns the codec and the stored form of ``data``: a zstd frame if that is smaller, else the bytes themselves.

    Equal bytes give equal results with the same version of libzstd. Bytes that shrink by more than readers accept are
    stored as they are.
    """
    frame = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False, write_content_size=True).compress(data)
    return ("zstd", frame) if believed(len(data), len(frame)) else ("raw", data)


def believed(raw_bytes: int, stored_bytes: int) -> bool:
    """Returns whether readers accept a blob of ``raw_bytes`` bytes in a frame of ``stored_bytes`` bytes."""
    return stored_bytes < raw_bytes <= MAX_RATIO * aligned(stored_bytes)


def decompress(stored: bytes, raw_bytes: int) -> bytes:
    """Returns the ``raw_bytes`` bytes of a zstd frame, and takes no more memory for them than that.

    Raises :class:`CodecError` if the frame states another size or is damaged.
    """
    try:
        # zstd allocates the size that the frame states, so this size is compared before anything is decompressed.
        stated = zstandard.frame_content_size(stored)
        if stated != raw_bytes:
            raise CodecError(f"the zstd frame holds {stated} bytes where {raw_bytes} are stated")
        data = _decompressor().decompress(stored, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CodecError(f"not a zstd frame: {error}") from None
    if len(data) != raw_bytes:
        raise CodecError(f"the zstd frame gave {len(data)} bytes where {raw_bytes} are stated")
    return data


def digest_of(codec: str, stored: memoryview, raw_bytes: int) -> str:
    """Returns the SHA-256 of a blob's raw bytes in hex, computed a piece at a time. Raises :class:`CodecError`."""
    digest = hashlib.sha256()
    for piece in _pieces(codec, stored, raw_bytes):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(codec: str, stored: memoryview, raw_bytes: int) -> Iterator[bytes]:
    if codec == "raw":
        yield from (bytes(stored[at : at + _PIECE]) for at in range(0, raw_bytes, _PIECE))
        return
    try:
        parameters = zstandard.get_frame_parameters(stored)
        if parameters.content_size != raw_bytes:
            raise CodecError(f"the zstd frame holds {parameters.content_size} bytes where {raw_bytes} are stated")
        if parameters.window_size > min(raw_bytes, _WINDOW) or parameters.dict_id:
            raise CodecError(f"the zstd frame needs a window of {parameters.window_size} bytes, or a dictionary")
        if (length := _frame_length(stored, checksum=parameters.has_checksum)) != len(stored):
            raise CodecError(f"the zstd frame is {length} bytes long where {len(stored)} are stored")
        remaining = raw_bytes
        with zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(stored) as reader:
            while piece := reader.read(_PIECE):
                remaining -= len(piece)
                yield piece
    except zstandard.ZstdError as error:
        raise CodecError(f"not a zstd frame: {error}") from None
    if remaining:
        raise CodecError(f"the zstd frame gave {raw_bytes - remaining} bytes where {raw_bytes} are stated")


def _frame_length(frame: memoryview, *, checksum: bool) -> int:
    """Returns the position where the first frame ends, by the headers of its blocks.

    If the frame is cut, the position lies beyond the data.
    """
    at, last = zstandard.frame_header_size(frame), False
    while not last:
        if at + 3 > len(frame):
            return at + 3
        header = int.from_bytes(frame[at : at + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == 1 else size)  # a block of kind 1 stores one byte, which is repeated
    return at + 4 * checksum


def _decompressor() -> zstandard.ZstdDecompressor:
    decompressor: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if decompressor is None:
        decompressor = _local.decompressor = zstandard.ZstdDecompressor()
    return decompressor
