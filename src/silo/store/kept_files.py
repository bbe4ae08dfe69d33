"""Files of another compiler's cache, which programs would otherwise make again. They stay on this machine.

They are neither sent to a remote store nor taken from one, because only this store, which is its user's alone, vouches
for them. Native code for the host among them is used with the consent of the store's trust ledger alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from silo.artifacts.artifact import BlobRef
from silo.core.json_reader import NATURAL, Persisted, paired, value_of
from silo.core.notices import Notices
from silo.errors import StoreError
from silo.frozen import field, frozen
from silo.store.artifacts import Blobs
from silo.store.blobs import DiskBlobs
from silo.store.entries import DiskEntries, Entries

__all__ = ["MOST_BYTES", "KeptFiles", "blobs_kept_here"]

MOST_BYTES = 64 << 20  # of the files under one key
_KIND = "files"
_LEVEL = 1  # level of compression: most of the bytes are texts of compilers


@frozen
class _Kept(Persisted):
    """The blob that holds the files of a key one after the other, and the name and size of each."""

    title = "files in the store"
    tags = MappingProxyType({"schema": "files/1"})

    blob: BlobRef = field(form=value_of(BlobRef))
    files: tuple[tuple[str, int], ...] = field(form=paired(NATURAL))


class KeptFiles:
    """Files by key and name. All files of a key are one blob, which the store's pruning takes like any other.

    >>> from silo.store.store import MemoryStore
    >>> kept = MemoryStore().files
    >>> kept.put("ab" * 32, {"ptx": b"text", "cubin": b"code"})
    True
    >>> kept.get("ab" * 32)
    {'ptx': b'text', 'cubin': b'code'}
    >>> kept.get("cd" * 32) is None
    True
    """

    def __init__(self, entries: Entries, blobs: Blobs, notices: Notices) -> None:
        self._entries = entries
        self._blobs = blobs
        self._notices = notices

    def holds(self, key: str) -> bool:
        """Whether files of a key (a sha256 in hex) seem to be here; their bytes are not read."""
        found = self._read(key)
        return found is not None and self._blobs.holds(found.blob.sha256, found.blob.size)

    def blob_of(self, key: str) -> str | None:
        """The sha256 of the blob that holds the files of a key, or None."""
        found = self._read(key)
        return None if found is None else found.blob.sha256

    def put(self, key: str, files: Mapping[str, bytes]) -> bool:
        """Keep files by name under a key, for others that were there; False: they have too many bytes."""
        if sum(len(data) for data in files.values()) > MOST_BYTES:
            return False
        packed = zlib.compress(b"".join(files.values()), _LEVEL)
        ref = BlobRef(self._blobs.put(packed), _KIND, len(packed))
        self._entries.put(key, _Kept(ref, tuple((name, len(data)) for name, data in files.items())).to_json())
        return True

    def get(self, key: str) -> Mapping[str, bytes] | None:
        """The files that were kept under a key, in their order; None if they are absent, damaged or pruned.

        Damaged and missing files are reported once.
        """
        found = self._read(key)
        if found is None:
            return None
        ref, sizes = found.blob, found.files
        if not self._blobs.holds(ref.sha256, ref.size):
            self._note(key, "their bytes are gone")
            return None
        packed = self._blobs.get(ref.sha256)
        if packed is None:
            return None  # the blobs have reported it
        total = sum(size for _, size in sizes)
        try:
            data = zlib.decompressobj().decompress(packed, total + 1)
        except zlib.error as error:
            return self._note(key, f"they cannot be unpacked: {error}")
        if total > MOST_BYTES or len(data) != total:
            return self._note(key, "their sizes are others")
        files: dict[str, bytes] = {}
        begin = 0
        for name, size in sizes:
            files[name] = data[begin : begin + size]
            begin += size
        return files

    def _read(self, key: str) -> _Kept | None:
        document = self._entries.get(key)
        if document is None:
            return None
        try:
            return _Kept.from_json(document)
        except (ValueError, StoreError) as error:
            return self._note(key, str(error))

    def _note(self, key: str, reason: str) -> None:
        self._notices.once(
            f"files {key}", f"files {key} in the store cannot be used: {reason}; they will be made again"
        )


def blobs_kept_here(root: Path) -> frozenset[str]:
    """The blobs of the store at ``root`` that hold these files; they are not sent to a remote store."""
    notices = Notices("silo.store")
    entries = DiskEntries(root, "files", notices)
    keys = [path.stem for path in (root / "files").glob("??/*.json") if len(path.stem) == 64]
    found = [KeptFiles(entries, DiskBlobs(root, notices), notices).blob_of(key) for key in keys]
    return frozenset(sha256 for sha256 in found if sha256 is not None)
