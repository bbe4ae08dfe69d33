"""Spaces that a heuristic makes: its configs for each call's target and sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeAlias

from silo.core.config import Config
from silo.core.device import Target, driver_of
from silo.core.dispatch import bucket_of
from silo.core.expressions import Argument, Bindings, Const, Node, OpKind, evaluate, leaves, make
from silo.core.signature import ParameterKind, Signature
from silo.core.space import Constraint, Space
from silo.core.trace import trace_value
from silo.core.values import Value
from silo.errors import ExpressionError, SpaceError, TraceError
from silo.heuristics.candidates import Candidates, HeuristicCandidate
from silo.heuristics.facts import KernelFacts, SizeHints, TargetFacts, TuningEffort
from silo.heuristics.pointwise import pointwise
from silo.heuristics.reductions import (
    cooperative_reduction,
    mix_order,
    native_matmul,
    persistent_reduction,
    reduction,
    split_scan,
)

__all__ = ["KINDS", "OPTIONS", "BoundSpace", "HeuristicSpace", "check_blocks", "space"]

HeuristicFunction: TypeAlias = "Callable[[TargetFacts, SizeHints, KernelFacts, TuningEffort], Candidates]"
SizeOf: TypeAlias = "str | int | Callable[[Any], object]"

KINDS: dict[str, HeuristicFunction] = {
    "pointwise": pointwise,
    "reduction": reduction,
    "persistent_reduction": persistent_reduction,
    "mix_order": mix_order,
    "cooperative_reduction": cooperative_reduction,
    "split_scan": split_scan,
    "native_matmul": native_matmul,
}
# Kinds of kernels that process whole rows, so that no config sets the block size of the reduced axis. If the kernel has
# a constexpr for this block size, the constexpr gets the row's length.
_WHOLE_ROWS = ("persistent_reduction", "mix_order")
# Programs of a cooperative reduction wait for one another, so they must all run at once. With this option a driver
# rejects a launch of more programs than the device can run at once; without it such a launch would hang. A launch may
# have too many programs, because a config may be used for sizes that it was not made for (a bundle takes RSPLIT from
# the nearest bucket). Results are right with any RSPLIT.
_TOGETHER: Mapping[str, Value] = {"launch_cooperative_grid": True}
# Options that every config sets, except configs for a CPU.
OPTIONS = ("num_warps", "num_stages")


def _no_names() -> Mapping[str, str]:
    return {}


def _no_values() -> Mapping[str, Value]:
    return {}


@dataclass(frozen=True)
class HeuristicSpace:
    """The description of a heuristic's space, for ``silo.kernel(space=...)``; made by :func:`space`."""

    kind: str
    function: HeuristicFunction
    sizes: Mapping[str, SizeOf]
    names: Mapping[str, str] = field(default_factory=_no_names)
    facts: KernelFacts = KernelFacts()  # noqa: RUF009  # frozen
    effort: TuningEffort = TuningEffort()  # noqa: RUF009  # frozen
    constants: Mapping[str, Value] = field(default_factory=_no_values)

    def bound(
        self,
        kernel: str,
        signature: Signature,
        constraints: Sequence[Constraint] = (),
        *,
        why: str = "",
        placed: tuple[str, ...] = (),
    ) -> BoundSpace:
        """Returns this space for one kernel, with expressions over the kernel's arguments.

        Raises SpaceError if the kernel lacks a constexpr or an argument that the space names.
        """
        sizes = self.size_nodes(kernel, signature)
        sample = self.made(TargetFacts("cuda"), {dimension: 64 for dimension, _ in sizes})
        blocks = tuple(name for name, _ in sample[0].config.values)
        check_blocks(kernel, self.kind, blocks, signature)
        return BoundSpace(kernel, self, sizes, blocks, tuple(constraints), why, placed)

    def size_nodes(self, kernel: str, signature: Signature) -> tuple[tuple[str, Node], ...]:
        """Returns the size of each dimension as an expression over a kernel's scalar arguments.

        Raises SpaceError if an argument is missing.
        """
        scalars = [p.name for p in signature.parameters if p.kind is not ParameterKind.POINTER]
        return tuple((dimension, self._size(kernel, size, scalars)) for dimension, size in self.sizes.items())

    def _size(self, kernel: str, size: SizeOf, scalars: Sequence[str]) -> Node:
        if isinstance(size, int):
            return Const(size)
        if isinstance(size, str):
            if size not in scalars:
                raise SpaceError(f"{kernel}: {size!r} is not a scalar parameter; it has {', '.join(scalars) or 'none'}")
            return Argument(size)
        try:
            node = trace_value(size, scalars)
        except TraceError as error:
            raise SpaceError(f"{kernel}: a size of the {self.kind} heuristic: {error}") from error
        for leaf in leaves(node):
            if not isinstance(leaf, Argument):
                raise SpaceError(
                    f"{kernel}: a size of the {self.kind} heuristic reads {leaf}; it may read scalars only"
                )
        return node

    def made(self, target: TargetFacts, sizes: Mapping[str, int]) -> Candidates:
        """Returns the candidates for ``sizes`` (by dimension); their constexprs have the kernel's own names."""
        hints = SizeHints.of(sizes)
        candidates = self.function(target, hints, self.facts, self.effort).named(self.names)
        row = {self.row: hints.rnumel} if self.row else {}
        more = {**row, **(_TOGETHER if self._waits and driver_of(target.kind).library else {}), **self.constants}
        return (
            replace(candidates, found=tuple(_with(candidate, more) for candidate in candidates)) if more else candidates
        )

    @property
    def _waits(self) -> bool:
        return self.kind == "cooperative_reduction"

    @property
    def row(self) -> str:
        """The name of the constexpr for the length of a whole row; "" without such a constexpr."""
        return self.names.get("R0_BLOCK", "") if self.whole_rows else ""

    @property
    def whole_rows(self) -> bool:
        """Whether a block holds a whole row, so that no config sets its length along the row."""
        return self.kind in _WHOLE_ROWS


