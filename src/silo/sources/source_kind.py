"""The protocols of source plug-ins (:class:`SourceKind` is required), and the launch that a library's hooks receive."""

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
    """Plug-in: a kind of source. Entry-point group ``silo.sources``; the entry's name is the kind's name.

    Creating a plug-in must not import a library that kernels are written with.
    """

    @property
    def advice(self) -> str:
        """The end of a sentence "to make one, ..." for users, for example ``put @silo.kernel(...) on ...``."""
        ...

    def reads(self, value: object) -> Decision:
        """Whether an object is a kernel of this kind."""
        ...

    def read(self, value: object) -> Declaration:
        """Returns the declaration of a kernel object. Raises SourceError."""
        ...

    def wrap(self, source: KernelSource, launcher: Callable[[], Any], members: Mapping[str, object]) -> Any:  # noqa: ANN401
        """Returns the kernel object that users call; calls and subscripts of this object go to the launcher.

        ``members`` (``cases``, ``warmup``, ``compiled``, ``bind``, ``explain``, ``kernel``) become its attributes.
        ``silo.sources.declaration.plain_callable`` suits kinds whose kernels are called only from Python.
        """
        ...


@runtime_checkable
class DefinesKernels(Protocol):
    """A kind whose kernels users make by ``silo.NAME(...)``, where NAME is the kind's name."""

    @property
    def define(self) -> Callable[..., object]:
        """Returns a function that makes, from a user's arguments, an object that the kind reads.

        It may raise SourceError.
        """
        ...


@runtime_checkable
class UnnamedInBundles(Protocol):
    """A kind whose kernels were put into bundles before bundles had a field for the kind.

    Bundles omit its name, so that a bundle of such kernels still has the same bytes.
    """

    @property
    def unnamed_in_bundles(self) -> bool:
        """Whether bundles leave the kind's name out."""
        ...


@runtime_checkable
class ServesPrograms(Protocol):
    """A kind for kernels that programs launch through another framework; Silo can take these launches over."""

    def programs_reached(self) -> Decision:
        """Whether Silo takes effect in a program that is started from this process."""
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
        """The packages of the requirement, the library first, and modules that are not called like their package."""
        ...

    def versions(self) -> Mapping[str, str]:
        """The versions of installed packages, by package, for ``silo inspect``."""
        ...


@runtime_checkable
class NeedsCompilers(Protocol):
    """A kind whose kernels are compiled on this machine."""

    @property
    def example_targets(self) -> tuple[str, ...]:
        """Targets that a complete installation compiles for, besides this machine's CPU."""
        ...

    def findings(self) -> Sequence[Finding]:
        """Returns further findings of ``silo doctor`` about the kind."""
        ...


@runtime_checkable
class TestsItself(Protocol):
    """A kind with small kernels that ``silo selftest`` runs."""

    @property
    def selftest(self) -> str:
        """The function that runs the tests, as ``module:function``: without parameters, returns a SelfTestReport."""
        ...


@runtime_checkable
class BringsTools(Protocol):
    """A kind whose package contains programs that read machine code."""

    def tools(self) -> BroughtTools:
        """The package's programs; without folders if the package is not installed."""
        ...


@runtime_checkable
class NamesDtypes(Protocol):
    """A kind whose library has its own objects for dtypes, and for arrays that consist only of a dtype."""

    def dtype_of(self, value: object) -> str | None:
        """Returns the name of the dtype that an object represents; None for any other object."""
        ...


@runtime_checkable
class HasLaunchHooks(Protocol):
    """A kind whose library has launch hooks: functions that the library calls before and after each of its launches."""

    def follow_launch_hooks(self, switch: Callable[[bool], None]) -> None:
        """Calls ``switch`` now, and when a hook is added or removed: with True if the library has hooks, else False.

        If ``follow_launch_hooks`` is called again with the same function, it looks up the library's objects anew.
        """
        ...

    def enter_launch(self, launch: SeenLaunch) -> Callable[[], object]:
        """Calls the library's before-launch hooks; returns a function that calls the library's after-launch hooks."""
        ...


@runtime_checkable
class MeasuresCeilings(Protocol):
    """A kind with kernels that measure the rates that a device reaches."""

    def ceiling_kernels(self) -> Any:  # noqa: ANN401  # a module
        """Returns a module with ``copy`` (x, out, n; BLOCK) and ``dot`` (a, b, c, size; BLOCK_M, BLOCK_N, BLOCK_K).

        Raises ToolchainError if the library is not installed.
        """
        ...


@dataclass(frozen=True, slots=True)
class SeenLaunch:
    """A launch that is about to happen.

    ``arguments`` holds the caller's objects and the config's constexprs by the kernel's parameter names; ``stream`` is
    the driver's handle (0: the null stream, and every launch on a CPU). ``metadata`` returns the description of the
    compiled code (``num_warps``, ``num_ctas``, ``shared`` in bytes, ...); it is a function because few hooks read it.
    """

    source: KernelSource
    arguments: Mapping[str, object]
    grid: tuple[int, int, int]
    stream: int
    metadata: Callable[[], Any]
