"""A bundle of one variant in memory, without its code: for questions about a variant that is in no file."""

from __future__ import annotations

import hashlib
from typing import Final

from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.contents import BlobEntry, BundleContents, BundleKernel, BundleVariant
from silo.bundle.encode import encode_manifest, minor_version
from silo.bundle.format import HEADER_BYTES, MAJOR, Header, pack_header
from silo.core.launch_info import LaunchInfo
from silo.core.target import Target
from silo.core.variant import Variant
from silo.frozen import replace

__all__ = ["BLOB_KIND", "KERNEL", "TARGET", "encode_variant"]

KERNEL: Final = "kernel"
TARGET: Final = Target.parse("cuda:sm_90")
BLOB_KIND: Final = "ptx"

_SHA256: Final = hashlib.sha256(b"").hexdigest()


def encode_variant(variant: Variant) -> bytes:
    """The file: the kernel ``KERNEL`` with the variant's parameters, and the variant with an empty blob.

    The variant has ``TARGET`` in the place of its own, which may be of a plug-in's device. This file is not used for
    devices.
    """
    renamed = replace(variant, kernel=KERNEL, source=_SHA256, target=TARGET)
    artifact = Artifact(renamed, LaunchInfo(KERNEL, ()), BlobRef(_SHA256, BLOB_KIND, 0), (), "none", _SHA256)
    contents = BundleContents((BundleKernel(KERNEL, variant.signature, variants=(BundleVariant(artifact, "asked"),)),))
    text = encode_manifest(contents, [BlobEntry(_SHA256, BLOB_KIND, 0, "raw", HEADER_BYTES, 0)])
    header = Header(
        major=MAJOR,
        minor=minor_version(contents),
        zstd_manifest=False,
        manifest_offset=HEADER_BYTES,
        manifest_bytes=len(text),
        manifest_sha256=hashlib.sha256(text).digest(),
    )
    return pack_header(header) + text
