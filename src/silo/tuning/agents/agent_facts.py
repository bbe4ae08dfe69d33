"""The facts that an agent sends about itself when it starts, and the reasons why trials of two agents differ."""

from __future__ import annotations

from collections.abc import Mapping

from silo.core.decisions import Rejected
from silo.core.device import DeviceModel, Measuring
from silo.core.json_reader import NATURAL, TEXT, Form, Persisted, named, value_of
from silo.core.protocols import Device
from silo.core.target import TARGET, Target
from silo.core.values import JSON
from silo.errors import DeviceError
from silo.frozen import field, frozen
from silo.version import __version__

__all__ = ["AgentFacts"]


def _read_facts(data: JSON, what: str) -> Mapping[str, int]:
    return dict(named(NATURAL).read(data, what))


@frozen
class AgentFacts(Persisted):
    """One agent: the version of its Silo, and its device's model, target, driver, way of timing and numeric facts."""

    title = "the facts of an agent"

    silo: str = field(form=TEXT)
    model: DeviceModel = field(form=value_of(DeviceModel))
    target: Target = field(form=TARGET)
    driver: str = field(form=TEXT)
    timing: str = field(form=TEXT)
    facts: Mapping[str, int] = field(form=Form(_read_facts, dict))

    @classmethod
    def of(cls, device: Device) -> AgentFacts:
        """The facts of an agent for ``device``. Raises DeviceError if no other process may measure on the device."""
        if device.measuring is not Measuring.CONFINED:
            why = "its code is measured in the process that tunes"
            reason = device.measuring.reason if isinstance(device.measuring, Rejected) else why
            raise DeviceError(f"{device.target.kind}:{device.index} cannot serve as an agent: {reason}")
        return cls(__version__, device.model, device.target, device.driver, device.timing, dict(device.facts()))

    def refusal(self, other: AgentFacts) -> str:
        """The reason why trials of ``other`` belong to another study than this agent's trials; "" if they do not."""
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


def _described(model: DeviceModel) -> str:
    return f"{model}, {model.memory_bytes >> 20} MiB, {model.vendor}"
