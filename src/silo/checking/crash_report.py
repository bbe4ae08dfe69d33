"""Reads crash reports (``crash.silo``) as values; ``docs/crashes.md`` describes the file.

Members of the manifest, besides ``format``:

- ``cause``: ``kind`` (signal, device error, hang, request), ``text``, ``code``; for a signal also ``kernel``,
  ``program`` and ``address``.
- ``kernels``: ``offset`` and ``bytes`` of a description in JSON: name, parameters, config, driver, ``text`` (TTIR with
  source positions), ``launch`` (its parameters), and four lists of arguments: those whose contents decide which
  addresses are accessed (``decisive``), whose contents affect a stored value (``stored``), and those that the
  kernel reads (``read``) or writes (``written``).
- ``launches``: ``number``, ``kernel``, ``grid``, ``stream``, ``state`` (running, returned, failed), ``arguments``: each
  ``[number]``, or ``[address, start, size, 1 if a view]``.
- ``arrays``: ``launch``, ``address``, ``offset``, ``bytes``, ``copy`` (made before the launch).

Reading a report runs no code: texts of kernels in it are compiled only with the trust ledger's consent.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from silo.core.launch_info import LaunchInfo
from silo.errors import BundleError
from silo.frozen import frozen

__all__ = ["Argument", "CrashCause", "CrashKernel", "CrashReport", "KeptArray", "RecordedLaunch", "read_report"]

_MAGIC = b"SILOCRSH"
_HEADER = struct.Struct("<8sQQ32s8x")
_FORMAT = "silo crash 1"
_MOST_MANIFEST = 256 << 20


@frozen
class CrashCause:
    """The reason why a report was written: ``kind`` is "signal", "device error", "hang" or "request".

    If a CPU kernel received a signal, ``kernel`` and ``program`` are its name and the indices of the program that ran,
    and ``address`` is the address that this program accessed.
    """

    kind: str
    text: str
    code: int = 0
    kernel: str = ""
    program: tuple[int, ...] = ()
    address: int = 0


@frozen
class CrashKernel:
    """A kernel as it was described at its first launch.

    ``members`` are the rest of the description (``silo.kinds.triton.programs.flight_texts``). ``reason`` is the reason
    why the kernel has no text to check.
    """

    name: str
    parameters: tuple[tuple[str, bool], ...]
    driver: str
    reason: str
    members: Mapping[str, Any]


@frozen
class Argument:
    """One argument of a launch: the 64-bit word that the kernel received and, for an address, its allocation.

    ``size`` is 0 if the allocation is unknown. If ``view`` is set, ``low`` and ``size`` describe the array that was
    passed, because the allocation that contains it is unknown.
    """

    word: int
    low: int = 0
    size: int = 0
    view: bool = False


@frozen
class RecordedLaunch:
    """One recorded launch. ``state`` is "running", "returned" or "failed"."""

    number: int
    kernel: int
    grid: tuple[int, int, int]
    stream: int
    state: str
    arguments: tuple[Argument, ...]


@frozen
class KeptArray:
    """The bytes of an allocation: a copy made before the launch, or the content when the report was written."""

    launch: int
    address: int
    offset: int
    size: int
    copy: bool


@dataclass(frozen=True, slots=True)
class CrashReport:
    """The contents of a crash report."""

    path: Path
    process: int
    cause: CrashCause
    kernels: tuple[CrashKernel, ...]
    launches: tuple[RecordedLaunch, ...]
    arrays: tuple[KeptArray, ...]
    data: bytes

    def content(self, array: KeptArray) -> bytes:
        """Returns the bytes of an array."""
        return self.data[array.offset : array.offset + array.size]


def read_report(path: Path) -> CrashReport:
    """Reads a report.

    Raises:
        BundleError: the file is missing, damaged, or another kind of file.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) < _HEADER.size or data[:8] != _MAGIC:
        raise BundleError(f"{path} is no report of a crash: it does not begin with {_MAGIC.decode()}")
    _, offset, size, digest = _HEADER.unpack_from(data)
    if offset < _HEADER.size or offset + size != len(data) or size > _MOST_MANIFEST:
        raise BundleError(f"{path} is damaged: its manifest is not at its end; it may have been cut off")
    if hashlib.sha256(memoryview(data)[_HEADER.size :]).digest() != digest:
        raise BundleError(f"{path} is damaged: its SHA-256 is another than its header's")
    try:
        return _report(path, data, json.loads(data[offset:]), offset)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise BundleError(f"{path} is damaged: its manifest is not of the form {_FORMAT!r}: {error}") from error


