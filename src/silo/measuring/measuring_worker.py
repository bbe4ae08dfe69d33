"""The process that runs candidates (``python -m silo.measuring.measuring_worker``).

:mod:`silo.measuring.measuring_process` starts it. A candidate may write outside of its arrays, fault or never end. In
this process that costs one config: the process is stopped, and the next process starts with the arguments' original
content. The process loads no framework and no compiler.
"""

from __future__ import annotations

import gc
import mmap
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from silo.compile.wire import Message, encode, encode_error
from silo.compile.worker_serving import run_when_idle, serve
from silo.core.compound_arguments import TensorDescriptor
from silo.core.decisions import Rejected
from silo.core.device import place_of
from silo.core.launch_info import LaunchInfo
from silo.core.plugins import loader_of
from silo.core.protocols import Device, WatchfulTimer
from silo.core.signature import ParameterKind
from silo.core.variant import Variant
from silo.errors import DeviceError, LaunchError, SiloError
from silo.launch.array_libraries.pinned import pinned
from silo.launch.buffers import Buffer
from silo.launch.runtime import bind, make_launcher
from silo.machine.device_plugins import device_named
from silo.measuring.device_energy import energy_of
from silo.measuring.sent_calls import ADDRESS_MODULUS, ArraySlot, read_arguments, read_descriptors, received_consent
from silo.tuner.measure import Contender, MeasurePolicy, PairedReference, copy_fits, interleave, measure

__all__ = ["main"]


class _Array:
    """The memory of one argument on the device, and the argument's original content."""

    def __init__(self, slot: ArraySlot, inputs: memoryview, results: memoryview, device: str) -> None:
        self._slot = slot
        self._arguments, self._results = inputs, results
        self._device = device
        self._memory = Buffer(slot.size + 2 * ADDRESS_MODULUS, "uint8", device)
        base = self._memory.data_ptr()
        self._first = (slot.shift - base) % ADDRESS_MODULUS
        # This process's own copy of the original content: on the device, or a view of page-locked memory. None: the
        # content is read from the shared memory.
        self._pristine: Buffer | memoryview | None = None
        self._is_saved = False
        self._memory.copy_from(self._given, at=self._first)
        self.address = base + self._first + slot.low

    @property
    def _given(self) -> memoryview:
        return self._arguments[self._slot.offset : self._slot.offset + self._slot.size]

    def keep(self, free: int | None) -> str:
        """Copies the original content to memory that restores it fast: on the device, or else page-locked on the host.

        ``free`` is the number of unused bytes on the device, None if unknown. If they do not suffice, returns a note
        about the memory that is used instead; else "".
        """
        if self._is_saved:
            return ""
        self._is_saved = True
        size = self._slot.size
        fits = copy_fits(size, free)
        if fits:
            self._pristine = Buffer.of(self._given, "uint8", None, self._device)
            return ""
        memory = pinned(size, self._device)
        if isinstance(memory, Rejected):
            return f"{fits.reason}; {memory.reason}"
        self._pristine = memoryview(memory)
        self._pristine[:] = self._given
        return fits.reason

    def restore(self) -> None:
        """Restores the original content."""
        self._memory.copy_from(self._given if self._pristine is None else self._pristine, at=self._first)

    def give_back(self) -> None:
        """Writes the present content to the shared memory for results."""
        slot = self._slot
        self._memory.copy_to(self._results[slot.offset : slot.offset + slot.size], at=self._first)


@dataclass(frozen=True)
class _Candidate:
    """One loaded variant: its launch, the arrays that it may write, and among these the arrays that it also reads."""

    launch: Callable[[], object]
    writes: frozenset[int]
    updates: frozenset[int]


