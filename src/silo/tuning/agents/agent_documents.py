"""Documents exchanged with agents: the facts that an agent sends about itself, and the case that it receives."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from silo.core.cases import CaseRecipe
from silo.core.decisions import Rejected
from silo.core.device import TARGET, DeviceModel, Measuring, Target
from silo.core.expressions import Node, from_json, to_json
from silo.core.json_reader import (
    NATURAL,
    TEXT,
    Form,
    Persisted,
    named,
    read_list,
    read_mapping,
    read_object,
    read_text,
    value_of,
)
from silo.core.protocols import Device
from silo.core.values import JSON, Value, canonical_json, value_from_json, value_to_json
from silo.errors import DeviceError
from silo.frozen import field, frozen
from silo.tuner.trial import Study
from silo.version import __version__

__all__ = ["AgentFacts", "SentCase"]

_SCHEMA = "silo-agent-case/1"


@dataclass(frozen=True)
class SentCase:
    """All that an agent needs to run a study's configs, except their code.

    ``grid`` is the kernel's grid, used if the case declares no grid. ``values`` are arguments that the recipe lacks:
    the values of heuristics written in Python. ``passed`` names the arguments that a launch passes: all but the
    constants.
    """

    study: Study
    recipe: CaseRecipe
    grid: tuple[Node, ...] | None
    values: Mapping[str, Value]
    passed: tuple[str, ...]

    @cached_property
    def document(self) -> bytes:
        """The case as JSON, in the bytes that are sent to the agent."""
        return canonical_json(
            {
                "schema": _SCHEMA,
                "study": self.study.to_json(),
                "recipe": self.recipe.to_json(),
                "grid": None if self.grid is None else [to_json(axis) for axis in self.grid],
                "values": {name: value_to_json(value) for name, value in self.values.items()},
                "passed": list(self.passed),
            }
        )

    def checked(self) -> SentCase:
        """Returns this case. Raises TypeError or ValueError if a document cannot hold it."""
        _ = self.document
        return self

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the document, by which messages name it."""
        return hashlib.sha256(self.document).hexdigest()

    @classmethod
    def read(cls, document: bytes) -> SentCase:
        """Parses a document. Raises ValueError for other bytes."""
        title = "a case for an agent"
        names = ("schema", "study", "recipe", "grid", "values", "passed")
        members = read_object(json.loads(document), names, title)
        if members["schema"] != _SCHEMA:
            raise ValueError(f"a case for an agent of schema {members['schema']!r}, not {_SCHEMA}")
        grid = members["grid"]
        return cls(
            study=Study.from_json(members["study"]),
            recipe=CaseRecipe.from_json(members["recipe"]),
            grid=None if grid is None else tuple(from_json(axis) for axis in read_list(grid, "a grid")),
            values={name: value_from_json(value) for name, value in read_mapping(members["values"], title).items()},
            passed=tuple(read_text(name, title) for name in read_list(members["passed"], title)),
        )


def _read_facts(data: JSON, label: str) -> Mapping[str, int]:
    return dict(named(NATURAL).read(data, label))


@frozen
class AgentFacts(Persisted):
    """The facts of one agent: its version of Silo, and its device's model, target, driver, timing and numeric facts."""

    title = "the facts of an agent"

    silo: str = field(form=TEXT)
    model: DeviceModel = field(form=value_of(DeviceModel))
    target: Target = field(form=TARGET)
    driver: str = field(form=TEXT)
    timing: str = field(form=TEXT)
    facts: Mapping[str, int] = field(form=Form(_read_facts, dict))

    @classmethod
    def of(cls, device: Device) -> AgentFacts:
        """Returns the facts of an agent for ``device``.

        Raises DeviceError if no other process may measure on the device.
        """
        if device.measuring is not Measuring.CONFINED:
            why = "its code is measured in the process that tunes"
            reason = device.measuring.reason if isinstance(device.measuring, Rejected) else why
            raise DeviceError(f"{device.target.kind}:{device.index} cannot serve as an agent: {reason}")
        return cls(__version__, device.model, device.target, device.driver, device.timing, dict(device.facts()))

    def refusal(self, other: AgentFacts) -> str:
        """Returns the reason why trials of ``other`` cannot be compared with trials of this agent; "" if they can."""
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
