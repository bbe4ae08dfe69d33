"""Writes a bundle in one pass into a temporary file, then renames it atomically. Equal inputs give equal bytes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from silo.artifacts.artifact import BlobRef
from silo.bundle.codec import ZSTD_VERSION, compress
from silo.bundle.contents import BlobEntry, BundleContents
from silo.bundle.encode import encode_manifest, minor_version
from silo.bundle.format import (
    DOCUMENT_KINDS,
    HEADER_BYTES,
    MAJOR,
    MANIFEST_SHARE,
    MAX_ATTACHMENTS,
    MAX_BLOB_BYTES,
    MAX_BLOBS,
    MAX_MANIFEST_BYTES,
    Header,
    aligned,
    pack_header,
)
from silo.core.plugins import is_blob_kind
from silo.core.values import refuse_large
from silo.errors import BundleError
from silo.settings import allowance
from silo.store.atomic_files import AtomicFile, sweep_abandoned
from silo.store.privacy import NotPrivateError, output_place

__all__ = ["ReadBlob", "ReadStored", "Written", "place_of_bundle", "write_bundle"]

ReadBlob = Callable[[str], bytes | None]
# Returns a blob's codec and verified stored form if the blob need not be compressed again; else None.
ReadStored = Callable[[BlobRef], tuple[str, bytes] | None]


@dataclass(frozen=True, slots=True)
class Written:
    """The written bundle: its identity (SHA-256 of its manifest), its header, and sizes in bytes."""

    identity: str
    header: bytes
    size_bytes: int
    blob_bytes: int  # as stored, without alignment
    manifest_bytes: int  # as stored
    blobs: int


def place_of_bundle(path: str | os.PathLike[str]) -> Path:
    """Returns the path to write a bundle to: links are resolved, so that a link keeps pointing at the new bundle.

    Raises:
        BundleError: a link on the path was made by another user.
    """
    try:
        return output_place(path)
    except NotPrivateError as error:
        raise BundleError(f"cannot write the bundle {os.fspath(path)}: {error.filename}: {error.strerror}") from None


def write_bundle(
    path: str | os.PathLike[str],
    contents: BundleContents,
    read_blob: ReadBlob,
    *,
    read_stored: ReadStored | None = None,
    raw: bool = False,
) -> Written:
    """Writes ``contents`` and every blob that they refer to. ``read_blob`` returns the bytes for a SHA-256, or None.

    The version of libzstd is added to the toolchain, because it decides the bytes. If all blobs are stored ``raw``, so
    that readers need no libzstd, its version is left out of the toolchain. On any failure an existing file is
    unchanged. Raises ``BundleError``.
    """
    target = place_of_bundle(path)
    toolchain = {name: version for name, version in contents.toolchain if name != "zstd"}
    toolchain |= {} if raw else {"zstd": ZSTD_VERSION}
    contents = replace(contents, toolchain=tuple(sorted(toolchain.items())))
    refs = _sorted_refs(contents)
    sweep_abandoned(target.parent)
    try:
        permissions = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        with AtomicFile(target, mode=0o666) as file:
            written = _write(file, contents, refs, read_blob, read_stored, raw=raw)
            file.commit(permissions=permissions)
    except OSError as error:
        raise BundleError(
            f"cannot write the bundle {target}: {error.strerror or error}; what was there before is untouched"
        ) from error
    return written


def _sorted_refs(contents: BundleContents) -> list[BlobRef]:
    """Returns every blob once, sorted by kind and SHA-256: code is then stored apart from sources and documents."""
    refs: dict[tuple[str, str], BlobRef] = {}
    names = [kernel.name for kernel in contents.kernels]
    if len(set(names)) != len(names):
        raise BundleError(f"two kernels of one bundle have one name: {', '.join(sorted(names))}")
    for kernel in contents.kernels:
        for ref in kernel.refs:
            if refs.setdefault((ref.kind, ref.sha256), ref) != ref:
                raise BundleError(f"kernel {kernel.name}: the blob {ref.sha256} is given two sizes")
            if not (ref.kind in DOCUMENT_KINDS or is_blob_kind(ref.kind)) or ref.size > MAX_BLOB_BYTES:
                raise BundleError(f"kernel {kernel.name}: a {ref.kind} blob of {ref.size} bytes cannot be in a bundle")
    names = [name for name, _ in contents.attachments]
    if len(set(names)) != len(names) or len(names) > MAX_ATTACHMENTS:
        raise BundleError(f"a bundle holds up to {MAX_ATTACHMENTS} attachments with different names, not {len(names)}")
    for name, ref in contents.attachments:
        if refs.setdefault((ref.kind, ref.sha256), ref) != ref:
            raise BundleError(f"attachment {name}: the blob {ref.sha256} is given two sizes")
    if len(refs) > MAX_BLOBS:
        raise BundleError(f"{len(refs)} blobs are more than a bundle holds ({MAX_BLOBS})")
    return [refs[key] for key in sorted(refs)]


def _write(
    file: AtomicFile,
    contents: BundleContents,
    refs: list[BlobRef],
    read_blob: ReadBlob,
    read_stored: ReadStored | None,
    *,
    raw: bool,
) -> Written:
    file.write(bytes(HEADER_BYTES))
    entries: list[BlobEntry] = []
    for ref in refs:
        stored = read_stored(ref) if read_stored is not None else None
        codec, data = stored or _encoded(_verified(ref, read_blob(ref.sha256)), raw=raw)
        entries.append(BlobEntry(ref.sha256, ref.kind, ref.size, codec, file.position, len(data)))
        file.write(data)
        file.write(bytes(aligned(file.position) - file.position))
    text = encode_manifest(contents, entries)
    codec, manifest = _encoded(text, raw=raw)
    if len(text) > MAX_MANIFEST_BYTES:
        raise BundleError(f"a manifest of {len(text)} bytes is more than a bundle holds ({MAX_MANIFEST_BYTES})")
    try:
        refuse_large(text, allowance(file.position) // MANIFEST_SHARE)
    except ValueError as error:
        raise BundleError(
            f"a bundle of {sum(len(kernel.variants) for kernel in contents.kernels)} variants that no reader opens: "
            f"{error}; pack fewer, or set SILO_FILE_BYTES here and wherever it is read"
        ) from None
    sha256 = hashlib.sha256(manifest)
    header = Header(MAJOR, minor_version(contents), codec == "zstd", file.position, len(manifest), sha256.digest())
    file.write(manifest)
    packed = pack_header(header)
    file.patch(0, packed)
    return Written(
        identity=sha256.hexdigest(),
        header=packed,
        size_bytes=file.position,
        blob_bytes=sum(entry.stored_bytes for entry in entries),
        manifest_bytes=len(manifest),
        blobs=len(entries),
    )


def _encoded(data: bytes, *, raw: bool) -> tuple[str, bytes]:
    return ("raw", data) if raw else compress(data)


def _verified(ref: BlobRef, data: bytes | None) -> bytes:
    if data is None:
        raise BundleError(f"the {ref.kind} blob {ref.sha256} is gone or damaged; build the bundle again")
    if len(data) != ref.size or hashlib.sha256(data).hexdigest() != ref.sha256:
        raise BundleError(f"the {ref.kind} blob {ref.sha256} is not what it is called")
    return data
