"""Reads and writes a recording: the entries in its bundle, and those in its journal, to which processes append.

Many processes may use one recording at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from silo.artifacts.artifact import Artifact, BlobRef, blob_ref
from silo.bundle.contents import decode_document
from silo.bundle.format import FILE_KIND, HEADER_BYTES
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.writer import place_of_bundle
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.json_reader import TEXT, Persisted, listed, paired, value_of
from silo.core.signature import Signature
from silo.core.values import JSON, malformed
from silo.errors import BundleError
from silo.forks import Mutex
from silo.frozen import field, frozen
from silo.kinds.triton.programs.records.journal import Journal, JournalPlace, JournalRecord, journal_of
from silo.plain_files import open_plain
from silo.sources.reached_code import Names
from silo.store.privacy import HeldLockError
from silo.tuner.foreign_decision import ForeignWinner

__all__ = [
    "GROUP",
    "NAMES",
    "WINNERS",
    "Archive",
    "CacheFile",
    "Entry",
    "ForeignWinner",
    "RecordedNames",
    "RecordedVariant",
    "TextNames",
    "attachment_name",
    "blobs_of",
    "cache_place",
    "check_cache_name",
    "entry_from_json",
    "file_ref",
    "key_of",
    "read_winners",
]

WINNERS = "triton/winners.jsonl"
NAMES = "triton/names.jsonl"
_CACHE = "triton/"
GROUP = "__grp__"  # the prefix of the names of group files, in which Triton lists the paths of all files of one key
_KEY = re.compile(r"[A-Za-z0-9]{1,128}")
# the longest file name that is recorded, in bytes: file systems allow 255, and Triton adds a prefix
_MOST_NAME_BYTES = 200


def attachment_name(key: str, name: str) -> str:
    """The name of a file of Triton's cache among the attachments of a bundle."""
    return f"{_CACHE}{key}/{name}"


def cache_place(attachment: str) -> tuple[str, str] | None:
    """The inverse of :func:`attachment_name`; None for any other attachment.

    >>> cache_place(attachment_name("K", "add.cubin")), cache_place(WINNERS)
    (('K', 'add.cubin'), None)
    """
    key, separator, name = attachment.removeprefix(_CACHE).partition("/")
    return (key, name) if attachment.startswith(_CACHE) and separator and key and name and "/" not in name else None


def check_cache_name(key: str, name: str) -> Decision:
    """Whether Silo would record a file of Triton's cache under this key and name; a bundle's names are not trusted.

    Triton opens every file that a group file (``__grp__NAME.json``) lists, so group files are never taken from a
    bundle; they are created from the names of the files beside them.

    >>> check_cache_name("K", "__grp__add.json")
    Rejected(reason='it lists files for Triton to load, and such lists are made, not kept')
    >>> bool(check_cache_name("K", "add.cubin")), bool(check_cache_name("K", "../add.cubin"))
    (True, False)
    """
    if not _KEY.fullmatch(key):
        return Rejected("its key is none of Triton's cache")
    if name.startswith(GROUP):
        return Rejected("it lists files for Triton to load, and such lists are made, not kept")
    if name in ("", "lock") or name.startswith((".", "tmp.")) or not name.isprintable() or {"/", "\\"} & {*name}:
        return Rejected("it is no name of a file that Triton caches")
    if len(name.encode(errors="replace")) > _MOST_NAME_BYTES:
        return Rejected(f"a name has up to {_MOST_NAME_BYTES} bytes")
    return Accepted()


def key_of(artifact: Artifact) -> str:
    """The key in Triton's cache from which an artifact was recorded; "" if Silo compiled it."""
    word, _, key = artifact.job.partition(" ")
    return key if word == "triton" else ""


def file_ref(data: bytes, kind: str = FILE_KIND) -> BlobRef:
    """Returns a blob reference for a file with these bytes."""
    return blob_ref(kind, data)


@frozen
class RecordedVariant(Persisted):
    """One variant that a program used, or the generic variant recorded with it.

    ``signature`` is the source's own, without types. ``key`` is the variant's folder in Triton's cache, and ``files``
    are the files in that folder, by name; the file that a driver loads is the artifact's blob.
    """

    title = "a recorded variant"
    tags = MappingProxyType({"kind": "variant"})

    artifact: Artifact = field(form=value_of(Artifact))
    signature: Signature = field(form=value_of(Signature))
    reason: str = field(form=TEXT)
    key: str = field(form=TEXT)
    files: tuple[tuple[str, BlobRef], ...] = field(form=paired(value_of(BlobRef)))

    @property
    def identity(self) -> str:
        """Identifies a variant by the facts by which Triton distinguishes its compiles."""
        return f"variant {self.key}"


