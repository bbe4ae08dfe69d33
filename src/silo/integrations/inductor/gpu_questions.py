"""Looks up and stores decisions about Inductor's GPU kernels. A question is the subject of one decision.

A question does not depend on the number of a kernel in its graph, on the index of a device, or on the release of torch.
torch itself measures; Silo calls its measurement only if no decision exists, and keeps all times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from silo.calls.leader import led
from silo.core.config import Config
from silo.core.device import Target
from silo.core.values import JSON, Value, digest
from silo.errors import LockError
from silo.forks import Notices
from silo.frozen import frozen, replace
from silo.integrations.inductor.gpu_records import is_frozen, recorded_decision, recorded_nearby, tell_missing
from silo.kinds.triton.front.adapter import triton_version
from silo.kinds.triton.programs.compiled_code import device_at
from silo.kinds.triton.programs.records.decider import Decider, KeptDecision, kept_decisions
from silo.kinds.triton.programs.records.tuner_decisions import described_key
from silo.measuring.lock_files import add_decisions, read_lock
from silo.settings import settings
from silo.tuner.foreign_decision import ForeignWinner

__all__ = ["Decisions", "Measured", "Question", "left_to_torch", "make_question"]

_log = logging.getLogger("silo")
_notices = Notices()


@frozen
class Question:
    """The subject of one decision: ``wanted`` identifies the kernel, sizes and device, and has an empty config.

    ``place`` is the key in the store at which the decision is kept.
    """

    wanted: ForeignWinner
    place: str

    @property
    def name(self) -> str:
        """The name of the kernel or the operator, for messages."""
        return self.wanted.kernel


@frozen
class Measured:
    """The result of a search: the chosen config, and every measured config with its time in milliseconds."""

    config: Config
    trials: tuple[tuple[Config, float], ...]


def make_question(
    name: str,
    subject: Sequence[JSON],
    key: Mapping[str, Value],
    kind: str,
    index: int,
) -> Question:
    """Makes the question about a subject on a device.

    Args:
        name: the kernel's name, for messages.
        subject: the parts of the subject that must be equal for a decision to apply.
        key: the sizes, by name, for which a nearby decision may serve.
        kind: the kind of device, such as ``cuda``.
        index: the index of the device in this process.

    Raises:
        DeviceError: Silo does not find the device.
    """
    device = device_at(kind, index)
    target: Target = device.target
    names, values = tuple(key), tuple(key.values())
    source = digest("inductor-decision/1", list(subject))
    wanted_winner = ForeignWinner(
        kernel=name,
        source=source,
        target=target,
        names=(*names, "device"),
        key=(*values, device.model.name),
        config=Config(),
    )
    about: list[JSON] = [source, str(target), triton_version() or "", device.model.to_json(), device.driver]
    return Question(wanted_winner, "inductor-" + digest("inductor-decisions/1", about))


class Decisions:
    """Answers questions from the lock file, the recording or bundle, or the store, in this order.

    New decisions are written to the store, and in leader mode to the lock file, if the settings allow it.
    """

    def __init__(self) -> None:
        self._decider = Decider(_notices)

    def decision_for(self, question: Question, usable: Callable[[KeptDecision], bool]) -> KeptDecision | None:
        """Returns the decision for exactly this question, if ``usable`` accepts it; else None.

        Raises:
            LockError: the lock file cannot be read, and ``SILO_TUNE=frozen``.
            SiloError: the store cannot be read.
        """
        locked = self._locked(question)
        if locked is not None and usable(locked):
            return locked
        recorded = recorded_decision(question.wanted)
        if recorded is not None and usable(KeptDecision(recorded, (), 0)):
            return KeptDecision(recorded, (), 0)
        current = settings()
        if not current.keep_decisions and current.tune not in ("cached", "frozen"):
            return None
        decision = kept_decisions(question.place).get(question.wanted.slot)
        if decision is None or not usable(decision):
            return None
        self._decider.served(question.name, decision)
        return decision

    def unmeasured(
        self,
        question: Question,
        candidates: Sequence[Config],
        reduced: Callable[[Config], Config] = lambda config: config,
    ) -> Config | None:
        """Returns the config for a question without a decision, if the mode does not measure; None if it measures.

        ``reduced`` drops those values of a decided config that the configs in ``candidates`` lack, such as measured
        times, so that it can be found among them.

        Raises:
            FrozenError: ``SILO_TUNE=frozen``, and no decision for other sizes or devices can be used either.
        """
        mode = "frozen" if is_frozen() else settings().tune
        foreign = question.wanted
        if mode == "off":
            return self._decider.first_by_order(question.name, candidates[0])
        if mode not in ("cached", "frozen"):
            tell_missing(foreign)
            return None
        nearby = [
            decision.winner
            for decision in kept_decisions(question.place).values()
            if decision.winner.source == foreign.source
        ]
        nearby += [_for_device(record, foreign) for record in recorded_nearby(foreign)]
        missing = (
            f"nothing was decided for {described_key(foreign)} on {foreign.target}; run this program once with "
            "SILO_TUNE=auto, or record it again (silo exec --record)"
        )
        return self._decider.unmeasured(
            mode,
            question.name,
            foreign,
            nearby,
            lambda winner: reduced(winner.config) if reduced(winner.config) in candidates else None,
            candidates[0],
            missing,
        )

    def decide(
        self, question: Question, usable: Callable[[KeptDecision], bool], measure: Callable[[], Measured]
    ) -> Config:
        """Returns the config for a question: an earlier decision's, or the result of ``measure``, which is kept.

        With ``SILO_TUNE=leader`` and a lock file one process measures, and the others wait for its decision.

        Raises:
            FrozenError: the leader did not decide in time.
            LockError: the lock file cannot be used in leader mode.
        """
        current = settings()
        if current.tune == "leader" and current.lock is not None:
            path = Path(current.lock)

            def written() -> Config | None:
                locked_decision = self._locked(question)
                return None if locked_decision is None or not usable(locked_decision) else locked_decision.winner.config

            def lead() -> Config:
                config = self._measured(question, usable, measure)
                add_decisions(path, [replace(question.wanted, config=config)])
                return config

            return led(path, question.name, written, lead)
        return self._measured(question, usable, measure)

    def _measured(
        self, question: Question, usable: Callable[[KeptDecision], bool], measure: Callable[[], Measured]
    ) -> Config:
        keep = settings().keep_decisions
        before = kept_decisions(question.place).get(question.wanted.slot) if keep else None
        if before is not None and usable(before):
            return before.winner.config  # another process has decided meanwhile
        begin = time.monotonic()
        measured = measure()
        seconds = time.monotonic() - begin
        if not keep:
            return measured.config
        winner = replace(question.wanted, config=measured.config)
        decision = KeptDecision(
            winner,
            tuple(time_ms for _, time_ms in measured.trials),
            round(seconds * 1000),
            tuple(config for config, _ in measured.trials),
        )
        holds = self._decider.keep(question.place, decision, before, usable, len(measured.trials), _log.info)
        return measured.config if holds is None else holds.winner.config

    @staticmethod
    def _locked(question: Question) -> KeptDecision | None:
        """Returns the lock file's decision for a question; None without a decision or without a lock file."""
        current = settings()
        if current.lock is None:
            return None
        path = Path(current.lock)
        if current.tune == "leader" and not path.exists():
            return None  # the leader has not decided yet
        try:
            lock = read_lock(path)
        except LockError as error:
            if current.tune == "frozen":
                raise
            _notices.once(f"lock {path}", f"Inductor's kernels are not decided by the lock: {error}")
            return None
        locked = next((decision for decision in lock.decisions if decision.slot == question.wanted.slot), None)
        return None if locked is None else KeptDecision(locked, (), 0)


def _for_device(winner: ForeignWinner, wanted: ForeignWinner) -> ForeignWinner:
    """Returns ``winner`` with the device of ``wanted`` in its key, to serve as a prediction for that device."""
    return replace(winner, key=(*winner.key[:-1], wanted.key[-1]))


def left_to_torch(name: str, reason: str) -> None:
    """Logs once that torch alone decides about a kernel or an operator, with the reason."""
    _notices.once(f"decisions {name} {reason}", f"{name} is decided by torch alone, and measured again later: {reason}")
