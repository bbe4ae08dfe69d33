"""References: the name of a bundle in a registry, ``oci://HOST/REPOSITORY:TAG`` or ``...@sha256:DIGEST``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from silo.errors import RegistryError

__all__ = ["OciReference"]

# From the OCI distribution specification.
_REPOSITORY = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
_FORM = re.compile(
    r"oci://(?P<host>(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?)"
    rf"/(?P<repository>{_REPOSITORY})"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True, slots=True)
class OciReference:
    """The place of a bundle: the registry's host with its port, the repository, and a tag or a digest, or both.

    A digest is the SHA-256 of a manifest, so it always names the same bundle; a tag names the bundle last pushed to it.
    """

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> OciReference:
        """Reads a reference. Raises RegistryError for anything else.

        >>> OciReference.parse("oci://example.org/team/kernels:1.0").tag
        '1.0'
        """
        found = _FORM.fullmatch(text)
        if found is None or len(found["repository"]) > 255 or not (found["tag"] or found["digest"]):
            raise RegistryError(
                f"{text!r} names no bundle in a registry; write oci://HOST/REPOSITORY:TAG, or @sha256:... for :TAG"
            )
        return cls(found["host"], found["repository"], found["tag"] or "", found["digest"] or "")

    def at(self, digest: str) -> OciReference:
        """The same place by digest."""
        return replace(self, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"oci://{self.host}/{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")
