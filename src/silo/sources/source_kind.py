"""The protocols of source plug-ins: the required one, and the optional ones; and a launch as their hooks see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from silo.core.decisions import Decision
from silo.sources.declaration import Declaration
from silo.sources.kernel_source import KernelSource

if TYPE_CHECKING:
    from silo.artifacts.disassembly import BroughtTools
    from silo.sources.installations import Finding

__all__ = [
    "BringsTools",
    "DefinesKernels",
    "HasLaunchHooks",
    "MeasuresCeilings",
    "NamesDtypes",
    "NeedsCompilers",
    "NeedsPackages",
    "SeenLaunch",
    "ServesPrograms",
    "SourceKind",
    "TestsItself",
    "UnnamedInBundles",
]


class SourceKind(Protocol):
    """Plug-in: a kind of source. Entry-point group ``silo.sources``; the entry's name is the kind's.

    Creating a plug-in must not import a library that kernels are written with.
    """

    @property
    def advice(self) -> str:
        """How a user makes a kernel of this kind, to continue "to make one, ": ``put @silo.kernel(...) on ...``."""
        ...

    def reads(self, value: object) -> Decision:
        """Decides whether an object is a kernel of this kind."""
        ...

    def read(self, value: object) -> Declaration:
        """The declaration of a kernel object. Raises SourceError."""
        ...

    def wrap(self, source: KernelSource, launcher: Callable[[], Any], members: Mapping[str, object]) -> Any:  # noqa: ANN401
        """The object that users get and call: its calls and subscripts go to the launcher.

        ``members`` (``cases``, ``warmup``, ``compiled``, ``bind``, ``explain``, ``kernel``) become its attributes.
        ``silo.sources.declaration.plain_callable`` suits kinds whose kernels are called from Python only.
        """
        ...


@runtime_checkable
class DefinesKernels(Protocol):
    """A kind whose kernels users make by ``silo.NAME(...)``, with the kind's name."""

    @property
    def define(self) -> Callable[..., object]:
        """Makes an object that the kind reads from a user's arguments. Raises SourceError."""
        ...


@runtime_checkable
class UnnamedInBundles(Protocol):
    """A kind that bundles do not name, so that its bundles keep their bytes: it is older than the field for kinds."""

    @property
    def unnamed_in_bundles(self) -> bool:
        """Whether bundles leave its name out."""
        ...


@runtime_checkable
class ServesPrograms(Protocol):
    """A kind whose kernels are launched by programs through another framework, which Silo can take over."""

    def programs_reached(self) -> Decision:
        """Decides whether a program that is started from this process reaches Silo."""
        ...


@runtime_checkable
class NeedsPackages(Protocol):
    """A kind whose kernels are written with a library."""

    @property
    def requirement(self) -> str:
        """The requirement to install: ``kernel-silo[NAME]``."""
        ...

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages of the requirement, the library first, and modules with another name than their package."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Versions by package, for ``silo inspect``; without packages that are not installed."""
        ...


@runtime_checkable
class NeedsCompilers(Protocol):
    """A kind whose kernels are compiled here."""

    @property
    def example_targets(self) -> tuple[str, ...]:
        """Targets that a complete installation compiles for, besides this machine's CPU."""
        ...

    def findings(self) -> Sequence[Finding]:
        """Further findings of ``silo doctor`` about the kind."""
        ...


@runtime_checkable
class TestsItself(Protocol):
    """A kind with small kernels that ``silo selftest`` runs."""

    @property
    def selftest(self) -> str:
        """``module:function`` of a function without parameters that returns a core.selftest.SelfTestReport."""
        ...


@runtime_checkable
class BringsTools(Protocol):
    """A kind whose package has programs that read machine code."""

    def tools(self) -> BroughtTools:
        """The package's programs; without folders if the package is not installed."""
        ...


@runtime_checkable
class NamesDtypes(Protocol):
    """A kind whose library has its own objects for dtypes, and for arrays that are only a dtype."""

    def dtype_of(self, value: object) -> str | None:
        """The name of the dtype that an object represents; None for any other object."""
        ...


@runtime_checkable
class HasLaunchHooks(Protocol):
    """A kind whose library has its own hooks, which it calls around each of its launches."""

    def follow_launch_hooks(self, switch: Callable[[bool], None]) -> None:
        """Calls ``switch`` with whether the library has hooks: now, and whenever one is added or removed.

        May be called again with the same function: then the library's objects are looked up anew.
        """
        ...

    def enter_launch(self, launch: SeenLaunch) -> Callable[[], object]:
        """Calls the library's hooks before a launch; the returned function calls its hooks for after the launch."""
        ...


@runtime_checkable
class MeasuresCeilings(Protocol):
    """A kind with kernels that measure the rates that a device reaches."""

    def ceiling_kernels(self) -> Any:  # noqa: ANN401  # a module
        """A module with ``copy`` (x, out, n; BLOCK) and ``dot`` (a, b, c, size; BLOCK_M, BLOCK_N, BLOCK_K).

        Raises ToolchainError if the library is not installed.
        """
        ...


@dataclass(frozen=True, slots=True)
class SeenLaunch:
    """A launch that is about to happen.

    ``arguments`` holds the caller's objects and the config's constexprs by the kernel's parameter names; ``stream`` is
    the driver's handle (0: the null stream, and every launch on a CPU). ``metadata`` makes the description of the
    compiled code (``num_warps``, ``num_ctas``, ``shared`` in bytes, ...), which few hooks read.
    """

    source: KernelSource
    arguments: Mapping[str, object]
    grid: tuple[int, int, int]
    stream: int
    metadata: Callable[[], Any]
