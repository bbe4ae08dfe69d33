"""Signed outcomes of compile jobs: a user who trusts the key may use their native code.

A signed outcome (a seal) is an object of its own, named by the job and the key. It holds the line of the outcome, and a
signature in minisign's format that covers the job's key and that line. A stranger may have stored an unsigned outcome
under the job's name first; the signed one has another name, so it can still be stored and found.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from silo.core.decisions import Rejected
from silo.errors import PackageError, SignatureError, SiloError
from silo.store.stored_objects import check_sha256

if TYPE_CHECKING:
    from silo.core.minisign import PublicKey
    from silo.store.signatures import SecretKey

__all__ = ["MOST_SEAL_BYTES", "Sealer", "opened", "seal_name", "sealed_origin"]

MOST_SEAL_BYTES: Final = 260 << 10
_COMMENT = "outcome of a silo compile job"


def seal_name(key: str, number: str) -> str:
    """Returns the name of the signed outcome (seal) of a job, signed by the key with this number."""
    return f"seals/{check_sha256(key)[:2]}/{key}.{number}"


def sealed_origin(number: str) -> str:
    """Returns the trust ledger's note about the origin of code that was signed by this key."""
    return f"remote jobs signed by {number}"


class Sealer:
    """Signs outcomes with the key in a file, which is read before the first signature."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: SecretKey | None = None

    def sealed(self, key: str, line: bytes) -> tuple[str, bytes]:
        """Returns the name and the bytes of a signed outcome.

        Raises ``SiloError`` if the key cannot be read, or needs a password.
        """
        from silo.store.signatures import read_secret_key  # noqa: PLC0415

        if self._key is None:

            def refuse() -> str:
                raise SignatureError("it has a password, and nobody is asked for one here: make one without")

            self._key = read_secret_key(self._path, refuse)
        signature = self._key.sign(_message(key, line), _COMMENT)
        return seal_name(key, signature.id), line + signature.file_bytes(_COMMENT)


def opened(key: str, data: bytes, public: PublicKey) -> bytes | Rejected:
    """Returns the line in a seal if ``public`` signed it as the outcome of this job; otherwise the reason."""
    from silo.core.minisign import MinisignSignature  # noqa: PLC0415  # few users trust a key
    from silo.store.signatures import check_signature  # noqa: PLC0415

    line, newline, after_line = data.partition(b"\n")
    try:
        decision = check_signature(MinisignSignature.parse(after_line), public, _message(key, line + newline))
    except PackageError as error:
        return Rejected(str(error))
    except SiloError as error:
        return Rejected(f"not a seal: {error}")
    return decision if isinstance(decision, Rejected) else line + newline


def _message(key: str, line: bytes) -> bytes:
    # A bundle's header begins with other bytes than this prefix, so a signature of a header is never valid for an
    # outcome.
    return b"silo outcome of a compile job/1\0" + check_sha256(key).encode() + b"\0" + line
