"""Loading code that a library runs and no driver, through the loader of its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from silo.core.consent import require_consent
from silo.core.decisions import Rejected
from silo.core.plugins import load_place
from silo.errors import DeviceError, SiloError
from silo.launch.native import LibraryCode, LoadedKernel

if TYPE_CHECKING:
    from silo.core.consent import Consent
    from silo.core.declaration import LoaderDeclaration
    from silo.core.launch_info import LaunchInfo
    from silo.core.protocols import Device, Loader

__all__ = ["load_library_code"]


def load_library_code(
    loader: LoaderDeclaration | Rejected,
    device: Device,
    launch: LaunchInfo,
    blob: bytes,
    kind: str,
    name: str,
    *,
    consent: Consent | None,
) -> LoadedKernel:
    """Hand verified code to the loader of its kind (:func:`silo.core.plugins.loader_of`), with consent where it asks.

    Raises:
        DeviceError: the loader refuses it, or cannot be used.
        TrustError: host code without consent to it. The loader sees nothing of it then.
    """
    if isinstance(loader, Rejected):
        raise DeviceError(f"{name}: its code, of kind {kind}, cannot be loaded: {loader.reason}")
    require_consent(consent, launch, blob, kind, name)
    what = f"{name}: the loader of {kind} ({loader.load})"
    try:
        call = cast("Loader", load_place(loader.load))(device, launch, blob, name)
    except SiloError:
        raise
    except Exception as error:
        raise DeviceError(f"{what} failed: {type(error).__name__}: {error}") from error
    if not callable(call):
        raise DeviceError(f"{what} gave nothing that can be called, but {type(call).__name__}")
    code = LibraryCode(call, device.target.kind, device.index, device.memory.types)
    return LoadedKernel(code, launch.entry, name)
