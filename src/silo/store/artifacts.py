"""The tables of compiled code: artifacts, outcomes of compile jobs, and files of another compiler's cache.

Variants with equal compile jobs share blobs through the job key. Failures are not stored, because a compiler that
failed for lack of memory or time must be called again.

Files of another compiler's cache are neither sent to a remote store nor fetched from one: only this store, which
belongs to one user, vouches for them. Native code for the host is used only with the consent of the store's trust
ledger.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from silo.artifacts.artifact import Artifact, BlobRef, text_of
from silo.core.consent import HostCode
from silo.core.decisions import Decision
from silo.core.json_reader import NATURAL, TEXT, Persisted, listed, paired, value_of
from silo.core.launch_info import LaunchInfo
from silo.core.plugins import is_host_code
from silo.core.values import JSON
from silo.core.variant import Compiled, CompiledBlob
from silo.errors import SiloError, StoreError
from silo.forks import Notices
from silo.frozen import field, frozen
from silo.store.stored_objects import DiskBlobs, DiskEntries, Entries

if TYPE_CHECKING:
    from concurrent.futures import Future

    from silo.store.upkeep import Counts

__all__ = ["MOST_BYTES", "Artifacts", "Blobs", "BuiltLedger", "FromAfar", "KeptFiles", "Outcome", "blobs_kept_here"]

T = TypeVar("T")


class Blobs(Protocol):
    """The part of a blob store that artifacts use."""

    def put(self, data: bytes) -> str:
        """Stores ``data``; returns its SHA-256 in hex."""
        ...

    def get(self, sha256: str) -> bytes | None:
        """Returns the verified bytes of a blob, or None."""
        ...

    def map(self, sha256: str) -> memoryview | None:
        """Returns a read-only view of the verified bytes of a blob, or None."""
        ...

    def holds(self, sha256: str, size: int) -> bool:
        """Returns whether the store seems to have a blob of this name and size; does not read the blob."""
        ...


class BuiltLedger(Protocol):
    """The part of the trust ledger that vouches for native code compiled here, and decides on code in the store."""

    def note_built(self, *codes: HostCode) -> None:
        """Records consent to native code that was compiled here."""
        ...

    def note_variants(self, *codes: HostCode) -> None:
        """Records consent to the native code of variants.

        The code must come from outcomes of compile jobs that this store compiled, or received with consent.
        """
        ...

    def decide(self, code: HostCode) -> Decision:
        """Decides whether native code may be loaded."""
        ...


class FromAfar(Protocol):
    """The part of a remote store that the table of artifacts uses.

    The entries that its methods return are verified, trusted and stored on this machine.
    """

    def expect(self, keys: Sequence[str]) -> None:
        """Begins to fetch the artifacts of these keys, and returns at once."""
        ...

    @property
    def asks(self) -> bool:
        """Whether the remote store can be used."""
        ...

    def has_come(self, key: str) -> bool:
        """Returns whether the artifact of a key that was expected has arrived. Does not wait."""
        ...

    def submit(self, step: Callable[[], T]) -> Future[T]:
        """Runs ``step``, which uses the remote store, on another thread; returns a future of its result."""
        ...

    def artifact(self, key: str) -> Artifact | None:
        """Fetches the artifact of an artifact key; None if the remote store lacks it or its code may not be used."""
        ...

    def outcome(self, key: str) -> Outcome | None:
        """Fetches the outcome of a compile job; None if the remote store lacks it or its code may not be used."""
        ...

    def bring(self, refs: Sequence[BlobRef]) -> None:
        """Fetches the blobs that are missing here."""
        ...

    def send(self, part: str, key: str, document: JSON) -> None:
        """Sends a document that was stored here; ``part`` is "artifacts" or "jobs"."""
        ...


@frozen
class Outcome(Persisted):
    """The outcome of a compile job, with its blobs by reference."""

    title = "the outcome of a compile job"

    launch: LaunchInfo = field(form=value_of(LaunchInfo))
    blob: BlobRef = field(form=value_of(BlobRef))
    sidecars: tuple[BlobRef, ...] = field(form=listed(value_of(BlobRef)))
    log: str = field(default="", form=TEXT)

    @property
    def refs(self) -> tuple[BlobRef, ...]:
        """The references of all blobs; the code's blob comes first."""
        return (self.blob, *self.sidecars)

    @property
    def runs_on_host(self) -> bool:
        """Whether the code is native code of the host, which is used only with consent."""
        return is_host_code(self.blob.kind)

    @property
    def host_code(self) -> HostCode:
        """The description of the native code for the trust ledger, without facts about calls.

        Those facts (signature, specialization) belong to a variant, and variants with equal jobs share this outcome.
        """
        return HostCode(self.blob.sha256, self.blob.kind, self.launch, text=text_of(self.sidecars))


