"""Files of Triton's own cache in a bundle: served to and recorded from Triton's remote cache, and written to a folder.

Native code for the host is neither recorded nor served, because Triton would load it without consent.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from silo.bundle.reader import Bundle, open_bundle
from silo.core.decisions import Rejected
from silo.errors import BundleError, SiloError
from silo.forks import Mutex, Notices
from silo.kinds.triton.programs.records.archive import (
    GROUP,
    Archive,
    CacheFile,
    ForeignWinner,
    TextNames,
    blobs_of,
    cache_place,
    check_cache_name,
    entry_from_json,
    file_ref,
)
from silo.kinds.triton.programs.records.journal import Journal, JournalPlace, JournalRecord, journal_of
from silo.kinds.triton.programs.records.journal_folding import fold, open_folded
from silo.settings import settings
from silo.store.atomic_files import AtomicFile
from silo.store.privacy import make_directory

__all__ = ["CacheFiles", "cache_of_settings", "host_code_in", "write_cache"]

_ELF = b"\x7fELF"
_DEVICE_CODE = (".cubin", ".hsaco")  # these are ELF files too, but not for the host
_HOST_CODE = (".so", ".pyd", ".dylib", ".dll")


def is_host_code(name: str, data: bytes) -> bool:
    """Whether a file is native code that a process would load."""
    return name.endswith(_HOST_CODE) or (data.startswith(_ELF) and not name.endswith(_DEVICE_CODE))


def host_code_in(names: Iterable[str]) -> bool:
    """Whether a group of files contains native code, judged by their names."""
    return any(name.endswith(_HOST_CODE) for name in names)


class CacheFiles:
    """The files of Triton's cache in one bundle and its journal.

    Never raises, because Triton would end the program; a failure is logged once.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = Mutex()
        # the files by key and name, each as its bytes or as the hash of a blob in the bundle
        self._files: dict[str, dict[str, bytes | str]] = {}
        self._bundle: Bundle | None = None
        self._opened = False
        self._journal_place = JournalPlace()
        self._recording: Archive | None = None
        self._native: set[str] = set()
        self._notices = Notices()
        self.hits = self.misses = 0

    # -- called by Triton
    # --------------------------------------------------------------------------------------------------

    def get(self, key: str, names: Sequence[str]) -> Mapping[str, bytes]:
        """The stored contents of the named files under one of Triton's keys."""
        try:
            with self._lock:
                self._open()
                if key not in self._files:
                    self._read_journal()
                entry_files = self._files.get(key, {})
                needed: Sequence[str] = () if host_code_in(entry_files) else names
                files = {name: data for name in needed if (data := self._file(entry_files, name)) is not None}
        except (SiloError, OSError) as error:
            self._log_failure("nothing is taken from", error)
            files = dict[str, bytes]()
        self.hits += bool(files)
        self.misses += not files
        return files

    def put(self, key: str, name: str, data: bytes) -> None:
        """Records a file that Triton wrote."""
        if name.startswith(GROUP):
            return  # A group file is not recorded: Silo creates it from the names of the key's other files.
        try:
            with self._lock:
                if is_host_code(name, data):
                    self._native.add(key)
                    return
                if key in self._native:
                    return
                self._open()
                self._files.setdefault(key, {})[name] = data
                ref = file_ref(data)
                self._recorded().add(CacheFile(key, name, ref), {ref.sha256: data})
        except (SiloError, OSError) as error:
            self._log_failure("nothing is kept in", error)

    def _file(self, files: Mapping[str, bytes | str], name: str) -> bytes | None:
        if name.startswith(GROUP):
            # Triton writes the metadata last, so if it exists, all files do.
            has_group = name.removeprefix(GROUP) in files
            return json.dumps({"child_paths": sorted(files)}).encode() if has_group else None
        entry = files.get(name)
        if isinstance(entry, str):
            assert self._bundle is not None
            return self._bundle.blob(entry)
        return entry

    # -- the bundle and its journal
    # ----------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Opens the bundle and reads its journal, at the first call only."""
        if self._opened:
            return
        self._opened = True
        if self._path is None:
            raise BundleError("SILO_TRITON_CACHE names no file, so Triton's remote cache is empty and keeps nothing")
        if self._path.exists():
            self._bundle = open_bundle(self._path)
            for name, ref in self._bundle.attachments.items():
                if (cache_entry := cache_place(name)) is not None and check_cache_name(*cache_entry):
                    self._files.setdefault(cache_entry[0], {})[cache_entry[1]] = ref.sha256
        self._read_journal()

    def _read_journal(self) -> None:
        if self._path is None:
            return
        self._journal_place = Journal(journal_of(self._path)).read(self._take, self._journal_place)

    def _take(self, record: JournalRecord) -> None:
        try:
            entry = entry_from_json(record.document)
            if isinstance(entry, ForeignWinner | TextNames):
                return
            blobs = blobs_of(entry, record.read_bytes())
        except ValueError:
            return
        files = [(entry.name, entry.ref)] if isinstance(entry, CacheFile) else entry.files
        contents = {name: blobs[ref.sha256] for name, ref in files if check_cache_name(entry.key, name)}
        if contents:
            self._files.setdefault(entry.key, {}).update(contents)

    def _recorded(self) -> Archive:
        if self._recording is None:
            if self._path is None:
                raise BundleError("SILO_TRITON_CACHE names no file")
            self._recording = Archive(self._path)
            atexit.register(self.close)
        return self._recording

    def close(self) -> None:
        """Folds the recorded files into the bundle."""
        if self._recording is not None:
            try:
                fold(self._recording.path)
            except (SiloError, OSError) as error:
                self._log_failure("what was kept stays in the journal beside", error)

    def _log_failure(self, label: str, error: Exception) -> None:
        self._notices.once(label, f"Triton's remote cache: {label} {self._path}: {error}")


