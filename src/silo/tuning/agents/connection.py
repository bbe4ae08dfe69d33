"""Connections to agents: the form of requests and answers, and agents that a command starts."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Protocol, cast

from silo.compile.wire import encode
from silo.errors import DeviceError
from silo.sanitized_text import one_line
from silo.settings import child_environment
from silo.tuning.agents.agent_documents import AgentFacts
from silo.tuning.agents.agent_serving import START

__all__ = [
    "MOST_ANSWER",
    "AgentLostError",
    "Connection",
    "PipeConnection",
    "PipeSource",
    "exchange",
    "read_answer",
    "read_facts",
    "shown",
]

# ---- The form of requests and answers ----

# The most bytes in one answer.
MOST_ANSWER = 4 << 20


class AgentLostError(Exception):
    """The agent ended, stopped sending heartbeats, or sent a message that no agent sends."""


class Connection(Protocol):
    """A connection to one running agent. Only one thread may use it at a time, but any thread may call ``kill``."""

    @property
    def facts(self) -> AgentFacts:
        """The facts that the agent sent when it started."""
        ...

    def ask(self, request: bytes, limit_s: float) -> Mapping[str, Any]:
        """Sends a request and returns the answer.

        Raises AgentLostError if the agent is lost, or does not answer within ``limit_s`` seconds.
        """
        ...

    def kill(self) -> None:
        """Ends the agent at once. Any thread may call it."""
        ...

    def close(self) -> None:
        """Ends the agent and releases its resources."""
        ...


def exchange(
    connection: Connection, request: Mapping[str, Any], blobs: Callable[[str], bytes | None], limit_s: float
) -> Mapping[str, Any]:
    """Sends a request and returns the answer.

    If the agent answers that it lacks blobs, sends these (``blobs`` returns them by their SHA-256) and repeats the
    request.

    Raises:
        AgentLostError: the agent is lost, or requests a blob that does not belong to the request.
    """
    answer = _numbered(connection, request, (), limit_s)
    if answer.get("outcome") != "missing":
        return answer
    missing: Any = answer.get("missing")
    names = cast("list[Any]", missing) if isinstance(missing, list) else []
    found_blobs = [blobs(name) if isinstance(name, str) else None for name in names]
    if not found_blobs or len(found_blobs) > 64 or any(blob is None for blob in found_blobs):
        raise AgentLostError(f"it asks for what it was not told of: {one_line(str(cast('object', missing)))[:200]}")
    _numbered(connection, {"do": "give"}, [blob or b"" for blob in found_blobs], limit_s)
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
    """Returns the facts in an agent's first message. Raises AgentLostError if it holds an error or is malformed."""
    if answer.get("outcome") == "error":
        raise AgentLostError(one_line(str(answer.get("message"))))
    try:
        return AgentFacts.from_json(answer.get("agent"))
    except (ValueError, TypeError, KeyError) as error:
        raise AgentLostError(f"it does not say what it is: {one_line(str(error))[:200]}") from None


def read_answer(text: bytes) -> dict[str, Any]:
    """Parses an answer, without its length prefix. Raises AgentLostError if it is malformed."""
    try:
        answer: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise AgentLostError(f"it sent what is not a message: {shown(text)}") from None
    if not isinstance(answer, dict) or cast("dict[str, Any]", answer).get("sizes") != []:
        raise AgentLostError(f"it sent what is not an answer: {shown(text)}")
    return cast("dict[str, Any]", answer)


def shown(data: bytes) -> str:
    """Returns the beginning of unexpected bytes, for error messages."""
    return repr(data[:80].decode("utf-8", "replace"))


# ---- Agents that a command starts (``ssh gpu7 silo agent``), which use its standard input and output ----

# An agent is lost if for this many seconds it sends no heartbeat, or reads no byte of a request: time for several
# heartbeats over a slow link.
SILENCE_S = 30.0

# The most bytes that a login may print before the agent starts; and the bytes of standard error that are kept.
_MOST_BEFORE = 1 << 16
_TAIL = 2000


@dataclass(frozen=True)
class PipeSource:
    """Starts an agent by a command. Implements :class:`silo.tuning.agents.fleet.AgentSource`."""

    command: str
    wait_s: float = 120.0

    @property
    def name(self) -> str:
        """The command, which also names the agent."""
        return self.command

    def connect(self) -> PipeConnection:
        """Starts the command. Raises DeviceError if the command does not start an agent."""
        return PipeConnection(self.command, self.wait_s)


