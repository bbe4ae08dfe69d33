"""Kinds of attributes, and rules: which attributes an operation may have, and of which kind.

Passes read attributes by name and write some of them into C text, and a text may come from an untrusted source. So an
operation may have only the attributes that Triton 3.6 to 3.9 give it, each of the expected kind. Operations without a
record are not checked; they are refused when code is generated for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from silo.kinds.triton.front.mlir_text import FLOAT_FORMATS
from silo.kinds.triton.front.operations.type_rules import malformed
from silo.kinds.triton.front.ssa import Attribute, Dense, Operation

__all__ = [
    "ARRAY",
    "AXIS",
    "COUNT",
    "EXACT",
    "FACTS",
    "FAST",
    "FLAG",
    "INT32",
    "NO_ATTRIBUTES",
    "OPAQUE",
    "OWN",
    "ROUNDED",
    "SPACE_OR_HINT",
    "SYMBOL",
    "TEXT",
    "TYPED_CONSTANT",
    "UNREAD",
    "UNSIGNED",
    "VISIBILITY",
    "WRAPS",
    "AttributeKind",
    "AttributeRules",
    "any_number",
    "check_attributes",
    "integer",
    "integers",
    "rules",
    "segments",
]

# the prefix of the operations that Silo's own passes add; a module's text that Silo reads must not contain them
OWN = "silo."
_MAX_RANK = 64
_INTEGER = re.compile(r"i([0-9]{1,3})")
_MAX_TEXT = 1 << 16  # the most characters of one string; far more than any message or instruction needs


@dataclass(frozen=True, slots=True)
class AttributeKind:
    """A condition on an attribute's value: its description, and its test."""

    words: str
    fits: Callable[[Operation, Attribute], bool]


@dataclass(frozen=True, slots=True)
class AttributeRules:
    """The attributes that an operation must have, and those that it may have."""

    needed: Mapping[str, AttributeKind]
    allowed: Mapping[str, AttributeKind]


def check_attributes(operation: Operation, rules: AttributeRules | None) -> None:
    """Checks the attributes of an operation against the rules of its record; ``rules`` is None without a record.

    Raises:
        SourceError: an attribute is not in the rules, or of another kind, or missing; or the operation is one that only
            Silo's own passes add.
    """
    if operation.name.startswith(OWN):
        raise malformed(operation, "it is an operation that Silo itself adds, and stands in no text")
    if rules is None:
        return
    attributes = operation.attributes
    for name in rules.needed:
        if name not in attributes:
            raise malformed(operation, f"it has the attribute {name}")
    for name, value in attributes.items():
        kind = rules.allowed.get(name) or _discardable(name)
        if kind is None:
            allowed_names = ", ".join(sorted(rules.allowed)) or "none of its own"
            raise malformed(operation, f"the attribute {name!r} is none that Triton gives it; known: {allowed_names}")
        if not kind.fits(operation, value):
            raise malformed(operation, f"its attribute {name} is {kind.words}")


# ---- kinds


def _is_int(value: Attribute) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def integer(low: int, high: int) -> AttributeKind:
    """Returns the kind of an attribute that is an integer from ``low`` to ``high``."""

    def fits(_operation: Operation, value: Attribute) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return AttributeKind(f"an integer from {low} to {high}", fits)


def integers(count: Callable[[Operation], int | None]) -> AttributeKind:
    """Returns the kind of an array of 32-bit integers with ``count(operation)`` items, any number of them for None."""

    def fits(operation: Operation, value: Attribute) -> bool:
        expected = count(operation)
        return (
            isinstance(value, tuple)
            and (expected is None or len(value) == expected)
            and all(INT32.fits(operation, item) for item in value)
        )

    return AttributeKind("an array of integers, one for each of what it is about", fits)


def any_number(_operation: Operation) -> None:
    """Passed to :func:`integers` as ``count`` to accept an array of any length."""
    return


def segments(groups: int, largest: int | None = None) -> AttributeKind:
    """Returns the kind of ``operandSegmentSizes``: ``groups`` sizes whose sum is the number of operands.

    Each size is at most ``largest``.
    """

    def fits(operation: Operation, value: Attribute) -> bool:
        if not isinstance(value, tuple) or len(value) != groups:
            return False
        sizes = [item for item in value if isinstance(item, int) and not isinstance(item, bool) and item >= 0]
        maximum = max(sizes, default=0)
        return (
            len(sizes) == groups and sum(sizes) == len(operation.operands) and (largest is None or maximum <= largest)
        )

    return AttributeKind(f"the sizes of {groups} groups that its operands come in", fits)


def _is_constant(operation: Operation, value: Attribute) -> bool:
    """Whether ``value`` is a number of the result's type, or a tensor of such numbers."""
    if len(operation.results) != 1:
        return False
    kind = operation.result.type
    if isinstance(value, Dense):
        return value.type == kind and all(_is_number(item, kind.element) for item in value.values)
    return not kind.tensor and not kind.pointer and _is_number(value, kind.element)


def _is_number(value: Attribute, element: str) -> bool:
    if element in FLOAT_FORMATS:
        return isinstance(value, float)
    if element == "i1":
        return isinstance(value, int) and value in (-1, 0, 1)
    bits = 64 if element == "index" else _width(element)
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << (bits - 1)) <= value < 1 << bits


