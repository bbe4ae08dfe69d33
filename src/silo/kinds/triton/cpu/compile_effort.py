"""Chooses the C compiler's optimization level: lower for a long text, because its time grows faster than the length.

Most of gcc's time for long texts goes to passes over whole functions (register allocation, liveness, partial
redundancies, jump threading), and a kernel is one function. ``-O1`` still vectorises, ``-Og`` does not, and ``-O0``
does not optimize at all.

If the C compiler itself fails (gcc 13 has a bug in a pass that joins products and sums of masked vectors), the same
text is compiled with fewer passes.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SIMD", "USUAL", "CompileEffort", "effort_of", "efforts_after_a_fault"]

USUAL = "-O2"
SIMD = "-fopenmp-simd"
# longer C texts, in characters, are compiled with -O1; gcc 12 takes about 3 s for this length at -O2
_LESS_FROM = 200_000
_PLAIN_FROM = 400_000  # longer C texts are compiled with -Og; gcc 12 takes 7 s for this length at -O1
_LEAST_FROM = 1_000_000  # longer C texts are compiled with -O0; gcc 12 takes 10 s for this length at -Og


@dataclass(frozen=True, slots=True)
class CompileEffort:
    """The optimization flag of the C compiler, and the reason if it is not the usual one (otherwise "")."""

    flag: str
    reason: str = ""


def effort_of(characters: int) -> CompileEffort:
    """The effort for a kernel whose own C text, without the runtime's text, has this length.

    >>> effort_of(50_000)
    CompileEffort(flag='-O2', reason='')
    >>> effort_of(300_000).reason
    'compiled with -O1: its C text of 300 kB, more than 200, would take the C compiler long; loops are still vectorised'
    """
    if characters <= _LESS_FROM:
        return CompileEffort(USUAL)
    flag, limit, runs = "-O1", _LESS_FROM, "loops are still vectorised"
    if characters > _PLAIN_FROM:
        flag, limit, runs = "-Og", _PLAIN_FROM, "it has no vectors and runs slower; use loops (tl.range)"
    if characters > _LEAST_FROM:
        flag, limit, runs = "-O0", _LEAST_FROM, "nothing is optimised and it runs much slower; use loops (tl.range)"
    text = f"its C text of {characters // 1000} kB, more than {limit // 1000}, would take the C compiler long"
    return CompileEffort(flag, f"compiled with {flag}: {text}; {runs}")


def efforts_after_a_fault(flags: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Sets of flags to try, in order, after the C compiler failed by a bug of its own.

    Each set comes with a note that names the optimization that its code lacks.

    >>> [cost for flags, cost in efforts_after_a_fault(("-O2", "-fopenmp-simd"))]
    ['without vectors', 'with -Og, without vectors']
    """
    scalar = tuple("-fno-tree-vectorize" if flag == SIMD else flag for flag in flags)
    minimal_flags = tuple("-Og" if flag.startswith("-O") else flag for flag in scalar)
    return (scalar, "without vectors"), (minimal_flags, "with -Og, without vectors")
