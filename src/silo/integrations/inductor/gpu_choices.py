"""Decides which GPU kernel computes a matrix product or a convolution, and which code torch fuses with it.

The subject of a decision is the operator with its inputs, or the text of fused code, on one model of device.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, cast

from silo.core.config import Config
from silo.core.values import JSON, digest
from silo.errors import FrozenError, SiloError
from silo.forks import Notices
from silo.frozen import replace
from silo.integrations.inductor.gpu_questions import Decisions, Measured, Question, left_to_torch, make_question
from silo.integrations.inductor.gpu_records import is_frozen, keep_recorded
from silo.kinds.triton.programs.records.decider import KeptDecision
from silo.plain_files import read_plain
from silo.settings import settings

__all__ = ["ChoiceDecisions", "comparing_in_order", "deciding_fusions", "deciding_lookup", "deciding_parts"]

_notices = Notices()

_POLICY = re.compile(r":benchmark_policy=\w+$")
_COUNTER = re.compile(r"_\d+$")


class ChoiceDecisions:
    """Decides which kernel computes a matrix product or a convolution, in place of ``PersistentCache.lookup``."""

    def __init__(self, precision: Callable[[], str], current_device: Callable[[], int]) -> None:
        self._precision = precision
        self._current_device = current_device
        self._decisions = Decisions()
        # labels of all kernels that torch has offered, by source, target and key
        self._labels: dict[tuple[str, ...], dict[str, None]] = {}
        self._used: dict[tuple[str, ...], Config] = {}  # the decisions that this process has used
        self._parts = threading.local()

    def lookup(
        self,
        choices: Sequence[Any],
        operator: str,
        inputs: str,
        benchmark: Callable[[Any], Mapping[Any, float]] | None,
        hint: int | None,
        plain: Callable[[], dict[Any, float]],
    ) -> dict[Any, float]:
        """Returns the time in milliseconds of each kernel in ``choices``, as torch's own look-up ``plain`` does.

        The times come from a decision if there is one, else from torch's measurement.
        """
        labels = {_label(choice): choice for choice in choices}
        if len(choices) < 2 or len(labels) != len(choices) or not all(map(_is_cuda, choices)):
            return plain()
        mode = settings().tune
        may_measure = mode not in ("off", "cached", "frozen") and not is_frozen()

        def usable(decision: KeptDecision) -> bool:
            return _times_of(decision, labels, complete=may_measure) is not None

        try:
            question = self._question(operator, inputs, hint)
            slot = question.wanted.slot
            slot_labels = self._labels.setdefault(slot, {})
            slot_labels.update(dict.fromkeys(labels))
            if slot in self._used and self._used[slot].as_dict()["choice"] in labels:
                decision = KeptDecision(replace(question.wanted, config=self._used[slot]), (), 0)
            else:
                decision = self._decisions.decision_for(question, usable)
        except FrozenError:
            raise
        except (SiloError, OSError) as error:
            left_to_torch(operator, str(error))
            return plain()
        if decision is not None:
            return self._use(question, decision.winner.config, labels)
        if benchmark is None:
            return plain()
        if not may_measure:
            first = self._decisions.unmeasured(question, [Config.of(choice=label) for label in labels], _only_choice)
            if first is not None:
                return _choice_times(first, labels)
        timings: list[dict[Any, float]] = []

        def measure() -> Measured:
            timings[:] = [plain()]
            # Labels of earlier calls stay in the list with infinite time: torch does not offer a choice that failed to
            # compile in this process, and without a time for it another process would take it for a new choice and
            # measure again.
            times = dict.fromkeys(slot_labels, math.inf)
            times.update({label: float(timings[0].get(choice, math.inf)) for label, choice in labels.items()})
            trials = tuple((Config.of(choice=label), time_ms) for label, time_ms in times.items())
            return Measured(_chosen_of(times), trials)

        config = self._decisions.decide(question, usable, measure)
        if config.as_dict()["choice"] in labels:
            return self._use(question, config, labels)
        # the kernel that another process decided for did not compile in this process, so the times are torch's own
        return timings[0] if timings else plain()

    def _use(self, question: Question, config: Config, labels: Mapping[str, Any]) -> dict[Any, float]:
        """Returns a decision's times, and keeps the decision in this object: each graph then gets the same times."""
        self._used[question.wanted.slot] = config
        keep_recorded(replace(question.wanted, config=config))
        return _choice_times(config, labels)

    def _question(self, operator: str, inputs: str, hint: int | None) -> Question:
        subject: list[JSON] = ["choice", operator, self._precision(), _POLICY.sub("", inputs), hint]
        return make_question(operator, subject, {}, "cuda", self._current_device())

    # -- times of fused code, by which torch decides whether to fuse it with a template ------------------------------

    def part_time(self, measure: Callable[[], tuple[float, str]]) -> tuple[float, str]:
        """Returns ``measure()``, which times unfused code, and marks this thread while ``measure`` runs.

        torch fuses if this time is longer than the time of the fused code. If nothing may be measured,
        :meth:`fused_time` returns 0 in a marked thread, so that torch does not fuse.
        """
        self._parts.depth = getattr(self._parts, "depth", 0) + 1
        try:
            return measure()
        finally:
            self._parts.depth -= 1

    def fused_time(self, module: Any, threshold: int, plain: Callable[[], tuple[float, str]]) -> tuple[float, str]:  # noqa: ANN401
        """Returns the time in milliseconds of code that torch fuses only to measure it, and the file of the code.

        ``plain`` is torch's own method for this. It returns infinity without measuring if the code spills more than
        ``threshold`` registers.
        """
        tuner = getattr(module, "triton_", None)
        props = getattr(tuner, "device_props", None)
        if getattr(props, "type", None) != "cuda" or not module.__file__:
            return plain()
        try:
            question = self._fusion(read_plain(module.__file__).decode(), threshold)
            config = self._known_time(question)
        except FrozenError:
            raise
        except (SiloError, OSError, UnicodeDecodeError) as error:
            left_to_torch("a fusion", str(error))
            return plain()
        if config is None and not _may_measure():
            _notices.once(
                "fusions",
                "nothing was decided about a fusion, and nothing may be measured: torch keeps these kernels apart",
            )
            # torch fuses if the fused code takes less time than its parts together. To prevent the fusion, the time is
            # 0 if a part is being measured, and infinite for the fused code.
            return 0.0 if getattr(self._parts, "depth", 0) else math.inf, module.__file__
        if config is None:
            config = self._decisions.decide(question, _is_time, lambda: _fused(plain()[0]))
        self._used[question.wanted.slot] = config
        keep_recorded(replace(question.wanted, config=config))
        return _fused_ms(config), module.__file__

    def needs_no_code(self, source: str) -> bool:
        """Returns whether fused code that torch wants to measure need not be compiled.

        The code never runs if its time is known, or if nothing may be measured.
        """
        try:
            return not _may_measure() or self._known_time(self._fusion(source, _SPILLS)) is not None
        except (SiloError, OSError):
            return False  # the later call of fused_time fails in the same way and logs the reason

    def _fusion(self, source: str, threshold: int) -> Question:
        subject: list[JSON] = ["fusion", threshold, _INDEX.sub(r"\1", source)]
        return make_question("a fusion", subject, {}, "cuda", self._current_device())

    def _known_time(self, question: Question) -> Config | None:
        used = self._used.get(question.wanted.slot)
        if used is not None:
            return used
        decision = self._decisions.decision_for(question, _is_time)
        return None if decision is None else decision.winner.config


