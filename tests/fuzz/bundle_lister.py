"""A simple lister of bundles: plain json, struct and zstd. It checks hashes and sizes, and believes the rest.

The oracle of the fuzzer for files that the reader accepts: it knows docs/bundle-format.md and none of Silo's code.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import zstandard

__all__ = ["Listing", "ListingError", "canonical", "digest_of", "listing", "manifest_text"]

_HEADER = struct.Struct("<8sHHIQQ32s")


class ListingError(ValueError):
    """The file breaks a rule that this lister knows."""


@dataclass(frozen=True)
class Listing:
    """A bundle as plain values: the manifest, the bytes of every blob, and what consent to each variant is about."""

    manifest: Any
    blobs: tuple[bytes, ...]
    digests: dict[str, tuple[str, ...]]


def canonical(data: Any) -> bytes:
    """Canonical JSON."""
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def digest_of(digests: Mapping[str, Sequence[str]]) -> str:
    """A short hash of what consent to each variant of each kernel is about, which is all that decides a launch."""
    return hashlib.sha256(canonical({name: list(found) for name, found in digests.items()})).hexdigest()[:12]


def manifest_text(data: bytes) -> bytes:
    """The text of a file's manifest, whose hash is the header's."""
    magic, _, _, flags, offset, length, sha256 = _HEADER.unpack_from(data)
    stored = data[offset : offset + length]
    if magic != b"SILOBNDL" or offset % 64 or offset + length != len(data):
        raise ListingError("the header")
    if hashlib.sha256(stored).digest() != sha256:
        raise ListingError("the hash of the manifest")
    return _one_frame(stored) if flags & 1 else stored


def listing(data: bytes) -> Listing:
    """Everything in a file. Raises ListingError, or whatever json, struct and zstandard raise for a damaged file."""
    manifest = json.loads(manifest_text(data))
    if manifest["format"] != list(struct.unpack_from("<HH", data, 8)):
        raise ListingError("the version")
    blobs, place = [], _HEADER.size
    for sha256, _, raw, codec, offset, stored in manifest["blobs"]:
        piece = data[offset : offset + stored]
        found = piece if codec == "raw" else _one_frame(piece)
        if offset != place or (len(piece), len(found)) != (stored, raw):
            raise ListingError(f"the place or size of blob {sha256[:16]}")
        if hashlib.sha256(found).hexdigest() != sha256:
            raise ListingError(f"the hash of blob {sha256[:16]}")
        blobs.append(found)
        place = -(-(offset + stored) // 64) * 64
    if place != len(data) - struct.unpack_from("<Q", data, 24)[0]:
        raise ListingError("the end of the blobs")
    return Listing(manifest, tuple(blobs), {one["name"]: _digests(manifest, one) for one in manifest["kernels"]})


def _one_frame(stored: bytes) -> bytes:
    """The contents of exactly one frame that states its size."""
    size = zstandard.frame_content_size(stored)
    decoder = zstandard.ZstdDecompressor().decompressobj()
    found = decoder.decompress(stored) + decoder.flush()
    if size != len(found) or decoder.unused_data or not decoder.eof:
        raise ListingError("the size of a frame")
    return found


def _digests(manifest: Any, kernel: Any) -> tuple[str, ...]:
    """The digests that consent to a kernel's variants is given to (section 6)."""
    tables = manifest["tables"]

    def digest(schema: str, members: Any) -> str:
        return hashlib.sha256(canonical([schema, members])).hexdigest()

    calls = digest(
        "calls/1",
        {
            "signature": tables["signatures"][kernel["signature"]],
            **{name: kernel[name] for name in ("config_names", "derived", "grid")},
        },
    )
    found: list[str] = []
    for one in kernel["variants"]:
        sidecars = [manifest["blobs"][number] for number in one["sidecars"]]
        found.append(
            digest(
                "host-code/1",
                {
                    "blob": manifest["blobs"][one["blob"]][0],
                    "kind": manifest["blobs"][one["blob"]][1],
                    "launch": tables["launches"][one["launch"]],
                    "signature": tables["signatures"][one["signature"]],
                    "specialization": tables["specializations"][one["specialization"]],
                    "text": next((sha256 for sha256, kind, *_ in sidecars if kind == "ttir"), ""),
                    "calls": [calls, tables["configs"][one["config"]]],
                },
            )
        )
    return tuple(found)
