"""Compares the memory that two runs of one kernel left, and judges a difference by the kernel in float64."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.fuzz.kinds import KINDS, to_float64

from .guess import Guess
from .memory import Arena, wide_kind

__all__ = ["Difference", "differences", "explained_by_doubles", "near_without_doubles", "order_matters"]


_ROUNDED = 0.05  # of the largest value: what rounding on the way may come to


@dataclass(frozen=True)
class Difference:
    """The elements of one array that are not the same: how many, and the first of them in both runs."""

    name: str
    kind: str
    where: np.ndarray
    first: tuple[float, float]

    def __str__(self) -> str:
        at = int(np.flatnonzero(self.where)[0])
        ours, theirs = self.first
        return f"{self.name} ({self.kind}) at {at}: {ours!r} and {theirs!r} ({int(self.where.sum())} elements differ)"


def differences(guess: Guess, ours: Path, theirs: Path) -> list[Difference]:
    """Elements that differ by more than rounding of a few operations, array by array."""
    arena = Arena(guess)
    one, two = arena.arrays_of(str(ours)), arena.arrays_of(str(theirs))
    found: list[Difference] = []
    for name, kind in arena.kinds.items():
        a, b = to_float64(one[name], kind), to_float64(two[name], kind)
        where = _apart(a, b, kind)
        if where.any():
            at = int(np.flatnonzero(where)[0])
            found.append(Difference(name, kind, where, (float(a[at]), float(b[at]))))
    return found


def _apart(a: np.ndarray, b: np.ndarray, kind: str) -> np.ndarray:
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not KINDS[kind].floating:
        return ~same
    near = _rounding(kind)
    with np.errstate(all="ignore"):
        distance = np.abs(a - b)
        close = distance <= near * np.maximum(np.maximum(np.abs(a), np.abs(b)), 0.25)
    return ~(same | close)


def _rounding(kind: str) -> float:
    """32 roundings of the kind, and no less than those of float32 that lie before."""
    return max(4 * 2.0 ** -KINDS[kind].precision, 2e-5) if kind != "f64" else 1e-11


def near_without_doubles(guess: Guess, found: list[Difference], one: Path, two: Path) -> bool:
    """Whether only floats differ, by less than a thousandth of the largest value that changed."""
    arena = Arena(guess)
    first, second = arena.arrays_of(str(one)), arena.arrays_of(str(two))
    for difference in found:
        kind = difference.kind
        if not KINDS[kind].floating:
            return False
        a, b = (to_float64(values[difference.name], kind)[difference.where] for values in (first, second))
        changed = to_float64(second[difference.name], kind)
        most = float(np.abs(changed[np.isfinite(changed)]).max(initial=0.25))
        if not bool((np.abs(a - b) <= max(1e-3, 2 * _rounding(kind)) * most).all()):
            return False
    return True


def order_matters(guess: Guess, found: list[Difference], forwards: Path, backwards: Path) -> list[Difference]:
    """The differences at elements that the interpreter gives the same when it runs the last program first."""
    elsewhere = {one.name: one.where for one in differences(guess, forwards, backwards)}
    left: list[Difference] = []
    for one in found:
        where = one.where & ~elsewhere.get(one.name, np.zeros_like(one.where))
        if where.any():
            left.append(Difference(one.name, one.kind, where, one.first))
    return left


def explained_by_doubles(guess: Guess, found: list[Difference], ours: Path, theirs: Path, exact: Path) -> list[str]:
    """Lines for the arrays in which Silo is farther from float64 than the interpreter's rounding explains."""
    narrow, wide = Arena(guess), Arena(guess, wide=True)
    one, two, three = narrow.arrays_of(str(ours)), narrow.arrays_of(str(theirs)), wide.arrays_of(str(exact))
    lines: list[str] = []
    for difference in found:
        name, kind = difference.name, difference.kind
        if wide_kind(kind) != "f64":
            lines.append(str(difference))
            continue
        values = three[name]
        finite = np.isfinite(values)
        scale = float(np.abs(values[difference.where & finite]).max(initial=0.0))
        with np.errstate(all="ignore"):
            mine = np.abs(to_float64(one[name], kind) - values)[difference.where]
            other = np.abs(to_float64(two[name], kind) - values)[difference.where]
        most = 4 * float(np.nan_to_num(other, nan=np.inf).max()) + 32 * 2.0 ** -KINDS[kind].precision * max(scale, 0.25)
        off = float(np.nan_to_num(mine, nan=np.inf).max())
        # Doubles are of Silo's own making: an interpreter far from them is no matter of rounding.
        far = not float(np.nan_to_num(other, nan=np.inf).max()) <= _ROUNDED * max(scale, 0.25)
        if far or off > most:
            lines.append(f"{difference}; {off:.3g} from float64, the interpreter {other.max():.3g} of {scale:.3g}")
    return lines
