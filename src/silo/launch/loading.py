"""Loading code that a library runs and no driver: by the loader of its kind of blobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from silo.core.consent import require_consent
from silo.core.plugins import load_place
from silo.errors import DeviceError, SiloError

if TYPE_CHECKING:
    from silo.core.consent import Consent
    from silo.core.launch_info import LaunchInfo
    from silo.core.protocols import Device, LoadedKernel, Loader

__all__ = ["load_by_plugin"]


def load_by_plugin(
    place: str, device: Device, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None
) -> LoadedKernel:
    """Hand verified bytes to the loader at a place (:func:`silo.core.plugins.loader_place`).

    Raises:
        DeviceError: the loader refuses them, or is broken.
        TrustError: host code without consent to it, or a kind that nobody declares. The loader sees nothing of it.
    """
    require_consent(consent, launch, blob, kind, name)
    try:
        return cast("Loader", load_place(place))(device, launch, blob, kind, name)
    except SiloError:
        raise
    except Exception as error:
        raise DeviceError(f"{name}: the loader of {kind} ({place}) failed: {type(error).__name__}: {error}") from error
