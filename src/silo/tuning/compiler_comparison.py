"""The comparison of the code of several compilers for one case: whose code calls like it get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

from silo.artifacts.artifact import Artifact
from silo.building.ready_cases import PreparedCase
from silo.core.checks import compare
from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import LaunchError
from silo.measuring.benches import ConfinedBench, LocalBench
from silo.tuner.outcome import TuneOutcome
from silo.tuner.paired_ratio import Speed, sample_until_decided
from silo.tuner.result_check import kept
from silo.tuner.statistics import PPM
from silo.tuner.winner import Winner

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Compared", "CompilerWinner", "by_known_times", "compare_compilers", "joined_outcome", "least_loss"]

# Another compiler's code is chosen if it is faster by more than this beyond doubt.
_MARGIN_PPM = 5_000
_LIMIT_S = 3.0


@dataclass(frozen=True, slots=True)
class CompilerWinner:
    """The best config of one compiler for a case, with its code; ``name`` is the compiler's for people."""

    compiler: str
    name: str
    artifact: Artifact
    winner: Winner

    @property
    def code(self) -> tuple[Config, Artifact]:
        """Its config and code, as benches take them."""
        return self.winner.config, self.artifact

    @property
    def label(self) -> str:
        """The compiler with the config."""
        return f"{self.name} with {self.winner.config}"


@dataclass(frozen=True, slots=True)
class Compared:
    """The compiler whose code was chosen, and a line for each other one: why not.

    ``times_ppm`` are the times of each usable compiler's code as parts of the first's, in millionths, by compiler.
    """

    chosen: CompilerWinner
    remarks: tuple[str, ...] = ()
    times_ppm: Mapping[str, int] = field(default_factory=dict[str, int])


Challenge = Callable[[CompilerWinner, CompilerWinner], tuple[Decision, "int | None"]]
"""Whether the second code replaces the first, and why; and its time as a part of the first's, None if it is wrong."""


def least_loss(cases: Sequence[Mapping[str, int]]) -> str:
    """The compiler whose code loses least over cases that one decision serves, by the times of each case.

    The loss of a case is its time beside the fastest code for it; losses are multiplied. Only code that is usable in
    all cases counts; "" without any. Equal losses go to the earlier compiler.

    >>> least_loss([{"a": 1_000_000, "b": 900_000}, {"a": 1_000_000, "b": 2_000_000}])
    'a'
    >>> least_loss([{"a": 1_000_000, "b": 500_000}, {"a": 1_000_000, "b": 1_100_000}])
    'b'
    >>> least_loss([{"a": 1_000_000}, {"b": 1_000_000}])
    ''
    """
    usable = [name for name in (cases[0] if cases else ()) if all(name in one for one in cases)]
    losses = {name: prod(one[name] / min(one.values()) for one in cases) for name in usable}
    return min(usable, key=lambda name: losses[name], default="")


def compare_compilers(
    winners: Sequence[CompilerWinner], case: PreparedCase, bench: ConfinedBench | LocalBench
) -> Compared:
    """Chooses among the best codes of several compilers: the fastest whose results can stand for the first's.

    Each later code is launched in turns with the best so far, and replaces it only if it is faster beyond doubt.
    Results that the case does not expect anything of have to be the first compiler's, within the usual tolerance.
    """
    first = kept(bench.results(*winners[0].code))

    def challenge(best: CompilerWinner, other: CompilerWinner) -> tuple[Decision, int | None]:
        try:
            if reason := _difference(first, bench.results(*other.code), case):
                return Rejected(f"its result differs from that of {winners[0].name}: {reason}"), None
            return _faster(best, other, bench)
        except LaunchError as error:
            return Rejected(f"it worked at first and failed beside {best.name}: {error}"), None

    return _chosen(winners, challenge)


def by_known_times(winners: Sequence[CompilerWinner]) -> Compared:
    """Chooses by times not taken in turns: a later compiler's code needs an interval below the best so far."""

    def challenge(best: CompilerWinner, other: CompilerWinner) -> tuple[Decision, int | None]:
        theirs, own = other.winner.time, best.winner.time
        text, part = f"{theirs.median_ns} ns and {own.median_ns} ns, measured apart", theirs.median_ns * PPM
        if theirs.high_ns < own.low_ns:
            return Accepted(text), part // max(own.median_ns, 1)
        return Rejected(f"{text}, do not separate them"), part // max(own.median_ns, 1)

    return _chosen(winners, challenge)


def _chosen(winners: Sequence[CompilerWinner], challenge: Challenge) -> Compared:
    best, remarks = winners[0], list[str]()
    times = {best.compiler: PPM}
    for other in winners[1:]:
        if (other.artifact.blob, other.artifact.launch) == (best.artifact.blob, best.artifact.launch):
            remarks.append(f"{other.name} makes the same code as {best.name}")
            times[other.compiler] = times[best.compiler]
            continue
        decision, part = challenge(best, other)
        if part is not None:
            times[other.compiler] = times[best.compiler] * part // PPM
        word = "is faster than" if decision else "is not chosen over"
        remarks.append(f"{other.label} {word} {best.label}: {decision.reason}")
        best = other if decision else best
    return Compared(best, tuple(remarks), times)


def _difference(first: Mapping[str, NDArray[Any]], results: Mapping[str, NDArray[Any]], case: PreparedCase) -> str:
    """The first difference of two results in arrays that the case has no check for; "" without any."""
    for name, array in first.items():
        if name not in case.checks and not (result := compare(results[name], array)):
            return f"{name}: {result.message}"
    return ""


def _faster(
    best: CompilerWinner, other: CompilerWinner, bench: ConfinedBench | LocalBench
) -> tuple[Decision, int | None]:
    def take(_rounds: int) -> tuple[Sequence[int], Sequence[int]]:
        own, theirs = bench.side_by_side([best.code, other.code])
        return theirs, own

    ratio = sample_until_decided(take, _MARGIN_PPM, _LIMIT_S)
    text = f"{ratio.text} of its time"
    decision = Accepted(text) if ratio.speed is Speed.FASTER else Rejected(f"{text}, {ratio.speed.value}")
    return decision, ratio.median_ppm


def joined_outcome(outcomes: Sequence[TuneOutcome], chosen: TuneOutcome, remarks: Sequence[str]) -> TuneOutcome:
    """The chosen compiler's outcome, with the effort, failures and faults of all of them."""
    failures = Counter[str]()
    for one in outcomes:
        failures.update(one.failures)
    return replace(
        chosen,
        measured=sum(one.measured for one in outcomes),
        reused=sum(one.reused for one in outcomes),
        failures=dict(sorted(failures.items())),
        seconds=sum(one.seconds for one in outcomes),
        remarks=tuple(dict.fromkeys((*remarks, *(line for one in outcomes for line in one.remarks)))),
        faults=tuple(fault for one in outcomes for fault in one.faults),
    )
