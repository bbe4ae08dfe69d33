"""Runs of an innermost loop in which quotients stay the same: ``i // d`` is one number, and ``i % d`` goes up by one.

Addresses such as ``bias + i % d`` are consecutive within a run, and ``scale + i // d`` is one address, so the body of
the loop is the plain one. Dividends are ``base + index``; a run ends where one of them reaches the next multiple. Where
the divisor is a number, a run that nothing cuts has a loop of its own, whose length the C compiler knows. Where all
elements of a run do one and the same, such as look at one index, the loop goes over the quotients themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from silo.kinds.triton.cpu.loop_ir import Assign, Break, Define, For, Forever, If, Statement

__all__ = ["RUN_PRELUDE", "Runs"]

_NUMBER = re.compile(r"\(int64_t\)\(\(int32_t\)([0-9]+)\)")
# Whole runs of a known length: some vectors, and not so many that their ends are of no account.
_WHOLE = range(16, 1025, 16)
_WORD = re.compile(r"[A-Za-z_]\w*")
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
        body: Statement = inner(self.first, last)
        if (whole := self._whole_length()) is not None:
            body = If(f"{last} - {self.first} == {whole}", [inner(self.first, f"{self.first} + {whole}")], [body])
        run += [*before, body, Assign(self.first, last)]
        return [Define("int64_t", self.first, "0", mutable=True), Forever(run)]

    def by_quotients(
        self, end: str, body: list[Statement], reductions: tuple[tuple[str, str], ...]
    ) -> list[Statement] | None:
        """What each run up to ``end`` does once, as a loop over quotients; None where it asks for more than these."""
        pairs = list(self._pairs.values())
        if len(pairs) != 1 or not all(isinstance(statement, Define | Assign) for statement in body):
            return None
        (pair,) = pairs
        if {self.first, pair.remainder} & set(_WORD.findall(" ".join(map(repr, body)))):
            return None
        low, high = self.name("low"), self.name("high")

        def quotient(of: str) -> str:  # of numbers that are known to be natural where there is a run at all
            return f"{end} > 0 ? nest_quotient({of}, {pair.divisor})"

        return [
            Define("int64_t", low, f"{quotient(pair.base)} : 0"),
            Define("int64_t", high, f"{quotient(f'{pair.base} + {end} - 1')} + 1 : 0"),
            For(pair.quotient, low, high, body, simd=True, reductions=reductions),
        ]

    def _whole_length(self) -> int | None:
        """The length of a run that nothing cuts, where it is worth knowing."""
        if len(self._pairs) != 1:
            return None
        (pair,) = self._pairs.values()
        number = _NUMBER.fullmatch(pair.divisor)
        return int(number[1]) if number is not None and int(number[1]) in _WHOLE else None
