"""Wheels of exported libraries: an archive that one build of, and any Python 3, installs; the same bytes every time."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from silo.errors import BundleError
from silo.export.shared_library import needs_of, platform_tag
from silo.version import __version__

__all__ = ["Package", "package_of", "write_wheel"]

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution's ``name`` and ``version``; ``module`` is what is imported."""

    name: str
    version: str
    module: str


def package_of(text: str) -> Package:
    """The package that ``--wheel NAME`` or ``--wheel NAME==VERSION`` asks for.

    >>> package_of("my-kernels==1.2")
    Package(name='my-kernels', version='1.2', module='my_kernels')
    """
    name, _, version = text.partition("==")
    version = version or "0.1.0"
    module = re.sub(r"[-_.]+", "_", name)
    if not _NAME.fullmatch(name) or not _PLAIN.fullmatch(module) or module != module.lower():
        raise BundleError(
            f"{name!r} cannot name a wheel: lowercase letters, digits, '-', '_' and '.', a letter at its beginning"
        )
    if not _VERSION.fullmatch(version):
        raise BundleError(f"{version!r} is not a version of a wheel, which looks like 1.2.0 (PEP 440)")
    return Package(name, version, module)


def write_wheel(
    folder: Path,
    package: Package,
    modules: Mapping[str, bytes],
    libraries: Sequence[Path],
    *,
    texts: Mapping[str, bytes] | None = None,
    torch: bool = False,
) -> Path:
    """Write the wheel into ``folder`` and return its path.

    ``modules`` are files by path; ``libraries`` go beside the package's; ``texts`` are licences by name.
    """
    tag = f"py3-none-{platform_tag(needs_of(one) for one in libraries)}"
    info = f"{package.module}-{package.version}.dist-info"
    files = {
        **modules,
        **{f"{package.module}/{one.name}": one.read_bytes() for one in libraries},
        **{f"{info}/licenses/{name}": text for name, text in (texts or {}).items()},
        f"{info}/METADATA": _metadata(package, torch=torch).encode(),
        f"{info}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: silo {__version__}\nRoot-Is-Purelib: false\nTag: {tag}\n"
        ).encode(),
    }
    order = sorted(files, key=lambda path: (path.startswith(info), path))
    record = "".join(f"{path},{_digest(files[path])},{len(files[path])}\n" for path in order)
    path = folder / f"{package.module}-{package.version}-{tag}.whl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            for name in order:
                _add(archive, name, files[name])
            _add(archive, f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode())
    except OSError as error:
        raise BundleError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def _metadata(package: Package, *, torch: bool) -> str:
    wants = ["Provides-Extra: tvm-ffi", 'Requires-Dist: apache-tvm-ffi>=0.1; extra == "tvm-ffi"']
    if torch:
        wants += ["Provides-Extra: torch", 'Requires-Dist: torch>=2.10; extra == "torch"']
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {package.name}",
        f"Version: {package.version}",
        "Summary: Compute kernels, compiled and tuned ahead of time",
        "Requires-Python: >=3.9",
        *wants,
    ]
    return "\n".join(lines) + "\n"


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3  # Unix, wherever it is written
    archive.writestr(entry, data)
