"""The manifest of an open bundle as values of ``core``.

The native module checks each kernel, variant and table row when it is asked for, and gives it as JSON has it; here it
becomes a value. Rows of tables are shared by the variants that refer to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from silo.artifacts.artifact import BlobRef
from silo.bundle.contents import (
    INLINED,
    TABLES,
    Blob,
    Blobs,
    BundleContents,
    BundleKernel,
    BundleVariant,
    Entries,
    Row,
    VariantCode,
    VariantGroup,
    entry_members,
)
from silo.core.values import JSON, canonical_json, value_to_json
from silo.core.variant import Variant
from silo.frozen import frozen, names_of, replace

if TYPE_CHECKING:
    from silo._native import OpenBundle

__all__ = ["BlobEntry", "Manifest"]


@frozen
class BlobEntry:
    """One blob of the file: sha256 and size of the raw bytes, and where and how they are stored."""

    sha256: str
    kind: str
    raw_bytes: int
    codec: str
    offset: int
    stored_bytes: int

    @property
    def ref(self) -> BlobRef:
        """The blob by content."""
        return BlobRef(self.sha256, self.kind, self.raw_bytes)

    def to_json(self) -> JSON:
        """Its row in the manifest."""
        return [self.sha256, self.kind, self.raw_bytes, self.codec, self.offset, self.stored_bytes]


class Manifest:
    """The manifest of an open bundle, whose kernels and variants go by their numbers.

    Everything is checked when it is asked for: each method raises ``BundleFormatError``, which names the field.
    """

    def __init__(self, opened: OpenBundle) -> None:
        self._open = opened
        self._rows: dict[tuple[str, int], Any] = {}
        self._kernels: dict[str, BundleKernel] = {}

    # -- The file ------------------------------------------------------------------------------------------------------

    @cached_property
    def kernel_names(self) -> tuple[str, ...]:
        """The kernels' names, in the file's order."""
        return self._open.kernels()

    def number_of(self, name: str) -> int:
        """The number of a kernel; -1 where there is none of this name."""
        return self._open.find_kernel(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.number_of(name) >= 0

    @cached_property
    def producer(self) -> tuple[tuple[str, str], ...]:
        """Names and versions of the programs that wrote the file, sorted."""
        return self._texts("producer")

    @cached_property
    def toolchain(self) -> tuple[tuple[str, str], ...]:
        """Names and versions of the compilers, sorted."""
        return self._texts("toolchain")

    @cached_property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """Free text by name, sorted."""
        return self._texts("notes")

    @cached_property
    def attachments(self) -> Mapping[str, BlobRef]:
        """The files that travel with the kernels, by name."""
        rows = cast("list[tuple[str, int]]", self._open.member("attachments") or [])
        return {name: self._blob(number) for name, number in rows}

    @cached_property
    def blobs(self) -> tuple[BlobEntry, ...]:
        """Every blob of the file, in order."""
        return tuple(BlobEntry(*row) for row in self._open.blobs())

    def contents(self) -> BundleContents:
        """Everything, every table row included, checked."""
        self._open.check()
        return BundleContents(
            tuple(self.kernel(name) for name in self.kernel_names),
            self.producer,
            self.toolchain,
            self.notes,
            tuple(self.attachments.items()),
        )

    # -- Kernels -------------------------------------------------------------------------------------------------------

    def kernel(self, name: str) -> BundleKernel:
        """One kernel with all its variants; ``KeyError`` when there is none of this name."""
        found = self._kernels.get(name)
        if found is None:
            if (number := self.number_of(name)) < 0:
                raise KeyError(name)
            self._open.check(number)
            variants = tuple(self.variant(number, one) for one in range(self._open.count(number)))
            found = self._kernels[name] = replace(self.head(number), variants=variants)
        return found

    def head(self, kernel: int) -> BundleKernel:
        """A kernel without its variants."""
        row: dict[str, Any] = self._open.kernel(kernel)
        values = self._values(BundleKernel, {**row, "variants": ()})
        return BundleKernel(**values)

    def variant(self, kernel: int, number: int) -> BundleVariant:
        """One variant of a kernel."""
        values = self._values(BundleVariant, self._open.variant(kernel, number))
        values["kernel"], values["source"] = values["source"]
        return _built(BundleVariant, values)

    def code(self, kernel: int) -> tuple[VariantCode, ...]:
        """Variants by target and kind of blob, in order of first occurrence."""
        found: dict[tuple[int, str], list[int]] = {}
        for target, kind, _, _, numbers in self._open.groups(kernel):
            found.setdefault((target, kind), []).extend(numbers)
        return tuple(
            VariantCode(self.row("targets", target), kind, tuple(numbers)) for (target, kind), numbers in found.items()
        )

    def groups(self, kernel: int) -> tuple[VariantGroup, ...]:
        """Variants by what decides whether a call may use them, besides their configs; in order of first occurrence."""
        return tuple(
            VariantGroup(
                target=self.row("targets", target),
                blob_kind=kind,
                signature=self.row("signatures", signature),
                specialization=self.row("specializations", specialization),
                numbers=numbers,
            )
            for target, kind, signature, specialization, numbers in self._open.groups(kernel)
        )

    def exact(self, kernel: int, wanted: Variant) -> int | None:
        """The first variant of a kernel that was compiled for just this; none of them is checked for it."""
        specialization = wanted.specialization
        if specialization.made_for_some:
            return None
        constants = {**dict(wanted.config.values), **specialization.constant_values}
        text = canonical_json(
            {
                "source": [wanted.kernel, wanted.source],
                "target": str(wanted.target),
                "types": [
                    [one.name, one.kind.value, None if one.dtype is None else one.dtype.name]
                    for one in wanted.signature.parameters
                ],
                "facts": [[name, fact.value] for name, fact in specialization.facts],
                "constants": {name: value_to_json(value) for name, value in constants.items()},
                "options": {name: value_to_json(value) for name, value in wanted.config.options},
            }
        )
        number = self._open.exact(kernel, text)
        return None if number < 0 else number

    # -- Rows ----------------------------------------------------------------------------------------------------------

    def row(self, table: str, number: int) -> Any:  # noqa: ANN401  # of the type of the table's rows
        """A row of a table as a value, of which there is one."""
        found = self._rows.get((table, number))
        if found is None:
            found = self._rows[table, number] = TABLES[table].read(self._open.row(table, number), table)  # pyright: ignore[reportArgumentType]  # JSON
        return found

    def _values(self, cls: type, row: Mapping[str, Any]) -> dict[str, Any]:
        """The values of an object's members by name, defaults among them."""
        return {
            name: self._value(form, row[name], name) if name in row else field.default
            for name, form, field, _ in entry_members(cls)
        }

    def _value(self, form: Any, data: Any, name: str) -> Any:  # noqa: ANN401  # by the form
        match form:
            case Row(table):
                return self.row(table, data)
            case Blob():
                return None if data is None else self._blob(data)
            case Blobs():
                return tuple(self._blob(one) for one in data)
            case Entries(cls):
                return tuple(cls(**self._values(cls, one)) for one in data)
            case _:
                return form.read(data, name)

    def _blob(self, number: int) -> BlobRef:
        sha256, kind, raw_bytes, *_ = self._open.blob(number)
        return BlobRef(sha256, kind, raw_bytes)

    def _texts(self, member: str) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(cast("dict[str, str]", self._open.member(member)).items()))


def _built(cls: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401  # of the class
    """A value whose fields have these values; those that are inlined in a manifest's object are made of them too."""
    return cls(*[_built(INLINED[name], values) if name in INLINED else values[name] for name in names_of(cls)])
