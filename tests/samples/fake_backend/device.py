"""A device that does nothing, for tests of everything around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from silo.core.consent import Consent
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import DeviceModel, Memory, Target
from silo.core.launch_info import LaunchInfo
from silo.errors import DeviceError

__all__ = ["FAKE_MODEL", "FAKE_TARGET", "FakeDevice", "FakeKernel", "devices"]

FAKE_TARGET = Target("fake", "v1")
FAKE_MODEL = DeviceModel("silo", "Fake One", "v1", 4, 1 << 30)


@dataclass(frozen=True, slots=True)
class FakeKernel:
    """A loaded blob, which nothing launches."""

    entry: str
    name: str
    launch: LaunchInfo
    blob: bytes


@dataclass(frozen=True, slots=True)
class FakeDevice:
    """Implements :class:`silo.core.protocols.Device`. Devices with another ``model`` are tuned separately.

    >>> bool(FakeDevice().runs(FAKE_TARGET))
    True
    """

    model: DeviceModel = FAKE_MODEL
    target: Target = FAKE_TARGET
    index: int = 0
    driver: str = ""

    def facts(self) -> Mapping[str, int]:
        """Return the device facts that expressions may use."""
        return {"sm_count": self.model.units, "reserved_sms": 0, "num_sms": self.model.units, "warp_size": 32}

    @property
    def memory(self) -> Memory:
        """A memory type that no array has."""
        return Memory((-1,))

    @property
    def measuring(self) -> Rejected:
        """The reason why the device measures nothing."""
        return Rejected("the fake device runs nothing")

    def synchronize(self) -> None:
        """Do nothing, because nothing ever runs."""

    def free_memory(self) -> None:
        """Do nothing, because the device has no memory."""

    def runs(self, target: Target, blob_kind: str = "") -> Decision:
        """Accept exactly the device's own target."""
        del blob_kind
        if target == self.target:
            return Accepted("the very target")
        return Rejected(f"the fake device runs {self.target} only, not {target}")

    def load(
        self, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None = None
    ) -> FakeKernel:
        """Load any blob of kind ``fake`` that is not empty. Raises DeviceError."""
        del consent
        if kind != "fake" or not blob:
            raise DeviceError(f"{name}: the fake device loads blobs of kind fake that hold something, not {kind!r}")
        return FakeKernel(launch.entry, name, launch, blob)


def devices() -> Sequence[FakeDevice]:
    """Return the fake devices of this machine: one."""
    return (FakeDevice(),)
