"""The fleet: agents that share the requests. A lost agent is restarted, and given up after some failures."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Thread
from typing import NoReturn, Protocol, Self, TypeVar

from silo.artifacts.runs_on import runs_on
from silo.core.consent import Consent
from silo.core.decisions import Decision, Rejected
from silo.core.device import HOST_MEMORY, DeviceModel, Memory, Target
from silo.core.launch_info import LaunchInfo
from silo.errors import DeviceError, LaunchError, SiloError, TuneError
from silo.forks import Condition
from silo.tuner.failures import fault_of
from silo.tuning.agents.agent_documents import AgentFacts
from silo.tuning.agents.connection import AgentLostError, Connection
from silo.version import __version__

__all__ = ["AgentSource", "Fleet", "RemoteDevice", "Turn"]


# ---- The device of the agents, as this machine sees it ----


_ELSEWHERE = "it is an agent's device, and the agent runs it"


@dataclass(frozen=True)
class RemoteDevice:
    """The device of agents: code is compiled here and runs there. Implements :class:`silo.core.protocols.Device`."""

    agent: AgentFacts
    index: int = 0

    @property
    def model(self) -> DeviceModel:
        """The agents' device model."""
        return self.agent.model

    @property
    def target(self) -> Target:
        """The target of the agents' device."""
        return self.agent.target

    def facts(self) -> Mapping[str, int]:
        """Returns the device facts that expressions may use, as the first agent reports them."""
        return self.agent.facts

    @property
    def memory(self) -> Memory:
        """Host memory, because this process makes a case's arrays only to describe them; each agent makes its own."""
        return Memory((HOST_MEMORY,))

    @property
    def measuring(self) -> Rejected:
        """Rejected: this process and its children never measure on the agents' device."""
        return Rejected(_ELSEWHERE)

    def runs(self, target: Target, blob_kind: str = "") -> Decision:
        """Decides whether code for ``target`` runs on the agents' device."""
        return runs_on(target, self.target, blob_kind)

    def synchronize(self) -> None:
        """Does nothing: this process launches nothing on the agents' device."""

    def free_memory(self) -> None:
        """Returns None: the free memory is unknown to this process."""

    @property
    def driver(self) -> str:
        """The agents' driver version."""
        return self.agent.driver

    @property
    def timing(self) -> str:
        """The name of the agents' timing method, such as ``cuda-events-cold/1``."""
        return self.agent.timing

    def timer(self) -> NoReturn:
        """Raises DeviceError: this process cannot time launches on the agents' device."""
        raise DeviceError(f"{self.target} cannot be timed here: {_ELSEWHERE}")

    def load(
        self, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None = None
    ) -> NoReturn:
        """Raises DeviceError: this process cannot load code on the agents' device."""
        del launch, blob, kind, consent
        raise DeviceError(f"{name} cannot be loaded here for {self.target}: {_ELSEWHERE}")


# ---- The fleet ----


T = TypeVar("T")

_log = logging.getLogger("silo")

# An agent is given up after this many losses, or faults of its machine, without a good answer between them.
_MOST_FRUITLESS = 3
# The most agents that are tried, one after the other, for a config whose agents are lost. On the agent's machine a
# config runs in a separate process, so a config hardly ever ends an agent. A fleet of one or two agents tries twice,
# which is fewer than the losses after which an agent is given up.
_MOST_TRIES = 3
_PAUSE_S = 0.5  # seconds before an agent is restarted the second time; each further time, twice as long


class AgentSource(Protocol):
    """Starts one agent, and starts it again if it is lost."""

    @property
    def name(self) -> str:
        """The agent's name in messages."""
        ...

    def connect(self) -> Connection:
        """Starts the agent and returns the connection. Raises DeviceError."""
        ...


@dataclass(eq=False)
class _Seat:
    """The state of one agent. ``connection`` is None while the agent is restarted, and after it was given up."""

    source: AgentSource
    connection: Connection | None = None
    busy: bool = False
    fruitless: int = 0
    given_up: str = ""

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def idle(self) -> bool:
        return self.connection is not None and not self.busy


class Turn:
    """One caller's request to a fleet, which another thread may stop."""

    def __init__(self) -> None:
        self.stopped = False
        self.seat: _Seat | None = None


