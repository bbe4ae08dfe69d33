"""The trust ledger: native code runs only if this user built it, trusts it or its signer, or allows this one load.

The user's trust is in a :class:`silo.core.consent.HostCode`: the bytes of the code, and everything that decides the
effect of calling them. Its digest names it. Mapping native code requires a :class:`silo.core.consent.Consent`, and only
this module issues them: by the ledger of a store, for code compiled in this process, and for code that the parent
process trusts. A trusted key vouches for all files that it signs (:mod:`silo.store.signatures`).

Notes of an older Silo cover only the bytes. They give no consent; a refusal mentions them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeAlias

from silo.core.consent import Consent, HostCases, HostCode, HostPlan, HostText, PackedHostCode, issue_consent
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.values import JSON
from silo.errors import TrustError
from silo.frozen import frozen

if TYPE_CHECKING:
    from pathlib import Path

    from silo.core.protocols import RecordStore
    from silo.store.signatures import KeyEntry, SignedFile, TrustedKeys

__all__ = [
    "TrustEntry",
    "TrustLedger",
    "consent_of_caller",
    "consent_to_compiled",
    "consent_to_confirmed",
    "may_load",
]

BUILT = "built"
TRUSTED = "trusted"
REMOTES = "remotes"
_MOST_SHOWN = 8
_MOST_NAMED = 3
_CALLERS_WORD = "the caller passed trust=True"

Vouchable: TypeAlias = "HostCode | PackedHostCode | HostCases | HostPlan | HostText"


def may_load(
    digest: str,
    built: Collection[str],
    trusted: Collection[str],
    *,
    trust: bool = False,
    signed: Decision | None = None,
    older: str = "",
) -> Decision:
    """Decides whether native code with this digest may be loaded, and for which reason.

    ``built`` holds code that this user's store compiled, ``trusted`` code that the user trusted with ``silo trust``,
    and ``trust`` is the caller's consent to this one load. ``signed``: whether a key that is trusted here signed the
    file that holds the code; None if that was not checked. ``older`` names the list of an older Silo that has the
    code's bytes.

    >>> may_load("ab" * 32, built=(), trusted=())
    Rejected(reason='nobody here built it, and nobody vouched for it')
    >>> bool(may_load("ab" * 32, built={"ab" * 32}, trusted=()))
    True
    """
    if digest in built:
        return Accepted("built here")
    if digest in trusted:
        return Accepted("trusted with 'silo trust'")
    if trust:
        return Accepted(_CALLERS_WORD)
    if signed:
        return signed
    reason = "nobody here built it, and nobody vouched for it"
    if older:
        reason = (
            f"nobody vouched for the way it is called: its bytes are known here ({older}), and an older Silo noted no "
            "more than those"
        )
    return Rejected(f"{reason}; {signed.reason}" if signed is not None and signed.reason else reason)


@frozen
class TrustEntry:
    """The record that ``silo trust`` made about one piece of native code.

    ``digest`` and ``blob`` are SHA-256s: of the code with its calls, and of its bytes. ``kernel`` names the code,
    ``origin`` the file it came from, ``since`` the time in seconds of Unix time; 0 if an older Silo recorded no time.
    """

    digest: str
    blob: str
    kernel: str
    origin: str
    since: int


class _Listing:
    """One list of the ledger as last read: digests, each with its record, and the blobs that an older Silo listed."""

    def __init__(self) -> None:
        self.entries: dict[str, TrustEntry | None] = {}
        self.older: dict[str, TrustEntry] = {}
        # inode, size and modification time of the list's file when it was read
        self.read: tuple[int, int, int] | None = None
        self.is_read = False

    def take(self, record: JSON) -> None:
        """Applies one record; invalid records are skipped."""
        if not isinstance(record, dict):
            return
        origin, at = record.get("origin", ""), record.get("at", 0)
        origin, at = origin if isinstance(origin, str) else "", at if type(at) is int else 0
        for digest in _texts(record.get("built")):
            self.entries[digest] = None
        for row in _rows(record.get("trusted")):
            match row:
                case [str(digest), str(blob), str(kernel)]:
                    self.entries[digest] = TrustEntry(digest, blob, kernel, origin, at)
                case _:
                    pass
        for digest in _texts(record.get("untrusted")):
            self.entries.pop(digest, None)
            self.older.pop(digest, None)
        blob = record.get("sha256")
        if isinstance(blob, str):
            self.older[blob] = TrustEntry("", blob, "", origin, 0)


class TrustLedger:
    """The record of the native code that was built here or is trusted here. It issues consent to load this code.

    ``directory`` is the directory of ``records``, None if they are in memory. Lists that others could have written are
    never read (:mod:`silo.store.privacy`).
    """

    def __init__(self, records: RecordStore, directory: Path | None = None) -> None:
        self._records = records
        self._directory = directory
        self._lists: dict[str, _Listing] = {BUILT: _Listing(), TRUSTED: _Listing()}
        # The entries that this process added. They count even if they could not be written to the disk.
        self._vouched: dict[str, dict[str, TrustEntry | None]] = {BUILT: {}, TRUSTED: {}}

    @cached_property
    def keys(self) -> TrustedKeys:
        """The keys whose signatures are trusted."""
        from silo.store.signatures import TrustedKeys  # noqa: PLC0415  # most code is trusted without a signature

        return TrustedKeys(self._records, self._stamp)

    def trusted_keys(self) -> tuple[KeyEntry, ...]:
        """Returns the trusted keys, the oldest first."""
        return self.keys.trusted()

    def note_built(self, *codes: Vouchable) -> None:
        """Records consent to native code that was compiled here, and to cases and C text that were written here.

        Called after compiling, after building a bundle, and when a call is stored for a jax program, which names the
        stored call by its digest.
        """
        if not self._lists[BUILT].is_read:
            self._refresh(BUILT)
        # The list that this process read last is enough here. If another process has added the entry since then, this
        # process only adds it a second time. Reading the list anew for each compile would cost more.
        noted = self._lists[BUILT].entries.keys() | self._vouched[BUILT].keys()
        new = [digest for digest in dict.fromkeys(code.digest for code in codes) if digest not in noted]
        if new:
            self._add(BUILT, dict.fromkeys(new), {"built": new})

    def note_variants(self, *codes: HostCode) -> None:
        """Records consent to the native code of variants.

        The code must come from outcomes of compile jobs that this store compiled, or received with consent.
        """
        built: list[HostCode] = []
        for code in codes:
            word = self._word(HostCode(code.blob, code.kind, code.launch, text=code.text))
            if word is None:
                built.append(code)
            # The outcome came from a remote store. The variant's code is recorded with the same origin, so that
            # withdrawing trust in the store withdraws consent to both.
            else:
                self.note_trusted([(code, word.kernel)], word.origin)
        if built:
            self.note_built(*built)

    def _word(self, outcome: HostCode) -> TrustEntry | None:
        """Returns the record of consent to an outcome from a remote store; None if this user's store compiled it."""
        digest = outcome.digest
        if self._has(BUILT, digest) or not self._has(TRUSTED, digest):
            return None
        return self._vouched[TRUSTED].get(digest) or self._lists[TRUSTED].entries.get(digest)

    def trust_remote(self, name: str) -> bool:
        """Trusts native code that comes from this remote store from now on. Returns False if it was trusted before."""
        if name in self.remotes():
            return False
        self._records.append(REMOTES, {"remote": name, "at": _seconds()})
        return True

    def distrust_remote(self, name: str) -> int:
        """Withdraws trust in a remote store and in all code that came from it.

        Returns the number of withdrawn entries, including the store's own entry.
        """
        listed = name in self.remotes()
        if listed:
            self._records.append(REMOTES, {"distrusted": name, "at": _seconds()})
        return listed + self.take_back(name)

    def take_back(self, origin: str) -> int:
        """Withdraws consent to all code that came from ``origin``; returns the number of withdrawn entries."""
        digests = {entry.digest or entry.blob for entry in self.trusted() if entry.origin == origin}
        return self.untrust(digests) if digests else 0

    def remotes(self) -> dict[str, int]:
        """Returns the trusted remote stores, and since when, in seconds of Unix time."""
        trusted_at: dict[str, int] = {}
        for record in self._records.read(REMOTES):
            match record:
                case {"remote": str(name), "at": int(at)}:
                    trusted_at.setdefault(name, at)
                case {"distrusted": str(name)}:
                    trusted_at.pop(name, None)
                case _:
                    pass
        return trusted_at

    def trusts_remote(self, name: str) -> bool:
        """Returns whether this user trusts a remote store by ``silo trust --remote``."""
        return name in self.remotes()

    def note_trusted(self, codes: Iterable[tuple[Vouchable, str]], origin: str) -> int:
        """Records consent to native code, and to cases, plans and C texts for it; returns the number of new entries.

        The kernel's name beside each of them, and ``origin``, are notes for people.
        """
        now = _seconds()
        entries = {
            digest: TrustEntry(digest, code.blob, kernel, origin, now)
            for code, kernel in codes
            if not self._has(TRUSTED, digest := code.digest)
        }
        if entries:
            rows = [[entry.digest, entry.blob, entry.kernel] for entry in entries.values()]
            self._add(TRUSTED, entries, {"trusted": rows, "origin": origin, "at": now})
        return len(entries)

    def untrust(self, names: Collection[str]) -> int:
        """Withdraws all consent to the code with these digests or blobs; returns the number of withdrawn entries.

        This includes code that was built here. A program keeps the code that it has loaded.
        """
        withdrawn: set[str] = set()
        for name in (BUILT, TRUSTED):
            self._refresh(name)
            listing = self._lists[name]
            entries = [
                digest
                for digest, entry in (listing.entries | self._vouched[name]).items()
                if digest in names or (entry is not None and entry.blob in names)
            ]
            older = [blob for blob in listing.older if blob in names]
            if entries or older:
                self._records.append(name, {"untrusted": [*entries, *older], "at": _seconds()})
                for digest in entries:
                    self._vouched[name].pop(digest, None)
                    listing.entries.pop(digest, None)
                for blob in older:
                    listing.older.pop(blob, None)
            withdrawn.update(entries, older)
        return len(withdrawn)

    def trusted(self) -> tuple[TrustEntry, ...]:
        """Returns the entries of ``silo trust``, in the order in which they were made.

        Entries of an older Silo, which give no consent, come first and have no digest.
        """
        self._refresh(TRUSTED)
        listing = self._lists[TRUSTED]
        entries = listing.entries | self._vouched[TRUSTED]
        return (*listing.older.values(), *(entry for entry in entries.values() if entry is not None))

    def built(self) -> int:
        """Returns how many pieces of code were recorded as built here."""
        self._refresh(BUILT)
        return len(self._lists[BUILT].entries | self._vouched[BUILT])

    def decide(self, code: Vouchable, *, trust: bool = False, signed: Callable[[], Decision] | None = None) -> Decision:
        """Decides about ``code``: whether the native code may be loaded, or may be run on the cases.

        ``trust`` is True if the caller consents. ``signed`` decides whether a trusted key signed the file; it is called
        only if nothing else decides.
        """
        digest = code.digest
        built = (digest,) if self._has(BUILT, digest) else ()
        trusted = (digest,) if not built and self._has(TRUSTED, digest) else ()
        words = {BUILT: "it was built here", TRUSTED: "it was trusted"}
        older = next((word for name, word in words.items() if code.blob in self._lists[name].older), "")
        by = None if built or trusted or trust or signed is None else signed()
        return may_load(digest, built, trusted, trust=trust, signed=by, older=older)

    def vouch(
        self,
        code: HostCode | PackedHostCode,
        *,
        origin: str,
        trust: bool = False,
        signed: Callable[[], SignedFile] | None = None,
    ) -> Consent:
        """Returns consent to load ``code``, which came from ``origin``. Raises ``TrustError`` if it is not trusted.

        ``signed`` returns the file that holds the code, as this process read it. A trusted key's signature of the file
        gives consent; it is checked only if nothing else does.
        """
        decision = self.decide(code, trust=trust, signed=self._signature_check(signed))
        if isinstance(decision, Rejected):
            raise _refusal([(code, decision)], origin)
        return issue_consent(code, decision.reason)

    def require(
        self,
        codes: Iterable[Vouchable],
        *,
        origin: str,
        trust: bool = False,
        signed: Callable[[], SignedFile] | None = None,
        exported: bool = False,
    ) -> None:
        """Raises ``TrustError`` unless all of this code may be loaded and run. Called before a launch is prepared.

        ``exported`` is True before an export instead: other programs will load and run the written files. The error
        then says that nothing is exported.
        """
        check = self._signature_check(signed)
        refused = [
            (code, decision)
            for code in codes
            if isinstance(decision := self.decide(code, trust=trust, signed=check), Rejected)
        ]
        if refused:
            raise _refusal(refused, origin, exported=exported)

    def _signature_check(self, signed: Callable[[], SignedFile] | None) -> Callable[[], Decision] | None:
        """Returns a function that decides, once, whether a trusted key signed the file that ``signed`` returns."""
        return None if signed is None else cache(lambda: self.keys.decide(signed()))

    def _add(self, name: str, entries: Mapping[str, TrustEntry | None], record: JSON) -> None:
        self._records.append(name, record)
        self._lists[name].entries.update(entries)
        self._vouched[name].update(entries)

    def _has(self, name: str, digest: str) -> bool:
        # Another process may have added the digest since the list was read.
        if digest not in self._lists[name].entries and digest not in self._vouched[name]:
            self._refresh(name)
        return digest in self._lists[name].entries or digest in self._vouched[name]

    def _refresh(self, name: str) -> None:
        """Reads a list of the ledger again, unless its file is unchanged."""
        listing = self._lists[name]
        stamp = self._stamp(name)
        if listing.is_read and stamp is not None and stamp == listing.read:
            return
        fresh = _Listing()
        fresh.read, fresh.is_read = stamp, True
        for record in self._records.read(name):
            fresh.take(record)
        self._lists[name] = fresh

    def _stamp(self, name: str) -> tuple[int, int, int] | None:
        if self._directory is None:
            return None
        try:
            status = (self._directory / f"{name}.jsonl").stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns


