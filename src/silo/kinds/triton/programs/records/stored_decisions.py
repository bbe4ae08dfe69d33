"""Decisions of a program's tuners, and their code, in the store: if an earlier process measured, a later one does not.

A decision is stored under the kernel's fingerprint, the configs that the author's pruning left, Triton's version, the
target, the device's model and its driver's version. If one of these differs, the tuner measures again.

Files are stored under Triton's own key, which includes the compiler, the options, the environment and the source, so a
kernel never gets the files of another kernel. They stay in this machine's store (:mod:`silo.store.artifacts`) and are
code for devices: a driver loads them, as it loads files of Triton's own cache.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from typing import Any, cast

from silo.core.config import Config
from silo.core.values import digest
from silo.errors import SiloError
from silo.forks import Mutex, Notices
from silo.kinds.triton.front.adapter import (
    CacheEntry,
    CompileRequest,
    TunerKey,
    active_device,
    cached_files,
    config_members,
    is_cached,
    kernel_of_tuner,
    put_back_files,
    reason_to_keep_nothing,
    triton_version,
    tuning_is_heard,
)
from silo.kinds.triton.front.triton_source import TritonSource
from silo.kinds.triton.programs.compiled_code import device_at
from silo.kinds.triton.programs.records.decider import Decider, KeptDecision, is_time, kept_decisions
from silo.kinds.triton.programs.records.tuner_decisions import config_for, described_key, find_decision, winner_of
from silo.kinds.triton.programs.searches.tuner_search import (
    Search,
    finished_search,
    prints_while_compiled,
    search_of_thread,
)
from silo.machine.process_session import session
from silo.settings import settings
from silo.status_line import announce
from silo.tuner.foreign_decision import ForeignWinner

__all__ = ["StoredCode", "StoredDecisions"]

_log = logging.getLogger("silo")

# Decisions made in this process, by the key in the store and the slot. Other tuners of this process do not use them,
# but measure for themselves, as in Triton.
_own: set[tuple[str, tuple[str, str, str]]] = set()


@dataclass(slots=True, eq=False)
class _Question:
    """A tuner's request for a decision, with the stored decisions for the same kernel, configs and device."""

    place: str
    wanted: ForeignWinner
    kept: Mapping[tuple[str, str, str], KeptDecision]


@dataclass(slots=True, eq=False)
class _Tuner:
    """A tuner's source, and its requests by key."""

    source: TritonSource
    asked: dict[TunerKey, _Question] = member(default_factory=dict[TunerKey, "_Question"])


