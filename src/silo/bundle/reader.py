"""Opening a bundle: mapped, its manifest verified at once, each blob when it is asked for. Nothing is executed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import TracebackType
from typing import Self

from silo.artifacts.artifact import BlobRef
from silo.bundle.checks import Checker
from silo.bundle.codec import CodecError, decompress, pieces, stated_size
from silo.bundle.contents import BundleContents, BundleKernel, BundleVariant, VariantGroup, decode_document
from silo.bundle.format import (
    CASES_KIND,
    DOCUMENTS_SHARE,
    HEADER_BYTES,
    ITEM_BYTES,
    MAX_MANIFEST_BYTES,
    TEXT_SHARE,
    TRIALS_KIND,
    Header,
    pack_header,
    parse_header,
)
from silo.bundle.manifest import BlobEntry, Manifest
from silo.core.config import Config
from silo.core.signature import Signature
from silo.core.values import JSON
from silo.core.variant import Variant
from silo.errors import BundleError, BundleFormatError
from silo.settings import allowance, how_to_raise

__all__ = ["Bundle", "OpenKernel", "open_bundle"]


class OpenKernel:
    """A kernel as launches see it. Its variants are checked when a call may use them, its head when it is asked for."""

    def __init__(self, manifest: Manifest, name: str, row: Mapping[str, JSON], rows: list[JSON], field: str) -> None:
        self._manifest = manifest
        self._name = name
        self._row = row
        self._rows = rows
        self._field = field
        self._read: dict[int, BundleVariant] = {}
        self._length = 0

    @cached_property
    def head(self) -> BundleKernel:
        """All but its variants."""
        return self._manifest.head_of(self._name, self._row, self._field)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> BundleVariant:
        found = self._read.get(number)
        if found is None:
            found = self._take(number, self.head.signature)
        return found

    def exact(self, wanted: Variant) -> BundleVariant | None:
        """The first variant that was compiled for just this, found without reading any other."""
        from silo.bundle.exact import names_in  # noqa: PLC0415  # what a recording serves

        if names_in(self._manifest.signature_row(self._row["signature"])) != list(wanted.signature.names):
            return None  # variants have the parameters of their kernel
        number = self._manifest.exact(self._rows, wanted)
        if number is None:
            return None
        found = self._read.get(number)
        return self._take(number, wanted.signature) if found is None else found

    def _take(self, number: int, parameters: Signature) -> BundleVariant:
        field = f"{self._field}.variants[{number}]"
        found = self._manifest.parse_variant(self._rows[number], field, parameters)
        self._read[number] = found
        self._length = self._manifest.expanded(self._length, self._rows[number], field)
        return found

    @cached_property
    def groups(self) -> tuple[VariantGroup, ...]:
        """Its variants, grouped."""
        return self._manifest.group_variants(self._rows, f"{self._field}.variants")

    @property
    def sources(self) -> frozenset[str]:
        """The fingerprints of the sources that its variants were compiled from, found without reading any."""
        return self._manifest.fingerprints(self._rows)

    @property
    def option_names(self) -> frozenset[str]:
        """The names of the options that configs of the bundle have, this kernel's among them."""
        return self._manifest.option_names

    def with_config(self, group: VariantGroup, config: Config) -> frozenset[int]:
        """Which variants of a group have this config."""
        wanted = self._manifest.config_numbers(config)
        rows = ((number, self._rows[number]) for number in group.numbers)
        return frozenset(
            number
            for number, row in rows
            if isinstance(row, dict) and isinstance(index := row["config"], int) and index in wanted
        )


