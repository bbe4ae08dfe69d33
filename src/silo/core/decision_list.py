"""Decision lists: from the values of a key to a config, by the first step whose bounds hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from silo.core.config import Config
from silo.core.json_reader import read_list, read_natural, read_text
from silo.core.nodes import INT64_MAX, Argument, Const, Node, OpKind, make
from silo.core.values import JSON, MAX_BOUNDS, MAX_STEPS, Value, malformed
from silo.frozen import frozen

__all__ = ["Bound", "DecisionList", "Step"]


@frozen
class Bound:
    """``above < value <= most`` for one argument; None: no limit on that side. Natural numbers."""

    name: str
    above: int | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        if self.above is None and self.most is None:
            raise ValueError(f"a bound of {self.name} that bounds nothing")
        if self.above is not None and self.most is not None and self.above >= self.most:
            raise ValueError(f"a bound of {self.name} that no value is in: above {self.above}, at most {self.most}")

    def holds(self, value: int) -> bool:
        """Whether ``value`` is within."""
        return (self.above is None or value > self.above) and (self.most is None or value <= self.most)

    @property
    def condition(self) -> Node:
        """The same in the expression language."""
        argument = Argument(self.name)
        low = None if self.above is None else make(OpKind.GT, argument, Const(self.above))
        high = None if self.most is None else make(OpKind.LE, argument, Const(self.most))
        if low is not None and high is not None:
            return make(OpKind.AND, low, high)
        return low or high or Const(1)

    def __str__(self) -> str:
        low = "" if self.above is None else f"{self.above} < "
        high = "" if self.most is None else f" <= {self.most}"
        return f"{low}{self.name}{high}"


@frozen
class Step:
    """The config of calls within all of ``bounds``."""

    bounds: tuple[Bound, ...]
    config: Config

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether a call is within every bound."""
        return all(bound.holds(values[bound.name]) for bound in self.bounds)

    @property
    def condition(self) -> Node:
        """The bounds as one expression, for C and C++."""
        found: Node = Const(1)
        for bound in self.bounds:
            found = bound.condition if found == Const(1) else make(OpKind.AND, found, bound.condition)
        return found

    def __str__(self) -> str:
        return " and ".join(str(bound) for bound in self.bounds) or "otherwise"


@frozen
class DecisionList:
    """Steps in order; the last has no bounds, so every call of natural numbers has a config.

    >>> steps = DecisionList((Step((Bound("n", most=4096),), Config.of(BLOCK=64)), Step((), Config.of(BLOCK=512))))
    >>> str(steps.find({"n": 100})), str(steps.find({"n": 5000}))
    ('n <= 4096', 'otherwise')
    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if not self.steps or self.steps[-1].bounds or any(not step.bounds for step in self.steps[:-1]):
            raise ValueError("the last step of a decision list, and only that, has no bounds")

    @property
    def names(self) -> frozenset[str]:
        """The arguments it reads."""
        return frozenset(bound.name for step in self.steps for bound in step.bounds)

    def find(self, values: Mapping[str, Value]) -> Step | None:
        """The step for the values of the whole key; None where one is not a natural number: it was fitted on such."""
        numbers = {name: value for name, value in values.items() if type(value) is int and value >= 0}
        if len(numbers) != len(values):
            return None
        return next(step for step in self.steps if step.holds(numbers))

    def to_json(self) -> JSON:
        """The canonical form."""
        return [
            [[[bound.name, bound.above, bound.most] for bound in step.bounds], step.config.to_json()]
            for step in self.steps
        ]

    @classmethod
    def from_json(cls, data: JSON) -> DecisionList:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        steps: list[Step] = []
        for item in read_list(data, "a decision list", MAX_STEPS):
            pair = read_list(item, "a step of a decision list")
            if len(pair) != 2:
                raise malformed("a step of a decision list", item)
            bounds = tuple(_bound(bound) for bound in read_list(pair[0], "the bounds of a step", MAX_BOUNDS))
            steps.append(Step(bounds, Config.from_json(pair[1])))
        return cls(tuple(steps))


def _bound(data: JSON) -> Bound:
    parts: Sequence[JSON] = read_list(data, "a bound")
    if len(parts) != 3:
        raise malformed("a bound", data)
    name, above, most = parts
    return Bound(read_text(name, "the name of a bound"), _limit(above), _limit(most))


def _limit(data: JSON) -> int | None:
    """A limit; of more than 64 bits it would be about values that no key has."""
    if data is None:
        return None
    value = read_natural(data, "a bound")
    if value > INT64_MAX:
        raise malformed("a bound", data)
    return value
