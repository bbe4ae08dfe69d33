"""Keys whose signatures vouch for native code, and receipts of signatures that were checked.

Checking a signature imports a large package. So the ledger notes that a key signed a header, and believes its note as
long as the key is trusted: taking the key back takes its receipts back too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.values import JSON
from silo.errors import PackageError, SignatureError
from silo.frozen import frozen

if TYPE_CHECKING:
    from silo.core.minisign import PublicKey
    from silo.core.protocols import RecordStore

__all__ = ["KEYS", "KeyEntry", "SignedFile", "TrustedKeys"]

KEYS: Final = "keys"

Stamp = tuple[int, int, int]


class SignedFile:
    """A file's signed header, as it was read and is used, and the signature beside the file.

    The header has the hash of all the rest, so its signer vouches for the bytes that were read, whatever the file holds
    now. ``name`` is the signature's file, for people; ``read`` returns its bytes, None without a signature.
    """

    __slots__ = ("_data", "_read", "header", "name")

    def __init__(self, header: bytes, name: str, read: Callable[[], bytes | Rejected | None]) -> None:
        self.header = header
        self.name = name
        self._read = read
        self._data: bytes | Rejected | None = None

    def signature(self) -> bytes | Rejected | None:
        """The bytes of the signature, or the reason why it cannot be read; None without a signature.

        The result is remembered.
        """
        if self._data is None:
            self._data = self._read()
        return self._data


@frozen
class KeyEntry:
    """A key that is trusted: its 56 characters, the file it came from, and since when, in seconds of Unix time."""

    text: str
    origin: str
    since: int


class _Listing:
    """The list as it was last read: keys by their text, and for each the headers that it has signed."""

    def __init__(self) -> None:
        self.keys: dict[str, KeyEntry] = {}
        self.receipts: dict[str, str] = {}  # headers, in hex, and the text of a key
        self.refused: set[str] = set()  # headers of files that signatures vouch for no longer
        self.read: Stamp | None = None
        self.is_read = False

    def take(self, record: JSON) -> None:
        """Apply one record; invalid records are skipped."""
        match record:
            case {"key": str(text), "origin": str(origin), "at": int(at)}:
                self.keys[text] = KeyEntry(text, origin, at)
            case {"signed": str(header), "by": str(text)} if text in self.keys:
                self.receipts[header] = text
            case {"untrusted key": str(text)}:
                self.keys.pop(text, None)
                for header in [header for header, by in self.receipts.items() if by == text]:
                    del self.receipts[header]
            case {"untrusted file": str(header)}:
                self.receipts.pop(header, None)
                self.refused.add(header)
            case _:
                pass


class TrustedKeys:
    """The part of the trust ledger that is about keys; :class:`silo.store.trust_ledger.TrustLedger` has it.

    ``stamp`` changes when the list on disk does; None if it is unknown.
    """

    def __init__(self, records: RecordStore, stamp: Callable[[str], Stamp | None]) -> None:
        self._records = records
        self._stamp = stamp
        self._listing = _Listing()

    def note_key(self, key: PublicKey, origin: str, at: int) -> bool:
        """Trust the files that a key signs. Returns whether that is new. ``origin`` is a note for people."""
        if key.text in self._refreshed().keys:
            return False
        self._add({"key": key.text, "origin": origin, "at": at})
        return True

    def untrust(self, text: str, at: int) -> bool:
        """Withdraw trust in a key and in all files that it signed; whether it was trusted."""
        if text not in self._refreshed().keys:
            return False
        self._add({"untrusted key": text, "at": at})
        return True

    def untrust_file(self, file: SignedFile, at: int) -> bool:
        """Let no signature vouch for one file, by any key; whether one did."""
        if not self.decide(file):
            return False
        self._add({"untrusted file": file.header.hex(), "at": at})
        return True

    def trusted(self) -> tuple[KeyEntry, ...]:
        """The keys that are trusted, the oldest first."""
        return tuple(self._refreshed().keys.values())

    def decide(self, file: SignedFile) -> Decision:
        """Whether a trusted key signed this file. A signature that is found good is noted, and not checked again."""
        header = file.header.hex()
        listing = self._refreshed()
        by = listing.receipts.get(header)
        if by is not None:
            return _signed_by(by)
        if header in listing.refused:
            return Rejected(f"{file.name} does not count: 'silo untrust' was said of this file")
        data = file.signature()
        if isinstance(data, Rejected):
            return data
        if data is None:
            return Rejected(f"no signature {file.name}" if listing.keys else "")
        signer = self._signer(file, data, listing)
        if isinstance(signer, Rejected):
            return Rejected(f"{file.name}: {signer.reason}")
        self._add({"signed": header, "by": signer.text})
        return _signed_by(signer.text)

    def _signer(self, file: SignedFile, data: bytes, listing: _Listing) -> PublicKey | Rejected:
        from silo.core.minisign import MinisignSignature, PublicKey  # noqa: PLC0415  # a receipt needs neither
        from silo.store.signatures import signer_among  # noqa: PLC0415

        try:
            signature = MinisignSignature.parse(data)
            keys = [PublicKey.parse(text) for text in listing.keys]
            if all(key.number != signature.number for key in keys):
                return Rejected(f"it says that the key {signature.id} made it, which is not trusted here")
            return signer_among(signature, keys, file.header)
        except (SignatureError, PackageError) as error:
            return Rejected(str(error))

    def _add(self, record: JSON) -> None:
        self._records.append(KEYS, record)
        self._listing.take(record)

    def _refreshed(self) -> _Listing:
        """The list as it is now: another process may have taken a key back."""
        stamp = self._stamp(KEYS)
        if not self._listing.is_read or stamp is None or stamp != self._listing.read:
            fresh = _Listing()
            fresh.read, fresh.is_read = stamp, True
            for record in self._records.read(KEYS):
                fresh.take(record)
            self._listing = fresh
        return self._listing


def _signed_by(text: str) -> Accepted:
    import base64  # noqa: PLC0415  # few files are signed

    number = int.from_bytes(base64.b64decode(text)[2:10], "little")
    return Accepted(f"signed by {number:016X}, which is trusted here")
