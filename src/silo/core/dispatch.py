"""Buckets of key values, and the rules that lead from a bucket to a config: a table, and a rule for the rest.

The bucket function of one integer, the same in Python and C::

    int64_t bucket(int64_t v) {                      /* v <= 16: itself; above: the next power of two */
        if (v < 0) return v == INT64_MIN ? -INT64_MAX : -bucket(-v);
        if (v <= 16) return v;
        if (v > (INT64_C(1) << 62)) return INT64_MAX;
        return INT64_C(1) << (64 - __builtin_clzll((uint64_t)v - 1));
    }

A bucket is named by the integer that ``bucket`` returns for all its values. This integer is itself a value of the
bucket (``bucket(bucket(v)) == bucket(v)``), and the one with the largest magnitude.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from silo.core.config import Config
from silo.core.expressions import INT64_MAX, Argument, Const, Node, OpKind, make
from silo.core.json_reader import TEXT, Form, Persisted, PersistedRow, integer, listed, optional, read_list, value_of
from silo.core.values import (
    JSON,
    MAX_BOUNDS,
    MAX_NAMES,
    MAX_STEPS,
    ExactTuple,
    Value,
    canonical_json,
    identity_of,
    malformed,
    value_from_json,
    value_to_json,
)
from silo.frozen import field, frozen

__all__ = [
    "BUCKET",
    "EXACT_LIMIT",
    "Bound",
    "Bucket",
    "DecisionList",
    "DispatchRules",
    "Match",
    "Step",
    "bucket_from_json",
    "bucket_of",
    "bucket_to_json",
    "distance",
]


# ---- Decision lists ----


_LIMIT: Final = integer(0, INT64_MAX)  # a bound of more than 64 bits would be beyond every possible key value


@frozen
class Bound(PersistedRow):
    """``above < value <= most`` for one argument, in natural numbers. A side that is None is unlimited."""

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
        """Whether ``value`` is within the bound."""
        return (self.above is None or value > self.above) and (self.most is None or value <= self.most)

    @property
    def condition(self) -> Node:
        """Returns the bound in the expression language."""
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
    """A step of a decision list: the config of calls that are within all of ``bounds``."""

    title = "a step of a decision list"

    bounds: tuple[Bound, ...] = field(form=listed(value_of(Bound), most=MAX_BOUNDS))
    config: Config = field(form=value_of(Config))

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether a call is within every bound."""
        return all(bound.holds(values[bound.name]) for bound in self.bounds)

    @property
    def condition(self) -> Node:
        """The bounds as one expression, which C and C++ evaluate: not 0 if a call is within every bound."""
        condition: Node = Const(1)
        for bound in self.bounds:
            condition = bound.condition if condition == Const(1) else make(OpKind.AND, condition, bound.condition)
        return condition

    def __str__(self) -> str:
        return " and ".join(str(bound) for bound in self.bounds) or "otherwise"


_STEPS: Final = listed(value_of(Step), most=MAX_STEPS)


