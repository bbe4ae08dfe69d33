"""The signature of a bundle, in a file beside it: ``K.silo.minisig``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from silo.core.decisions import Rejected
from silo.store.trusted_keys import SignedFile

if TYPE_CHECKING:
    from silo.bundle.reader import Bundle

__all__ = ["SUFFIX", "read_signature", "signature_paths", "signed_file"]

SUFFIX: Final = ".minisig"
_MAX_BYTES: Final = 16384  # silo.core.minisign has the number, and is not imported for a launch; a test compares them


def signature_paths(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The places of a bundle's signature: beside the given name, and beside the file that a link leads to."""
    given = os.path.abspath(path) + SUFFIX  # noqa: PTH100  # needs no pathlib
    return tuple(dict.fromkeys((given, os.path.realpath(path) + SUFFIX)))


def read_signature(path: str | os.PathLike[str]) -> bytes | Rejected | None:
    """The bytes of a bundle's signature, not verified yet; or the reason why they cannot be read.

    None without a signature.
    """
    from silo.plain_files import open_plain  # noqa: PLC0415  # a launch of GPU code reads none

    for name in signature_paths(path):
        try:
            descriptor = open_plain(name)
        except FileNotFoundError:
            continue
        except OSError as error:
            return Rejected(f"the signature {name} cannot be opened: {error.strerror}")
        try:
            data = os.read(descriptor, _MAX_BYTES + 1)
        except OSError as error:
            return Rejected(f"the signature {name} cannot be read: {error.strerror}")
        finally:
            os.close(descriptor)
        if len(data) > _MAX_BYTES:
            return Rejected(f"{name} has more than the {_MAX_BYTES} bytes that a signature may have")
        return data
    return None


def signed_file(bundle: Bundle, path: str | os.PathLike[str]) -> SignedFile:
    """The signature of a bundle that was opened as ``path``; it is read later."""
    return SignedFile(bundle.signed_bytes, f"{bundle.name}{SUFFIX}", lambda: read_signature(path))