# torch's default: fused code that spills more registers than this is not measured.
_SPILLS: Final = 8


def _may_measure() -> bool:
    return settings().tune not in ("cached", "frozen") and not is_frozen()


# Device indices in generated code, which are removed from the subject of a decision.
_INDEX = re.compile(r"(\bindex=|cuda:|_DeviceGuard\(|set_device\(|get_raw_stream\(|\bstream)\d+")


def _is_time(decision: KeptDecision) -> bool:
    return "nanoseconds" in decision.winner.config.as_dict()


def _fused(time_ms: float) -> Measured:
    # Torch subtracts the time for cloning the arguments, so the difference may be negative. Infinity is stored as -1.
    config = Config.of(nanoseconds=-1 if math.isinf(time_ms) else max(0, round(time_ms * 1e6)))
    return Measured(config, ((config, time_ms),))


def _fused_ms(config: Config) -> float:
    nanoseconds = int(cast("int", config.as_dict()["nanoseconds"]))
    return math.inf if nanoseconds < 0 else nanoseconds / 1e6


def _label(choice: Any) -> str:  # noqa: ANN401
    """Returns a choice's name that is the same in every process: its kind, its template, and the template's config.

    torch's own name contains a counter, and the template's code contains the device index, so neither can be used.
    """
    kind, name = type(choice).__name__, str(choice.name)
    described = str(getattr(choice, "description", "") or "")
    if described:
        return f"{kind}:{_COUNTER.sub('', name)}:{described}"
    options: Any = getattr(choice, "kwargs", None) or {}
    return f"{kind}:{name}:{options}"


def _is_cuda(choice: Any) -> bool:  # noqa: ANN401
    device: Any = getattr(getattr(choice, "layout", None), "device", None)
    return getattr(device, "type", None) == "cuda"


def _chosen_of(times: Mapping[str, float]) -> Config:
    """Returns the config of a decision for measured times: the fastest choice, and the times of all choices.

    The times are part of the config because torch compares several of them when it decides what to fuse with a product.
    Without them, a lock file or a bundle would lead to another graph than the measurement did.
    """
    text = " ".join(f"{_short(label)}={time_ms!r}" for label, time_ms in times.items())
    return Config.of(choice=min(times, key=lambda label: times[label]), times=text)


