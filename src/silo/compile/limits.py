"""How long a compile job may take, learned from those before it."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["learned_limit"]

# A config that compiles far longer than its siblings hardly ever wins, and holds a worker meanwhile. Helion measured
# that limits of 15 to 30 s lose nothing where the 90th percentile is below (pytorch/helion #1384).
_LEAST_S = 30.0
_FACTOR = 4.0
_ENOUGH = 8  # jobs, before anything is concluded from them


def learned_limit(seconds: Iterable[float], limit_s: float) -> float:
    """Seconds the next job may take: four times the 90th percentile of ``seconds``, at least 30, at most ``limit_s``.

    >>> learned_limit([1.0] * 20, 600.0), learned_limit([20.0] * 20, 600.0), learned_limit([1.0] * 3, 600.0)
    (30.0, 80.0, 600.0)
    """
    ordered = sorted(seconds)
    if len(ordered) < _ENOUGH:
        return limit_s
    slow = ordered[len(ordered) * 9 // 10]
    return min(limit_s, max(_LEAST_S, _FACTOR * slow))
