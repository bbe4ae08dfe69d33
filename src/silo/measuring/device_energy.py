"""The energy of launches, read from a device's counter, which advances in steps of some ten milliseconds.

A sample repeats the launch for half a second or more, from one step of the counter to another, so that the width of a
step adds no error. Nothing is subtracted: the sample includes the energy that an idle device would have used. If a
kernel updates its arguments, the sample also includes the copies that restore them before each launch.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from silo.core.decisions import Rejected
from silo.core.protocols import Device, EnergyMeter, MetersEnergy
from silo.errors import DeviceError
from silo.tuner.measure import Contender

__all__ = ["energy_of", "measure_energy", "meter_of"]

_WINDOW_NS = 500_000_000
_SAMPLES = 3
_BATCH_NS = 2_000_000  # the time of the launches between two readings of the counter
_MOST_BATCH = 10_000
_STILL_NS = 2_000_000_000  # a counter that does not advance for this long under load does not work
_NJ_IN_MJ = 1_000_000


def measure_energy(
    contender: Contender,
    meter: EnergyMeter,
    synchronize: Callable[[], object],
    once_ns: int,
    clock: Callable[[], int],
) -> tuple[float, ...]:
    """Measures the energy of one launch, which takes about ``once_ns``; returns samples in nanojoules.

    ``clock`` returns monotonic nanoseconds.

    Raises:
        DeviceError: the counter does not advance, or runs backwards.
    """
    batch = min(max(_BATCH_NS // max(once_ns, 1), 1), _MOST_BATCH)

    def step() -> int:
        for _ in range(batch):
            if contender.reset is not None:
                contender.reset()
            contender.launch()
        synchronize()
        return batch

    read = meter.millijoules
    samples: list[float] = []
    begin_mj, _ = _advanced(read, step, read(), 0, clock)
    while len(samples) < _SAMPLES:
        end_mj, launches = _advanced(read, step, begin_mj, _WINDOW_NS, clock)
        samples.append((end_mj - begin_mj) * _NJ_IN_MJ / launches)
        begin_mj = end_mj
    return tuple(samples)


def _advanced(
    read: Callable[[], int], step: Callable[[], int], before_mj: int, least_ns: int, clock: Callable[[], int]
) -> tuple[int, int]:
    """Launches for at least ``least_ns`` nanoseconds, and then until the counter advances once more.

    Returns the counter's value in millijoules, and the number of launches.
    """
    begun = moved = clock()
    launches, last = 0, before_mj
    while True:
        launches += step()
        now, now_mj = clock(), read()
        if now_mj < last:
            raise DeviceError(f"the device's energy counter ran backwards, from {last} to {now_mj} mJ")
        if now_mj > last and now - begun >= least_ns:
            return now_mj, launches
        if now_mj > last:
            last, moved = now_mj, now
        elif now - moved > _STILL_NS:
            raise DeviceError(
                f"the device's energy counter stays at {now_mj} mJ under load for {_STILL_NS // 10**9} s, so energy is "
                "not measured here"
            )


def meter_of(device: Device) -> EnergyMeter | Rejected:
    """Returns the device's energy counter, or the reason why it cannot be read."""
    if isinstance(device, MetersEnergy):
        return device.energy_meter()
    return Rejected(f"Silo reads no energy counter of devices of kind {device.target.kind}")


def energy_of(device: Device, contender: Contender, once_ns: int) -> tuple[float, ...]:
    """Measures the energy of one launch, which takes about ``once_ns``; returns samples in nanojoules.

    Raises:
        DeviceError: the device has no energy counter, or the counter cannot be read.
    """
    meter = meter_of(device)
    if isinstance(meter, Rejected):
        raise DeviceError(f"energy is not measured on {device.target}: {meter.reason}")
    try:
        return measure_energy(contender, meter, device.synchronize, once_ns, time.monotonic_ns)
    except OSError as error:
        raise DeviceError(f"energy is not measured on {device.target}: {error}") from error
