"""Artifacts: descriptions of compiled variants, whose bytes are named by their SHA-256."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from silo.core.json_reader import NAME, NATURAL, TEXT, Form, Persisted, listed, read_text, value_of
from silo.core.launch_info import LaunchInfo
from silo.core.plugins import is_checked_text, is_host_code
from silo.core.values import JSON, malformed
from silo.core.variant import Variant
from silo.errors import SourceError
from silo.frozen import field, frozen, remembered

if TYPE_CHECKING:
    from silo.core.consent import HostCode

__all__ = ["Artifact", "BlobRef", "blob_ref", "decoded", "text_of"]


def _read_sha256(data: JSON, label: str) -> str:
    text = read_text(data, label)
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise malformed(label, data)
    return text


@frozen
class BlobRef(Persisted):
    """A reference to a blob: its SHA-256 in hex, its kind, which a compiler declares, and its size in bytes."""

    title = "a blob reference"

    sha256: str = field(form=Form(_read_sha256, str))
    kind: str = field(form=TEXT)
    size: int = field(form=NATURAL)


def blob_ref(kind: str, data: bytes) -> BlobRef:
    """Returns the reference of a blob with these bytes: its SHA-256, kind and size."""
    return BlobRef(hashlib.sha256(data).hexdigest(), kind, len(data))


def decoded(ref: BlobRef, data: bytes) -> str:
    """Returns the text of a blob. Raises SourceError if the bytes are not UTF-8, because a file may contain any bytes.

    >>> decoded(BlobRef("ab" * 32, "ttir", 2), b"ok")
    'ok'
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"the {ref.kind} {ref.sha256[:16]} is not text: byte {error.start} is no UTF-8") from None


@frozen
class Artifact(Persisted):
    """A compiled variant: the blob that a driver loads, how it is launched, and its compiler.

    ``job`` is the key of the compile job: variants with equal jobs share the blobs of one artifact. ``hidden_memory``
    is the reason why the code reaches memory outside of its arguments ("it loads addresses from memory"), or "" if it
    isn't known to do so.
    """

    title = "an artifact"

    variant: Variant = field(form=value_of(Variant))
    launch: LaunchInfo = field(form=value_of(LaunchInfo))
    blob: BlobRef = field(form=value_of(BlobRef))
    sidecars: tuple[BlobRef, ...] = field(form=listed(value_of(BlobRef)))
    compiler: str = field(form=TEXT)
    job: str = field(form=TEXT)
    hidden_memory: str = field(default="", form=NAME, since=5)

    @property
    def runs_on_host(self) -> bool:
        """Whether the code is native code, which is loaded only with consent."""
        return is_host_code(self.blob.kind)

    def host_code(self, calls: JSON = None) -> HostCode:
        """Returns the description of the native code that a user consents to.

        ``calls`` is a bundle's data about calls of the kernel (default arguments, grid, ...), if the code is in a
        bundle.
        """
        return self._plain_host_code if calls is None else self._host_code(calls)

    @remembered
    def _plain_host_code(self) -> HostCode:
        return self._host_code(None)

    def _host_code(self, calls: JSON) -> HostCode:
        from silo.core.consent import HostCode  # noqa: PLC0415  # code for GPUs needs no consent

        return HostCode(
            blob=self.blob.sha256,
            kind=self.blob.kind,
            launch=self.launch,
            signature=self.variant.signature,
            specialization=self.variant.specialization,
            text=text_of(self.sidecars),
            calls=calls,
        )


def text_of(sidecars: tuple[BlobRef, ...]) -> str:
    """Returns the SHA-256 of the sidecar that a check compiles into checking code; "" without such a sidecar."""
    return next((ref.sha256 for ref in sidecars if is_checked_text(ref.kind)), "")
