"""Combos as the space of a kernel: the heuristic of each sub-kernel, tuned one group after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, cast

from silo.core.config import Config
from silo.core.constraints import Constraint
from silo.core.grouped_space import GroupedSpace
from silo.core.nodes import Node
from silo.core.signature import ParameterKind, Signature
from silo.core.target import Target
from silo.core.values import Value
from silo.errors import SpaceError
from silo.heuristics.combo import ComboPlan, SubKernel, combo
from silo.heuristics.heuristic_space import KINDS, OPTIONS, BoundSpace, HeuristicSpace, check_blocks
from silo.heuristics.kernel_facts import SizeHints, TuningEffort
from silo.heuristics.target_facts import TargetFacts

__all__ = ["BoundCombo", "ComboSpace", "combo_space"]

_KINDS = ("pointwise", "reduction", "persistent_reduction")


def _no_values() -> Mapping[str, Value]:
    return {}


@dataclass(frozen=True)
class ComboSpace:
    """A combo's space still to be made, for ``silo.kernel(space=...)``; build with :func:`combo_space`."""

    parts: tuple[HeuristicSpace, ...]
    grouped: bool = True
    effort: TuningEffort = TuningEffort()  # noqa: RUF009  # frozen
    constants: Mapping[str, Value] = field(default_factory=_no_values)
    kind: Literal["combo"] = "combo"

    def bound(self, kernel: str, signature: Signature, constraints: Sequence[Constraint] = ()) -> BoundCombo:
        """For one kernel. ``SpaceError`` where it lacks a block or an argument that a sub-kernel names."""
        constants = frozenset(p.name for p in signature.parameters if p.kind is ParameterKind.CONSTEXPR)
        parts = tuple(BoundSpace(kernel, part, part.size_nodes(kernel, signature), ()) for part in self.parts)
        rows = tuple((number, _row_name(part, number, constants)) for number, part in enumerate(self.parts))
        made = BoundCombo(kernel, self, parts, constants, tuple(row for row in rows if row[1]), tuple(constraints))
        check_blocks(kernel, self.kind, made.blocks, signature)
        return made


def _row_name(part: HeuristicSpace, number: int, constants: frozenset[str]) -> str:
    """The constexpr that is the length of a sub-kernel's whole row, "" where it has that written in."""
    usual = f"R0_BLOCK_{number}"
    return part.names.get("R0_BLOCK", usual if usual in constants else "") if part.whole_rows else ""


