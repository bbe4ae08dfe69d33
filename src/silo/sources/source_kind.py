"""The protocols of source plug-ins: the required one, and the optional ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from silo.core.decisions import Decision
from silo.sources.declaration import Declaration
from silo.sources.kernel_source import KernelSource

if TYPE_CHECKING:
    from silo.artifacts.disassembly import BroughtTools
    from silo.core.findings import Finding
    from silo.sources.seen_launch import SeenLaunch

__all__ = [
    "BringsTools",
    "DefinesKernels",
    "HasLaunchHooks",
    "MeasuresCeilings",
    "NamesDtypes",
    "NeedsCompilers",
    "NeedsPackages",
    "ServesPrograms",
    "SourceKind",
    "TestsItself",
    "UnnamedInBundles",
]


class SourceKind(Protocol):
    """Plug-in: a kind of source. Entry-point group ``silo.sources``; the entry's name is the kind's.

    Making one imports no library that kernels are written with.
    """

    @property
    def advice(self) -> str:
        """How a user makes a kernel of this kind, to go on after "to make one, ": ``put @silo.kernel(...) on ...``."""
        ...

    def reads(self, value: object) -> Decision:
        """Whether an object is a kernel of this kind, and why not."""
        ...

    def read(self, value: object) -> Declaration:
        """What such an object declares. Raises SourceError."""
        ...

    def wrap(self, source: KernelSource, launcher: Callable[[], Any], members: Mapping[str, object]) -> Any:  # noqa: ANN401
        """What users get and call: calls and subscripts go to the launcher.

        ``members`` (``cases``, ``warmup``, ``compiled``, ``bind``, ``explain``, ``kernel``) are its attributes.
        ``silo.sources.callables.plain_callable`` does for kinds whose kernels are called from Python alone.
        """
        ...


@runtime_checkable
class DefinesKernels(Protocol):
    """A kind whose kernels users make by ``silo.NAME(...)``, with the kind's name."""

    @property
    def define(self) -> Callable[..., object]:
        """From what users say to an object that the kind reads. Raises SourceError."""
        ...


@runtime_checkable
class UnnamedInBundles(Protocol):
    """A kind that there was before bundles named kinds: theirs stay what they were, byte by byte, and name none."""

    @property
    def unnamed_in_bundles(self) -> bool:
        """Whether it is one."""
        ...


@runtime_checkable
class ServesPrograms(Protocol):
    """A kind whose kernels programs launch through a framework of their own, which Silo can take over."""

    def programs_reached(self) -> Decision:
        """Whether a program that is started from here comes to Silo."""
        ...


@runtime_checkable
class NeedsPackages(Protocol):
    """A kind whose kernels are written with a library."""

    @property
    def requirement(self) -> str:
        """What to install: ``kernel-silo[NAME]``."""
        ...

    @property
    def packages(self) -> tuple[str, ...]:
        """What that brings, the library first; modules too whose name is another than their package's."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Versions by package, for ``silo inspect``; without packages that are not installed."""
        ...


@runtime_checkable
class NeedsCompilers(Protocol):
    """A kind whose kernels are compiled here."""

    @property
    def example_targets(self) -> tuple[str, ...]:
        """Targets that an installation that lacks nothing compiles for, besides this machine's CPU."""
        ...

    def findings(self) -> Sequence[Finding]:
        """What else ``silo doctor`` says of the kind."""
        ...


@runtime_checkable
class TestsItself(Protocol):
    """A kind of which ``silo selftest`` runs small kernels."""

    @property
    def selftest(self) -> str:
        """``module:function`` of a function without parameters that gives a core.selftest.SelfTestReport."""
        ...


@runtime_checkable
class BringsTools(Protocol):
    """A kind whose package has programs that read machine code."""

    def tools(self) -> BroughtTools:
        """Those; no folders where the package is not installed."""
        ...


@runtime_checkable
class NamesDtypes(Protocol):
    """A kind whose library has objects of its own for dtypes, and for arrays that are nothing but a dtype."""

    def dtype_of(self, value: object) -> str | None:
        """The name of the dtype that such an object stands for; None for any other."""
        ...


@runtime_checkable
class HasLaunchHooks(Protocol):
    """A kind whose library has hooks of its own that are called around each of its launches."""

    def follow_launch_hooks(self, switch: Callable[[bool], None]) -> None:
        """Call ``switch`` with whether the library has hooks: now, and whenever one is added or removed.

        May be called again, with the same function: then the library's objects are looked up anew.
        """
        ...

    def enter_launch(self, launch: SeenLaunch) -> Callable[[], object]:
        """Call the library's hooks before a launch; the function returned calls its hooks for after the launch."""
        ...


@runtime_checkable
class MeasuresCeilings(Protocol):
    """A kind that has kernels to measure what a device reaches."""

    def ceiling_kernels(self) -> Any:  # noqa: ANN401  # a module
        """A module with ``copy`` (x, out, n; BLOCK) and ``dot`` (a, b, c, size; BLOCK_M, BLOCK_N, BLOCK_K).

        Raises ToolchainError where the library is not installed.
        """
        ...
