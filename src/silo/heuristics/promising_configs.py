"""The order in which configs of a declared space are worth trying on a CPU, before anything was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from silo.core.config import Config
from silo.tuner.statistics import median

__all__ = ["promising_configs"]

# Programs for each thread: few enough that each reuses what it loads, enough that threads end together.
_EACH = 4
# A thread without a program costs more than a program that is too small.
_IDLE = 4.0


def promising_configs(
    configs: Sequence[Config], programs_of: Callable[[Config], int | None], threads: int, limit: int
) -> tuple[Config, ...]:
    """At most ``limit`` of ``configs``, most promising first.

    The best have about four programs for each thread. Configs with about as many programs are ordered by the product of
    their numbers, the middle first, then by how much these differ: a square tile reuses more than a long one. Configs
    for which ``programs_of`` returns None are left out, and all are if the grids of all are equal, because nothing is
    known about such a space then.

    >>> from silo.core.config import Config
    >>> space = [Config.of(BLOCK=block) for block in (16, 64, 256, 1024)]
    >>> found = promising_configs(space, lambda one: 4096 // one.as_dict()["BLOCK"], 4, 2)
    >>> [config.as_dict()["BLOCK"] for config in found]
    [256, 64]
    """
    programs = {config.order_key: programs_of(config) for config in configs}
    counted = [config for config in configs if programs[config.order_key]]
    if len({programs[config.order_key] for config in counted}) < 2:
        return ()
    middle = math.log2(median([math.prod(_numbers(config)) for config in counted]))

    def badness(config: Config) -> tuple[int, float, float]:
        count = programs[config.order_key] or 1
        distance = abs(math.log2(count / (_EACH * threads)))
        if count < threads:
            distance += _IDLE * math.log2(threads / count)
        numbers = _numbers(config)
        return round(distance), abs(math.log2(math.prod(numbers)) - middle), max(numbers) / min(numbers)

    return tuple(sorted(counted, key=badness)[:limit])


def _numbers(config: Config) -> list[int]:
    return [value for value in config.as_dict().values() if type(value) is int and value > 0] or [1]
