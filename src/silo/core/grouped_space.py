"""Spaces of groups: a group's parameters hardly depend on other groups, so one group is chosen at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from silo.core.config import Config
from silo.core.expressions import Node, to_json
from silo.core.lattice import Axis, Box, Field
from silo.core.space import MAX_POINTS, Constraint, bound, satisfies, traced
from silo.core.values import JSON, Value, identity_of, value_to_json
from silo.errors import SpaceError

__all__ = ["GroupedSpace", "Steps"]


@dataclass(frozen=True, slots=True)
class Steps:
    """Parameters that always share one value, and the values to which a coordinate descent may set them.

    A search makes the coordinate descent after it has chosen among the groups.
    """

    names: tuple[str, ...]
    values: tuple[int, ...]


@dataclass(frozen=True)
class GroupedSpace:
    """Configs made of one choice for each group; the product of the groups may be far too large to list.

    ``base`` is the config to start with. Each group holds choices: values of some of the parameters, most promising
    first. A search keeps everything else as it is, tries the choices of one group, keeps the best, and continues with
    the next group (:mod:`silo.tuner.search.sequential`). ``steps`` are the further changes that the coordinate descent
    after the groups may make. A config belongs to the space if each of its parameters has a value from the base, a
    choice or a step. Only configs that satisfy every constraint count; a constraint that reads arguments applies once
    ``arguments`` has their values.

    >>> space = GroupedSpace(
    ...     Config.of(XBLOCK_0=64, XBLOCK_1=64),
    ...     tuple(tuple(Config.of({name: block}) for block in (64, 128, 256)) for name in ("XBLOCK_0", "XBLOCK_1")),
    ... )
    >>> space.effort, len(space.product()), Config.of(XBLOCK_0=256, XBLOCK_1=128) in space
    (5, 9, True)

    Raises:
        SpaceError: a group without choices; parameters that must share one value but have two; no config that
            satisfies the constraints.
    """

    base: Config
    groups: tuple[tuple[Config, ...], ...]
    steps: tuple[Steps, ...] = ()
    constraints: tuple[Node, ...] = ()
    arguments: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        members = self.base.as_dict()
        for number, choices in enumerate(self.groups):
            if not choices:
                raise SpaceError(f"group {number} of the space has no choices; give it some, or leave it out")
        stepped = [name for step in self.steps for name in step.names]
        for name in stepped:
            if name not in members:
                raise SpaceError(f"the space has steps for {name}, which its base ({self.base}) does not set")
            if stepped.count(name) > 1:
                raise SpaceError(f"the space has steps for {name} twice")
        for config in (self.base, *itertools.chain.from_iterable(self.groups)):
            for step in self.steps:
                values = {identity_of(v) for name, v in config.as_dict().items() if name in step.names}
                count = sum(name in step.names for name in config.as_dict())
                if len(values) > 1 or count not in (0, len(step.names)):
                    raise SpaceError(f"{', '.join(step.names)} are to have one value, and {config} has several")
        if not self.listed:
            written = "; ".join(str(constraint) for constraint in self.constraints)
            raise SpaceError(f"no config of the space satisfies its constraints: {written}")

    @cached_property
    def box(self) -> Box:
        """All configs of the space, addressed by number."""
        ties = {name: step.names for step in self.steps for name in step.names}
        values_of: dict[tuple[str, ...], dict[object, Value]] = {}
        for config in (self.base, *itertools.chain.from_iterable(self.groups)):
            for name, value in config.as_dict().items():
                values_of.setdefault(ties.get(name, (name,)), {}).setdefault(identity_of(value), value)
        for step in self.steps:
            values_of[step.names] |= {identity_of(value): value for value in step.values}
        base = self.base.as_dict()
        fields = [
            Field(names, Axis.of(names[0], values.values()), optional=names[0] not in base)
            for names, values in sorted(values_of.items())
        ]
        return Box(fields, self._allowed)

    @property
    def grouped(self) -> GroupedSpace:
        """The space itself: a search goes through its groups one by one. Spaces without groups have None here."""
        return self

    @property
    def size(self) -> int:
        """The largest possible number of configs."""
        return self.box.size

    @property
    def effort(self) -> int:
        """The most configs that a search through the groups measures, if the base can be used."""
        return 1 + sum(len(choices) - 1 for choices in self.groups)

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Config) and self.box.index(config) is not None

    @cached_property
    def listed(self) -> tuple[Config, ...]:
        """The base, and each allowed config that differs from it in only one group."""
        every = (self.base, *(self.chosen(self.base, choices, choice) for choices in self.groups for choice in choices))
        return tuple({config.order_key: config for config in every if self._allowed(config)}.values())

    def configs(self, arguments: Mapping[str, Value] | None = None) -> tuple[Config, ...]:
        """Returns the :attr:`listed` configs that the values of key arguments allow.

        Raises ``SpaceError`` if they allow none.
        """
        return (self.for_call(arguments) if arguments else self).listed

    @property
    def default(self) -> Config:
        """The config to start with: the base if it is allowed."""
        return self.listed[0]

    def alternatives(self, config: Config, group: int) -> tuple[Config, ...]:
        """Returns ``config`` with each choice of a group, in the group's order, without those that are not allowed."""
        choices = self.groups[group]
        every = (self.chosen(config, choices, choice) for choice in choices)
        return tuple({candidate.order_key: candidate for candidate in every if self._allowed(candidate)}.values())

    def chosen(self, config: Config, choices: Sequence[Config], choice: Config) -> Config:
        """Returns ``config`` with one of a group's choices.

        Parameters that only other choices set take the base's values.
        """
        own = {name for choice in choices for name in choice.as_dict()}
        others = {name: value for name, value in config.as_dict().items() if name not in own}
        plain = {name: value for name, value in self.base.as_dict().items() if name in own}
        return Config.of({**others, **plain, **choice.as_dict()})

    @property
    def least(self) -> Config | None:
        """The config made of each group's smallest choice; None if the constraints do not allow it.

        Its code may fit on a device on which the code of the base does not.
        """
        config = self.base
        for choices in self.groups:
            config = self.chosen(config, choices, min(choices, key=_volume))
        return config if self._allowed(config) else None

    def product(self) -> tuple[Config, ...]:
        """Returns every combination of choices, in the order of nested loops over the groups.

        Raises ``SpaceError`` if there are too many.
        """
        count = math.prod(len(choices) for choices in self.groups)
        if count > MAX_POINTS:
            raise SpaceError(
                f"the groups have {count} combinations, which are too many to list; the limit is {MAX_POINTS}: "
                "search them group by group (the searcher sequential), or shorten a group"
            )
        combined = [self.base]
        for choices in self.groups:  # each round extends the configs that the earlier rounds made
            combined = [self.chosen(config, choices, choice) for config in combined for choice in choices]
        distinct = {config.order_key: config for config in (self.default,)}
        for config in combined:
            if self._allowed(config):
                distinct.setdefault(config.order_key, config)
        return tuple(distinct.values())

    def constrained(self, constraints: Sequence[Constraint], key: Sequence[str] = ()) -> GroupedSpace:
        """Returns the space with further constraints, which may read the integer arguments that ``key`` names.

        Raises ``SpaceError`` if a constraint cannot be an expression, or if no config satisfies all constraints.
        """
        names = sorted({name for config in (self.base, *itertools.chain(*self.groups)) for name in config.as_dict()})
        return replace(self, constraints=(*self.constraints, *traced(constraints, names, key)))

    def for_call(
        self, arguments: Mapping[str, Value] | None = None, constexprs: Mapping[str, Value] | None = None
    ) -> GroupedSpace:
        """Returns the part of the space that one call may use.

        ``arguments`` are the values of the call's key arguments, ``constexprs`` the config members that the caller has
        set.

        A group keeps the choices that agree with the caller's members; if none does, its only choice is the base's
        members with the caller's values. If the caller's values break the constraints, the space consists of the
        caller's config alone.
        """
        known_arguments = tuple(arguments.items()) if arguments else self.arguments
        if not constexprs:
            return replace(self, arguments=known_arguments)
        base = Config.of({**self.base.as_dict(), **constexprs})
        groups: list[tuple[Config, ...]] = []
        for choices in self.groups:
            own = {name for choice in choices for name in choice.as_dict()}
            now = Config.of({name: value for name, value in base.as_dict().items() if name in own})
            fitting = tuple(choice for choice in choices if _agrees(choice, constexprs)) or (now,)
            if now not in fitting:
                base = Config.of({**base.as_dict(), **fitting[0].as_dict()})
            groups.append(fitting)
        steps = tuple(step for step in self.steps if not constexprs.keys() & set(step.names))
        try:
            return replace(self, base=base, groups=tuple(groups), steps=steps, arguments=known_arguments)
        except SpaceError:
            return GroupedSpace(base, ())

    def _allowed(self, config: Config) -> bool:
        return satisfies(config, self._active, dict(self.arguments))

    @cached_property
    def _active(self) -> list[Node]:
        return bound(self.constraints, dict(self.arguments))

    def to_json(self) -> JSON:
        """Returns the canonical JSON form, which is part of the keys of searches."""
        return {
            "base": self.base.to_json(),
            "groups": [[choice.to_json() for choice in choices] for choices in self.groups],
            "steps": [[list(step.names), list(step.values)] for step in self.steps],
            "constraints": [to_json(constraint) for constraint in self.constraints],
            "arguments": {name: value_to_json(value) for name, value in self.arguments},
        }


def _agrees(choice: Config, constexprs: Mapping[str, Value]) -> bool:
    return all(
        name not in constexprs or identity_of(constexprs[name]) == identity_of(value)
        for name, value in choice.as_dict().items()
    )


def _volume(choice: Config) -> int:
    return math.prod(value for value in choice.as_dict().values() if type(value) is int and value > 0)
