"""A kernel of a bundle whose variants are read one by one, as launches ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from silo.bundle.contents import BundleKernel, BundleVariant, VariantGroup
from silo.core.config import Config
from silo.core.signature import Signature
from silo.core.values import JSON
from silo.core.variant import Variant

if TYPE_CHECKING:
    from silo.bundle.manifest import Manifest

__all__ = ["OpenKernel"]


class OpenKernel:
    """A kernel as launches see it. Its variants are checked when a call may use them, its head when it is asked for."""

    def __init__(self, manifest: Manifest, name: str, row: Mapping[str, JSON], rows: list[JSON], field: str) -> None:
        self._manifest = manifest
        self._name = name
        self._row = row
        self._rows = rows
        self._field = field
        self._read: dict[int, BundleVariant] = {}
        self._length = 0

    @cached_property
    def head(self) -> BundleKernel:
        """All but its variants."""
        return self._manifest.head_of(self._name, self._row, self._field)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> BundleVariant:
        found = self._read.get(number)
        if found is None:
            found = self._take(number, self.head.signature)
        return found

    def exact(self, wanted: Variant) -> BundleVariant | None:
        """The first variant that was compiled for just this, found without reading any other."""
        from silo.bundle.exact import names_in  # noqa: PLC0415  # what a recording serves

        if names_in(self._manifest.signature_row(self._row["signature"])) != list(wanted.signature.names):
            return None  # variants have the parameters of their kernel
        number = self._manifest.exact(self._rows, wanted)
        if number is None:
            return None
        found = self._read.get(number)
        return self._take(number, wanted.signature) if found is None else found

    def _take(self, number: int, parameters: Signature) -> BundleVariant:
        field = f"{self._field}.variants[{number}]"
        found = self._manifest.parse_variant(self._rows[number], field, parameters)
        self._read[number] = found
        self._length = self._manifest.expanded(self._length, self._rows[number], field)
        return found

    @cached_property
    def groups(self) -> tuple[VariantGroup, ...]:
        """Its variants, grouped."""
        return self._manifest.group_variants(self._rows, f"{self._field}.variants")

    @property
    def sources(self) -> frozenset[str]:
        """The fingerprints of the sources that its variants were compiled from, found without reading any."""
        return self._manifest.fingerprints(self._rows)

    @property
    def option_names(self) -> frozenset[str]:
        """The names of the options that configs of the bundle have, this kernel's among them."""
        return self._manifest.option_names

    def with_config(self, group: VariantGroup, config: Config) -> frozenset[int]:
        """Which variants of a group have this config."""
        wanted = self._manifest.config_numbers(config)
        rows = ((number, self._rows[number]) for number in group.numbers)
        return frozenset(
            number
            for number, row in rows
            if isinstance(row, dict) and isinstance(index := row["config"], int) and index in wanted
        )