@frozen
class DecisionList:
    """Steps in order; the last is unbounded, so every call whose values are natural numbers has a config.

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
        """The arguments that the bounds read."""
        return frozenset(bound.name for step in self.steps for bound in step.bounds)

    def find(self, values: Mapping[str, Value]) -> Step | None:
        """Returns the step for the values of a whole key; None if a value is not a natural number."""
        numbers = {name: value for name, value in values.items() if type(value) is int and value >= 0}
        if len(numbers) != len(values):
            return None
        return next(step for step in self.steps if step.holds(numbers))

    def to_json(self) -> JSON:
        """Returns the canonical JSON form: a list of steps."""
        return _STEPS.write(self.steps)

    @classmethod
    def from_json(cls, data: JSON) -> DecisionList:
        """Returns the decision list with this JSON form; raises ``ValueError`` for any other JSON."""
        return cls(_STEPS.read(data, "a decision list"))


# ---- Buckets of key values, and the rules that lead from a bucket to a config ----


# Integers up to this one are buckets of their own: batches of 3 and of 4 are different problems.
EXACT_LIMIT = 16

# Buckets that bucket_of and bucket_from_json return are equal only if their canonical forms are: (True,) differs from
# (1,), although Python's tuples of these values are equal.
Bucket: TypeAlias = tuple[Value, ...]


def bucket_of(values: Sequence[Value]) -> Bucket:
    """Returns the bucket of a call's key values. Only integers are grouped; bools, strings, dtypes etc. stay exact.

    >>> bucket_of((3, 1000, 1025, "relu"))
    (3, 1024, 2048, 'relu')
    """
    return ExactTuple(
        _bucket(value) if isinstance(value, int) and not isinstance(value, bool) else value for value in values
    )


def _bucket(value: int) -> int:
    if value < 0:
        return -_bucket(-value)
    if value <= EXACT_LIMIT:
        return value
    return min(1 << (value - 1).bit_length(), INT64_MAX)


def distance(left: Bucket, right: Bucket) -> int | None:
    """Returns the distance of two buckets, in sixteenths of an octave, summed over the buckets' integers.

    Returns None if the buckets cannot be compared. An octave is a factor of two. To get exact integers, log2 is
    replaced by a function that is linear between powers of two. 0 is one octave below 1. Buckets are comparable if
    their integers have equal signs and all their other values are equal.
    """
    if len(left) != len(right):
        return None
    total = 0
    for a, b in zip(left, right, strict=True):
        if type(a) is int and type(b) is int and (a < 0) == (b < 0):
            total += abs(_position(abs(a)) - _position(abs(b)))
        elif identity_of(a) != identity_of(b):
            return None
    return total


def _position(value: int) -> int:
    if value == 0:
        return -16
    octave = value.bit_length() - 1
    return 16 * octave + (16 * (value - (1 << octave)) >> octave)


def bucket_to_json(bucket: Bucket) -> JSON:
    """Returns the canonical JSON form of a bucket: a list of values."""
    return [value_to_json(value) for value in bucket]


def bucket_from_json(data: JSON) -> Bucket:
    """Returns the bucket with this JSON form; raises ``ValueError`` for any other JSON."""
    return ExactTuple(value_from_json(item) for item in read_list(data, "a bucket", MAX_NAMES))


BUCKET: Final[Form[Bucket]] = Form(lambda data, what: bucket_from_json(data), bucket_to_json)  # noqa: ARG005  # see Form


@frozen
class Match:
    """The config chosen for a bucket. ``rule`` is the bucket of the table's rule that was used, or None."""

    config: Config
    rule: Bucket | None = field(identity=identity_of)
    reason: str

    @property
    def is_exact(self) -> bool:
        """Whether the table has a rule for exactly this bucket."""
        return self.reason == "exact"


def _read_rule(data: JSON, label: str) -> tuple[Bucket, Config]:
    parts = read_list(data, label)
    if len(parts) != 2:
        raise malformed(label, data)
    return bucket_from_json(parts[0]), Config.from_json(parts[1])


def _write_rule(rule: tuple[Bucket, Config]) -> JSON:
    return [bucket_to_json(rule[0]), rule[1].to_json()]


