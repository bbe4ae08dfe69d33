"""``silo exec --check-launches``: checks launches like the suspects of a crash, on the CPU and before they run."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from silo.checking.crash_report import (
    Argument,
    CrashCause,
    CrashKernel,
    CrashReport,
    KeptArray,
    RecordedLaunch,
    read_report,
)
from silo.commands.crash_suspects import Suspect, Verdict, layout_of, suspects_of, unchecked_reason
from silo.commands.examine_crash import Examiner
from silo.core.launch_info import AbiType
from silo.errors import CheckError, SiloError
from silo.launch.argument_memory import allocation_of
from silo.launch.flight import check_launches_by, description_of
from silo.launch.hooks import LaunchEvent, on_launch
from silo.launch.new_memory import fill_new_memory, fill_new_tensors
from silo.status_line import announce

__all__ = ["LaunchChecks", "start"]

_started: list[LaunchChecks] = []


def start(path: Path) -> None:
    """Starts to check the launches of this process that resemble suspects of the report. Further calls do nothing.

    Raises:
        BundleError: the report cannot be read.
    """
    if _started:
        return
    checks = LaunchChecks(read_report(path))
    _started.append(checks)
    check_launches_by(checks)
    on_launch(checks, each=True)
    torch: Any = sys.modules.get("torch")
    # new memory gets a fill pattern, by which a check recognizes reads of memory that was never written
    if torch is not None:
        fill_new_memory(torch)
        fill_new_tensors(torch)


class _Busy(threading.local):
    """Whether this thread is checking a launch at the moment."""

    set = False


class LaunchChecks:
    """A hook that copies the arrays of a launch to host memory and checks the launch there.

    Raises CheckError for a fault.
    """

    def __init__(self, report: CrashReport) -> None:
        self._launches_to_check = {
            (report.kernels[suspect.launch.kernel].name, suspect.launch.grid) for suspect in suspects_of(report)
        }
        # Descriptions of kernels, by the id of a binding's tag. The value also holds the tag, so that no other object
        # gets the id.
        self._kernels: dict[int, tuple[object, CrashKernel]] = {}
        self._number = 0
        self._logged: set[str] = set()
        self._busy = _Busy()

    def __call__(self, event: LaunchEvent) -> None:
        """Checks a launch, unless a check made that launch itself."""
        if self._busy.set or event.parts or (event.kernel, tuple(event.grid)) not in self._launches_to_check:
            return
        self._number += 1
        self._busy.set = True
        try:
            verdict, error = self._checked(event)
        except SiloError as refused:
            self._log_undecided(event.kernel, f"it cannot be checked: {refused}")
            return
        finally:
            self._busy.set = False
        if verdict.outcome == "named" and error is not None:
            raise error
        if verdict.outcome == "undecided":
            self._log_undecided(event.kernel, verdict.text)

    def _log_undecided(self, kernel: str, reason: str) -> None:
        line = f"{kernel}: undecided: {reason}"
        if line not in self._logged:
            self._logged.add(line)
            announce(line)

    def _checked(self, event: LaunchEvent) -> tuple[Verdict, CheckError | None]:
        report = self._report(event)
        suspect = Suspect(report.launches[0], (self._number,))
        if reason := unchecked_reason(report, suspect.launch):
            return Verdict(event.kernel, suspect.numbers, "undecided", reason), None
        return Examiner(report).examine(suspect)

    def _report(self, event: LaunchEvent) -> CrashReport:
        """Makes a crash report of a single launch, with the contents of its arrays."""
        kernel = self._kernel(event)
        words: list[Argument] = []
        data = bytearray()
        arrays: dict[int, KeptArray] = {}
        if kernel.members.get("text"):
            for name, kind in _slots(kernel):
                value = event.arguments.get(name)
                if kind is not AbiType.POINTER:
                    words.append(Argument(_word(value, kind)))
                    continue
                argument, content = _memory(name, value)
                words.append(argument)
                if argument.size and argument.low not in arrays:
                    arrays[argument.low] = KeptArray(self._number, argument.low, len(data), argument.size, copy=True)
                    data += content
        launch = RecordedLaunch(self._number, 0, event.grid, event.stream, "running", tuple(words))
        cause = CrashCause("request", "a launch that is checked before it runs")
        return CrashReport(
            Path("this program"), os.getpid(), cause, (kernel,), (launch,), tuple(arrays.values()), bytes(data)
        )

    def _kernel(self, event: LaunchEvent) -> CrashKernel:
        entry = self._kernels.get(id(event.tag))
        if entry is None or entry[0] is not event.tag:
            members, reason = description_of(event.tag)
            kernel = CrashKernel(event.kernel, (), event.device, reason, members)
            if members.get("text"):
                names = tuple((name, kind is AbiType.POINTER) for name, kind in _slots(kernel))
                kernel = CrashKernel(event.kernel, names, event.device, "", members)
            entry = self._kernels[id(event.tag)] = (event.tag, kernel)
        return entry[1]


def _slots(kernel: CrashKernel) -> Iterator[tuple[str, AbiType]]:
    yield from ((slot.name, slot.type) for slot in layout_of(kernel).layout)


def _word(value: Any, kind: AbiType) -> int:  # noqa: ANN401  # a number
    if kind in (AbiType.FP16, AbiType.BF16, AbiType.FP32, AbiType.FP64):
        return int(struct.unpack("<Q", struct.pack("<d", float(value)))[0])
    return int(value) & (1 << 64) - 1


def _memory(name: str, value: Any) -> tuple[Argument, bytes]:  # noqa: ANN401  # any library's array
    """Returns an array's position in its allocation, and the contents of the allocation."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        tensor: Any = value
        storage = tensor.untyped_storage()
        storage_bytes = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        content = storage_bytes.cpu().numpy().tobytes()
        return Argument(tensor.data_ptr(), storage.data_ptr(), storage.nbytes()), content
    if value is None:
        return Argument(0), b""
    allocation = allocation_of(name, value)
    return Argument(allocation.address, allocation.low, allocation.size), ctypes.string_at(
        allocation.low, allocation.size
    )