@frozen
class CacheFile(Persisted):
    """A file of Triton's cache that belongs to no known variant: its key, its name, and its hash."""

    title = "a file"
    tags = MappingProxyType({"kind": "file"})

    key: str = field(form=TEXT)
    name: str = field(form=TEXT)
    ref: BlobRef = field(form=value_of(BlobRef))

    @property
    def identity(self) -> str:
        """Identifies the file and its content; a file with other content replaces it."""
        return f"file {self.key}/{self.name} {self.ref.sha256}"


@frozen
class TextNames(Persisted):
    """The names that a kernel's text refers to, by the text's key.

    With these names, a later process computes the kernel's fingerprint without parsing the text.
    """

    title = "the names in a text"
    tags = MappingProxyType({"kind": "names"})

    text: str = field(form=TEXT)
    names: Names = field(form=listed(listed(TEXT, 1)))

    @property
    def identity(self) -> str:
        """Identifies the text."""
        return f"names {self.text}"


Entry: TypeAlias = RecordedVariant | CacheFile | ForeignWinner | TextNames


def entry_from_json(document: JSON) -> Entry:
    """The entry in a journal's record; raises ``ValueError`` for any other document."""
    if isinstance(document, dict):
        for cls in (ForeignWinner, TextNames, CacheFile, RecordedVariant):
            if document.get("kind") == cls.tags["kind"]:
                return cls.from_json(document)
    raise malformed("a record", document)


_log = logging.getLogger("silo")

T = TypeVar("T")
_TEXT = re.compile(rb'"text":"([0-9a-f]{64})"')


class Archive:
    """The recording that belongs to one bundle. Usable from many threads, and in children made by fork.

    Raises:
        BundleError: the journal cannot be written, or the existing file is not a bundle.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = place_of_bundle(path)
        self.journal = Journal(journal_of(self.path))
        self._lock = Mutex()
        self._journal_place = JournalPlace()
        self._bundle: bytes | None = None  # the header of the bundle as last read, which changes with its contents
        self._recorded_keys: set[str] = set()
        self._winners: dict[tuple[str, str, str], ForeignWinner] = {}
        self._given_up: BundleError | None = None
        with self._lock, self._locked_journal():
            self._refresh()

    def add(self, entry: Entry, blobs: Mapping[str, bytes]) -> bool:
        """Records an entry durably, with the bytes of its blobs by sha256; returns False if it is recorded already.

        Raises:
            BundleError: the entry cannot be written.
        """
        with self._lock:
            if entry.identity in self._recorded_keys:
                return False
            with self._locked_journal():
                self._refresh()
                if entry.identity in self._recorded_keys:
                    return False
                self.journal.append(entry.to_json(), b"".join(blobs[sha256] for sha256 in _hashes(entry)))
            self._take(entry)
            return True

    def is_known(self, identity: str) -> bool:
        """Whether an entry with this identity is recorded, according to what this process has read."""
        with self._lock:
            return identity in self._recorded_keys

    def winner(self, slot: tuple[str, str, str]) -> ForeignWinner | None:
        """The current decision for a slot (a kernel's fingerprint, a target and a key), or None."""
        with self._lock:
            winner = self._winners.get(slot)
            if winner is None:
                with self._locked_journal():
                    self._refresh()
                winner = self._winners.get(slot)
            return winner

    def decide(self, winner: ForeignWinner) -> ForeignWinner:
        """Records a decision, unless there is one for the same kernel, target and key. Returns the recorded decision.

        Raises:
            BundleError: the decision cannot be written.
        """
        self.add(winner, {})
        with self._lock:
            return self._winners[winner.slot]

    @contextlib.contextmanager
    def _locked_journal(self) -> Generator[None]:
        """Locks the journal.

        If another process once held the lock for too long, later calls fail at once instead of waiting.
        """
        if self._given_up is not None:
            raise self._given_up
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self.journal.locked())
            except BundleError as error:
                if isinstance(error.__cause__, HeldLockError):
                    self._given_up = error
                raise
            yield

    def _refresh(self) -> None:
        """Reads the records added since the last call. The locks of this object and the journal must be held."""
        entries: list[Entry] = []

        def take(record: JournalRecord) -> None:
            if (entry := _entry(self.journal.path, record)) is not None:
                entries.append(entry)

        position = self.journal.read(take, self._journal_place)
        if position.identity != self._journal_place.identity or self._bundle is None:
            self._read_bundle()  # another process has folded the earlier journal into the bundle
        self._journal_place = position
        for entry in entries:
            self._take(entry)

    def _read_bundle(self) -> None:
        try:
            with open(open_plain(self.path), "rb") as file:  # noqa: PTH123  # of a descriptor
                header = file.read(HEADER_BYTES)
        except FileNotFoundError:
            self._bundle = b""
            return
        except OSError as error:
            raise BundleError(f"{self.path} cannot be read: {error.strerror or error}") from error
        if header == self._bundle:
            return
        with open_bundle(self.path) as bundle:
            self._recorded_keys |= {
                f"variant {cache_entry[0]}" for name in bundle.attachments if (cache_entry := cache_place(name))
            }
            for winner in read_winners(bundle):
                self._take(winner)
            self._recorded_keys |= {f"names {text}" for text in RecordedNames(bundle)}
        self._bundle = header

    def _take(self, entry: Entry) -> None:
        self._recorded_keys.add(entry.identity)
        if isinstance(entry, ForeignWinner):
            self._winners.setdefault(entry.slot, entry)


