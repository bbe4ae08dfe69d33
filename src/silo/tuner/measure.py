"""The measuring policy: how kernels are timed, and how paired samples decide which of two kernels is faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TypeVar

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.protocols import Timer, WatchfulTimer
from silo.frozen import frozen
from silo.tuner.statistics import FINALIST_PERMILLE, PPM, estimate, median, quiet_rounds

__all__ = [
    "Contender",
    "MeasurePolicy",
    "PairedReference",
    "Ratio",
    "Speed",
    "Timing",
    "compare_times",
    "copy_fits",
    "interleave",
    "is_beaten",
    "is_suspicious",
    "judge_ratio",
    "measure",
    "pin_fits",
    "sample_until_decided",
]

Key = TypeVar("Key", bound=Hashable)

# A candidate this many times slower than the best so far is dropped after a few samples.
_HOPELESS = 2
_FEW_SAMPLES = 3
_SURE_SAMPLES = 6  # with fewer samples, the confidence interval of the median is their whole range
# samples between two computations of the confidence interval; one computation takes some ten microseconds
_RACE_EVERY = 3

# Sampling the reference may take this fraction of the contender's sampling time, or as long as warming up if that is
# longer.
_REFERENCE_SHARE = 8
# The reference ran recently, so it is warmed up for only this fraction of the warm-up time.
_WARM_SHARE = 4
# A comparison of finalists has at most this many times as many rounds as the policy has samples for one contender.
# Short launches reach this number before the time limit.
_MORE_ROUNDS = 2

# Limits of the wall time of warming up: the policy's warm-up time times _WARM_UP_WALL, or _WARM_UP_WALL_NS if that is
# more.
_WARM_UP_WALL = 4
_WARM_UP_WALL_NS = 10_000_000
# A sample that other work on the machine disturbed is taken again, up to _PATIENCE times for each contender; after
# that, disturbed samples count. Each undisturbed sample gives _REGAINED of these attempts back. After _NAP_AFTER
# attempts for one sample, the threads sleep, so that the system gives them a core sooner.
_PATIENCE = 128
_REGAINED = 4
_NAP_AFTER = 8
_NAP_S = 0.001


@dataclass(frozen=True, slots=True)
class MeasurePolicy:
    """The duration and the number of samples of a measurement. All times are nanoseconds.

    ``version`` names the method and the state of the caches; it changes whenever the way in which samples are taken
    changes. The contender is launched for ``warmup_ns`` before the first sample. Sampling ends at ``max_samples``
    samples, after ``target_ns`` if at least ``min_samples`` were taken, and after ``limit_ns`` in any case. A launch
    shorter than ``window_ns`` is repeated within a sample until the sample is that long, because reading a clock takes
    some ten nanoseconds.
    """

    version: str
    warmup_ns: int = 5_000_000
    target_ns: int = 40_000_000
    limit_ns: int = 2_000_000_000
    min_samples: int = 9
    max_samples: int = 60
    window_ns: int = 20_000

    @classmethod
    def of(cls, timing: str) -> MeasurePolicy:
        """Returns the policy for a device's way of taking times (``Device.timing``).

        With a cold cache each sample is one launch, because a second launch would find the cache warm. Device clocks
        are coarse, so more cold samples are taken, and warm launches are repeated for longer.

        >>> MeasurePolicy.of("cuda-events-cold/1").window_ns
        0
        """
        if "-cold/" in timing:
            return cls(timing, max_samples=100, window_ns=0)
        if "-events-" in timing:
            return cls(timing, window_ns=200_000)
        return cls(timing)

    @property
    def identity(self) -> str:
        """The policy as text, for the key of a study: samples taken by another policy belong to another study.

        >>> MeasurePolicy("wall-warm/1").identity
        'wall-warm/1 warmup=5000000 target=40000000 limit=2000000000 min=9 max=60 window=20000'
        """
        names = {"min_samples": "min", "max_samples": "max"}
        members = asdict(self)
        version = members.pop("version")
        return " ".join([version, *(f"{names.get(key, key.removesuffix('_ns'))}={members[key]}" for key in members)])


@dataclass(frozen=True, slots=True)
class Contender:
    """A kernel to time: a function that launches it, and a function that restores the arguments that it writes.

    ``reset`` is for kernels whose result or running time depends on their earlier writes (in-place updates,
    accumulation); it runs before each sample, outside the timed window. These kernels are launched once per sample, so
    samples of very short kernels include the cost of one clock read.
    """

    launch: Callable[[], object]
    reset: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class PairedReference:
    """The reference of a contender, measured in turns with it, and the reference's nominal time.

    Samples of the contender are scaled as if each launch of the reference took ``time_ns`` nanoseconds.
    """

    contender: Contender
    time_ns: int


@dataclass(frozen=True, slots=True)
class Timing:
    """Samples of a contender, and samples of its reference, taken in turns with them.

    ``reference`` is empty if the contender was measured alone.
    """

    samples: tuple[int, ...]
    reference: tuple[int, ...] = ()


def copy_fits(size: int, free: int | None) -> Decision:
    """Decides whether a device has memory for a copy of ``size`` bytes, from which an array will be restored.

    The copy may take half of the ``free`` bytes, so that kernels keep memory for their own allocations. ``free`` is
    None if unknown: then the copy is allowed.

    >>> bool(copy_fits(500, 1000)), bool(copy_fits(600, 1000))
    (True, False)
    """
    if free is None or 2 * size <= free:
        return Accepted()
    return Rejected(
        f"restoring {size} bytes from host memory, which is slower: "
        f"a copy on the device would take more than half of the {free} bytes that are free there"
    )


def pin_fits(size: int, available: int | None) -> Decision:
    """Decides whether ``size`` bytes of host memory may be page-locked, so that a device copies them at full bus speed.

    Locked pages are never swapped out. A copy may take an eighth of the ``available`` bytes, because every device of a
    host may have its own copy. ``available`` is None if unknown: then locking is not allowed.

    >>> bool(pin_fits(100, 800)), bool(pin_fits(101, 800)), bool(pin_fits(1, None))
    (True, False, False)
    """
    if available is not None and 8 * size <= available:
        return Accepted()
    available_text = "nobody says how many the host has left" if available is None else f"the host has {available} left"
    return Rejected(
        f"that memory is pageable, which is slower still: {size} bytes are not locked, for {available_text}"
    )


def measure(
    contender: Contender,
    timer: Timer,
    policy: MeasurePolicy,
    *,
    best_ns: int | None = None,
    beside: PairedReference | None = None,
) -> Timing:
    """Times one contender, alone or in turns with a reference.

    Returns every sample, in order, in nanoseconds for one launch. ``best_ns``, if given, is the best median so far,
    relative to the reference. Sampling ends after three samples if the contender takes twice as long as ``best_ns``, or
    as soon as the confidence interval of its median shows that it is too slow to be a finalist; the samples so far are
    returned. Both tests wait until the samples have taken as long as warming up, because another process may have the
    core for a while. For these tests ``best_ns`` is scaled by how slow the reference is at present.
    """
    repeats, once_ns = _warm_up(contender, timer, policy.warmup_ns, policy.window_ns)
    patience = _Patience(timer)
    turns = None if beside is None else _Turns(beside, timer, policy, patience)
    samples: list[int] = []
    spent = 0
    while len(samples) < policy.max_samples:
        elapsed = patience.sample(contender, repeats)
        samples.append(elapsed // repeats)
        spent += elapsed
        if turns is not None:
            turns.after(len(samples), once_ns * repeats)
        if spent >= policy.limit_ns or (spent >= policy.target_ns and len(samples) >= policy.min_samples):
            break
        if best_ns is not None and spent >= policy.warmup_ns:
            best_now = best_ns if turns is None else turns.now(best_ns)
            if is_beaten(samples, best_now):
                break
    return Timing(tuple(samples), () if turns is None else tuple(turns.samples))


class _Turns:
    """Takes samples of the reference, one after each sample of the contender, or fewer if the reference is slow."""

    def __init__(self, reference: PairedReference, timer: Timer, policy: MeasurePolicy, patience: _Patience) -> None:
        self._reference = reference
        self._patience = patience
        self._policy = policy
        self._repeats, self._once_ns = _warm_up(
            reference.contender, timer, policy.warmup_ns // _WARM_SHARE, policy.window_ns
        )
        self._stride = 0
        self.samples: list[int] = []

    def after(self, count: int, sample_ns: int) -> None:
        """Takes a sample of the reference if one is due after ``count`` samples of the contender.

        ``sample_ns`` is the approximate time of one sample of the contender.
        """
        if not self._stride:
            self._stride = self._planned(sample_ns, self._once_ns * self._repeats)
        if (count - 1) % self._stride == 0:
            elapsed = self._patience.sample(self._reference.contender, self._repeats)
            self.samples.append(elapsed // self._repeats)

    def _planned(self, sample_ns: int, reference_ns: int) -> int:
        """Returns how many samples of the contender to take for each sample of the reference, given their times."""
        policy = self._policy
        count = min(max(policy.target_ns // sample_ns, policy.min_samples), policy.max_samples)
        allowed = max(count * sample_ns // _REFERENCE_SHARE, policy.warmup_ns) // reference_ns
        return count // min(max(allowed, _FEW_SAMPLES), count)

    def now(self, time_ns: int) -> int:
        """Returns ``time_ns`` scaled by how slow the reference is at present."""
        return time_ns * median(self.samples) // max(self._reference.time_ns, 1)


def is_beaten(samples: Sequence[int], best_ns: int) -> bool:
    """Returns whether further samples cannot make a contender a finalist; ``best_ns`` is the best median so far.

    >>> is_beaten([205, 210, 230], 100), is_beaten([112, 115, 113, 112, 114, 113], 100), is_beaten([112, 99] * 3, 100)
    (True, True, False)
    """
    if len(samples) < _FEW_SAMPLES or len(samples) % _RACE_EVERY:
        return False
    if min(samples) > _HOPELESS * best_ns:
        return True
    limit = best_ns * (1000 + FINALIST_PERMILLE)
    # Other work on the machine only makes samples longer, so the shortest sample of a possible winner is near its true
    # time.
    is_slower = min(samples) * 1000 > limit
    return is_slower and len(samples) >= _SURE_SAMPLES and estimate(samples).low_ns * 1000 > limit


def is_suspicious(samples: Sequence[int], best_ns: int) -> bool:
    """Returns whether a new best is so much faster than the previous one (by a third) that it should be measured twice.

    A launch that the device silently rejected, or a changed clock, gives such times.

    >>> is_suspicious([60, 61, 62], 100), is_suspicious([80, 81, 82], 100)
    (True, False)
    """
    return median(samples) * 3 < best_ns * 2


def interleave(
    contenders: Mapping[Key, Contender], timer: Timer, policy: MeasurePolicy, *, rounds: int | None = None
) -> dict[Key, tuple[int, ...]]:
    """Times contenders side by side and returns the samples of each in nanoseconds, one for each round.

    Each round starts with the next contender. A machine that slows down or speeds up meanwhile does so for all of
    them. By default there are at most twice as many ``rounds`` as the policy has samples for one contender; the
    policy's time limits apply to each contender's share.
    """
    order = list(contenders)
    repeats = {key: _warm_up(contenders[key], timer, policy.warmup_ns, policy.window_ns)[0] for key in order}
    samples: dict[Key, list[int]] = {key: [] for key in order}
    patience = _Patience(timer, len(order))
    spent = 0
    for turn in range(_MORE_ROUNDS * policy.max_samples if rounds is None else rounds):
        for position in range(len(order)):
            key = order[(turn + position) % len(order)]
            elapsed = patience.sample(contenders[key], repeats[key])
            samples[key].append(elapsed // repeats[key])
            spent += elapsed
        share = spent // len(order)
        if rounds is None and (
            share >= policy.limit_ns or (share >= policy.target_ns and turn + 1 >= policy.min_samples)
        ):
            break
    return {key: tuple(sample) for key, sample in samples.items()}


class _Patience:
    """Takes samples, and repeats disturbed ones if the timer can detect them, up to a number of attempts."""

    def __init__(self, timer: Timer, contenders: int = 1) -> None:
        self._timer = timer
        self._watchful = timer if isinstance(timer, WatchfulTimer) else None
        self._most = self._patience_left = _PATIENCE * contenders

    def sample(self, contender: Contender, repeats: int) -> int:
        """Returns the nanoseconds of ``repeats`` launches: an undisturbed sample, or else the shortest one taken."""
        watchful, shortest, attempts = self._watchful, 0, 0
        while True:
            elapsed = _sample(contender, self._timer, repeats)
            if watchful is None or not watchful.disturbed():
                self._patience_left = min(self._patience_left + _REGAINED, self._most)
                return elapsed
            shortest = min(shortest or elapsed, elapsed)
            if not self._patience_left:
                return shortest
            self._patience_left -= 1
            attempts += 1
            if attempts % _NAP_AFTER == 0:
                time.sleep(_NAP_S)
                _sample(
                    contender, self._timer, repeats
                )  # this sample is not counted: it wakes the threads after the sleep


def _sample(contender: Contender, timer: Timer, repeats: int) -> int:
    if contender.reset is not None:
        contender.reset()
    return timer.elapsed_ns(contender.launch, repeats)


def _warm_up(contender: Contender, timer: Timer, warmup_ns: int, window_ns: int) -> tuple[int, int]:
    """Launches until the device is warm. Returns how many launches fill a sample's window, and the time of one launch.

    Times are nanoseconds. Work between the launches (emptying a cache, restoring arguments) keeps a device as busy and
    may take far longer, so wall time is limited too.
    """
    samples = [_sample(contender, timer, 1)]
    until = time.monotonic_ns() + max(_WARM_UP_WALL * warmup_ns, _WARM_UP_WALL_NS)
    while sum(samples) < warmup_ns and len(samples) < 1000 and time.monotonic_ns() < until:
        samples.append(_sample(contender, timer, 1))
    once = max(median(samples[len(samples) // 2 :]), 1)
    return (1 if contender.reset is not None else max(1, -(-window_ns // once))), once


# The confidence of one test of the samples. Up to eight tests are made, and the first that decides ends the comparison:
# with this confidence, fewer than one of a hundred comparisons of two equal kernels decides wrongly.
_CONFIDENCE_PERMILLE = 999
_FIRST_ROUNDS, _MOST_ROUNDS = 16, 4096


class Speed(Enum):
    """The result of comparing two times."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"