class Fleet:
    """Agents of one device model. Any thread may use it, each with its own :class:`Turn`.

    Args:
        sources: the agents' sources.

    Raises:
        DeviceError: an agent cannot be started, or its trials would not be comparable with the others' trials.
    """

    def __init__(self, sources: Sequence[AgentSource]) -> None:
        if not sources:
            raise DeviceError("a fleet has no agent; name one or more")
        self._seats = [_Seat(source) for source in sources]
        self._changed = Condition()
        self._closed = False
        self._revivals: list[Thread] = []
        try:
            self.facts = self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> AgentFacts:
        """Connects to all agents at the same time, because each may take a while; returns the facts of the first."""

        def connected(seat: _Seat) -> str:
            try:
                seat.connection = seat.source.connect()
            except DeviceError as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(len(self._seats), "silo-agents") as pool:
            problems = [problem for problem in pool.map(connected, self._seats) if problem]
        if problems:
            raise DeviceError("\n".join(problems))
        seat_facts = [(seat, seat.connection.facts) for seat in self._seats if seat.connection is not None]
        first = seat_facts[0][1]
        if first.silo != __version__:
            raise DeviceError(
                f"the agent {self._seats[0].name!r} has Silo {first.silo}, and here it is {__version__}: its trials "
                "would not be comparable; install the same version on both machines"
            )
        for seat, facts in seat_facts[1:]:
            if reason := first.refusal(facts):
                raise DeviceError(
                    f"the agent {seat.name!r} is not like {self._seats[0].name!r}: {reason}; trials of both would be "
                    "of different studies, so tune with one kind at a time"
                )
        return first

    @property
    def device(self) -> RemoteDevice:
        """The device of the agents, which kernels are compiled for."""
        return RemoteDevice(self.facts)

    @property
    def count(self) -> int:
        """The number of agents, lost ones included."""
        return len(self._seats)

    def ask(self, turn: Turn, label: str, step: Callable[[Connection], T]) -> T:
        """Runs ``step`` on an idle agent and returns its result, or retries it on another agent.

        If agents are lost, up to three are tried (two, if fewer than three are left). After a fault of an agent's
        machine the step is retried once.

        Raises:
            LaunchError: all agents that were tried were lost, one after the other.
            TuneError: all agents were given up.
            SiloError: any other error that the agent answers.
        """
        avoid: list[_Seat] = []
        refusals: list[str] = []
        while len(avoid) < self._tries:
            with self._seat(turn, avoid) as seat:
                assert seat.connection is not None
                try:
                    answer = step(seat.connection)
                except AgentLostError as error:
                    refusals.append(f"{seat.name}: {error}")
                    self._lose(seat, str(error))
                except SiloError as error:
                    if not (isinstance(error, TuneError) or fault_of(error)):
                        seat.fruitless = 0
                        raise
                    self._ail(seat, str(error))
                    if avoid or turn.stopped:
                        raise
                else:
                    seat.fruitless = 0
                    return answer
            avoid.append(seat)
            if turn.stopped:
                break
        raise LaunchError(f"{label}: its agents were lost: {'; then '.join(refusals)}")

    @property
    def _tries(self) -> int:
        remaining = sum(not seat.given_up for seat in self._seats)
        return min(_MOST_TRIES, max(2, remaining))

    @contextlib.contextmanager
    def _seat(self, turn: Turn, avoid: Sequence[_Seat]) -> Generator[_Seat]:
        seat = turn.seat = self._idle_seat(turn, avoid)
        try:
            yield seat
        except BaseException as error:
            if not isinstance(error, Exception) and seat.connection is not None:
                self._lose(seat, "it was interrupted")
            raise
        finally:
            with self._changed:
                turn.seat = None
                seat.busy = False
                self._changed.notify_all()

    def _idle_seat(self, turn: Turn, avoid: Sequence[_Seat]) -> _Seat:
        """Waits for an idle agent and takes it; takes an agent of ``avoid`` only if all others are given up."""
        with self._changed:
            while True:
                if turn.stopped or self._closed:
                    raise TuneError("the session ended while a config waited for an agent")
                remaining_seats = [seat for seat in self._seats if not seat.given_up]
                if not remaining_seats:
                    listing = "".join(f"\n  - {seat.name}: {seat.given_up}" for seat in self._seats)
                    raise TuneError(f"no agent is left; trials so far are kept, and the next run goes on:{listing}")
                others = [seat for seat in remaining_seats if seat not in avoid] or remaining_seats
                chosen = next((seat for seat in others if seat.idle), None)
                if chosen is not None:
                    chosen.busy = True
                    return chosen
                self._changed.wait(1.0)

    def _lose(self, seat: _Seat, why: str) -> None:
        """Closes a lost agent and restarts it in the background, unless it was lost too often."""
        connection, seat.connection = seat.connection, None
        if connection is not None:
            connection.close()
        seat.fruitless += 1
        if self._closed:
            return
        _log.warning("the agent %r was lost: %s", seat.name, why)
        if seat.fruitless >= _MOST_FRUITLESS:
            self._give_up(seat, why)
            return
        thread = Thread(target=self._revive, args=(seat,), daemon=True)
        self._revivals = [revival for revival in self._revivals if revival.is_alive()]
        self._revivals.append(thread)
        thread.start()

    def _ail(self, seat: _Seat, why: str) -> None:
        seat.fruitless += 1
        if seat.fruitless >= _MOST_FRUITLESS:
            connection, seat.connection = seat.connection, None
            if connection is not None:
                connection.close()
            self._give_up(seat, why)

    def _give_up(self, seat: _Seat, why: str) -> None:
        _log.warning("the agent %r is given up: %s", seat.name, why)
        with self._changed:
            seat.given_up = why
            self._changed.notify_all()

    def _revive(self, seat: _Seat) -> None:
        while not self._closed:
            time.sleep(_PAUSE_S * 2 ** (seat.fruitless - 1) if seat.fruitless > 1 else 0)
            try:
                connection = seat.source.connect()
            except DeviceError as error:
                seat.fruitless += 1
                if seat.fruitless >= _MOST_FRUITLESS:
                    self._give_up(seat, str(error))
                    return
                continue
            if reason := self.facts.refusal(connection.facts):
                connection.close()
                self._give_up(seat, f"started again, it is not what it was: {reason}")
                return
            with self._changed:
                if not self._closed:
                    seat.connection = connection
                    self._changed.notify_all()
                    return
            connection.close()
            return

    def stop(self, turn: Turn) -> None:
        """Stops the request that another thread runs with this turn: it fails soon. Any thread may call this."""
        with self._changed:
            turn.stopped = True
            connection = None if turn.seat is None else turn.seat.connection
            self._changed.notify_all()
        if connection is not None:
            connection.kill()

    def close(self) -> None:
        """Ends every agent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._revivals:
            thread.join(1.0)
        for seat in self._seats:
            connection, seat.connection = seat.connection, None
            if connection is not None:
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
