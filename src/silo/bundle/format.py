"""The outer layout of a .silo file: its header, limits, alignment and versions (docs/bundle-format.md).

Little-endian throughout. The file is: header (64 bytes), blobs, manifest; each blob and the manifest start at a
multiple of 64, the bytes between are zero, and the manifest ends the file.
"""

from __future__ import annotations

import struct

from silo.frozen import frozen

__all__ = [
    "ALIGNMENT",
    "CASES_KIND",
    "DOCUMENTS_SHARE",
    "DOCUMENT_KINDS",
    "FILE_KIND",
    "HEADER_BYTES",
    "ITEM_BYTES",
    "LAYOUTS_MINOR",
    "MAGIC",
    "MAJOR",
    "MANIFEST_SHARE",
    "MAX_ATTACHMENTS",
    "MAX_BLOBS",
    "MAX_BLOB_BYTES",
    "MAX_CASES",
    "MAX_MANIFEST_BYTES",
    "MAX_RATIO",
    "MAX_STUDIES",
    "TEXT_SHARE",
    "TRIALS_KIND",
    "Header",
    "aligned",
    "pack_header",
]

MAGIC = b"SILOBNDL"
MAJOR = 1  # of files being written; of minor versions the lowest that can express the contents
LAYOUTS_MINOR = 3  # added structs and dynamic layouts. Members declare the version that added them
MEMBERS_MINOR = 8  # added structs by value, whose members are parameters
HEADER_BYTES = 64
ALIGNMENT = 64

MAX_MANIFEST_BYTES = 256 << 20  # stored or decompressed
MAX_BLOB_BYTES = 1 << 30
MAX_BLOBS = 1 << 20

MAX_ATTACHMENTS = 1 << 16
MAX_CASES = 4096  # of one kernel
MAX_STUDIES = 1024  # of one kernel, each with trials; each case is compared with each
MAX_RATIO = 256  # a blob's raw bytes for each stored byte: no kilobyte becomes a gigabyte
# Divisors of the memory that a reader may spend on a file: the parsed manifest; its text, and the text of the cases or
# trials of one kernel; the text of a kernel's variants, each with its own copy of the table rows it refers to;
# the objects made from the cases or trials of one kernel.
MANIFEST_SHARE = 2
TEXT_SHARE = 4
DOCUMENTS_SHARE = 3
ITEM_BYTES = 40  # the object of one item of a document: a number, with its place

CASES_KIND = "cases"
TRIALS_KIND = "trials"
FILE_KIND = "file"  # of attachments; from 1.4 on
DOCUMENT_KINDS = (CASES_KIND, TRIALS_KIND, FILE_KIND)

FLAG_ZSTD_MANIFEST = 1

_STRUCT = struct.Struct("<8sHHIQQ32s")


@frozen
class Header:
    """The first 64 bytes. ``manifest_sha256`` is over the manifest's stored bytes and is the bundle's identity."""

    major: int
    minor: int
    zstd_manifest: bool
    manifest_offset: int
    manifest_bytes: int
    manifest_sha256: bytes


def aligned(offset: int) -> int:
    """The next multiple of 64.

    >>> aligned(64), aligned(65)
    (64, 128)
    """
    return -(-offset // ALIGNMENT) * ALIGNMENT


def pack_header(header: Header) -> bytes:
    """The 64 bytes of a header."""
    return _STRUCT.pack(
        MAGIC,
        header.major,
        header.minor,
        FLAG_ZSTD_MANIFEST if header.zstd_manifest else 0,
        header.manifest_offset,
        header.manifest_bytes,
        header.manifest_sha256,
    )
