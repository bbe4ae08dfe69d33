"""Infers the space of a kernel from its lowered form, for calls that leave block sizes open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from silo.building.compilation import lowered
from silo.core.config import Config
from silo.core.device import Target
from silo.core.expressions import Argument, ConfigValue, Node, leaves
from silo.core.search_space import Rule
from silo.core.signature import ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import Value
from silo.core.variant import Variant
from silo.errors import CompileError, SourceError, SpaceError
from silo.heuristics.heuristic_space import BoundSpace
from silo.heuristics.inferred import GROUP, KernelUse, common_use, guess, role_of, use_of

if TYPE_CHECKING:
    from silo.building.kernel_declaration import DeclaredKernel

__all__ = ["check_grid", "guess_space"]

_NAMED = (Argument, ConfigValue)

# Values for the open block sizes, so that the kernel can be lowered; each block size gets a different value. 16 is the
# smallest that tl.dot accepts.
_LENGTHS = tuple(1 << power for power in range(4, 15))
_GROUP_ROWS = 8


def guess_space(
    kernel: DeclaredKernel, target: Target, signature: Signature, specialization: Specialization
) -> BoundSpace:
    """Returns a space, inferred from the lowered kernel, for the block sizes that calls may leave out.

    ``specialization`` is the specialization of a call, without values for these block sizes. Raises SpaceError, with
    the reason and the values to pass, if no space can be inferred.
    """
    constant_values = {value for _, value in specialization.constants if isinstance(value, int)}
    lengths = [length for length in _LENGTHS if length not in constant_values]
    if len(kernel.open_blocks) >= len(lengths):
        raise SpaceError(
            f"{kernel.name}: no heuristic can be guessed for {len(kernel.open_blocks)} open blocks: give the values "
            "in the call, or silo.kernel a space="
        )
    # Two trials with different block sizes: in one trial alone, a constant of the kernel could equal a block size by
    # chance.
    trials = [
        {
            name: _GROUP_ROWS if role_of(name) == GROUP else lengths[index + shift]
            for index, name in enumerate(sorted(kernel.open_blocks, key=lambda name: role_of(name) == GROUP))
        }
        for shift in range(2)
    ]
    use = common_use(*(_use(kernel, target, signature, specialization, trial) for trial in trials))
    scalars = [p.name for p in signature.parameters if p.kind is ParameterKind.INTEGER]
    space, why = guess(kernel.name, use, scalars, [name for name in kernel.guard_key if name in scalars])
    placed = tuple(name for name, block in use.blocks.items() if block.placed)
    return space.bound(kernel.name, kernel.source.signature, kernel.open_constraints, why=why, placed=placed)


def check_grid(kernel: DeclaredKernel, rule: Rule, grid: object, declared: tuple[Node, ...] | None) -> None:
    """Raises SpaceError if the grid of a call does not depend on the block sizes that it has to depend on.

    ``grid`` is the grid that the call passes, or None if the call uses the ``declared`` grid of the kernel or of a
    case. Whether a grid consists of integers is part of the guard code, so the first call with a grid of integers
    always reaches this check, even if calls with a function as grid were served already.
    """
    if not rule.placed or callable(grid):
        return
    if grid is None:
        read = {leaf.name for axis in declared or () for leaf in leaves(axis) if isinstance(leaf, _NAMED)}
        if declared is None or read & set(rule.placed):
            return
        written = ", ".join(str(axis) for axis in declared)
        grid_text = f"the declared grid ({written})"
    else:
        grid_text = f"the grid {grid!r} of the call"
    raise SpaceError(
        f"{kernel.name}: the call leaves {', '.join(rule.placed)} open, and {grid_text} does not depend on it: "
        f"pass a function, {kernel.name}[lambda meta: (silo.cdiv(..., meta[{rule.placed[0]!r}]),)](...), or the value"
    )


def _use(
    kernel: DeclaredKernel, target: Target, signature: Signature, specialization: Specialization, trial: dict[str, int]
) -> KernelUse:
    config: dict[str, Value] = dict(trial)
    variant = Variant(kernel.name, kernel.source.fingerprint, signature, specialization, Config.of(config), target)
    tried = ", ".join(f"{name}={value}" for name, value in trial.items())
    advice = "Give the values in the call, or silo.kernel a space="
    try:
        traits = lowered(kernel.source, variant).facts.traits
    except (CompileError, SourceError) as error:
        raise SpaceError(
            f"{kernel.name}: the call leaves {', '.join(trial)} open, and what the kernel is cannot be told, for it "
            f"does not compile with {tried}: {error}\n{advice}"
        ) from error
    if traits is None:
        raise SpaceError(
            f"{kernel.name}: the call leaves {', '.join(trial)} open, and what the kernel is cannot be told: nothing "
            f"reads the code of {kernel.source.kind} kernels for {target}. {advice}"
        )
    return use_of(traits, trial)
