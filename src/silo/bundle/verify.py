"""The check of every byte of a bundle, which lists all faults."""

from __future__ import annotations

import os
from dataclasses import dataclass

from silo.bundle.encode import encode_manifest
from silo.bundle.format import CASES_KIND, HEADER_BYTES, TRIALS_KIND, aligned
from silo.bundle.reader import Bundle, open_bundle
from silo.errors import BundleError, BundleFormatError

__all__ = ["BundleProblem", "verify_bundle", "verify_open"]


@dataclass(frozen=True, slots=True)
class BundleProblem:
    """One thing that is wrong: where, and what."""

    field: str
    offset: int
    message: str

    def __str__(self) -> str:
        return self.message


def verify_bundle(path: str | os.PathLike[str]) -> tuple[BundleProblem, ...]:
    """Every problem of a file; empty if every byte is right.

    ``BundleVersionError`` and a file that cannot be opened are raised: about those nothing can be said.
    """
    try:
        bundle = open_bundle(path)
    except BundleFormatError as error:
        return (_problem(error),)
    with bundle:
        return verify_open(bundle)


def verify_open(bundle: Bundle) -> tuple[BundleProblem, ...]:
    """Every problem of a bundle whose header and manifest could be read."""
    problems: list[BundleProblem] = []
    offset = bundle.header.manifest_offset
    used = {(ref.sha256, ref.kind) for ref in bundle.attachments.values()}
    for name in bundle.kernel_names:
        try:
            used.update((ref.sha256, ref.kind) for ref in bundle.kernel(name).refs)
            for kind in (CASES_KIND, TRIALS_KIND):
                for _ in bundle.documents(name, kind):
                    pass
        except BundleFormatError as error:
            problems.append(_problem(error))
    if not problems:
        problems.extend(_check_canonical(bundle))
        problems.extend(
            BundleProblem(
                f"blob {entry.kind} {entry.sha256[:16]}", entry.offset, f"{bundle.name}: a blob that nothing refers to"
            )
            for entry in bundle.blobs
            if (entry.sha256, entry.kind) not in used
        )
    end = HEADER_BYTES
    for entry in bundle.blobs:
        try:
            bundle.verify(entry)
        except BundleFormatError as error:
            if (found := _problem(error)) not in problems:
                problems.append(found)
        end = entry.offset + entry.stored_bytes
        if any(bundle.between(end, aligned(end))):
            problems.append(BundleProblem("padding", end, f"{bundle.name}: bytes between blobs are not zero"))
    if aligned(end) != offset:
        problems.append(BundleProblem("padding", end, f"{bundle.name}: a gap before the manifest"))
    return tuple(problems)


def _check_canonical(bundle: Bundle) -> list[BundleProblem]:
    offset = bundle.header.manifest_offset
    try:
        contents = bundle.contents()
        text = encode_manifest(contents, bundle.blobs)
    except BundleFormatError as error:
        return [_problem(error)]
    except BundleError as error:
        return [BundleProblem("manifest", offset, f"{bundle.name}: {error}")]
    if text != bundle.manifest_text:
        return [BundleProblem("manifest", offset, f"{bundle.name}: the manifest is not in its canonical form")]
    return []


def _problem(error: BundleFormatError) -> BundleProblem:
    return BundleProblem(error.field, error.offset, str(error))
