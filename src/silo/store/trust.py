"""Who may bring host code: native code runs only where this user built it, trusted it, or says so now.

The decision is pure (:func:`may_load`); :class:`TrustLedger` gathers what it needs from two append-only lists in the
store. A third way, a signature by a trusted key, will be one more voucher in :func:`may_load`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from silo.artifacts.artifact import BlobRef
from silo.core.compiled import HOST_CODE_KINDS
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.values import JSON
from silo.errors import TrustError
from silo.store.blobs import check_sha256
from silo.store.notices import Notices

if TYPE_CHECKING:
    from silo.core.protocols import RecordStore

__all__ = ["TrustLedger", "is_private", "may_load"]

BUILT = "built"
TRUSTED = "trusted"


def may_load(sha256: str, built: Collection[str], trusted: Collection[str], *, trust: bool = False) -> Decision:
    """Whether host code of this sha256 may be loaded, and who vouches for it.

    ``built`` holds what this user's store compiled, ``trusted`` what the user vouched for with ``silo trust``,
    ``trust`` is the caller's own word for this one load.

    >>> may_load("ab" * 32, built=(), trusted=())
    Rejected(reason='nobody here built it, and nobody vouched for it')
    >>> bool(may_load("ab" * 32, built={"ab" * 32}, trusted=()))
    True
    """
    if sha256 in built:
        return Accepted("built here")
    if sha256 in trusted:
        return Accepted("trusted with 'silo trust'")
    if trust:
        return Accepted("the caller passed trust=True")
    return Rejected("nobody here built it, and nobody vouched for it")


def is_private(mode: int, owner: int, user: int) -> Decision:
    """Whether a file's contents can only be the user's own, so that its word may be taken.

    >>> is_private(0o100644, 1000, 1000)
    Accepted(reason='')
    >>> is_private(0o100664, 1000, 1000).reason
    'others may write it (mode 664)'
    """
    if owner != user:
        return Rejected(f"it belongs to user {owner}, not {user}")
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return Rejected(f"others may write it (mode {stat.S_IMODE(mode):o})")
    return Accepted()


class TrustLedger:
    """The sha256s of host code that was built here or trusted here.

    ``directory`` is where ``records`` live, None when they are in memory: lists that others could have written are
    not believed.
    """

    def __init__(self, records: RecordStore, notices: Notices, directory: Path | None = None) -> None:
        self._records = records
        self._notices = notices
        self._directory = directory
        self._known: dict[str, set[str]] = {BUILT: set(), TRUSTED: set()}
        self._vouched: dict[str, set[str]] = {BUILT: set(), TRUSTED: set()}  # by this process, whatever the disk says
        self._loaded: set[str] = set()

    def note_built(self, ref: BlobRef) -> None:
        """Vouch for a blob that was compiled here; called on the compile path only."""
        self._add(BUILT, ref.sha256, {"sha256": ref.sha256, "kind": ref.kind})

    def note_trusted(self, refs: Iterable[BlobRef], origin: str) -> int:
        """Vouch for the host code of ``origin`` (a note for people, such as a file's name); how much of it was new."""
        added = 0
        for ref in refs:
            if ref.kind in HOST_CODE_KINDS and ref.sha256 not in self._list(TRUSTED, ref.sha256):
                self._add(TRUSTED, ref.sha256, {"sha256": ref.sha256, "kind": ref.kind, "origin": origin})
                added += 1
        return added

    def decide(self, sha256: str, *, trust: bool = False) -> Decision:
        """Whether host code of this sha256 may be loaded."""
        check_sha256(sha256)
        return may_load(sha256, self._list(BUILT, sha256), self._list(TRUSTED, sha256), trust=trust)

    def require(self, refs: Iterable[BlobRef], *, origin: str, trust: bool = False) -> None:
        """Raise ``TrustError`` unless every blob of host code among ``refs`` may be loaded; other kinds pass.

        The kind is the caller's: pass the one under which the blob will be loaded.
        """
        refused = [
            f"{ref.kind} {ref.sha256[:16]}: {decision.reason}"
            for ref in refs
            if ref.kind in HOST_CODE_KINDS and isinstance(decision := self.decide(ref.sha256, trust=trust), Rejected)
        ]
        if refused:
            listing = "".join(f"\n  - {line}" for line in refused)
            raise TrustError(
                f"{origin} brings native code that would run in this process, and it may not be loaded:{listing}\n"
                f"If you know where it comes from, run 'silo trust {origin}' once or pass trust=True (a command: "
                f"--trust); or build it here with 'silo build'."
            )

    def _add(self, name: str, sha256: str, record: JSON) -> None:
        check_sha256(sha256)
        if name not in self._loaded:
            self._refresh(name)
        if sha256 not in self._known[name]:
            self._records.append(name, record)
        self._known[name].add(sha256)
        self._vouched[name].add(sha256)

    def _list(self, name: str, wanted: str) -> Collection[str]:
        # Another process may have vouched for it since the list was read.
        if wanted not in self._known[name]:
            self._refresh(name)
        return self._known[name]

    def _refresh(self, name: str) -> None:
        self._known[name] = self._read(name) | self._vouched[name]
        self._loaded.add(name)

    def _read(self, name: str) -> set[str]:
        if self._directory is not None:
            for path in (self._directory.parent, self._directory, self._directory / f"{name}.jsonl"):
                try:
                    status = path.stat()
                except OSError:
                    continue
                private = is_private(status.st_mode, status.st_uid, os.getuid())
                if isinstance(private, Rejected):
                    self._notices.once(
                        f"private {path}",
                        f"{path} is not believed about host code: {private.reason}; make it yours alone (chmod go-w)",
                    )
                    return set()
        found: set[str] = set()
        for record in self._records.read(name):
            if isinstance(record, dict) and isinstance(sha256 := record.get("sha256"), str):
                found.add(sha256)
        return found
