"""The facts that an agent states of itself when it starts, and the reasons why trials of two agents differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from silo.core.decisions import Rejected
from silo.core.device import DeviceModel, Measuring
from silo.core.json_reader import read_mapping, read_natural, read_object, read_text
from silo.core.protocols import Device
from silo.core.target import Target, read_target
from silo.core.values import JSON
from silo.errors import DeviceError
from silo.version import __version__

__all__ = ["AgentFacts"]

_MEMBERS = ("silo", "model", "target", "driver", "timing", "facts")


@dataclass(frozen=True)
class AgentFacts:
    """One agent: the version of its Silo, and of its device the model, target, driver, timing and numbers."""

    silo: str
    model: DeviceModel
    target: Target
    driver: str
    timing: str
    facts: Mapping[str, int]

    @classmethod
    def of(cls, device: Device) -> AgentFacts:
        """What an agent of ``device`` says. ``DeviceError`` where no other process may measure there."""
        if device.measuring is not Measuring.CONFINED:
            why = "its code is measured in the process that tunes"
            reason = device.measuring.reason if isinstance(device.measuring, Rejected) else why
            raise DeviceError(f"{device.target.kind}:{device.index} cannot serve as an agent: {reason}")
        return cls(__version__, device.model, device.target, device.driver, device.timing, dict(device.facts()))

    def refusal(self, other: AgentFacts) -> str:
        """Why trials of ``other`` belong to another study than this agent's trials; "" where they do not."""
        for name, ours, theirs in (
            ("version of Silo", self.silo, other.silo),
            ("device model", _described(self.model), _described(other.model)),
            ("target", str(self.target), str(other.target)),
            ("driver version", self.driver, other.driver),
            ("way of measuring", self.timing, other.timing),
        ):
            if ours != theirs:
                return f"its {name} is {theirs or 'none'}, and the others have {ours or 'none'}"
        return ""

    def to_json(self) -> JSON:
        """The canonical form."""
        return {
            "silo": self.silo,
            "model": self.model.to_json(),
            "target": str(self.target),
            "driver": self.driver,
            "timing": self.timing,
            "facts": dict(self.facts),
        }

    @classmethod
    def from_json(cls, data: Any) -> AgentFacts:  # noqa: ANN401  # JSON
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        what = "what an agent says of itself"
        members = read_object(data, _MEMBERS, what)
        return cls(
            silo=read_text(members["silo"], what),
            model=DeviceModel.from_json(members["model"]),
            target=read_target(members["target"], what),
            driver=read_text(members["driver"], what),
            timing=read_text(members["timing"], what),
            facts={name: read_natural(fact, what) for name, fact in read_mapping(members["facts"], what).items()},
        )


def _described(model: DeviceModel) -> str:
    return f"{model}, {model.memory_bytes >> 20} MiB, {model.vendor}"
