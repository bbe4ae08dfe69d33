"""Checks every byte of a bundle, and lists all faults."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from silo.bundle.contents import BundleKernel
from silo.bundle.encode import encode_manifest
from silo.bundle.format import CASES_KIND, HEADER_BYTES, TRIALS_KIND, aligned
from silo.bundle.reader import Bundle, open_bundle
from silo.core.values import Value, identity_of
from silo.core.variant import Variant
from silo.errors import BundleError, BundleFormatError

__all__ = ["BundleProblem", "shared_by_look_alikes", "verify_bundle", "verify_open"]


# ---- The check of every byte of a bundle ----


@dataclass(frozen=True, slots=True)
class BundleProblem:
    """One fault of a bundle, with its field and offset."""

    field: str
    offset: int
    message: str

    def __str__(self) -> str:
        return self.message


def verify_bundle(path: str | os.PathLike[str]) -> tuple[BundleProblem, ...]:
    """Returns every fault of a file; empty if every byte is right.

    Raises ``BundleVersionError``, or ``BundleError`` if the file cannot be opened, because then it cannot be verified.
    """
    try:
        bundle = open_bundle(path)
    except BundleFormatError as error:
        return (_problem(error),)
    with bundle:
        return verify_open(bundle)


def verify_open(bundle: Bundle) -> tuple[BundleProblem, ...]:
    """Returns every fault of a bundle whose header and manifest could be read."""
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
            if (problem := _problem(error)) not in problems:
                problems.append(problem)
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


# ---- Variants of one kernel that share a blob, and differ in constexprs that Python considers equal ----


def shared_by_look_alikes(kernels: Iterable[BundleKernel]) -> tuple[str, ...]:
    """Returns a line for each pair of variants that share a blob although one has V=1 and the other V=True.

    Artifact keys of version 1, which earlier versions of Silo made, are equal for these two variants. So the blob was
    compiled for one of them, and is wrong for the other if the kernel distinguishes 1 from True. If the kernel does
    not, sharing the blob is right. The file does not show whether the kernel does.
    """
    return tuple(line for kernel in kernels for line in _pairs(kernel))


def _pairs(kernel: BundleKernel) -> Iterator[str]:
    first: dict[tuple[object, ...], Variant] = {}
    for packed in kernel.variants:
        variant = packed.artifact.variant
        if not variant.has_look_alike:
            continue
        other = first.setdefault((packed.artifact.blob.sha256, *_as_python_compares(variant)), variant)
        ours, theirs = _constexprs(other), _constexprs(variant)
        different = [name for name in ours if identity_of(ours[name]) != identity_of(theirs[name])]
        if different:
            yield (
                f"{kernel.name} for {variant.target}: the code for {_shown(ours, different)} serves "
                f"{_shown(theirs, different)} too (blob {packed.artifact.blob.sha256[:16]}). Earlier versions of Silo "
                "took these for one value: build the bundle again, unless the kernel computes the same for both"
            )


def _as_python_compares(variant: Variant) -> tuple[object, ...]:
    """Returns everything that distinguishes a variant; constexprs compare like Python's values (1 == True)."""
    specialization = variant.specialization
    types = tuple((parameter.name, parameter.kind, parameter.dtype) for parameter in variant.signature.parameters)
    constexprs = tuple(sorted(_constexprs(variant).items(), key=lambda item: item[0]))
    return types, specialization.facts, specialization.extents, specialization.grid, variant.target, constexprs


def _constexprs(variant: Variant) -> dict[str, Value]:
    return {**dict(variant.config.values), **variant.specialization.constant_values}


def _shown(values: dict[str, Value], names: list[str]) -> str:
    return ", ".join(f"{name}={values[name]!r}" for name in names)
