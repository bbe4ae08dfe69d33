"""The energy of launches on a device of this process, if the device counts it."""

from __future__ import annotations

import time

from silo.core.decisions import Rejected
from silo.core.protocols import Device, EnergyMeter, MetersEnergy
from silo.errors import DeviceError
from silo.tuner.energy import measure_energy
from silo.tuner.measure import Contender

__all__ = ["energy_of", "meter_of"]


def meter_of(device: Device) -> EnergyMeter | Rejected:
    """The device's energy counter, or the reason why it cannot be read."""
    if isinstance(device, MetersEnergy):
        return device.energy_meter()
    return Rejected(f"Silo reads no energy counter of devices of kind {device.target.kind}")


def energy_of(device: Device, contender: Contender, once_ns: int) -> tuple[float, ...]:
    """Samples in nanojoules for one launch, which takes about ``once_ns``.

    Raises:
        DeviceError: the device has no counter, or it cannot be read.
    """
    meter = meter_of(device)
    if isinstance(meter, Rejected):
        raise DeviceError(f"energy is not measured on {device.target}: {meter.reason}")
    try:
        return measure_energy(contender, meter, device.synchronize, once_ns, time.monotonic_ns)
    except OSError as error:
        raise DeviceError(f"energy is not measured on {device.target}: {error}") from error
