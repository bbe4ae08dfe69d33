"""A recording: the contents of the bundle and its journal, and this process's additions. Many processes share one."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from silo.artifacts.artifact import BlobRef
from silo.bundle.contents import decode_document
from silo.bundle.format import HEADER_BYTES
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.writer import place_of_bundle
from silo.core.values import JSON
from silo.errors import BundleError
from silo.forks import Mutex
from silo.kinds.triton.programs.records.archive_entries import (
    NAMES,
    WINNERS,
    Entry,
    ForeignWinner,
    RecordedVariant,
    TextNames,
    cache_place,
    entry_from_json,
)
from silo.kinds.triton.programs.records.journal import Journal, JournalPlace, JournalRecord, journal_of
from silo.plain_files import open_plain
from silo.sources.reached_code import Names
from silo.store.locks import HeldLockError

__all__ = ["Archive", "RecordedNames", "blobs_of", "read_winners"]

_log = logging.getLogger("silo")

T = TypeVar("T")
_TEXT = re.compile(rb'"text":"([0-9a-f]{64})"')


class Archive:
    """The recording of one bundle. Usable from many threads, and in children made by fork.

    Raises:
        BundleError: the journal cannot be written, or the existing file is not a bundle.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = place_of_bundle(path)
        self.journal = Journal(journal_of(self.path))
        self._lock = Mutex()
        self._place = JournalPlace()
        self._bundle: bytes | None = None  # the header of the bundle that was read, which names all that is in it
        self._known: set[str] = set()
        self._winners: dict[tuple[str, str, str], ForeignWinner] = {}
        self._given_up: BundleError | None = None
        with self._lock, self._locked_journal():
            self._refresh()

    def add(self, entry: Entry, blobs: Mapping[str, bytes]) -> bool:
        """Keep an entry with its bytes by sha256, durably; False if it is recorded already.

        Raises:
            BundleError: it cannot be written.
        """
        with self._lock:
            if entry.identity in self._known:
                return False
            with self._locked_journal():
                self._refresh()
                if entry.identity in self._known:
                    return False
                self.journal.append(entry.to_json(), b"".join(blobs[sha256] for sha256 in _hashes(entry)))
            self._take(entry)
            return True

    def is_known(self, identity: str) -> bool:
        """Whether an entry of this identity is recorded, as far as this process has read."""
        with self._lock:
            return identity in self._known

    def winner(self, slot: tuple[str, str, str]) -> ForeignWinner | None:
        """The present decision for a slot."""
        with self._lock:
            found = self._winners.get(slot)
            if found is None:
                with self._locked_journal():
                    self._refresh()
                found = self._winners.get(slot)
            return found

    def decide(self, winner: ForeignWinner) -> ForeignWinner:
        """Keep a decision, unless another was first. Returns the decision that holds.

        Raises:
            BundleError: it cannot be written.
        """
        self.add(winner, {})
        with self._lock:
            return self._winners[winner.slot]

    @contextlib.contextmanager
    def _locked_journal(self) -> Generator[None]:
        """Hold the journal. A process that held it for too long once is not waited for again by each kernel."""
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
        """Read the records that others have added since. Under both locks."""
        entries: list[Entry] = []

        def take(record: JournalRecord) -> None:
            if (entry := _entry(self.journal.path, record)) is not None:
                entries.append(entry)

        place = self.journal.read(take, self._place)
        if place.identity != self._place.identity or self._bundle is None:
            self._read_bundle()  # the earlier journal is in the bundle now
        self._place = place
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
            self._known |= {f"variant {place[0]}" for name in bundle.attachments if (place := cache_place(name))}
            for winner in read_winners(bundle):
                self._take(winner)
            self._known |= {f"names {text}" for text in RecordedNames(bundle)}
        self._bundle = header

    def _take(self, entry: Entry) -> None:
        self._known.add(entry.identity)
        if isinstance(entry, ForeignWinner):
            self._winners.setdefault(entry.slot, entry)


def read_winners(bundle: Bundle) -> list[ForeignWinner]:
    """The decisions of tuners, as a bundle holds them.

    Raises:
        BundleError: the document is none.
    """
    return _read(bundle, _lines(bundle, WINNERS), ForeignWinner.from_json, "the winners")


class RecordedNames(Mapping[str, Names]):
    """The names in the texts of kernels, as a bundle holds them, by the texts' keys; read when they are needed.

    Raises:
        BundleError: a document is damaged. That of a text is read when the text's names are.
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
    """The text whose names a line has; the line itself if it names none, so that it is refused when it is read."""
    found = _TEXT.search(line)
    return repr(line) if found is None else found[1].decode()


def _lines(bundle: Bundle, attachment: str) -> list[bytes]:
    """The lines of an attachment, each a document; empty if the bundle lacks the attachment."""
    ref = bundle.attachments.get(attachment)
    return [] if ref is None else bundle.blob(ref.sha256).splitlines(keepends=True)


def _read(bundle: Bundle, lines: Iterable[bytes], read: Callable[[JSON], T], what: str) -> list[T]:
    try:
        return [read(decode_document(line)) for line in lines]
    except ValueError as error:
        raise BundleError(f"{bundle.name}: {what} are damaged: {error}; record them again") from None


def _entry(path: Path, record: JournalRecord) -> Entry | None:
    try:
        return entry_from_json(record.document)
    except ValueError as error:
        _log.warning("%s holds a record that makes no sense, which is passed over: %s", path, error)
        return None


def _refs(entry: Entry) -> list[BlobRef]:
    """The blobs of an entry, in the order in which a journal has their bytes; each once."""
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
    """The bytes of an entry by sha256; ``ValueError`` if their hash differs."""
    found: dict[str, bytes] = {}
    at = 0
    for ref in _refs(entry):
        found[ref.sha256] = data[at : at + ref.size]
        at += ref.size
    if at != len(data):
        raise ValueError(f"{len(data)} bytes where {at} are named")
    return found