def check_blocks(kernel: str, kind: str, blocks: Sequence[str], signature: Signature) -> None:
    """Raises SpaceError for a block-size constexpr that a heuristic sets and the kernel lacks."""
    constants = [p.name for p in signature.parameters if p.kind is ParameterKind.CONSTEXPR]
    for name in blocks:
        if name not in constants:
            raise SpaceError(
                f"{kernel}: the {kind} heuristic sets {name}, which is not a constexpr of the kernel; it has "
                f"{', '.join(constants) or 'none'}: say which one is meant, names={{{name!r}: ...}}, or with '' that "
                "it is written in"
            )


def _with(candidate: HeuristicCandidate, members: Mapping[str, Value]) -> HeuristicCandidate:
    return replace(candidate, config=Config.of({**candidate.config.as_dict(), **members}))


@dataclass(frozen=True)
class BoundSpace:
    """A heuristic's space for one kernel.

    ``sizes`` holds each dimension's size as an expression over the kernel's scalar arguments; ``blocks`` are the
    block-size constexprs. For an inferred space, ``why`` is the reason for it, and ``placed`` names the block sizes
    that the kernel's grid must depend on.
    """

    kernel: str
    made_by: HeuristicSpace
    sizes: tuple[tuple[str, Node], ...]
    blocks: tuple[str, ...]
    constraints: tuple[Constraint, ...] = ()
    why: str = ""
    placed: tuple[str, ...] = ()

    @property
    def deterministic(self) -> BoundSpace:
        """This space with one config for each reduction, so that sums are always made in the same order."""
        effort = replace(self.made_by.effort, deterministic=True)
        return replace(self, made_by=replace(self.made_by, effort=effort))

    @property
    def config_names(self) -> tuple[str, ...]:
        """The constexprs and options that its configs set, sorted."""
        return tuple(sorted((*self.blocks, *OPTIONS)))

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the arguments whose values decide the configs, each once; the tuning key must contain them."""
        argument_names = [leaf.name for _, node in self.sizes for leaf in leaves(node) if isinstance(leaf, Argument)]
        return tuple(dict.fromkeys(argument_names))

    @property
    def needed(self) -> tuple[tuple[str, Node], ...]:
        """The constexpr for the length of a whole row, with its value as an expression; empty without such a constexpr.

        A wrong value would give wrong results.
        """
        return ((self.made_by.row, self.row_length),) if self.made_by.row else ()

    @property
    def row_length(self) -> Node:
        """Returns the length of a whole row, rounded up to a power of two, as an expression."""
        rows = [node for dimension, node in self.sizes if dimension.startswith("r")]
        length = reduce(lambda left, right: make(OpKind.MUL, left, right), rows)
        return make(OpKind.NEXT_POW2, make(OpKind.MAX, length, Const(1)))

    def candidates(self, target: Target, device: Mapping[str, int], values: Mapping[str, Value]) -> Candidates:
        """Returns the candidates of one call, from its target, the facts of its device, and the call's scalars.

        Sizes are replaced by their bucket, so that calls of one bucket have one space. Raises SpaceError for a size
        that is not an integer.
        """
        return self.made_by.made(TargetFacts.of(target, device), self.hints(values))

    def hints(self, values: Mapping[str, Value]) -> dict[str, int]:
        """Returns the sizes of one call's bucket by dimension. Raises SpaceError for a size that is not an integer."""
        buckets = {name: bucket_of([values.get(name)])[0] for name in self.reads}
        sizes: dict[str, int] = {}
        for dimension, node in self.sizes:
            try:
                sizes[dimension] = max(evaluate(node, Bindings(values=buckets)), 0)
            except ExpressionError as error:
                raise SpaceError(f"{self.kernel}: the size {dimension} for the heuristic: {error}") from None
        return sizes

    def space(self, target: Target, device: Mapping[str, int], values: Mapping[str, Value]) -> Space:
        """Returns the space of one call. Raises SpaceError if the constraints exclude every config."""
        return Space.of(self.candidates(target, device, values).configs, self.constraints, self.reads)

    def explain(self, target: Target, device: Mapping[str, int], values: Mapping[str, Value]) -> str:
        """Explains the space of one call, with a line for each config."""
        sizes = ", ".join(f"{name}={size}" for name, size in self.hints(values).items())
        read = ", ".join(f"{dimension} from {node}" for dimension, node in self.sizes)
        lines = [f"space: the {self.made_by.kind} heuristic for {target} and {sizes} ({read})"]
        if self.why:
            lines.append(f"  {self.why}")
        lines += [f"  {candidate}" for candidate in self.candidates(target, device, values)]
        return "\n".join(lines)


