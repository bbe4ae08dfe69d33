"""Finds the installed compilers, chooses one for a source and a target, and compiles without a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import lru_cache
from types import TracebackType
from typing import Self, cast

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.declaration import CompilerDeclaration
from silo.core.device import Target
from silo.core.plugins import COMPILERS, installed_places, load_declaration, load_place, shipped_places
from silo.core.protocols import Compiler, MakesCacheFiles
from silo.core.variant import CacheFiles, Compiled, CompileJob
from silo.errors import CompileError, SiloError, TargetError

__all__ = ["InProcess", "Toolchain", "choose_compiler", "failure_of", "select_compiler", "target_kinds"]


class Toolchain:
    """Compilers by name, each loaded when first needed. A broken plug-in yields a reason instead of an exception.

    Args:
        plugins: name to ``module:attribute`` of a declaration; the installed entry points by default.
    """

    def __init__(self, plugins: Mapping[str, str] | None = None) -> None:
        self._plugins = dict(installed_places(COMPILERS) if plugins is None else plugins)
        self._loaded: dict[str, Compiler | Rejected] = {}
        self._decisions: dict[tuple[str, Target], dict[str, Decision]] = {}
        self._ranked: dict[tuple[str, ...], tuple[list[str], str]] = {}

    @property
    def plugins(self) -> Mapping[str, str]:
        """Maps the name of every plug-in, even if it does not load, to ``module:attribute``."""
        return dict(self._plugins)

    def declaration(self, name: str) -> CompilerDeclaration | Rejected:
        """Returns the declaration of one plug-in, or why it cannot be used. Does not import the compiler."""
        declared_place = self._plugins.get(name)
        if declared_place is None:
            plugin_names = ", ".join(self._plugins) or "none"
            return Rejected(f"no compiler plug-in is called {name}; installed: {plugin_names}")
        return load_declaration(name, declared_place)

    def load(self, name: str) -> Compiler | Rejected:
        """Returns the compiler of one plug-in, or why it cannot be used."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> Compiler | Rejected:
        declared = self.declaration(name)
        if isinstance(declared, Rejected):
            return declared
        try:
            compiler = cast("Callable[[], Compiler]", load_place(declared.compiler))()
            if compiler.declaration != declared:
                return Rejected(
                    f"the plug-in {name} ({declared.compiler}) has another declaration than its entry point"
                )
        except Exception as error:  # noqa: BLE001  # whatever a foreign plug-in raises is the reason it is refused for
            return Rejected(f"the plug-in {name} ({declared.compiler}) does not load: {type(error).__name__}: {error}")
        return compiler

    def compiler(self, name: str) -> Compiler:
        """Returns the compiler of one plug-in.

        Raises:
            CompileError: the plug-in is not installed or does not load.
        """
        loaded = self.load(name)
        if isinstance(loaded, Rejected):
            raise CompileError(loaded.reason)
        return loaded

    def compile(self, job: CompileJob) -> Compiled:
        """Runs a job with the compiler that the job names.

        Raises:
            CompileError: the compiler is not installed, fails, or made a kind of blobs that it does not declare.
        """
        compiler = self.compiler(job.compiler)
        compiled = compiler.compile(job)
        kind_decision = compiler.declaration.makes(
            (compiled.blob.kind, *(sidecar.kind for sidecar in compiled.sidecars))
        )
        if isinstance(kind_decision, Rejected):
            raise CompileError(f"{job.kernel} for {job.target}: {kind_decision.reason}")
        return compiled

    def cache_files(self, job: CompileJob) -> CacheFiles:
        """Compiles for a framework's cache, with the compiler that the job names.

        Raises:
            CompileError: the compiler is not installed, fails, or has no framework with a cache.
        """
        compiler = self.compiler(job.compiler)
        if not isinstance(compiler, MakesCacheFiles):
            raise CompileError(f"the compiler plug-in {job.compiler} makes no files of a framework's cache")
        return compiler.cache_files(job)

    def decisions(self, source_kind: str, target: Target) -> dict[str, Decision]:
        """Returns the decision of every plug-in on a source of this kind for this target."""
        return {
            name: declared if isinstance(declared, Rejected) else self._accepts(name, source_kind, target)
            for name, declared in self._declared(source_kind, target).items()
        }

    def _declared(self, source_kind: str, target: Target) -> Mapping[str, Decision]:
        """Returns the decision of each declaration on a source and target of these kinds.

        The result does not depend on installed tools, so it is cached.
        """
        decisions = self._decisions.get((source_kind, target))
        if decisions is None:
            decisions = self._decisions[source_kind, target] = {
                name: declared
                if isinstance(declared := self.declaration(name), Rejected)
                else declared.takes(source_kind, target)
                for name in self._plugins
            }
        return decisions

    def _accepts(self, name: str, source_kind: str, target: Target) -> Decision:
        """Returns a compiler's own decision, which may depend on installed tools. Called if the declaration accepts."""
        loaded = self.load(name)
        if isinstance(loaded, Rejected):
            return loaded
        try:
            return loaded.accepts(source_kind, target)
        except Exception as error:  # noqa: BLE001  # see _load
            return Rejected(f"the plug-in {name} failed when asked: {type(error).__name__}: {error}")

    def choose(self, source_kind: str, target: Target) -> tuple[str, Accepted]:
        """Returns the name of the compiler for a source of this kind and ``target`` on this machine, and the reason.

        If several compilers accept, these rules decide, one after the other. Declarations that name source kinds and
        target kinds come before those that name one of the two, and these before those that name neither. Then comes
        the compiler whose declaration lists all other remaining compilers in ``before``; then Silo's own.

        Raises:
            TargetError: no compiler accepts, or these rules do not decide; the message contains each plug-in's reason.
        """
        decisions = self.decisions(source_kind, target)
        accepted = {name: decision for name, decision in decisions.items() if isinstance(decision, Accepted)}
        if not accepted:
            # If a plug-in compiles kernels of this kind, plug-ins for other kinds are left out of the message.
            own = {name: decision for name, decision in decisions.items() if self._is_for(name, source_kind)}
            listed = _listed(own or decisions)
            raise TargetError(f"nothing here compiles a {source_kind} kernel for {target}:{listed}")
        best, why = self._best(tuple(accepted))
        if len(best) > 1:
            names = " and ".join(best)
            raise TargetError(
                f"{names} both compile a {source_kind} kernel for {target}, and nothing says which is to: let the "
                f"declaration of one name the other in before=, or uninstall one"
            )
        chosen = best[0]
        return chosen, Accepted(f"{chosen}: {accepted[chosen].reason}{why}")

    def _best(self, accepted: tuple[str, ...]) -> tuple[list[str], str]:
        """Returns the plug-in that, by the declarations, precedes all others that accept, and the reason.

        Returns several plug-ins if the declarations do not decide.
        """
        if accepted not in self._ranked:
            best = [
                candidate for name in accepted if isinstance(candidate := self.declaration(name), CompilerDeclaration)
            ]
            why = ""
            for rule, reason in _RULES:
                selected = rule(best)
                if selected and len(selected) < len(best):
                    others = " and ".join(candidate.name for candidate in best if candidate not in selected)
                    why += f"; it comes before {others}: {reason}"
                    best = selected
            self._ranked[accepted] = [candidate.name for candidate in best], why
        return self._ranked[accepted]

    def target_kinds(self, source_kind: str) -> tuple[str, ...]:
        """Returns the kinds of targets in the declarations of all compilers that compile this kind of source.

        Returns () if one of these compilers declares no kind of target, or has no valid declaration.
        """
        declared = [self.declaration(name) for name in self._plugins if self._is_for(name, source_kind)]
        targets = [() if isinstance(declaration, Rejected) else declaration.targets for declaration in declared]
        return tuple(sorted({kind for kinds in targets for kind in kinds})) if all(targets) else ()

    def _is_for(self, name: str, source_kind: str) -> bool:
        declared = self.declaration(name)
        return isinstance(declared, Rejected) or source_kind in (declared.sources or (source_kind,))

    def select(self, source_kind: str, target: Target) -> Compiler:
        """Returns the compiler that :meth:`choose` names.

        Raises:
            TargetError: in the cases that :meth:`choose` lists.
        """
        return self.compiler(self.choose(source_kind, target)[0])


