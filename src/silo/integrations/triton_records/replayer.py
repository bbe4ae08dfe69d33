"""The replayer: compiles and decisions that a program asks for are answered from a bundle that was recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from silo.api.machine.session import session
from silo.artifacts.artifact import BlobRef
from silo.bundle.contents import BundleVariant, calls_of, host_code
from silo.bundle.reader import Bundle
from silo.core.decisions import Rejected
from silo.core.notices import Notices
from silo.core.plugins import is_host_code
from silo.core.variant import Variant
from silo.errors import BundleError, FrozenError, NoVariantError, SiloError
from silo.forks import Mutex
from silo.frozen import replace
from silo.integrations.triton_records.choosing import best_variant, describe_wanted, nearest
from silo.integrations.triton_records.decided import described_key, find_decision, winner_of, words_of_nearest
from silo.integrations.triton_records.recorded import Winner, cache_place
from silo.integrations.triton_records.recorder import Sources
from silo.integrations.triton_records.recording import read_winners
from silo.settings import settings
from silo.sources.triton.adapter import (
    CompileCall,
    KeptCode,
    TunerKey,
    kernel_of_tuner,
    launcher_kind,
    revived,
)
from silo.sources.triton.compiled_for import config_of, relaxed, target_of, types_of

__all__ = ["Replayer"]


class Replayer:
    """Serves from one bundle. ``frozen``: what it does not hold is an error, never compiled, never measured.

    ``trust``: native code of the bundle is loaded although nobody vouched for it.
    """

    def __init__(self, bundle: Bundle, *, frozen: bool = False, trust: bool = False) -> None:
        self.bundle = bundle
        self.frozen = frozen
        self._trust = trust
        self._sources = Sources()
        self._lock = Mutex()
        self._made: dict[tuple[int, str], Any] = {}
        self._notices = Notices()
        self.served: int = 0
        self.missed: int = 0

    # -- what the bundle holds -----------------------------------------------------------------------------------------

    @cached_property
    def _kernels(self) -> dict[str, list[str]]:
        """The names of the kernels by their sources' fingerprints."""
        found: dict[str, list[str]] = {}
        for name in self.bundle.kernel_names:
            for source in self.bundle.open_kernel(name).sources:
                found.setdefault(source, []).append(name)
        return found

    @cached_property
    def _files(self) -> dict[str, dict[str, BlobRef]]:
        """The files of Triton's cache by key and name."""
        found: dict[str, dict[str, BlobRef]] = {}
        for name, ref in self.bundle.attachments.items():
            if (place := cache_place(name)) is not None:
                found.setdefault(place[0], {})[place[1]] = ref
        return found

    @cached_property
    def _winners(self) -> dict[str, list[Winner]]:
        found: dict[str, list[Winner]] = {}
        for winner in read_winners(self.bundle):
            found.setdefault(winner.source, []).append(winner)
        return found

    def _variants(self, source: str) -> list[BundleVariant]:
        """Every variant of a source that came from Triton's own compiler."""
        found: list[BundleVariant] = []
        for name in self._kernels.get(source, ()):
            kernel = self.bundle.open_kernel(name)
            found += [kernel[number] for number in range(len(kernel))]
        return [one for one in found if one.artifact.variant.source == source and _key_of(one) in self._files]

    # -- compiles ------------------------------------------------------------------------------------------------------

    def compile(self, call: CompileCall, proceed: Callable[[CompileCall], Any]) -> Any:  # noqa: ANN401
        """The code of the bundle that serves a call, else what Triton compiles.

        Raises:
            NoVariantError: frozen, and nothing in the bundle fits.
            TrustError: frozen, and nobody vouched for the native code that fits.
        """
        try:
            made = self._serve(call)
        except (SiloError, OSError) as error:
            if self.frozen:
                raise
            self._tell(f"{call.function.__name__} is compiled by Triton", str(error))
            made = None
        if made is None:
            self.missed += 1
            return proceed(call)
        self.served += 1
        return made

    def _serve(self, call: CompileCall) -> Any:  # noqa: ANN401
        source = self._sources.of(call.function)
        signature, specialization = types_of(call, source)
        config, target = config_of(call, source.name), target_of(call)
        wanted = Variant(source.name, source.fingerprint, signature, specialization, config, target)
        variants = self._variants(source.fingerprint)
        found = best_variant(variants, wanted)
        if found is None:
            raise self._missing(wanted, variants)
        variant = found.artifact.variant
        fitting = relaxed(call, variant.signature, variant.specialization)
        place = (id(call.function), f"{_key_of(found)} {found.artifact.job}")
        with self._lock:
            made = self._made.get(place)
            if made is None:
                made = self._made[place] = self._revive(fitting, found)
        return made

    def _revive(self, call: CompileCall, one: BundleVariant) -> Any:  # noqa: ANN401
        """Triton's own object for a variant."""
        key = _key_of(one)
        files = self._files[key]
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
        if is_host_code(binary):
            metadata = self._vouched(one, metadata)
        stages = {
            file[len(name) + 1 :]: self.bundle.blob(ref.sha256)
            for file, ref in files.items()
            if file.startswith(f"{name}.") and file != f"{name}.json"
        }
        return revived(call, KeptCode(key, name, metadata, stages, binary), hashed)

    def _vouched(self, one: BundleVariant, metadata: dict[str, Any]) -> dict[str, Any]:
        """Metadata of native code that somebody vouched for: how it is launched is what consent was given to."""
        if settings().check:
            raise BundleError("checks are on (SILO_CHECK=1), and code that was recorded does not check itself")
        artifact = one.artifact
        variant = artifact.variant
        constants = {**dict(variant.config.values), **variant.specialization.constant_values}
        own = replace(
            artifact, variant=replace(variant, specialization=variant.specialization.with_constants(constants))
        )
        ledger = session().store.trust
        packed = next(
            host_code(one, calls_of(self.bundle.open_kernel(name).head)) for name in self._kernels[variant.source]
        )
        if not ledger.decide(own.host_code()) and isinstance(ledger.decide(packed, trust=self._trust), Rejected):
            ledger.require([packed], origin=self.bundle.name, trust=self._trust)
        made: dict[str, Any] = launcher_kind().metadata_of(artifact.launch, variant.signature)
        kept = {name: value for name, value in metadata.items() if not name.startswith("silo_")}
        return {**kept, **made}

    def _missing(self, wanted: Variant, variants: Sequence[BundleVariant]) -> NoVariantError:
        """Why nothing serves a call, with the nearest variants and what is in the way of each."""
        name = wanted.kernel
        what = f"{self.bundle.name} holds no code for {describe_wanted(wanted)}"
        again = "record this call too (silo exec --record)"
        if variants:
            rows = [f"{_short(variant)}: {reason}" for variant, reason in nearest(variants, wanted)]
            return NoVariantError(f"{what}; {again}", rows)
        others = sorted(
            {source[:12] for source, names in self._kernels.items() for one in names if one.partition("@")[0] == name}
        )
        if others:
            return NoVariantError(
                f"{what}: the kernel {name} changed since it was recorded (its fingerprint is {wanted.source[:12]}, "
                f"recorded was {', '.join(others)}); {again}",
                [],
            )
        known = ", ".join(self.bundle.kernel_names[:12]) or "none"
        return NoVariantError(f"{what}: no kernel of this name was recorded; it holds {known}; {again}", [])

    def _tell(self, what: str, why: str) -> None:
        """A fallback, once for each kernel."""
        self._notices.once(what, f"{what}: {why}")

    # -- tuners --------------------------------------------------------------------------------------------------------

    def known(self, tuner: Any, key: TunerKey, configs: Callable[[], Sequence[Any]]) -> Any:  # noqa: ANN401
        """The recorded decision, else that for the nearest key; nothing is measured.

        Raises:
            FrozenError: frozen, and nothing was decided for this kernel that its tuner may use.
        """
        name = str(kernel_of_tuner(tuner).__name__)
        try:
            source = self._sources.of(kernel_of_tuner(tuner))
            wanted = winner_of(source, tuner, key, None)
            winners = self._winners.get(source.fingerprint, ())
            found = find_decision(tuner, winners, wanted, configs)
        except SiloError as error:
            if self.frozen:
                raise
            self._tell(f"{name} is tuned by Triton", str(error))
            return None
        if found.near is not None:
            self._tell(f"{name} uses", words_of_nearest(found.near, wanted))
        if found.config is not None:
            return found.config
        if len(found.allowed) == 1:
            return found.allowed[0]
        if not self.frozen:
            self._tell(f"{name} is tuned by Triton", f"{self.bundle.name} says nothing of {described_key(wanted)}")
            return None
        rows = "".join(f"\n  - {described_key(winner)}: {winner.config}" for winner in winners[:4])
        raise FrozenError(
            f"{name}: a decision of its tuner is asked for {described_key(wanted)} on {wanted.target}, and "
            f"{self.bundle.name} holds none that its {len(found.allowed)} configs allow; record this call too "
            "(silo exec --record)" + (f"; it holds{rows}" if rows else "")
        )

    def decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        """Whatever the tuner came to."""
        del tuner, key
        return config


def _key_of(one: BundleVariant) -> str:
    """The key of Triton's cache that a variant was recorded from; "" of one that Silo compiled."""
    word, _, key = one.artifact.job.partition(" ")
    return key if word == "triton" else ""


def _short(variant: Variant) -> str:
    assumed = ", ".join(variant.specialization.assumptions) or "generic"
    return f"{variant.kernel} ({assumed}; {variant.config}) for {variant.target}"
