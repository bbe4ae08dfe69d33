"""Decisions of a program's tuners in the store: an earlier process measured, so this one does not.

A decision is kept under the kernel's fingerprint, the configs that the author's pruning left, Triton's version, the
target, the device's model and its driver's version: if one of these differs, the tuner measures anew.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from typing import Any, cast

from silo.core.config import Config
from silo.core.json_reader import NATURAL, VALUE, Persisted, listed, value_of
from silo.core.notices import Notices
from silo.core.values import JSON, digest
from silo.errors import FrozenError, SiloError
from silo.forks import Mutex
from silo.frozen import field, frozen
from silo.kinds.triton.front.adapter import (
    TunerKey,
    active_device,
    config_members,
    kernel_of_tuner,
    triton_version,
    tuning_is_heard,
)
from silo.kinds.triton.front.triton_source import TritonSource
from silo.kinds.triton.programs.compiled_code import device_at
from silo.kinds.triton.programs.records.tuner_decisions import (
    described_key,
    find_decision,
    refused,
    winner_of,
    words_of_nearest,
)
from silo.kinds.triton.programs.searches.tuner_search import Search, finished_search
from silo.machine.process_session import session
from silo.settings import settings
from silo.status_line import announce
from silo.tuner.foreign_decision import ForeignWinner

__all__ = ["DecisionNotices", "KeptDecision", "StoredDecisions", "keep_first", "kept_decisions"]

_log = logging.getLogger("silo")

# Decisions of this process, by place in the store and slot: its other tuners measure for themselves, as in Triton.
_own: set[tuple[str, tuple[str, str, str]]] = set()


def _is_time(value: object) -> bool:
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        return bool(items) and all(isinstance(one, float) for one in items)
    return isinstance(value, float)


@frozen
class KeptDecision(Persisted):
    """A decision with the search that led to it.

    ``times`` are in Triton's unit, by config: a number, or a tuple of quantiles, as the tuner's benchmark returned it;
    () without a plain form. ``configs`` are the configs of these times; () if they are the tuner's own, in its order.
    ``milliseconds`` is how long the search took, with the compiles.
    """

    title = "a kept decision"

    winner: ForeignWinner = field(form=value_of(ForeignWinner))
    times: tuple[float | tuple[float, ...], ...] = field(form=listed(VALUE))
    milliseconds: int = field(form=NATURAL)
    configs: tuple[Config, ...] = field(default=(), form=listed(value_of(Config)), left_out=True)

    def __post_init__(self) -> None:
        if not all(_is_time(one) for one in self.times):
            raise ValueError("the times of a kept decision are not numbers")
        if self.configs and len(self.configs) != len(self.times):
            raise ValueError("a kept decision has other times than configs")


class DecisionNotices:
    """The lines about kept decisions: the first one in use is announced, the others are in the log.

    ``notices`` belongs to the caller, so that no line is logged twice.
    """

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._lock = Mutex()
        self._announced = False

    def served(self, name: str, kept: KeptDecision) -> None:
        """A kept decision is in use."""
        message = f"{name} uses what an earlier process decided; {kept.milliseconds / 1000:.1f} s of tuning are saved"
        with self._lock:
            first, self._announced = not self._announced, True
        if first:
            announce(message)
        else:
            _log.debug("%s", message)

    def nearest(self, name: str, near: ForeignWinner, wanted: ForeignWinner) -> None:
        """The decision about the nearest key is in use."""
        self._notices.once(f"{name} uses", f"{name} uses {words_of_nearest(near, wanted)}")

    def first_config(self, name: str) -> None:
        """The first config is in use, because nothing was decided and ``SILO_TUNE=cached``."""
        self._notices.once(
            f"{name} first",
            f"{name} uses its first config: nothing was decided for it, and SILO_TUNE=cached measures nothing",
        )


@dataclass(slots=True, eq=False)
class _Question:
    """A request for a decision, and the stored decisions for the same kernel, configs and device."""

    place: str
    wanted: ForeignWinner
    kept: Mapping[tuple[str, str, str], KeptDecision]


@dataclass(slots=True, eq=False)
class _Tuner:
    """A tuner's source and its requests by key."""

    source: TritonSource
    asked: dict[TunerKey, _Question] = member(default_factory=dict[TunerKey, "_Question"])


