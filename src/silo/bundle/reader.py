"""Opening a bundle: mapped, its manifest verified at once, each blob when it is asked for. Nothing is executed."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
from types import TracebackType
from typing import Self

from silo.artifacts.artifact import BlobRef
from silo.bundle.codec import CodecError, decompress, stated_size
from silo.bundle.contents import BundleContents, BundleKernel, decode_documents
from silo.bundle.format import HEADER_BYTES, MAX_MANIFEST_BYTES, Header, parse_header
from silo.bundle.manifest import BlobEntry, Manifest, OpenKernel
from silo.core.values import JSON
from silo.errors import BundleError, BundleFormatError

__all__ = ["Bundle", "open_bundle"]


class Bundle:
    """An open bundle. Made by :func:`open_bundle` or :meth:`from_bytes`; usable from many threads.

    ``header`` and ``manifest`` are verified; kernels are parsed and blobs verified when they are asked for.
    """

    def __init__(self, view: memoryview, mapping: mmap.mmap | None, name: str) -> None:
        self.name = name
        self._view = view
        self._mapping = mapping
        self.header: Header = parse_header(bytes(view[:HEADER_BYTES]), len(view), name)
        self.manifest_text = self._read_manifest()
        self.manifest = Manifest(self.manifest_text, self.header, file=name)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "bundle") -> Bundle:
        """A bundle that lies in memory; ``name`` is used in messages."""
        return cls(memoryview(data), None, name)

    @property
    def identity(self) -> str:
        """The sha256 of the stored manifest, which names every blob: what a signature signs."""
        return self.header.manifest_sha256.hex()

    @property
    def size_bytes(self) -> int:
        """The size of the whole file."""
        return len(self._view)

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The kernels' names, sorted."""
        return self.manifest.kernel_names

    @property
    def blobs(self) -> tuple[BlobEntry, ...]:
        """Every blob of the file, in order."""
        return self.manifest.blobs

    @property
    def refs(self) -> tuple[BlobRef, ...]:
        """Every blob by content: what the rule about host code looks at."""
        return tuple(entry.ref for entry in self.manifest.blobs)

    def kernel(self, name: str) -> BundleKernel:
        """One kernel; ``BundleError`` lists the names there are."""
        return self.manifest.kernel(self._known(name))

    def open_kernel(self, name: str) -> OpenKernel:
        """One kernel, each variant of which is read when it is asked for; ``BundleError`` lists the names there are."""
        return self.manifest.open_kernel(self._known(name))

    def contents(self) -> BundleContents:
        """Everything but the bytes of the blobs, checked."""
        return self.manifest.contents()

    def blob(self, sha256: str) -> bytes:
        """The bytes of a blob, decompressed within their stated size and verified before anyone sees them."""
        return self.read(self._entry(sha256))

    def read(self, entry: BlobEntry) -> bytes:
        """The verified bytes of one row of :attr:`blobs`."""
        # Copied first and hashed then: the file's pages could change in between.
        stored = bytes(self.stored(entry))
        field = f"blob {entry.kind} {entry.sha256[:16]}"
        try:
            data = decompress(entry.codec, stored, entry.raw_bytes)
        except CodecError as error:
            raise BundleFormatError(f"{self.name}: {error}", field=field, offset=entry.offset) from None
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise BundleFormatError(f"{self.name}: damaged: its sha256 differs", field=field, offset=entry.offset)
        return data

    def stored(self, entry: BlobEntry) -> memoryview:
        """A blob as it lies in the file, not verified."""
        return self._view[entry.offset : entry.offset + entry.stored_bytes]

    def between(self, start: int, end: int) -> memoryview:
        """Bytes of the file, not verified."""
        return self._view[start:end]

    def cases(self, name: str) -> tuple[JSON, ...]:
        """The case recipes of a kernel, in their order."""
        return self._documents(self.kernel(name).cases)

    def trials(self, name: str) -> tuple[JSON, ...]:
        """The trials kept of a kernel, in their order."""
        return self._documents(self.kernel(name).trials)

    def close(self) -> None:
        """Let go of the file. Views handed out by :meth:`stored` keep it mapped."""
        with contextlib.suppress(BufferError):
            self._view.release()
            if self._mapping is not None:
                self._mapping.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Bundle({self.name!r}, {len(self.kernel_names)} kernels, {self.identity[:12]})"

    def _known(self, name: str) -> str:
        if name not in self.kernel_names:
            names = ", ".join(self.kernel_names) or "none"
            raise BundleError(f"{self.name} holds no kernel {name!r}; it holds: {names}")
        return name

    def _entry(self, sha256: str) -> BlobEntry:
        entry = self.manifest.blob_entry(sha256)
        if entry is None:
            raise BundleError(f"{self.name} holds no blob {sha256!r}")
        return entry

    def _documents(self, ref: BlobRef | None) -> tuple[JSON, ...]:
        if ref is None:
            return ()
        entry = self._entry(ref.sha256)
        try:
            return decode_documents(self.read(entry))
        except ValueError as error:
            raise BundleFormatError(f"{self.name}: {error}", field=f"{ref.kind}", offset=entry.offset) from None

    def _read_manifest(self) -> bytes:
        header, offset = self.header, self.header.manifest_offset
        stored = bytes(self._view[offset : offset + header.manifest_bytes])
        if hashlib.sha256(stored).digest() != header.manifest_sha256:
            raise BundleFormatError(
                f"{self.name}: the manifest is damaged: its sha256 is not the one in the header",
                field="manifest",
                offset=offset,
            )
        if not header.zstd_manifest:
            return stored
        try:
            return decompress("zstd", stored, stated_size(stored, MAX_MANIFEST_BYTES))
        except CodecError as error:
            raise BundleFormatError(f"{self.name}: {error}", field="manifest", offset=offset) from None


def open_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Map a .silo file and verify its header and manifest.

    Raises ``BundleFormatError`` (with field and offset) for a foreign, truncated or damaged file,
    ``BundleVersionError`` for one written by a newer Silo, ``BundleError`` when it cannot be opened.
    """
    name = os.fspath(path).rpartition("/")[2]
    try:
        # Not waiting: a pipe of that name is refused below, not read.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise BundleError(f"cannot open the bundle {os.fspath(path)}: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BundleError(f"cannot open the bundle {os.fspath(path)}: it is no regular file")
        if status.st_size < HEADER_BYTES:
            # Gives the error for what is there; a mapping of nothing is an error of its own.
            return Bundle(memoryview(os.pread(descriptor, HEADER_BYTES, 0)), None, name)
        mapping = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise BundleError(f"cannot read the bundle {os.fspath(path)}: {error.strerror}") from None
    finally:
        os.close(descriptor)
    # Blobs are read one at a time, far apart: reading ahead would fetch pages that nobody asked for.
    mapping.madvise(mmap.MADV_RANDOM)
    return Bundle(memoryview(mapping), mapping, name)
