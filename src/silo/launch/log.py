"""``SILO_LAUNCH_LOG``: logs every launch as one line of JSON."""

from __future__ import annotations

import json
import math
import os
import time
from typing import Any, cast

from silo.errors import SettingsError, SiloError
from silo.launch import native
from silo.launch.array_parts import is_descriptor, with_base
from silo.launch.hooks import LaunchEvent, on_launch
from silo.settings import settings

__all__ = ["LaunchLog", "apply_setting"]


class LaunchLog:
    """A hook that appends one line for each launch.

    The line has the time (ns since the epoch), process, kernel, device, grid, stream, config and arguments, and for a
    plan the names of its kernels. Lines of several threads and processes never mix.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens the file, and creates it if necessary. Raises ``SettingsError`` if that is impossible."""
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise SettingsError(f"SILO_LAUNCH_LOG: cannot write to {path}: {error.strerror}") from error

    def __call__(self, event: LaunchEvent) -> None:
        """Writes the launch's line with one system call, so that lines of other processes cannot mix with it."""
        line: dict[str, object] = {
            "time_ns": time.time_ns(),
            "process": os.getpid(),
            "kernel": event.kernel,
            "device": event.device,
            "grid": list(event.grid),
            "stream": event.stream,
            "config": {name: _value(value) for name, value in event.config.items()},
            "arguments": {name: _value(value) for name, value in event.arguments.items()},
        }
        if event.parts:
            line["parts"] = list(event.parts)
        os.write(self._file, (json.dumps(line) + "\n").encode())


def _value(value: object) -> object:
    """Converts an argument to JSON: an array to its dtype, shape, address and device, other objects to text."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # JSON lacks infinities and NaN
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_value(item) for item in cast("list[object]", value)]
    if is_descriptor(value):  # a descriptor's repr shows the array's elements, which would wait for the device
        return _descriptor(value)
    try:
        address, code, bits, _, device, sizes, strides = native.read(value)
    except (SiloError, TypeError, ValueError, RuntimeError):  # not an array but, for example, a dtype or a function
        return repr(value)
    del code, bits
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    return {"dtype": dtype, "shape": list(sizes), "strides": list(strides), "address": address, "device": list(device)}


def _descriptor(value: Any) -> object:  # noqa: ANN401  # any class of descriptors
    plain = with_base(value, None)
    return {
        "base": _value(value.base),
        "shape": list(plain.shape),
        "strides": list(plain.strides),
        "block_shape": list(plain.block_shape),
        "padding": plain.padding,
    }


_applied: str | os.PathLike[str] | None = None


def apply_setting() -> None:
    """Starts the log if the settings name a file. Further calls do nothing."""
    global _applied  # noqa: PLW0603  # the file in use
    log_setting = settings().launch_log
    if log_setting is not None and log_setting != _applied:
        on_launch(LaunchLog(log_setting))
        _applied = log_setting
