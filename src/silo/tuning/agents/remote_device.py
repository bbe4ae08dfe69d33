"""A device that agents have: what tuning asks of a device but arrays and launches, which are theirs."""

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
    """Implements :class:`silo.core.protocols.Device` for code that is made here and runs where an agent is."""

    agent: AgentFacts
    index: int = 0

    @property
    def model(self) -> DeviceModel:
        """The agents' model."""
        return self.agent.model

    @property
    def target(self) -> Target:
        """What the agents' device is compiled for."""
        return self.agent.target

    def facts(self) -> Mapping[str, int]:
        """Leaves of the expression language, as the first agent has them."""
        return self.agent.facts

    @property
    def memory(self) -> Memory:
        """The host's: a case's arrays here are there to be looked at; an agent makes its own."""
        return Memory((HOST_MEMORY,))

    @property
    def measuring(self) -> Rejected:
        """Nothing is measured in this process or a child of it."""
        return Rejected(_ELSEWHERE)

    def runs(self, target: Target, blob_kind: str = "") -> Decision:
        """Whether code for ``target`` runs there."""
        return runs_on(target, self.target, blob_kind)

    def synchronize(self) -> None:
        """Nothing is under way here."""

    def free_memory(self) -> None:
        """Not known here."""

    @property
    def driver(self) -> str:
        """The agents' driver version."""
        return self.agent.driver

    @property
    def timing(self) -> str:
        """How the agents take times."""
        return self.agent.timing

    def timer(self) -> NoReturn:
        """Refused."""
        raise DeviceError(f"{self.target} cannot be timed here: {_ELSEWHERE}")

    def load(
        self, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None = None
    ) -> NoReturn:
        """Refused."""
        del launch, blob, kind, consent
        raise DeviceError(f"{name} cannot be loaded here for {self.target}: {_ELSEWHERE}")
