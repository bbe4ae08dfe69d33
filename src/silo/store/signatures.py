"""Signatures in minisign's format: signing, checking, files of keys, and keys that vouch for native code.

A secret key may be encrypted with a password: its bytes are combined by XOR with the output of scrypt for the password
and a salt.

Checking a signature imports a large package. So the trust ledger records that a key signed a header (a receipt), and
relies on this receipt as long as the key is trusted. Withdrawing trust in the key removes its receipts too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
import stat
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.minisign import MinisignSignature, PublicKey, number_text, prehashed
from silo.core.values import JSON
from silo.errors import PackageError, SignatureError
from silo.frozen import field, frozen
from silo.plain_files import open_plain
from silo.store.atomic_files import write_all
from silo.store.privacy import sync_directory

if TYPE_CHECKING:
    from silo.core.protocols import RecordStore

__all__ = [
    "KEYS",
    "KeyEntry",
    "Password",
    "ScryptLimits",
    "SecretKey",
    "SignedFile",
    "TrustedKeys",
    "check_signature",
    "is_signed_by",
    "make_key_files",
    "public_point",
    "read_public_key",
    "read_secret_key",
    "signed",
    "signer_among",
]

# ---- Ed25519 by the package ``cryptography``, which only these functions import ----


def public_point(seed: bytes) -> bytes:
    """Returns the public half of the key with this secret half. Raises ``PackageError`` without ``cryptography``."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415  # importing takes 50 ms
    except ModuleNotFoundError as error:
        raise _missing() from error
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def signed(seed: bytes, message: bytes) -> bytes:
    """Returns the signature of a message. Raises ``PackageError`` if the package ``cryptography`` is not installed."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415  # importing takes 50 ms
    except ModuleNotFoundError as error:
        raise _missing() from error
    return Ed25519PrivateKey.from_private_bytes(seed).sign(message)


def is_signed_by(point: bytes, signature: bytes, message: bytes) -> bool:
    """Returns whether the key with the public half ``point`` signed the message.

    Raises ``PackageError`` if the package ``cryptography`` is not installed.
    """
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  # importing takes 50 ms
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing() from error
    try:
        Ed25519PublicKey.from_public_bytes(point).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _missing() -> PackageError:
    return PackageError(
        "signatures need cryptography, which is not installed: pip install 'kernel-silo[sign]'", name="cryptography"
    )


# ---- minisign ----


@frozen
class SecretKey:
    """A key to sign with. ``seed``, its secret half, is left out of ``repr``, so that it is never shown."""

    number: bytes
    seed: bytes = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """The public key that checks signatures of this key."""
        return PublicKey(self.number, public_point(self.seed))

    def sign(self, message: bytes, comment: str) -> MinisignSignature:
        """Signs a message, and a comment of one line that is stored beside the signature.

        Equal inputs give equal signatures.
        """
        if not comment.isprintable():
            raise SignatureError(f"the comment of a signature is one line of printable text, not {comment!r}")
        data, line = signed(self.seed, prehashed(message)), comment.encode()
        return MinisignSignature(self.number, data, line, signed(self.seed, data + line))


def check_signature(signature: MinisignSignature, key: PublicKey, message: bytes) -> Decision:
    """Decides whether ``key`` signed ``message``, and the comment with it.

    Raises:
        PackageError: the package that checks is not installed.
    """
    if signature.number != key.number:
        return Rejected(f"it is a signature by the key {signature.id}, not by {key.id}")
    if not is_signed_by(key.point, signature.data, prehashed(message)):
        return Rejected(f"it is not a signature of this file by the key {key.id}: another file's, or altered")
    if not is_signed_by(key.point, signature.comment_signature, signature.signed_comment):
        return Rejected(f"its comment was not signed by the key {key.id}")
    return Accepted(f"signed by {key.id}")


def signer_among(signature: MinisignSignature, keys: Iterable[PublicKey], message: bytes) -> PublicKey | Rejected:
    """Returns the key among ``keys`` that signed ``message``; otherwise the reason why none did.

    The makers of keys choose their numbers, so several keys may have the same number: each of them is tried.

    Raises:
        PackageError: the package that checks is not installed.
    """
    reason = Rejected(f"it is a signature by the key {signature.id}, which is not among the keys that count")
    for key in keys:
        if key.number == signature.number:
            decision = check_signature(signature, key, message)
            if not isinstance(decision, Rejected):
                return key
            reason = decision
    return reason


Password = Callable[[], str]

_MAX_FILE_BYTES: Final = 4096
_FORM = struct.Struct("<2s2s2s32sQQ104s")  # algorithms of key, derivation and checksum; salt, limits, encrypted bytes
_HIDDEN = struct.Struct("<8s32s32s32s")  # number, seed, public half, checksum
_ED25519, _SCRYPT, _NO_SCRYPT, _BLAKE2 = b"Ed", b"Sc", b"\0\0", b"B2"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@frozen
class ScryptLimits:
    """The most work that deriving a key from a password may take, in libsodium's units: operations and bytes.

    The defaults are minisign's: a second of time and 1 GiB of memory.
    """

    operations: int = 1 << 25
    memory_bytes: int = 1 << 30

    def derive(self, password: str, salt: bytes, size: int) -> bytes:
        """Returns ``size`` bytes of scrypt's output, with libsodium's parameters.

        Raises ``SignatureError`` if the limits exceed the defaults.
        """
        limits = ScryptLimits()
        if self.operations > limits.operations or self.memory_bytes > limits.memory_bytes:
            raise SignatureError(
                f"its password takes {self.memory_bytes >> 20} MiB and {self.operations} operations to try; up to "
                f"{limits.memory_bytes >> 20} MiB and {limits.operations} are allowed"
            )
        operations = max(self.operations, 32768)
        if operations < self.memory_bytes // 32:
            rounds, parallel = operations // 32, 1
        else:
            rounds, parallel = self.memory_bytes // 1024, 0
        power = next(power for power in range(1, 64) if 1 << power > rounds // 2)
        parallel = parallel or max((operations // 4 >> power) // 8, 1)
        return hashlib.scrypt(
            password.encode(), salt=salt, n=1 << power, r=8, p=parallel, maxmem=(1 << 31) - 1, dklen=size
        )


def make_key_files(
    secret: Path, public: Path, password: Callable[[], str | None], limits: ScryptLimits | None = None
) -> PublicKey:
    """Makes a pair of keys: ``secret``, with mode 0600, and ``public``. A ``password`` of None leaves it unencrypted.

    Raises:
        SignatureError: one of the files exists already, or cannot be written; no file is left half written.
    """
    key = SecretKey(secrets.token_bytes(8), secrets.token_bytes(32))
    public_key = key.public
    for path in (secret, public):
        if os.path.lexists(path):
            raise SignatureError(
                f"{path} is there already, and a key that is lost cannot be made again: name another file"
            )
    _write_new(secret, _secret_text(key, public_key, password(), limits or ScryptLimits()), 0o600)
    try:
        _write_new(public, public_key.file_text, 0o644)
    except BaseException:
        secret.unlink()
        raise
    return public_key


def read_public_key(text_or_path: str) -> PublicKey:
    """Reads a public key: its 56 characters, or the name of a file that holds them.

    Raises:
        SignatureError: the text is neither a key nor the name of a file with one.
    """
    if PublicKey.looks_like(text_or_path):
        return PublicKey.parse(text_or_path)
    try:
        return _public_key(_read(Path(text_or_path))[0])
    except SignatureError as error:
        raise SignatureError(f"{text_or_path}: {error}") from None


def read_secret_key(path: Path, password: Password) -> SecretKey:
    """Reads a key to sign with; ``password`` is called if the file is encrypted.

    Raises:
        SignatureError: others may read the file, it is damaged or of another kind, or the password is wrong.
        PackageError: the package that signs is not installed.
    """
    try:
        data, status = _read(path)
        _require_private(status)
        return _secret_key(data, password)
    except SignatureError as error:
        raise SignatureError(f"{path}: {error}") from None


def _require_private(status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise SignatureError(f"it belongs to user {status.st_uid}, who knows the key; keys are their users' own")
    if status.st_mode & _OTHERS:
        raise SignatureError(
            f"others may read or write it (mode {stat.S_IMODE(status.st_mode):o}), so the key may be known: "
            "chmod 600, or make another with silo keygen"
        )


def _public_key(data: bytes) -> PublicKey:
    if b"secret key" in data.partition(b"\n")[0]:
        raise SignatureError("it holds a secret key; give the public one, which people may have")
    return PublicKey.parse_file(data)


def _secret_key(data: bytes, password: Password) -> SecretKey:
    lines = data.removesuffix(b"\n").split(b"\n")
    try:
        form = _FORM.unpack(base64.b64decode(lines[-1], validate=True))
    except (binascii.Error, ValueError, struct.error):
        form = None
    if form is None or len(lines) != 2:
        raise SignatureError("not a secret key as silo keygen or minisign -G write it")
    algorithm, derivation, checksum, salt, operations, memory_bytes, hidden = form
    if algorithm != _ED25519 or checksum != _BLAKE2 or derivation not in (_SCRYPT, _NO_SCRYPT):
        raise SignatureError(f"a key of other algorithms: {algorithm!r}, {derivation!r}, {checksum!r}")
    if derivation == _SCRYPT:
        hidden = _mixed(hidden, ScryptLimits(operations, memory_bytes).derive(password(), salt, len(hidden)))
    number, seed, point, check = _HIDDEN.unpack(hidden)
    # minisign writes no checksum for a key without a password
    unchecked = derivation == _NO_SCRYPT and check == bytes(len(check))
    if not unchecked and not secrets.compare_digest(check, _checksum(number, seed, point)):
        raise SignatureError("the password is wrong" if derivation == _SCRYPT else "damaged: its checksum differs")
    # Signing with a public half that does not belong to the secret half would reveal the secret half.
    if public_point(seed) != point:
        raise SignatureError(f"its halves do not belong together, so it is not the key {number_text(number)}")
    return SecretKey(number, seed)


def _secret_text(key: SecretKey, public: PublicKey, password: str | None, limits: ScryptLimits) -> str:
    hidden = _HIDDEN.pack(key.number, key.seed, public.point, _checksum(key.number, key.seed, public.point))
    salt, operations, memory_bytes = bytes(32), 0, 0
    if password is not None:
        salt, operations, memory_bytes = secrets.token_bytes(32), limits.operations, limits.memory_bytes
        hidden = _mixed(hidden, limits.derive(password, salt, len(hidden)))
    derivation = _NO_SCRYPT if password is None else _SCRYPT
    data = _FORM.pack(_ED25519, derivation, _BLAKE2, salt, operations, memory_bytes, hidden)
    word = "secret key" if password is None else "encrypted secret key"
    return f"untrusted comment: minisign {word}\n{base64.b64encode(data).decode('ascii')}\n"


def _checksum(number: bytes, seed: bytes, point: bytes) -> bytes:
    return hashlib.blake2b(_ED25519 + number + seed + point, digest_size=32).digest()


def _mixed(data: bytes, stream: bytes) -> bytes:
    return bytes(byte ^ other for byte, other in zip(data, stream, strict=True))


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    """Returns the bytes of a small plain file, and the ``stat`` result of that same file."""
    try:
        descriptor = open_plain(path)
    except OSError as error:
        raise SignatureError(f"it cannot be opened: {error.strerror}; silo keygen makes a pair of keys") from None
    try:
        status = os.fstat(descriptor)
        data = os.read(descriptor, _MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SignatureError(f"it cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(data) > _MAX_FILE_BYTES:
        raise SignatureError(f"it is larger than the {_MAX_FILE_BYTES} bytes that a key may have")
    return data, status


def _write_new(path: Path, text: str, mode: int) -> None:
    """Writes a file that must not exist yet. It has ``mode`` from the first moment."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            write_all(descriptor, text.encode("ascii"))
            os.fsync(descriptor)
        except BaseException:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        sync_directory(path.parent)
    except OSError as error:
        raise SignatureError(f"cannot write {path}: {error.strerror}") from error


