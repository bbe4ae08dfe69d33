"""The folder of an export: compares its files with the export's, and writes those that differ."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from silo.core.json_reader import read_object
from silo.core.values import JSON, parse_json
from silo.errors import PackageError, StoreError
from silo.export.c_names import comment_text
from silo.export.exported_library import ExportedLibrary, filled
from silo.export.operations import frameworks_source, operations_of, torch_source
from silo.plain_files import open_plain, read_plain
from silo.store.atomic_files import AtomicFile
from silo.store.privacy import output_place

__all__ = [
    "RECORD",
    "Differences",
    "FolderRecord",
    "compare_folder",
    "framework_files",
    "licence",
    "native_sources",
    "read_record",
    "write_folder",
]


# ---- The folder of an export ----


RECORD = "silo-export.json"
_SCHEMA = "export/1"


@dataclass(frozen=True, slots=True)
class FolderRecord:
    """The record of an export in its folder: the options of the export, and the sha256 of each file by name."""

    options: Mapping[str, JSON]
    files: Mapping[str, str]

    def to_bytes(self) -> bytes:
        """The text of the record's file."""
        data = {"schema": _SCHEMA, "options": dict(self.options), "files": dict(sorted(self.files.items()))}
        return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences between a folder and an export, by names of files.

    ``edited`` files were changed by hand since they were written, ``foreign`` files were not written by an export and
    are in the way, ``stale`` files are written anew, ``missing`` files do not exist, ``superfluous`` files belong to an
    earlier export.
    """

    edited: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    superfluous: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lines)

    @property
    def lines(self) -> tuple[str, ...]:
        """Each difference in a line."""
        words = {
            "was changed by hand": self.edited,
            "was not written by an export": self.foreign,
            "is stale": self.stale,
            "is missing": self.missing,
            "belongs to an earlier export": self.superfluous,
        }
        return tuple(sorted(f"{name} {what}" for what, names in words.items() for name in names))


def read_record(folder: Path) -> FolderRecord | None:
    """The record of the export in a folder; None without a record.

    Raises:
        StoreError: the record cannot be read.
    """
    path = folder / RECORD
    try:
        text = read_plain(path)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise StoreError(f"{folder} is a file, and an export is a folder: name another place") from None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from None
    try:
        return _parsed(text)
    except ValueError as error:
        raise StoreError(f"{path} is not the record of an export: {error}; remove it and export again") from None


def _parsed(text: bytes) -> FolderRecord:
    members = read_object(parse_json(text), ("schema", "options", "files"), "the record of an export")
    options, files = members["options"], members["files"]
    if members["schema"] != _SCHEMA or not isinstance(options, Mapping) or not isinstance(files, Mapping):
        raise ValueError("it is of another schema")
    named = {name: digest for name, digest in files.items() if isinstance(digest, str) and _is_inside(name)}
    if len(named) != len(files):
        raise ValueError("it names files outside of the folder")
    return FolderRecord(options, named)


def _is_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not PurePosixPath(name).is_absolute() and ".." not in parts


def compare_folder(folder: Path, files: Mapping[str, bytes]) -> Differences:
    """The differences between a folder and the files of an export.

    Raises:
        StoreError: the folder cannot be read.
    """
    record = read_record(folder)
    recorded: Mapping[str, str] = {} if record is None else record.files
    found: dict[str, list[str]] = {}
    for name in sorted({*files, *recorded}):
        wanted = _digest(files[name]) if name in files else None
        held = _held(folder / name)
        if held == wanted:
            continue
        if held is None:
            kind = "missing"
        elif name not in recorded:
            kind = "foreign"
        elif held != recorded[name]:
            kind = "edited"
        else:
            kind = "stale" if wanted is not None else "superfluous"
        found.setdefault(kind, []).append(name)
    return Differences(**{kind: tuple(names) for kind, names in found.items()})


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _held(path: Path) -> str | None:
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from None


def write_folder(folder: Path, files: Mapping[str, bytes], options: Mapping[str, JSON]) -> Differences:
    """Writes files that differ, removes files of an earlier export, keeps all others; returns the differences.

    Raises:
        StoreError: files in the way that an export did not write, or that were changed since, or another user's link on
            the way to the folder; nothing is written then.
    """
    try:
        folder = output_place(folder)
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error}") from error
    if read_record(folder) is None and folder.is_dir() and any(folder.iterdir()):
        raise StoreError(
            f"{folder} is not empty and holds no export, so nothing is written there: name another folder, or empty it"
        )
    differences = compare_folder(folder, files)
    if in_the_way := (*differences.foreign, *differences.edited):
        why = ", ".join(line for line in differences.lines if line.split(" ")[0] in in_the_way)
        raise StoreError(f"{folder}: {why}; nothing is written: move what you want to keep, and remove it there")
    record = FolderRecord(options, {name: _digest(data) for name, data in files.items()})
    try:
        for name in (*differences.stale, *differences.missing):
            if name in files:
                _replace(folder, name, files[name])
        if _held(folder / RECORD) != _digest(record.to_bytes()):
            _replace(folder, RECORD, record.to_bytes())
        for name in differences.superfluous:
            (folder / name).unlink()
            _prune(folder, (folder / name).parent)
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error}") from error
    return differences


def _replace(folder: Path, name: str, data: bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for parent in path.relative_to(folder).parents:
        if (folder / parent).is_symlink() and parent != Path():
            raise StoreError(f"cannot write to {folder / parent}: it is a link out of {folder}; remove it")
    with AtomicFile(path, mode=0o666) as file:
        file.write(data)
        file.commit()


def _prune(folder: Path, path: Path) -> None:
    """Removes folders that became empty."""
    while path != folder and not any(path.iterdir()):
        path.rmdir()
        path = path.parent


# ---- The C sources that exports copy ----


# ---- The C sources that exports copy: from the package, or from the source tree ----


def native_sources(part: str, marker: str) -> dict[str, bytes]:
    """The files of a part of ``native/`` by name: ``core`` or ``frameworks``; ``marker`` is a file that it always has.

    Raises:
        PackageError: the files are missing.
    """
    here = Path(__file__).parent
    for folder in (here / part, here.parents[2] / "native" / part):
        if (folder / marker).is_file():
            return {path.name: path.read_bytes() for path in sorted(folder.glob("*.[ch]"))}
    raise PackageError(
        f"libsilo's sources are neither in {here / part} nor in a source tree: install kernel-silo from its wheel"
    )


def licence() -> bytes:
    """The licence of these sources, which is copied with them.

    Raises:
        PackageError: the file is missing.
    """
    here = Path(__file__).parent
    for path in (here / "LICENSE", here.parents[2] / "LICENSE"):
        if path.is_file():
            return path.read_bytes()
    raise PackageError(f"the licence of libsilo's sources is not in {here}: install kernel-silo from its wheel")


# ---- The part of an export that frameworks call: the shared library, and beside it torch's operators ----

_SHARED = ("framework.h", "tvm_ffi.c", "tvm_ffi.h")
_TORCH = ("torch_op.h",)


def framework_files(library: ExportedLibrary, *, torch: bool) -> dict[str, bytes]:
    """The files of the folder ``frameworks``, which the export's CMakeLists.txt adds; ``torch``: with its operators.

    Raises:
        BundleError: a kernel cannot be an operator of torch.
        PackageError: the sources are missing.
    """
    operations = operations_of(library.functions)
    name, origin = library.name, comment_text(library.origin)
    cmake = filled("frameworks.cmake.in", ORIGIN=origin, NAME=name)
    texts = {f"{name}_frameworks.c": frameworks_source(name, operations)}
    if torch:
        texts[f"{name}_torch.cpp"] = torch_source(name, operations)
        cmake += filled("torch.cmake.in", NAME=name)
    texts["CMakeLists.txt"] = cmake
    held = native_sources("frameworks", "framework.h")
    sources = {file: held[file] for file in (*_SHARED, *(_TORCH if torch else ()))}
    made = {file: text.encode() for file, text in texts.items()}
    return {f"frameworks/{file}": data for file, data in {**sources, **made}.items()}