def read_winners(bundle: Bundle) -> list[ForeignWinner]:
    """The decisions of tuners that a bundle contains.

    Raises:
        BundleError: a document is damaged.
    """
    return _read(bundle, _lines(bundle, WINNERS), ForeignWinner.from_json, "the winners")


class RecordedNames(Mapping[str, Names]):
    """The names that kernels' texts refer to, from a bundle, by the texts' keys. A text's document is parsed on demand.

    Raises:
        BundleError: a document is damaged. A text's document is read only when its names are requested.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._lines = {_text_named(line): line for line in _lines(bundle, NAMES)}

    def __getitem__(self, text: str) -> Names:
        return _read(self._bundle, [self._lines[text]], TextNames.from_json, "the names in texts")[0].names

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


def _text_named(line: bytes) -> str:
    """The key of the text that a line is about.

    A damaged line without a key gets its own repr as the key, so that the error is raised when its entry is read.
    """
    match = _TEXT.search(line)
    return repr(line) if match is None else match[1].decode()


def _lines(bundle: Bundle, attachment: str) -> list[bytes]:
    """The lines of an attachment, each of which is a document; [] if the bundle lacks the attachment."""
    ref = bundle.attachments.get(attachment)
    return [] if ref is None else bundle.blob(ref.sha256).splitlines(keepends=True)


def _read(bundle: Bundle, lines: Iterable[bytes], read: Callable[[JSON], T], label: str) -> list[T]:
    try:
        return [read(decode_document(line)) for line in lines]
    except ValueError as error:
        raise BundleError(f"{bundle.name}: {label} are damaged: {error}; record them again") from None


def _entry(path: Path, record: JournalRecord) -> Entry | None:
    try:
        return entry_from_json(record.document)
    except ValueError as error:
        _log.warning("%s holds a record that makes no sense, which is passed over: %s", path, error)
        return None


def _refs(entry: Entry) -> list[BlobRef]:
    """The distinct blobs of an entry, in the order in which a journal stores their bytes."""
    if isinstance(entry, ForeignWinner | TextNames):
        return []
    if isinstance(entry, RecordedVariant):
        refs = [entry.artifact.blob, *entry.artifact.sidecars, *(ref for _, ref in entry.files)]
    else:
        refs = [entry.ref]
    return list({ref.sha256: ref for ref in refs}.values())


def _hashes(entry: Entry) -> list[str]:
    return [ref.sha256 for ref in _refs(entry)]


def blobs_of(entry: Entry, data: bytes) -> dict[str, bytes]:
    """Splits the bytes of an entry by blob, keyed by sha256; raises ``ValueError`` if their total length differs."""
    blobs: dict[str, bytes] = {}
    at = 0
    for ref in _refs(entry):
        blobs[ref.sha256] = data[at : at + ref.size]
        at += ref.size
    if at != len(data):
        raise ValueError(f"{len(data)} bytes where {at} are named")
    return blobs
