"""Launchers that notice when the source of their kernel has become another one while the process runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from silo.forks import Mutex
from silo.sources.kernel_source import ReadsPlaces

if TYPE_CHECKING:
    from silo.core.protocols import Source
    from silo.launch.arguments import SeenCall
    from silo.launch.runtime import Binding, Launcher, OnMiss

__all__ = ["FollowsSource"]


class FollowsSource:
    """Answers the misses of one launcher, and empties the launcher when the source of its kernel has changed.

    A source is read at the first miss. From then on the launcher compares, at each call, what the source was read from
    (globals, cells of closures, attributes) with what it is now; a launcher whose source reads no such place compares
    nothing. Code for the old source stays in the store, under its own fingerprint.
    """

    def __init__(self, source: Source, on_miss: OnMiss) -> None:
        self._source = source
        self._on_miss = on_miss
        self._launcher: Launcher | None = None
        self._fingerprint = ""  # of the source that the launcher's bindings are of; "" before the first miss
        self._lock = Mutex()

    def follow(self, launcher: Launcher) -> Launcher:
        """Take the launcher whose misses this object answers; returns it."""
        self._launcher = launcher
        return launcher

    def __call__(self, call: SeenCall) -> Binding:
        """The binding of a call that the launcher does not know."""
        if not self._fingerprint and isinstance(self._source, ReadsPlaces):
            self._read(self._source)
        return self._on_miss(call)

    def _read(self, source: ReadsPlaces) -> None:
        with self._lock:
            source.read_again()
            launcher, before = self._launcher, self._fingerprint
            self._fingerprint = source.fingerprint
            if launcher is None:
                return
            launcher.watch(source.places, self._changed)
            source.when_replaced(self._changed)
            if before not in ("", self._fingerprint):
                launcher.forget()

    def _changed(self) -> None:
        """A place has another value, or a function another text. Raises SourceError: Silo cannot read the source."""
        if isinstance(self._source, ReadsPlaces):
            self._read(self._source)
