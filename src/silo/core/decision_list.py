"""Decision lists: from the values of a key to a config, by the first step whose bounds hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from silo.core.config import Config
from silo.core.json_reader import TEXT, PersistedRow, integer, listed, optional, value_of
from silo.core.nodes import INT64_MAX, Argument, Const, Node, OpKind, make
from silo.core.values import JSON, MAX_BOUNDS, MAX_STEPS, Value
from silo.frozen import field, frozen

__all__ = ["Bound", "DecisionList", "Step"]

_LIMIT: Final = integer(0, INT64_MAX)  # of more than 64 bits it would be about values that no key has


@frozen
class Bound(PersistedRow):
    """``above < value <= most`` for one argument; None: no limit on that side. Natural numbers."""

    title = "a bound"

    name: str = field(form=TEXT)
    above: int | None = field(default=None, form=optional(_LIMIT))
    most: int | None = field(default=None, form=optional(_LIMIT))

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
class Step(PersistedRow):
    """The config of calls within all of ``bounds``."""

    title = "a step of a decision list"

    bounds: tuple[Bound, ...] = field(form=listed(value_of(Bound), most=MAX_BOUNDS))
    config: Config = field(form=value_of(Config))

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


_STEPS: Final = listed(value_of(Step), most=MAX_STEPS)


@frozen
class DecisionList:
    """Steps in order; the last is unbounded, so every call of natural numbers has a config.

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
        """The canonical form: a list of steps."""
        return _STEPS.write(self.steps)

    @classmethod
    def from_json(cls, data: JSON) -> DecisionList:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        return cls(_STEPS.read(data, "a decision list"))
