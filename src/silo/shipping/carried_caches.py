"""Caches of other GPU runtimes that a bundle carries: the cubins of DeepGEMM and of FlashInfer.

Each of these runtimes keeps compiled code in a folder that an environment variable names; a program may use them beside
Triton. ``silo exec --record K.silo --caches NAMES`` gives each runtime a new folder, and puts the files that the
program left in it into ``K.silo`` as attachments. ``silo exec --bundle K.silo`` writes the files into a folder of the
store and sets the variable. The runtime itself decides by its own key whether it can use a file.

Only texts and code for GPUs are carried: no carried file is loaded into the process, compiled or executed on the host.
A cubin is an ELF file for the machine ``EM_CUDA``; a file named ``*.cubin`` with any other content is refused.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from silo.artifacts.artifact import BlobRef, blob_ref
from silo.bundle.contents import BundleContents
from silo.bundle.format import FILE_KIND
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.update import update_bundle, with_attachments
from silo.bundle.writer import place_of_bundle, write_bundle
from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import BundleError, SettingsError
from silo.plain_files import read_plain
from silo.settings import settings
from silo.store.atomic_files import AtomicFile
from silo.store.privacy import check_folder, make_directory
from silo.store.store import privacy_of
from silo.version import __version__

__all__ = [
    "CACHES",
    "CacheFolder",
    "add_caches",
    "cache_folder",
    "cached_files",
    "carried_caches",
    "check_file",
    "write_cache",
    "write_caches",
]

_ATTACHED = "caches/"
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=,@-]{0,199}")
_MOST_PARTS = 12
_ELF = b"\x7fELF"
_EM_CUDA = 190  # the number of NVIDIA's GPUs in the System V ABI's list of machines


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """The cache folder of one runtime.

    Args:
        name: the name of the cache in ``--caches`` and in a bundle.
        project: the name of the runtime.
        variable: the environment variable that names the folder.
        patterns: patterns for the paths, within the folder, of the files that are carried; ``*`` also matches ``/``.
        frozen: environment variables that make the runtime refuse to get code that the folder lacks. ``--frozen`` sets
            them.
    """

    name: str
    project: str
    variable: str
    patterns: tuple[str, ...]
    frozen: tuple[tuple[str, str], ...] = ()

    def holds(self, path: str) -> bool:
        """Returns whether bundles carry a file with this path in the folder.

        >>> CACHES["deep_gemm"].holds("cache/kernel.gemm.01ab/kernel.cubin")
        True
        >>> CACHES["deep_gemm"].holds("tmp/7f/kernel.cubin")
        False
        """
        return any(fnmatch.fnmatchcase(path, pattern) for pattern in self.patterns)


# DeepGEMM names its files in csrc/jit/compiler.hpp (DG_JIT_CACHE_DIR; cache/kernel.NAME.DIGEST/kernel.{cu,cubin}), read
# at commit 54e2261. FlashInfer does so in flashinfer/jit/{env,cubin_loader}.py (FLASHINFER_CUBIN_DIR,
# FLASHINFER_NO_DOWNLOAD), read at commit fb28d7242; it compares each file with the file's recorded SHA-256.
CACHES: Mapping[str, CacheFolder] = {
    folder.name: folder
    for folder in (
        CacheFolder(
            "deep_gemm",
            "DeepGEMM",
            "DG_JIT_CACHE_DIR",
            ("cache/kernel.*/kernel.cu", "cache/kernel.*/kernel.cubin"),
        ),
        CacheFolder(
            "flashinfer_cubins",
            "FlashInfer",
            "FLASHINFER_CUBIN_DIR",
            ("*.cubin", "*checksums.txt"),
            (("FLASHINFER_NO_DOWNLOAD", "1"),),
        ),
    )
}


def cache_folder(name: str) -> CacheFolder:
    """Returns the cache folder of this name.

    Raises:
        SettingsError: the name is unknown.
    """
    if name not in CACHES:
        raise SettingsError(f"--caches knows {', '.join(sorted(CACHES))}, not {name!r}")
    return CACHES[name]


def check_file(path: str, data: bytes) -> Decision:
    """Decides whether a bundle may carry a file.

    Its path must be plain and relative. A ``*.cubin`` file must be an ELF file for CUDA devices; any other file must
    not be an ELF file (native code). A pure function.

    >>> check_file("cache/../kernel.cu", b"")
    Rejected(reason="'..' is not a plain name")
    >>> check_file("a.cubin", b"text")
    Rejected(reason='it is not an ELF file for CUDA devices')
    >>> bool(check_file("cache/kernel.gemm.01ab/kernel.cu", b"// text"))
    True
    """
    parts = path.split("/")
    if len(parts) > _MOST_PARTS:
        return Rejected(f"its path has more than {_MOST_PARTS} parts")
    for part in parts:
        if not _PART.fullmatch(part):
            return Rejected(f"{part!r} is not a plain name")
    is_elf = data.startswith(_ELF)
    if path.endswith(".cubin"):
        machine = struct.unpack_from("<H", data, 18)[0] if is_elf and len(data) >= 20 else 0
        return Accepted() if machine == _EM_CUDA else Rejected("it is not an ELF file for CUDA devices")
    return Rejected("it is native code") if is_elf else Accepted()


# ---- From a folder into a bundle ----


def cached_files(folder: Path, cache: CacheFolder) -> tuple[dict[str, bytes], list[tuple[str, str]]]:
    """Reads the files of ``folder`` that a bundle may carry.

    Links are not followed. A file larger than ``SILO_FILE_BYTES`` is refused.

    Returns:
        The contents of the files by relative path, and a list of (path, reason) for each file that was refused.
    """
    carried: dict[str, bytes] = {}
    refused: list[tuple[str, str]] = []
    for path in sorted(_files(folder)):
        name = PurePosixPath(path.relative_to(folder)).as_posix()
        if not cache.holds(name):
            continue
        try:
            data = read_plain(path, settings().file_bytes)
        except OSError as error:
            refused.append((name, error.strerror or str(error)))
            continue
        allowed = check_file(name, data)
        if isinstance(allowed, Rejected):
            refused.append((name, allowed.reason))
        else:
            carried[name] = data
    return carried, refused


def _files(folder: Path) -> Iterator[Path]:
    for at, _, names in os.walk(folder, followlinks=False):
        yield from (Path(at, name) for name in names)


def add_caches(path: str | os.PathLike[str], caches: Mapping[str, Mapping[str, bytes]]) -> tuple[int, str]:
    """Puts files into the bundle at ``path``; ``caches`` has each cache's files by their relative paths.

    A missing bundle is made. A file that the bundle holds under the same path is replaced. On any failure the bundle
    remains unchanged.

    Returns:
        The number of files that the bundle did not hold before, and what happened to the bundle's signature, or ""
        if it had none.

    Raises:
        BundleError: the bundle cannot be read or written.
    """
    blobs: dict[str, bytes] = {}
    added: dict[str, BlobRef] = {}
    for name, files in caches.items():
        for relative, data in files.items():
            ref = added[f"{_ATTACHED}{name}/{relative}"] = blob_ref(FILE_KIND, data)
            blobs[ref.sha256] = data
    target = place_of_bundle(path)
    if target.exists():
        with open_bundle(target) as bundle:
            before = {name: ref.sha256 for name, ref in bundle.attachments.items()}
        added = {name: ref for name, ref in added.items() if before.get(name) != ref.sha256}
    if not added:
        return 0, ""
    if target.exists():
        return len(added), update_bundle(target, {}, blobs.get, attachments=added).signature
    write_bundle(target, with_attachments(BundleContents((), (("silo", __version__),)), added), blobs.get)
    return len(added), ""


# ---- From a bundle into a folder ----


def carried_caches(attachments: Iterable[str]) -> dict[str, list[str]]:
    """Returns, by cache, the relative paths of the files that a bundle carries.

    >>> carried_caches(["caches/deep_gemm/cache/kernel.a.b/kernel.cubin", "triton/winners.jsonl"])
    {'deep_gemm': ['cache/kernel.a.b/kernel.cubin']}
    """
    paths: dict[str, list[str]] = {}
    for attachment in sorted(attachments):
        name, separator, relative = attachment.removeprefix(_ATTACHED).partition("/")
        if attachment.startswith(_ATTACHED) and separator:
            paths.setdefault(name, []).append(relative)
    return paths


def write_caches(bundle: Bundle, names: Iterable[str]) -> dict[str, Path]:
    """Writes the files that a bundle carries for the caches ``names`` into folders of the store; returns the folders.

    A folder's name is a hash of its files, so a bundle with other files gets another folder. Files that exist already
    are not written again, because only this user can have written to the folder.

    Raises:
        BundleError: a file may not be carried, or cannot be written.
    """
    folders: dict[str, Path] = {}
    store = settings().store_folder
    private = privacy_of(store)
    if isinstance(private, Rejected):
        raise BundleError(f"{bundle.name}: the caches it carries are not written into {store}: {private.reason}")
    for name in names:
        hashes = hashlib.sha256()
        for relative, ref in _carried(bundle, name).items():
            hashes.update(f"{relative}\n{ref.sha256}\n".encode())
        folders[name] = store / "caches" / f"{name}-{hashes.hexdigest()[:32]}"
        write_cache(bundle, name, folders[name])
    return folders


def write_cache(bundle: Bundle, name: str, root: Path) -> None:
    """Writes the files that a bundle carries for one cache into the folder ``root``, which only this user may change.

    Raises:
        BundleError: a file may not be carried, or cannot be written.
    """
    cache = CACHES[name]
    try:
        make_directory(root)
        check_folder(root)
        for relative, ref in _carried(bundle, name).items():
            _write_file(bundle, cache, root, relative, ref)
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"{bundle.name}: its files for {cache.project} cannot be written into {root}: {reason}"
        raise BundleError(message) from error


def _carried(bundle: Bundle, name: str) -> dict[str, BlobRef]:
    paths = carried_caches(bundle.attachments).get(name, [])
    return {relative: bundle.attachments[f"{_ATTACHED}{name}/{relative}"] for relative in paths}


def _write_file(bundle: Bundle, cache: CacheFolder, root: Path, relative: str, ref: BlobRef) -> None:
    # A bundle may come from a stranger, so the names and bytes of its files must pass the same checks as files that are
    # put into a bundle.
    allowed: Decision = Accepted() if cache.holds(relative) else Rejected(f"{cache.project} keeps no such file")
    path, data = root / relative, b""
    if allowed:
        data = bundle.blob(ref.sha256)
        allowed = check_file(relative, data)
    if isinstance(allowed, Rejected):
        raise BundleError(f"{bundle.name}: the file {relative!r} for {cache.project} is not written: {allowed.reason}")
    if not path.exists():
        make_directory(path.parent)
        with AtomicFile(path) as file:
            file.write(data)
            file.commit()
