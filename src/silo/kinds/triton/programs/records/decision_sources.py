"""The order of sources that decide for a program's tuners: a lock file, then a recording or bundle, then the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silo.errors import FrozenError, LockError, SiloError
from silo.forks import Mutex, Notices
from silo.kinds.triton.front.adapter import (
    TunerDecisions,
    TunerKey,
    kernel_of_tuner,
    launch_hook_points,
    watch_autotuners,
    watch_first_compile,
    watch_requests,
)
from silo.kinds.triton.programs.records.archive import read_winners
from silo.kinds.triton.programs.records.capture import Sources
from silo.kinds.triton.programs.records.journal_folding import open_folded
from silo.kinds.triton.programs.records.stored_first_compile import StoredFirstCompile
from silo.kinds.triton.programs.records.tuner_decisions import (
    described_key,
    find_decision,
    refused,
    winner_of,
    words_of_nearest,
)
from silo.measuring.lock_files import add_decisions, read_lock
from silo.settings import records_wanted, settings
from silo.tuner.foreign_decision import ForeignWinner

if TYPE_CHECKING:
    from silo.kinds.triton.programs.records.stored_decisions import StoredCode

__all__ = ["LockedDecisions", "decide_while_accelerated", "stored_decisions", "write_lock"]

_log = logging.getLogger("silo")


def stored_decisions() -> TunerDecisions | None:
    """The store as a source of decisions for an accelerated program; None if the settings exclude it."""
    current = settings()
    if current.frozen or not (current.keep_decisions or current.tune not in ("auto", "background", "leader")):
        return None
    return _LaterStored(refuses=current.lock is None)


class _LaterStored:
    """The store's decisions; the store is opened at the first request, because few programs tune."""

    def __init__(self, *, refuses: bool) -> None:
        self._refuses = refuses
        self._opened: TunerDecisions | None = None

    @property
    def _stored(self) -> TunerDecisions:
        from silo.kinds.triton.programs.records.stored_decisions import StoredDecisions  # noqa: PLC0415  # see above

        decisions = self._opened
        if decisions is None:
            decisions = self._opened = StoredDecisions(refuses=self._refuses)
        return decisions

    def decision_for(self, tuner: Any, key: TunerKey, configs: Callable[[], Sequence[Any]]) -> Any:  # noqa: ANN401
        """Returns the store's decision for a key; see :meth:`TunerDecisions.decision_for`."""
        return self._stored.decision_for(tuner, key, configs)

    def decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        """Stores a decision and returns the config to use; see :meth:`TunerDecisions.decided`."""
        return self._stored.decided(tuner, key, config)


class _WithCode:
    """Passes a tuner's requests on to ``decisions``, and stores compiled code from the first request on.

    Few programs tune, and a program that does not tune stores no code.
    """

    def __init__(self, decisions: TunerDecisions, first: StoredFirstCompile) -> None:
        self._decisions = decisions
        self._first = first
        self._code: StoredCode | None = None
        self._unwatch: Callable[[], None] | None = None
        self._lock = Mutex()

    def _begun(self) -> StoredCode:
        from silo.kinds.triton.programs.records.stored_decisions import StoredCode  # noqa: PLC0415  # see above

        with self._lock:
            code = self._code
            if code is None:
                code = self._code = StoredCode()
                self._unwatch = watch_requests(code.before_compile)
                self._first.keep()
            return code

    def decision_for(self, tuner: Any, key: TunerKey, configs: Callable[[], Sequence[Any]]) -> Any:  # noqa: ANN401
        """Returns the decision for a key. The launch that follows may compile, so code is stored from now on."""
        self._begun()
        return self._decisions.decision_for(tuner, key, configs)

    def decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        """Passes a decision on to ``decisions``, and stores the winner's code."""
        from silo.kinds.triton.programs.searches.tuner_search import search_of_thread  # noqa: PLC0415  # see above

        search = search_of_thread()
        chosen = self._decisions.decided(tuner, key, config)
        if search is not None and search.tuner is tuner:
            self._begun().keep_winner(search, chosen)
        return chosen

    def end(self) -> None:
        """Ends the watching of compiles."""
        with self._lock:
            unwatch, self._unwatch = self._unwatch, None
        if unwatch is not None:
            unwatch()


