"""Launchers that notice when the source of their kernel changes while the process runs."""

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
    """Handles the misses of one launcher, and empties the launcher when the source of its kernel has changed.

    The source is read at the first miss. From then on, each call compares the values of all places that the source was
    read from (globals, cells of closures, attributes) with the values at that time; a launcher whose source reads no
    such place compares nothing. Code for the old source stays in the store, under its own fingerprint.
    """

    def __init__(self, source: Source, on_miss: OnMiss) -> None:
        self._source = source
        self._on_miss = on_miss
        self._launcher: Launcher | None = None
        self._fingerprint = ""  # of the source of the launcher's bindings; "" before the first miss
        self._lock = Mutex()

    def follow(self, launcher: Launcher) -> Launcher:
        """Registers the launcher whose misses this object handles; returns it."""
        self._launcher = launcher
        return launcher

    def __call__(self, call: SeenCall) -> Binding:
        """The binding of a call that the launcher cannot serve yet."""
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
        """A place has another value, or a function another text. Raises SourceError if the source cannot be read."""
        if isinstance(self._source, ReadsPlaces):
            self._read(self._source)
