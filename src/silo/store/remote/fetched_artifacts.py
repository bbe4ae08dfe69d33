"""Arrivals: artifacts and outcomes of compile jobs that come from the remote store, and those that go there.

Each arriving object is verified and kept before it is used. Native code is treated differently, because everybody who
may write to the remote store could run it here. So an artifact of native code is never fetched. The outcome of its
compile job is, if this user trusts the remote store or the key that signed it: the job's key is made of the text that
was lowered here, so this process decides the code and its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, TypeVar

from silo.artifacts.artifact import Artifact, BlobRef
from silo.core.consent import HostCode
from silo.core.decisions import Rejected
from silo.core.values import JSON
from silo.errors import SiloError
from silo.frozen import replace
from silo.store.artifacts import Outcome
from silo.store.entries import Entries
from silo.store.records import decode_line, encode_line
from silo.store.remote.client import RemoteClient
from silo.store.remote.object_protocol import MOST_LINE_BYTES, entry_name
from silo.store.remote.shared_blobs import SharedBlobs

if TYPE_CHECKING:
    from silo.store.trusted_keys import KeyEntry

__all__ = ["ArrivalsLedger", "FetchedArtifacts"]

T = TypeVar("T")


class ArrivalsLedger(Protocol):
    """The part of the ledger used here: the trusted keys and stores, and the trusted code."""

    def trusts_remote(self, name: str) -> bool:
        """Whether this user trusts a remote store by ``silo trust --remote``."""
        ...

    def trusted_keys(self) -> tuple[KeyEntry, ...]:
        """The keys whose signatures are trusted."""
        ...

    def note_trusted(self, codes: Iterable[tuple[HostCode, str]], origin: str) -> int:
        """Record consent to native code that came from ``origin``."""
        ...


class FetchedArtifacts:
    """The requests of a store's table of compiled code to the remote store, and its uploads."""

    def __init__(
        self, client: RemoteClient, artifacts: Entries, jobs: Entries, blobs: SharedBlobs, ledger: ArrivalsLedger
    ) -> None:
        self._client = client
        self._entries = {"artifacts": artifacts, "jobs": jobs}
        self._blobs = blobs
        self._ledger = ledger
        self._absent: set[str] = set()

    def expect(self, keys: Sequence[str]) -> None:
        """Begin to fetch the artifacts of these keys."""
        if not self._client.off:
            names = (entry_name("artifacts", key) for key in keys if self._entries["artifacts"].get(key) is None)
            self._client.expect([name for name in names if name not in self._absent], MOST_LINE_BYTES)

    @property
    def asks(self) -> bool:
        """Whether the remote store is used."""
        return not self._client.off

    def has_come(self, key: str) -> bool:
        """Whether an object expected under a key has arrived; it is not verified yet."""
        return self._client.has_come(entry_name("artifacts", key))

    def submit(self, step: Callable[[], T]) -> Future[T]:
        """See :meth:`silo.store.artifacts.FromAfar.aside`."""
        return self._client.submit(step)

    def artifact(self, key: str) -> Artifact | None:
        """The artifact of a key, kept here; None if it is missing or may not be used."""
        found = self._document("artifacts", key, "artifact", Artifact.from_json)
        if found is None:
            return None
        document, artifact = found
        bare = replace(artifact.variant, signature=artifact.variant.signature.without_effects())
        if key not in (artifact.variant.artifact_key(artifact.compiler), bare.artifact_key(artifact.compiler)):
            self._client.lie(entry_name("artifacts", key), "it is the artifact of another variant")
            return None
        if artifact.runs_on_host:
            return None  # see above
        self._entries["artifacts"].put(key, document)
        return artifact

    def outcome(self, key: str) -> Outcome | None:
        """The outcome of a job, kept here; None if it is missing or may not be used."""
        found = self._document("jobs", key, "job", Outcome.from_json)
        if found is None:
            return None
        document, outcome = found
        if outcome.runs_on_host:
            name = self._client.place.name
            sealed = self._sealed(key)
            if sealed is not None:
                document, outcome, origin = sealed
            elif self._ledger.trusts_remote(name):
                origin = name
            else:
                self._client.tell_once(
                    "native code",
                    "has native code that is not used and compiled again, for nobody here vouched for it. If you know "
                    f"all who write there: silo trust --remote {name}; if you know who signs it: silo trust --key",
                )
                return None
            self._ledger.note_trusted([(outcome.host_code, outcome.launch.entry)], origin)
        self._entries["jobs"].put(key, document)
        return outcome

    def _sealed(self, key: str) -> tuple[JSON, Outcome, str] | None:
        """The outcome of a job as signed by a key that is trusted here, and the note about its origin."""
        trusted = self._ledger.trusted_keys()
        if not trusted:
            return None
        from silo.core.minisign import PublicKey  # noqa: PLC0415  # few trust a key
        from silo.store.remote.signed_outcomes import MOST_SEAL_BYTES, opened, seal_name, sealed_origin  # noqa: PLC0415

        for public in [PublicKey.parse(entry.text) for entry in trusted]:
            name = seal_name(key, public.id)
            data = self._client.get(name, MOST_SEAL_BYTES)
            if data is None:
                continue
            line = opened(key, data, public)
            if isinstance(line, Rejected):
                self._client.lie(name, line.reason)
                continue
            try:
                document = decode_line(f"jobs/{key}", line.removesuffix(b"\n"))
                outcome = Outcome.from_json(_value(document, "job"))
            except (ValueError, KeyError, TypeError, AttributeError, SiloError) as error:
                self._client.lie(name, str(error))
                continue
            return document, outcome, sealed_origin(public.id)
        return None

    def bring(self, refs: Sequence[BlobRef]) -> None:
        """Have blobs here that are not."""
        if not self._client.off:
            self._blobs.bring((ref.sha256, ref.size) for ref in refs)

    def send(self, part: str, key: str, document: JSON) -> None:
        """A document was kept here: send it."""
        if self._client.sends:
            line = encode_line(f"{part}/{key}", document)
            if len(line) <= MOST_LINE_BYTES:
                self._client.send(entry_name(part, key), line)
                if part == "jobs":
                    self._client.send_sealed(key, line)

    def _document(self, part: str, key: str, what: str, decode: Callable[[JSON], T]) -> tuple[JSON, T] | None:
        name = entry_name(part, key)
        if self._client.off or name in self._absent:
            return None
        line = self._client.get(name, MOST_LINE_BYTES)
        if line is None:
            self._absent.add(name)  # for this process: it compiles missing code in a moment
            return None
        try:
            document = decode_line(f"{part}/{key}", line.removesuffix(b"\n"))
            decoded = decode(_value(document, what))
        except (ValueError, KeyError, TypeError, AttributeError, SiloError) as error:
            self._absent.add(name)
            self._client.lie(name, str(error))
            return None
        self._client.knows(name)
        return document, decoded


def _value(document: JSON, what: str) -> JSON:
    if not isinstance(document, dict) or document.get("schema") != f"{what}/1":
        raise ValueError(f"its schema is not {what}/1")
    return document["value"]
