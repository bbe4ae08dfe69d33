"""Refines a bundle in place: adds trials, winners and variants, under a lock, by an atomic replacement."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from silo.artifacts.artifact import BlobRef, blob_ref
from silo.bundle.contents import BundleContents, BundleKernel, BundleRules, BundleVariant, encode_documents
from silo.bundle.format import TRIALS_KIND
from silo.bundle.reader import Bundle, open_bundle, stored_blobs
from silo.bundle.signing import Signing
from silo.bundle.writer import ReadBlob, Written, place_of_bundle, write_bundle
from silo.core.values import JSON, canonical_json
from silo.errors import BundleError
from silo.store.privacy import lock_of_place

__all__ = [
    "KernelUpdate",
    "Updated",
    "document_blob",
    "locked_bundle",
    "update_bundle",
    "with_attachments",
]


@dataclass(frozen=True, slots=True)
class KernelUpdate:
    """The additions to one kernel.

    ``trials`` are added to the bundle's trials, without duplicates; the bundle's trials of ``replaced`` studies are
    dropped. ``rules`` replace rules for the same target, signature and extents. ``variants`` replace variants with the
    same artifact key; other variants are added at the end.
    """

    trials: tuple[JSON, ...] = ()
    rules: tuple[BundleRules, ...] = ()
    variants: tuple[BundleVariant, ...] = ()
    replaced: tuple[JSON, ...] = ()


def document_blob(kind: str, documents: tuple[JSON, ...]) -> tuple[BlobRef, bytes]:
    r"""Returns cases or trials as a blob: its reference and its bytes.

    >>> ref, data = document_blob("trials", ({"time_ns": 5},))
    >>> ref.kind, ref.size, data
    ('trials', 14, b'{"time_ns":5}\n')
    """
    data = encode_documents(documents)
    return blob_ref(kind, data), data


def with_attachments(contents: BundleContents, attachments: Mapping[str, BlobRef]) -> BundleContents:
    """Returns the contents with ``attachments`` in place of their own.

    An attachment that is also the code of a variant is stored once, as code.
    """
    code = {ref.sha256: ref for kernel in contents.kernels for ref in kernel.refs}
    refs = {name: code.get(ref.sha256, ref) for name, ref in attachments.items()}
    return replace(contents, attachments=tuple(sorted(refs.items())))


@dataclass(frozen=True, slots=True)
class Updated:
    """The written bundle, and the change to its signature in words, "" without a change."""

    written: Written
    signature: str


def update_bundle(
    path: str | os.PathLike[str],
    updates: Mapping[str, KernelUpdate],
    read_blob: ReadBlob | None = None,
    *,
    signing: Signing | None = None,
    attachments: Mapping[str, BlobRef] | None = None,
) -> Updated:
    """Rewrites the bundle with ``updates`` by kernel name, and adds ``attachments`` to the present ones.

    ``read_blob`` returns the bytes of new blobs.

    Several processes may update one bundle: each adds to the state that the previous one wrote. Blobs that stay are
    copied in their stored form, after their SHA-256 was checked. On any failure the bundle is unchanged. A signature
    that no longer matches is removed, or replaced by a new signature if ``signing`` has a key.

    Raises:
        BundleError: the bundle cannot be read or written.
        SignatureError: the bundle was written, but is not signed.
    """
    target = place_of_bundle(path)
    with locked_bundle(target), open_bundle(target) as bundle:
        unknown = sorted(set(updates) - set(bundle.kernel_names))
        if unknown:
            raise BundleError(f"{bundle.name} holds no kernel {', '.join(unknown)}")
        documents: dict[str, bytes] = {}
        contents = bundle.contents()
        kernels = tuple(
            _merged(bundle, kernel, updates[kernel.name], documents) if kernel.name in updates else kernel
            for kernel in contents.kernels
        )

        def read_new(sha256: str) -> bytes | None:
            if sha256 in documents:
                return documents[sha256]
            return None if read_blob is None else read_blob(sha256)

        contents = replace(contents, kernels=kernels)
        if attachments:
            contents = with_attachments(contents, {**dict(contents.attachments), **attachments})
        written = write_bundle(target, contents, read_new, read_stored=stored_blobs([bundle]))
        signing = signing or Signing(bundle.signed_bytes)
        return Updated(written, signing.settle(path, bundle.signed_bytes, written.header))


def _merged(bundle: Bundle, kernel: BundleKernel, update: KernelUpdate, documents: dict[str, bytes]) -> BundleKernel:
    if update.trials:
        replaced = {canonical_json(study) for study in update.replaced}
        earlier = (
            document
            for _, document in bundle.documents(kernel.name, TRIALS_KIND)
            if not replaced or not isinstance(document, dict) or canonical_json(document.get("study")) not in replaced
        )
        # Trials are merged as texts, because parsed trials would take far more memory.
        merged = dict.fromkeys(map(canonical_json, chain(earlier, update.trials)))
        data = b"".join(text + b"\n" for text in merged)
        ref = blob_ref(TRIALS_KIND, data)
        documents[ref.sha256] = data
        kernel = replace(kernel, trials=ref)
    rules = {rules.key: rules for rules in kernel.rules}
    rules |= {rules.key: rules for rules in update.rules}
    variants = {_artifact_key(variant): variant for variant in kernel.variants}
    variants |= {_artifact_key(variant): variant for variant in update.variants}
    return replace(kernel, rules=tuple(rules.values()), variants=tuple(variants.values()))


def _artifact_key(variant: BundleVariant) -> str:
    return variant.artifact.variant.artifact_key(variant.artifact.compiler)


@contextlib.contextmanager
def locked_bundle(path: Path) -> Generator[None]:
    """Holds the lock of a bundle, at a path without links, against other updates by this user's processes.

    Raises:
        BundleError: the bundle is missing, or another process holds its lock for longer than ``SILO_LOCK_WAIT``.
    """
    with contextlib.ExitStack() as stack:
        try:
            # On a file system without file locks, the update goes on without a lock: the file is still replaced as a
            # whole.
            stack.enter_context(lock_of_place(path))
        except OSError as error:
            raise BundleError(f"cannot update the bundle {path}: {error.strerror}") from None
        yield
