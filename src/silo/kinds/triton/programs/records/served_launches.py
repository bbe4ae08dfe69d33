"""Launches that Silo serves take their code from a recording, with nothing of Triton's launch path in between.

Other launches take that path: :class:`.replayer.Replayer` answers Triton's compiler from the same recording, and
reports misfits.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any

from silo.bundle.contents import BundleVariant
from silo.core.variant import Variant
from silo.errors import BundleError, SiloError
from silo.frozen import replace
from silo.kinds.triton.front.adapter import active_target, kept_later, launch_options, revived
from silo.kinds.triton.front.compiled_for import call_of, options_config, target_from
from silo.kinds.triton.front.triton_fingerprint import ReadSource, read_source
from silo.kinds.triton.programs.compiled_code import bind_program, device_at
from silo.kinds.triton.programs.records.archive_lookup import ArchiveLookup
from silo.kinds.triton.programs.variant_providers import LaunchedKernel, ProgramVariant, Provided
from silo.launch.arguments import SeenCall, ValueKind
from silo.launch.native import Binding

__all__ = ["Serving"]

_POINTERS = (ValueKind.POINTER, ValueKind.ADDRESS)
_NUMBERS = {ValueKind.INT: int, ValueKind.BOOL: bool, ValueKind.FLOAT: float}


class Serving:
    """Provides variants of one recording. Implements ``triton_programs.providers.VariantProvider``."""

    def __init__(self, code: ArchiveLookup) -> None:
        self._code = code
        self._read: weakref.WeakKeyDictionary[LaunchedKernel, ReadSource] = weakref.WeakKeyDictionary()
        self._bound: weakref.WeakKeyDictionary[LaunchedKernel, dict[tuple[str, int], Binding]] = (
            weakref.WeakKeyDictionary()
        )

    def provide(self, kernel: LaunchedKernel, call: SeenCall) -> Provided | None:
        """The code of the recording that serves calls like this one; None: Triton's path decides."""
        if not all(_is_plain(one.kind, one.value) for one in call.arguments):
            return None
        try:
            return self._provide(kernel, call)
        except (SiloError, OSError):
            return None  # requested again on Triton's path, which has the reason

    def compiled(self, variant: ProgramVariant) -> None:
        """A recording is not added to while it serves."""

    def _provide(self, kernel: LaunchedKernel, call: SeenCall) -> Provided | None:
        function = kernel.function
        read = self._read.get(kernel)
        if read is None:
            found = read_source(function, self._code.names)
            held = {place: (_held(value), scope) for place, (value, scope) in found.globals.items()}
            read = self._read[kernel] = replace(found, globals=held)
        source = kernel.source
        signature, specialization = source.specialize(call.facts(source.constant))
        target = active_target()
        options = launch_options(function, call.options, target)
        config = options_config(options, target, source.name)
        wanted = Variant(source.name, read.fingerprint, signature, specialization, config, target_from(target))
        one = self._code.best(wanted)
        if one is None:
            return None
        bound = self._bound.setdefault(kernel, {})
        place = (one.artifact.job, call.device[1])
        binding = bound.get(place)
        if binding is None:
            tag = self._returned(function, one, call, (options, target))
            binding = bound[place] = self._bind(kernel, one, call.device[1], tag)
        return Provided(binding, read.globals)

    def _bind(self, kernel: LaunchedKernel, one: BundleVariant, index: int, tag: object) -> Binding:
        """The code, loaded on the device of the launch."""
        artifact = one.artifact
        launch, target = artifact.launch, artifact.variant.target
        if launch.profile_bytes and not artifact.runs_on_host:
            raise BundleError("it takes memory for Triton's profiler, which instruments its code")
        device = device_at(target.kind, index)
        blob = self._code.bundle.blob(artifact.blob.sha256)
        consent = self._code.consent(one)
        loaded: Any = device.load(launch, blob, artifact.blob.kind, kernel.name, consent=consent)
        return bind_program(loaded, launch, kernel.source.signature, tag)

    def _returned(self, function: Any, one: BundleVariant, call: SeenCall, asked: tuple[Any, Any]) -> object:  # noqa: ANN401
        """Triton's own object for the variant, read from the recording at its first use."""
        constants = {two.name: two.value for two in call.arguments if two.kind is ValueKind.CONSTANT}
        options, target = asked
        held = weakref.ref(function)  # keeps the binding alive, whose tag this is

        def make() -> Any:  # noqa: ANN401
            alive = held()
            if alive is None:
                raise BundleError("the kernel that this code belongs to is gone")
            kept, hashed = self._code.kept(one)
            return revived(call_of(alive, one.artifact.variant, constants, options, target), kept, hashed)

        return kept_later(make)


def _held(value: object) -> object:
    """A copy of a global's value, so that a change within an object shows, as in Triton.

    It is the object itself if no copy equals it: Triton copies no global that only a parameter's default reads.
    """
    try:
        copied = copy.deepcopy(value)
        is_equal = bool(copied == value)
    except Exception:  # noqa: BLE001  # whatever the object of a program raises
        return value
    return copied if is_equal else value


def _is_plain(kind: ValueKind, value: object) -> bool:
    """Whether Triton takes an argument as Silo's guard does."""
    if kind in _NUMBERS:
        return type(value) is _NUMBERS[kind]
    if kind in _POINTERS:
        return hasattr(value, "data_ptr")
    return kind in (ValueKind.NONE, ValueKind.CONSTANT)
