"""The signature of a bundle, in a file beside it: written if a key is given, removed if the bundle has changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from silo.bundle.format import HEADER_BYTES
from silo.core.decisions import Decision, Rejected
from silo.core.minisign import MAX_SIGNATURE_BYTES, MinisignSignature, PublicKey
from silo.errors import SignatureError
from silo.plain_files import open_plain
from silo.sanitized_text import one_line
from silo.store.atomic_files import AtomicFile
from silo.store.privacy import output_place
from silo.store.signatures import SecretKey, SignedFile, check_signature

if TYPE_CHECKING:
    from silo.bundle.reader import Bundle

__all__ = [
    "SUFFIX",
    "Signing",
    "header_of",
    "read_signature",
    "settle_signature",
    "sign_header",
    "signature_bytes",
    "signature_of",
    "signature_paths",
    "signed_by",
    "signed_file",
]

SUFFIX: Final = ".minisig"


def signature_paths(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Returns the paths where a bundle's signature may be: beside the given name, and beside a link's target."""
    signature_path = os.path.abspath(path) + SUFFIX  # noqa: PTH100  # paths are texts here
    return tuple(dict.fromkeys((signature_path, os.path.realpath(path) + SUFFIX)))


def read_signature(path: str | os.PathLike[str]) -> bytes | Rejected | None:
    """Returns the bytes of a bundle's signature, not verified yet; or the reason why they cannot be read.

    Returns None without a signature.
    """
    for name in signature_paths(path):
        try:
            descriptor = open_plain(name)
        except FileNotFoundError:
            continue
        except OSError as error:
            return Rejected(f"the signature {name} cannot be opened: {error.strerror}")
        try:
            data = os.read(descriptor, MAX_SIGNATURE_BYTES + 1)
        except OSError as error:
            return Rejected(f"the signature {name} cannot be read: {error.strerror}")
        finally:
            os.close(descriptor)
        if len(data) > MAX_SIGNATURE_BYTES:
            return Rejected(f"{name} has more than the {MAX_SIGNATURE_BYTES} bytes that a signature may have")
        return data
    return None


def signed_file(bundle: Bundle, path: str | os.PathLike[str]) -> SignedFile:
    """Returns the signed header of a bundle that was opened as ``path``; its signature is read later."""
    return SignedFile(bundle.signed_bytes, f"{bundle.name}{SUFFIX}", lambda: read_signature(path))


_MAX_NAME = 1000  # the most characters of a bundle's name in a signature's comment


def signature_bytes(name: str, header: bytes, key: SecretKey) -> bytes:
    """Returns the bytes of a signature file for the bundle with this header and this name."""
    signature = key.sign(header, f"silo bundle identity:{header[32:].hex()} file:{one_line(name)[:_MAX_NAME]}")
    text = (
        f"signature by the key {signature.id} of the first {HEADER_BYTES} bytes, which have the hash of all others; "
        f"silo verify checks it, or: head -c {HEADER_BYTES} K.silo > header && minisign -V -p PUB -m header -x "
        "K.silo.minisig"
    )
    return signature.file_bytes(text)


def sign_header(path: str | os.PathLike[str], header: bytes, key: SecretKey) -> str:
    """Writes the signature of a bundle with this header beside the bundle; returns the name of the signature's file.

    Raises:
        SignatureError: the file cannot be written.
    """
    try:
        target = output_place(path)
        signature_path = Path(f"{target}{SUFFIX}")
        data = signature_bytes(target.name, header, key)
        with AtomicFile(signature_path, mode=0o666) as file:
            file.write(data)
            file.commit()
        for other in signature_paths(path):
            if other != str(signature_path):  # an older signature beside a link could be found before the new one
                Path(other).unlink(missing_ok=True)
    except OSError as error:
        raise SignatureError(f"cannot write the signature of {os.fspath(path)}: {error.strerror or error}") from error
    return str(signature_path)


def signature_of(path: str | os.PathLike[str]) -> MinisignSignature | None:
    """Returns the signature beside a bundle, not verified yet; None without a signature.

    Raises ``SignatureError`` if the file is not a signature.
    """
    data = read_signature(path)
    if isinstance(data, Rejected):
        raise SignatureError(data.reason)
    try:
        return None if data is None else MinisignSignature.parse(data)
    except SignatureError as error:
        raise SignatureError(f"{os.fspath(path)}{SUFFIX}: {error}") from None


def signed_by(path: str | os.PathLike[str], header: bytes, key: PublicKey) -> Decision:
    """Decides whether the signature beside a bundle was made by this key for this header."""
    try:
        signature = signature_of(path)
    except SignatureError as error:
        return Rejected(str(error))
    return Rejected("it is not signed") if signature is None else check_signature(signature, key, header)


def header_of(path: str | os.PathLike[str]) -> bytes | None:
    """Returns the first 64 bytes of a file; None if they cannot be read."""
    try:
        with open(open_plain(path), "rb") as file:  # noqa: PTH123  # pathlib cannot open a descriptor
            return file.read(HEADER_BYTES)
    except OSError:
        return None


def settle_signature(path: str | os.PathLike[str], before: bytes | None, after: bytes, key: SecretKey | None) -> str:
    """Signs a bundle that was written. Without a key, removes the signature that no longer fits the bundle.

    ``before`` is the header of the file that the bundle replaced, and ``after`` is the bundle's header. Returns a
    message that names the action, or "" if the signature did not change.
    """
    if key is not None:
        return f"signed by {key.public.id}: {Path(sign_header(path, after, key)).name}"
    if before == after:
        return ""
    removed: list[str] = []
    for name in signature_paths(path):
        try:
            Path(name).unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SignatureError(f"{name} is false now, and cannot be removed: {error.strerror}") from error
        removed.append(Path(name).name)
    if not removed:
        return ""
    return f"{', '.join(removed)} is removed, for it is no signature of what the bundle is now; --key signs that"


class Signing:
    """The signature of one bundle that this process refines, perhaps several times.

    Another process may replace the file while this process measures. To sign the result would then vouch for the other
    process's content too. So the result is signed only if the file that was refined carried a signature by this key, or
    was opened or written by this process.
    """

    def __init__(self, opened: bytes, key: SecretKey | None = None) -> None:
        self._known_digests = {opened}
        self._key = key

    def settle(self, path: str | os.PathLike[str], before: bytes, after: bytes) -> str:
        """Like :func:`settle_signature`, for a caller that holds the lock of the bundle.

        Raises:
            SignatureError: another program replaced the bundle that was refined, so the result is not signed.
        """
        key = self._key
        if key is None or before in self._known_digests or signed_by(path, before, key.public):
            self._known_digests.add(after)
            return settle_signature(path, before, after, key)
        removed = settle_signature(path, before, after, None)
        raise SignatureError(
            f"{os.fspath(path)} was replaced by another program meanwhile, by what the key {key.public.id} has not "
            f"signed. What was measured is in it, and it is not signed: look at it, and run silo sign"
            + (f" ({removed})" if removed else "")
        )