class StoredDecisions:
    """Answers tuners from the store, and keeps their decisions there.

    ``SILO_TUNE`` decides what a tuner without a decision does: measure (``auto``, ``leader``), take the decision for
    the nearest key and else its first config (``cached``), or fail (``frozen``); with ``off`` it always takes its first
    config. ``refuses``: raise in frozen mode; with a lock, :class:`LockedDecisions` raises.
    """

    def __init__(self, *, refuses: bool = True) -> None:
        self._refuses = refuses
        self._tuners: weakref.WeakKeyDictionary[Any, _Tuner] = weakref.WeakKeyDictionary()
        self._lock = Mutex()
        self._notices = Notices()
        self._news = DecisionNotices(self._notices)

    def known(self, tuner: Any, key: TunerKey, configs: Callable[[], Sequence[Any]]) -> Any:  # noqa: ANN401
        """The kept decision for a key, or the config that ``SILO_TUNE`` requires; None: the tuner measures.

        A tuner is answered once for each key: a program that empties a tuner's cache wants a measurement.

        Raises:
            FrozenError: ``SILO_TUNE=frozen``, and nothing was decided that the tuner may use.
        """
        mode = settings().tune
        allowed = configs()
        if len(allowed) < 2:  # nothing to decide
            return None
        name = str(kernel_of_tuner(tuner).__name__)
        if mode == "off":
            self._notices.once("off", f"SILO_TUNE=off: {name} and other tuners take their first config")
            return allowed[0]
        try:
            question = self._question(tuner, key, allowed)
        except (SiloError, OSError) as error:
            _log.info("decisions of %s are not kept: %s", name, error)
            return allowed[0] if mode == "cached" else None
        if question is None:
            return None
        kept = question.kept.get(question.wanted.slot)
        if kept is not None:
            found = find_decision(tuner, [kept.winner], question.wanted, lambda: allowed)
            if found.config is not None and any(one is found.config for one in allowed):
                self._serve(name, tuner, found.config, kept, allowed)
                return found.config
        return self._unknown(mode, name, tuner, question, allowed)

    def _unknown(self, mode: str, name: str, tuner: Any, question: _Question, allowed: Sequence[Any]) -> Any:  # noqa: ANN401
        if mode not in ("cached", "frozen"):
            return None
        wanted = question.wanted
        found = find_decision(tuner, [one.winner for one in question.kept.values()], wanted, lambda: allowed)
        if found.config is not None and found.near is not None:
            self._news.nearest(name, found.near, wanted)
            return found.config
        if mode == "cached":
            self._news.first_config(name)
            return allowed[0]
        if not self._refuses:
            return None
        raise refused(
            FrozenError(
                f"{name}: tuning is frozen (SILO_TUNE=frozen), and the store says nothing of {described_key(wanted)} "
                f"on {wanted.target} that its {len(allowed)} configs allow; run this call once with SILO_TUNE=auto"
            )
        )

    def decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        """Keep a measured decision. If another process has decided meanwhile, its decision holds: ranks agree."""
        search = finished_search(tuner)
        with self._lock:
            known = self._tuners.get(tuner)
            question = None if known is None else known.asked.get(key)
        if search is None or question is None or search.place_of(config) is None or not _is_usable(search, config):
            return config
        name = str(kernel_of_tuner(tuner).__name__)
        assert known is not None
        try:
            winner = winner_of(known.source, tuner, key, config)
            kept = KeptDecision(winner, _times(search), round(search.seconds * 1000))
            other = _settle(tuner, question, kept, search.configs)
        except (SiloError, OSError) as error:
            self._notices.once(f"tuner {name}", f"a decision of {name} is not kept: {error}")
            return config
        if other is not None:
            announce(f"{name} uses {other}, which another process decided on while this one measured")
            return other
        with self._lock:
            _own.add((question.place, winner.slot))
        announce(
            f"{name}: {winner.config} is the fastest of {len(search.configs)} configs, found in {search.seconds:.1f} s "
            "and kept for later processes"
        )
        return config

    def _question(self, tuner: Any, key: TunerKey, allowed: Sequence[Any]) -> _Question | None:  # noqa: ANN401
        """The request with the stored decisions; None: the program measures itself. Raises SiloError, OSError."""
        with self._lock:
            known = self._tuners.get(tuner)
        if known is None:
            known = _Tuner(TritonSource.of(kernel_of_tuner(tuner)))
            with self._lock:
                known = self._tuners.setdefault(tuner, known)
        again = key in known.asked
        wanted = winner_of(known.source, tuner, key, None)
        place = _place(known.source, wanted, allowed)
        question = known.asked[key] = _Question(place, wanted, kept_decisions(place))
        if settings().tune not in ("cached", "frozen"):
            if again or tuning_is_heard():
                return None  # the cache was emptied, or a listener of the program's waits for the measurement
            if (question.place, wanted.slot) in _own:
                return None  # another tuner of this process, which measures for itself in Triton
        return question

    def _serve(self, name: str, tuner: Any, config: Any, kept: KeptDecision, allowed: Sequence[Any]) -> None:  # noqa: ANN401
        del config
        if len(kept.times) == len(allowed):
            tuner.configs_timings = {
                one: list(time) if isinstance(time, tuple) else time
                for one, time in zip(allowed, kept.times, strict=True)
            }
        self._news.served(name, kept)


