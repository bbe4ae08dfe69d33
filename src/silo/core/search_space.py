"""The protocols that every space follows, whether it lists its configs, spans axes or is made by a heuristic."""

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
    """The configs that a kernel may be compiled with, or the part of them that is valid for one call.

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
        """The largest possible number of configs, including those that are not listed."""
        ...

    @property
    def effort(self) -> int:
        """The number of configs that a complete search measures."""
        ...

    @property
    def grouped(self) -> GroupedSpace | None:
        """The space itself if a search goes through it group by group; None if it is a list."""
        ...

    def __contains__(self, config: object) -> bool: ...

    def configs(self, arguments: Mapping[str, Value] | None = None) -> tuple[Config, ...]:
        """Returns the listed configs that the constraints allow for the values of key arguments.

        Raises ``SpaceError`` if they allow none.
        """
        ...

    def for_call(
        self, arguments: Mapping[str, Value] | None = None, constexprs: Mapping[str, Value] | None = None
    ) -> SearchSpace:
        """Returns the part of the space that one call may use.

        ``arguments`` are the values of the call's key arguments, ``constexprs`` the config members that the caller has
        set.
        """
        ...

    def product(self) -> tuple[Config, ...]:
        """Returns every config. Raises ``SpaceError`` if there are too many to list."""
        ...


@runtime_checkable
class DeclaredSpace(Protocol):
    """A space that the author of a kernel made; constraints declared beside it can be added."""

    def constrained(self, constraints: Sequence[Constraint], key: Sequence[str] = ()) -> SearchSpace:
        """Returns the space with these constraints, which may read the integer arguments that ``key`` names."""
        ...


class Rule(Protocol):
    """A space heuristic bound to one kernel: makes the space of each call from the device and the call's scalars."""

    @property
    def made_by(self) -> SpaceHeuristic:
        """The heuristic as it was declared."""
        ...

    @property
    def deterministic(self) -> Rule:
        """Returns the same rule with one config for each reduction, so that sums are always made in the same order."""
        ...

    @property
    def config_names(self) -> tuple[str, ...]:
        """The constexprs and options that the rule's configs set, sorted."""
        ...

    @property
    def placed(self) -> tuple[str, ...]:
        """The names of the block sizes from which programs compute their positions.

        A call whose grid depends on none of these block sizes is refused, because its programs would miss elements, or
        go past the last one, as soon as a config sets another size.
        """
        ...

    @property
    def reads(self) -> tuple[str, ...]:
        """The arguments whose values the rule reads, each once. The tuning key must contain at least these."""
        ...

    @property
    def needed(self) -> tuple[tuple[str, Node], ...]:
        """The constexprs that have only one right value, each with this value as an expression.

        With any other value of such a constexpr the kernel's results are wrong.
        """
        ...

    def space(self, target: Target, device: Mapping[str, int], values: Mapping[str, Value]) -> SearchSpace:
        """Returns the space of one call. Raises ``SpaceError`` if the constraints exclude all configs."""
        ...

    def explain(self, target: Target, device: Mapping[str, int], values: Mapping[str, Value]) -> str:
        """Explains the space of one call, a line for each config."""
        ...


@runtime_checkable
class SpaceHeuristic(Protocol):
    """A heuristic for ``silo.kernel(space=...)`` that makes the spaces of one kernel, or of a combo of several."""

    @property
    def kind(self) -> str:
        """The heuristic's name in messages."""
        ...

    def bound(self, kernel: str, signature: Signature, constraints: Sequence[Constraint] = ()) -> Rule:
        """Binds the heuristic to one kernel.

        Raises ``SpaceError`` if the kernel lacks a block or an argument that the heuristic names.
        """
        ...


def space_of(
    members: Mapping[str, Iterable[Value]] | Iterable[Config | Mapping[str, Value]] | DeclaredSpace,
    constraints: Sequence[Constraint] = (),
    key: Sequence[str] = (),
) -> SearchSpace:
    """Returns the space that an author declared: a finished space, a mapping of axes, or a list of configs.

    >>> [str(config) for config in space_of({"BLOCK": [64, 128]}, [lambda c: c.BLOCK > 64]).listed]
    ['BLOCK=128']
    """
    if isinstance(members, DeclaredSpace):
        return members.constrained(constraints, key)
    return Space.of(members, constraints, key)
