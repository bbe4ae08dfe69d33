"""The findings of ``silo doctor`` about CUDA C++: every installed NVRTC, and the compiler for HIP."""

from __future__ import annotations

from collections.abc import Sequence

from silo.errors import SiloError
from silo.kinds.cuda_cpp.nvrtc import INSTALL, NvrtcPlace, load_nvrtc, places
from silo.sources.installations import Finding

__all__ = ["findings"]


def findings() -> Sequence[Finding]:
    """Returns a finding for each NVRTC that is installed, the one in use first."""
    installations = places()
    if not installations:
        return (Finding("nvrtc", "optional", "not installed", f"only to compile CUDA C++: {INSTALL}"),)
    return tuple(_finding(installation, used=at == 0) for at, installation in enumerate(installations))


def _finding(place: NvrtcPlace, *, used: bool) -> Finding:
    part = "nvrtc" if used else "nvrtc, unused"
    try:
        library = load_nvrtc(place)
        archs = library.archs()
    except SiloError as error:
        return Finding(part, "optional", str(error), INSTALL)
    detail = f"{library.release} ({place.origin}, {place.build}) for sm_{min(archs)} to sm_{max(archs)} at {place.path}"
    return Finding(part, "ok", detail)