class StoredDecisions:
    """Supplies decisions from the store, and stores new ones.

    ``SILO_TUNE`` decides what a tuner without a decision does: measure (``auto``, ``leader``), use the decision for the
    nearest key or else its first config (``cached``), or fail (``frozen``); with ``off`` it always uses its first
    config. ``refuses``: whether to raise in frozen mode; if there is a lock, :class:`LockedDecisions` raises instead.
    """

    def __init__(self, *, refuses: bool = True) -> None:
        self._refuses = refuses
        self._tuners: weakref.WeakKeyDictionary[Any, _Tuner] = weakref.WeakKeyDictionary()
        self._lock = Mutex()
        self._notices = Notices()
        self._decider = Decider(self._notices)

    def decision_for(self, tuner: Any, key: TunerKey, configs: Callable[[], Sequence[Any]]) -> Any:  # noqa: ANN401
        """The stored decision for a key, or the config that ``SILO_TUNE`` requires; None lets the tuner measure.

        In modes that measure, a tuner gets a stored decision only once for each key: a second request means that the
        program has emptied the tuner's cache and expects a measurement.

        Raises:
            FrozenError: ``SILO_TUNE=frozen``, and the tuner may use no decision.
        """
        mode = settings().tune
        allowed = configs()
        if len(allowed) < 2:  # nothing to decide
            return None
        name = str(kernel_of_tuner(tuner).__name__)
        if mode == "off":
            return self._decider.first_by_order(name, allowed[0])
        try:
            question = self._question(tuner, key, allowed)
        except (SiloError, OSError) as error:
            _log.info("decisions of %s are not kept: %s", name, error)
            return allowed[0] if mode == "cached" else None
        if question is None:
            return None
        stored = question.kept.get(question.wanted.slot)
        if stored is not None:
            decision = find_decision(tuner, [stored.winner], question.wanted, lambda: allowed)
            if decision.config is not None and any(candidate is decision.config for candidate in allowed):
                self._serve(name, tuner, decision.config, stored, allowed)
                return decision.config
        return self._unknown(mode, name, question, allowed)

    def _unknown(self, mode: str, name: str, question: _Question, allowed: Sequence[Any]) -> Any:  # noqa: ANN401
        request = question.wanted
        winners = [decision.winner for decision in question.kept.values()]
        missing = (
            f"the store says nothing of {described_key(request)} on {request.target} that its {len(allowed)} configs "
            "allow; run this call once with SILO_TUNE=auto"
        )
        return self._decider.unmeasured(
            mode,
            name,
            request,
            [winner for winner in winners if winner.target == request.target],
            lambda winner: config_for(allowed, winner.config),
            allowed[0],
            missing if self._refuses else "",
        )

    def decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        """Stores a measured decision.

        If another process has decided meanwhile, its decision is used, so that all ranks agree.
        """
        search = finished_search(tuner)
        with self._lock:
            state = self._tuners.get(tuner)
            question = None if state is None else state.asked.get(key)
        if search is None or question is None or search.place_of(config) is None or not _is_usable(search, config):
            return config
        name = str(kernel_of_tuner(tuner).__name__)
        assert state is not None
        try:
            winner = winner_of(state.source, tuner, key, config)
        except SiloError as error:
            self._notices.once(f"tuner {name}", f"a decision of {name} is not kept: {error}")
            return config
        times = _times(search)
        decision = KeptDecision(winner, times, round(search.seconds * 1000))
        configs: list[Any] = []

        def usable(decision: KeptDecision) -> bool:
            other = find_decision(tuner, [decision.winner], question.wanted, lambda: search.configs).config
            configs[:] = [] if other is None else [other]
            return other is not None

        before = question.kept.get(question.wanted.slot)
        stored = self._decider.keep(question.place, decision, before, usable, len(search.configs), announce)
        if stored is None:
            return config
        if stored is not decision:
            return configs[0]
        with self._lock:
            _own.add((question.place, winner.slot))
        return config

    def _question(self, tuner: Any, key: TunerKey, allowed: Sequence[Any]) -> _Question | None:  # noqa: ANN401
        """The request with the stored decisions; None if the program has to measure. Raises SiloError and OSError."""
        with self._lock:
            state = self._tuners.get(tuner)
        if state is None:
            state = _Tuner(TritonSource.of(kernel_of_tuner(tuner)))
            with self._lock:
                state = self._tuners.setdefault(tuner, state)
        is_repeated = key in state.asked
        winner = winner_of(state.source, tuner, key, None)
        decision_key = _record_key(state.source, winner, allowed)
        question = state.asked[key] = _Question(decision_key, winner, kept_decisions(decision_key))
        if settings().tune not in ("cached", "frozen"):
            if is_repeated or tuning_is_heard():
                return None  # the program emptied the tuner's cache, or has a listener that expects a measurement
            if (question.place, winner.slot) in _own:
                return None  # another tuner of this process decided it; in Triton, each tuner measures for itself
        return question

    def _serve(self, name: str, tuner: Any, config: Any, decision: KeptDecision, allowed: Sequence[Any]) -> None:  # noqa: ANN401
        del config
        if len(decision.times) == len(allowed):
            tuner.configs_timings = {
                candidate: list(time) if isinstance(time, tuple) else time
                for candidate, time in zip(allowed, decision.times, strict=True)
            }
        self._decider.served(name, decision)


