"""Makes artifacts of variants: takes them from the store or a remote store, or compiles them in worker processes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from silo.artifacts.artifact import Artifact
from silo.compile.toolchain import InProcess, select_compiler
from silo.core.decisions import Accepted, Decision
from silo.core.device import Target
from silo.core.protocols import Compiler, Source
from silo.core.variant import Compiled, CompileJob, Variant
from silo.errors import CompileError, SourceError
from silo.forks import Mutex
from silo.launch.array_parts import extent_of
from silo.machine.array_copies import array_behind
from silo.machine.process_session import Session
from silo.store.artifacts import Outcome

if TYPE_CHECKING:
    from silo.core.code_facts import Lowered

__all__ = ["Compilation", "Pending", "compiler_identity", "lowered", "memory_is_shown"]

# A call may need the facts of a variant's code (effects, traits) before the variant is compiled, and lowering takes
# some 20 ms, so results are kept. Each result holds a whole parsed module, so only the latest are kept.
_KEPT = 8
_lowered: OrderedDict[tuple[str, str, Variant], Lowered] = OrderedDict()
_lock = Mutex()


def compiler_identity(source_kind: str, target: Target) -> str:
    """Returns the identity of the compiler for a kind of source and a target.

    The identity and the variant together decide the bytes of the code.

    Raises TargetError if no compiler is here.
    """
    return select_compiler(source_kind, target).identity(target)


def lowered(source: Source, variant: Variant) -> Lowered:
    """Returns the compile job that the front end makes of one variant, with the facts of its code.

    Raises SourceError and CompileError.
    """
    compiler = select_compiler(source.kind, variant.target)
    # The variant holds the source's fingerprint; the identity covers everything else that decides the lowered text.
    key = (compiler.declaration.name, compiler.identity(variant.target), variant)
    with _lock:
        cached = _lowered.get(key)
    if cached is not None:
        return cached
    result = compiler.lower(source, variant)  # runs without the lock, because the front end takes long
    with _lock:
        _lowered[key] = result
        while len(_lowered) > _KEPT:
            _lowered.popitem(last=False)
    return result


def memory_is_shown(source: Source, variant: Variant, arguments: Mapping[str, object]) -> Decision:
    """Decides whether all memory that a call reaches belongs to its arguments, as far as the lowered code shows.

    If some memory does not, a copy of the arguments lacks a part of the kernel's data: a trial could not restore that
    part after a launch, and the part's addresses would be invalid in another process.
    """
    # Checked first, because lowering takes some 20 ms, and few calls pass a value that could be an address.
    if not any(_may_be_addresses(value) for value in arguments.values()):
        return Accepted()
    try:
        return lowered(source, variant).facts.shows_its_memory
    except (CompileError, SourceError):
        return Accepted()  # a config that cannot be lowered is no error here: its trial will record the failure


def _artifacts_travel(compiler: Compiler, target: Target) -> bool:
    """Returns whether the remote store may supply artifacts that this compiler makes for this target.

    Native code is never fetched as an artifact: only the recorded outcome of its compile job is.
    """
    return target.kind != "cpu" or not any(kind.host_code for kind in compiler.declaration.blobs)


def _pass_on(waiting: Future[Compiled | Outcome], compiled: Future[Compiled]) -> None:
    if compiled.cancelled():
        waiting.set_exception(CompileError("the compile pool was closed"))
    elif error := compiled.exception():
        waiting.set_exception(error)
    else:
        waiting.set_result(compiled.result())


def _may_be_addresses(value: object) -> bool:
    array = array_behind(value)
    if array is not None:
        return extent_of(array).dtype.name in ("int64", "uint64")
    return isinstance(value, int) and value >= 1 << 32


@dataclass(slots=True)
class Pending:
    """The state of one artifact: stored, being fetched from the remote store, or being compiled.

    ``asked`` is the requested variant, from which the artifact's key is made; ``variant`` is the same variant with the
    effects that lowering found. ``hidden_memory`` is the text for the artifact's field of the same name. ``sought`` is
    set while the artifact is fetched from the remote store, and resolves to the artifact or None. ``future`` is set
    while a job is compiled or its outcome is fetched, and resolves to the compile result or the outcome. ``fresh`` is
    True, once the artifact is finished, if it was compiled for this request.
    """

    asked: Variant
    variant: Variant
    compiler: str
    artifact: Artifact | None = None
    job: str = ""
    hidden_memory: str = ""
    outcome: Outcome | None = None
    sought: Future[Artifact | None] | None = None
    future: Future[Compiled] | Future[Compiled | Outcome] | None = None
    fresh: bool = False

    def wait(self) -> None:
        """Waits for the pending fetch or compile, without finishing the artifact."""
        under_way: Future[Any] | None = self.sought or self.future
        if under_way is not None:
            wait([under_way])


@dataclass(slots=True)
class Compilation:
    """Compiles the variants of one source, each job once. Counts compiled jobs, and jobs that the store had.

    If ``trials`` is True, the configs of the variants are being tried: a config that compiles much longer than the
    others is given up.
    """

    session: Session
    source: Source
    trials: bool = False
    compiled: int = 0
    reused: int = 0
    _futures: dict[str, Future[Compiled] | Future[Compiled | Outcome]] = field(
        default_factory=dict[str, "Future[Compiled] | Future[Compiled | Outcome]"]
    )
    _outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])

    def expect(self, variants: Sequence[Variant]) -> None:
        """Announces variants: starts workers to compile the variants that the store lacks."""
        artifacts = self.session.store.artifacts
        for target in dict.fromkeys(variant.target for variant in variants):
            compiler = select_compiler(self.source.kind, target)
            if compiler.declaration.in_process:
                continue
            identity = compiler.identity(target)
            own = [variant.artifact_key(identity) for variant in variants if variant.target == target]
            pool, look = self.session.pool, artifacts.here
            if _artifacts_travel(compiler, target):
                artifacts.expect(own)
                look = artifacts.get
            missing = islice((key for key in own if look(key) is None), pool.most)
            pool.warm(sum(1 for _ in missing), compiler.declaration.name)

    def start(self, variant: Variant) -> Pending:
        """Looks for the artifact in the store; if it is missing, lowers in this process and hands the job to a worker.

        A remote store is queried on other threads, so this method does not wait for it. Raises SourceError and
        CompileError of the front end.
        """
        compiler = select_compiler(self.source.kind, variant.target)
        identity = compiler.identity(variant.target)
        artifacts = self.session.store.artifacts
        artifact_key = variant.artifact_key(identity)
        stored_artifact = artifacts.here(artifact_key)
        if stored_artifact is not None:
            self.reused += 1
            return Pending(variant, stored_artifact.variant, identity, artifact=stored_artifact)
        if artifacts.has_come(artifact_key):
            return Pending(variant, variant, identity, sought=artifacts.submit(lambda: artifacts.get(artifact_key)))
        return self._lowered(compiler, identity, variant)

    def _lowered(self, compiler: Compiler, identity: str, variant: Variant) -> Pending:
        artifacts = self.session.store.artifacts
        result = lowered(self.source, variant)
        job = result.job
        # Effects are found in the lowered text, and follow from the source. The artifact's key covers the source and
        # leaves effects out, so that looking up an artifact needs no lowering.
        typed = replace(variant, signature=variant.signature.with_effects(dict(result.facts.effects)))
        key = job.key(identity)
        shown = result.facts.shows_its_memory
        pending = Pending(variant, typed, identity, job=key, hidden_memory="" if shown else shown.reason)
        pending.outcome = self._outcomes.get(key) or artifacts.outcome_here(key)
        if pending.outcome is not None:
            self.reused += 1
            return pending
        future = self._futures.get(key)
        if future is None:
            future = self._futures[key] = self._sought(compiler, job, key, variant.artifact_key(identity))
        pending.future = future
        return pending

    def _sought(
        self, compiler: Compiler, job: CompileJob, key: str, artifact_key: str
    ) -> Future[Compiled] | Future[Compiled | Outcome]:
        """Returns a future of a job's outcome: from the remote store if it has one, else compiled."""
        artifacts = self.session.store.artifacts
        if compiler.declaration.in_process or not artifacts.asks:  # compiling in this process is faster than a query
            return self._submit(compiler, job)
        future: Future[Compiled | Outcome] = Future()
        future.set_running_or_notify_cancel()

        def seek() -> Outcome | None:
            artifact = artifacts.get(artifact_key) if _artifacts_travel(compiler, job.target) else None
            if artifact is None:
                return artifacts.outcome(key)
            return Outcome(artifact.launch, artifact.blob, artifact.sidecars)

        def answered(fetched: Future[Outcome | None]) -> None:
            try:
                outcome = fetched.result()
                if outcome is None:
                    self._submit(compiler, job).add_done_callback(partial(_pass_on, future))
                    return
            except BaseException as error:  # noqa: BLE001  # raised again in the thread that waits for the artifact
                future.set_exception(error)
            else:
                future.set_result(outcome)

        artifacts.submit(seek).add_done_callback(answered)
        return future

    def finish(self, pending: Pending) -> Artifact:
        """Waits for the artifact and stores it. Raises CompileError."""
        if pending.artifact is not None:
            return pending.artifact
        if pending.sought is not None:
            pending.artifact = pending.sought.result()
            if pending.artifact is not None:
                self.reused += 1
                return pending.artifact
            # the remote store had no usable artifact, so compile it
            compiler = select_compiler(self.source.kind, pending.asked.target)
            lowered_code = self._lowered(compiler, pending.compiler, pending.asked)
            pending.variant, pending.job, pending.hidden_memory = (
                lowered_code.variant,
                lowered_code.job,
                lowered_code.hidden_memory,
            )
            pending.sought, pending.outcome, pending.future = None, lowered_code.outcome, lowered_code.future
        outcome = pending.outcome or self._outcomes.get(pending.job)
        if outcome is None:
            outcome = self._finished_outcome(pending)
        artifact = Artifact(
            variant=pending.variant,
            launch=outcome.launch,
            blob=outcome.blob,
            sidecars=outcome.sidecars,
            compiler=pending.compiler,
            job=pending.job,
            hidden_memory=pending.hidden_memory,
        )
        self.session.store.artifacts.put(pending.asked.artifact_key(pending.compiler), artifact)
        pending.artifact = artifact
        return artifact

    def _finished_outcome(self, pending: Pending) -> Outcome:
        assert pending.future is not None
        compiled = pending.future.result()
        pending.fresh = isinstance(compiled, Compiled)
        outcome = self._outcomes.get(pending.job)
        if outcome is None:
            if isinstance(compiled, Compiled):
                outcome = self.session.store.artifacts.put_compiled(pending.job, compiled)
                self.compiled += 1
            else:
                outcome = compiled
                self.reused += 1
            self._outcomes[pending.job] = outcome
        return outcome

    def forget(self, pending: Pending) -> None:
        """Forgets a job whose blob is lost, so that the next request compiles it again."""
        self._outcomes.pop(pending.job, None)
        self._futures.pop(pending.job, None)

    def artifact(self, variant: Variant) -> Artifact:
        """Returns the artifact of a variant; compiles it now if necessary."""
        return self.finish(self.start(variant))

    def _submit(self, compiler: Compiler, job: CompileJob) -> Future[Compiled]:
        if compiler.declaration.in_process:
            return InProcess().submit(job)
        return self.session.pool.submit(job, trial=self.trials)
