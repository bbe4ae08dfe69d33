"""The machine as a device: it computes over arrays in the host's memory."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from silo.artifacts.runs_on import runs_on
from silo.core.consent import Consent
from silo.core.decisions import Decision
from silo.core.device import HOST_MEMORY, DeviceModel, Measuring, Memory, Target
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import LoadedKernel
from silo.errors import DeviceError

__all__ = ["RpnDevice", "devices"]


MODEL = DeviceModel(vendor="silo-rpn", name="Stack Machine", arch="v1", units=1, memory_bytes=1 << 20)
TARGET = Target("rpn", "v1")
MEMORY = Memory((HOST_MEMORY,))


class RpnTimer:
    """The wall clock."""

    def elapsed_ns(self, launch: Callable[[], object], repeats: int) -> int:
        """Launches return when they are done."""
        begin = time.perf_counter_ns()
        for _ in range(repeats):
            launch()
        return time.perf_counter_ns() - begin


@dataclass(frozen=True)
class RpnDevice:
    """Implements ``silo.core.protocols.Device``."""

    model: DeviceModel = MODEL
    target: Target = TARGET
    index: int = 0
    driver: str = ""
    timing: str = "rpn-wall/1"
    memory: Memory = MEMORY
    measuring: Measuring = Measuring.HERE  # its code ends, and does nothing but arithmetic

    def facts(self) -> Mapping[str, int]:
        """What grids may read."""
        return {"sm_count": 1, "reserved_sms": 0, "num_sms": 1, "warp_size": 1}

    def runs(self, target: Target, blob_kind: str = "") -> Decision:
        """Exactly its own target."""
        return runs_on(target, self.target, blob_kind)

    def synchronize(self) -> None:
        """Nothing is ever enqueued."""

    def free_memory(self) -> None:
        """Not counted."""

    def timer(self) -> RpnTimer:
        """The wall clock."""
        return RpnTimer()

    def load(
        self, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None = None
    ) -> LoadedKernel:
        """There is no driver: the loaders of its kinds load."""
        raise DeviceError(f"{name}: the stack machine has no driver that loads {kind!r}")


def devices() -> Sequence[RpnDevice]:
    """The machines here: one."""
    return (RpnDevice(),)
