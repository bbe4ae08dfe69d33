"""Code of programs that tune, in the store: it is put back into Triton's cache, if it is missing there.

Files are kept under Triton's own key, which holds the compiler, the options, the environment and the source, so a
kernel never gets the files of another. They stay in this machine's store (:mod:`silo.store.artifacts`) and are code
for devices: a driver loads them, as it loads files of Triton's own cache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from silo.core.values import digest
from silo.errors import SiloError
from silo.forks import Notices
from silo.kinds.triton.front.adapter import (
    CacheEntry,
    CompileRequest,
    cached_files,
    is_cached,
    kernel_of_tuner,
    put_back_files,
    reason_to_keep_nothing,
)
from silo.kinds.triton.programs.searches.tuner_search import Search, prints_while_compiled, search_of_thread
from silo.machine.process_session import session

__all__ = ["StoredCode"]

_log = logging.getLogger("silo")


class StoredCode:
    """Gets each compile of a process in which a tuner was called. Its methods may be called by any thread.

    Of the configs that a tuner measures, :meth:`keep_winner` keeps the chosen one; of other kernels everything is kept.
    """

    def __init__(self) -> None:
        self._notices = Notices()

    def before_compile(self, request: CompileRequest) -> Callable[[], None] | None:
        """Triton is about to compile: put the files into its cache, if the store has them and the cache does not."""
        search = search_of_thread()
        place = None if search is None else search.measuring
        try:
            entry = request.entry
            reason = reason_to_keep_nothing(request, entry, measured=place is not None)
        except Exception as error:  # noqa: BLE001  # Triton's own errors have no common base; it meets them in its turn
            _log.debug("the store is not asked for the code of %s: %s", request.source.name, error)
            return None
        if reason:
            _log.debug("the store is not asked for the code of %s: %s", entry.name, reason)
            return None
        try:
            if not is_cached(entry):
                files = session().store.files.get(_place(entry))
                if files is not None and put_back_files(entry, files):
                    _log.debug("%s: Triton's cache takes %s from the store", entry.name, entry.key)
                    return None
        except (SiloError, OSError, UnicodeDecodeError) as error:
            self._notices.once("put back", f"code of {entry.name} stays in the store, and Triton compiles it: {error}")
        if search is not None and place is not None:
            search.compiled.setdefault(place, []).append(entry)
            return None
        return lambda: self._keep(entry, request.source.fn)

    def keep_winner(self, search: Search, config: Any) -> None:  # noqa: ANN401
        """A tuner has measured its configs, and uses this config."""
        place = search.place_of(config)
        for entry in [] if place is None else search.compiled.get(place, []):
            self._keep(entry, kernel_of_tuner(search.tuner))

    def _keep(self, entry: CacheEntry, function: Any) -> None:  # noqa: ANN401
        try:
            kept, place = session().store.files, _place(entry)
            if not kept.holds(place) and not prints_while_compiled(function):
                files = cached_files(entry)
                if files is not None:
                    kept.put(place, files)
        except (SiloError, OSError) as error:
            self._notices.once("keep", f"code of {entry.name} is not kept for later processes: {error}")


def _place(entry: CacheEntry) -> str:
    return digest("triton-files/1", [entry.key, entry.name])
