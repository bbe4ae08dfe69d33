"""The tables of compiled code: artifacts, outcomes of compile jobs, and files of another compiler's cache.

Variants whose jobs are equal share blobs through the job key. Failures are not kept here: a compiler that failed
because of memory or time must be called again.

They are neither sent to a remote store nor taken from one, because only this store, which is its user's alone, vouches
for them. Native code for the host among them is used with the consent of the store's trust ledger alone.
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
        """Keep ``data``; its sha256 in hex."""
        ...

    def get(self, sha256: str) -> bytes | None:
        """The bytes, verified, or None."""
        ...

    def map(self, sha256: str) -> memoryview | None:
        """A read-only view of the bytes, verified, or None."""
        ...

    def holds(self, sha256: str, size: int) -> bool:
        """Whether a blob of this name and size seems to be here."""
        ...


class BuiltLedger(Protocol):
    """The compile path notes here the host code that it made; code found in the store is checked against it."""

    def note_built(self, *codes: HostCode) -> None:
        """Vouch for native code that was compiled here."""
        ...

    def note_variants(self, *codes: HostCode) -> None:
        """Vouch for native code as variants call it, by the word that was given for the outcome of its compile job."""
        ...

    def decide(self, code: HostCode) -> Decision:
        """Whether native code may be loaded."""
        ...


class FromAfar(Protocol):
    """A remote store, used if this store lacks an entry. Its results were verified, are trusted and kept."""

    def expect(self, keys: Sequence[str]) -> None:
        """Begin to fetch the artifacts of these keys, and return at once."""
        ...

    @property
    def asks(self) -> bool:
        """Whether requests can be made."""
        ...

    def has_come(self, key: str) -> bool:
        """Whether something has come already that was expected under an artifact key. Waits for nothing."""
        ...

    def submit(self, step: Callable[[], T]) -> Future[T]:
        """Run ``step``, which uses the remote store, on another thread; a future of its result."""
        ...

    def artifact(self, key: str) -> Artifact | None:
        """The artifact of an artifact key, or None."""
        ...

    def outcome(self, key: str) -> Outcome | None:
        """The outcome of a compile job, or None."""
        ...

    def bring(self, refs: Sequence[BlobRef]) -> None:
        """Fetch the blobs that are missing here."""
        ...

    def send(self, part: str, key: str, document: JSON) -> None:
        """A document of ``artifacts`` or ``jobs`` was kept here: send it."""
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
        """Every blob, the driver's first."""
        return (self.blob, *self.sidecars)

    @property
    def runs_on_host(self) -> bool:
        """Whether it is native code, which is used only with consent."""
        return is_host_code(self.blob.kind)

    @property
    def host_code(self) -> HostCode:
        """The note about its native code, without calls, which belong to the variants made of it."""
        return HostCode(self.blob.sha256, self.blob.kind, self.launch, text=text_of(self.sidecars))