class _Bench:
    """The arguments and the candidates of one tuning session."""

    def __init__(self, device: Device, inputs: memoryview, results: memoryview) -> None:
        self._device = device
        self._device_name = place_of(device).name
        self._given, self._results = inputs, results
        self._timer = device.timer()
        if isinstance(self._timer, WatchfulTimer):
            self._timer.settle()
        self._arrays: list[_Array] = []
        self._argument_slots: Mapping[str, int] = {}
        self._values: Mapping[str, object] = {}
        self._descriptors: Mapping[str, TensorDescriptor] = {}
        self._candidates: dict[str, _Candidate] = {}
        self._dirty: set[int] = set()

    def answer(self, message: Message) -> bytes:
        """Carries out one request and returns the encoded answer."""
        header, blobs = message
        try:
            reply = getattr(self, f"_do_{header['do']}")(header, blobs)
        except SiloError as error:
            return encode_error(error)
        except Exception as error:  # noqa: BLE001  # a config's own fault, for example a value that does not fit
            traceback.print_exc()
            return encode_error(LaunchError(f"{type(error).__name__}: {error}"))
        return encode({"outcome": "done", **(reply or {})})

    def _do_arguments(self, header: Mapping[str, Any], _: Sequence[bytes]) -> None:
        slots, self._argument_slots, self._values = read_arguments(header["arguments"])
        self._arrays = [_Array(slot, self._given, self._results, self._device_name) for slot in slots]
        self._descriptors = read_descriptors(
            header["arguments"], lambda name: self._arrays[self._argument_slots[name]].address
        )

    def _do_load(self, header: Mapping[str, Any], blobs: Sequence[bytes]) -> dict[str, object]:
        variant, launch = Variant.from_json(header["variant"]), LaunchInfo.from_json(header["launch"])
        kind = header["kind"]
        asker = "the process that measures"
        consent = received_consent(header["consent"], kind, variant, launch, blobs[0], asker)
        if loader_of(kind) is not None:
            raise DeviceError(
                f"{variant.kernel}: its code, of kind {kind}, is run by a library, which gets a call's own objects; "
                f"this process has addresses alone. Where such code is tuned, {self._device.target} says that it is "
                "measured in the process that tunes (Device.measuring)"
            )
        loaded = self._device.load(launch, blobs[0], kind, variant.kernel, consent=consent)
        signature = variant.signature
        config = {**variant.specialization.constant_values, **variant.config.as_dict()}
        binding = bind(cast("Any", loaded), launch, signature, variant.specialization, config)
        # Constants are part of the code, so calls do not pass them.
        constants = [p.name for p in signature.parameters if p.kind is ParameterKind.CONSTEXPR]
        launcher = make_launcher(variant.kernel, signature, on_miss=lambda _: binding, config_names=constants)
        arguments: dict[str, object] = {
            name: self._arrays[self._argument_slots[name]].address
            if name in self._argument_slots
            else self._values[name]
            for name in signature.names
            if name not in constants and (name in self._argument_slots or name in self._values)
        }
        arguments |= self._descriptors
        call = launcher[tuple(header["grid"])]
        pointers = [p for p in signature.parameters if p.name in self._argument_slots and p.name not in constants]
        writes = frozenset(self._argument_slots[p.name] for p in pointers if p.effect.writes)
        updates = frozenset(self._argument_slots[p.name] for p in pointers if p.effect.writes and p.effect.reads)
        notes = [self._arrays[number].keep(self._device.free_memory()) for number in writes]
        self._candidates[header["key"]] = _Candidate(lambda: call(**arguments), writes, updates)
        return {"notes": [note for note in notes if note]}

    def _do_run(self, header: Mapping[str, Any], _: Sequence[bytes]) -> dict[str, object]:
        candidate = self._candidates[header["key"]]
        self._restore_all()
        self._dirty |= candidate.writes
        candidate.launch()
        self._device.synchronize()
        for number in candidate.writes:
            self._arrays[number].give_back()
        names = [name for name, number in self._argument_slots.items() if number in candidate.writes]
        return {"written": names}

    def _do_measure(self, header: Mapping[str, Any], _: Sequence[bytes]) -> dict[str, object]:
        candidate = self._candidates[header["key"]]
        self._restore_all()
        self._dirty |= candidate.writes
        beside = None
        if header["reference"] is not None:
            reference = self._candidates[header["reference"]]
            self._dirty |= reference.writes
            beside = PairedReference(self._contender(reference), header["reference_ns"])
        timing = measure(
            self._contender(candidate),
            self._timer,
            MeasurePolicy.of(self._device.timing),
            best_ns=header["best_ns"],
            beside=beside,
        )
        self._device.synchronize()
        return {"samples": list(timing.samples), "reference": list(timing.reference)}

    def _do_energy(self, header: Mapping[str, Any], _: Sequence[bytes]) -> dict[str, object]:
        candidate = self._candidates[header["key"]]
        self._restore_all()
        self._dirty |= candidate.writes
        energies = energy_of(self._device, self._contender(candidate), header["once_ns"])
        return {"energy": [joules.hex() for joules in energies]}

    def _do_compare(self, header: Mapping[str, Any], _: Sequence[bytes]) -> dict[str, object]:
        chosen = {key: self._candidates[key] for key in header["keys"]}
        self._restore_all()
        for candidate in chosen.values():
            self._dirty |= candidate.writes
        contenders = {key: self._contender(candidate) for key, candidate in chosen.items()}
        samples_by_key = interleave(contenders, self._timer, MeasurePolicy.of(self._device.timing))
        self._device.synchronize()
        return {"samples": {key: list(samples) for key, samples in samples_by_key.items()}}

    def _contender(self, candidate: _Candidate) -> Contender:
        arrays = [self._arrays[number] for number in sorted(candidate.updates)]

        def reset() -> None:
            for array in arrays:
                array.restore()

        return Contender(candidate.launch, reset if arrays else None)

    def _restore_all(self) -> None:
        for number in self._dirty:
            self._arrays[number].restore()
        self._dirty.clear()


def main(arguments: Sequence[str]) -> None:
    """Serves requests: ``main([device, arguments, results, when])``.

    ``arguments`` and ``results`` are file descriptors that this process inherited. If ``when`` is ``idle``, the process
    leaves the CPUs to every other process that wants them. Other processes map the same arguments, so this process maps
    them read-only.
    """
    name, given_path, results, when = arguments
    if when == "idle":
        run_when_idle()

    def start() -> Callable[[Message], bytes]:
        # a garbage collection would lengthen a sample; this process makes few reference cycles, so memory hardly grows
        gc.disable()
        read = memoryview(mmap.mmap(int(given_path), 0, access=mmap.ACCESS_READ))
        return _Bench(device_named(name), read, memoryview(mmap.mmap(int(results), 0))).answer

    serve(start)


if __name__ == "__main__":
    main(sys.argv[1:])
