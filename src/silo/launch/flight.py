"""The flight recorder: keeps the last launches of this process, for a crash report (``SILO_FLIGHT``).

Native code keeps the launches and writes the report (``native/python/flight.h``). This module adds the descriptions of
kernels to a report, notices when to write one (a request, a hang, an exception that a GPU's error caused), and copies
integer arrays.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from silo.core.values import JSON, canonical_json
from silo.errors import SettingsError, SiloError
from silo.launch import native
from silo.launch.hooks import LaunchEvent, on_launch
from silo.settings import absolute_path, settings
from silo.status_line import announce

__all__ = [
    "apply_setting",
    "check_launches_by",
    "clear",
    "describe_by",
    "description_of",
    "dump_launches",
    "keep_copies",
    "launch_check",
    "start",
    "state",
]

Describe = Callable[[object], "Mapping[str, JSON] | None"]

_describers: list[Describe] = []
_gpus: set[tuple[str, int]] = set()  # driver and index of the GPUs that kernels were launched on
_started = False
_check: Callable[[LaunchEvent], None] | None = None

_MOST_COPY = 1 << 20  # the size in bytes up to which an integer array is copied before a launch


def describe_by(describe: Describe) -> None:
    """Registers a function that describes kernels in reports.

    The function takes the tag of a kernel's binding, an object that the kernel's maker attached to the loaded code. It
    returns members of the kernel's description, or None for a tag that it does not know.
    """
    if describe not in _describers:
        _describers.append(describe)


def check_launches_by(check: Callable[[LaunchEvent], None]) -> None:
    """Registers ``check``, which is called right before each launch that Triton makes itself, without Silo."""
    global _check  # noqa: PLW0603  # the recorder is the process's
    _check = check


def launch_check() -> Callable[[LaunchEvent], None] | None:
    """Returns the function registered by :func:`check_launches_by`, or None."""
    return _check


def start(*, arrays: bool = False) -> None:
    """Starts to record launches; with ``arrays``, also copies of their integer arrays.

    Raises:
        SettingsError: the path of a report is too long.
    """
    global _started  # noqa: PLW0603  # the recorder is the process's
    current = settings()
    path = Path("crash.silo") if current.flight_file is None else Path(current.flight_file)
    try:
        native.flight_start(_describe, str(absolute_path(path)), current.flight_launches, current.flight_bytes)
    except ValueError as error:
        raise SettingsError(f"SILO_FLIGHT: {error}") from error
    if _started:
        return
    _started = True
    if arrays:
        on_launch(_keep_integers)
    _watch_exceptions()
    if current.flight_hang_s > 0:
        threading.Thread(target=_watch_hangs, args=(current.flight_hang_s,), name="silo-flight", daemon=True).start()


def apply_setting() -> None:
    """Starts the recorder if the settings enable it. Further calls do nothing."""
    if not _started:
        start(arrays=settings().flight == "arrays")


def dump_launches(path: str | os.PathLike[str] | None = None) -> Path:
    """Writes the recorded launches to ``path``, or to the path in the settings, and returns that path.

    Raises:
        SettingsError: the recorder is off, or the file cannot be written.
    """
    return _write("request", "asked for by the program", path)


def clear() -> None:
    """Discards the launches that were recorded so far."""
    native.flight_clear()


def state() -> tuple[int, bool]:
    """Returns the number of the last launch, and whether its call is still running."""
    return native.flight_state()


def _write(cause: str, text: str, path: str | os.PathLike[str] | None = None) -> Path:
    try:
        written_path = (
            native.flight_write(cause, text) if path is None else native.flight_write(cause, text, os.fspath(path))
        )
    except OSError as error:
        if not _started:
            raise SettingsError("no launches are kept: set SILO_FLIGHT=1") from error
        raise SettingsError(f"the last launches cannot be written: {error}") from error
    return Path(written_path)


# ---- descriptions


def _describe(
    kernel: str,
    parameters: tuple[tuple[str, bool], ...],
    config: Mapping[str, object],
    tag: object,
    driver: str,
    device: tuple[int, int],
) -> bytes:
    """Returns the description of a kernel as JSON. Native code calls this at the kernel's first launch."""
    if driver != "cpu":
        _gpus.add((driver, device[1]))
    description, reason = description_of(tag)
    members: dict[str, JSON] = {
        "kernel": kernel,
        "parameters": [[name, address] for name, address in parameters],
        "config": {name: repr(value) for name, value in config.items()},
        "driver": driver,
        "device": list(device),
        "reason": reason,
    }
    return canonical_json({**members, **description})