def decide_while_accelerated() -> Callable[[], None] | None:
    """Lets the lock file of ``SILO_LOCK`` and the store decide for the tuners of an accelerated program.

    Returns a function that stops this. Returns None if the settings allow neither a lock file nor the store to decide.
    Returns None also if the settings ask for a recording or a bundle, because these start the decisions of the lock
    file and the store themselves. Tuners whose ``run`` the program has replaced are left alone, unless there is a lock.

    Raises:
        LockError: ``SILO_TUNE=frozen``, and the lock file cannot be read.
    """
    current = settings()
    if records_wanted():
        return None
    decisions = stored_decisions()
    if current.lock is not None:
        try:
            decisions = LockedDecisions(Path(current.lock), decisions)
        except LockError as error:
            if current.tune == "frozen":
                raise
            _log.warning("tuners decide themselves: %s", error)
    if decisions is None or (current.lock is None and launch_hook_points().tuned_run is None):
        return None
    # The caller (triton_patching.py) then replaces the tuners' methods by Silo's launch methods, which call the methods
    # that this watch installs. Without a lock file the watch is ``last``: a recording that the program begins itself
    # decides before the store.
    if not current.keep_decisions or current.frozen:
        return watch_autotuners(decisions, last=current.lock is None)
    first = StoredFirstCompile()
    coded = _WithCode(decisions, first)
    undo = watch_autotuners(coded, last=current.lock is None)
    unwatch = watch_first_compile(first)

    def end() -> None:
        unwatch()
        undo()
        coded.end()

    return end


class LockedDecisions:
    """Decides for tuners from one lock file as it is now; ``others`` is the source of decisions that the lock lacks.

    With ``SILO_TUNE=frozen`` nothing is measured: a key that neither the lock nor ``others`` has is an error.

    Raises:
        LockError: the file does not exist, or is not a lock.
    """

    def __init__(self, path: Path, others: TunerDecisions | None) -> None:
        self.path = path
        self._others = others
        self._sources = Sources()
        self._notices = Notices()
        self._winners: dict[str, list[ForeignWinner]] = {}
        for winner in read_lock(path).decisions:
            self._winners.setdefault(winner.source, []).append(winner)

    def decision_for(self, tuner: Any, key: TunerKey, configs: Callable[[], Sequence[Any]]) -> Any:  # noqa: ANN401
        """The lock's config, or else the decision of ``others``; None without a decision.

        Raises:
            FrozenError: ``SILO_TUNE=frozen``, and no decision fits the tuner.
        """
        function = kernel_of_tuner(tuner)
        name = str(function.__name__)
        try:
            source = self._sources.of(function)
            request = winner_of(source, tuner, key, None)
        except SiloError as error:
            self._log_once(f"{name} is not decided by {self.path}", str(error))
            return None if self._others is None else self._others.decision_for(tuner, key, configs)
        decision = find_decision(tuner, self._winners.get(source.fingerprint, ()), request, configs)
        if decision.near is not None:
            self._log_once(f"{name} uses", f"{words_of_nearest(decision.near, request)} ({self.path})")
        if decision.config is not None:
            return decision.config
        other = None if self._others is None else self._others.decision_for(tuner, key, configs)
        if other is None and settings().tune == "frozen":
            if len(decision.allowed) == 1:
                return decision.allowed[0]
            raise refused(
                FrozenError(
                    f"{name}: tuning is frozen (SILO_TUNE=frozen), and {self.path} says nothing of "
                    f"{described_key(request)} on {request.target} that its {len(decision.allowed)} configs allow; "
                    "record this call (silo exec --record) and add what was decided (silo cache to-lock)"
                )
            )
        return other

    def decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        """Returns the config to use after a tuner has decided; the lock file is not changed.

        Unless ``others`` is None, passes the decision to this source, which may store it or return an earlier decision.
        """
        return config if self._others is None else self._others.decided(tuner, key, config)

    def _log_once(self, label: str, why: str) -> None:
        self._notices.once(label, f"{label}: {why}")


def write_lock(path: Path, lock: Path) -> tuple[int, int]:
    """Adds a recording's decisions to a lock file. Returns the numbers of added and of existing decisions.

    Raises:
        BundleError: the recording cannot be read.
        LockError: the file is not a lock, or cannot be written; or the recording contains no decision.
    """
    with open_folded(path) as bundle:
        winners = read_winners(bundle)
    if not winners:
        raise LockError(
            f"{path} holds no decision of a tuner, so there is nothing to lock; record a program that tunes"
        )
    return add_decisions(lock, winners)
