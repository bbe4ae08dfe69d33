"""``SILO_PROFILE``: measures how long each kernel of a program takes, and how fast it moves the memory of its arrays.

Launches on a GPU are timed by events on their stream, which are read when many have accumulated and at exit; launches
on the CPU by the wall clock. Each array counts with its whole size, once if the kernel reads or writes it and twice for
both (as in PyTorch Inductor's bandwidth profile): a kernel that accesses a part of an array looks faster than it is.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from silo.core.signature import Effect
from silo.errors import DeviceError, LaunchError, SettingsError, SiloError
from silo.forks import Mutex
from silo.launch import native
from silo.launch.array_parts import is_descriptor
from silo.launch.hooks import LaunchEvent, on_launch
from silo.settings import settings
from silo.store.atomic_files import AtomicFile

__all__ = ["KernelTotal", "LaunchProfile", "apply_setting", "moved_bytes", "profile_table"]

# The most pairs of events that are left unread: reading a pair waits for the device.
_PENDING = 16384

# Two tables that are looked up at every launch. The first holds, by the kernel's effect on an array, how often the
# array's bytes are moved. The second holds the types of arguments that are never arrays.
_TIMES = {effect: int(effect.reads) + int(effect.writes) for effect in Effect}
_SCALARS = (int, float, str, type(None))

_log = logging.getLogger("silo")


@dataclass(frozen=True, slots=True)
class KernelTotal:
    """The sum of all timed launches of one kernel on one device.

    ``untimed`` counts launches that were captured into graphs or failed.
    """

    kernel: str
    device: str
    launches: int = 0
    untimed: int = 0
    time_ns: int = 0
    moved_bytes: int = 0

    @property
    def gigabytes_per_second(self) -> float:
        """The bandwidth in 10^9 bytes a second; 0 if no time was measured."""
        return self.moved_bytes / self.time_ns if self.time_ns else 0.0


def moved_bytes(arguments: Mapping[str, object], effects: Mapping[str, Effect]) -> int:
    """Returns the bytes of the arrays among ``arguments``; arrays that are read and written count twice.

    An array with an unknown effect counts as read and written.
    """
    total = 0
    for name, value in arguments.items():
        if not isinstance(value, _SCALARS) and (times := _TIMES[effects.get(name, Effect.BOTH)]):
            total += times * _array_bytes(value)
    return total


def _array_bytes(value: Any) -> int:  # noqa: ANN401  # whatever a call may be given
    try:
        _, _, bits, _, _, sizes, _ = native.read(value)
    except (SiloError, TypeError, ValueError, RuntimeError):  # not an array but a descriptor, a dtype or a function
        return _array_bytes(value.base) if is_descriptor(value) else 0
    return math.prod(sizes) * bits // 8


class LaunchProfile:
    """A hook that adds up the times of launches; :func:`profile_table` prints them."""

    def __init__(self) -> None:
        self._lock = Mutex()
        self._totals: dict[tuple[str, str], list[int]] = {}  # the numbers of a KernelTotal, by kernel and device
        self._pending: list[tuple[tuple[str, str], int, native.GpuEvent, native.GpuEvent]] = []

    def __call__(self, event: LaunchEvent) -> Callable[[], object]:
        """Starts to time one launch; returns a function that ends the timing."""
        key = (event.kernel, event.device)
        moved = moved_bytes(event.arguments, event.effects)
        kind, _, index = event.device.partition(":")
        if kind == "cpu":
            return self._clocked(key, moved)
        if native.gpu_capturing(kind, int(index), event.stream):
            return lambda: self._add(key, 0, 0, untimed=1)
        begin, end = native.GpuEvent(kind, int(index)), native.GpuEvent(kind, int(index))
        begin.record(event.stream)

        def after() -> None:
            end.record(event.stream)
            with self._lock:
                self._pending.append((key, moved, begin, end))
                full = len(self._pending) >= _PENDING
            if full:
                self._read_events()

        return after

    def totals(self) -> tuple[KernelTotal, ...]:
        """Returns the totals of every kernel so far, the largest time first. Waits for launches on GPUs."""
        self._read_events()
        with self._lock:
            kernel_totals = [KernelTotal(*key, *numbers) for key, numbers in self._totals.items()]
        return tuple(sorted(kernel_totals, key=lambda one: (-one.time_ns, one.kernel, one.device)))

    def _clocked(self, key: tuple[str, str], moved: int) -> Callable[[], object]:
        begin = time.perf_counter_ns()
        return lambda: self._add(key, time.perf_counter_ns() - begin, moved)

    def _read_events(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, []
        for key, moved, begin, end in pending:
            try:
                end.synchronize()
                elapsed_ns = end.elapsed_ns(begin)
            except (LaunchError, DeviceError):  # the device is lost; the program has seen the error already
                self._add(key, 0, 0, untimed=1)
            else:
                self._add(key, elapsed_ns, moved)

    def _add(self, key: tuple[str, str], time_ns: int, moved: int, *, untimed: int = 0) -> None:
        with self._lock:
            numbers = self._totals.get(key)
            if numbers is None:
                numbers = self._totals[key] = [0, 0, 0, 0]
            numbers[0] += 1 - untimed
            numbers[1] += untimed
            numbers[2] += time_ns
            numbers[3] += moved


def profile_table(totals: Iterable[KernelTotal]) -> str:
    """Formats totals as a table: milliseconds, share of the total time, GB (10^9 bytes) and GB/s of each kernel.

    >>> print(profile_table([KernelTotal("add", "cpu:0", 2, 0, 3_000_000, 24_000_000)]))
      share            ms  launches  ms/launch          GB      GB/s  kernel
     100.0%         3.000         2     1.5000       0.024       8.0  add (cpu:0)
    """
    rows = list(totals)
    all_ns = sum(row.time_ns for row in rows) or 1
    lines = ["  share            ms  launches  ms/launch          GB      GB/s  kernel"]
    for row in rows:
        mean_ms = row.time_ns / 1e6 / max(row.launches, 1)
        note = f", {row.untimed} launches not timed" if row.untimed else ""
        lines.append(
            f"{row.time_ns / all_ns:7.1%} {row.time_ns / 1e6:13.3f} {row.launches:9} {mean_ms:10.4f}"
            f" {row.moved_bytes / 1e9:11.3f} {row.gigabytes_per_second:9.1f}  {row.kernel} ({row.device}{note})"
        )
    return "\n".join(lines)


def _document(totals: Iterable[KernelTotal]) -> str:
    rows = list(totals)
    all_ns = sum(row.time_ns for row in rows) or 1
    kernels = [
        {**asdict(row), "gigabytes_per_second": row.gigabytes_per_second, "share": row.time_ns / all_ns} for row in rows
    ]
    return json.dumps({"schema": "profile/1", "kernels": kernels}, indent=2)


def write_profile(path: Path, totals: tuple[KernelTotal, ...]) -> None:
    """Writes the table of ``totals`` to a file, or JSON if its name ends in ``.json``.

    Replaces an existing file; ``OSError`` if that fails.
    """
    text = _document(totals) if path.suffix == ".json" else profile_table(totals)
    with AtomicFile(path, mode=0o666) as file:
        file.write(f"{text}\n".encode())
        file.commit()


_applied: str | os.PathLike[str] | None = None


def apply_setting() -> None:
    """Starts the profile if the settings name a file. Further calls do nothing.

    The file is written when this process ends, also by Ctrl-C.

    Raises:
        SettingsError: the file cannot be written.
    """
    global _applied  # noqa: PLW0603  # the file in use
    mode = settings().profile
    if mode is None or mode == _applied:
        return
    path = Path(mode)
    try:
        path.touch()
    except OSError as error:
        raise SettingsError(f"SILO_PROFILE: cannot write to {path}: {error.strerror}") from error
    profile = LaunchProfile()
    on_launch(profile)
    _applied = mode
    process = os.getpid()

    def finish() -> None:
        if os.getpid() != process:  # in a child made by fork: only the process that started the profile writes it
            return
        totals = profile.totals()
        try:
            write_profile(path, totals)
        except OSError as error:
            _log.error("SILO_PROFILE: cannot write to %s: %s", path, error.strerror)
            return
        launches, spent_ms = sum(total.launches for total in totals), sum(total.time_ns for total in totals) / 1e6
        _log.info("profile of %d kernels, %d launches, %.1f ms: %s", len(totals), launches, spent_ms, path)

    atexit.register(finish)