class Bundle:
    """An open bundle. Made by :func:`open_bundle` or :meth:`from_bytes`; usable from many threads.

    ``header`` and ``manifest`` are verified; kernels are parsed and blobs verified when they are asked for.
    """

    def __init__(self, view: memoryview, mapping: mmap.mmap | None, name: str) -> None:
        self.name = name
        self._view = view
        self._mapping = mapping
        self._allowed = allowance(len(view))
        self.header: Header = parse_header(bytes(view[:HEADER_BYTES]), len(view), name)
        self.manifest_text = self._read_manifest()
        self.manifest = Manifest(self.manifest_text, self.header, file=name, allowed=self._allowed)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "bundle") -> Bundle:
        """A bundle that lies in memory; ``name`` is used in messages."""
        return cls(memoryview(data), None, name)

    @property
    def identity(self) -> str:
        """The sha256 of the stored manifest, which names every blob."""
        return self.header.manifest_sha256.hex()

    @property
    def signed_bytes(self) -> bytes:
        """What a signature signs: the 64 bytes of the header as it was read, whatever the file has become since.

        They have the hash of the manifest, and that of every blob, so they stand for all that this object gives out.
        """
        return pack_header(self.header)

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
    def attachments(self) -> Mapping[str, BlobRef]:
        """What travels with the kernels, by name."""
        return self.manifest.attachments

    @property
    def refs(self) -> tuple[BlobRef, ...]:
        """Every blob by content: what the rule about host code looks at."""
        return tuple(entry.ref for entry in self.manifest.blobs)

    def kernel(self, name: str) -> BundleKernel:
        """One kernel; ``BundleError`` lists the names there are."""
        return self.manifest.kernel(self._known(name))

    def open_kernel(self, name: str) -> OpenKernel:
        """One kernel, each variant of which is read when it is asked for; ``BundleError`` lists the names there are."""
        row, rows, field = self.manifest.rows_of(self._known(name))
        return OpenKernel(self.manifest, name, row, rows, field)

    def contents(self) -> BundleContents:
        """Everything but the bytes of the blobs, checked."""
        return self.manifest.contents()

    def blob(self, sha256: str) -> bytes:
        """The bytes of a blob, decompressed within their stated size and verified before anyone sees them."""
        return self.read(self._entry(sha256))

    def read(self, entry: BlobEntry) -> bytes:
        """The verified bytes of one row of :attr:`blobs`."""
        if entry.raw_bytes > self._allowed:
            raise self._damaged(entry, f"{entry.raw_bytes >> 20} MiB in one piece; {how_to_raise(self._allowed)}")
        # Copied first and hashed then: the file's pages could change in between.
        stored = bytes(self.stored(entry))
        try:
            data = decompress(entry.codec, stored, entry.raw_bytes)
        except CodecError as error:
            raise self._damaged(entry, str(error)) from None
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise self._damaged(entry, "damaged: its sha256 differs")
        return data

    def verify(self, entry: BlobEntry) -> None:
        """Check the bytes of one row of :attr:`blobs`, a piece at a time; ``BundleFormatError`` as :meth:`read`."""
        digest = hashlib.sha256()
        try:
            for piece in pieces(entry.codec, self.stored(entry), entry.raw_bytes):
                digest.update(piece)
        except CodecError as error:
            raise self._damaged(entry, str(error)) from None
        if digest.hexdigest() != entry.sha256:
            raise self._damaged(entry, "damaged: its sha256 differs")

    def _damaged(self, entry: BlobEntry, message: str) -> BundleFormatError:
        field = f"blob {entry.kind} {entry.sha256[:16]}"
        return BundleFormatError(f"{self.name}: {message}", field=field, offset=entry.offset)

    def stored(self, entry: BlobEntry) -> memoryview:
        """A blob as it lies in the file, not verified."""
        return self._view[entry.offset : entry.offset + entry.stored_bytes]

    def between(self, start: int, end: int) -> memoryview:
        """Bytes of the file, not verified."""
        return self._view[start:end]

    def cases(self, name: str) -> tuple[JSON, ...]:
        """The case recipes of a kernel, in their order."""
        return tuple(document for _, document in self.documents(name, CASES_KIND))

    def trials(self, name: str) -> tuple[JSON, ...]:
        """The trials kept of a kernel, in their order."""
        return tuple(document for _, document in self.documents(name, TRIALS_KIND))

    def documents(self, name: str, kind: str) -> Iterator[tuple[str, JSON]]:
        """The cases or trials of a kernel one by one, each with its field: parsed, they take far more than their text.

        All of them are refused where there are more than a reader may keep.
        """
        ref = self._document_ref(name, kind)
        if ref is None:
            return
        entry, check, items = self._entry(ref.sha256), self.checker(name, kind), 0
        if entry.raw_bytes > self._allowed // TEXT_SHARE:
            raise check.error(kind, f"{entry.raw_bytes} bytes of {kind}; {how_to_raise(self._allowed // TEXT_SHARE)}")
        for number, line in enumerate(io.BytesIO(self.read(entry))):
            field = f"{kind}[{number}]"
            items += 1 + line.count(b",")
            if items * ITEM_BYTES > self._allowed // DOCUMENTS_SHARE:
                raise check.error(field, f"{items} items of {kind} up to here; {how_to_raise(self._allowed)}")
            try:
                document = decode_document(line, self._allowed // TEXT_SHARE)
            except ValueError as error:
                raise check.error(field, f"line {number + 1}: {error}") from None
            yield field, document

    def checker(self, name: str, kind: str) -> Checker:
        """Checks of the cases or trials of a kernel."""
        ref = self._document_ref(name, kind)
        return Checker(f"{self.name}: {name}", self._entry(ref.sha256).offset if ref else 0)

    def _document_ref(self, name: str, kind: str) -> BlobRef | None:
        head = self.open_kernel(name).head
        return head.cases if kind == CASES_KIND else head.trials

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
        if name not in self.manifest:
            names = ", ".join(self.kernel_names) or "none"
            raise BundleError(f"{self.name} holds no kernel {name!r}; it holds: {names}")
        return name

    def _entry(self, sha256: str) -> BlobEntry:
        entry = self.manifest.blob_entry(sha256)
        if entry is None:
            raise BundleError(f"{self.name} holds no blob {sha256!r}")
        return entry

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
            return decompress("zstd", stored, stated_size(stored, min(MAX_MANIFEST_BYTES, self._allowed // TEXT_SHARE)))
        except CodecError as error:
            raise BundleFormatError(f"{self.name}: {error}", field="manifest", offset=offset) from None


def open_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Map a .silo file and verify its header and manifest.

    Raises ``BundleFormatError`` (with field and offset) for a foreign, truncated or damaged file,
    ``BundleVersionError`` for one written by a newer Silo, ``BundleError`` when it cannot be opened.
    """
    name = os.fspath(path).rpartition("/")[2]
    try:
        # As silo.plain_files opens files, which a launch does not import: a pipe is refused below, not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise BundleError(f"cannot open the bundle {os.fspath(path)}: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BundleError(f"cannot open the bundle {os.fspath(path)}: it is not a plain file")
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