@frozen
class Ratio:
    """A new time divided by an old time, in millionths: the median quotient of paired samples, with its interval.

    ``rounds`` is the number of pairs; ``new_ns`` and ``old_ns`` are median times in nanoseconds.
    """

    speed: Speed
    median_ppm: int
    low_ppm: int
    high_ppm: int
    rounds: int
    new_ns: int
    old_ns: int

    @property
    def text(self) -> str:
        """The ratio with its interval, as text.

        >>> Ratio(Speed.SLOWER, 1_021_000, 1_015_000, 1_027_000, 64, 1021, 1000).text
        '1.021 (1.015 to 1.027)'
        """
        return f"{self.median_ppm / PPM:.3f} ({self.low_ppm / PPM:.3f} to {self.high_ppm / PPM:.3f})"


def judge_ratio(new: Sequence[int], old: Sequence[int], margin_ppm: int) -> Ratio:
    """Compares samples in nanoseconds; ``new[i]`` and ``old[i]`` were taken in the same round.

    Rounds that other work on the machine disturbed are left out. The result is ``SLOWER`` or ``FASTER`` if the whole
    interval of the quotients lies beyond the margin, ``SAME`` if all of it lies within, and otherwise ``UNDECIDED``.

    >>> judge_ratio([102, 103, 102, 103] * 6, [100, 101, 100, 101] * 6, 10_000).speed.value
    'slower'
    >>> judge_ratio([100, 101, 100, 101] * 6, [100, 101, 100, 101] * 6, 10_000).speed.value
    'same'

    Raises:
        ValueError: without samples, or if ``new`` and ``old`` differ in length.
    """
    if len(new) != len(old) or not new:
        raise ValueError(f"{len(new)} and {len(old)} samples are no pairs")
    quiet = quiet_rounds({b"new": tuple(new), b"old": tuple(old)})
    pairs = list(zip(quiet[b"new"], quiet[b"old"], strict=True))
    ratio = estimate([new_time * PPM // max(old_time, 1) for new_time, old_time in pairs], _CONFIDENCE_PERMILLE)
    slow, fast = PPM + margin_ppm, PPM * PPM // (PPM + margin_ppm)
    if ratio.low_ns > slow:
        speed = Speed.SLOWER
    elif ratio.high_ns < fast:
        speed = Speed.FASTER
    elif fast <= ratio.low_ns and ratio.high_ns <= slow:
        speed = Speed.SAME
    else:
        speed = Speed.UNDECIDED
    new_ns, old_ns = (estimate([pair[index] for pair in pairs]).median_ns for index in (0, 1))
    return Ratio(speed, ratio.median_ns, ratio.low_ns, ratio.high_ns, len(pairs), new_ns, old_ns)


def compare_times(
    new: Contender,
    old: Contender,
    timer: Timer,
    policy: MeasurePolicy,
    margin_ppm: int,
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Ratio:
    """Returns the ratio of two contenders' times.

    They are launched in turns until it is decided which is faster, or for ``limit_s`` seconds.
    """

    def take(rounds: int) -> tuple[Sequence[int], Sequence[int]]:
        samples = interleave({"old": old, "new": new}, timer, policy, rounds=rounds)
        return samples["new"], samples["old"]

    return sample_until_decided(take, margin_ppm, limit_s, clock)


def sample_until_decided(
    take: Callable[[int], tuple[Sequence[int], Sequence[int]]],
    margin_ppm: int,
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Ratio:
    """Takes samples of two contenders until it is decided which is faster, or for ``limit_s`` seconds.

    ``take(n)`` returns about ``n`` samples of the new and of the old contender, taken in turns. The samples are tested
    each time their number has at least doubled.
    """
    end = clock() + limit_s
    new: list[int] = []
    old: list[int] = []
    rounds = _FIRST_ROUNDS
    while True:
        while len(new) < rounds and (not new or clock() < end):
            taken_new, taken_old = take(rounds - len(new))
            new += taken_new
            old += taken_old
        ratio = judge_ratio(new, old, margin_ppm)
        rounds = 2 * len(new)
        if ratio.speed is not Speed.UNDECIDED or rounds > _MOST_ROUNDS or clock() >= end:
            return ratio