def _width(element: str) -> int:
    match = _INTEGER.fullmatch(element)
    return int(match.group(1)) if match is not None else 1


def _is_hint(_operation: Operation, value: Attribute) -> bool:
    values = value.values if isinstance(value, Dense) else value if isinstance(value, tuple) else (value,)
    return len(values) <= _MAX_RANK and all(_is_int(item) for item in values)


def _is_axis(operation: Operation, value: Attribute) -> bool:
    if not isinstance(value, int) or isinstance(value, bool) or not operation.operands:
        return False
    return 0 <= value < len(operation.operands[0].type.shape)


def _are_argument_facts(operation: Operation, value: Attribute) -> bool:
    """Whether ``value`` is one dictionary of facts for each argument.

    Dictionaries for results, which nothing reads, may follow.
    """
    del operation
    return isinstance(value, tuple) and all(
        isinstance(facts, Mapping) and all(_is_fact(name, fact) for name, fact in facts.items()) for facts in value
    )


def _is_fact(name: str, fact: Attribute) -> bool:
    kind = _ARGUMENT_FACTS.get(name)
    return kind is not None and kind.fits(_NOBODY, fact)


_NOBODY = Operation("", [], [], {})

ARRAY = AttributeKind("an array", lambda _operation, value: isinstance(value, tuple))
FLAG = AttributeKind("a flag: true or false", lambda _operation, value: isinstance(value, bool))
TEXT = AttributeKind(
    f"a string of at most {_MAX_TEXT} characters",
    lambda _operation, value: isinstance(value, str) and len(value) <= _MAX_TEXT,
)
SYMBOL = AttributeKind("a symbol", lambda _operation, value: isinstance(value, str) and value.startswith("@"))
# A dialect's own attribute that is only a hint: it is kept as text, and no pass reads it.
OPAQUE = AttributeKind(
    "a hint of its dialect", lambda _operation, value: isinstance(value, str) and value.startswith("#")
)
UNREAD = AttributeKind(
    "a number, a flag or an attribute of a dialect",
    lambda _operation, value: isinstance(value, bool | int | tuple) or (isinstance(value, str) and value[:1] == "#"),
)
INT32 = integer(-(2**31), 2**31 - 1)
COUNT = integer(0, 2**31 - 1)
TYPED_CONSTANT = AttributeKind("a constant of the result's type", _is_constant)
_HINT = AttributeKind("an integer for each axis", _is_hint)
AXIS = AttributeKind("an axis of its operand", _is_axis)
SPACE_OR_HINT = AttributeKind(
    "a bit for each space, or a hint", lambda _operation, value: _is_int(value) or _is_opaque(value)
)
VISIBILITY = AttributeKind(
    "public, private or nested", lambda _operation, value: isinstance(value, str) and value in _VISIBILITIES
)
_VISIBILITIES = frozenset({"public", "private", "nested"})
FACTS = AttributeKind("the facts that are known of each argument", _are_argument_facts)


def _is_opaque(value: Attribute) -> bool:
    return isinstance(value, str) and value.startswith("#")


# ---- attributes that any operation may have: facts and hints of Triton's language and its passes, none of which is
# written into C text

_HINTS = re.compile(r"tt\.(?:divisibility|contiguity|constancy)(?:_arg[0-9]{1,6})?")
_ARGUMENT_FACTS: Mapping[str, AttributeKind] = MappingProxyType(
    {
        "tt.divisibility": _HINT,
        "tt.contiguity": _HINT,
        "tt.constancy": _HINT,
        "tt.pointer_range": _HINT,
        "tt.nv_tma_desc": _HINT,
    }
)
_EVERYWHERE: Mapping[str, AttributeKind] = MappingProxyType(
    {
        "tt.num_stages": INT32,
        "tt.loop_unroll_factor": INT32,
        "tt.disallow_acc_multi_buffer": FLAG,
        "tt.flatten": FLAG,
        "tt.warp_specialize": FLAG,
        "tt.latency": INT32,
        "tt.self_latency": INT32,
        "tt.scheduled_max_stage": INT32,
        "loop.cluster": INT32,
        "loop.stage": INT32,
        "llvm.loop_annotation": OPAQUE,
        "ttg.partition": UNREAD,
        "ttg.partition.outputs": UNREAD,
        "ttg.partition.stages": UNREAD,
        "ttg.warp_specialize.tag": UNREAD,
    }
)


def _discardable(name: str) -> AttributeKind | None:
    return _HINT if _HINTS.fullmatch(name) else _EVERYWHERE.get(name)


# ---- rules


def rules(needed: Mapping[str, AttributeKind] | None = None, **others: AttributeKind) -> AttributeRules:
    """The rules of an operation that must have the attributes ``needed`` and may have the attributes ``others``."""
    needed = needed or {}
    return AttributeRules(MappingProxyType(dict(needed)), MappingProxyType({**needed, **others}))


NO_ATTRIBUTES = rules()
FAST = rules(fastmath=OPAQUE)
ROUNDED = rules(fastmath=OPAQUE, roundingmode=integer(0, 4))
WRAPS = rules(overflowFlags=OPAQUE)
EXACT = rules(isExact=FLAG)
UNSIGNED = rules(nonNeg=FLAG)
