"""The protocol that every space follows, whether it lists its configs, spans them or makes them by a heuristic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from silo.core.config import Config
from silo.core.device import Target
from silo.core.expressions import Node
from silo.core.signature import Signature
from silo.core.space import Constraint, Space
from silo.core.values import Value

if TYPE_CHECKING:
    from silo.core.grouped_space import GroupedSpace

__all__ = ["DeclaredSpace", "Rule", "SearchSpace", "SpaceHeuristic", "space_of"]


class SearchSpace(Protocol):
    """The configs that a kernel may be compiled with, or the part of them that one call leaves.

    :class:`silo.core.space.Space` lists them or spans them by axes, :class:`silo.core.config.ConfigSet` is a plain
    list, and :class:`silo.core.grouped_space.GroupedSpace` has too many to list.
    """

    @property
    def listed(self) -> tuple[Config, ...]:
        """The configs in order; in a space of groups, the base and the configs that differ from it in one group."""
        ...

    @property
    def default(self) -> Config:
        """The first config, which is used until a config was measured."""
        ...

    @property
    def size(self) -> int:
        """How many configs it has at most, those that are not listed among them."""
        ...

    @property
    def effort(self) -> int:
        """How many configs a search measures that leaves nothing out."""
        ...

    @property
    def grouped(self) -> GroupedSpace | None:
        """The space itself if a search goes through it group by group; None if it is a list."""
        ...

    def __contains__(self, config: object) -> bool: ...

    def configs(self, arguments: Mapping[str, Value] | None = None) -> tuple[Config, ...]:
        """The listed configs that the constraints allow for the values of key arguments. ``SpaceError`` for none."""
        ...

    def for_call(
        self, arguments: Mapping[str, Value] | None = None, given: Mapping[str, Value] | None = None
    ) -> SearchSpace:
        """The space that remains for one call, by its key arguments and the config members that the caller sets."""
        ...

    def product(self) -> tuple[Config, ...]:
        """Every config. ``SpaceError`` if there are too many to list."""
        ...


@runtime_checkable
class DeclaredSpace(Protocol):
    """A space that the author of a kernel made, which takes the further constraints that he declares beside it."""

    def constrained(self, constraints: Sequence[Constraint], key: Sequence[str] = ()) -> SearchSpace:
        """The same space with these constraints, which may read the integer arguments that ``key`` names."""
        ...


class Rule(Protocol):
    """Makes the space of each call of one kernel, from the device and the call's scalars."""

    @property
    def made_by(self) -> SpaceHeuristic:
        """The heuristic as it was declared."""
        ...

    @property
    def deterministic(self) -> Rule:
        """The same rule if sums must be made in one order."""
        ...

    @property
    def config_names(self) -> tuple[str, ...]:
        """Constexprs and options that its configs set, sorted."""
        ...

    @property
    def placed(self) -> tuple[str, ...]:
        """Blocks by which programs are placed: a grid is checked to count them."""
        ...

    @property
    def reads(self) -> tuple[str, ...]:
        """Arguments whose values decide, each once: the least that tuning depends on."""
        ...

    @property
    def needed(self) -> tuple[tuple[str, Node], ...]:
        """Constexprs without which results would be wrong, as expressions over the arguments."""
        ...

    def space(self, target: Target, device: Mapping[str, int], values: Mapping[str, Value]) -> SearchSpace:
        """The space of one call. ``SpaceError`` if the constraints exclude all configs."""
        ...

    def explain(self, target: Target, device: Mapping[str, int], values: Mapping[str, Value]) -> str:
        """Explains the space of one call, a line for each config."""
        ...


@runtime_checkable
class SpaceHeuristic(Protocol):
    """A space still to be made, for ``silo.kernel(space=...)``: of one kernel, or of a combo of several."""

    @property
    def kind(self) -> str:
        """The heuristic's name in messages."""
        ...

    def bound(self, kernel: str, signature: Signature, constraints: Sequence[Constraint] = ()) -> Rule:
        """Binds the rule to one kernel. ``SpaceError`` if it lacks a block or an argument that the heuristic names."""
        ...


def space_of(
    members: Mapping[str, Iterable[Value]] | Iterable[Config | Mapping[str, Value]] | DeclaredSpace,
    constraints: Sequence[Constraint] = (),
    key: Sequence[str] = (),
) -> SearchSpace:
    """The space of an author's declaration: a finished space, a mapping of axes, or a list of configs.

    >>> [str(config) for config in space_of({"BLOCK": [64, 128]}, [lambda c: c.BLOCK > 64]).listed]
    ['BLOCK=128']
    """
    if isinstance(members, DeclaredSpace):
        return members.constrained(constraints, key)
    return Space.of(members, constraints, key)
