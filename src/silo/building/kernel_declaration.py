"""A kernel as its author declared it: source, space, key, grid, and the lists of names that the declaration implies."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Self, cast

from silo.building.derived_constexprs import Derived, trace_heuristics
from silo.building.ready_cases import CaseFunction
from silo.compile.toolchain import select_compiler
from silo.core.config import Config
from silo.core.device import Target
from silo.core.expressions import Node
from silo.core.plugins import why_unmeasured
from silo.core.search_space import Rule, SearchSpace
from silo.core.signature import Effect, ParameterKind
from silo.core.space import Constraint, Space
from silo.core.values import Value, same_values
from silo.errors import SpaceError
from silo.sources.kernel_source import KernelSource, RunsInLibrary, TakesTuples

if TYPE_CHECKING:
    from silo.core.compound_arguments import TupleShape, TupleShapes
    from silo.core.extents import HeldExtents

__all__ = ["DeclaredKernel"]


class DeclaredKernel:
    """One kernel as its author declared it; :class:`silo.Kernel` adds the parts that serve calls."""

    def __init__(
        self,
        source: KernelSource,
        *,
        space: SearchSpace | None,
        rule: Rule | None = None,
        key: tuple[str, ...],
        grid: tuple[Node, ...] | None,
        tune: str | None,
        release_gil: bool = True,
        check: bool | None = None,
        lock: str | os.PathLike[str] | None = None,
        deterministic: bool | None = None,
        open_blocks: tuple[str, ...] = (),
        open_key: tuple[str, ...] = (),
        open_constraints: tuple[Constraint, ...] = (),
        prunes: bool = False,
        zeroed: Mapping[Config, tuple[str, ...]] | None = None,
        contiguous: tuple[str, ...] = (),
    ) -> None:
        self.source = source
        # the heuristic that makes the space of each call, or None
        self.rule = rule
        self._space = Space.of([Config()]) if space is None else space
        self.key = key
        # For a kernel declared without a space, a heuristic chooses the block sizes ``open_blocks`` that a
        # call leaves out. ``open_key`` and ``open_constraints`` are the key and the constraints for these calls.
        self.open_blocks = open_blocks
        self.open_key = open_key
        self.open_constraints = open_constraints
        self.grid = grid
        self.tune = tune
        self.release_gil = release_gil
        self.check = check
        self.lock = lock
        self.deterministic = deterministic
        # whether the author's own functions prune the configs of each call
        self.prunes = prunes
        # maps configs to the names of the arguments that a launch first sets to zero
        self.zeroed = zeroed or {}
        # arrays that every call must pass contiguous; the guard rejects others
        self.contiguous = contiguous
        self.case_functions: list[CaseFunction] = []
        self._by_tuples: dict[tuple[tuple[str, TupleShape], ...], Self] = {}

    @cached_property
    def takes_tuples(self) -> bool:
        """Whether calls may pass tuples for parameters of this kernel."""
        return isinstance(self.source, TakesTuples)

    def with_tuples(self, shapes: TupleShapes) -> Self:
        """Returns this kernel for calls that pass tuples; ``shapes`` has the shape of each tuple by parameter.

        Equal shapes give the same object.
        """
        key = tuple(sorted(shapes.items(), key=lambda pair: pair[0]))
        if (cached_kernel := self._by_tuples.get(key)) is not None:
            return cached_kernel
        from silo.core.compound_arguments import flat_names  # noqa: PLC0415  # few kernels take tuples

        kernel = type(self)(
            cast("TakesTuples", self.source).with_tuples(shapes),
            space=self._space,
            rule=self.rule,
            key=flat_names(shapes, self.key),
            grid=self.grid,
            tune=self.tune,
            release_gil=self.release_gil,
            check=self.check,
            lock=self.lock,
            deterministic=self.deterministic,
            open_blocks=tuple(name for name in self.open_blocks if name not in shapes),
            open_key=flat_names(shapes, self.open_key),
            open_constraints=self.open_constraints,
            prunes=self.prunes,
            zeroed=self.zeroed,
            contiguous=flat_names(shapes, self.contiguous),
        )
        return self._by_tuples.setdefault(key, kernel)

    @cached_property
    def zeroed_always(self) -> tuple[str, ...] | None:
        """The arguments that every config sets to zero; None if configs set different arguments to zero."""
        if not self.zeroed:
            return ()
        variants_zeroed = {self.zeroed.get(config, ()) for config in self.space.configs()}
        return variants_zeroed.pop() if len(variants_zeroed) == 1 else None

    @property
    def declared_writes(self) -> tuple[str, ...]:
        """The parameters that the kernel writes by its declaration: zeroed ones, and ``out`` and ``inout`` ones.

        If the signature declares no effects (kernels of some kinds cannot declare any), these are only the zeroed
        parameters.
        """
        parameters = self.source.signature.parameters
        declares_effects = any(parameter.effect is not Effect.BOTH for parameter in parameters)
        zeroed = {name for names in self.zeroed.values() for name in names}
        return tuple(
            parameter.name
            for parameter in parameters
            if parameter.name in zeroed or (declares_effects and parameter.effect.writes)
        )

    def zeroed_by(self, values: Mapping[str, Value]) -> tuple[str, ...]:
        """Returns the arguments that the author's config with these values sets to zero; () for any other config."""
        for config, names in self.zeroed.items():
            if same_values(config.as_dict(), values):
                return names
        return ()

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.source.name

    @property
    def location(self) -> str:
        """``file:line`` of the kernel's definition."""
        return self.source.location

    @property
    def space(self) -> SearchSpace:
        """The kernel's space. Raises SpaceError if a heuristic makes a space for each call (:attr:`rule`)."""
        if self.rule is None:
            return self._space
        raise SpaceError(f"the space of {self.name} depends on the call: a heuristic makes it")

    def first_config(self, values: Mapping[str, Value]) -> Config:
        """Returns the first config for the scalars of a call.

        If a heuristic makes the space, this is the heuristic's first config for a GPU about which no facts are known.
        """
        if self.rule is None:
            return self.space.default
        return self.rule.space(Target("cuda"), {}, values).default

    @cached_property
    def agreed_values(self) -> Mapping[str, Value]:
        """The values that all configs of the space share; empty if a heuristic makes the space."""
        if self.rule is not None:
            return {}
        first, *others = (config.as_dict() for config in self.space.configs())
        return {
            name: value for name, value in first.items() if all(same_values({name: value}, other) for other in others)
        }

    @property
    def guard_key(self) -> tuple[str, ...]:
        """Scalar arguments whose bucket is part of the guard in calls that leave out block sizes."""
        return self.key or self.open_key

    @property
    def launcher_names(self) -> tuple[str, ...]:
        """Parameters that calls may leave out: names that configs set, derived constexprs, and open block sizes."""
        return (*self.config_names, *self.derived.names, *self.open_blocks)

    @cached_property
    def config_names(self) -> tuple[str, ...]:
        """Constexprs and options that a config sets, sorted."""
        if self.rule is not None:
            return self.rule.config_names
        return tuple(sorted({name for config in self.space.configs() for name in config.as_dict()}))

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Parameters that a call passes: all that neither a config nor a heuristic sets."""
        reserved_names = {*self.config_names, *self.source.heuristics}
        return tuple(name for name in self.source.signature.names if name not in reserved_names)

    @cached_property
    def derived(self) -> Derived:
        """Constexprs that heuristics compute."""
        return trace_heuristics(self.name, self.source.heuristics, self.argument_names, self.config_names)

    @property
    def exact_names(self) -> tuple[str, ...]:
        """Scalar arguments whose exact value is part of the guard, sorted."""
        parameters = self.source.signature
        pruned = {name for name in self.key if self.prunes and parameters[name].kind is not ParameterKind.CONSTEXPR}
        return tuple(sorted(self.derived.reads | self.source.exact | pruned | self._guarded[1]))

    @property
    def extents(self) -> HeldExtents | None:
        """The extents that decide the code, which the guard therefore compares; None without such extents.

        If the grid decides the code, these include the extents that the grid depends on.
        """
        return self._guarded[0]

    @property
    def in_library(self) -> bool:
        """Whether a library (such as jax) runs the kernel's code. Other processes then cannot measure the kernel."""
        return isinstance(self.source, RunsInLibrary) and self.source.in_library

    def why_unmeasured(self, target: Target) -> str:
        """Returns the reason why times taken on this target do not represent the kernel; "" if they do."""
        if not self.in_library:
            return ""
        declared = select_compiler(self.source.kind, target).declaration
        return why_unmeasured((blob.name for blob in declared.blobs), target.kind)

    @property
    def holds_grid(self) -> bool:
        """Whether the kernel's code is compiled for one grid."""
        return self.extents is not None and self.extents.grid

    @cached_property
    def _guarded(self) -> tuple[HeldExtents | None, frozenset[str]]:
        if self.source.extents is None:
            return None, frozenset()
        from silo.core.extents import guard_for_grid  # noqa: PLC0415  # few kernels have code that extents decide

        return guard_for_grid(self.source.extents, self.grid, self.source.signature)