def space(
    kind: str | HeuristicFunction,
    sizes: Mapping[str, SizeOf],
    *,
    names: Mapping[str, str] | None = None,
    facts: KernelFacts = KernelFacts(),  # noqa: B008  # frozen
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
    constants: Mapping[str, Value] | None = None,
) -> HeuristicSpace:
    """Describes a space for ``silo.kernel(space=...)`` that a heuristic makes for each call's device and sizes.

    Args:
        kind: ``pointwise``, ``reduction``, ``persistent_reduction``, ``mix_order``, ``cooperative_reduction``,
            ``split_scan``, ``native_matmul``; or a function of the same form, ``f(target, hints, facts, effort)``.
        sizes: the number of elements of each dimension (x, y, z, r): the name of an integer argument, a number, or a
            function of the arguments, for example ``lambda a: a.m * a.n``.
        names: maps the usual names of block sizes to the kernel's own (``{"XBLOCK": "BLOCK"}``), or to "" for a block
            size that is a literal in the kernel. A persistent reduction's R0_BLOCK is the length of a row, a power of
            two. Configs of a cooperative reduction request a cooperative launch, unless ``constants`` override that.
        facts: the facts about the kernel.
        effort: the number of configs wanted.
        constants: other constexprs and options that every config sets.

    Raises:
        SpaceError: an unknown kind or dimension.
    """
    if isinstance(kind, str):
        if kind not in KINDS:
            raise SpaceError(f"there is no heuristic {kind!r}; there are {', '.join(KINDS)}")
        function, name = KINDS[kind], kind
    else:
        function, name = kind, getattr(kind, "__name__", "own")
    SizeHints.of(dict.fromkeys(sizes, 1))
    return HeuristicSpace(name, function, dict(sizes), dict(names or {}), facts, effort, dict(constants or {}))
