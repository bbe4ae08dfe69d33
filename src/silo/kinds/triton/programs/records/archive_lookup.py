"""The contents of a recording in a replay's form: variants by fingerprint, files of Triton's cache, decisions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from silo.artifacts.artifact import Artifact, BlobRef
from silo.artifacts.runs_on import runs_on
from silo.bundle.contents import BundleVariant, calls_of, host_code
from silo.bundle.reader import Bundle, OpenKernel
from silo.core.consent import Consent
from silo.core.variant import Variant
from silo.errors import BundleError, TrustError
from silo.frozen import replace
from silo.kinds.triton.front.adapter import KeptCode
from silo.kinds.triton.programs.records.archive import RecordedNames, read_winners
from silo.kinds.triton.programs.records.archive_entries import ForeignWinner, cache_place, key_of
from silo.kinds.triton.programs.records.variant_choice import best_variant, constants_of, may_fit
from silo.machine.process_session import session
from silo.settings import settings
from silo.sources.reached_code import Names

__all__ = ["ArchiveLookup"]


class ArchiveLookup:
    """One bundle. ``trust``: its native code is loaded without further consent. Usable from many threads."""

    def __init__(self, bundle: Bundle, *, trust: bool = False) -> None:
        self.bundle = bundle
        self._trust = trust
        self._open: dict[str, OpenKernel] = {}

    @cached_property
    def kernels(self) -> dict[str, list[str]]:
        """The names of all kernels by their sources' fingerprints."""
        found: dict[str, list[str]] = {}
        for name in self.bundle.kernel_names:
            for source in self._kernel(name).sources:
                found.setdefault(source, []).append(name)
        return found

    @cached_property
    def files(self) -> dict[str, dict[str, BlobRef]]:
        """The files of Triton's cache by key and name."""
        found: dict[str, dict[str, BlobRef]] = {}
        for name, ref in self.bundle.attachments.items():
            if (place := cache_place(name)) is not None:
                found.setdefault(place[0], {})[place[1]] = ref
        return found

    @cached_property
    def winners(self) -> dict[str, list[ForeignWinner]]:
        """The decisions of tuners, by their kernels' fingerprints."""
        found: dict[str, list[ForeignWinner]] = {}
        for winner in read_winners(self.bundle):
            found.setdefault(winner.source, []).append(winner)
        return found

    @cached_property
    def names(self) -> Mapping[str, Names]:
        """The names in the texts of its kernels: with them a fingerprint needs no parser."""
        return RecordedNames(self.bundle)

    # -- variants ------------------------------------------------------------------------------------------------------

    def variants(self, source: str) -> list[BundleVariant]:
        """Every variant of a source that came from Triton's own compiler."""
        found: list[BundleVariant] = []
        for name in self.kernels.get(source, ()):
            kernel = self._kernel(name)
            found += [kernel[number] for number in range(len(kernel))]
        return [one for one in found if one.artifact.variant.source == source and key_of(one.artifact) in self.files]

    def best(self, wanted: Variant) -> BundleVariant | None:
        """The variant that serves a call best. Only the parts of the file that may serve it are read."""
        named = self._named(wanted)
        for name in named:
            one = self._kernel(name).exact(wanted)
            if (
                one is not None
                and key_of(one.artifact)
                and runs_on(wanted.target, wanted.target, one.artifact.blob.kind)
            ):
                return one  # nothing assumes more of the call
        found: list[BundleVariant] = []
        known = constants_of(wanted)
        for name in named:
            kernel = self._kernel(name)
            numbers = [number for group in kernel.groups(known) if may_fit(group, wanted) for number in group.numbers]
            found += [kernel[number] for number in numbers]
        return best_variant(
            (one for one in found if one.artifact.variant.source == wanted.source and key_of(one.artifact)), wanted
        )

    def _kernel(self, name: str) -> OpenKernel:
        found = self._open.get(name)
        if found is None:
            found = self._open[name] = self.bundle.open_kernel(name)
        return found

    def _named(self, wanted: Variant) -> list[str]:
        """The kernels of a source. Usually one of two names leads to them; otherwise all are compared."""
        manifest = self.bundle.manifest
        for name in (wanted.kernel, f"{wanted.kernel}@{wanted.source[:12]}"):
            if name in manifest and wanted.source in self._kernel(name).sources:
                return [name]
        return self.kernels.get(wanted.source, [])

    # -- code ----------------------------------------------------------------------------------------------------------

    def kept(self, one: BundleVariant) -> tuple[KeptCode, str]:
        """Triton's own files of a variant, and its hash of them.

        Raises:
            BundleError: some are missing, or they are damaged.
        """
        key = key_of(one.artifact)
        files = self.files.get(key, {})
        name = next((name.removesuffix(".json") for name in files if name.endswith(".json")), None)
        if name is None or f"{name}.{one.artifact.blob.kind}" not in files:
            raise BundleError(
                f"{self.bundle.name} lacks files of Triton's of {one.artifact.variant.kernel}; record again"
            )
        try:
            metadata: Any = json.loads(self.bundle.blob(files[f"{name}.json"].sha256))
            hashed = str(metadata["hash"])
        except (ValueError, KeyError, TypeError) as error:
            raise BundleError(f"{self.bundle.name}: Triton's metadata of {name} is damaged: {error!r}") from None
        binary = one.artifact.blob.kind
        if files[f"{name}.{binary}"].sha256 != one.artifact.blob.sha256:
            raise BundleError(f"{self.bundle.name}: two binaries are said to be that of {name}")
        stages = {
            file[len(name) + 1 :]: self.bundle.blob(ref.sha256)
            for file, ref in files.items()
            if file.startswith(f"{name}.") and file != f"{name}.json"
        }
        return KeptCode(key, name, metadata, stages, binary), hashed

    def consent(self, one: BundleVariant) -> Consent | None:
        """Consent to load the code of a variant; None if it needs none.

        Raises:
            BundleError: it would run although checks are on.
            TrustError: it is not trusted.
        """
        artifact = one.artifact
        if not artifact.runs_on_host:
            return None
        if settings().check:
            raise BundleError("checks are on (SILO_CHECK=1), and code that was recorded does not check itself")
        ledger = session().store.trust
        with contextlib.suppress(TrustError):
            return ledger.vouch(_as_built(artifact).host_code(), origin=self.bundle.name)
        name = next(iter(self._named(artifact.variant)))
        packed = host_code(one, calls_of(self._kernel(name).head))
        return ledger.vouch(packed, origin=self.bundle.name, trust=self._trust)


def _as_built(artifact: Artifact) -> Artifact:
    """With every constexpr in the specialization, as the recorder noted it."""
    variant = artifact.variant
    constants = {**dict(variant.config.values), **variant.specialization.constant_values}
    return replace(artifact, variant=replace(variant, specialization=variant.specialization.with_constants(constants)))
