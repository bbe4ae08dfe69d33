"""Spaces: the configs worth trying, as a list or as named axes with constraints.

Constraints are expressions over a config, and perhaps integer arguments, that must not be zero.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from silo.core.config import Config, ConfigSet
from silo.core.expressions import Argument, Bindings, ConfigValue, Node, evaluate, from_json, leaves, to_json
from silo.core.json_reader import read_list, read_object, read_pairs
from silo.core.lattice import Lattice
from silo.core.trace import trace_value
from silo.core.values import JSON, Value, canonical_json, digest, value_from_json, value_to_json
from silo.errors import ExpressionError, SpaceError, TraceError

__all__ = [
    "MAX_COMBINATIONS",
    "MAX_POINTS",
    "MOST_LISTED",
    "Constraint",
    "Space",
    "bound",
    "satisfies",
    "traced",
]

# ---- Constraints of spaces: expressions over a config, and perhaps integer arguments, that must not be 0 ----

Constraint: TypeAlias = "Callable[[Any], object] | Node"


def traced(constraints: Iterable[Constraint], names: Sequence[str], key: Sequence[str]) -> tuple[Node, ...]:
    """Returns the constraints as expressions over config values ``names`` and integer arguments ``key``.

    Raises ``SpaceError`` if a constraint cannot be an expression.
    """
    return tuple(_traced(constraint, names, key) for constraint in constraints)


def _traced(constraint: Constraint, names: Sequence[str], key: Sequence[str]) -> Node:
    if not callable(constraint):
        return constraint
    try:
        return trace_value(constraint, key, names)
    except TraceError as error:
        raise SpaceError(f"a constraint of the space cannot be traced: {error}") from error


def bound(constraints: Iterable[Node], arguments: Mapping[str, Value]) -> list[Node]:
    """Returns the constraints that read only the given arguments; the others do not apply yet."""
    return [constraint for constraint in constraints if _is_bound(constraint, arguments)]


def _is_bound(constraint: Node, arguments: Mapping[str, Value]) -> bool:
    needed = [leaf for leaf in leaves(constraint) if not isinstance(leaf, ConfigValue)]
    for leaf in needed:
        if not isinstance(leaf, Argument):
            raise SpaceError(f"a constraint reads {leaf}; it may read config values and integer arguments only")
    return all(cast("Argument", leaf).name in arguments for leaf in needed)


def satisfies(config: Config, constraints: Iterable[Node], arguments: Mapping[str, Value]) -> bool:
    """Whether a config satisfies all constraints.

    Raises ``SpaceError`` if the config lacks a value that a constraint reads.
    """
    return all(_holds(constraint, config, arguments) for constraint in constraints)


def _holds(constraint: Node, config: Config, arguments: Mapping[str, Value]) -> bool:
    try:
        return evaluate(constraint, Bindings(values=arguments, config=config.as_dict())) != 0
    except ExpressionError as error:
        raise SpaceError(f"the constraint {constraint} has no value for {config}: {error}") from None


# ---- Spaces: the configs worth trying, as a list or as named axes with constraints ----

# The most configs in a list, and the most combinations of groups or axes from which a list is made.
MAX_POINTS = 1_000_000
# If the axes have at most this many combinations, all are listed; otherwise this many are drawn at random.
MOST_LISTED = 1 << 16
MAX_COMBINATIONS = 10**12
_TRIES = 4  # at most _TRIES * MOST_LISTED combinations are drawn, because constraints may exclude some of them
_SURE = 4096  # the number of drawn combinations from which the share that the constraints allow is estimated


@dataclass(frozen=True, slots=True)
class Space:
    """The configs worth trying, in a fixed order whose first is the default.

    Either ``points`` lists them or ``axes`` spans them: the last axis varies fastest, and only points that satisfy
    every constraint count. A constraint may also read integer arguments; it applies once these are given. Build with
    :meth:`of`. ``SpaceError`` names the axis or the constraint that is wrong.

    If the axes have more than 65,536 combinations, 65,536 that satisfy the constraints are drawn: the same in every
    process, with the first one in order among them. If the constraints allow fewer, and there are at most a million
    combinations, all allowed ones are listed.
    """

    axes: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    points: tuple[Config, ...] = ()
    constraints: tuple[Node, ...] = ()
    _configs: tuple[Config, ...] = field(init=False, repr=False, compare=False)
    _index: list[Lattice] = field(init=False, repr=False, compare=False, default_factory=list["Lattice"])

    def __post_init__(self) -> None:
        if bool(self.axes) == bool(self.points):
            raise SpaceError(
                "a space has either named axes or a list of configs, and this one has neither: write for example "
                'space={"BLOCK": [128, 256]}, or leave space out'
                if not self.points
                else "a space has either named axes or a list of configs, not both"
            )
        for name, values in self.axes:
            _check_axis(name, values)
        names = [name for name, _ in self.axes]
        for name in names:
            if names.count(name) > 1:
                raise SpaceError(f"the axis {name!r} occurs twice in a space")
        count = math.prod(len(values) for _, values in self.axes)
        for number, limit in ((count, MAX_COMBINATIONS), (len(self.points), MAX_POINTS)):
            if number > limit:
                raise SpaceError(f"a space of {number} points is too large; the limit is {limit}: shorten an axis")
        if count > MOST_LISTED:
            configs = self._drawn(count)
        else:
            configs = self._filtered(_distinct(self.points or map(self._at, range(count))), {})
        object.__setattr__(self, "_configs", configs)
        if not self._configs:
            raise SpaceError(f"no config of the space satisfies its constraints: {self._written}")

    @classmethod
    def of(
        cls,
        members: Mapping[str, Iterable[Value]] | Iterable[Config | Mapping[str, Value]] | Space,
        constraints: Sequence[Constraint] = (),
        key: Sequence[str] = (),
    ) -> Space:
        """Returns the space of a mapping of axes or a list of configs.

        ``constraints`` are functions of one namespace that holds the config's values by name, and the integer arguments
        named by ``key``; each is traced to an expression that must not be 0.

        >>> Space.of({"BLOCK": [64, 128], "num_warps": [4, 8]}, [lambda c: c.BLOCK >= 16 * c.num_warps]).size
        3
        """
        if isinstance(members, Space):
            return members.constrained(constraints, key)
        if isinstance(members, Mapping):
            spanned = cast("Mapping[str, Iterable[Value]]", members)
            axes = tuple((name, _axis_values(name, values)) for name, values in spanned.items())
            return cls(axes, (), traced(constraints, _names(axes, ()), key))
        points = tuple(_point(member) for member in members)
        return cls((), points, traced(constraints, _names((), points), key))

    def constrained(self, constraints: Sequence[Constraint], key: Sequence[str] = ()) -> Space:
        """Returns the space with further constraints, which may read the integer arguments that ``key`` names.

        Raises ``SpaceError`` if a constraint cannot be an expression, or if no config satisfies all constraints.
        """
        if not constraints:
            return self
        more = traced(constraints, _names(self.axes, self.points), key)
        return Space(self.axes, self.points, self.constraints + more)

    @property
    def _lattice(self) -> Lattice:
        if not self._index:
            self._index.append(Lattice(self._configs))
        return self._index[0]

    @property
    def size(self) -> int:
        """The number of configs."""
        return len(self._configs)

    @property
    def listed(self) -> tuple[Config, ...]:
        """The configs in order."""
        return self._configs

    @property
    def effort(self) -> int:
        """The number of configs that an exhaustive search measures, which is all of them."""
        return len(self._configs)

    @property
    def grouped(self) -> None:
        """Always None, because the space is a list without groups."""

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Config) and self._lattice.index(config) is not None

    def configs(self, arguments: Mapping[str, Value] | None = None) -> tuple[Config, ...]:
        """Returns the configs in order; with the values of key arguments, only those that the constraints allow.

        Raises ``SpaceError`` if the arguments exclude all configs.
        """
        if not arguments:
            return self._configs
        chosen = self._filtered(self._configs, arguments)
        if not chosen:
            argument_text = ", ".join(f"{name}={value}" for name, value in arguments.items())
            raise SpaceError(f"no config of the space satisfies its constraints for {argument_text}: {self._written}")
        return chosen

    def for_call(
        self, arguments: Mapping[str, Value] | None = None, constexprs: Mapping[str, Value] | None = None
    ) -> ConfigSet:
        """Returns the configs that agree with ``constexprs``; if none does, the first one with these values set."""
        return ConfigSet(self.configs(arguments)).for_call(constexprs=constexprs)

    def product(self) -> tuple[Config, ...]:
        """Every config: the same as :attr:`listed`."""
        return self._configs

    @property
    def _written(self) -> str:
        return "; ".join(str(constraint) for constraint in self.constraints)

    @property
    def default(self) -> Config:
        """The first config."""
        return self._configs[0]

    def neighbours(self, config: Config) -> tuple[Config, ...]:
        """Returns the configs one step away, which differ in one parameter.

        A number changes to the next smaller or larger number that the space has for it, any other value (strings,
        bools, None) to every other value. Parameters come in order of name, the smaller value first. Raises
        ``SpaceError`` if the config is not in this space.
        """
        index = self._lattice.index(config)
        if index is None:
            raise SpaceError(f"the config {config} is not in the space")
        return tuple(self._configs[near] for near in self._lattice.neighbours(index))

    def key(self) -> str:
        """The space's key in stored records (schema ``space-key/1``)."""
        return digest("space-key/1", self.to_json())

    def to_json(self) -> JSON:
        """Returns the canonical JSON form."""
        return {
            "axes": [[name, [value_to_json(value) for value in values]] for name, values in self.axes],
            "points": [point.to_json() for point in self.points],
            "constraints": [to_json(constraint) for constraint in self.constraints],
        }

    @classmethod
    def from_json(cls, data: JSON) -> Space:
        """Returns the space with this JSON form.

        Raises ``ValueError`` for any other JSON, and ``SpaceError`` for an invalid space.
        """
        members = read_object(data, ("axes", "points", "constraints"), "a space")
        return cls(
            axes=tuple(
                (name, tuple(value_from_json(value) for value in read_list(values, "an axis")))
                for name, values in read_pairs(members["axes"], "the axes of a space")
            ),
            points=tuple(Config.from_json(point) for point in read_list(members["points"], "the points of a space")),
            constraints=tuple(from_json(item) for item in read_list(members["constraints"], "constraints")),
        )

    def _at(self, index: int) -> Config:
        """Returns the ``index``-th combination of the axes' values, from 0; the last axis varies fastest."""
        members: dict[str, Value] = {}
        for name, values in reversed(self.axes):
            index, at = divmod(index, len(values))
            members[name] = values[at]
        return Config.of({name: members[name] for name, _ in self.axes})

    def _drawn(self, count: int) -> tuple[Config, ...]:
        """Draws combinations that satisfy the constraints, seeded by a hash of the axes.

        The result begins with the first allowed combination of the whole space, even if it was not drawn; the drawn
        ones follow in the space's order.
        """
        active = bound(self.constraints, {})
        first = next((at for at in range(_TRIES * MOST_LISTED) if satisfies(self._at(at), active, {})), None)
        generator = random.Random(digest("space-draw/1", self.to_json()))  # noqa: S311  # nothing secret
        drawn = {} if first is None else {first: self._at(first)}
        tried = set[int]()
        while len(drawn) < MOST_LISTED and len(tried) < min(_TRIES * MOST_LISTED, count):
            if len(tried) == _SURE and count <= MAX_POINTS and len(drawn) * count <= MOST_LISTED * _SURE:
                # the constraints allow few configs, so all of them are listed
                return self._filtered(_distinct(map(self._at, range(count))), {})
            index = generator.randrange(count)
            if index not in tried and index not in drawn:
                config = self._at(index)
                if satisfies(config, active, {}):
                    drawn[index] = config
            tried.add(index)
        return tuple(drawn[index] for index in sorted(drawn, key=lambda place: (place != first, place)))

    def _filtered(self, configs: Sequence[Config], arguments: Mapping[str, Value]) -> tuple[Config, ...]:
        active = bound(self.constraints, arguments)
        return tuple(config for config in configs if satisfies(config, active, arguments))