class Artifacts:
    """Artifacts and outcomes of compile jobs.

    An entry with a missing or damaged blob counts as absent, and so does native code to which nobody consented.
    """

    def __init__(
        self,
        artifacts: Entries,
        jobs: Entries,
        blobs: Blobs,
        built: BuiltLedger,
        notices: Notices,
        afar: FromAfar | None = None,
        counts: Counts | None = None,
    ) -> None:
        self._afar = afar
        self._counts = counts
        self._artifacts = artifacts
        self._jobs = jobs
        self._blobs = blobs
        self._built = built
        self._notices = notices

    def expect(self, keys: Sequence[str]) -> None:
        """Begins to fetch the artifacts of these keys from the remote store."""
        if self._afar is not None:
            self._afar.expect(keys)

    def put(self, key: str, artifact: Artifact) -> None:
        """Stores an artifact under its artifact key, and records consent to its native code.

        The code must come from :meth:`put_compiled` or :meth:`outcome`.
        """
        document: JSON = {"schema": "artifact/1", "value": artifact.to_json()}
        if artifact.runs_on_host:
            self._built.note_variants(artifact.host_code())
        self._artifacts.put(key, document)
        if self._afar is not None and not artifact.runs_on_host:  # other machines do not fetch artifacts of native code
            self._afar.send("artifacts", key, document)

    def get(self, key: str) -> Artifact | None:
        """Returns the artifact of an artifact key, from this store or the remote store; or None."""
        artifact = self._local_artifact(key)
        if artifact is None and self._afar is not None:
            artifact = self._usable_artifact(self._afar.artifact(key))
        self._count_hit(artifact)
        return artifact

    def here(self, key: str) -> Artifact | None:
        """Returns the artifact of an artifact key if this store has its description, or None.

        Only blobs that the description names and that are missing here are fetched from the remote store, not the
        description.
        """
        artifact = self._local_artifact(key)
        self._count_hit(artifact)
        return artifact

    def _local_artifact(self, key: str) -> Artifact | None:
        return self._usable_artifact(self._read(self._artifacts, "artifact", key, Artifact.from_json))

    def _count_hit(self, artifact: Artifact | None) -> None:
        """Counts a hit if an artifact was found. A miss is counted later, when the code is compiled."""
        if self._counts is not None and artifact is not None:
            self._counts.note(found=True)

    def described(self, key: str) -> Artifact | None:
        """Returns the artifact of an artifact key, or None; the artifact's code may be missing or not trusted.

        A caller that only compares the artifact with a newer compiler's artifact does not need the code.
        """
        artifact = self._read(self._artifacts, "artifact", key, Artifact.from_json)
        if artifact is None and self._afar is not None:
            artifact = self._afar.artifact(key)
        return artifact

    @property
    def asks(self) -> bool:
        """Whether a remote store is used, so that looking up an artifact may take a while: see :meth:`submit`."""
        return self._afar is not None and self._afar.asks

    def has_come(self, key: str) -> bool:
        """Returns whether the remote store's entry for an artifact key has arrived. Does not wait."""
        return self._afar is not None and self._afar.has_come(key)

    def submit(self, step: Callable[[], T]) -> Future[T]:
        """Runs a step, for example :meth:`get`, and returns a future of its result.

        With a remote store, another thread runs the step. Without one, this method runs it before it returns.
        """
        if self._afar is not None:
            return self._afar.submit(step)
        from concurrent.futures import Future  # noqa: PLC0415  # imports logging, which launches do not need

        future: Future[T] = Future()
        future.set_result(step())
        return future

    def _usable_artifact(self, artifact: Artifact | None) -> Artifact | None:
        if artifact is None or not self._all_here((artifact.blob, *artifact.sidecars)):
            return None
        return artifact if not artifact.runs_on_host or self._vouched(artifact.host_code()) else None

    def put_compiled(self, job_key: str, compiled: Compiled) -> Outcome:
        """Stores the outcome of a compile job that ran here, and records consent to its native code."""
        refs = tuple(
            BlobRef(self._blobs.put(blob.data), blob.kind, len(blob.data))
            for blob in (compiled.blob, *compiled.sidecars)
        )
        if self._counts is not None:
            self._counts.note(found=False)
        outcome = Outcome(compiled.launch, refs[0], refs[1:], compiled.log)
        if outcome.runs_on_host:
            self._built.note_built(outcome.host_code)
        document: JSON = {"schema": "job/1", "value": outcome.to_json()}
        self._jobs.put(job_key, document)
        if self._afar is not None:
            self._afar.send("jobs", job_key, document)
        return outcome

    def outcome(self, job_key: str) -> Outcome | None:
        """Returns the outcome of a compile job without reading its blobs; None if the outcome or a blob is absent."""
        outcome = self.outcome_here(job_key)
        if outcome is None and self._afar is not None:
            outcome = self._usable_outcome(self._afar.outcome(job_key))
        return outcome

    def outcome_here(self, job_key: str) -> Outcome | None:
        """Returns the outcome of a compile job if this store has recorded it, or None.

        Only blobs that the outcome names and that are missing here are fetched from the remote store, not the outcome.
        """
        return self._usable_outcome(self._read(self._jobs, "job", job_key, Outcome.from_json))

    def _usable_outcome(self, outcome: Outcome | None) -> Outcome | None:
        if outcome is None or not self._all_here(outcome.refs):
            return None
        return outcome if not outcome.runs_on_host or self._vouched(outcome.host_code) else None

    def compiled(self, job_key: str) -> Compiled | None:
        """Returns the outcome of a compile job with its verified bytes; None if a part is missing or damaged."""
        outcome = self.outcome(job_key)
        if outcome is None:
            return None
        blobs: list[CompiledBlob] = []
        for ref in outcome.refs:
            data = self._blobs.get(ref.sha256)
            if data is None:
                return None
            blobs.append(CompiledBlob(ref.kind, data))
        return Compiled(outcome.launch, blobs[0], tuple(blobs[1:]), outcome.log)

    def _read(self, entries: Entries, label: str, key: str, decode: Callable[[JSON], T]) -> T | None:
        document = entries.get(key)
        if document is None:
            return None
        if isinstance(document, dict) and document.get("schema") == f"{label}/1":
            try:
                return decode(document["value"])
            except (ValueError, KeyError, TypeError, SiloError) as error:
                reason = str(error)
        else:
            reason = f"its schema is not {label}/1"
        self._notices.once(f"{label} {key}", f"{label} {key} in the store cannot be used: {reason}; taken as absent")
        return None

    def _vouched(self, code: HostCode) -> bool:
        decision = self._built.decide(code)
        if not decision:
            self._notices.once(
                "native code",
                f"the store has native code that is not used and compiled again, {code.launch.entry} among it: "
                f"{decision.reason}",
            )
        return bool(decision)

    def _all_here(self, refs: tuple[BlobRef, ...]) -> bool:
        if self._afar is not None:
            self._afar.bring(refs)
        return all(self._blobs.holds(ref.sha256, ref.size) for ref in refs)


