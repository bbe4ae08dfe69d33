"""The replayer: answers a program's compiles and decisions from a recorded bundle."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from silo.bundle.contents import BundleVariant
from silo.bundle.reader import Bundle
from silo.core.plugins import is_host_code
from silo.core.variant import Variant
from silo.errors import FrozenError, NoVariantError, SiloError
from silo.forks import Mutex, Notices
from silo.kinds.triton.front.adapter import (
    CompileCall,
    TunerDecisions,
    TunerKey,
    kernel_of_tuner,
    launcher_kind,
    revived,
)
from silo.kinds.triton.front.compiled_for import config_of, relaxed, target_of, types_of
from silo.kinds.triton.front.triton_source import TritonSource
from silo.kinds.triton.programs.program_kernels import TABLE
from silo.kinds.triton.programs.records.archive_entries import key_of
from silo.kinds.triton.programs.records.archive_lookup import ArchiveLookup
from silo.kinds.triton.programs.records.capture import Sources
from silo.kinds.triton.programs.records.tuner_decisions import (
    described_key,
    find_decision,
    refused,
    winner_of,
    words_of_nearest,
)
from silo.kinds.triton.programs.records.variant_choice import best_variant, describe_wanted, nearest

__all__ = ["Replayer"]


class Replayer:
    """Serves from one bundle. ``frozen``: a missing entry is an error, never compiled, never measured.

    ``trust``: native code of the bundle is loaded without further consent. ``others`` supply decisions that the bundle
    lacks, and receive new decisions of tuners.
    """

    def __init__(
        self, bundle: Bundle, *, frozen: bool = False, trust: bool = False, others: TunerDecisions | None = None
    ) -> None:
        self.bundle = bundle
        self._others = others
        self.code = ArchiveLookup(bundle, trust=trust)
        self.frozen = frozen
        self._sources = Sources()
        self._tuned: weakref.WeakKeyDictionary[Any, TritonSource] = weakref.WeakKeyDictionary()
        self._lock = Mutex()
        self._made: dict[tuple[int, str], Any] = {}
        self._notices = Notices()
        self.served: int = 0
        self.missed: int = 0

    # -- compiles ------------------------------------------------------------------------------------------------------

    def compile(self, call: CompileCall, proceed: Callable[[CompileCall], Any]) -> Any:  # noqa: ANN401
        """The code of the bundle that serves a call, else Triton's compiled code.

        Raises:
            NoVariantError: frozen, and nothing in the bundle fits.
            TrustError: frozen, and the native code that fits is not trusted.
            RuntimeError: the kernel was served, and a global that it reads is another now.
        """
        for kernel in TABLE.of(call.function):
            kernel.refuse_changed()  # Triton compiled nothing then, so it does not have it
        try:
            made = self._serve(call)
        except (SiloError, OSError) as error:
            if self.frozen:
                refused(error)
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
        variants = self.code.variants(source.fingerprint)
        found = best_variant(variants, wanted)
        if found is None:
            raise self._missing(wanted, variants)
        variant = found.artifact.variant
        fitting = relaxed(call, variant.signature, variant.specialization)
        place = (id(call.function), f"{key_of(found.artifact)} {found.artifact.job}")
        with self._lock:
            made = self._made.get(place)
            if made is None:
                made = self._made[place] = self._revive(fitting, found)
        return made

    def _revive(self, call: CompileCall, one: BundleVariant) -> Any:  # noqa: ANN401
        """Triton's own object for a variant. How native code is launched is what consent was given to."""
        kept, hashed = self.code.kept(one)
        if is_host_code(kept.binary):
            self.code.consent(one)
            artifact = one.artifact
            made: dict[str, Any] = launcher_kind().metadata_of(artifact.launch, artifact.variant.signature)
            others = {name: value for name, value in kept.metadata.items() if not name.startswith("silo_")}
            kept = replace(kept, metadata={**others, **made})
        return revived(call, kept, hashed)

    def _missing(self, wanted: Variant, variants: Sequence[BundleVariant]) -> NoVariantError:
        """The reason why nothing serves a call, with the nearest variants and the misfit of each."""
        name = wanted.kernel
        what = f"{self.bundle.name} holds no code for {describe_wanted(wanted)}"
        again = "record this call too (silo exec --record)"
        if variants:
            rows = [f"{_short(variant)}: {reason}" for variant, reason in nearest(variants, wanted)]
            return NoVariantError(f"{what}; {again}", rows)
        others = sorted(
            {
                source[:12]
                for source, names in self.code.kernels.items()
                for one in names
                if one.partition("@")[0] == name
            }
        )
        if others:
            return NoVariantError(
                f"{what}: the kernel {name} changed since it was recorded (its fingerprint is {wanted.source[:12]}, "
                f"recorded was {', '.join(others)}); {again}",
                [],
            )
        recorded_names = ", ".join(self.bundle.kernel_names[:12]) or "none"
        return NoVariantError(f"{what}: no kernel of this name was recorded; it holds {recorded_names}; {again}", [])

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
            source = self._source_of_tuner(tuner)
            wanted = winner_of(source, tuner, key, None)
            winners = self.code.winners.get(source.fingerprint, ())
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
        other = None if self._others is None else self._others.known(tuner, key, configs)
        if other is not None:
            return other
        if not self.frozen:
            self._tell(f"{name} is tuned by Triton", f"{self.bundle.name} says nothing of {described_key(wanted)}")
            return None
        rows = "".join(f"\n  - {described_key(winner)}: {winner.config}" for winner in winners[:4])
        raise refused(
            FrozenError(
                f"{name}: a decision of its tuner is asked for {described_key(wanted)} on {wanted.target}, and "
                f"{self.bundle.name} holds none that its {len(found.allowed)} configs allow; record this call too "
                "(silo exec --record)" + (f"; it holds{rows}" if rows else "")
            )
        )

    def _source_of_tuner(self, tuner: Any) -> TritonSource:  # noqa: ANN401
        """Not from the compile sources, which compute Triton's own hash of the kernel: milliseconds."""
        found = self._tuned.get(tuner)
        if found is None:
            found = self._tuned[tuner] = TritonSource.of(kernel_of_tuner(tuner), self.code.names)
        return found

    def decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        """The tuner's decision, or the decision that the other sources return for it."""
        return config if self._others is None else self._others.decided(tuner, key, config)


def _short(variant: Variant) -> str:
    assumed = ", ".join(variant.specialization.assumptions) or "generic"
    return f"{variant.kernel} ({assumed}; {variant.config}) for {variant.target}"
