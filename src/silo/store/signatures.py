"""Signing, and checking a signature: minisign's two Ed25519 signatures, of a message and of the comment."""

from __future__ import annotations

from collections.abc import Iterable

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.minisign import MinisignSignature, PublicKey, prehashed
from silo.errors import SignatureError
from silo.frozen import field, frozen
from silo.store.ed25519 import is_signed_by, public_point, signed

__all__ = ["SecretKey", "check_signature", "signer_among"]


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