def _short(label: str) -> str:
    return digest("inductor-choice/1", [label])[:12]


def _only_choice(config: Config) -> Config:
    """Returns a config with only the name of the chosen kernel, without the times that a decision's config has."""
    return Config.of(choice=config.as_dict().get("choice", ""))


def _times_of(decision: KeptDecision, labels: Mapping[str, Any], *, complete: bool) -> dict[Any, float] | None:
    """Returns the times of all choices from an earlier decision. A choice without a measured time gets infinity.

    Returns None if the decided choice is not among ``labels``, or if the decision has no times. With ``complete``,
    returns None also if a decision of the store lacks a choice, because that choice may be faster. A decision of a
    lock file counts even if it lacks choices.
    """
    chosen = decision.winner.config.as_dict()
    if chosen.get("choice") not in labels or "times" not in chosen:
        return None
    measured = {config.as_dict().get("choice") for config in decision.configs}
    if complete and measured and any(label not in measured for label in labels):
        return None
    return _choice_times(decision.winner.config, labels)


def _choice_times(config: Config, labels: Mapping[str, Any]) -> dict[Any, float]:
    """Returns the times in a decision, as torch's look-up returns them: the decided choice first, with the least time.

    The order matters: among equal times, and among templates for a fusion, torch takes the first. The process that
    measured calls this function too, so it returns the same as each process that reads the decision.
    """
    chosen = config.as_dict()
    winner = str(chosen["choice"])
    pairs = [pair.partition("=") for pair in str(chosen.get("times", "")).split()]
    times = {short: float(time_ms) for short, _, time_ms in pairs}
    winner_time = times.get(_short(winner), math.inf)
    winner_ms = 1.0 if math.isinf(winner_time) else winner_time
    others = {label: max(winner_ms, times.get(_short(label), math.inf)) for label in labels if label != winner}
    return {labels[label]: time_ms for label, time_ms in {winner: winner_ms, **others}.items()}


# ---- Replacements of torch's functions ----


def deciding_lookup(
    choices: ChoiceDecisions, plain: Callable[..., dict[Any, float]]
) -> Callable[..., dict[Any, float]]:
    """Wraps ``PersistentCache.lookup``: Silo decides which of torch's candidate kernels is used."""

    @wraps(plain)
    def lookup(
        self: Any,  # noqa: ANN401
        choices_: Any,  # noqa: ANN401
        op: str,
        inputs: str,
        benchmark: Any,  # noqa: ANN401
        hint_override: int | None = None,
    ) -> dict[Any, float]:
        return choices.lookup(
            choices_,
            op,
            inputs,
            benchmark,
            hint_override,
            lambda: plain(self, choices_, op, inputs, benchmark, hint_override),
        )

    return lookup


def deciding_fusions(
    choices: ChoiceDecisions, plain: Callable[..., tuple[float, str]]
) -> Callable[..., tuple[float, str]]:
    """Wraps ``TritonScheduling.benchmark_codegened_module``: Silo keeps the measured times of fused code."""

    @wraps(plain)
    def benchmark_codegened_module(
        self: Any,  # noqa: ANN401
        mod: Any,  # noqa: ANN401
        n_spills_threshold: int = 8,
        *rest: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> tuple[float, str]:
        return choices.fused_time(mod, n_spills_threshold, lambda: plain(self, mod, n_spills_threshold, *rest, **named))

    return benchmark_codegened_module


def deciding_parts(
    choices: ChoiceDecisions, plain: Callable[..., tuple[float, str]]
) -> Callable[..., tuple[float, str]]:
    """Wraps ``TritonScheduling.benchmark_fused_nodes``, which times unfused code to compare it with a fusion.

    The wrapper marks the thread during the call, so that :meth:`ChoiceDecisions.fused_time` can recognise it.
    """

    @wraps(plain)
    def benchmark_fused_nodes(*args: Any, **named: Any) -> tuple[float, str]:  # noqa: ANN401
        return choices.part_time(lambda: plain(*args, **named))

    return benchmark_fused_nodes


def comparing_in_order(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``Scheduler.speedup_by_fusion``: fusions with a template are compared in the order of the graph.

    By itself, torch compares fusions in the order in which its workers finish compiling; of several fusions with equal
    text it compares only the last. The graph would then depend on whether torch had workers, and on their speed. The
    compile jobs still run at the same time: each comparison waits only for the code that it needs.
    """

    @wraps(plain)
    def speedup_by_fusion(*args: Any, **named: Any) -> Any:  # noqa: ANN401
        found = plain(*args, **named)
        if found.future is not None:
            found.future = None
        return found

    return speedup_by_fusion