def _names(axes: Sequence[tuple[str, object]], points: Sequence[Config]) -> list[str]:
    """Returns the names that configs set, which constraints may read."""
    return [name for name, _ in axes] or sorted({name for point in points for name in point.as_dict()})


def _point(member: object) -> Config:
    if isinstance(member, Config):
        return member
    if not isinstance(member, Mapping):
        raise SpaceError(
            f'a space is a dict of lists, such as {{"BLOCK": [128, 256]}}, or a list of dicts; {member!r} is no dict'
        )
    return Config.of(cast("Mapping[str, Value]", member))


def _axis_values(name: str, values: object) -> tuple[Value, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise SpaceError(f"the axis {name!r} is a list of values, not {values!r}: write [{values!r}]")
    return tuple(cast("Iterable[Value]", values))


def _check_axis(name: str, values: Sequence[Value]) -> None:
    if not values:
        raise SpaceError(f"the axis {name!r} has no values: list at least one, or leave the axis out")
    try:
        texts = [canonical_json(value_to_json(value)) for value in values]
    except TypeError as error:
        raise SpaceError(f"the axis {name!r} has a value that no config can hold: {error}") from None
    for index, text in enumerate(texts):
        if text in texts[:index]:
            raise SpaceError(f"the axis {name!r} has the value {values[index]!r} twice")


def _distinct(configs: Iterable[Config]) -> tuple[Config, ...]:
    return tuple({config.order_key: config for config in configs}.values())
