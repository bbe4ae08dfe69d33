"""A file given to the reader of bundles, whole and with every blob, as Python opens it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from silo._native import OpenBundle
from silo.errors import BundleError, BundleFormatError, BundleVersionError

__all__ = ["CODEC", "DAMAGED", "FOREIGN", "NEWER", "TOO_LARGE", "TRUNCATED", "Refusal", "host_digests", "refusal"]

# enum silo_code
FOREIGN, TRUNCATED, DAMAGED, NEWER, TOO_LARGE, CODEC = range(2, 8)

_NO_OFFSET = (1 << 64) - 1
_DEFAULT = 64 << 20

Names: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]
Refusal: TypeAlias = tuple[int, str, int, str]


def _opened(data: bytes, memory: int, names: Names | None) -> OpenBundle:
    words: Callable[[], Names] | None = None if names is None else lambda: names
    return OpenBundle(data, b"bundle", memory or _DEFAULT, words)


def refusal(data: bytes, memory: int = 0, names: Names | None = None) -> Refusal | None:
    """What the reader has against a file: the error's code, field, offset and text; None where it reads everything.

    ``memory`` bytes may be spent beyond the file's own, 0: 64 MiB; ``names`` are those that plug-ins add.
    """
    try:
        bundle = _opened(data, memory, names)
        bundle.check()
        for kernel in range(len(bundle.kernels())):
            bundle.groups(kernel)
        for blob in range(len(bundle.blobs())):
            bundle.read(blob)
    except BundleFormatError as error:
        text = str(error.args[0]).removesuffix(f" (field {error.field}, offset {error.offset})")
        return _code(error.field, text), error.field, error.offset, text
    except BundleError as error:
        code = NEWER if isinstance(error, BundleVersionError) else CODEC
        return code, "", _NO_OFFSET, str(error.args[0])
    return None


def _code(field: str, text: str) -> int:
    """The code of a fault, by its words: Python has one class for the four."""
    if field == "header.magic":
        return FOREIGN
    if field.startswith("header") and "truncated" in text:
        return TRUNCATED
    return TOO_LARGE if "SILO_FILE_BYTES" in text else DAMAGED


def host_digests(data: bytes, memory: int = 0, names: Names | None = None) -> dict[str, tuple[str, ...]]:
    """The digest that consent to host code is given to, of every variant of each kernel."""
    bundle = _opened(data, memory, names)
    return {
        name: tuple(bundle.host_digest(kernel, number) for number in range(bundle.count(kernel)))
        for kernel, name in enumerate(bundle.kernels())
    }
