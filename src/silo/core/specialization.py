"""Specializations: facts about one call's arguments that the compiler may use."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from silo.core.reading import read_object, read_pairs
from silo.core.values import JSON, Value, value_from_json, value_sort_key, value_to_json
from silo.frozen import field, frozen

__all__ = ["Fact", "Specialization"]


class Fact(Enum):
    """One thing known about an argument (Triton's specialization of a pointer or an integer)."""

    ALIGNED_16 = "aligned16"  # a pointer whose address is a multiple of 16 bytes
    DIVISIBLE_16 = "divisible16"  # an integer that is a multiple of 16
    EQUAL_1 = "equal1"  # an integer that is 1, folded into the code
    NONE = "none"  # an argument that is None, folded into the code
    POINTER_RANGE_32 = "range32"  # a pointer into memory of less than 2 GiB: offsets fit 32 bits (ROCm only)
    CONFIG_BLOCK = "configblock"  # a descriptor whose block shape the config sets, whatever the caller's says

    @property
    def is_assumption(self) -> bool:
        """Whether code without it serves the same calls; otherwise it is part of which code this is."""
        return self not in (Fact.NONE, Fact.CONFIG_BLOCK)


@frozen
class Specialization:
    """Facts by parameter name, and the values of constexpr parameters that the caller gave.

    A fact that is absent was not assumed: a kernel compiled without ``aligned16`` accepts any pointer. The constant of
    a tensor descriptor is its block shape.
    Both tuples are sorted by name, so equal specializations compare and hash equal.
    """

    facts: tuple[tuple[str, Fact], ...] = ()
    constants: tuple[tuple[str, Value], ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", tuple(sorted(self.facts, key=lambda item: (item[0], item[1].value))))
        object.__setattr__(
            self, "constants", tuple(sorted(self.constants, key=lambda item: (item[0], value_sort_key(item[1]))))
        )

    def facts_of(self, name: str) -> frozenset[Fact]:
        """The facts assumed about one parameter."""
        return frozenset(fact for owner, fact in self.facts if owner == name)

    @property
    def constant_values(self) -> Mapping[str, Value]:
        """Constexpr values by parameter name."""
        return dict(self.constants)

    def of_call(self) -> Specialization:
        """What is known before a config is chosen: without the block shapes that configs set."""
        shaped = {name for name, fact in self.facts if fact is Fact.CONFIG_BLOCK}
        return Specialization(self.facts, tuple(pair for pair in self.constants if pair[0] not in shaped))

    def to_json(self) -> JSON:
        """The canonical form."""
        return {
            "facts": [[name, fact.value] for name, fact in self.facts],
            "constants": [[name, value_to_json(value)] for name, value in self.constants],
        }

    @classmethod
    def from_json(cls, data: JSON) -> Specialization:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        members = read_object(data, ("facts", "constants"), "a specialization")
        constants = read_pairs(members["constants"], "the constants of a specialization")
        return cls(
            facts=tuple(
                (name, Fact(fact)) for name, fact in read_pairs(members["facts"], "the facts of a specialization")
            ),
            constants=tuple((name, value_from_json(value)) for name, value in constants),
        )
