"""The process that launches code over bytes that another machine sent (``python -m silo.measuring.launch_worker``).

:mod:`silo.tuning.agents.sent_launches` starts it. It imports no module of the code's author and holds no expected
result, so the launched code finds nothing in this process except its own arguments. Every array lies between guard
bytes that no launch may change.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from silo.compile.wire import Message, encode, encode_error
from silo.compile.worker_serving import serve
from silo.core.device import place_of
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import Device, WatchfulTimer
from silo.core.signature import ParameterKind
from silo.core.variant import Variant
from silo.errors import LaunchError, SiloError
from silo.launch.buffers import Buffer
from silo.launch.runtime import bind, make_launcher
from silo.machine.device_plugins import device_named
from silo.tuner.measure import Contender, MeasurePolicy, compare_times

__all__ = ["main"]

# an array has the same address modulo this as on the sending machine; every allocator of device memory aligns to it
_MODULUS: Final = 256
_MARGIN: Final = 4096  # guard bytes before and after an array
_PATTERN: Final = 0xA5


class _Array:
    """One array on the device: its address is ``offset`` modulo 256, and guard bytes surround it."""

    def __init__(self, content: bytes, offset: int, device: str) -> None:
        self.content = content
        self._memory = Buffer(len(content) + 2 * (_MARGIN + _MODULUS), "uint8", device)
        base = self._memory.data_ptr()
        self._first = _MARGIN + (offset - base - _MARGIN) % _MODULUS
        self.address: int = base + self._first
        self._memory.fill(_PATTERN)
        self.restore()

    def restore(self) -> None:
        """Restores the original content."""
        if self.content:
            self._memory.copy_from(self.content, at=self._first)

    def read(self) -> tuple[bytes, bool]:
        """Returns the present content, and whether the guard bytes are unchanged."""
        content = bytearray(self._memory.nbytes)
        self._memory.copy_to(content)
        end = self._first + len(self.content)
        margins = content[: self._first] + content[end:]
        return bytes(content[self._first : end]), margins.count(_PATTERN) == len(margins)


class _Launches:
    """Carries out requests to launch, one after the other."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._device_name = place_of(device).name
        self._timer = device.timer()
        if isinstance(self._timer, WatchfulTimer):
            self._timer.settle()

    def answer(self, message: Message) -> bytes:
        """Carries out one request; returns the arrays that each launch left, and the ratio of each timed pair."""
        header, blobs = message
        try:
            return self._launched(header, list(blobs))
        except SiloError as error:
            return encode_error(error)
        except Exception as error:  # noqa: BLE001  # the code's fault, for example a value that does not fit
            traceback.print_exc()
            return encode_error(LaunchError(f"{type(error).__name__}: {error}"))

    def _launched(self, header: Mapping[str, Any], blobs: list[bytes]) -> bytes:
        rows = header["arrays"]
        arrays = [
            _Array(content, int(row["offset"]), self._device_name) for row, content in zip(rows, blobs, strict=False)
        ]
        codes = blobs[len(rows) :]
        runs: list[Mapping[str, Any]] = header["runs"]
        calls = [self._call(run, header["codes"][run["code"]], codes, arrays) for run in runs]
        contents: list[bytes] = []
        beside: list[list[int]] = []

        def restore_all() -> None:
            for array in arrays:
                array.restore()

        def run(number: int) -> None:
            restore_all()
            calls[number]()
            self._device.synchronize()
            for position, array in enumerate(arrays):
                content, is_whole = array.read()
                contents.append(content)
                if not is_whole:
                    beside.append([number, position])

        for number in range(len(calls)):
            run(number)
        ratios: list[dict[str, object]] = []
        timed = header["timed"]
        if timed is not None and not beside:
            reset: Callable[[], object] | None = restore_all if timed["restore"] else None
            pairs: list[list[int]] = timed["pairs"]
            for new, old in pairs:
                restore_all()
                ratio = compare_times(
                    Contender(calls[new], reset),
                    Contender(calls[old], reset),
                    self._timer,
                    MeasurePolicy.of(self._device.timing),
                    int(timed["margin_ppm"]),
                    float(timed["limit_s"]),
                )
                self._device.synchronize()
                names = ("median_ppm", "low_ppm", "high_ppm", "rounds", "new_ns", "old_ns")
                ratios.append({"speed": ratio.speed.value, **{name: getattr(ratio, name) for name in names}})
                run(new)  # one more launch, which exposes code that stops computing after some launches
        return encode({"outcome": "done", "beside": beside, "ratios": ratios}, contents)

    def _call(
        self, run: Mapping[str, Any], code: Mapping[str, Any], codes: Sequence[bytes], arrays: Sequence[_Array]
    ) -> Callable[[], object]:
        variant, launch = Variant.from_json(code["variant"]), LaunchInfo.from_json(code["launch"])
        # Loaded without consent, so that native code of the host is refused.
        blob = codes[int(run["code"])]
        loaded = self._device.load(launch, blob, str(code["kind"]), variant.kernel, consent=None)
        config = {**variant.specialization.constant_values, **variant.config.as_dict()}
        binding = bind(cast("Any", loaded), launch, variant.signature, variant.specialization, config)
        constants = [
            parameter.name for parameter in variant.signature.parameters if parameter.kind is ParameterKind.CONSTEXPR
        ]
        launcher = make_launcher(variant.kernel, variant.signature, on_miss=lambda _: binding, config_names=constants)
        names = [name for name in variant.signature.names if name not in constants]
        values = [_value(argument, arrays) for argument in run["arguments"]]
        arguments = dict(zip(names, values, strict=True))
        call = launcher[tuple(run["grid"])]
        return lambda: call(**arguments)


def _value(description: Any, arrays: Sequence[_Array]) -> float:  # noqa: ANN401  # a value of a request in JSON
    """Returns the value to pass for an argument: its number, or an address in an array."""
    if not isinstance(description, dict):
        return description
    reference = cast("Mapping[str, int]", description)
    return arrays[reference["array"]].address + reference.get("at", 0)


def main(arguments: Sequence[str]) -> None:
    """Serves requests for a device: ``main([device])``."""

    def start() -> Callable[[Message], bytes]:
        gc.disable()  # a garbage collection would lengthen a sample
        return _Launches(device_named(arguments[0])).answer

    serve(start)


if __name__ == "__main__":
    main(sys.argv[1:])
