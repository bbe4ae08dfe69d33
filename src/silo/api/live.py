"""Tuning at a first call, on copies of the caller's own arguments."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from silo.api.arrays import duplicate, is_array
from silo.api.compiling import Compilation
from silo.api.evaluation import CompiledEvaluator, Workload, live_check
from silo.api.session import session
from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import ArgumentError, TuneError
from silo.launch.arguments import ValueKind
from silo.settings import settings
from silo.tune.measure import MeasurePolicy
from silo.tune.outcome import Budget
from silo.tune.session import tune

if TYPE_CHECKING:
    from silo.api.kernel import Kernel
    from silo.api.resolver import Resolver, Situation

__all__ = ["measurable", "tune_live"]

_log = logging.getLogger("silo")


def measurable(kernel: Kernel, situation: Situation) -> Decision:
    """Whether candidates can be measured on copies of this call's arguments."""
    if kernel.grid is None and situation.call.grid is None:
        return Rejected("the call gives no grid that other configs could use")
    if not importable("numpy"):
        return Rejected("numpy is not installed, and results are compared with it")
    ranges: list[tuple[int, int, object, str]] = []
    for argument in situation.call.arguments:
        if argument.kind is ValueKind.ADDRESS:
            return Rejected(f"{argument.name} is a bare address, which cannot be copied")
        if argument.kind is ValueKind.POINTER:
            if not is_array(argument.value):
                return Rejected(f"{argument.name} is a {type(argument.value).__name__}, which cannot be copied")
            start, end = extent_bytes(argument.value)
            for low, high, other, name in ranges:
                if start < high and low < end and other is not argument.value:
                    return Rejected(f"{argument.name} and {name} overlap in memory")
            ranges.append((start, end, argument.value, argument.name))
    return Accepted()


def importable(name: str) -> bool:
    """Whether a package is installed, without importing it."""
    import importlib.util  # noqa: PLC0415

    return importlib.util.find_spec(name) is not None


def extent_bytes(array: Any) -> tuple[int, int]:  # noqa: ANN401
    """The first byte of an array and the one past its last."""
    from silo.launch import native  # noqa: PLC0415

    address, code, bits, _, _, shape, strides = native.read(array)
    del code
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) if all(shape) else -1
    return address, address + (last + 1) * max(bits // 8, 1)


def tune_live(kernel: Kernel, resolver: Resolver, situation: Situation) -> Config | None:
    """Tune one call within the budget and say so in one log line; the winner, or None where no config works.

    The caller's arrays are only read: candidates run on copies.
    """
    arguments = _copies(situation)
    if arguments is None:
        return None
    problem = resolver.problem(situation)
    bucket = problem.bucket(situation.values)
    study = problem.study(situation.specialization, bucket)
    problem.note(situation.specialization, bucket)
    grid = situation.call.grid

    def launcher_of(config: Config) -> Callable[[], object]:
        named = {**arguments, **config.as_dict(), **({} if grid is None else {"grid": grid})}
        launch = resolver.launcher
        return lambda: launch(**named)

    compilation = Compilation(session(), kernel.source)
    written = [name for name, value in arguments.items() if is_array(value)]
    workload = Workload(arguments, launcher_of)
    evaluator = CompiledEvaluator(
        study=study,
        compilation=compilation,
        variant_of=lambda config: resolver.variant(situation, config),
        workload=workload,
        check=live_check(workload, written, situation.candidates),
        timer=situation.device.timer(),
        policy=MeasurePolicy(version=situation.device.timing),
    )
    budget = Budget(seconds=settings().tune_budget_s)
    try:
        outcome = tune(study, situation.candidates, evaluator, session().store.records, budget=budget)
        winner = outcome.require_winner()
    except TuneError as error:
        _log.warning("%s; the first config is used", error)
        return None
    _log.info("%s", outcome.summary)
    return winner.config


def _copies(situation: Situation) -> dict[str, object] | None:
    """The call's arguments with arrays copied; arguments that are one array stay one array."""
    made: dict[int, object] = {}
    result: dict[str, object] = {}
    for name, value in situation.call.values.items():
        if name in situation.given:
            continue
        if is_array(value):
            if id(value) not in made:
                try:
                    made[id(value)] = duplicate(value)
                except ArgumentError as error:
                    _log.info("%s is not tuned on this call: %s: %s", situation.call.kernel, name, error)
                    return None
            result[name] = made[id(value)]
        else:
            result[name] = value
    return result
