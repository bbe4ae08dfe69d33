"""Connections to agents, and the form of requests and answers.

A message is as in :mod:`silo.compile.wire`. A request has a number, ``id``, that its answer repeats. Answers have no
blobs and are small, so an agent that sends what is neither, or much of it, is given up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from silo.compile.wire import encode
from silo.sanitized_text import one_line
from silo.tuning.agents.agent_facts import AgentFacts

__all__ = ["MOST_ANSWER", "AgentLostError", "Connection", "exchange", "read_answer", "read_facts", "shown"]

# Bytes that one answer may have.
MOST_ANSWER = 4 << 20


class AgentLostError(Exception):
    """The agent ended, is not heard any more, or says what no agent says."""


class Connection(Protocol):
    """One living agent. Used by one thread at a time, but for ``kill``."""

    @property
    def facts(self) -> AgentFacts:
        """What the agent said of itself."""
        ...

    def ask(self, request: bytes, limit_s: float) -> Mapping[str, Any]:
        """The answer to a request. Raises AgentLostError."""
        ...

    def kill(self) -> None:
        """End it at once. Any thread may call."""
        ...

    def close(self) -> None:
        """End it, and give back what it holds."""
        ...


def exchange(
    connection: Connection, request: Mapping[str, Any], blobs: Callable[[str], bytes | None], limit_s: float
) -> Mapping[str, Any]:
    """The answer to a request, after the agent was sent what it misses: blobs by sha256.

    Raises:
        AgentLostError: the agent is lost, or asks for what nobody spoke of.
    """
    answer = _numbered(connection, request, (), limit_s)
    if answer.get("outcome") != "missing":
        return answer
    wanted: Any = answer.get("missing")
    names = cast("list[Any]", wanted) if isinstance(wanted, list) else []
    found = [blobs(name) if isinstance(name, str) else None for name in names]
    if not found or len(found) > 64 or any(blob is None for blob in found):
        raise AgentLostError(f"it asks for what it was not told of: {one_line(str(cast('object', wanted)))[:200]}")
    _numbered(connection, {"do": "give"}, [blob or b"" for blob in found], limit_s)
    answer = _numbered(connection, request, (), limit_s)
    if answer.get("outcome") == "missing":
        raise AgentLostError("it asks again for what it was sent")
    return answer


_numbers = iter(range(1, 1 << 62))


def _numbered(
    connection: Connection, request: Mapping[str, Any], blobs: Sequence[bytes], limit_s: float
) -> Mapping[str, Any]:
    number = next(_numbers)
    answer = connection.ask(encode({**request, "id": number}, blobs), limit_s)
    if answer.get("id") != number:
        raise AgentLostError(f"it answers request {one_line(str(answer.get('id')))[:40]}, and was asked {number}")
    return answer


def read_facts(answer: Mapping[str, Any]) -> AgentFacts:
    """What an agent says first. AgentLostError where it says that it cannot begin, or nothing that makes sense."""
    if answer.get("outcome") == "error":
        raise AgentLostError(one_line(str(answer.get("message"))))
    try:
        return AgentFacts.from_json(answer.get("agent"))
    except (ValueError, TypeError, KeyError) as error:
        raise AgentLostError(f"it does not say what it is: {one_line(str(error))[:200]}") from None


def read_answer(text: bytes) -> dict[str, Any]:
    """What an agent answers, as it is on the wire after its length. AgentLostError where it is no answer."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise AgentLostError(f"it sent what is not a message: {shown(text)}") from None
    if not isinstance(found, dict) or cast("dict[str, Any]", found).get("sizes") != []:
        raise AgentLostError(f"it sent what is not an answer: {shown(text)}")
    return cast("dict[str, Any]", found)


def shown(data: bytes) -> str:
    """The beginning of bytes that are not what they should be, for messages."""
    return repr(data[:80].decode("utf-8", "replace"))
