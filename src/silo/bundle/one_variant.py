"""A bundle of one variant in memory, without its code: for questions about a variant that is in no file."""

from __future__ import annotations

import hashlib

from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.contents import BundleContents, BundleKernel, BundleVariant
from silo.bundle.encode import encode_manifest, minor_version
from silo.bundle.format import HEADER_BYTES, MAJOR, BlobEntry, Header, pack_header
from silo.core.launch_info import LaunchInfo
from silo.core.variant import Variant

__all__ = ["encode_variant"]

_NOTHING = BlobRef(hashlib.sha256(b"").hexdigest(), "ptx", 0)


def encode_variant(variant: Variant) -> bytes:
    """The file: one kernel with the variant's parameters, and the variant with an empty blob of PTX."""
    artifact = Artifact(variant, LaunchInfo(variant.kernel, ()), _NOTHING, (), "none", _NOTHING.sha256)
    kernel = BundleKernel(variant.kernel, variant.signature, variants=(BundleVariant(artifact, "asked about"),))
    contents = BundleContents((kernel,))
    blob = BlobEntry(_NOTHING.sha256, _NOTHING.kind, 0, "raw", HEADER_BYTES, 0)
    text = encode_manifest(contents, [blob])
    sha256 = hashlib.sha256(text).digest()
    header = Header(
        major=MAJOR,
        minor=minor_version(contents),
        zstd_manifest=False,
        manifest_offset=HEADER_BYTES,
        manifest_bytes=len(text),
        manifest_sha256=sha256,
    )
    return pack_header(header) + text
