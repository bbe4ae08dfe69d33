"""Source plug-ins: lists the kinds of kernels and selects the plug-in that reads an object.

Plug-ins of other distributions are looked up only if no plug-in of Silo reads the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, cast

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.plugins import SOURCES, installed_places, load_place, place_of, shipped_places
from silo.errors import SourceError
from silo.sources.source_kind import BringsTools, DefinesKernels, NeedsPackages, SourceKind, TestsItself

if TYPE_CHECKING:
    from silo.artifacts.disassembly import BroughtTools
    from silo.sources.installations import SelfTestReport

__all__ = [
    "broken_kinds",
    "brought_tools",
    "defines",
    "kind_named",
    "kind_near",
    "kind_reading",
    "kinds",
    "requirement_of",
    "selftest_of",
]


def _shipped_kinds() -> tuple[str, ...]:
    return tuple(sorted(shipped_places(SOURCES)))


def _foreign() -> tuple[str, ...]:
    return tuple(name for name in installed_places(SOURCES) if name not in shipped_places(SOURCES))


@cache
def _loaded(name: str) -> SourceKind | Rejected:
    """Returns one plug-in, or the reason why it cannot be used."""
    location = place_of(SOURCES, name)
    if location is None:
        return Rejected(f"no source plug-in is called {name}; there are {', '.join(installed_places(SOURCES))}")
    try:
        return cast("Callable[[], SourceKind]", load_place(location))()
    except Exception as error:  # noqa: BLE001  # any error of a foreign plug-in is the reason for its rejection
        return Rejected(f"the source plug-in {name} ({location}) does not load: {type(error).__name__}: {error}")


def kinds() -> dict[str, SourceKind]:
    """Returns every kind that can be used, by name: Silo's own, then the kinds of other distributions."""
    kinds_by_name = {name: _loaded(name) for name in (*_shipped_kinds(), *_foreign())}
    return {name: kind for name, kind in kinds_by_name.items() if not isinstance(kind, Rejected)}


def brought_tools() -> tuple[BroughtTools, ...]:
    """Returns the programs (for example disassemblers) that the packages of all kinds of kernels contain."""
    return tuple(kind.tools() for kind in kinds().values() if isinstance(kind, BringsTools))


def selftest_of(name: str) -> Callable[[], SelfTestReport]:
    """Returns the function that ``silo selftest`` calls for the kernels of a kind.

    Raises SourceError if the kind has no self-tests.
    """
    testers = {name: kind for name, kind in kinds().items() if isinstance(kind, TestsItself)}
    if name not in testers:
        raise SourceError(f"there is a self-test of {', '.join(testers)} kernels, and none of {name!r}")
    return cast("Callable[[], SelfTestReport]", load_place(testers[name].selftest))


def requirement_of(package: str) -> str | None:
    """Returns the requirement that installs a package for a kind: ``kernel-silo[NAME]``; None for other packages."""
    for kind in kinds().values():
        if isinstance(kind, NeedsPackages) and package in kind.packages:
            return kind.requirement
    return None


def broken_kinds() -> tuple[tuple[str, Rejected], ...]:
    """Returns the plug-ins that cannot be used, each with the reason."""
    loaded = [(name, _loaded(name)) for name in (*_shipped_kinds(), *_foreign())]
    return tuple((name, reason) for name, reason in loaded if isinstance(reason, Rejected))


def defines(name: str) -> bool:
    """Whether a kind called ``name`` exists whose kernels users make by ``silo.NAME(...)``."""
    return isinstance(_loaded(name), DefinesKernels)


def kind_named(name: str) -> SourceKind:
    """Returns the kind with a name. Raises SourceError if it is missing or does not load."""
    kind = _loaded(name)
    if isinstance(kind, Rejected):
        raise SourceError(kind.reason)
    return kind


def kind_reading(value: object) -> SourceKind:
    """Returns the first kind that reads an object.

    A kind with the name of the package that defines the object's class is tried first, then Silo's own kinds, then the
    kinds of other distributions, each group in the order of names.

    Raises:
        SourceError: no kind reads the object; the message contains the reason of each.
    """
    reasons: list[str] = []
    for name in _in_turn(value):
        kind = _loaded(name)
        decision = Accepted()
        if isinstance(kind, Rejected):
            decision = kind
        elif decision := _decision(name, kind, value):
            return kind
        reasons.append(f"\n  - {name}: {decision.reason}")
    raise SourceError(f"{_described(value)} is not a kernel that Silo reads:{''.join(reasons)}")


def _decision(name: str, kind: SourceKind, value: object) -> Decision:
    try:
        return kind.reads(value)
    except Exception as error:  # noqa: BLE001  # see _loaded
        return Rejected(f"the source plug-in {name} failed when asked: {type(error).__name__}: {error}")


def kind_near(value: object) -> SourceKind | None:
    """Returns Silo's own kind with the name of the package that defines an object's class, or None."""
    kinds_found = [_loaded(name) for name in _near(value)]
    return next((kind for kind in kinds_found if not isinstance(kind, Rejected)), None)


def _near(value: object) -> list[str]:
    packages = {part for base in type(value).__mro__ for part in base.__module__.split(".")}
    return [name for name in _shipped_kinds() if name in packages]


def _in_turn(value: object) -> Iterator[str]:
    own, near = _shipped_kinds(), _near(value)
    yield from near
    yield from (name for name in own if name not in near)
    yield from _foreign()


def _described(value: object) -> str:
    return getattr(value, "__name__", None) or repr(value)
