"""Consent: permission to run one piece of native code in this process, for exact bytes and exact calls."""

from __future__ import annotations

import hashlib
from typing import Final

from silo.core.launch_info import LaunchInfo
from silo.core.plugins import is_host_code
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.values import JSON, digest
from silo.errors import TrustError
from silo.frozen import frozen, remembered

__all__ = [
    "Consent",
    "HostCases",
    "HostCode",
    "HostPlan",
    "HostText",
    "PackedHostCode",
    "issue_consent",
    "require_consent",
    "require_text_consent",
    "text_sha256",
]

_LEDGER: Final = object()


@frozen
class HostCode:
    """Native code, with everything that decides what calling it does.

    ``blob`` is the sha256 of the object file, ``kind`` its kind of blob. ``launch`` has the code's entry function,
    parameter layout and scratch memory. ``signature`` is typed, with effects; ``signature`` and ``specialization`` are
    None for the outcome of a compile job, which is not called directly. ``text`` is the sha256 of the kernel's text
    that is stored beside the code for checks, which compile and run the text; "" without such a text. ``calls`` holds a
    bundle's other data about calls: the kernel's parameters with their defaults, its grid, derived constexprs and the
    config. ``calls`` is None for a kernel declared in this process, because the declaration has these values.
    """

    blob: str
    kind: str
    launch: LaunchInfo
    signature: Signature | None = None
    specialization: Specialization | None = None
    text: str = ""
    calls: JSON = None

    @remembered
    def digest(self) -> str:
        """The digest that consent is given to, in hex: the sha256 of all fields in canonical form (``host-code/1``).

        >>> code = HostCode("ab" * 32, "so", LaunchInfo("add", ()))
        >>> code.digest == HostCode("ab" * 32, "so", LaunchInfo("abort", ())).digest
        False
        """
        return digest(
            "host-code/1",
            {
                "blob": self.blob,
                "kind": self.kind,
                "launch": self.launch.to_json(),
                "signature": None if self.signature is None else self.signature.to_json(),
                "specialization": None if self.specialization is None else self.specialization.to_json(),
                "text": self.text,
                "calls": self.calls,
            },
        )


@frozen
class PackedHostCode:
    """Native code of an open bundle, with the digest that the native module computed from the manifest.

    The digest equals the digest of the :class:`HostCode` with the same members, and covers everything that the bundle
    passes to the call (``native/core/host_digest.c``).
    """

    blob: str
    kind: str
    launch: LaunchInfo
    digest: str


@frozen
class HostCases:
    """Cases of a kernel on which its native code is to be run.

    They need consent because a case that states more elements than its arrays have would make the code write beyond
    them. ``blob`` is the sha256 of the cases; ``codes`` are the digests of all the native code of the kernel.
    """

    blob: str
    codes: tuple[str, ...]
    kind: str = "cases"

    @property
    def digest(self) -> str:
        """The digest that consent is given to, in hex (schema ``host-cases/1``)."""
        return digest("host-cases/1", {"cases": self.blob, "codes": sorted(set(self.codes))})


@frozen
class HostText:
    """C text that a program may compile in place of native code: ``silo export --cpu-source`` writes it.

    ``blob`` is the sha256 of the text, ``code`` the digest of the native code made from it and of everything that
    decides how the code is called.
    """

    blob: str
    code: str
    kind: str = "c"

    @property
    def digest(self) -> str:
        """The digest that consent is given to, in hex (schema ``host-text/1``)."""
        return digest("host-text/1", {"text": self.blob, "code": self.code})


@frozen
class HostPlan:
    """A plan of a bundle, which launches native CPU code with the sizes and grids that the plan states.

    ``blob`` is the sha256 of the plan's canonical JSON; ``codes`` are the digests of all the CPU's code of the kernels
    that it launches.
    """

    blob: str
    codes: tuple[str, ...]
    kind: str = "plan"

    @property
    def digest(self) -> str:
        """The digest that consent is given to, in hex (schema ``host-plan/1``)."""
        return digest("host-plan/1", {"plan": self.blob, "codes": sorted(set(self.codes))})


class Consent:
    """Permission to load ``code``; ``reason`` is why it was given.

    Only the trust ledger makes these objects; they are immutable.

    >>> Consent(HostCode("ab" * 32, "so", LaunchInfo("add", ())), "I say so")
    Traceback (most recent call last):
    TypeError: consent is given by the trust ledger (silo.store.trust_ledger), not made
    """

    __slots__ = ("code", "reason")

    code: HostCode | PackedHostCode
    reason: str

    def __init__(self, code: HostCode | PackedHostCode, reason: str, *, ledger: object = None) -> None:
        """Raises TypeError unless called by :func:`issue_consent`."""
        if ledger is not _LEDGER:
            raise TypeError("consent is given by the trust ledger (silo.store.trust_ledger), not made")
        object.__setattr__(self, "code", code)
        object.__setattr__(self, "reason", reason)

    @property
    def host_code(self) -> HostCode:
        """The code with all its members.

        Raises ``TrustError`` for a consent to code of an open bundle, which holds only the code's digest.
        """
        if isinstance(self.code, PackedHostCode):
            raise TrustError(f"consent was given to launches of {self.code.launch.entry} from a bundle, and to no more")
        return self.code

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"consent is not changed: {name}")

    def __reduce__(self) -> str:
        raise TypeError("consent stays in the process it was given in")

    def __repr__(self) -> str:
        return f"<consent to {self.code.kind} {self.code.blob[:16]}: {self.reason}>"


def issue_consent(code: HostCode | PackedHostCode, reason: str) -> Consent:
    """Makes a consent. Only ``silo.store.trust_ledger`` may call it, which a test checks."""
    return Consent(code, reason, ledger=_LEDGER)


def require_consent(consent: Consent | None, launch: LaunchInfo, blob: bytes, kind: str, name: str) -> None:
    """Raises TrustError if a blob is native code that lacks consent; blobs of other kinds need none.

    Raises:
        TrustError: no consent was given, or it is for other bytes or another launch.
    """
    if not is_host_code(kind):
        return
    if consent is None:
        raise TrustError(f"{name}: native code ({kind}) is not loaded without consent; ask the store's trust ledger")
    code = consent.code
    if code.kind != kind or code.blob != hashlib.sha256(blob).hexdigest():
        raise TrustError(f"{name}: consent was given to {code.kind} {code.blob[:16]}, which these bytes are not")
    if code.launch != launch:
        raise TrustError(f"{name}: consent was given to calls of {code.launch.entry} with another layout or scratch")


def require_text_consent(consent: Consent, text: str, launch: LaunchInfo, signature: Signature, name: str) -> None:
    """Raises TrustError unless consent was given to exactly this text, with this launch and signature.

    ``name`` is the kernel's name, for the message.
    """
    code = consent.host_code
    if (text_sha256(text), launch, signature) != (code.text, code.launch, code.signature):
        raise TrustError(f"{name}: consent was given to another text than the one to be checked")


def text_sha256(text: str) -> str:
    """Returns the sha256 by which :class:`HostCode` names a text."""
    return hashlib.sha256(text.encode()).hexdigest()
