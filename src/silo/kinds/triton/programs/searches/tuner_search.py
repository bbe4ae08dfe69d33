"""Searches of Triton's tuners: a tuner without a decision for a key measures each of its configs."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from silo.errors import SiloError
from silo.forks import Mutex
from silo.kinds.triton.front.adapter import (
    Benchmark,
    CacheEntry,
    TunedLaunch,
    default_benchmark,
    kernel_of_tuner,
    reason_to_compile_in_turn,
    tuning_is_heard,
)
from silo.kinds.triton.front.triton_fingerprint import functions_reached
from silo.kinds.triton.programs.searches.ahead_compiles import AheadCompiles, SearchCompiles
from silo.status_line import Task, report_progress, working

__all__ = ["Search", "TunerSearches", "finished_search", "prints_while_compiled", "search_of_thread"]

_log = logging.getLogger("silo")

_STATIC_PRINT = "static_print"


# members: ``next`` is the tuner that is about to search, with its configs; ``search`` and ``finished`` are the running
# and the last search of this thread
_local = threading.local()


def search_of_thread() -> Search | None:
    """The search that this thread is running, or the one that it ended last; see ``Search.measuring``."""
    running: Search | None = getattr(_local, "search", None)
    return running if running is not None else getattr(_local, "finished", None)


def finished_search(tuner: Any) -> Search | None:  # noqa: ANN401
    """The search for ``tuner`` that this thread has just ended; None without one.

    A search is returned only once: before a second call, the program may have changed the data that the search
    measured.
    """
    search: Search | None = getattr(_local, "finished", None)
    _local.finished = None
    return search if search is not None and search.tuner is tuner else None


@dataclass(slots=True, eq=False)
class Search:
    """One tuner that measures ``configs`` for one key: times by config's position, and the search's seconds.

    ``measuring`` is the position of the config being measured, None between measurements. ``compiled`` are the compiles
    that Triton made during each measurement, by position; the watcher of compiles adds them.
    """

    tuner: Any
    configs: Sequence[Any]
    times: dict[int, Any] = field(default_factory=dict[int, Any])
    measuring: int | None = None
    compiled: dict[int, list[CacheEntry]] = field(default_factory=dict[int, "list[CacheEntry]"])
    ahead: SearchCompiles = field(default_factory=SearchCompiles)
    found: Sequence[Any] | None = None  # the times of all configs, if the first measurement has measured all of them
    task: Task | None = None
    open: ExitStack = field(default_factory=ExitStack)
    seconds: float = 0.0

    def place_of(self, config: Any) -> int | None:  # noqa: ANN401
        """The position of a config among the configs that are measured; None if the config is not among them."""
        return next((index for index, candidate in enumerate(self.configs) if candidate is config), None)

    def run(self, index: int, original: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        """Measures the config at a position by calling ``original(config)``."""
        self.measuring = index
        try:
            return original(self.configs[index])
        finally:
            self.measuring = None


class TunerSearches:
    """Watches the tuners of a process. ``ahead`` compiles their configs in workers; None if this is switched off.

    ``short``: whether tuners that use Triton's own benchmark measure all configs briefly first.
    """

    def __init__(self, ahead: AheadCompiles | None, runs: Callable[[Any], bool], *, short: bool = False) -> None:
        self._ahead = ahead
        self._short = short
        self._runs = runs
        self._lock = Mutex()
        self._kernels: set[str] = set()
        self._seconds = 0.0
        self._logged = -math.inf  # time of the last log line about a search's progress

    def prune(self, tuner: Any, original: Callable[[], Sequence[Any]]) -> Sequence[Any]:  # noqa: ANN401
        """Runs the author's pruning by ``original()``, and returns the remaining configs.

        Also notes them with the tuner, for the search that may follow in this thread.
        """
        configs = original()
        self._end()
        _local.next, _local.finished = (tuner, list(configs)), None
        return configs

    def measure(
        self,
        tuner: Any,  # noqa: ANN401
        config: Any,  # noqa: ANN401
        launch: TunedLaunch,
        original: Callable[[Any], Any],
    ) -> Any:  # noqa: ANN401
        """Measures a config. The first config of a key begins the search.

        A hit in Triton's own cache measures nothing.
        """
        search = self._search_of(tuner, config, launch)
        if search is None:
            return original(config)
        index = search.place_of(config)
        try:
            times = self._times_of(search, index, config, original)
        except BaseException:  # errors of the tuner, and Ctrl-C
            self._end()
            raise
        if index == len(search.configs) - 1:
            self._end()
        return times

    def _times_of(self, search: Search, index: int | None, config: Any, original: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        """The times of a config. If the order may be changed, the first measurement measures all configs."""
        if index is None:
            return original(config)
        if search.found is None and not search.times:
            search.found = self._all_times(search, original)
        if search.found is not None:
            return search.found[index]
        times = search.run(index, original)
        self._measured(search, index, times)
        return times

    def _measured(self, search: Search, index: int, times: Any) -> None:  # noqa: ANN401
        search.times[index] = times
        self._progress(search)

    def _all_times(self, search: Search, original: Callable[[Any], Any]) -> Sequence[Any] | None:
        """The times of all configs, measured in the order in which their compiles end.

        None if Triton's order must be kept: for a program's own benchmark, which may count its calls, and if a listener
        receives measurements.
        """
        count = len(search.configs)
        name = kernel_of_tuner(search.tuner).__name__
        benchmark = default_benchmark(search.tuner)
        if benchmark is None or tuning_is_heard():
            if self._short:
                _log.info("%s is measured in full: it has a benchmark of its own, or a listener", name)
            return None
        order = range(count) if self._ahead is None else self._ahead.places_as_ready(search.ahead, count)
        if self._short:
            times = self._shortly(search, benchmark, order, original)
            if times is not None:
                return times
        if self._ahead is None or not search.ahead.by_place:
            return None
        for index in order:
            self._measured(search, index, search.run(index, original))
        return [search.times[index] for index in range(count)]

    def _shortly(
        self, search: Search, benchmark: Benchmark, order: Iterable[int], original: Callable[[Any], Any]
    ) -> Sequence[Any] | None:
        from silo.kinds.triton.programs.searches.short_measurements import (  # noqa: PLC0415  # off by default
            LEAST_CONFIGS,
            ShortSearch,
        )

        name = kernel_of_tuner(search.tuner).__name__
        if len(search.configs) < LEAST_CONFIGS:
            _log.info("%s is measured in full: it has few configs", name)
            return None
        short = ShortSearch(search.tuner, benchmark, lambda place: search.run(place, original))
        all_times = short.times(order, lambda place, times: self._measured(search, place, times))
        for index, times in enumerate(all_times):
            search.times[index] = times
        _log.info(
            "%s: %d configs measured shortly, %d in full, %d times in turns",
            name,
            short.shorts,
            short.fulls,
            short.turns,
        )
        return all_times

    def _search_of(self, tuner: Any, config: Any, launch: TunedLaunch) -> Search | None:  # noqa: ANN401
        current: Search | None = getattr(_local, "search", None)
        if current is not None and current.tuner is tuner:
            return current
        following, _local.next = getattr(_local, "next", None), None
        if following is None or following[0] is not tuner or len(following[1]) < 2:
            return None
        search = Search(tuner, following[1])
        if search.place_of(config) is None:
            return None
        _local.search = search
        name = str(kernel_of_tuner(tuner).__name__)
        search.task = search.open.enter_context(working(f"tuning {name}"))
        with self._lock:
            self._kernels.add(name)
            search.task.start -= self._seconds
            search.task.logged = self._logged
        self._progress(search)
        try:
            self._begin_ahead(search, launch)
        except BaseException:
            self._end()
            raise
        return search

    def _begin_ahead(self, search: Search, launch: TunedLaunch) -> None:
        if self._ahead is None:
            return
        reason = reason_to_compile_in_turn(search.tuner, self._runs)
        if not reason and prints_while_compiled(kernel_of_tuner(search.tuner)):
            reason = "it prints while it is compiled (tl.static_print)"
        if reason:
            _log.info("configs of %s are compiled in turn: %s", kernel_of_tuner(search.tuner).__name__, reason)
            return
        search.ahead = self._ahead.begin(search.configs, launch)

    def _progress(self, search: Search) -> None:
        if search.task is not None:
            kernels = len(self._kernels)
            so_far = f"{kernels} kernel{'s' if kernels != 1 else ''} so far"
            search.task.note = f"{len(search.times)} of {len(search.configs)} configs, {so_far}"
            report_progress(search.task)
            self._logged = search.task.logged

    def _end(self) -> None:
        search: Search | None = getattr(_local, "search", None)
        if search is None:
            return
        _local.search, _local.finished = None, search
        search.open.close()
        if search.task is not None:
            with self._lock:
                search.seconds = search.task.seconds - self._seconds
                self._seconds += search.seconds
        if self._ahead is not None:
            self._ahead.end(search.ahead)


def prints_while_compiled(function: Any) -> bool:  # noqa: ANN401
    """Whether compiling a kernel prints (``tl.static_print``); a config taken from the cache would print nothing."""
    try:
        functions = functions_reached(function)
    except SiloError:
        functions = [function]
    return any(_STATIC_PRINT in str(getattr(reached_function, "src", "")) for reached_function in functions)
