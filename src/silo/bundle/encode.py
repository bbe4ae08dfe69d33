"""Writes a manifest: tables in the order of first use, as canonical JSON.

Also writes a bundle of one variant, in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.contents import (
    TABLES,
    Blob,
    BlobEntry,
    Blobs,
    BundleContents,
    BundleKernel,
    BundleRules,
    BundleVariant,
    Entries,
    NamedBlobs,
    Row,
    Rows,
    entry_members,
)
from silo.bundle.format import HEADER_BYTES, LAYOUTS_MINOR, MAJOR, MEMBERS_MINOR, Header, pack_header
from silo.core.config import Config
from silo.core.device import Target
from silo.core.extents import DynamicLayout
from silo.core.json_reader import Persisted, members_of
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.values import JSON, DType, canonical_json
from silo.core.variant import Variant
from silo.errors import BundleError
from silo.frozen import Field, replace

if TYPE_CHECKING:
    from silo.core.recorded_plans import RecordedPlan

__all__ = ["BLOB_KIND", "KERNEL", "TARGET", "encode_manifest", "encode_variant", "minor_version"]


class _Tables:
    def __init__(self) -> None:
        self._rows: dict[str, list[JSON]] = {name: [] for name in TABLES}
        self._index_of: dict[tuple[str, bytes], int] = {}

    def index(self, table: str, row: JSON) -> int:
        """Returns the index of ``row``, which is added if it is new."""
        # Rows are compared by canonical text: 1, True and 1.0 are equal in Python, but different constants of a kernel.
        key = (table, canonical_json(row))
        row_number = self._index_of.get(key)
        if row_number is None:
            row_number = self._index_of[key] = len(self._rows[table])
            self._rows[table].append(row)
        return row_number

    def to_json(self) -> JSON:
        return cast("JSON", self._rows)


class _Encoder:
    def __init__(self, blobs: Sequence[BlobEntry]) -> None:
        self._tables = _Tables()
        self._blobs = {(entry.sha256, entry.kind): number for number, entry in enumerate(blobs)}

    def members(self, value: object) -> dict[str, JSON]:
        """Returns the members of the manifest's object for a value."""
        if isinstance(value, BundleKernel):
            _refuse_repeats(value)
        data: dict[str, JSON] = {}
        # The loop keeps the order of the fields, because it decides the order of the tables' rows.
        for name, form, field, get in entry_members(type(value)):
            member = get(value)
            if not (field.left_out and member == field.default):
                data[name] = self._member(form, member)
        return data

    def tables(self) -> JSON:
        return self._tables.to_json()

    def _member(self, form: Any, value: Any) -> JSON:  # noqa: ANN401  # the form decides the type
        match form:
            case Row(table):
                return self._tables.index(table, TABLES[table].write(value))
            case Rows(table):
                return [self._tables.index(table, TABLES[table].write(item)) for item in value]
            case Blob():
                return None if value is None else self._blob(value)
            case Blobs():
                return [self._blob(ref) for ref in value]
            case NamedBlobs():
                return [[name, self._blob(ref)] for name, ref in sorted(value, key=lambda pair: pair[0])]
            case Entries():
                return [self.members(item) for item in value]
            case _:
                return form.write(value)

    def _blob(self, ref: BlobRef) -> int:
        return self._blobs[ref.sha256, ref.kind]


def _refuse_repeats(kernel: BundleKernel) -> None:
    keys = [variant.artifact.variant.artifact_key(variant.artifact.compiler) for variant in kernel.variants]
    if len(set(keys)) != len(keys):
        raise BundleError(f"kernel {kernel.name}: a variant occurs twice")


_ATOMS = (str, int, Enum, DType, Target, Config, type(None))  # types that files of every version can hold
_NEW_SLOTS = (AbiType.STRUCT, AbiType.EMPTY)


def minor_version(value: object) -> int:
    """Returns the lowest minor version of the format that can express ``value``, the contents of a bundle or a part."""
    if isinstance(value, tuple):
        items = [item for item in cast("tuple[object, ...]", value) if not isinstance(item, _ATOMS)]
        return max(map(minor_version, items), default=0)
    if isinstance(value, DynamicLayout) or (isinstance(value, LayoutSlot) and value.type in _NEW_SLOTS):
        return LAYOUTS_MINOR
    if isinstance(value, LayoutSlot) and value.member is not None:
        return MEMBERS_MINOR
    pairs: Iterable[tuple[Field, object]] = ()
    if isinstance(value, Persisted):
        pairs = [(member, getattr(value, member.name)) for member in members_of(type(value))]
    elif isinstance(value, BundleContents | BundleKernel | BundleRules | BundleVariant):
        pairs = [(entry_member.field, entry_member.get(value)) for entry_member in entry_members(type(value))]
    minor = 0
    for field, item in pairs:
        if not (field.left_out and item == field.default):
            minor = max(minor, field.since, 0 if isinstance(item, _ATOMS) else minor_version(item))
    return minor


def _sorted_plans(contents: BundleContents) -> tuple[RecordedPlan, ...]:
    names = [plan.name for plan in contents.plans]
    if len(set(names)) != len(names):
        raise BundleError(f"two plans of one bundle have one name: {', '.join(sorted(names))}")
    return tuple(sorted(contents.plans, key=lambda plan: plan.name))


def encode_manifest(contents: BundleContents, blobs: Sequence[BlobEntry]) -> bytes:
    """Returns the manifest as canonical JSON.

    ``blobs`` is the sorted blob table, which must hold every blob referred to.
    """
    encoder = _Encoder(blobs)
    kernels = tuple(sorted(contents.kernels, key=lambda kernel: kernel.name))
    return canonical_json(
        {
            **encoder.members(replace(contents, kernels=kernels, plans=_sorted_plans(contents))),
            "format": [MAJOR, minor_version(contents)],
            "blobs": [entry.to_json() for entry in blobs],
            "tables": encoder.tables(),
        }
    )


KERNEL: Final = "kernel"
TARGET: Final = Target.parse("cuda:sm_90")
BLOB_KIND: Final = "ptx"

_SHA256: Final = hashlib.sha256(b"").hexdigest()


def encode_variant(variant: Variant) -> bytes:
    """Returns a bundle file that holds only this variant, of a kernel with the name ``KERNEL`` and its parameters.

    The variant's blob is empty. Its target is replaced by ``TARGET``, because the original target may belong to a
    plug-in's device; the file is never used on a device.
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