_Declared = list[CompilerDeclaration]


def _most_specific(declared: _Declared) -> _Declared:
    specificity = max(bool(declaration.sources) + bool(declaration.targets) for declaration in declared)
    return [
        declaration for declaration in declared if bool(declaration.sources) + bool(declaration.targets) == specificity
    ]


def _preferred(declared: _Declared) -> _Declared:
    """Returns the declarations whose ``before`` lists the compilers of all other declarations in ``declared``."""
    return [
        declaration
        for declaration in declared
        if all(other is declaration or other.name in declaration.before for other in declared)
    ]


def _shipped(declared: _Declared) -> _Declared:
    return [declaration for declaration in declared if declaration.name in shipped_places(COMPILERS)]


# Rules, each with its reason. A rule selects some of several compilers; if it selects none, it has no effect.
_RULES: tuple[tuple[Callable[[_Declared], _Declared], str], ...] = (
    (_most_specific, "it names the kinds of sources and targets that it is for"),
    (_preferred, "its declaration says so"),
    (_shipped, "it is Silo's own"),
)


def _listed(decisions: Mapping[str, Decision]) -> str:
    if not decisions:
        return f"\n  - no compiler plug-in is installed (entry-point group {COMPILERS}); is Silo itself installed?"
    return "".join(
        f"\n  - {name}: {decision.reason}" for name, decision in decisions.items() if isinstance(decision, Rejected)
    )


