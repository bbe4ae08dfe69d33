"""Artifacts: compiled variants, described by value; their bytes are named by sha256."""

from __future__ import annotations

from typing import TYPE_CHECKING

from silo.core.launch_info import LaunchInfo
from silo.core.plugins import is_checked_text, is_host_code
from silo.core.values import JSON, malformed
from silo.core.variant import Variant
from silo.errors import SourceError, TargetError
from silo.frozen import frozen, remembered

if TYPE_CHECKING:
    from silo.core.consent import HostCode

__all__ = ["Artifact", "BlobRef", "decoded", "text_of"]

_MEMBERS = frozenset({"variant", "launch", "blob", "sidecars", "compiler", "job"})


@frozen
class BlobRef:
    """A blob by content: sha256 in hex, kind, which a compiler declares, and size in bytes."""

    sha256: str
    kind: str
    size: int

    def to_json(self) -> JSON:
        """The canonical form."""
        return {"sha256": self.sha256, "kind": self.kind, "size": self.size}

    @classmethod
    def from_json(cls, data: JSON) -> BlobRef:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        if not isinstance(data, dict) or set(data) != {"sha256", "kind", "size"}:
            raise ValueError(f"not a blob reference: {data!r}")
        sha256, kind, size = data["sha256"], data["kind"], data["size"]
        if not (isinstance(sha256, str) and len(sha256) == 64 and not set(sha256) - set("0123456789abcdef")):
            raise ValueError(f"not a sha256: {sha256!r}")
        if not isinstance(kind, str) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise ValueError(f"not a blob reference: {data!r}")
        return cls(sha256, kind, size)


def decoded(ref: BlobRef, data: bytes) -> str:
    """The text that a blob is said to hold. ``SourceError`` where it is none: a file may say what it likes.

    >>> decoded(BlobRef("ab" * 32, "ttir", 2), b"ok")
    'ok'
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"the {ref.kind} {ref.sha256[:16]} is not text: byte {error.start} is no UTF-8") from None


@frozen
class Artifact:
    """A compiled variant: which blob a driver loads, how it is launched, what made it.

    ``job`` is the key of the compile job it came from: variants with equal jobs share one artifact's blobs.
    ``hidden_memory`` says why the code reaches memory that lies behind none of its arguments ("it loads addresses from
    memory"); "" where nothing says that it does.
    """

    variant: Variant
    launch: LaunchInfo
    blob: BlobRef
    sidecars: tuple[BlobRef, ...]
    compiler: str
    job: str
    hidden_memory: str = ""

    @property
    def runs_on_host(self) -> bool:
        """Whether it is native code, which is loaded with consent alone."""
        return is_host_code(self.blob.kind)

    def host_code(self, calls: JSON = None) -> HostCode:
        """What consent to its native code is about; ``calls`` is what a bundle says besides."""
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

    def to_json(self) -> JSON:
        """The canonical form. ``hidden_memory`` is left out where nothing is said of it, as before it could be."""
        return {
            "variant": self.variant.to_json(),
            "launch": self.launch.to_json(),
            "blob": self.blob.to_json(),
            "sidecars": [ref.to_json() for ref in self.sidecars],
            "compiler": self.compiler,
            "job": self.job,
            **({"hidden_memory": self.hidden_memory} if self.hidden_memory else {}),
        }

    @classmethod
    def from_json(cls, data: JSON) -> Artifact:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        if not isinstance(data, dict) or frozenset(data) - {"hidden_memory"} != _MEMBERS:
            raise malformed("an artifact", data)
        sidecars, compiler, job, hidden = data["sidecars"], data["compiler"], data["job"], data.get("hidden_memory", "")
        if not isinstance(sidecars, list) or not (isinstance(compiler, str) and isinstance(job, str)):
            raise malformed("an artifact", data)
        if not isinstance(hidden, str) or ("hidden_memory" in data and not hidden):
            raise malformed("an artifact", data)
        try:
            return cls(
                variant=Variant.from_json(data["variant"]),
                launch=LaunchInfo.from_json(data["launch"]),
                blob=BlobRef.from_json(data["blob"]),
                sidecars=tuple(BlobRef.from_json(ref) for ref in sidecars),
                compiler=compiler,
                job=job,
                hidden_memory=hidden,
            )
        except (TypeError, KeyError, AttributeError, TargetError) as error:
            raise ValueError(f"not an artifact: {type(error).__name__}: {error}") from error


def text_of(sidecars: tuple[BlobRef, ...]) -> str:
    """The sha256 of the text among sidecars that a check compiles; "" where there is none."""
    return next((ref.sha256 for ref in sidecars if is_checked_text(ref.kind)), "")
