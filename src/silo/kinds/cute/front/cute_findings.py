"""What ``silo doctor`` says of the parts of the CuTe DSL: each that is missing, with the reason. Imports none of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import metadata

from silo.core.decisions import Rejected
from silo.core.findings import Finding
from silo.kinds.cute.front.cute_installation import FFI_PACKAGE, PACKAGE
from silo.kinds.cute.front.libraries import RUNTIME, runtime_library

__all__ = ["findings"]

_FLAVOUR = re.compile(re.escape(PACKAGE) + r"-libs-cu([0-9]+)")
_OPTIONAL = "optional"


def findings() -> Sequence[Finding]:
    """Its CUDA flavours, and what ``host="dsl"`` needs besides; nothing where no part of the DSL is installed."""
    installed = _installed()
    if PACKAGE not in installed:
        return ()
    return (_flavours(installed), _host(installed))


def _installed() -> Mapping[str, str]:
    """Versions of the distributions of the DSL and of TVM-FFI."""
    found: dict[str, str] = {}
    for one in metadata.distributions():
        name = str(one.metadata["Name"]).lower().replace("_", "-")
        if name.startswith(PACKAGE) or name == FFI_PACKAGE:
            found.setdefault(name, one.version)
    return found


def _flavours(installed: Mapping[str, str]) -> Finding:
    part = "CUDA of the CuTe DSL"
    version = installed[PACKAGE]
    majors = sorted(int(match.group(1)) for name in installed if (match := _FLAVOUR.fullmatch(name)))
    if not majors:
        return Finding(
            part,
            _OPTIONAL,
            f"{PACKAGE} {version} is installed without the libraries of a CUDA version",
            f"pip install '{PACKAGE}[cu13]=={version}', which also brings those for CUDA 12",
        )
    others = [
        f"{name} {other}"
        for name, other in sorted(installed.items())
        if name.startswith(f"{PACKAGE}-libs") and other != version
    ]
    if others:
        return Finding(
            part,
            _OPTIONAL,
            f"{PACKAGE} {version} beside {', '.join(others)}: parts of different versions do not work together",
            f"pip install --force-reinstall '{PACKAGE}[cu{majors[-1]}]=={version}'",
        )
    return Finding(part, "ok", " and ".join(f"cu{major}" for major in majors))


def _host(installed: Mapping[str, str]) -> Finding:
    part = 'CuTe kernels with host="dsl"'
    if FFI_PACKAGE not in installed:
        return Finding(part, _OPTIONAL, f"{FFI_PACKAGE} is not installed", f"pip install {FFI_PACKAGE}")
    runtime = runtime_library()
    if isinstance(runtime, Rejected):
        return Finding(
            part, _OPTIONAL, f"{RUNTIME} is not in the folder of {PACKAGE}", f"install {PACKAGE} again, whole"
        )
    return Finding(part, "ok", f"{FFI_PACKAGE} {installed[FFI_PACKAGE]}, {runtime}")
