"""A device that does nothing, in order to test everything around it."""

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
    """A blob that was loaded. Launching it is remembering that it was launched, which its owner does."""

    entry: str
    name: str
    launch: LaunchInfo
    blob: bytes


@dataclass(frozen=True, slots=True)
class FakeDevice:
    """Implements :class:`silo.core.protocols.Device`. Devices of another ``model`` tune apart.

    >>> bool(FakeDevice().runs(FAKE_TARGET))
    True
    """

    model: DeviceModel = FAKE_MODEL
    target: Target = FAKE_TARGET
    index: int = 0
    driver: str = ""

    def facts(self) -> Mapping[str, int]:
        """Leaves of the expression language."""
        return {"sm_count": self.model.units, "reserved_sms": 0, "num_sms": self.model.units, "warp_size": 32}

    @property
    def memory(self) -> Memory:
        """None that any array is in."""
        return Memory((-1,))

    @property
    def measuring(self) -> Rejected:
        """There is nothing to time."""
        return Rejected("the fake device runs nothing")

    def synchronize(self) -> None:
        """Nothing is ever under way."""

    def free_memory(self) -> None:
        """There is none."""

    def runs(self, target: Target, blob_kind: str = "") -> Decision:
        """Exactly its own target."""
        del blob_kind
        if target == self.target:
            return Accepted("the very target")
        return Rejected(f"the fake device runs {self.target} only, not {target}")

    def load(
        self, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None = None
    ) -> FakeKernel:
        """Take any blob of kind ``fake`` that is not empty. Raises DeviceError."""
        del consent
        if kind != "fake" or not blob:
            raise DeviceError(f"{name}: the fake device loads blobs of kind fake that hold something, not {kind!r}")
        return FakeKernel(launch.entry, name, launch, blob)


def devices() -> Sequence[FakeDevice]:
    """The fake devices of this machine: one."""
    return (FakeDevice(),)