def _report(path: Path, data: bytes, manifest: Any, end: int) -> CrashReport:  # noqa: ANN401  # JSON
    if manifest["format"] != _FORMAT:
        raise BundleError(f"{path} has the format {manifest['format']!r}; this Silo reads {_FORMAT!r}")
    kernels = tuple(_kernel(data[slice(*_range(item, end))]) for item in manifest["kernels"])
    launches = tuple(_launch(item, kernels) for item in manifest["launches"])
    arrays = tuple(
        KeptArray(_count(item["launch"]), _count(item["address"]), *_offset_and_size(item, end), bool(item["copy"]))
        for item in manifest["arrays"]
    )
    cause_members = manifest["cause"]
    cause = CrashCause(
        _text(cause_members["kind"]),
        _text(cause_members["text"]),
        int(cause_members["code"]),
        _text(cause_members["kernel"]),
        tuple(map(int, cause_members["program"])),
        _count(cause_members["address"]),
    )
    return CrashReport(path, _count(manifest["process"]), cause, kernels, launches, arrays, data)


def _kernel(text: bytes) -> CrashKernel:
    description = cast("dict[str, Any]", json.loads(text))
    if not description:  # the kernel was launched by native code, which recorded no description
        return CrashKernel("?", (), "", "it could not be described", {})
    if description.get("text"):
        _check_description(description)
    return CrashKernel(
        _text(description.pop("kernel")),
        tuple((_text(name), bool(address)) for name, address in description.pop("parameters")),
        _text(description.pop("driver")),
        _text(description.pop("reason")),
        description,
    )


def _check_description(description: Mapping[str, Any]) -> None:
    """Raises ``ValueError``, ``TypeError`` or ``KeyError`` if a member that a check reads has the wrong form."""
    count = len(LaunchInfo.from_json(description["launch"]).layout)
    _text(description["text"])
    _text(description["form"])
    options: dict[str, object] = description.get("options", {})
    if not all(type(option) is int and 0 < option <= 1024 for option in options.values()):
        raise ValueError("options of a kernel are numbers up to 1024")
    for name in ("decisive", "stored", "read", "written"):
        if not all(isinstance(number, int) and -1 <= number < count for number in description[name]):
            raise ValueError(f"{name} has numbers of arguments that are not there")


def _launch(member: Any, kernels: Sequence[CrashKernel]) -> RecordedLaunch:  # noqa: ANN401  # JSON
    kernel = _count(member["kernel"])
    x, y, z = map(_count, member["grid"])
    arguments = tuple(
        Argument(
            _count(argument[0]),
            *(map(_count, argument[1:3]) if len(argument) > 1 else ()),
            view=len(argument) > 1 and bool(argument[3]),
        )
        for argument in member["arguments"]
    )
    if kernel >= len(kernels) or (kernels[kernel].parameters and len(kernels[kernel].parameters) != len(arguments)):
        raise ValueError(f"launch {member['number']} is of a kernel with other parameters")
    return RecordedLaunch(
        _count(member["number"]), kernel, (x, y, z), _count(member["stream"]), _text(member["state"]), arguments
    )


def _range(member: Any, end: int) -> tuple[int, int]:  # noqa: ANN401  # JSON
    offset, size = _offset_and_size(member, end)
    return offset, offset + size


def _offset_and_size(member: Any, end: int) -> tuple[int, int]:  # noqa: ANN401  # JSON
    offset, size = _count(member["offset"]), _count(member["bytes"])
    if offset < _HEADER.size or offset + size > end:
        raise ValueError(f"bytes {offset} to {offset + size} are outside of the file's data")
    return offset, size


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise ValueError(f"{value!r} is not a natural number of 64 bits")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
