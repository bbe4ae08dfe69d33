"""Constraints of spaces: expressions over a config, and perhaps integer arguments, that must not be 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from silo.core.config import Config
from silo.core.nodes import Argument, Bindings, ConfigValue, Node, evaluate, leaves
from silo.core.trace import trace_value
from silo.core.values import Value
from silo.errors import ExpressionError, SpaceError, TraceError

__all__ = ["Constraint", "bound", "satisfies", "traced"]

Constraint: TypeAlias = "Callable[[Any], object] | Node"


def traced(constraints: Iterable[Constraint], names: Sequence[str], key: Sequence[str]) -> tuple[Node, ...]:
    """Each as an expression over config values called ``names`` and integer arguments of ``key``. ``SpaceError``."""
    return tuple(_traced(constraint, names, key) for constraint in constraints)


def _traced(constraint: Constraint, names: Sequence[str], key: Sequence[str]) -> Node:
    if not callable(constraint):
        return constraint
    try:
        return trace_value(constraint, key, names)
    except TraceError as error:
        raise SpaceError(f"a constraint of the space cannot be traced: {error}") from error


def bound(constraints: Iterable[Node], arguments: Mapping[str, Value]) -> list[Node]:
    """Those that read no argument but the given ones: the others do not count yet."""
    return [constraint for constraint in constraints if _is_bound(constraint, arguments)]


def _is_bound(constraint: Node, arguments: Mapping[str, Value]) -> bool:
    needed = [leaf for leaf in leaves(constraint) if not isinstance(leaf, ConfigValue)]
    for leaf in needed:
        if not isinstance(leaf, Argument):
            raise SpaceError(f"a constraint reads {leaf}; it may read config values and integer arguments only")
    return all(cast("Argument", leaf).name in arguments for leaf in needed)


def satisfies(config: Config, constraints: Iterable[Node], arguments: Mapping[str, Value]) -> bool:
    """Whether a config keeps to all of them. ``SpaceError`` where one has no value for it."""
    return all(_holds(constraint, config, arguments) for constraint in constraints)


def _holds(constraint: Node, config: Config, arguments: Mapping[str, Value]) -> bool:
    try:
        return evaluate(constraint, Bindings(values=arguments, config=config.as_dict())) != 0
    except ExpressionError as error:
        raise SpaceError(f"the constraint {constraint} has no value for {config}: {error}") from None
