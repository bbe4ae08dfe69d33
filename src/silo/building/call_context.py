"""The context of a call: everything that decides which code serves it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from silo.core.config import Config
from silo.core.device import Target
from silo.core.dispatch import Bucket, bucket_of
from silo.core.protocols import Device
from silo.core.search_space import Rule, SearchSpace
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.values import Value
from silo.launch.arguments import SeenCall
from silo.tuner.refine import ReachableConfigs, reduction_blocks

__all__ = ["CallContext"]


@dataclass(frozen=True)
class CallContext:
    """One call with everything that decides its variant, except the config.

    ``values`` are the call's scalars by name. ``given`` are the config's constexprs and options that the caller set;
    ``searched`` are the configs of ``space`` that agree with ``given``. ``rule`` is the heuristic that made the space,
    or None. ``key`` names the scalars that tuning depends on, ``config_names`` the names that configs set. ``left_out``
    maps the ``order_key`` of each config of the space that is not a candidate to the reason: the author's pruning
    function excludes the config for this call, or, in deterministic mode, the config's results would differ from the
    first config's in some bits. ``other_bits`` is the part of ``left_out`` with the latter reason.
    """

    call: SeenCall
    device: Device
    signature: Signature
    specialization: Specialization
    values: Mapping[str, Value]
    given: Mapping[str, Value]
    searched: SearchSpace
    space: SearchSpace
    key: tuple[str, ...]
    config_names: tuple[str, ...]
    rule: Rule | None = None
    deterministic: bool = False
    left_out: Mapping[bytes, str] = field(default_factory=dict[bytes, str])
    other_bits: Mapping[bytes, str] = field(default_factory=dict[bytes, str])

    @property
    def candidates(self) -> tuple[Config, ...]:
        """The configs that are searched, the default first.

        In a space that consists of groups of choices, these are only the base config and the configs that differ from
        it in one group, and not every combination of the groups' choices.
        """
        return self.searched.listed

    def candidates_on(self, target: Target, facts: Mapping[str, int]) -> tuple[Config, ...]:
        """Returns the candidates on another target. ``facts`` are a device's facts (``sm_count``, ...), or {}."""
        if self.rule is None:
            return self.candidates
        return self.rule.space(target, facts, self.values).for_call(self.integers, self.given).listed

    @cached_property
    def reach(self) -> ReachableConfigs:
        """The configs whose trials count: the searched configs, and the configs that refining them can produce."""
        fixed_names = frozenset(self.given)
        fixed = fixed_names | reduction_blocks(self.candidates) if self.deterministic else fixed_names
        return ReachableConfigs(self.searched, fixed)

    @cached_property
    def bucket(self) -> Bucket:
        """The bucket of the call's key arguments: the calls of a bucket are tuned together. Needs no compiler."""
        return bucket_of([self.values[name] for name in self.key])

    @property
    def integers(self) -> dict[str, Value]:
        """The integers among the key's values, which constraints may read."""
        return {name: self.values[name] for name in self.key if isinstance(self.values.get(name), int)}