def _record_key(source: TritonSource, wanted: ForeignWinner, allowed: Sequence[Any]) -> str:
    """The key of the store's records about one kernel, one list of configs and one device. Raises SiloError."""
    configs = [
        [
            Config.of({name: source.constant(value) for name, value in config_members(candidate).items()}).to_json(),
            candidate.pre_hook is not None,
        ]
        for candidate in allowed
    ]
    device = device_at(wanted.target.kind, active_device())
    about = [source.fingerprint, str(wanted.target), configs, triton_version() or ""]
    return "triton-" + digest("tuner-decisions/1", [*about, device.model.to_json(), device.driver])


def _times(search: Search) -> tuple[float | tuple[float, ...], ...]:
    """The benchmark's result for each config; () if one of them cannot be stored."""
    measured = [search.times.get(index) for index in range(len(search.configs))]
    plain = [tuple(cast("list[Any]", entry)) if isinstance(entry, list) else entry for entry in measured]
    if not all(is_time(entry) for entry in plain):
        return ()
    return cast("tuple[float | tuple[float, ...], ...]", tuple(plain))


def _is_usable(search: Search, config: Any) -> bool:  # noqa: ANN401
    """Whether every config was measured, and the chosen config ran without an error."""
    if len(search.times) != len(search.configs):
        return False
    time = search.times.get(search.place_of(config) or 0)
    values = cast("Sequence[object]", time) if isinstance(time, list | tuple) else (time,)
    return bool(values) and isinstance(values[0], int | float) and math.isfinite(values[0])


class StoredCode:
    """Stores the code of a process in which a tuner was called. Its methods may be called by any thread.

    Of the configs that a tuner measures, only the chosen one is stored (:meth:`keep_winner`); of other kernels, all
    code is.
    """

    def __init__(self) -> None:
        self._notices = Notices()

    def before_compile(self, request: CompileRequest) -> Callable[[], None] | None:
        """Called before Triton compiles: puts the compile's files into Triton's cache if only the store has them.

        Returns a function to call after the compile, or None.
        """
        search = search_of_thread()
        config_index = None if search is None else search.measuring
        try:
            entry = request.entry
            reason = reason_to_keep_nothing(request, entry, measured=config_index is not None)
        except Exception as error:  # noqa: BLE001  # Triton's own errors have no common base; it meets them in its turn
            _log.debug("the store is not asked for the code of %s: %s", request.source.name, error)
            return None
        if reason:
            _log.debug("the store is not asked for the code of %s: %s", entry.name, reason)
            return None
        try:
            if not is_cached(entry):
                files = session().store.files.get(_code_place(entry))
                if files is not None and put_back_files(entry, files):
                    _log.debug("%s: Triton's cache takes %s from the store", entry.name, entry.key)
                    return None
        except (SiloError, OSError, UnicodeDecodeError) as error:
            self._notices.once("put back", f"code of {entry.name} stays in the store, and Triton compiles it: {error}")
        if search is not None and config_index is not None:
            search.compiled.setdefault(config_index, []).append(entry)
            return None
        return lambda: self._keep(entry, request.source.fn)

    def keep_winner(self, search: Search, config: Any) -> None:  # noqa: ANN401
        """Stores the code of ``config``, which a tuner has chosen after measuring."""
        config_index = search.place_of(config)
        for entry in [] if config_index is None else search.compiled.get(config_index, []):
            self._keep(entry, kernel_of_tuner(search.tuner))

    def _keep(self, entry: CacheEntry, function: Any) -> None:  # noqa: ANN401
        try:
            file_store, location = session().store.files, _code_place(entry)
            if not file_store.holds(location) and not prints_while_compiled(function):
                files = cached_files(entry)
                if files is not None:
                    file_store.put(location, files)
        except (SiloError, OSError) as error:
            self._notices.once("keep", f"code of {entry.name} is not kept for later processes: {error}")


def _code_place(entry: CacheEntry) -> str:
    return digest("triton-files/1", [entry.key, entry.name])
