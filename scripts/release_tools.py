"""Steps of ``scripts/release``: reproducible archives, a bill of materials, a package index, pip's command line.

``release_tools.py same-bytes FILE...``, ``check-tag WHEEL MACHINE GLIBC``, ``bill-of-materials FOLDER``, ``index FOLDER
FILE...``, ``install-line PAGE``.
"""

from __future__ import annotations

import email
import gzip
import hashlib
import io
import json
import os
import re
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Mapping
from email.message import Message
from importlib import metadata
from pathlib import Path
from urllib.parse import quote

BILL = "sbom.cdx.json"
_BUILDERS = ("setuptools", "wheel", "build", "auditwheel", "ziglang")
_OLDEST = 315532800  # 1980-01-01, the first second that a zip archive can hold


def epoch() -> int:
    """Returns the modification time for every file in the archives, from ``SOURCE_DATE_EPOCH``."""
    return max(int(os.environ["SOURCE_DATE_EPOCH"]), _OLDEST)


def same_bytes(*files: str) -> None:
    """Writes archives anew so that the same contents always have the same bytes: order, times, owners and modes."""
    for file in files:
        path = Path(file)
        (_wheel_again if path.suffix == ".whl" else _sdist_again)(path)


def _wheel_again(path: Path) -> None:
    with zipfile.ZipFile(path) as wheel:
        entries = {info.filename: (wheel.read(info), info.external_attr >> 16 & 0o111) for info in wheel.infolist()}
    moment = time.gmtime(epoch())[:6]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
        # the wheel format requires that the list of files comes last
        for name in sorted(entries, key=lambda one: (".dist-info/" in one, one.endswith("/RECORD"), one)):
            data, executable = entries[name]
            info = zipfile.ZipInfo(name, moment)
            info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, 3
            info.external_attr = (0o100755 if executable else 0o100644) << 16
            made.writestr(info, data)
    path.write_bytes(buffer.getvalue())


def _sdist_again(path: Path) -> None:
    with tarfile.open(path) as sdist:
        entries = [(one, sdist.extractfile(one).read() if one.isfile() else b"") for one in sdist.getmembers()]  # pyright: ignore[reportOptionalMemberAccess]  # a file
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=epoch(), compresslevel=9) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as made,
    ):
        for one, data in sorted(entries, key=lambda pair: pair[0].name):
            info = tarfile.TarInfo(one.name)
            info.type, info.linkname, info.size, info.mtime = one.type, one.linkname, len(data), epoch()
            info.mode = 0o755 if one.isdir() or one.mode & 0o111 else 0o644
            made.addfile(info, io.BytesIO(data))
    path.write_bytes(buffer.getvalue())


def bill_of_materials(folder: str) -> None:
    """Writes ``sbom.cdx.json`` (CycloneDX 1.5): the files with their hashes, requirements, and build tools."""
    files = sorted(path for path in Path(folder).iterdir() if path.suffix in (".whl", ".gz"))
    with zipfile.ZipFile(next(path for path in files if path.suffix == ".whl")) as wheel:
        (name,) = (one for one in wheel.namelist() if one.endswith(".dist-info/METADATA"))
        about = email.message_from_bytes(wheel.read(name))
    text = json.dumps(bill(about, files), indent=2, sort_keys=True)
    (Path(folder) / BILL).write_text(text + "\n", encoding="utf-8")


def bill(about: Message, files: list[Path]) -> Mapping[str, object]:
    """Returns the bill of materials of a package; ``about`` is its metadata.

    The range of a requirement is only a property, because pip chooses the version.
    """
    package = f"pkg:pypi/{about['Name']}@{about['Version']}"
    parts: list[dict[str, object]] = [
        {
            "type": "file",
            "bom-ref": path.name,
            "name": path.name,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
        }
        for path in files
    ]
    needed = [one for one in about.get_all("Requires-Dist", []) if "extra ==" not in one]
    for one in needed:
        name = re.split(r"[<>=!~;\[ (]", one)[0]
        parts.append(
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{name.lower()}",
                "name": name,
                "purl": f"pkg:pypi/{name.lower()}",
                "properties": [{"name": "requirement", "value": one}],
            }
        )
    tools = [{"type": "application", "name": one, "version": metadata.version(one)} for one in _BUILDERS if _has(one)]
    licence = about.get("License-Expression")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch())),
            "tools": {"components": tools},
            "component": {
                "type": "library",
                "bom-ref": package,
                "name": about["Name"],
                "version": about["Version"],
                "purl": package,
                "licenses": [{"expression": licence}] if licence else [],
            },
        },
        "components": parts,
        "dependencies": [
            {"ref": package, "dependsOn": sorted(str(one["bom-ref"]) for one in parts if one["type"] == "library")}
        ],
    }


def _has(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def index(folder: str, *files: str) -> None:
    """Makes a folder that pip reads as an index: one project, kernel-silo, whose links carry hashes."""
    place = Path(folder) / "kernel-silo"
    place.mkdir(parents=True)
    lines: list[str] = []
    for file in map(Path, files):
        data = file.read_bytes()
        (place / file.name).write_bytes(data)
        lines.append(f'<a href="{quote(file.name)}#sha256={hashlib.sha256(data).hexdigest()}">{file.name}</a>')
    page = "<!doctype html><html><body>{}</body></html>\n"
    (place / "index.html").write_text(page.format("<br>".join(lines)), encoding="utf-8")
    (Path(folder) / "index.html").write_text(page.format('<a href="kernel-silo/">kernel-silo</a>'), encoding="utf-8")


def check_tag(file: str, machine: str, glibc: str) -> None:
    """Exits with an error unless the wheel is tagged for the machine, and for a glibc that is at most ``glibc``."""
    if not is_tagged(Path(file).name, machine, glibc):
        raise SystemExit(f"{Path(file).name} is not tagged for {machine} with glibc {glibc} or an older one")


def is_tagged(name: str, machine: str, glibc: str) -> bool:
    """Returns whether a tag in a wheel's name is for the machine, and for ``glibc`` or an older one.

    >>> is_tagged("k-1-cp311-abi3-manylinux_2_28_aarch64.whl", "aarch64", "2.28")
    True
    >>> is_tagged("k-1-cp311-abi3-manylinux_2_34_aarch64.whl", "aarch64", "2.28")
    False
    """
    most = tuple(map(int, glibc.split(".")))
    found = re.findall(rf"manylinux_(\d+)_(\d+)_{machine}\b", name)
    return any((int(major), int(minor)) <= most for major, minor in found)


def install_line(page: str) -> None:
    """Prints the command in a page that installs the package without extras."""
    print(line_of(Path(page).read_text(encoding="utf-8")))


def line_of(text: str) -> str:
    """Returns the first ``pip install kernel-silo`` command of a page, from a code block or the table of extras.

    Raises:
        ValueError: the page has none.
    """
    if found := re.search(r"^(?:\$ )?((?:python -m )?pip install kernel-silo)$", text, re.MULTILINE):
        return found[1]
    if re.search(r"^\| `pip install` \|", text, re.MULTILINE) and re.search(
        r"^\| `kernel-silo` \|", text, re.MULTILINE
    ):
        return "pip install kernel-silo"
    raise ValueError("the page does not say how kernel-silo is installed")


STEPS: Mapping[str, Callable[..., None]] = {
    "same-bytes": same_bytes,
    "bill-of-materials": bill_of_materials,
    "check-tag": check_tag,
    "index": index,
    "install-line": install_line,
}

if __name__ == "__main__":
    STEPS[sys.argv[1]](*sys.argv[2:])