_made: CacheFiles | None = None


def cache_of_settings() -> CacheFiles:
    """The cache files of this process, in the bundle that ``SILO_TRITON_CACHE`` names."""
    global _made  # noqa: PLW0603  # Triton may import its backend anew
    if _made is None:
        setting = settings().triton_cache
        _made = CacheFiles(None if setting is None else Path(setting))
    return _made


def write_cache(path: Path, folder: Path) -> tuple[int, int, int]:
    """Writes a bundle's files as a cache folder of Triton (``TRITON_CACHE_DIR``).

    Returns the number of written files, their bytes, and the number of omitted keys. Triton's group files contain
    absolute paths, so they are created here and are valid only in this folder. Keys with native code for the host are
    left out. An existing folder may only contain files that an earlier call wrote from the same bundle.

    Raises:
        BundleError: the bundle cannot be read or names a file that Silo does not record, the folder holds other
            entries, or cannot be written. In these cases nothing is written.
    """
    folder = folder.absolute()
    count = written = left_out = 0
    with open_folded(path) as bundle:
        keys: dict[str, dict[str, str]] = {}
        for attachment, ref in bundle.attachments.items():
            if (file := cache_place(attachment)) is None:
                continue
            if isinstance(decision := check_cache_name(*file), Rejected):
                raise BundleError(
                    f"the bundle names a file {file[1]!r} of Triton's cache under {file[0]!r}, which no recording "
                    f"does: {decision.reason}"
                )
            keys.setdefault(file[0], {})[file[1]] = ref.sha256
        names_by_key = {key: {*files, *(f"{GROUP}{name}" for name in _metadata(files))} for key, files in keys.items()}
        _require_own(folder, names_by_key)
        for key, files in keys.items():
            contents = {} if host_code_in(files) else {name: bundle.blob(sha256) for name, sha256 in files.items()}
            if not contents or any(is_host_code(name, data) for name, data in contents.items()):
                left_out += 1
                continue
            for name, data in _folder_files(folder / key, contents):
                _write(folder / key / name, data)
                count, written = count + 1, written + len(data)
    return count, written, left_out


def _metadata(names: Iterable[str]) -> list[str]:
    """The names among a key's files for which Triton looks for a group file."""
    return [name for name in names if name.endswith(".json") and not name.endswith(".autotune.json")]


def _require_own(folder: Path, own_files: Mapping[str, Collection[str]]) -> None:
    """Raises BundleError unless all entries of a folder are plain files that will be overwritten, and no links.

    Triton also loads other files in such a folder, including native code.
    """
    try:
        foreign = _foreign_entry(folder, own_files)
    except FileNotFoundError:
        return  # the folder will be created
    except OSError as error:
        raise BundleError(f"{folder} cannot be read: {error.strerror or error}") from error
    if foreign is not None:
        raise BundleError(
            f"{folder} holds {foreign}, which is not of this bundle: Triton would load what lies there; name a folder "
            "that is new or empty"
        )


def _foreign_entry(folder: Path, own_files: Mapping[str, Collection[str]]) -> str | None:
    """The first entry below a folder that ``own_files`` does not name; None if it names all entries."""
    with os.scandir(folder) as keys:
        for key in keys:
            if key.name not in own_files or not key.is_dir(follow_symlinks=False):
                return key.name
            with os.scandir(key.path) as files:
                for file in files:
                    if file.name not in own_files[key.name] or not file.is_file(follow_symlinks=False):
                        return f"{key.name}/{file.name}"
    return None


def _folder_files(folder: Path, files: Mapping[str, bytes]) -> Iterable[tuple[str, bytes]]:
    """The files of one key in Triton's order: the metadata and its group file come last."""
    metadata = _metadata(files)
    yield from ((name, data) for name, data in files.items() if name not in metadata)
    for name in metadata:
        yield name, files[name]
        paths = {file: str(folder / file) for file in sorted(files)}
        yield f"{GROUP}{name}", json.dumps({"child_paths": paths}).encode()


def _write(path: Path, data: bytes) -> None:
    try:
        make_directory(path.parent)
        with AtomicFile(path, mode=0o666) as file:
            file.write(data)
            file.commit()
    except OSError as error:
        raise BundleError(f"{path} cannot be written: {error.strerror or error}") from error
