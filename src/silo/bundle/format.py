"""The outer layout of a .silo file: its header, limits, alignment and versions (docs/bundle-format.md).

Little-endian throughout. The file is: header (64 bytes), blobs, manifest; each blob and the manifest start at a
multiple of 64, the bytes between are zero, and the manifest ends the file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from silo.core.launch_info import AbiType, LaunchInfo
from silo.errors import BundleFormatError, BundleVersionError
from silo.frozen import frozen

if TYPE_CHECKING:
    from silo.core.extents import ArrayExtents
    from silo.core.specialization import Specialization

__all__ = [
    "ALIGNMENT",
    "ATTACHMENTS_MINOR",
    "CASES_KIND",
    "CODECS",
    "CONTIGUOUS_MINOR",
    "DOCUMENTS_SHARE",
    "DOCUMENT_KINDS",
    "EXPANDED_SHARE",
    "FILE_KIND",
    "HEADER_BYTES",
    "HIDDEN_MEMORY_MINOR",
    "ITEM_BYTES",
    "KERNEL_ADDED",
    "MAGIC",
    "MAJOR",
    "MANIFEST_SHARE",
    "MAX_ATTACHMENTS",
    "MAX_BLOBS",
    "MAX_BLOB_BYTES",
    "MAX_CASES",
    "MAX_KERNELS",
    "MAX_MANIFEST_BYTES",
    "MAX_RATIO",
    "MAX_RULES",
    "MAX_SIDECARS",
    "MAX_STUDIES",
    "MAX_VARIANTS",
    "MINOR",
    "RULES_ADDED",
    "TEXT_SHARE",
    "TOP_ADDED",
    "TRIALS_KIND",
    "VARIANT_ADDED",
    "Header",
    "aligned",
    "pack_header",
    "parse_header",
    "require_minor",
    "version_of_extents",
    "version_of_launch",
    "version_of_specialization",
]

MAGIC = b"SILOBNDL"
MAJOR, MINOR = 1, 6  # the newest that is read; what is written is the lowest that can express the contents
HEADER_BYTES = 64
ALIGNMENT = 64

MAX_MANIFEST_BYTES = 256 << 20  # stored or decompressed
MAX_BLOB_BYTES = 1 << 30
MAX_BLOBS = 1 << 20
MAX_KERNELS = 1 << 16
MAX_VARIANTS = 1 << 20  # of one kernel

MAX_ATTACHMENTS = 1 << 16
MAX_RULES = 4096  # of one kernel: one for each target and signature
MAX_CASES = 4096  # of one kernel
MAX_STUDIES = 1024  # of one kernel, each with trials; each case is compared with each
MAX_SIDECARS = 16  # of one variant
MAX_RATIO = 256  # of a blob's raw bytes to the room it takes in the file: no kilobyte becomes a gigabyte
# Of the memory that a reader may spend on a file, as a divisor: what the parsed manifest may take; its text, and that
# of the cases or trials of one kernel; the text that a kernel's variants come to, each with its own copy of the table
# rows it refers to; what is made of the cases or trials of one kernel.
MANIFEST_SHARE = 2
TEXT_SHARE = 4
EXPANDED_SHARE = 8
DOCUMENTS_SHARE = 3
ITEM_BYTES = 40  # what is made of one item of a document: a number, with its place

CASES_KIND = "cases"
TRIALS_KIND = "trials"
FILE_KIND = "file"  # of attachments; from 1.4 on
DOCUMENT_KINDS = (CASES_KIND, TRIALS_KIND, FILE_KIND)
CODECS = ("raw", "zstd")

FLAG_ZSTD_MANIFEST = 1

_STRUCT = struct.Struct("<8sHHIQQ32s")
_OFFSETS = {"magic": 0, "major": 8, "minor": 10, "flags": 12, "manifest_offset": 16, "manifest_bytes": 24, "sha256": 32}


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


def parse_header(data: bytes, file_bytes: int, name: str = "the file") -> Header:
    """Read and check the header of a file of ``file_bytes`` bytes, called ``name`` in messages.

    Raises ``BundleFormatError`` for a foreign, truncated or damaged file, ``BundleVersionError`` for a newer one.
    """

    def fail(message: str, field: str) -> BundleFormatError:
        return BundleFormatError(f"{name}: {message}", field=f"header.{field}", offset=_OFFSETS[field])

    truncated = BundleFormatError(
        f"{name}: truncated: {len(data)} bytes of a {HEADER_BYTES}-byte header", field="header", offset=len(data)
    )
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):
            raise truncated
        raise fail("not a .silo file, which silo build writes: it does not begin with SILOBNDL", "magic")
    if len(data) < HEADER_BYTES:
        raise truncated
    _, major, minor, flags, offset, length, sha256 = _STRUCT.unpack_from(data)
    if major == 0:
        raise fail("there is no format 0", "major")
    if (major, minor) > (MAJOR, MINOR):
        raise BundleVersionError(
            f"{name} has bundle format {major}.{minor}, written by a newer Silo; this one reads up to {MAJOR}.{MINOR}: "
            f"update kernel-silo, or build the bundle again with this version"
        )
    if flags & ~FLAG_ZSTD_MANIFEST:
        raise fail(f"unknown flags {flags:#x}", "flags")
    if offset < HEADER_BYTES or offset % ALIGNMENT:
        raise fail(f"the manifest cannot begin at {offset}", "manifest_offset")
    if not 0 < length <= MAX_MANIFEST_BYTES:
        raise fail(f"a manifest of {length} bytes is not allowed (1 to {MAX_MANIFEST_BYTES})", "manifest_bytes")
    if offset + length > file_bytes:
        raise fail(
            f"the file is truncated: {offset + length} bytes are needed, {file_bytes} are there; "
            "copy or build it again",
            "manifest_bytes",
        )
    if offset + length < file_bytes:
        raise fail(
            f"{file_bytes - offset - length} bytes follow the manifest, which must end the file", "manifest_bytes"
        )
    return Header(major, minor, bool(flags & FLAG_ZSTD_MANIFEST), offset, length, sha256)


# What each minor version added: a file is of the lowest version that can express it.
_NONE = frozenset[str]()
_KINDS = frozenset({"kind"})
_KINDS_MINOR = 2
_SPACES = frozenset({"space"})
_EXTENTS = frozenset({"space", "extents"})
CONTIGUOUS_MINOR = 6
KERNEL_ADDED = {
    minor: frozenset({"contiguous"} if minor >= CONTIGUOUS_MINOR else ()) | (_KINDS if minor >= _KINDS_MINOR else _NONE)
    for minor in range(MINOR + 1)
}
"""Members of a kernel that version 1.0 does not have, by minor version."""

RULES_ADDED = {0: _NONE, 1: _SPACES, **dict.fromkeys(range(2, MINOR + 1), _EXTENTS)}
"""The same of dispatch rules."""

ATTACHMENTS_MINOR = 4
TOP_ADDED = {minor: frozenset({"attachments"} if minor >= ATTACHMENTS_MINOR else ()) for minor in range(MINOR + 1)}
"""The same of the manifest itself."""

HIDDEN_MEMORY_MINOR = 5
VARIANT_ADDED = {
    minor: frozenset({"hidden_memory"} if minor >= HIDDEN_MEMORY_MINOR else ()) for minor in range(MINOR + 1)
}
"""The same of a variant."""


def version_of_extents(extents: Sequence[tuple[str, ArrayExtents]]) -> int:
    """The lowest minor version that can express extents of arrays."""
    if not extents:
        return 0
    from silo.core.dynamic_layout import DynamicLayout  # noqa: PLC0415  # few kernels have any

    return max(3 if isinstance(one, DynamicLayout) else 2 for _, one in extents)


def version_of_specialization(specialization: Specialization) -> int:
    """The lowest minor version that can express a specialization."""
    return max(version_of_extents(specialization.extents), 0 if specialization.grid is None else 2)


def version_of_launch(launch: LaunchInfo) -> int:
    """The lowest minor version that can express launch info."""
    structs = any(slot.type in (AbiType.STRUCT, AbiType.EMPTY) for slot in launch.layout)
    return 3 if structs or launch.loader or any(one.axes for one in launch.tensor_maps) else 0


def require_minor(minor: int, wanted: int, what: str) -> None:
    """``ValueError`` where a file of version ``minor`` has what only ``wanted`` can express."""
    if minor < wanted:
        raise ValueError(f"{what} are of format {MAJOR}.{wanted}, and the file of {MAJOR}.{minor}")