def consent_of_caller(code: HostCode | PackedHostCode) -> Consent:
    """Returns consent to code that the caller vouches for by ``trust=True``: for this load alone, not stored."""
    return issue_consent(code, _CALLERS_WORD)


def consent_to_compiled(code: HostCode, reason: str) -> Consent:
    """Returns consent to code that the caller has just compiled at this user's request; not stored."""
    return issue_consent(code, reason)


def consent_to_confirmed(code: HostCode, digest: object, confirmed_by: str) -> Consent:
    """Returns consent to code that the requesting process trusts: ``digest``, which it sent, must be the code's.

    The requesting process is the parent of a measuring process, or the machine for which a user started ``silo agent``.

    Raises:
        TrustError: the code that arrived has another digest.
    """
    if digest != code.digest:
        raise TrustError(f"{code.launch.entry}: {confirmed_by} has given no consent to this code as it would be called")
    return issue_consent(code, f"{confirmed_by} vouched for it")


def _refusal(refused: Sequence[tuple[Vouchable, Rejected]], origin: str, *, exported: bool = False) -> TrustError:
    by_reason: dict[str, list[str]] = {}
    for code, decision in refused:
        by_reason.setdefault(decision.reason, []).append(f"{code.kind} {code.blob[:16]}")
    lines = [f"{_counted(list(dict.fromkeys(subjects)))}: {reason}" for reason, subjects in by_reason.items()]
    more = len(lines) - _MOST_SHOWN
    lines[_MOST_SHOWN:] = [f"and {more} more"] if more > 0 else []
    listing = "".join(f"\n  - {line}" for line in lines)
    code = any(isinstance(item, HostCode | PackedHostCode) for item, _ in refused)
    if exported:
        brings = "native code, C text or cases that programs built from the export would run, and nothing is exported"
    elif code:
        brings = "native code that would run in this process, and it may not be loaded"
    elif any(isinstance(item, HostPlan) for item, _ in refused):
        brings = "a plan for native code that is known here, and it may not be run as the plan says"
    else:
        brings = "cases for native code that is known here, and it may not be run on what they say"
    return TrustError(
        f"{origin} brings {brings}:{listing}\n"
        f"If you know who made it, run 'silo trust {origin}' once, or pass trust=True (commands: --trust). If a key "
        f"signed it, run 'silo trust --key' with that key. Or build it here with 'silo build'."
    )


def _counted(named: Sequence[str]) -> str:
    """Returns a few of the names as text, with the number of the remaining names."""
    more = len(named) - _MOST_NAMED
    return ", ".join(named[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _seconds() -> int:
    import time  # noqa: PLC0415  # launches record nothing

    return int(time.time())


def _texts(data: JSON) -> list[str]:
    return [item for item in data if isinstance(item, str)] if isinstance(data, list) else []


def _rows(data: JSON) -> Sequence[JSON]:
    return data if isinstance(data, list) else []
