"""zstd frames written by hand: the same bytes with every version of libzstd, and short where bytes repeat."""

from __future__ import annotations

import itertools
import struct

import zstandard

__all__ = ["frame"]

_BLOCK = 1 << 17  # the most bytes of one block
_LEAST = 8  # a run of fewer equal bytes is not worth a block of its own
_RAW, _REPEATED = 0, 1  # types of blocks


def frame(raw: bytes, *, checksum: bool = False, states_size: bool = True) -> bytes:
    """One frame of ``raw``: runs of equal bytes as RLE blocks, everything else as raw blocks."""
    head = b"\x28\xb5\x2f\xfd"
    if states_size:
        head += bytes([0xA0 | 4 * checksum]) + struct.pack("<I", len(raw))  # one segment, a size of four bytes
    else:
        head += bytes([4 * checksum, 0x50])  # a window of 1 MiB
    blocks = list(_blocks(raw))
    for number, (kind, length, data) in enumerate(blocks):
        last = number == len(blocks) - 1
        head += struct.pack("<I", int(last) | kind << 1 | length << 3)[:3] + data
    if checksum:  # the lower half of XXH64, the last four bytes of a frame of any compressor
        head += zstandard.ZstdCompressor(write_checksum=True).compress(raw)[-4:]
    return head


def _blocks(raw: bytes) -> list[tuple[int, int, bytes]]:
    """Type, length of the contents, and stored bytes of each block."""
    found: list[tuple[int, int, bytes]] = []
    plain = bytearray()

    def end_plain() -> None:
        for at in range(0, len(plain), _BLOCK):
            piece = bytes(plain[at : at + _BLOCK])
            found.append((_RAW, len(piece), piece))
        plain.clear()

    for value, run in itertools.groupby(raw):
        length = sum(1 for _ in run)
        if length < _LEAST:
            plain += bytes([value]) * length
            continue
        end_plain()
        found.extend((_REPEATED, min(_BLOCK, length - at), bytes([value])) for at in range(0, length, _BLOCK))
    end_plain()
    return found or [(_RAW, 0, b"")]
