"""Checks a wheel and an sdist before they are published, as no other tool does: ``check_wheel.py WHEEL SDIST``.

Prints each fault, and exits with 1 if there is one.
"""
# It runs in the environment that builds wheels.
# pyright: reportMissingImports=false

from __future__ import annotations

import email
import struct
import sys
import tarfile
import zipfile
from pathlib import Path

from long_description import relative_links

MOST_BYTES = 3_500_000  # limit of the wheel's size
_SECTIONS = (".debug_info", ".symtab")


def faults_of_wheel(path: Path) -> list[str]:
    """Return the faults of a wheel: size, tags, unstripped files, missing or misplaced files, metadata."""
    faults: list[str] = []
    if path.stat().st_size > MOST_BYTES:
        faults.append(f"{path.name} has {path.stat().st_size} bytes, more than {MOST_BYTES}")
    if "-cp311-abi3-manylinux_" not in path.name and "-cp311-abi3-musllinux_" not in path.name:
        faults.append(f"{path.name} is not tagged for the stable ABI and a range of systems")
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        for name in names:
            if name.endswith(".so"):
                found = sections_of(wheel.read(name))
                faults += [f"{name} is not stripped: {one}" for one in _SECTIONS if one in found]
        if "silo/compile/code_digests.json" not in names:
            faults.append("it has no digests of the compilers' code, so each first process would parse it")
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        faults += faults_of_metadata(wheel.read(metadata).decode())
    odd = [name for name in names if not name.startswith(("silo/", "kernel_silo-"))]
    return faults + [f"{name} would be installed outside of the package" for name in odd]


def sections_of(data: bytes) -> tuple[str, ...]:
    """Return the names of the sections of a 64-bit little-endian ELF file; GPU code inside its data is not searched."""
    at, size, count, names = struct.unpack_from("<Q10xHHH", data, 40)
    rows = [struct.unpack_from("<IIQQQQ", data, at + size * number) for number in range(count)]
    begin = rows[names][4]
    return tuple(data[begin + row[0] : data.index(0, begin + row[0])].decode() for row in rows)


def faults_of_metadata(text: str) -> list[str]:
    """Return the faults for which a package index would refuse the metadata or show it wrong."""
    from trove_classifiers import classifiers  # installed in the environment that builds wheels

    message = email.message_from_string(text)
    unknown = sorted(set(message.get_all("Classifier", [])) - set(classifiers))
    faults = [f"no such classifier: {one}" for one in unknown]
    page = message.get_payload()
    assert isinstance(page, str)
    return faults + [f"a link that leads nowhere on an index page: {one}" for one in relative_links(page)]


def faults_of_sdist(path: Path) -> list[str]:
    """Return a message for each file that an sdist lacks."""
    with tarfile.open(path) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "docs/quickstart.md",
        "native/python/python.h",
        "src/silo/py.typed",
    }
    return [f"the sdist lacks {name}" for name in sorted(wanted - names)]


def main(wheel: str, sdist: str) -> int:
    """Print the faults; return whether there are any."""
    faults = faults_of_wheel(Path(wheel)) + faults_of_sdist(Path(sdist))
    for fault in faults:
        print(fault)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
