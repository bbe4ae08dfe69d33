"""Decisions kept in the store, and the choices based on them: for tuners of programs and for Inductor's kernels."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar, cast

from silo.core.config import Config
from silo.core.json_reader import NATURAL, VALUE, Persisted, listed, value_of
from silo.core.values import JSON
from silo.errors import FrozenError, SiloError
from silo.forks import Mutex, Notices
from silo.frozen import field, frozen
from silo.kinds.triton.programs.records.tuner_decisions import nearest_winner, refused, words_of_nearest
from silo.machine.process_session import session
from silo.status_line import announce
from silo.tuner.foreign_decision import ForeignWinner

__all__ = ["Decider", "KeptDecision", "is_time", "kept_decisions"]

_log = logging.getLogger("silo")

T = TypeVar("T")


# ---- Decisions in the store ----


def is_time(value: object) -> bool:
    """Whether a value is a measured time: a number, or a tuple of quantiles."""
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        return bool(items) and all(isinstance(item, float) for item in items)
    return isinstance(value, float)


@frozen
class KeptDecision(Persisted):
    """A decision, with the measurements that led to it.

    ``times`` are in Triton's unit, one for each config: a number, or a tuple of quantiles, as the tuner's benchmark
    returned it; () if they cannot be stored. ``configs`` are the configs of these times; () if they are the tuner's
    own, in its order. ``milliseconds`` is the duration of the search, including compiles.
    """

    title = "a kept decision"

    winner: ForeignWinner = field(form=value_of(ForeignWinner))
    times: tuple[float | tuple[float, ...], ...] = field(form=listed(VALUE))
    milliseconds: int = field(form=NATURAL)
    configs: tuple[Config, ...] = field(default=(), form=listed(value_of(Config)), left_out=True)

    def __post_init__(self) -> None:
        if not all(is_time(time) for time in self.times):
            raise ValueError("the times of a kept decision are not numbers")
        if self.configs and len(self.configs) != len(self.times):
            raise ValueError("a kept decision has other times than configs")


def kept_decisions(key: str) -> Mapping[tuple[str, str, str], KeptDecision]:
    """The newest decision for each slot (kernel, target and tuner's key) among the store's records under ``key``."""
    return _newest(session().store.records.read(key))


def _newest(records: Iterable[JSON]) -> Mapping[tuple[str, str, str], KeptDecision]:
    newest: dict[tuple[str, str, str], KeptDecision] = {}
    for record in records:
        try:
            decision = KeptDecision.from_json(record)
        except ValueError as error:
            _log.warning("a kept decision of a tuner cannot be read, and is left out: %s", error)
            continue
        newest[decision.winner.slot] = decision
    return newest


# ---- The choice ----


class Decider:
    """Chooses between stored decisions and measuring, stores new decisions, and logs which decision is used.

    The first use of a stored decision in the process is shown to the user, later uses are logged at debug level.
    ``notices`` remembers the lines that were logged; the caller logs through the same object, so that no line is logged
    twice.
    """

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._lock = Mutex()
        self._announced = False

    def served(self, name: str, decision: KeptDecision) -> None:
        """Logs that a stored decision is used."""
        message = (
            f"{name} uses what an earlier process decided; {decision.milliseconds / 1000:.1f} s of tuning are saved"
        )
        with self._lock:
            first, self._announced = not self._announced, True
        if first:
            announce(message)
        else:
            _log.debug("%s", message)

    def first_by_order(self, name: str, first: T) -> T:
        """Returns the first config, because ``SILO_TUNE=off``; logs this once."""
        self._notices.once("off", f"SILO_TUNE=off: {name} and others take their first config")
        return first

    def unmeasured(
        self,
        mode: str,
        name: str,
        wanted: ForeignWinner,
        winners: Iterable[ForeignWinner],
        usable: Callable[[ForeignWinner], T | None],
        first: T,
        missing: str,
    ) -> T | None:
        """The config for a key without a decision, if the mode does not measure; None in a mode that measures.

        It is the config of the decision for the nearest key, or, in mode ``cached`` without such a decision, ``first``.

        Args:
            mode: the value of ``SILO_TUNE``.
            name: the kernel's name, for messages.
            wanted: the kernel, target and key of the missing decision.
            winners: the decisions about the same kernel.
            usable: returns the config of a decision if the tuner may use it, else None.
            first: the first config of the tuner.
            missing: the end of the error message in mode ``frozen``; if it is "", None is returned instead of an error.

        Raises:
            FrozenError: the mode is ``frozen``, and no decision may be used.
        """
        if mode not in ("cached", "frozen"):
            return None
        near = nearest_winner([winner for winner in winners if usable(winner) is not None], wanted)
        if near is not None:
            self._notices.once(f"{name} uses", f"{name} uses {words_of_nearest(near, wanted)}")
            return usable(near)
        if mode == "cached":
            self._notices.once(
                f"{name} first",
                f"{name} uses its first config: nothing was decided for it, and SILO_TUNE=cached measures nothing",
            )
            return first
        if not missing:
            return None
        raise refused(FrozenError(f"{name}: tuning is frozen (SILO_TUNE=frozen), and {missing}"))

    def keep(
        self,
        key: str,
        decision: KeptDecision,
        before: KeptDecision | None,
        usable: Callable[[KeptDecision], bool],
        count: int,
        notify: Callable[[str], object],
    ) -> KeptDecision | None:
        """Stores a decision, unless another process has stored a usable one since ``before`` was read.

        If several processes decide at once, the decision of the first is used by all of them and by later processes.

        Args:
            key: the key of the store's records about one kernel and device.
            decision: the decision of this process.
            before: the decision for the slot that this process read before it measured; None without one.
            usable: returns whether this process can use another process's decision.
            count: the number of configs that were measured.
            notify: receives the message about a decision that was stored.

        Returns:
            The valid decision, ``decision`` or the other process's; None if the store cannot be written, which is
            logged.
        """
        name = decision.winner.kernel
        decisions: list[KeptDecision] = []

        def judge(records: Iterable[JSON]) -> JSON:
            newest = _newest(records).get(decision.winner.slot)
            decisions[:] = [decision]
            if newest is not None and newest != before and usable(newest):
                decisions[:] = [newest]
                return None
            return decision.to_json()

        try:
            session().store.records.append_judged(key, judge)
        except (SiloError, OSError) as error:
            self._notices.once(f"kept {name}", f"a decision of {name} is not kept: {error}")
            return None
        if decisions[0] is not decision:
            announce(
                f"{name} uses {decisions[0].winner.config}, which another process decided on while this one measured"
            )
            return decisions[0]
        notify(
            f"{name}: {decision.winner.config} is the fastest of {count} configs, found in "
            f"{decision.milliseconds / 1000:.1f} s and kept for later processes"
        )
        return decision