@dataclass(frozen=True)
class BoundCombo:
    """A combo's space for one kernel: ``parts`` are its sub-kernels, ``constexprs`` the kernel's.

    ``rows`` are the constexprs that have to be the length of a whole row, each after the number of its sub-kernel.
    """

    kernel: str
    made_by: ComboSpace
    parts: tuple[BoundSpace, ...]
    constexprs: frozenset[str]
    rows: tuple[tuple[int, str], ...]
    constraints: tuple[Constraint, ...] = ()

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """Constexprs that its configs set."""
        sizes = [{dimension: 64 for dimension, _ in part.sizes} for part in self.parts]
        return tuple(name for name, _ in self._space(self._plan(TargetFacts("cuda"), sizes), sizes).base.values)

    @property
    def deterministic(self) -> BoundCombo:
        """The same space where sums must be made in one order: one config for reductions."""
        effort = replace(self.made_by.effort, deterministic=True)
        return replace(self, made_by=replace(self.made_by, effort=effort))

    @property
    def config_names(self) -> tuple[str, ...]:
        """Constexprs and options that its configs set, sorted."""
        return tuple(sorted((*self.blocks, *OPTIONS)))

    @property
    def placed(self) -> tuple[str, ...]:
        """Blocks that a grid is checked to count: none, because the author of a combo knows its grid."""
        return ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Arguments whose values decide, each once: the least that tuning depends on."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.reads))

    @property
    def needed(self) -> tuple[tuple[str, Node], ...]:
        """Constexprs without which results would be wrong, as expressions over the arguments: lengths of whole rows."""
        return tuple((name, self.parts[number].row_length) for number, name in self.rows)

    def plan(self, target: Target, device: Mapping[str, int], values: Mapping[str, Value]) -> ComboPlan:
        """The plan for one call, by its target, the facts of a device of it, and the call's scalars."""
        return self._plan(TargetFacts.of(target, device), [part.hints(values) for part in self.parts])

    def space(self, target: Target, device: Mapping[str, int], values: Mapping[str, Value]) -> GroupedSpace:
        """The space of one call. ``SpaceError`` where the constraints leave nothing of it."""
        sizes = [part.hints(values) for part in self.parts]
        made = self._space(self.plan(target, device, values), sizes)
        return made.constrained(self.constraints, self.reads) if self.constraints else made

    def explain(self, target: Target, device: Mapping[str, int], values: Mapping[str, Value]) -> str:
        """How the space of one call comes about, a line for each sub-kernel and each choice."""
        plan = self.plan(target, device, values)
        lines = [f"space: a combo of {len(self.parts)} sub-kernels for {target}, at most {plan.space.effort} configs"]
        for number, part in enumerate(self.parts):
            sizes = ", ".join(f"{name}={size}" for name, size in part.hints(values).items())
            lines.append(f"  {number}: {part.made_by.kind} for {sizes}")
        for group in plan.groups:
            lines.append(f"  group of {', '.join(map(str, group.members))}:")
            lines += [f"    {one}" for one in group.configs]
        if plan.launches:
            pairs = ", ".join(f"{warps} and {stages}" for warps, stages in plan.launches)
            lines.append(f"  warps and stages of all: {pairs}")
        return "\n".join(lines)

    def _plan(self, target: TargetFacts, sizes: Sequence[Mapping[str, int]]) -> ComboPlan:
        kernels = [
            SubKernel(cast("Literal['pointwise']", part.kind), SizeHints.of(size), part.facts, part.names)
            for part, size in zip(self.made_by.parts, sizes, strict=True)
        ]
        return combo(target, kernels, names=self.constexprs, grouped=self.made_by.grouped, effort=self.made_by.effort)

    def _space(self, plan: ComboPlan, sizes: Sequence[Mapping[str, int]]) -> GroupedSpace:
        rows = {name: SizeHints.of(sizes[number]).rnumel for number, name in self.rows}
        members = {**plan.space.base.as_dict(), **rows, **self.made_by.constants}
        return replace(plan.space, base=Config.of(members))


def combo_space(
    parts: Sequence[HeuristicSpace],
    *,
    grouped: bool = True,
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
    constants: Mapping[str, Value] | None = None,
) -> ComboSpace:
    """A space for ``silo.kernel(space=...)`` of a kernel that does the work of several, each in programs of its own.

    Sub-kernel ``i`` has the blocks ``XBLOCK_i`` and so on, where the kernel has such constexprs, else ``XBLOCK``, which
    is then one for all. Sub-kernels are tuned one after the other, the largest first, equal ones (kind, sizes, facts)
    as one, warps and stages at the end.

    Args:
        parts: the sub-kernels in order, as :func:`silo.heuristics.heuristic_space` describes a kernel: pointwise
        kernels,
            reductions and persistent reductions. ``names`` of a part are the combo's names of its blocks.
        grouped: whether equal sub-kernels are tuned as one.
        effort: how many configs are wanted.
        constants: other constexprs and options that every config sets.

    Raises:
        SpaceError: there is no sub-kernel, or one of a kind that no combo has; one that has constants or an effort.
    """
    if not parts:
        raise SpaceError("a combo without sub-kernels has no config")
    for number, part in enumerate(parts):
        if part.kind not in _KINDS or part.function is not KINDS[part.kind]:
            raise SpaceError(
                f"sub-kernel {number} of the combo has the heuristic {part.kind}; it is one of Silo's own "
                f"{', '.join(_KINDS)}"
            )
        if part.constants or part.effort != TuningEffort():
            raise SpaceError(
                f"sub-kernel {number} of the combo has constants or an effort of its own; give them to combo_space"
            )
    return ComboSpace(tuple(parts), grouped, effort, dict(constants or {}))
