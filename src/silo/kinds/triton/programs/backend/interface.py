"""The CPU's answers to programs that ask Triton's driver about a GPU."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from silo.drivers.cpu.levels import host_target
from silo.kinds.triton.front.adapter import cpu_target, plugin_driver
from silo.launch.native import cpu_threads

__all__ = ["DEVICE", "CpuEvent", "CpuInterface", "c_type", "current_target", "device_properties"]

DEVICE = -1
_MANY = 2**31 - 1  # a limit that CPUs lack: programs divide by it, compare with it
_MOST_WARPS = 64  # of a block, more than any GPU takes

_DRIVERS = {"cuda": "nvidia", "hip": "amd"}  # by kind of target: the name of Triton's own

_C_TYPES = {
    "i1": "int8_t",
    "u1": "int8_t",
    "fp16": "_Float16",
    "bf16": "uint16_t",
    "fp32": "float",
    "f32": "float",
    "fp64": "double",
    **{f"{sign}{bits}": f"{'u' * (sign == 'u')}int{bits}_t" for sign in "iu" for bits in (8, 16, 32, 64)},
}


def c_type(name: str, kind: str = "cpu") -> str:
    """The C type of a kernel parameter, in one word: ``triton.tools.link`` leaves out parameters whose type has two.

    A pointer has the type that Triton's own driver gives it. Numbers have their own width on every kind of target, for
    the C text passes the address of each.

    >>> c_type("*fp32"), c_type("u32"), c_type("*fp32", "cuda")
    ('uintptr_t', 'uint32_t', 'CUdeviceptr')

    Args:
        name: Triton's name of the parameter's type.
        kind: of the target that the kernel was compiled for.
    """
    if name in _C_TYPES:
        return _C_TYPES[name]
    driver = plugin_driver(_DRIVERS[kind]) if kind in _DRIVERS else None
    return "uintptr_t" if driver is None else str(driver.map_python_to_cpp_type(None, name))


@cache
def current_target() -> Any:  # noqa: ANN401
    """Triton's target for this machine."""
    return cpu_target(host_target())


def device_properties() -> dict[str, int]:
    """The functions of a device that Triton programs call. A thread of the pool is a multiprocessor with one lane.

    Nothing but threads is scarce, so a grid sized by occupancy has as many programs as other limits allow. Programs
    divide the registers by a block's registers, one for each of its warps here: the most warps a block may have must
    leave one block, or the grid would be empty and the result whatever was in memory.
    """
    return {
        "max_shared_mem": _MANY,
        "max_num_regs": _MOST_WARPS,
        "multiprocessor_count": cpu_threads(),
        "warpSize": 1,
        "sm_clock_rate": 0,
        "mem_clock_rate": 0,
        "mem_bus_width": 0,
    }


class CpuEvent:
    """A point in time, with the methods of ``torch.cuda.Event``."""

    def __init__(self, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        del enable_timing, blocking, interprocess
        self._at_ns = 0

    def record(self, stream: object = None) -> None:
        """Now: everything launched before is done."""
        del stream
        self._at_ns = time.perf_counter_ns()

    def elapsed_time(self, end: CpuEvent) -> float:
        """Milliseconds from this event to another."""
        return (end._at_ns - self._at_ns) / 1e6

    def synchronize(self) -> None:
        """Nothing runs behind the caller's back."""

    def query(self) -> bool:
        """Always done."""
        return True


class CpuInterface:
    """The part of ``torch.cuda`` that Triton's benchmarks use."""

    Event = CpuEvent

    @staticmethod
    def synchronize(device: object = None) -> None:
        """Nothing runs behind the caller's back."""

    @staticmethod
    def current_device() -> int:
        """The one there is."""
        return DEVICE

    @staticmethod
    def is_available() -> bool:
        """It is."""
        return True
