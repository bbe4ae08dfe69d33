"""The flight recorder: the last launches of this process, for a report of a crash (``SILO_FLIGHT``).

Native code keeps the launches and writes the report (``native/python/flight.h``). Here are the descriptions of kernels
that a report holds, the moments that Python notices (a request, a hang, an exception that a GPU's error caused), and
copies of integer arrays.
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
_gpus: set[tuple[str, int]] = set()  # those that kernels were launched on
_started = False
_check: Callable[[LaunchEvent], None] | None = None

_MOST_COPY = 1 << 20  # bytes of an integer array that is copied before a launch


def describe_by(describe: Describe) -> None:
    """Add a function from the tag of a kernel's binding to members of its description, or None for another's tag."""
    if describe not in _describers:
        _describers.append(describe)


def check_launches_by(check: Callable[[LaunchEvent], None]) -> None:
    """Have ``check`` see also the launches that Triton makes itself, before they are made."""
    global _check  # noqa: PLW0603  # the recorder is the process's
    _check = check


def launch_check() -> Callable[[LaunchEvent], None] | None:
    """The function that :func:`check_launches_by` was given."""
    return _check


def start(*, arrays: bool = False) -> None:
    """Record launches from now on; ``arrays`` keeps copies of integer arrays.

    Raises:
        SettingsError: the path of a report is too long.
    """
    global _started  # noqa: PLW0603  # the recorder is the process's
    given = settings()
    path = Path("crash.silo") if given.flight_file is None else Path(given.flight_file)
    try:
        native.flight_start(_describe, str(absolute_path(path)), given.flight_launches, given.flight_bytes)
    except ValueError as error:
        raise SettingsError(f"SILO_FLIGHT: {error}") from error
    if _started:
        return
    _started = True
    if arrays:
        on_launch(_keep_integers)
    _watch_exceptions()
    if given.flight_hang_s > 0:
        threading.Thread(target=_watch_hangs, args=(given.flight_hang_s,), name="silo-flight", daemon=True).start()


def apply_setting() -> None:
    """Start the recorder if the settings name it, once."""
    if not _started:
        start(arrays=settings().flight == "arrays")


def dump_launches(path: str | os.PathLike[str] | None = None) -> Path:
    """Write the launches that are kept to ``path``, or to the path that the settings name; its path.

    Raises:
        SettingsError: the recorder is off, or the file cannot be written.
    """
    return _write("request", "asked for by the program", path)


def clear() -> None:
    """Forget the launches up to now."""
    native.flight_clear()


def state() -> tuple[int, bool]:
    """The number of the last launch, and whether its call has not returned yet."""
    return native.flight_state()


def _write(cause: str, text: str, path: str | os.PathLike[str] | None = None) -> Path:
    try:
        made = native.flight_write(cause, text) if path is None else native.flight_write(cause, text, os.fspath(path))
    except OSError as error:
        if not _started:
            raise SettingsError("no launches are kept: set SILO_FLIGHT=1") from error
        raise SettingsError(f"the last launches cannot be written: {error}") from error
    return Path(made)


# ---- descriptions


def _describe(
    kernel: str,
    parameters: tuple[tuple[str, bool], ...],
    config: Mapping[str, object],
    tag: object,
    driver: str,
    device: tuple[int, int],
) -> bytes:
    """The description of a kernel as JSON; native code calls it at the kernel's first launch."""
    if driver != "cpu":
        _gpus.add((driver, device[1]))
    found, reason = description_of(tag)
    members: dict[str, JSON] = {
        "kernel": kernel,
        "parameters": [[name, address] for name, address in parameters],
        "config": {name: repr(value) for name, value in config.items()},
        "driver": driver,
        "device": list(device),
        "reason": reason,
    }
    return canonical_json({**members, **found})


def description_of(tag: object) -> tuple[Mapping[str, JSON], str]:
    """The members that describe the kernel of a binding's tag, or none and the reason."""
    reason = "nothing here has the text of its code"
    for describe in _describers:
        try:
            found = describe(tag)
        except SiloError as error:
            reason = str(error)
            continue
        if found is not None:
            return found, ""
    return {}, reason


# ---- moments


def _watch_hangs(seconds: float) -> None:
    """Report the first launch whose call, or whose work on a GPU, takes longer than ``seconds``."""
    seen, since = 0, time.monotonic()
    events: list[native.GpuEvent] = []
    while True:
        time.sleep(min(seconds / 4, 1.0))
        number, running = native.flight_state()
        now = time.monotonic()
        if number != seen:
            seen, since = number, now
            events = []
        quiet = now - since
        if not running and number and not events and quiet >= seconds / 2:
            events = _events_behind_launches()
        hangs = running or any(_waits(one) for one in events)
        if hangs and quiet >= seconds:
            text = f"a launch took longer than {seconds:g} s" if running else f"a GPU works for more than {seconds:g} s"
            try:
                path = _write("hang", text)
            except SettingsError:
                return  # one was written
            announce(f"{text}; the last launches are in {path}: silo crash {path}")
            return


def _events_behind_launches() -> list[native.GpuEvent]:
    """An event on the default stream of each GPU, recorded once no launch was made for a while."""
    made: list[native.GpuEvent] = []
    for kind, index in tuple(_gpus):
        with contextlib.suppress(SiloError, ValueError):  # a lost device; one without events
            event = native.GpuEvent(kind, index)
            event.record(0)
            made.append(event)
    return made


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
    """Report an exception that ends the program or a thread, if its text is that of a lost GPU."""
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
    lost = next((one for one in _LOST if one in text), None)
    if lost is None:
        return
    try:
        path = _write("device error", lost)
    except SettingsError:
        return  # native code has written it, or nobody can
    announce(f"the last launches are in {path}: silo crash {path}")


# ---- copies


def _keep_integers(event: LaunchEvent) -> None:
    """Copy the storages of integer arrays up to 1 MiB, to be kept with the launch that follows."""
    keep_copies(event, only_integers=True, most=_MOST_COPY)


def keep_copies(event: LaunchEvent, *, only_integers: bool, most: int) -> None:
    """Copy the storages of a launch's torch tensors, up to ``most`` bytes each, to be kept with the launch."""
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
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        copies.append((storage.data_ptr(), whole.cpu().numpy().tobytes()))
    native.flight_keep(tuple(copies))
