"""The tables of compiled code: from artifact key to artifact, from job key to the outcome of the job.

Variants whose jobs are equal share blobs through the job key. Failures are not kept here: a compiler that failed for
want of memory or time must be asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from silo.artifacts.artifact import Artifact, BlobRef, text_of
from silo.core.compiled import Compiled, CompiledBlob
from silo.core.consent import HostCode
from silo.core.decisions import Decision
from silo.core.launch_info import LaunchInfo
from silo.core.plugins import is_host_code
from silo.core.values import JSON
from silo.errors import SiloError
from silo.frozen import frozen
from silo.store.entries import Entries
from silo.store.notices import Notices

__all__ = ["Artifacts", "Blobs", "BuiltLedger", "Outcome"]

T = TypeVar("T")


class Blobs(Protocol):
    """What artifacts need of a blob store."""

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
    """Where the compile path notes the host code that it made, and what is found in the store is asked after."""

    def note_built(self, *codes: HostCode) -> None:
        """Vouch for native code that was compiled here."""
        ...

    def decide(self, code: HostCode) -> Decision:
        """Whether native code may be loaded."""
        ...


@frozen
class Outcome:
    """What a compile job led to, with its blobs by reference."""

    launch: LaunchInfo
    blob: BlobRef
    sidecars: tuple[BlobRef, ...]
    log: str = ""

    @property
    def refs(self) -> tuple[BlobRef, ...]:
        """Every blob, the driver's first."""
        return (self.blob, *self.sidecars)

    @property
    def runs_on_host(self) -> bool:
        """Whether it is native code, which is used only where somebody vouches for it."""
        return is_host_code(self.blob.kind)

    @property
    def host_code(self) -> HostCode:
        """What is noted of its native code: nothing of calls, which belong to the variants made of it."""
        return HostCode(self.blob.sha256, self.blob.kind, self.launch, text=text_of(self.sidecars))

    def to_json(self) -> JSON:
        """The canonical form."""
        return {
            "launch": self.launch.to_json(),
            "blob": self.blob.to_json(),
            "sidecars": [ref.to_json() for ref in self.sidecars],
            "log": self.log,
        }

    @classmethod
    def from_json(cls, data: JSON) -> Outcome:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        if not isinstance(data, dict) or set(data) != {"launch", "blob", "sidecars", "log"}:
            raise ValueError("not the outcome of a compile job")
        return cls(
            launch=LaunchInfo.from_json(data["launch"]),
            blob=BlobRef.from_json(data["blob"]),
            sidecars=tuple(BlobRef.from_json(ref) for ref in cast("list[JSON]", data["sidecars"])),
            log=cast("str", data["log"]),
        )


class Artifacts:
    """Artifacts and job outcomes.

    An entry whose blobs are gone or damaged is a miss, and so is native code that nobody vouched for as it is called.
    """

    def __init__(self, artifacts: Entries, jobs: Entries, blobs: Blobs, built: BuiltLedger, notices: Notices) -> None:
        self._artifacts = artifacts
        self._jobs = jobs
        self._blobs = blobs
        self._built = built
        self._notices = notices

    def put(self, key: str, artifact: Artifact) -> None:
        """Publish an artifact that was compiled here under its artifact key, and vouch for its native code.

        Its code must come from :meth:`put_compiled` or :meth:`outcome`.
        """
        if artifact.runs_on_host:
            self._built.note_built(artifact.host_code())
        self._artifacts.put(key, {"schema": "artifact/1", "value": artifact.to_json()})

    def get(self, key: str) -> Artifact | None:
        """The artifact of an artifact key, or None."""
        artifact = self._read(self._artifacts, "artifact", key, Artifact.from_json)
        if artifact is None or not self._all_here((artifact.blob, *artifact.sidecars)):
            return None
        return artifact if not artifact.runs_on_host or self._vouched(artifact.host_code()) else None

    def put_compiled(self, job_key: str, compiled: Compiled) -> Outcome:
        """Keep the outcome of a compile job that ran here, and vouch for its native code."""
        refs = tuple(
            BlobRef(self._blobs.put(blob.data), blob.kind, len(blob.data))
            for blob in (compiled.blob, *compiled.sidecars)
        )
        outcome = Outcome(compiled.launch, refs[0], refs[1:], compiled.log)
        if outcome.runs_on_host:
            self._built.note_built(outcome.host_code)
        self._jobs.put(job_key, {"schema": "job/1", "value": outcome.to_json()})
        return outcome

    def outcome(self, job_key: str) -> Outcome | None:
        """The outcome of a compile job, its blobs not read; None when it or a blob of it is not here."""
        outcome = self._read(self._jobs, "job", job_key, Outcome.from_json)
        if outcome is None or not self._all_here(outcome.refs):
            return None
        return outcome if not outcome.runs_on_host or self._vouched(outcome.host_code) else None

    def compiled(self, job_key: str) -> Compiled | None:
        """The outcome of a compile job with its verified bytes; None when anything of it is missing or damaged."""
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
        return all(self._blobs.holds(ref.sha256, ref.size) for ref in refs)