@frozen
class DispatchRules(Persisted):
    """Maps the values of the arguments in ``key`` to a config: a table of buckets, and a rule for all other buckets.

    The table gives each of its buckets a config. For other buckets the decision list ``unseen`` decides, if present
    (tuning stores the list only if its choices for held-out buckets were better, see :mod:`silo.tuner.generalization`);
    otherwise the nearest bucket of the table decides (the first by canonical text, if several are equally near).
    ``fallback`` is for values that cannot be compared with any bucket. Rules are kept in canonical order, so equal
    tables compare equal. ``objective`` names the metric and the constraints that chose the configs; "" is time.
    """

    title = "dispatch rules"

    key: tuple[str, ...] = field(form=listed(TEXT, most=MAX_NAMES))
    rules: tuple[tuple[Bucket, Config], ...] = field(identity=identity_of, form=listed(Form(_read_rule, _write_rule)))
    fallback: Config = field(form=value_of(Config))
    unseen: DecisionList | None = field(default=None, form=value_of(DecisionList), left_out=True)
    objective: str = field(default="", form=TEXT, left_out=True, since=9)

    def __post_init__(self) -> None:
        ordered = sorted(self.rules, key=lambda rule: canonical_json(bucket_to_json(rule[0])))
        texts = [canonical_json(bucket_to_json(bucket)) for bucket, _ in ordered]
        if len(set(texts)) != len(texts):
            raise ValueError("two dispatch rules have one bucket")
        for bucket, _ in ordered:
            if len(bucket) != len(self.key):
                raise ValueError(f"the bucket {bucket!r} does not have one value for each of {self.key!r}")
        if self.unseen is not None and (strange := self.unseen.names - set(self.key)):
            raise ValueError(f"a decision list reads {', '.join(sorted(strange))}, which is not in {self.key!r}")
        object.__setattr__(self, "rules", tuple(ordered))

    @classmethod
    def of(
        cls,
        key: Sequence[str],
        table: Mapping[Bucket, Config],
        fallback: Config,
        unseen: DecisionList | None = None,
        objective: str = "",
    ) -> DispatchRules:
        """Returns the rules for a table."""
        return cls(tuple(key), tuple(table.items()), fallback, unseen, objective)

    def lookup(self, values: Sequence[Value]) -> Match:
        """Returns the config for these key values (not yet bucketed).

        Always succeeds, because ``fallback`` is required.

        >>> rules = DispatchRules.of(["n"], {(1024,): Config.of(BLOCK=256)}, Config.of(BLOCK=64))
        >>> rules.lookup([3000]).config
        Config(values=(('BLOCK', 256),), options=())
        """
        bucket = bucket_of(values)
        near: tuple[int, Bucket, Config] | None = None
        for rule, config in self.rules:  # rules are in canonical order, so the first of equally near buckets wins
            apart = distance(bucket, rule)
            if apart is not None and (near is None or apart < near[0]):
                near = (apart, rule, config)
        if self.unseen is not None and (near is None or near[0] > 0):
            # Look up the bucket, not the value: a launcher makes one decision for all values of a bucket, so the list's
            # bounds are bounds on the integers that name buckets.
            step = self.unseen.find(dict(zip(self.key, bucket, strict=True)))
            if step is not None:
                return Match(step.config, None, f"decision list: {step}")
        if near is None:
            return Match(self.fallback, None, "no rule is comparable: fallback")
        apart, rule, config = near
        return Match(config, rule, "exact" if apart == 0 else f"nearest bucket, {apart / 16:g} octaves away")

    def explain(self, values: Sequence[Value]) -> str:
        """Describes the lookup in words, a line for each rule."""
        bucket, match = bucket_of(values), self.lookup(values)
        key_text = ", ".join(f"{name}={value}" for name, value in zip(self.key, values, strict=True))
        lines = [f"{key_text or 'no key'} -> {match.config} ({match.reason})"]
        for rule, config in self.rules:
            apart = distance(bucket, rule)
            how = "not comparable" if apart is None else f"{apart / 16:g} octaves away"
            sign = "*" if identity_of(rule) == identity_of(match.rule) else " "
            lines.append(f" {sign} {_label(self.key, rule)}: {config} ({how})")
        if self.unseen is not None:
            for step in self.unseen.steps:
                sign = "*" if match.reason == f"decision list: {step}" else " "
                lines.append(f" {sign} other sizes, {step}: {step.config}")
        lines.append(f" {'*' if match.reason.endswith('fallback') else ' '} otherwise: {self.fallback}")
        if self.objective:
            lines.append(f"   chosen by the objective {self.objective}")
        return "\n".join(lines)


def _label(key: Sequence[str], bucket: Bucket) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(key, bucket, strict=True))