KEYS: Final = "keys"

Stamp = tuple[int, int, int]


class SignedFile:
    """A file's header, whose bytes are the signed message, and the signature beside the file.

    The header holds the hash of the rest of the file, so its signer vouches for the bytes that were read, even if the
    file is changed later. ``name`` is the name of the signature's file, for people; ``read`` returns the signature's
    bytes, None without a signature.
    """

    __slots__ = ("_data", "_read", "header", "name")

    def __init__(self, header: bytes, name: str, read: Callable[[], bytes | Rejected | None]) -> None:
        self.header = header
        self.name = name
        self._read = read
        self._data: bytes | Rejected | None = None

    def signature(self) -> bytes | Rejected | None:
        """Returns the bytes of the signature, or the reason why it cannot be read; None without a signature.

        The result is remembered.
        """
        if self._data is None:
            self._data = self._read()
        return self._data


@frozen
class KeyEntry:
    """A trusted key: its 56 characters, the file that it came from, and since when, in seconds of Unix time."""

    text: str
    origin: str
    since: int


class _Listing:
    """The trusted keys by their text, and the headers that they have signed, as of the last reading of the ledger."""

    def __init__(self) -> None:
        self.keys: dict[str, KeyEntry] = {}
        self.receipts: dict[str, str] = {}  # by header in hex: the text of the key that signed it
        self.refused: set[str] = set()  # headers of files for which signatures no longer count
        self.read: Stamp | None = None
        self.is_read = False

    def take(self, record: JSON) -> None:
        """Applies one record; invalid records are skipped."""
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
    """The part of the trust ledger that is about keys; a :class:`silo.store.trust_ledger.TrustLedger` owns it.

    ``stamp`` returns a value that changes when the list on disk changes; None if that is unknown.
    """

    def __init__(self, records: RecordStore, stamp: Callable[[str], Stamp | None]) -> None:
        self._records = records
        self._stamp = stamp
        self._listing = _Listing()

    def note_key(self, key: PublicKey, origin: str, at: int) -> bool:
        """Trusts the files that a key signs. Returns False if the key was trusted already.

        ``origin`` is a note for people.
        """
        if key.text in self._refreshed().keys:
            return False
        self._add({"key": key.text, "origin": origin, "at": at})
        return True

    def untrust(self, text: str, at: int) -> bool:
        """Withdraws trust in a key and in all files that it signed; returns whether it was trusted."""
        if text not in self._refreshed().keys:
            return False
        self._add({"untrusted key": text, "at": at})
        return True

    def untrust_file(self, file: SignedFile, at: int) -> bool:
        """Withdraws trust in all signatures of one file, by any key; returns whether one of them was trusted."""
        if not self.decide(file):
            return False
        self._add({"untrusted file": file.header.hex(), "at": at})
        return True

    def trusted(self) -> tuple[KeyEntry, ...]:
        """Returns the trusted keys, the oldest first."""
        return tuple(self._refreshed().keys.values())

    def decide(self, file: SignedFile) -> Decision:
        """Decides whether a trusted key signed this file. A good signature is recorded, and not checked again."""
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
        """Returns the present list, because another process may have withdrawn trust in a key."""
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
