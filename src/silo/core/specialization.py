"""Specializations: facts about one call's arguments that the compiler may use."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from silo.core.json_reader import VALUE, Form, Persisted, enumerated, paired
from silo.core.values import JSON, Value, identity_of, value_sort_key
from silo.frozen import field, frozen, remembered, replace

if TYPE_CHECKING:
    from silo.core.extents import ArrayExtents, HeldExtents

__all__ = ["EXTENTS", "Fact", "Specialization"]


class Fact(Enum):
    """A fact about an argument (Triton's specialization of a pointer or an integer)."""

    ALIGNED_16 = "aligned16"  # a pointer whose address is a multiple of 16 bytes
    DIVISIBLE_16 = "divisible16"  # an integer that is a multiple of 16
    EQUAL_1 = "equal1"  # an integer that is 1, folded into the code
    NONE = "none"  # an argument that is None, folded into the code
    POINTER_RANGE_32 = "range32"  # a pointer into memory of less than 2 GiB, so that offsets fit 32 bits (ROCm only)
    CONFIG_BLOCK = "configblock"  # a descriptor whose block shape the config sets, not the caller

    @property
    def is_assumption(self) -> bool:
        """Whether code compiled without this fact can also serve a call for which the fact holds."""
        return self not in (Fact.NONE, Fact.CONFIG_BLOCK)


# The module of extents is imported only for a specialization with extents, because few kernels have them.
def _read_extents(data: JSON, label: str) -> tuple[tuple[str, ArrayExtents], ...]:  # noqa: ARG001  # see Form
    from silo.core.extents import extents_from_json  # noqa: PLC0415

    return extents_from_json(data)


def _write_extents(extents: tuple[tuple[str, ArrayExtents], ...]) -> JSON:
    from silo.core.extents import extents_to_json  # noqa: PLC0415

    return extents_to_json(extents)


def _read_grid(data: JSON, label: str) -> tuple[int, int, int]:  # noqa: ARG001  # see Form
    from silo.core.extents import grid_from_json  # noqa: PLC0415

    return grid_from_json(data)


EXTENTS: Final[Form[tuple[tuple[str, ArrayExtents], ...]]] = Form(_read_extents, _write_extents)
"""The :class:`Form` of extents of arrays, by the arrays' names."""


@frozen
class Specialization(Persisted):
    """Facts by parameter name, and the values of constexpr parameters that the caller gave.

    A fact that is absent was not assumed: a kernel compiled without ``aligned16`` accepts any pointer. The constant of
    a tensor descriptor is its block shape. ``extents`` are the extents of arrays that the code was made for and
    ``grid`` is the grid that it was made for; most kernels' code is made for no particular extents
    (:mod:`silo.core.extents`). All tuples are sorted by name, so equal specializations compare and hash equal.
    Constants are equal if their canonical forms are.
    """

    title = "a specialization"

    facts: tuple[tuple[str, Fact], ...] = field(default=(), form=paired(enumerated(Fact)))
    constants: tuple[tuple[str, Value], ...] = field(default=(), identity=identity_of, form=paired(VALUE))
    extents: tuple[tuple[str, ArrayExtents], ...] = field(default=(), form=EXTENTS, since=2)
    grid: tuple[int, int, int] | None = field(default=None, form=Form(_read_grid, list), since=2)

    def __post_init__(self) -> None:
        if self.extents:
            names = [name for name, _ in self.extents]
            if len(set(names)) != len(names):
                raise ValueError(f"a specialization has two extents of one argument: {', '.join(sorted(names))}")
            object.__setattr__(self, "extents", tuple(sorted(self.extents, key=lambda item: item[0])))
        object.__setattr__(self, "facts", tuple(sorted(self.facts, key=lambda item: (item[0], item[1].value))))
        object.__setattr__(
            self, "constants", tuple(sorted(self.constants, key=lambda item: (item[0], value_sort_key(item[1]))))
        )

    def facts_of(self, name: str) -> frozenset[Fact]:
        """Returns the facts assumed about one parameter."""
        return self._facts_by_name.get(name, frozenset())

    @remembered
    def _facts_by_name(self) -> dict[str, frozenset[Fact]]:
        facts_by_name: dict[str, list[Fact]] = {}
        for name, fact in self.facts:
            facts_by_name.setdefault(name, []).append(fact)
        return {name: frozenset(facts) for name, facts in facts_by_name.items()}

    @property
    def constant_values(self) -> Mapping[str, Value]:
        """Constexpr values by parameter name."""
        return dict(self.constants)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions about arguments besides constants, each in a few words."""
        return (*(f"{name} {fact.value}" for name, fact in self.facts), *self._extents)

    @property
    def served(self) -> str:
        """The extents of the calls that the code serves, for messages; "" if the code serves calls with any extents."""
        return "; ".join(self._extents)

    @property
    def _extents(self) -> tuple[str, ...]:
        grid = () if self.grid is None else (f"grid {self.grid}",)
        return (*(f"{name} {extents}" for name, extents in self.extents), *grid)

    @property
    def made_for_some(self) -> bool:
        """Whether the code serves only calls with certain extents, so that no generic variant can exist beside it."""
        return bool(self.extents) or self.grid is not None

    @property
    def passed(self) -> HeldExtents | None:
        """The arrays of dynamic layout, whose extents and strides are passed to the code; None without such arrays."""
        if not self.extents:
            return None
        from silo.core.extents import ExtentKind, HeldExtents, kind_of  # noqa: PLC0415  # few kernels have any

        kinds = ((name, kind_of(extent)) for name, extent in self.extents)
        dynamic = tuple((name, kind) for name, kind in kinds if kind is ExtentKind.DYNAMIC)
        return HeldExtents(dynamic) if dynamic else None

    def with_constants(self, constants: Mapping[str, Value]) -> Specialization:
        """Returns the specialization with other constants."""
        return replace(self, constants=tuple(constants.items()))

    def of_call(self) -> Specialization:
        """Returns the part that is known before a config is chosen: without grid and block shapes that configs set."""
        shaped = {name for name, fact in self.facts if fact is Fact.CONFIG_BLOCK}
        own_constants = tuple(pair for pair in self.constants if pair[0] not in shaped)
        return replace(self, constants=own_constants, grid=None)