class PipeConnection:
    """A connection to an agent started by ``command``, for example ``ssh gpu7 silo agent``, which runs without a shell.

    Args:
        command: words as a shell would split them.
        wait_s: seconds until the agent must have sent its facts.

    Raises:
        DeviceError: the command cannot be started, is not an agent, or the agent has no device.
    """

    def __init__(self, command: str, wait_s: float) -> None:
        self._command = command
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise DeviceError(f"the agent's command {command!r} cannot be read: {error}") from None
        if not words:
            raise DeviceError("an agent's command is empty; give one such as 'ssh HOST silo agent'")
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=child_environment(),
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise DeviceError(f"the agent's command {command!r} cannot be started: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin, self._stdout, self._stderr = self._process.stdin, self._process.stdout, self._process.stderr
        self._tail = b""
        self._listener = threading.Thread(target=self._listen, args=(self._stderr,), daemon=True)
        self._listener.start()
        self._read = b""
        self._silence_s = wait_s  # the first message may take longer than later ones
        for stream in (self._stdin, self._stdout):
            os.set_blocking(stream.fileno(), False)
        try:
            self.facts = self._greeting(time.monotonic() + wait_s)
            self._silence_s = SILENCE_S
        except AgentLostError as error:
            self.close()
            raise DeviceError(f"the agent {command!r} cannot be used: {error}{self._agent_output()}") from None
        except BaseException:
            self.close()
            raise

    def _greeting(self, deadline: float) -> AgentFacts:
        while (at := self._read.find(START)) < 0:
            if len(self._read) > _MOST_BEFORE:
                raise AgentLostError(f"it prints what is none of an agent's: {shown(self._read)}")
            self._take_more(deadline, "it says nothing that an agent says")
        self._read = self._read[at + len(START) :]
        return read_facts(self._answer(deadline))

    def ask(self, request: bytes, limit_s: float) -> Mapping[str, Any]:
        """See :class:`Connection`."""
        deadline = time.monotonic() + limit_s
        try:
            self._write(request)
            while True:
                answer = self._answer(deadline)
                if answer.get("outcome") != "alive":
                    return answer
        except AgentLostError as error:
            self.kill()
            raise AgentLostError(f"{error}{self._agent_output()}") from None
        # After Ctrl-C the agent will still answer this request, and the next request would read that answer as its own.
        # So the agent is ended.
        except BaseException:
            self.kill()
            raise

    def _write(self, data: bytes) -> None:
        unsent = memoryview(data)
        while unsent:
            if not _poll(self._stdin.fileno(), select.POLLOUT, SILENCE_S):
                raise AgentLostError(f"it took nothing of what was sent for {SILENCE_S:g} s")
            try:
                unsent = unsent[os.write(self._stdin.fileno(), unsent) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise AgentLostError(self._ended()) from error

    def _answer(self, deadline: float) -> dict[str, Any]:
        length = int.from_bytes(self._exactly(4, deadline), "big")
        if length > MOST_ANSWER:
            raise AgentLostError(f"it announces an answer of {length} bytes, and up to {MOST_ANSWER} are read")
        return read_answer(self._exactly(length, deadline))

    def _exactly(self, count: int, deadline: float) -> bytes:
        while len(self._read) < count:
            self._take_more(deadline, "it did not answer in time")
        chunk, self._read = self._read[:count], self._read[count:]
        return chunk

    def _take_more(self, deadline: float, timeout_message: str) -> None:
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            raise AgentLostError(timeout_message)
        if not _poll(self._stdout.fileno(), select.POLLIN, min(remaining_s, self._silence_s)):
            raise AgentLostError(
                timeout_message if time.monotonic() >= deadline else f"it was not heard for {self._silence_s:g} s"
            )
        try:
            part = os.read(self._stdout.fileno(), 1 << 20)
        except BlockingIOError:
            return
        except OSError as error:
            raise AgentLostError(self._ended()) from error
        if not part:
            raise AgentLostError(self._ended())
        self._read += part

    def _ended(self) -> str:
        try:
            code = self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            return "it closed its end"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"it was ended by signal {signal.Signals(-code).name}"
        return f"it ended with exit status {code}"

    def _listen(self, stream: IO[bytes]) -> None:
        """Reads the command's standard error to its end, and keeps the last bytes."""
        with contextlib.suppress(OSError, ValueError):
            while part := stream.read(1 << 16):
                self._tail = (self._tail + part)[-_TAIL:]

    def _agent_output(self) -> str:
        self._listener.join(0.2)
        text = self._tail.decode("utf-8", "replace").strip()
        return f"; its last words: {one_line(text)}" if text else ""

    def kill(self) -> None:
        """See :class:`Connection`. Kills the process group, which exists as long as its leader was not waited for."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """See :class:`Connection`."""
        self.kill()
        self._process.wait()
        self._listener.join(0.5)
        for stream in (self._stdin, self._stdout):
            stream.close()
        if not self._listener.is_alive():
            self._stderr.close()


def _poll(descriptor: int, event: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(seconds * 1000))