MOST_BYTES = 64 << 20  # the most bytes of all files under one key
_KIND = "files"
_LEVEL = 1  # the compression level: fast compression is enough, because most of the bytes are texts of compilers


@frozen
class _Kept(Persisted):
    """The entry for the files of a key: the blob that holds them one after the other, and the name and size of each."""

    title = "files in the store"
    tags = MappingProxyType({"schema": "files/1"})

    blob: BlobRef = field(form=value_of(BlobRef))
    files: tuple[tuple[str, int], ...] = field(form=paired(NATURAL))


class KeptFiles:
    """Files by key and name. All files of a key are in one blob, which the store prunes like any other blob.

    >>> from silo.store.store import MemoryStore
    >>> kept = MemoryStore().files
    >>> kept.put("ab" * 32, {"ptx": b"text", "cubin": b"code"})
    True
    >>> kept.get("ab" * 32)
    {'ptx': b'text', 'cubin': b'code'}
    >>> kept.get("cd" * 32) is None
    True
    """

    def __init__(self, entries: Entries, blobs: Blobs, notices: Notices) -> None:
        self._entries = entries
        self._blobs = blobs
        self._notices = notices

    def holds(self, key: str) -> bool:
        """Returns whether this store seems to have the files of a key (a SHA-256 in hex); does not read them."""
        entry = self._read(key)
        return entry is not None and self._blobs.holds(entry.blob.sha256, entry.blob.size)

    def blob_of(self, key: str) -> str | None:
        """Returns the SHA-256 of the blob that holds the files of a key, or None."""
        entry = self._read(key)
        return None if entry is None else entry.blob.sha256

    def put(self, key: str, files: Mapping[str, bytes]) -> bool:
        """Stores files by name under a key, replacing the key's earlier files.

        Returns False, and stores nothing, if the files have too many bytes.
        """
        if sum(len(data) for data in files.values()) > MOST_BYTES:
            return False
        packed = zlib.compress(b"".join(files.values()), _LEVEL)
        ref = BlobRef(self._blobs.put(packed), _KIND, len(packed))
        self._entries.put(key, _Kept(ref, tuple((name, len(data)) for name, data in files.items())).to_json())
        return True

    def get(self, key: str) -> Mapping[str, bytes] | None:
        """Returns the files of a key, in the order in which they were stored; None if absent, damaged or pruned.

        Damaged and missing files are reported once.
        """
        entry = self._read(key)
        if entry is None:
            return None
        ref, sizes = entry.blob, entry.files
        if not self._blobs.holds(ref.sha256, ref.size):
            self._note(key, "their bytes are gone")
            return None
        packed = self._blobs.get(ref.sha256)
        if packed is None:
            return None  # reading the blob has reported the damage
        total = sum(size for _, size in sizes)
        try:
            data = zlib.decompressobj().decompress(packed, total + 1)
        except zlib.error as error:
            return self._note(key, f"they cannot be unpacked: {error}")
        if total > MOST_BYTES or len(data) != total:
            return self._note(key, "their sizes are others")
        files: dict[str, bytes] = {}
        begin = 0
        for name, size in sizes:
            files[name] = data[begin : begin + size]
            begin += size
        return files

    def _read(self, key: str) -> _Kept | None:
        document = self._entries.get(key)
        if document is None:
            return None
        try:
            return _Kept.from_json(document)
        except (ValueError, StoreError) as error:
            return self._note(key, str(error))

    def _note(self, key: str, reason: str) -> None:
        self._notices.once(
            f"files {key}", f"files {key} in the store cannot be used: {reason}; they will be made again"
        )


def blobs_kept_here(root: Path) -> frozenset[str]:
    """Returns the blobs of the store at ``root`` that hold stored files; they are not sent to a remote store."""
    notices = Notices("silo.store")
    entries = DiskEntries(root, "files", notices)
    keys = [path.stem for path in (root / "files").glob("??/*.json") if len(path.stem) == 64]
    blobs = [KeptFiles(entries, DiskBlobs(root, notices), notices).blob_of(key) for key in keys]
    return frozenset(sha256 for sha256 in blobs if sha256 is not None)
