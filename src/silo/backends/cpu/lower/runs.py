"""Runs of an innermost loop in which quotients stay the same: ``i // d`` is one number, and ``i % d`` goes up by one.

Addresses such as ``bias + i % d`` are consecutive within a run, and ``scale + i // d`` is one address, so the body of
the loop is the plain one. Dividends are ``base + index``; a run ends where one of them reaches the next multiple.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from silo.backends.cpu.loop_ir import Assign, Break, Define, For, Forever, If, Statement

__all__ = ["RUN_PRELUDE", "Runs"]

# A run of fewer iterations costs more than quotients for each.
_SHORTEST = 16

RUN_PRELUDE = f"""\
/* limit, where base .. base + limit - 1 are natural 32-bit numbers and the divisor makes runs worth having; else 0. */
SILO_INLINE int64_t nest_runs(int64_t base, int64_t divisor, int64_t limit) {{
  return base >= 0 && divisor >= {_SHORTEST} && base + limit - 1 <= 2147483647 ? limit : 0;
}}

/* Of natural numbers; most are below the divisor. */
SILO_INLINE int64_t nest_quotient(int64_t dividend, int64_t divisor) {{
  return dividend < divisor ? 0 : (int64_t)((uint64_t)dividend / (uint64_t)divisor);
}}
"""


@dataclass(frozen=True, slots=True)
class _Pair:
    """One dividend and divisor: C texts of both, and the names of quotient and remainder where a run begins."""

    base: str
    divisor: str
    quotient: str
    remainder: str


@dataclass(slots=True)
class Runs:
    """The runs of one nest. ``first`` is the C name of the index at which a run begins."""

    name: Callable[[str], str]
    first: str
    _pairs: dict[tuple[str, str], _Pair] = field(default_factory=dict[tuple[str, str], _Pair])

    def pair(self, base: str, divisor: str) -> _Pair:
        """The names that stand for ``(base + index) // divisor`` and the remainder within a run."""
        found = self._pairs.get((base, divisor))
        if found is None:
            found = _Pair(base, divisor, self.name("quotient"), self.name("remainder"))
            self._pairs[base, divisor] = found
        return found

    @property
    def limits(self) -> list[str]:
        """What bounds the part of the loop that has runs, as texts over ``limit``."""
        return [f"nest_runs({pair.base}, {pair.divisor}, limit)" for pair in self._pairs.values()]

    def loop(self, end: str, before: list[Statement], inner: Callable[[str, str], For]) -> list[Statement]:
        """The runs up to ``end``: statements of each, then its innermost loop, made of its two bounds."""
        last = self.name("last")
        run: list[Statement] = [If(f"{self.first} >= {end}", [Break()])]
        for pair in self._pairs.values():
            dividend = f"{pair.base} + {self.first}"
            run.append(Define("int64_t", pair.quotient, f"nest_quotient({dividend}, {pair.divisor})"))
            run.append(Define("int64_t", pair.remainder, f"{dividend} - {pair.quotient} * ({pair.divisor})"))
        run.append(Define("int64_t", last, end, mutable=True))
        for pair in self._pairs.values():
            next_ = f"{self.first} + ({pair.divisor}) - {pair.remainder}"
            run.append(Assign(last, f"{last} < {next_} ? {last} : {next_}"))
        run += [*before, inner(self.first, last), Assign(self.first, last)]
        return [Define("int64_t", self.first, "0", mutable=True), Forever(run)]
