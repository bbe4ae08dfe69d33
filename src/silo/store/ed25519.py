"""Ed25519 by the package ``cryptography``: the one place that imports it."""

from __future__ import annotations

from silo.errors import PackageError

__all__ = ["is_signed_by", "public_point", "signed"]


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
