"""The outer layout of a .silo file: its header, limits, alignment and versions (docs/bundle-format.md).

All numbers are little-endian. The file consists of the header (64 bytes), the blobs and the manifest. Each blob and the
manifest start at a multiple of 64, the bytes between are zero, and the manifest ends the file.
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
MAJOR = 1  # the version of written files; their minor version is the lowest that can express the contents
LAYOUTS_MINOR = 3  # the minor version that added structs and dynamic layouts
MEMBERS_MINOR = 8  # the minor version that added structs by value, whose members are parameters
HEADER_BYTES = 64
ALIGNMENT = 64

MAX_MANIFEST_BYTES = 256 << 20  # the most bytes of the manifest, both as stored and decompressed
MAX_BLOB_BYTES = 1 << 30
MAX_BLOBS = 1 << 20

MAX_ATTACHMENTS = 1 << 16
MAX_CASES = 4096  # the most cases of one kernel
MAX_STUDIES = 1024  # the most studies of one kernel with trials; low, because each case is compared with each study
MAX_RATIO = 256  # the most raw bytes for each stored byte, so that a kilobyte cannot expand to a gigabyte
# The fractions of the memory that a reader may spend on a file: the parsed manifest may take 1 / MANIFEST_SHARE of it.
# Each of these may take 1 / TEXT_SHARE: the text of the manifest, the text of the cases or trials of one kernel, and
# the text of a kernel's variants (each with its own copy of the table rows that it refers to). The objects made from
# the cases or trials of one kernel may take 1 / DOCUMENTS_SHARE.
MANIFEST_SHARE = 2
TEXT_SHARE = 4
DOCUMENTS_SHARE = 3
ITEM_BYTES = 40  # the memory that is counted for one item of a parsed document: a number, and its slot in a list

CASES_KIND = "cases"
TRIALS_KIND = "trials"
FILE_KIND = "file"  # the kind of attachments, in files of version 1.4 and later
DOCUMENT_KINDS = (CASES_KIND, TRIALS_KIND, FILE_KIND)

FLAG_ZSTD_MANIFEST = 1

_STRUCT = struct.Struct("<8sHHIQQ32s")


@frozen
class Header:
    """The first 64 bytes of a bundle.

    ``manifest_sha256``, the SHA-256 of the manifest's stored bytes, is the bundle's identity.
    """

    major: int
    minor: int
    zstd_manifest: bool
    manifest_offset: int
    manifest_bytes: int
    manifest_sha256: bytes


def aligned(offset: int) -> int:
    """Rounds ``offset`` up to a multiple of 64.

    >>> aligned(64), aligned(65)
    (64, 128)
    """
    return -(-offset // ALIGNMENT) * ALIGNMENT


def pack_header(header: Header) -> bytes:
    """Returns the 64 bytes of a header."""
    return _STRUCT.pack(
        MAGIC,
        header.major,
        header.minor,
        FLAG_ZSTD_MANIFEST if header.zstd_manifest else 0,
        header.manifest_offset,
        header.manifest_bytes,
        header.manifest_sha256,
    )
