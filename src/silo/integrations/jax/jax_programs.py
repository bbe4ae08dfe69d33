"""Connects Silo to jax: the handlers that XLA calls, and the calls that programs name by digest."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from silo.errors import DeviceError, UnsupportedError
from silo.forks import Mutex
from silo.integrations.jax.call_records import CallRecord, load_record, make_ready, make_record, save_record
from silo.launch import native
from silo.launch.jax_versions import load_jax
from silo.machine.device_plugins import device_named, devices_of_kind

if TYPE_CHECKING:
    from silo.core.protocols import Device
    from silo.integrations.jax.form import JaxCallForm
    from silo.launch.runtime import VouchedCode

__all__ = ["TARGET", "connect", "connected", "device_of", "record_of"]

TARGET: Final = "silo_launch"
# Handlers are registered under XLA's own name of a platform, which for NVIDIA GPUs is in capitals. For any other name
# jax silently keeps the handlers for a platform that may be registered later.
_PLATFORMS: Final = {"cpu": "cpu", "cuda": "CUDA"}

# Records that this process made or loaded, by digest; with the code if it comes from a bundle opened here.
_records: dict[str, tuple[CallRecord, VouchedCode | None]] = {}
_made: dict[tuple[JaxCallForm, str], str] = {}  # digests by form and target
_lock = Mutex()


def connect() -> None:
    """Let programs of jax in this process launch kernels, including programs that were exported elsewhere.

    ``silo.jax_call`` does this itself. A program that only loads exported programs calls this first.

    Raises:
        PackageError: jax is not installed, or Silo does not support its version.
    """
    connected()


@functools.cache
def connected() -> Any:  # noqa: ANN401  # the module jax
    """Returns the module jax after registering the handlers with XLA."""
    jax, minor = load_jax()
    native.xla_connect(_resolve, minor)
    for platform, of_xla in _PLATFORMS.items():
        jax.ffi.register_ffi_target(TARGET, native.xla_handlers(platform), platform=of_xla)
    return jax


def device_of(platform: str, kernel: str, index: int = 0) -> Device:
    """Returns the device that programs for a platform of jax run on.

    Raises:
        DeviceError: this machine has no such device.
        UnsupportedError: programs on that platform cannot call kernels.
    """
    kind = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda"}.get(platform)
    if kind is None:
        raise UnsupportedError(
            f"{kernel}: programs of jax call kernels on the CPU and on CUDA, and this one is for {platform}: put it "
            "on such a device (JAX_PLATFORMS=cpu), or write the kernel with silo.pallas"
        )
    if kind == "cpu":
        return device_named("cpu")
    found = [one for one in devices_of_kind(kind) if one.index == index]
    if not found:
        raise DeviceError(
            f"{kernel}: a program of jax for {platform} is made where such a device is, whose code is chosen then; "
            f"this machine has no {kind}:{index}"
        )
    return found[0]


def record_of(form: JaxCallForm, device: Device) -> str:
    """Returns the digest by which a program names a call; the store keeps its record and code."""
    key = (form, str(device.target))
    with _lock:
        name = _made.get(key)
        if name is None:
            record, found = make_record(form, device)
            name = _made[key] = save_record(record, found)
            _records[name] = record, found.code
        return name


def _resolve(name: str, platform: str, index: int) -> None:
    """Called by a handler for an unknown call: loads it so that it can launch. The program reports an error raised."""
    with _lock:
        known = _records.get(name)
        record, code = known or (load_record(name), None)
        make_ready(name, record, device_of(platform, record.artifact.variant.kernel, index), code)
        _records[name] = record, code
