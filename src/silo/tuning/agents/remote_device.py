"""An agent's device, as tuning uses it here: all but arrays and launches, which exist on the agent only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from silo.artifacts.runs_on import runs_on
from silo.core.consent import Consent
from silo.core.decisions import Decision, Rejected
from silo.core.device import HOST_MEMORY, DeviceModel, Memory
from silo.core.launch_info import LaunchInfo
from silo.core.target import Target
from silo.errors import DeviceError
from silo.tuning.agents.agent_facts import AgentFacts

__all__ = ["RemoteDevice"]

_ELSEWHERE = "it is an agent's device, and the agent runs it"


@dataclass(frozen=True)
class RemoteDevice:
    """Implements :class:`silo.core.protocols.Device` for code that is compiled here and runs on an agent's machine."""

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
        """Leaves of the expression language, as the first agent has them."""
        return self.agent.facts

    @property
    def memory(self) -> Memory:
        """Host memory: the arrays of a case are made here only to be described; an agent makes its own."""
        return Memory((HOST_MEMORY,))

    @property
    def measuring(self) -> Rejected:
        """Rejected: this process and its children never measure on it."""
        return Rejected(_ELSEWHERE)

    def runs(self, target: Target, blob_kind: str = "") -> Decision:
        """Decides whether code for ``target`` runs on the agents' device."""
        return runs_on(target, self.target, blob_kind)

    def synchronize(self) -> None:
        """Does nothing: this process launches nothing on it."""

    def free_memory(self) -> None:
        """Returns None: unknown to this process."""

    @property
    def driver(self) -> str:
        """The agents' driver version."""
        return self.agent.driver

    @property
    def timing(self) -> str:
        """The agents' way of timing."""
        return self.agent.timing

    def timer(self) -> NoReturn:
        """Raises DeviceError."""
        raise DeviceError(f"{self.target} cannot be timed here: {_ELSEWHERE}")

    def load(
        self, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None = None
    ) -> NoReturn:
        """Raises DeviceError."""
        del launch, blob, kind, consent
        raise DeviceError(f"{name} cannot be loaded here for {self.target}: {_ELSEWHERE}")
