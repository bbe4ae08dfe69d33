"""The reach of a space: its own configs, and the configs that refining them may give.

Membership is decided for the configs that are asked about, which are those with trials: a space may have thousands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from silo.core.config import Config
from silo.core.search_space import SearchSpace
from silo.core.values import Value, identity_of

__all__ = ["ReachableConfigs", "changed", "halved", "one_stage", "reduction_blocks"]

# Blocks along an axis that is reduced, by Inductor's names. RSPLIT divides the grid and is none.
_REDUCTION_BLOCK = re.compile(r"R(\d+_)?BLOCK")
# Reductions of so few elements at a time are not made smaller.
_LEAST_REDUCTION = 64

_Members = tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class ReachableConfigs:
    """The configs whose trials count for a space, which is not empty.

    Members called ``fixed`` were set by the caller, and no refinement changes them. Of a space of groups, only the
    configs that it lists are refined.

    >>> from silo.core.config import ConfigSet
    >>> reach = ReachableConfigs(ConfigSet([Config.of(R0_BLOCK=256, num_stages=2)]))
    >>> Config.of(R0_BLOCK=64, num_stages=2) in reach, Config.of(R0_BLOCK=64, num_stages=1) in reach
    (True, False)
    """

    space: SearchSpace
    fixed: frozenset[str] = frozenset()

    def __contains__(self, config: Config) -> bool:
        return self.holds(config) or self.is_refined_form(config)

    def holds(self, config: Config) -> bool:
        """Whether it is a config of the space itself."""
        return config in self.space

    def is_refined_form(self, config: Config) -> bool:
        """Whether refinements of the space may come to ``config``, and it is not in the space itself."""
        key = config.order_key
        return not self.holds(config) and any(
            form.order_key == key
            for base in self._relatives.get(_unrefined(config), ())
            for form in _refined(base, self.fixed)
        )

    @property
    def refinable(self) -> bool:
        """Whether there is any refined form."""
        return any(True for config in self.space.listed for _ in _refined(config, self.fixed))

    @cached_property
    def _relatives(self) -> dict[_Members, list[Config]]:
        """The configs by what no refinement changes: a form and what it is of agree in that."""
        found: dict[_Members, list[Config]] = {}
        for config in self.space.listed:
            found.setdefault(_unrefined(config), []).append(config)
        return found


def _unrefined(config: Config) -> _Members:
    """The members that no refinement changes, with the identity of each value."""
    return tuple(
        (name, identity_of(value))
        for name, value in config.values + config.options
        if name != "num_stages" and not _REDUCTION_BLOCK.fullmatch(name)
    )


def _refined(config: Config, fixed: frozenset[str]) -> Iterator[Config]:
    """What refinements of one config may come to."""
    plain = one_stage(config)
    if plain is not None and "num_stages" not in fixed:
        yield plain
    smaller = halved(config)
    while smaller is not None:
        if not changed(config, smaller).keys() & fixed:
            yield smaller
        smaller = halved(smaller)


def reduction_blocks(configs: Iterable[Config]) -> frozenset[str]:
    """The names of the blocks that a refinement would halve."""
    return frozenset(name for config in configs for name, _ in config.values if _REDUCTION_BLOCK.fullmatch(name))


def halved(config: Config) -> Config | None:
    """The config with its largest reduction block halved; None where it has none, or they are small already."""
    blocks = {name: value for name, value in config.values if _REDUCTION_BLOCK.fullmatch(name) and type(value) is int}
    if not blocks or math.prod(blocks.values()) <= _LEAST_REDUCTION:
        return None
    largest = max(blocks, key=lambda name: blocks[name])
    return Config.of({**config.as_dict(), largest: blocks[largest] // 2})


def one_stage(config: Config) -> Config | None:
    """The config without pipelining; None where it has none."""
    stages = config.as_dict().get("num_stages")
    if type(stages) is not int or stages <= 1:
        return None
    return Config.of({**config.as_dict(), "num_stages": 1})


def changed(before: Config, after: Config) -> dict[str, Value]:
    """The members that have another value ``after``, and that value."""
    ours, theirs = before.as_dict(), after.as_dict()
    return {name: theirs[name] for name in ours if identity_of(ours[name]) != identity_of(theirs[name])}
