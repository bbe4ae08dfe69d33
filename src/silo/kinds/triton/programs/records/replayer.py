"""Serves a program's compiles, launches and decisions from a recorded bundle.

:class:`Serving` supplies code for launches that Silo serves. All other launches call Triton's compiler, for which
:class:`Replayer` answers from the same recording; it also reports why code does not fit.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from silo.bundle.contents import BundleVariant
from silo.bundle.reader import Bundle
from silo.core.plugins import is_host_code
from silo.core.variant import Variant
from silo.errors import BundleError, FrozenError, NoVariantError, SiloError
from silo.forks import Mutex, Notices
from silo.frozen import replace
from silo.kinds.triton.front.adapter import (
    CompileCall,
    TunerDecisions,
    TunerKey,
    active_target,
    kept_later,
    kernel_of_tuner,
    launch_options,
    launcher_kind,
    revived,
)
from silo.kinds.triton.front.compiled_for import (
    call_of,
    config_of,
    options_config,
    relaxed,
    target_from,
    target_of,
    types_of,
)
from silo.kinds.triton.front.triton_fingerprint import ReadSource, read_source
from silo.kinds.triton.front.triton_source import TritonSource
from silo.kinds.triton.programs.compiled_code import LaunchedKernel, ProgramVariant, Provided, bind_program, device_at
from silo.kinds.triton.programs.program_kernels import TABLE
from silo.kinds.triton.programs.records.archive import key_of
from silo.kinds.triton.programs.records.archive_lookup import ArchiveLookup, best_variant, describe_wanted, nearest
from silo.kinds.triton.programs.records.capture import Sources
from silo.kinds.triton.programs.records.tuner_decisions import (
    described_key,
    find_decision,
    refused,
    winner_of,
    words_of_nearest,
)
from silo.launch.arguments import SeenCall, ValueKind
from silo.launch.native import Binding

__all__ = ["Replayer", "Serving"]


class Replayer:
    """Serves compiles and decisions from one bundle.

    ``frozen``: a missing entry is an error; nothing is compiled or measured.

    ``trust``: native code of the bundle is loaded without further consent. ``others``: a further source of decisions
    for those that the bundle lacks; new decisions of tuners are passed on to this source.
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
        self._served_kernels: dict[tuple[int, str], Any] = {}
        self._notices = Notices()
        self.served: int = 0
        self.missed: int = 0

    # -- compiles ------------------------------------------------------------------------------------------------------

    def compile(self, call: CompileCall, proceed: Callable[[CompileCall], Any]) -> Any:  # noqa: ANN401
        """The bundle's code for a compile request, or else the code that Triton compiles.

        Raises:
            NoVariantError: frozen, and nothing in the bundle fits.
            TrustError: frozen, and the native code that fits is not trusted.
            RuntimeError: the kernel was served, and a global that it reads has changed.
        """
        for kernel in TABLE.of(call.function):
            # Silo served this kernel's launches, so Triton compiled nothing and did not record the values of globals;
            # Silo did.
            kernel.refuse_changed()
        try:
            compiled = self._serve(call)
        except (SiloError, OSError) as error:
            if self.frozen:
                refused(error)
                raise
            self._log_once(f"{call.function.__name__} is compiled by Triton", str(error))
            compiled = None
        if compiled is None:
            self.missed += 1
            return proceed(call)
        self.served += 1
        return compiled

    def _serve(self, call: CompileCall) -> Any:  # noqa: ANN401
        source = self._sources.of(call.function)
        signature, specialization = types_of(call, source)
        config, target = config_of(call, source.name), target_of(call)
        request = Variant(source.name, source.fingerprint, signature, specialization, config, target)
        variants = self.code.variants(source.fingerprint)
        best = best_variant(variants, request)
        if best is None:
            raise self._missing(request, variants)
        variant = best.artifact.variant
        fitting = relaxed(call, variant.signature, variant.specialization)
        key = (id(call.function), f"{key_of(best.artifact)} {best.artifact.job}")
        with self._lock:
            kernel = self._served_kernels.get(key)
            if kernel is None:
                kernel = self._served_kernels[key] = self._revive(fitting, best)
        return kernel

    def _revive(self, call: CompileCall, variant: BundleVariant) -> Any:  # noqa: ANN401
        """Triton's own kernel object for a variant.

        Native code is launched with the launch info to which consent was given.
        """
        code, file_hash = self.code.kept(variant)
        if is_host_code(code.binary):
            self.code.consent(variant)
            artifact = variant.artifact
            launcher_metadata: dict[str, Any] = launcher_kind().metadata_of(artifact.launch, artifact.variant.signature)
            metadata = {name: value for name, value in code.metadata.items() if not name.startswith("silo_")}
            code = replace(code, metadata={**metadata, **launcher_metadata})
        return revived(call, code, file_hash)

    def _missing(self, wanted: Variant, variants: Sequence[BundleVariant]) -> NoVariantError:
        """The error for a call that no recorded variant serves, with the nearest variants and why each does not fit."""
        name = wanted.kernel
        message = f"{self.bundle.name} holds no code for {describe_wanted(wanted)}"
        advice = "record this call too (silo exec --record)"
        if variants:
            rows = [f"{_short(variant)}: {reason}" for variant, reason in nearest(variants, wanted)]
            return NoVariantError(f"{message}; {advice}", rows)
        rejected = sorted(
            {
                source[:12]
                for source, names in self.code.kernels.items()
                for recorded_name in names
                if recorded_name.partition("@")[0] == name
            }
        )
        if rejected:
            return NoVariantError(
                f"{message}: the kernel {name} changed since it was recorded (its fingerprint is {wanted.source[:12]}, "
                f"recorded was {', '.join(rejected)}); {advice}",
                [],
            )
        recorded_names = ", ".join(self.bundle.kernel_names[:12]) or "none"
        return NoVariantError(
            f"{message}: no kernel of this name was recorded; it holds {recorded_names}; {advice}", []
        )

    def _log_once(self, label: str, why: str) -> None:
        """Logs, once for each kernel, that the kernel is left to Triton or uses another decision."""
        self._notices.once(label, f"{label}: {why}")

    # -- tuners --------------------------------------------------------------------------------------------------------

    def decision_for(self, tuner: Any, key: TunerKey, configs: Callable[[], Sequence[Any]]) -> Any:  # noqa: ANN401
        """The recorded decision, or else the decision for the nearest key; nothing is measured.

        Raises:
            FrozenError: frozen, and the bundle lacks a decision for this kernel that its tuner may use.
        """
        name = str(kernel_of_tuner(tuner).__name__)
        try:
            source = self._source_of_tuner(tuner)
            request = winner_of(source, tuner, key, None)
            winners = self.code.winners.get(source.fingerprint, ())
            decision = find_decision(tuner, winners, request, configs)
        except SiloError as error:
            if self.frozen:
                raise
            self._log_once(f"{name} is tuned by Triton", str(error))
            return None
        if decision.near is not None:
            self._log_once(f"{name} uses", words_of_nearest(decision.near, request))
        if decision.config is not None:
            return decision.config
        if len(decision.allowed) == 1:
            return decision.allowed[0]
        other = None if self._others is None else self._others.decision_for(tuner, key, configs)
        if other is not None:
            return other
        if not self.frozen:
            self._log_once(f"{name} is tuned by Triton", f"{self.bundle.name} says nothing of {described_key(request)}")
            return None
        rows = "".join(f"\n  - {described_key(winner)}: {winner.config}" for winner in winners[:4])
        raise refused(
            FrozenError(
                f"{name}: a decision of its tuner is asked for {described_key(request)} on {request.target}, and "
                f"{self.bundle.name} holds none that its {len(decision.allowed)} configs allow; record this call too "
                "(silo exec --record)" + (f"; it holds{rows}" if rows else "")
            )
        )

    def _source_of_tuner(self, tuner: Any) -> TritonSource:  # noqa: ANN401
        """The source of a tuner's kernel.

        Unlike ``Sources.of`` it does not compute Triton's own hash, which takes milliseconds.
        """
        source = self._tuned.get(tuner)
        if source is None:
            source = self._tuned[tuner] = TritonSource.of(kernel_of_tuner(tuner), self.code.names)
        return source

    def decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        """The tuner's decision, or the decision that ``others`` return for it."""
        return config if self._others is None else self._others.decided(tuner, key, config)


