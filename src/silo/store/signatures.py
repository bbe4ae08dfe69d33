"""Signing, and checking a signature: minisign's two Ed25519 signatures, of a message and of the comment."""

from __future__ import annotations

from collections.abc import Iterable

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.minisign import MinisignSignature, PublicKey, prehashed
from silo.errors import PackageError, SignatureError
from silo.frozen import field, frozen

__all__ = [
    "SecretKey",
    "check_signature",
    "is_signed_by",
    "public_point",
    "signed",
    "signer_among",
]


# ---- Ed25519 by the package ``cryptography``, which is imported here alone ----


def public_point(seed: bytes) -> bytes:
    """The public half of the key that has this secret half. ``PackageError`` without the package."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415  # 50 ms
    except ModuleNotFoundError as error:
        raise _missing() from error
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def signed(seed: bytes, message: bytes) -> bytes:
    """The signature of a message. ``PackageError`` without the package."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415  # as above
    except ModuleNotFoundError as error:
        raise _missing() from error
    return Ed25519PrivateKey.from_private_bytes(seed).sign(message)


def is_signed_by(point: bytes, signature: bytes, message: bytes) -> bool:
    """Whether this is a signature of the message by the key with this public half. ``PackageError`` as above."""
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  # as above
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
    """A key to sign with. It is shown nowhere: ``seed``, its secret half, is left out of ``repr``."""

    number: bytes
    seed: bytes = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """The key that its signatures are checked with."""
        return PublicKey(self.number, public_point(self.seed))

    def sign(self, message: bytes, comment: str) -> MinisignSignature:
        """The signature of a message, and of a comment beside it, which is one line.

        Equal inputs give equal signatures.
        """
        if not comment.isprintable():
            raise SignatureError(f"the comment of a signature is one line of printable text, not {comment!r}")
        data, line = signed(self.seed, prehashed(message)), comment.encode()
        return MinisignSignature(self.number, data, line, signed(self.seed, data + line))


def check_signature(signature: MinisignSignature, key: PublicKey, message: bytes) -> Decision:
    """Whether ``key`` signed ``message``, and the comment with it.

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
    """Which of ``keys`` signed ``message``; why none did.

    Numbers of keys are their makers' choice, so several may have one: each is tried.

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
