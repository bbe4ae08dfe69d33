"""Which compilers are installed, and which of them builds a given source for a given target."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import cast

import silo
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.protocols import Compiler
from silo.core.target import Target
from silo.errors import CompileError, TargetError

__all__ = ["GROUP", "Toolchain", "installed_plugins", "select_compiler"]

GROUP = "silo.compilers"


@lru_cache(maxsize=1)
def installed_plugins() -> Mapping[str, str]:
    """The entry points of the group ``silo.compilers``: name to ``module:Class``, sorted.

    Where Silo runs from a checkout and is not installed, those of Silo's own that its ``pyproject.toml`` declares.
    """
    found = {entry.name: entry.value for entry in metadata.entry_points(group=GROUP)}
    return dict(sorted({**_declared_in_checkout(), **found}.items()))


def _declared_in_checkout() -> dict[str, str]:
    package = Path(silo.__file__).parent
    if package.parent.name != "src":  # a folder that Silo was installed or copied into
        return {}
    try:
        project = tomllib.loads((package.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        declared = dict(project["entry-points"][GROUP]) if project["name"] == "kernel-silo" else {}
    except (OSError, ValueError, KeyError, TypeError):  # some other project's file
        return {}
    # Any file may bear that name. What it names is imported, so it must be code that is already trusted.
    own = f"{silo.__name__}."
    return {name: place for name, place in declared.items() if isinstance(place, str) and place.startswith(own)}


class Toolchain:
    """Compilers by name, each loaded when first asked for. A broken plug-in is a reason, never an exception.

    Args:
        plugins: name to ``module:Class``; the installed entry points where absent.
    """

    def __init__(self, plugins: Mapping[str, str] | None = None) -> None:
        self._plugins = dict(installed_plugins() if plugins is None else plugins)
        self._loaded: dict[str, Compiler | Rejected] = {}

    @property
    def plugins(self) -> Mapping[str, str]:
        """Name to ``module:Class`` of every plug-in, also of those that do not load."""
        return dict(self._plugins)

    def load(self, name: str) -> Compiler | Rejected:
        """One plug-in, or why it cannot be used."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> Compiler | Rejected:
        place = self._plugins.get(name)
        if place is None:
            known = ", ".join(self._plugins) or "none"
            return Rejected(f"no compiler plug-in is called {name}; installed: {known}")
        module, _, attribute = place.partition(":")
        try:
            return cast("Compiler", getattr(importlib.import_module(module), attribute)())
        except Exception as error:  # noqa: BLE001  # whatever a foreign plug-in raises is the reason it is refused for
            return Rejected(f"the plug-in {name} ({place}) does not load: {type(error).__name__}: {error}")

    def compiler(self, name: str) -> Compiler:
        """One plug-in by name.

        Raises:
            CompileError: it is not installed or does not load.
        """
        loaded = self.load(name)
        if isinstance(loaded, Rejected):
            raise CompileError(loaded.reason)
        return loaded

    def decisions(self, source_kind: str, target: Target) -> dict[str, Decision]:
        """What every plug-in says of such a source for such a target."""
        return {name: self._decide(name, source_kind, target) for name in self._plugins}

    def _decide(self, name: str, source_kind: str, target: Target) -> Decision:
        loaded = self.load(name)
        if isinstance(loaded, Rejected):
            return loaded
        try:
            return loaded.accepts(source_kind, target)
        except Exception as error:  # noqa: BLE001  # see _load
            return Rejected(f"the plug-in {name} failed when asked: {type(error).__name__}: {error}")

    def select(self, source_kind: str, target: Target) -> Compiler:
        """The first plug-in, in order of their names, that compiles such a source for ``target`` here.

        Raises:
            TargetError: none does; the message holds each plug-in's reason.
        """
        decisions = self.decisions(source_kind, target)
        for name, decision in decisions.items():
            if isinstance(decision, Accepted):
                return self.compiler(name)
        reasons = "".join(
            f"\n  - {name}: {decision.reason}" for name, decision in decisions.items() if isinstance(decision, Rejected)
        )
        if not reasons:
            reasons = f"\n  - no compiler plug-in is installed (entry-point group {GROUP}); is Silo itself installed?"
        raise TargetError(f"nothing here compiles a {source_kind} kernel for {target}:{reasons}")


@lru_cache(maxsize=1)
def _installed() -> Toolchain:
    return Toolchain()


def select_compiler(source_kind: str, target: Target) -> Compiler:
    """:meth:`Toolchain.select` on the installed plug-ins."""
    return _installed().select(source_kind, target)