def description_of(tag: object) -> tuple[Mapping[str, JSON], str]:
    """Returns a kernel's description and "".

    The first registered function that knows the binding's tag makes the description. If no function knows the tag,
    returns an empty mapping and the reason.
    """
    reason = "nothing here has the text of its code"
    for describe in _describers:
        try:
            description = describe(tag)
        except SiloError as error:
            reason = str(error)
            continue
        if description is not None:
            return description, ""
    return {}, reason


# ---- when to write a report


def _watch_hangs(seconds: float) -> None:
    """Writes a report for the first launch whose call, or whose work on a GPU, takes longer than ``seconds``.

    Runs in a thread of its own.
    """
    last_number, since = 0, time.monotonic()
    events: list[native.GpuEvent] = []
    while True:
        time.sleep(min(seconds / 4, 1.0))
        number, running = native.flight_state()
        now = time.monotonic()
        if number != last_number:
            last_number, since = number, now
            events = []
        quiet = now - since
        if not running and number and not events and quiet >= seconds / 2:
            events = _events_behind_launches()
        hangs = running or any(_waits(event) for event in events)
        if hangs and quiet >= seconds:
            text = f"a launch took longer than {seconds:g} s" if running else f"a GPU works for more than {seconds:g} s"
            try:
                path = _write("hang", text)
            except SettingsError:
                return  # a report was written already
            announce(f"{text}; the last launches are in {path}: silo crash {path}")
            return


def _events_behind_launches() -> list[native.GpuEvent]:
    """Records an event on the default stream of each GPU in use.

    The caller queries the events to see whether earlier launches are done.
    """
    events: list[native.GpuEvent] = []
    for kind, index in tuple(_gpus):
        with contextlib.suppress(SiloError, ValueError):  # the device is lost, or its driver has no events
            event = native.GpuEvent(kind, index)
            event.record(0)
            events.append(event)
    return events


def _waits(event: native.GpuEvent) -> bool:
    try:
        return not event.query()
    except SiloError:
        return False


# Texts of the errors that torch and the drivers raise once a GPU's context is lost.
_LOST = (
    "illegal memory access",
    "misaligned address",
    "device-side assert",
    "unspecified launch failure",
    "illegal instruction",
    "hardware stack error",
    "illegal address",
)


def _watch_exceptions() -> None:
    """Installs hooks that write a report if an uncaught exception, of any thread, says that a GPU's context is lost."""
    before, before_thread = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        _notice(error)
        before(kind, error, trace)

    def thread_hook(arguments: Any) -> None:  # noqa: ANN401  # threading.ExceptHookArgs
        if arguments.exc_value is not None:
            _notice(arguments.exc_value)
        before_thread(arguments)

    sys.excepthook, threading.excepthook = hook, thread_hook


def _notice(error: BaseException) -> None:
    text = str(error).lower()
    lost = next((sign for sign in _LOST if sign in text), None)
    if lost is None:
        return
    try:
        path = _write("device error", lost)
    except SettingsError:
        return  # native code wrote the report already, or it cannot be written
    announce(f"the last launches are in {path}: silo crash {path}")


# ---- copies


def _keep_integers(event: LaunchEvent) -> None:
    """Copies the storages of integer tensors up to 1 MiB, which the recorder keeps with the launch that follows."""
    keep_copies(event, only_integers=True, most=_MOST_COPY)


def keep_copies(event: LaunchEvent, *, only_integers: bool, most: int) -> None:
    """Copies the storages of a launch's torch tensors, up to ``most`` bytes each.

    The recorder keeps them with the launch.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return
    copies: list[tuple[int, bytes]] = []
    for value in event.arguments.values():
        if not isinstance(value, torch.Tensor):
            continue
        tensor: Any = value
        if only_integers and (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            continue
        storage = tensor.untyped_storage()
        if storage.nbytes() > most or (tensor.is_cuda and torch.cuda.is_current_stream_capturing()):
            continue
        storage_bytes = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        copies.append((storage.data_ptr(), storage_bytes.cpu().numpy().tobytes()))
    native.flight_keep(tuple(copies))
