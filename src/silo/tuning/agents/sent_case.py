"""A case on its way to an agent: a document named by its sha256, from which the agent makes arrays and a check."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from silo.core.cases import CaseRecipe
from silo.core.expressions import Node, from_json, to_json
from silo.core.json_reader import read_list, read_mapping, read_object, read_text
from silo.core.values import Value, canonical_json, value_from_json, value_to_json
from silo.tuner.trial import Study

__all__ = ["SentCase"]

_SCHEMA = "silo-agent-case/1"


@dataclass(frozen=True)
class SentCase:
    """All that an agent needs to run a study's configs, except their code.

    ``grid`` is the kernel's grid, used if the case gives none. ``values`` are arguments outside the recipe: the values
    of heuristics written in Python. ``passed`` names the arguments of launches: all but the constants.
    """

    study: Study
    recipe: CaseRecipe
    grid: tuple[Node, ...] | None
    values: Mapping[str, Value]
    passed: tuple[str, ...]

    @cached_property
    def document(self) -> bytes:
        """The bytes that are sent."""
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
        """This case, if a document can hold it. Raises TypeError or ValueError if not."""
        _ = self.document
        return self

    @cached_property
    def sha256(self) -> str:
        """The name of the document in messages."""
        return hashlib.sha256(self.document).hexdigest()

    @classmethod
    def read(cls, document: bytes) -> SentCase:
        """The inverse of :attr:`document`. Raises ValueError for other bytes."""
        what = "a case for an agent"
        names = ("schema", "study", "recipe", "grid", "values", "passed")
        members = read_object(json.loads(document), names, what)
        if members["schema"] != _SCHEMA:
            raise ValueError(f"a case for an agent of schema {members['schema']!r}, not {_SCHEMA}")
        grid = members["grid"]
        return cls(
            study=Study.from_json(members["study"]),
            recipe=CaseRecipe.from_json(members["recipe"]),
            grid=None if grid is None else tuple(from_json(axis) for axis in read_list(grid, "a grid")),
            values={name: value_from_json(value) for name, value in read_mapping(members["values"], what).items()},
            passed=tuple(read_text(name, what) for name in read_list(members["passed"], what)),
        )