def _place(source: TritonSource, wanted: ForeignWinner, allowed: Sequence[Any]) -> str:
    """The key of the store's records about one kernel, one list of configs and one device. Raises SiloError."""
    configs = [
        [
            Config.of({name: source.constant(value) for name, value in config_members(one).items()}).to_json(),
            one.pre_hook is not None,
        ]
        for one in allowed
    ]
    device = device_at(wanted.target.kind, active_device())
    about = [source.fingerprint, str(wanted.target), configs, triton_version() or ""]
    return "triton-" + digest("tuner-decisions/1", [*about, device.model.to_json(), device.driver])


def _settle(tuner: Any, question: _Question, kept: KeptDecision, configs: Sequence[Any]) -> Any:  # noqa: ANN401
    """Keep a decision, and return None; if another process has decided since the request, return its config.

    If several processes decide at once, the first decision holds for all of them and for later processes.
    """
    others: list[Any] = []

    def usable(found: KeptDecision) -> bool:
        config = find_decision(tuner, [found.winner], question.wanted, lambda: configs).config
        others[:] = [] if config is None else [config]
        return config is not None

    before = question.kept.get(question.wanted.slot)
    return None if keep_first(question.place, kept, before, usable) is kept else others[0]


def keep_first(
    place: str, kept: KeptDecision, before: KeptDecision | None, usable: Callable[[KeptDecision], bool]
) -> KeptDecision:
    """Keep a decision in the store, unless another process has kept a usable one since; returns the one that holds.

    If several processes decide at once, the first decision holds for all of them and for later processes.

    Args:
        place: the key of the store's records about one kernel and device.
        kept: the decision of this process.
        before: the decision for the slot that this process read before it measured; None without one.
        usable: whether this process can use another's decision.
    """
    holds: list[KeptDecision] = []

    def judge(records: Iterable[JSON]) -> JSON:
        found = _newest(records).get(kept.winner.slot)
        holds[:] = [kept]
        if found is not None and found != before and usable(found):
            holds[:] = [found]
            return None
        return kept.to_json()

    session().store.records.append_judged(place, judge)
    return holds[0]


def kept_decisions(place: str) -> Mapping[tuple[str, str, str], KeptDecision]:
    """The kept decisions of one place by slot, the newest of each."""
    return _newest(session().store.records.read(place))


def _newest(records: Iterable[JSON]) -> Mapping[tuple[str, str, str], KeptDecision]:
    found: dict[tuple[str, str, str], KeptDecision] = {}
    for record in records:
        try:
            kept = KeptDecision.from_json(record)
        except ValueError as error:
            _log.warning("a kept decision of a tuner cannot be read, and is left out: %s", error)
            continue
        found[kept.winner.slot] = kept
    return found


def _times(search: Search) -> tuple[float | tuple[float, ...], ...]:
    """The benchmark's result for each config; () if one of them lacks a plain form."""
    found = [search.times.get(place) for place in range(len(search.configs))]
    plain = [tuple(cast("list[Any]", one)) if isinstance(one, list) else one for one in found]
    if not all(_is_time(one) for one in plain):
        return ()
    return cast("tuple[float | tuple[float, ...], ...]", tuple(plain))


def _is_usable(search: Search, config: Any) -> bool:  # noqa: ANN401
    """Whether every config was measured, and the chosen config ran."""
    if len(search.times) != len(search.configs):
        return False
    time = search.times.get(search.place_of(config) or 0)
    values = cast("Sequence[object]", time) if isinstance(time, list | tuple) else (time,)
    return bool(values) and isinstance(values[0], int | float) and math.isfinite(values[0])
