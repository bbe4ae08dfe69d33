"""Walks over the values that a value is made of, without Python's own stack: chains of operations may be long."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from silo.kinds.triton.front.ssa import Value

__all__ = ["all_of", "any_of", "fold", "remembered", "unchanged"]

_Node = TypeVar("_Node")
_Result = TypeVar("_Result")
_FOUND: ContextVar[dict[Hashable, dict[Value, Any]] | None] = ContextVar("found", default=None)


def fold(
    root: _Node,
    parts: Callable[[_Node], Sequence[_Node]],
    result: Callable[[_Node, list[_Result]], _Result],
    known: dict[_Node, _Result] | None = None,
) -> _Result:
    """The result of ``root``, made of the results of its parts, each of which is made of the results of its own parts.

    Args:
        root: where to begin.
        parts: the nodes whose results that of a node needs; a node must not be a part of itself.
        result: the result of a node, from the results of its parts in their order. Asked once for each node.
        known: results of earlier calls, to which this call adds its own.

    >>> fold(5, lambda n: [n - 1, n - 2] if n > 1 else [], lambda n, found: sum(found) or n)
    5
    """
    known = {} if known is None else known
    pending = [root]
    while pending:
        node = pending[-1]
        if node in known:
            pending.pop()
            continue
        inner = parts(node)
        missing = [part for part in inner if part not in known]
        if missing:
            pending.extend(reversed(missing))
            continue
        known[node] = result(node, [known[part] for part in inner])
        pending.pop()
    return known[root]


def all_of(root: Value, parts: Callable[[Value], Iterable[Value] | None]) -> bool:
    """Whether ``parts`` refuses (with None) neither the root nor any value that it gives, near or far."""
    seen: set[Value] = set()
    pending = [root]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        inner = parts(value)
        if inner is None:
            return False
        pending.extend(inner)
    return True


def any_of(root: Value, parts: Callable[[Value], Iterable[Value] | None]) -> bool:
    """Whether ``parts`` picks (with None) the root or any value that it gives, near or far."""
    return not all_of(root, parts)


@contextmanager
def unchanged() -> Generator[None]:
    """Within it no operation is rewritten, so that :func:`remembered` may keep what was found of values."""
    token = _FOUND.set({})
    try:
        yield
    finally:
        _FOUND.reset(token)


def remembered(question: Hashable) -> dict[Value, Any]:
    """What was found of values for ``question`` within :func:`unchanged`, for :func:`fold`; outside of it nothing."""
    found = _FOUND.get()
    return {} if found is None else found.setdefault(question, {})