class Artifacts:
    """Artifacts and job outcomes.

    An entry with a missing or damaged blob is a miss, and so is native code that is not trusted for its calls.
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
        """Begin to fetch the artifacts of these keys."""
        if self._afar is not None:
            self._afar.expect(keys)

    def put(self, key: str, artifact: Artifact) -> None:
        """Publish an artifact under its artifact key, and note its native code as built by this user.

        Its code must come from :meth:`put_compiled` or :meth:`outcome`.
        """
        document: JSON = {"schema": "artifact/1", "value": artifact.to_json()}
        if artifact.runs_on_host:
            self._built.note_variants(artifact.host_code())
        self._artifacts.put(key, document)
        if self._afar is not None and not artifact.runs_on_host:  # which no other process would use
            self._afar.send("artifacts", key, document)

    def get(self, key: str) -> Artifact | None:
        """The artifact of an artifact key, or None."""
        artifact = self._here(key)
        if artifact is None and self._afar is not None:
            artifact = self._usable_artifact(self._afar.artifact(key))
        self._count_hit(artifact)
        return artifact

    def here(self, key: str) -> Artifact | None:
        """The artifact of an artifact key, or None; the remote store is used at most for its code."""
        artifact = self._here(key)
        self._count_hit(artifact)
        return artifact

    def _here(self, key: str) -> Artifact | None:
        return self._usable_artifact(self._read(self._artifacts, "artifact", key, Artifact.from_json))

    def _count_hit(self, artifact: Artifact | None) -> None:
        """Counts code that was found; code that was not is counted once it is compiled."""
        if self._counts is not None and artifact is not None:
            self._counts.note(found=True)

    def described(self, key: str) -> Artifact | None:
        """The artifact of an artifact key for a comparison, or None. Its code may be gone or not trusted."""
        found = self._read(self._artifacts, "artifact", key, Artifact.from_json)
        if found is None and self._afar is not None:
            found = self._afar.artifact(key)
        return found

    @property
    def asks(self) -> bool:
        """Whether a remote store is used, which takes a while: then call :meth:`aside`."""
        return self._afar is not None and self._afar.asks

    def has_come(self, key: str) -> bool:
        """Whether the remote store has something under an artifact key, as far as it has answered."""
        return self._afar is not None and self._afar.has_come(key)

    def submit(self, step: Callable[[], T]) -> Future[T]:
        """A future of a step's result, for example of :meth:`get`.

        With a remote store the step runs on another thread.
        """
        if self._afar is not None:
            return self._afar.submit(step)
        from concurrent.futures import Future  # noqa: PLC0415  # with logging; a launch asks for nothing

        future: Future[T] = Future()
        future.set_result(step())
        return future

    def _usable_artifact(self, artifact: Artifact | None) -> Artifact | None:
        if artifact is None or not self._all_here((artifact.blob, *artifact.sidecars)):
            return None
        return artifact if not artifact.runs_on_host or self._vouched(artifact.host_code()) else None

    def put_compiled(self, job_key: str, compiled: Compiled) -> Outcome:
        """Keep the outcome of a compile job that ran here, and vouch for its native code."""
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
        """The outcome of a compile job, its blobs not read; None if it or one of its blobs is absent."""
        outcome = self.outcome_here(job_key)
        if outcome is None and self._afar is not None:
            outcome = self._usable_outcome(self._afar.outcome(job_key))
        return outcome

    def outcome_here(self, job_key: str) -> Outcome | None:
        """The outcome of a compile job, or None; the remote store is used at most for its code."""
        return self._usable_outcome(self._read(self._jobs, "job", job_key, Outcome.from_json))

    def _usable_outcome(self, outcome: Outcome | None) -> Outcome | None:
        if outcome is None or not self._all_here(outcome.refs):
            return None
        return outcome if not outcome.runs_on_host or self._vouched(outcome.host_code) else None

    def compiled(self, job_key: str) -> Compiled | None:
        """The outcome of a compile job with its verified bytes; None if a part is missing or damaged."""
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

    def _read(self, entries: Entries, what: str, key: str, decode: Callable[[JSON], T]) -> T | None:
        document = entries.get(key)
        if document is None:
            return None
        if isinstance(document, dict) and document.get("schema") == f"{what}/1":
            try:
                return decode(document["value"])
            except (ValueError, KeyError, TypeError, SiloError) as error:
                reason = str(error)
        else:
            reason = f"its schema is not {what}/1"
        self._notices.once(f"{what} {key}", f"{what} {key} in the store cannot be used: {reason}; taken as absent")
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


MOST_BYTES = 64 << 20  # of the files under one key
_KIND = "files"
_LEVEL = 1  # level of compression: most of the bytes are texts of compilers


@frozen
class _Kept(Persisted):
    """The blob that holds the files of a key one after the other, and the name and size of each."""

    title = "files in the store"
    tags = MappingProxyType({"schema": "files/1"})

    blob: BlobRef = field(form=value_of(BlobRef))
    files: tuple[tuple[str, int], ...] = field(form=paired(NATURAL))


class KeptFiles:
    """Files by key and name. All files of a key are one blob, which the store's pruning takes like any other.

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
        """Whether files of a key (a sha256 in hex) seem to be here; their bytes are not read."""
        found = self._read(key)
        return found is not None and self._blobs.holds(found.blob.sha256, found.blob.size)

    def blob_of(self, key: str) -> str | None:
        """The sha256 of the blob that holds the files of a key, or None."""
        found = self._read(key)
        return None if found is None else found.blob.sha256

    def put(self, key: str, files: Mapping[str, bytes]) -> bool:
        """Keep files by name under a key, for others that were there; False: they have too many bytes."""
        if sum(len(data) for data in files.values()) > MOST_BYTES:
            return False
        packed = zlib.compress(b"".join(files.values()), _LEVEL)
        ref = BlobRef(self._blobs.put(packed), _KIND, len(packed))
        self._entries.put(key, _Kept(ref, tuple((name, len(data)) for name, data in files.items())).to_json())
        return True

    def get(self, key: str) -> Mapping[str, bytes] | None:
        """The files that were kept under a key, in their order; None if they are absent, damaged or pruned.

        Damaged and missing files are reported once.
        """
        found = self._read(key)
        if found is None:
            return None
        ref, sizes = found.blob, found.files
        if not self._blobs.holds(ref.sha256, ref.size):
            self._note(key, "their bytes are gone")
            return None
        packed = self._blobs.get(ref.sha256)
        if packed is None:
            return None  # the blobs have reported it
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
    """The blobs of the store at ``root`` that hold these files; they are not sent to a remote store."""
    notices = Notices("silo.store")
    entries = DiskEntries(root, "files", notices)
    keys = [path.stem for path in (root / "files").glob("??/*.json") if len(path.stem) == 64]
    found = [KeptFiles(entries, DiskBlobs(root, notices), notices).blob_of(key) for key in keys]
    return frozenset(sha256 for sha256 in found if sha256 is not None)
