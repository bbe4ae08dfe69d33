"""Writing a manifest: tables in order of first use, then canonical JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from silo.artifacts.artifact import BlobRef
from silo.bundle.contents import BundleContents, BundleKernel, BundleVariant
from silo.bundle.format import (
    ATTACHMENTS_MINOR,
    CONTIGUOUS_MINOR,
    HIDDEN_MEMORY_MINOR,
    MAJOR,
    version_of_extents,
    version_of_launch,
    version_of_specialization,
)
from silo.bundle.manifest import TABLES, BlobEntry
from silo.core import expressions
from silo.core.extents import extents_to_json
from silo.core.values import JSON, canonical_json
from silo.errors import BundleError

__all__ = ["encode_manifest", "minor_version"]


class _Tables:
    def __init__(self) -> None:
        self._rows: dict[str, list[JSON]] = {name: [] for name in TABLES}
        self._found: dict[tuple[str, bytes], int] = {}

    def index(self, table: str, row: JSON) -> int:
        """The index of ``row``, which is added when it is new."""
        # By canonical text, not by value: 1, True and 1.0 are equal in Python but different constants of a kernel.
        key = (table, canonical_json(row))
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = len(self._rows[table])
            self._rows[table].append(row)
        return found

    def to_json(self) -> JSON:
        return cast("JSON", self._rows)


class _Encoder:
    def __init__(self, blobs: Sequence[BlobEntry]) -> None:
        self._tables = _Tables()
        self._blobs = {(entry.sha256, entry.kind): number for number, entry in enumerate(blobs)}

    def kernel(self, kernel: BundleKernel) -> JSON:
        keys = [variant.artifact.variant.artifact_key(variant.artifact.compiler) for variant in kernel.variants]
        if len(set(keys)) != len(keys):
            raise BundleError(f"kernel {kernel.name}: a variant occurs twice")
        return {
            "name": kernel.name,
            "signature": self._row("signatures", kernel.signature.to_json()),
            "key": list(kernel.key),
            "config_names": list(kernel.config_names),
            "derived": [[name, expressions.to_json(node)] for name, node in kernel.derived],
            "grid": None if kernel.grid is None else [expressions.to_json(node) for node in kernel.grid],
            "variants": [self._variant(variant) for variant in kernel.variants],
            "rules": [
                {
                    "target": self._row("targets", str(rules.target)),
                    "signature": self._row("signatures", rules.signature.to_json()),
                    "rules": rules.rules.to_json(),
                    **({"space": rules.space} if rules.space else {}),
                    **({"extents": extents_to_json(rules.extents)} if rules.extents else {}),
                }
                for rules in kernel.rules
            ],
            "cases": None if kernel.cases is None else self._blob(kernel.cases),
            "trials": None if kernel.trials is None else self._blob(kernel.trials),
            **({"kind": kernel.kind} if kernel.kind else {}),
            **({"contiguous": list(kernel.contiguous)} if kernel.contiguous else {}),
        }

    def attachments(self, attachments: Sequence[tuple[str, BlobRef]]) -> JSON:
        return [[name, self._blob(ref)] for name, ref in sorted(attachments, key=lambda pair: pair[0])]

    def tables(self) -> JSON:
        return self._tables.to_json()

    def _variant(self, item: BundleVariant) -> JSON:
        artifact, variant = item.artifact, item.artifact.variant
        return {
            "source": self._row("sources", [variant.kernel, variant.source]),
            "signature": self._row("signatures", variant.signature.to_json()),
            "specialization": self._row("specializations", variant.specialization.to_json()),
            "config": self._row("configs", variant.config.to_json()),
            "target": self._row("targets", str(variant.target)),
            "launch": self._row("launches", artifact.launch.to_json()),
            "compiler": self._row("compilers", artifact.compiler),
            "reason": self._row("reasons", item.reason),
            "job": artifact.job,
            "blob": self._blob(artifact.blob),
            "sidecars": [self._blob(ref) for ref in artifact.sidecars],
            "basis": item.basis.value,
            **({"hidden_memory": artifact.hidden_memory} if artifact.hidden_memory else {}),
        }

    def _row(self, table: str, row: JSON) -> int:
        return self._tables.index(table, row)

    def _blob(self, ref: BlobRef) -> int:
        return self._blobs[ref.sha256, ref.kind]


def minor_version(contents: BundleContents) -> int:
    """The lowest minor version of the format that can express the contents."""
    kernels = contents.kernels
    artifacts = [one.artifact for kernel in kernels for one in kernel.variants]
    rules = [one for kernel in kernels for one in kernel.rules]
    return max(
        [
            *(version_of_specialization(one.variant.specialization) for one in artifacts),
            *(version_of_launch(one.launch) for one in artifacts),
            *(version_of_extents(one.extents) for one in rules),
            ATTACHMENTS_MINOR if contents.attachments else 0,
            CONTIGUOUS_MINOR if any(kernel.contiguous for kernel in kernels) else 0,
            HIDDEN_MEMORY_MINOR if any(one.hidden_memory for one in artifacts) else 0,
            2 if any(kernel.kind for kernel in kernels) else 0,
            int(any(one.space for one in rules)),
        ]
    )


def encode_manifest(contents: BundleContents, blobs: Sequence[BlobEntry]) -> bytes:
    """The manifest's canonical JSON. ``blobs`` is the blob table, sorted; it must hold every blob referred to."""
    encoder = _Encoder(blobs)
    kernels = [encoder.kernel(kernel) for kernel in sorted(contents.kernels, key=lambda kernel: kernel.name)]
    return canonical_json(
        {
            "format": [MAJOR, minor_version(contents)],
            "producer": dict(contents.producer),
            "toolchain": dict(contents.toolchain),
            "notes": dict(contents.notes),
            "blobs": [entry.to_json() for entry in blobs],
            "tables": encoder.tables(),
            "kernels": kernels,
            **({"attachments": encoder.attachments(contents.attachments)} if contents.attachments else {}),
        }
    )