@lru_cache(maxsize=1)
def _installed() -> Toolchain:
    return Toolchain()


def choose_compiler(source_kind: str, target: Target) -> tuple[str, Accepted]:
    """Calls :meth:`Toolchain.choose` on the installed plug-ins."""
    return _installed().choose(source_kind, target)


def target_kinds(source_kind: str) -> tuple[str, ...]:
    """Calls :meth:`Toolchain.target_kinds` on the installed plug-ins."""
    return _installed().target_kinds(source_kind)


def select_compiler(source_kind: str, target: Target) -> Compiler:
    """Calls :meth:`Toolchain.select` on the installed plug-ins."""
    return _installed().select(source_kind, target)


class InProcess:
    """Compiles in the caller's thread, when submitted: no isolation and no time limits. For tests and tiny jobs.

    Args:
        toolchain: the compilers to use; the compilers of the installed entry points by default.
    """

    def __init__(self, toolchain: Toolchain | None = None) -> None:
        self._toolchain = Toolchain() if toolchain is None else toolchain
        self._closed = False

    def submit(self, job: CompileJob, *, timeout_s: float | None = None, trial: bool = False) -> Future[Compiled]:
        """Compiles now; the time limits have no effect."""
        del timeout_s, trial
        if self._closed:
            raise CompileError("this executor was closed")
        future: Future[Compiled] = Future()
        try:
            future.set_result(self._toolchain.compile(job))
        except Exception as error:  # noqa: BLE001  # a plug-in may raise anything; the future carries it
            future.set_exception(failure_of(error, job))
        return future

    def map(self, jobs: Iterable[CompileJob]) -> Iterator[Compiled]:
        """Yields the outcome of each job, compiled when its turn comes."""
        for job in jobs:
            yield self.submit(job).result()

    def close(self) -> None:
        """Refuses further jobs."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def failure_of(error: Exception, job: CompileJob) -> SiloError:
    """Returns the error of a failed job: a Silo error unchanged, any other as a CompileError with plug-in and job."""
    if isinstance(error, SiloError):
        return error
    failure = CompileError(
        f"the compiler plug-in {job.compiler} failed on {job.kernel} for {job.target}: {type(error).__name__}: {error}"
    )
    failure.__cause__ = error
    return failure
