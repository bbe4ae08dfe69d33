"""Source plug-ins: the kinds of kernels, and the choice of the plug-in that reads an object.

Silo's own are the packages of this folder that have a module ``kind``; others come by entry points, which are looked
for only where none of Silo's own will do: looking through every installed distribution takes longer than a launch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import SourceError
from silo.sources.declaration import Declaration
from silo.sources.kernel_source import KernelSource

if TYPE_CHECKING:
    from silo.artifacts.disassembly import BroughtTools

__all__ = [
    "GROUP",
    "BringsTools",
    "DefinesKernels",
    "HasVersions",
    "SourceKind",
    "broken_kinds",
    "brought_tools",
    "defines",
    "kind_named",
    "kind_reading",
    "kinds",
    "own_kinds",
]

GROUP = "silo.sources"


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
class HasVersions(Protocol):
    """A kind whose packages' versions say where code came from."""

    def versions(self) -> Mapping[str, str]:
        """Names of packages to their versions, for whoever looks at a bundle."""
        ...


@runtime_checkable
class BringsTools(Protocol):
    """A kind whose package has programs that read machine code."""

    def tools(self) -> BroughtTools:
        """Those; no folders where the package is not installed."""
        ...


@cache
def own_kinds() -> tuple[str, ...]:
    """The names of Silo's own kinds."""
    folder = os.path.dirname(__file__)  # noqa: PTH120  # pathlib costs a first launch a millisecond
    return tuple(sorted(name for name in os.listdir(folder) if os.path.isfile(f"{folder}/{name}/kind.py")))  # noqa: PTH113, PTH208


@cache
def _foreign() -> Mapping[str, str]:
    """Where the kinds of other distributions are (``module:class``), by name."""
    from importlib.metadata import entry_points  # noqa: PLC0415  # only where none of Silo's own will do

    found = {point.name: point.value for point in entry_points(group=GROUP)}
    return {name: place for name, place in sorted(found.items()) if name not in own_kinds()}


@cache
def _loaded(name: str) -> SourceKind | Rejected:
    """One plug-in, or why it cannot be used."""
    if name in own_kinds():
        place = f"silo.sources.{name}.kind:Kind"
    elif (found := _foreign().get(name)) is not None:
        place = found
    else:
        known = ", ".join((*own_kinds(), *_foreign()))
        return Rejected(f"no source plug-in is called {name}; there are {known}")
    module, _, attribute = place.partition(":")
    try:
        return cast("SourceKind", getattr(import_module(module), attribute)())
    except Exception as error:  # noqa: BLE001  # whatever a foreign plug-in raises is the reason it is refused for
        return Rejected(f"the source plug-in {name} ({place}) does not load: {type(error).__name__}: {error}")


def kinds() -> dict[str, SourceKind]:
    """Every kind that can be used, by name: Silo's own, then others."""
    found = {name: _loaded(name) for name in (*own_kinds(), *_foreign())}
    return {name: kind for name, kind in found.items() if not isinstance(kind, Rejected)}


def brought_tools() -> tuple[BroughtTools, ...]:
    """The programs that packages of the kinds bring."""
    return tuple(kind.tools() for kind in kinds().values() if isinstance(kind, BringsTools))


def broken_kinds() -> tuple[tuple[str, Rejected], ...]:
    """Plug-ins that cannot be used, each with the reason."""
    found = [(name, _loaded(name)) for name in (*own_kinds(), *_foreign())]
    return tuple((name, reason) for name, reason in found if isinstance(reason, Rejected))


def defines(name: str) -> bool:
    """Whether there is a kind of that name whose kernels are made by ``silo.NAME(...)``."""
    return isinstance(_loaded(name), DefinesKernels)


def kind_named(name: str) -> SourceKind:
    """One kind. ``SourceError`` where it is not here or does not load."""
    found = _loaded(name)
    if isinstance(found, Rejected):
        raise SourceError(found.reason)
    return found


def kind_reading(value: object) -> SourceKind:
    """The kind that an object is of: the first that reads it.

    A kind that has the name of a package which the object's class comes from is asked first, then Silo's own, then
    others, each by name.

    Raises:
        SourceError: no kind reads it; the message holds the reason of each.
    """
    reasons: list[str] = []
    for name in _in_turn(value):
        kind = _loaded(name)
        decision = Accepted()
        if isinstance(kind, Rejected):
            decision = kind
        elif decision := kind.reads(value):
            return kind
        reasons.append(f"\n  - {name}: {decision.reason}")
    raise SourceError(f"{_described(value)} is not a kernel that Silo reads:{''.join(reasons)}")


def _in_turn(value: object) -> Iterator[str]:
    packages = {part for base in type(value).__mro__ for part in base.__module__.split(".")}
    own = own_kinds()
    near = [name for name in own if name in packages]
    yield from near
    yield from (name for name in own if name not in near)
    yield from _foreign()


def _described(value: object) -> str:
    return getattr(value, "__name__", None) or repr(value)