def _short(variant: Variant) -> str:
    assumed = ", ".join(variant.specialization.assumptions) or "generic"
    return f"{variant.kernel} ({assumed}; {variant.config}) for {variant.target}"


_POINTERS = (ValueKind.POINTER, ValueKind.ADDRESS)
_NUMBERS = {ValueKind.INT: int, ValueKind.BOOL: bool, ValueKind.FLOAT: float}


class Serving:
    """Supplies variants from one recording for launches. Implements :class:`..compiled_code.VariantProvider`."""

    def __init__(self, code: ArchiveLookup) -> None:
        self._code = code
        self._read: weakref.WeakKeyDictionary[LaunchedKernel, ReadSource] = weakref.WeakKeyDictionary()
        self._bound: weakref.WeakKeyDictionary[LaunchedKernel, dict[tuple[str, int], Binding]] = (
            weakref.WeakKeyDictionary()
        )

    def provide(self, kernel: LaunchedKernel, call: SeenCall) -> Provided | None:
        """The recording's code for calls like ``call``; None to let Triton's path decide."""
        if not all(_is_plain(argument.kind, argument.value) for argument in call.arguments):
            return None
        try:
            return self._provide(kernel, call)
        except (SiloError, OSError):
            return None  # Triton's path will request the code again, and reports the reason

    def compiled(self, variant: ProgramVariant) -> None:
        """Does nothing: nothing is added to a recording that is being served."""

    def _provide(self, kernel: LaunchedKernel, call: SeenCall) -> Provided | None:
        function = kernel.function
        read = self._read.get(kernel)
        if read is None:
            function_source = read_source(function, self._code.names)
            references = {key: (_held(value), scope) for key, (value, scope) in function_source.globals.items()}
            read = self._read[kernel] = replace(function_source, globals=references)
        source = kernel.source
        signature, specialization = source.specialize(call.facts(source.constant))
        target = active_target()
        options = launch_options(function, call.options, target)
        config = options_config(options, target, source.name)
        requested = Variant(source.name, read.fingerprint, signature, specialization, config, target_from(target))
        variant = self._code.best(requested)
        if variant is None:
            return None
        bound = self._bound.setdefault(kernel, {})
        key = (variant.artifact.job, call.device[1])
        binding = bound.get(key)
        if binding is None:
            tag = self._returned(function, variant, call, (options, target))
            binding = bound[key] = self._bind(kernel, variant, call.device[1], tag)
        return Provided(binding, read.globals)

    def _bind(self, kernel: LaunchedKernel, variant: BundleVariant, index: int, tag: object) -> Binding:
        """Loads the code on the device of the launch, and binds it to the kernel's parameters."""
        artifact = variant.artifact
        launch, target = artifact.launch, artifact.variant.target
        if launch.profile_bytes and not artifact.runs_on_host:
            raise BundleError("it takes memory for Triton's profiler, which instruments its code")
        device = device_at(target.kind, index)
        blob = self._code.bundle.blob(artifact.blob.sha256)
        consent = self._code.consent(variant)
        loaded: Any = device.load(launch, blob, artifact.blob.kind, kernel.name, consent=consent)
        return bind_program(loaded, launch, kernel.source.signature, tag)

    def _returned(
        self,
        function: Any,  # noqa: ANN401
        variant: BundleVariant,
        call: SeenCall,
        options_and_target: tuple[Any, Any],
    ) -> object:
        """Triton's own kernel object for the variant; the recording is read when the object is first used."""
        constants = {two.name: two.value for two in call.arguments if two.kind is ValueKind.CONSTANT}
        options, target = options_and_target
        # A weak reference avoids a cycle: the function keeps the binding alive, and the binding holds this object as
        # its tag.
        reference = weakref.ref(function)

        def make() -> Any:  # noqa: ANN401
            alive = reference()
            if alive is None:
                raise BundleError("the kernel that this code belongs to is gone")
            code, hashed = self._code.kept(variant)
            return revived(call_of(alive, variant.artifact.variant, constants, options, target), code, hashed)

        return kept_later(make)


def _held(value: object) -> object:
    """A copy of a global's value, so that a change inside of the object is detected, as in Triton.

    Returns the value itself if no copy equals it. Unlike Triton's check for changed globals, Silo's includes globals
    that only the default of a parameter reads.
    """
    try:
        copied = copy.deepcopy(value)
        is_equal = bool(copied == value)
    except Exception:  # noqa: BLE001  # whatever the object of a program raises
        return value
    return copied if is_equal else value


def _is_plain(kind: ValueKind, value: object) -> bool:
    """Whether Silo's guard treats an argument as Triton does: plain numbers, arrays with ``data_ptr``, constants."""
    if kind in _NUMBERS:
        return type(value) is _NUMBERS[kind]
    if kind in _POINTERS:
        return hasattr(value, "data_ptr")
    return kind in (ValueKind.NONE, ValueKind.CONSTANT)
