"""Infers the heuristic of a kernel without a space, from the names of its block sizes, its sizes and its code."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from silo.core.code_facts import Traits
from silo.core.signature import NoDefault, ParameterKind, Signature
from silo.core.values import Value
from silo.errors import SpaceError
from silo.heuristics.facts import KernelFacts
from silo.heuristics.heuristic_space import HeuristicSpace, space

__all__ = [
    "GROUP",
    "SIZE_NAMES",
    "BlockUse",
    "KernelUse",
    "common_use",
    "guess",
    "open_blocks",
    "open_sizes",
    "role_of",
    "size_name",
    "use_of",
]

# ---- Usual names of block sizes and sizes, and their meaning ----

# The role of a parameter for the number of rows of blocks that are processed together, so that they read shared data
# once.
GROUP = "group"
_BLOCK = "(?:BLOCK|TILE|BLK)"
_FORMS = (
    re.compile(rf"{_BLOCK}(?:SIZE)?(?P<role>X|Y|Z|R0?|M|N|K)?"),
    re.compile(rf"(?P<role>X|Y|Z|R0?|M|N|K){_BLOCK}(?:SIZE)?"),
)
_GROUP = re.compile(r"GROUP(?:SIZE)?M?")

# For each role of a block size (``m`` for BLOCK_M): the usual names, in lower case, of the argument that is the size of
# the block's dimension. If a kernel has arguments with several of these names, the first name in the tuple is chosen.
SIZE_NAMES: dict[str, tuple[str, ...]] = {
    "x": ("xnumel", "n_elements", "num_elements", "numel", "size", "length", "n_cols", "cols", "width", "n"),
    "y": ("ynumel", "n_rows", "num_rows", "rows", "height", "m"),
    "z": ("znumel", "depth", "batch"),
    "r": ("rnumel", "r0_numel", "n_cols", "num_cols", "cols", "n"),
    "m": ("m", "n_rows", "num_rows", "rows"),
    "n": ("n", "n_cols", "num_cols", "cols"),
    "k": ("k",),
    "any": ("n_elements", "num_elements", "numel", "xnumel", "n_cols", "num_cols", "cols", "size", "length", "n"),
}
_ALL_SIZES = frozenset(name for names in SIZE_NAMES.values() for name in names)


def role_of(name: str) -> str | None:
    """Returns the role of a constexpr with this name, or None.

    >>> [role_of(name) for name in ("BLOCK_SIZE", "BLOCK_M", "XBLOCK", "GROUP_SIZE_M", "HEAD_DIM")]
    ['any', 'm', 'x', 'group', None]
    """
    plain = name.upper().replace("_", "")
    if _GROUP.fullmatch(plain):
        return GROUP
    for form in _FORMS:
        match = form.fullmatch(plain)
        if match:
            role = (match["role"] or "any").lower()
            return "r" if role == "r0" else role
    return None


def open_blocks(signature: Signature, computed: Collection[str] = ()) -> tuple[str, ...]:
    """Returns the constexprs that a call may leave to a heuristic: those with a block size's name and no default.

    Constexprs named in ``computed`` are left out, because ``triton.heuristics`` computes them. If only the group size
    (``GROUP_SIZE_M``) would remain, the result is empty.
    """
    blocks = tuple(
        parameter.name
        for parameter in signature.parameters
        if parameter.kind is ParameterKind.CONSTEXPR
        and isinstance(parameter.default, NoDefault)
        and parameter.name not in computed
        and role_of(parameter.name) is not None
    )
    return blocks if any(role_of(name) != GROUP for name in blocks) else ()


def open_sizes(signature: Signature) -> tuple[str, ...]:
    """Returns the scalar parameters that have one of the usual names of sizes (:data:`SIZE_NAMES`)."""
    scalars = (ParameterKind.ANY, ParameterKind.INTEGER)
    return tuple(p.name for p in signature.parameters if p.kind in scalars and p.name.lower() in _ALL_SIZES)


def size_name(role: str, arguments: Sequence[str]) -> str | None:
    """Returns the argument that has a usual name for the size of a block's dimension (``M`` for BLOCK_M), or None."""
    lowered = {argument.lower(): argument for argument in reversed(arguments)}
    return next((lowered[name] for name in SIZE_NAMES.get(role, ()) if name in lowered), None)


# ---- Inferring the heuristic from the names of block sizes and from the kernel's code ----

# The value of the group-size parameter (``GROUP_SIZE_M``) in kernels that multiply matrices.
_GROUP_ROWS = 8
# Each entry maps the roles of block sizes to dimensions. A pointwise kernel's block sizes must have exactly the roles
# of one entry, which then decides the dimension of each block size.
_POINTWISE: tuple[dict[str, str], ...] = (
    *({role: "x"} for role in ("any", "x", "n", "m", "k", "r")),
    {"n": "x", "m": "y"},
    {"x": "x", "y": "y"},
    {"x": "x", "y": "y", "z": "z"},
)


@dataclass(frozen=True, slots=True)
class BlockUse:
    """A kernel's use of one block.

    ``limit`` is the argument that masks the block, or "". ``folded``: the block is reduced or scanned. ``stepped``: a
    loop goes over its dimension. ``placed``: programs start at multiples of its size. A block that is neither stepped
    nor placed has to hold its whole dimension.
    """

    limit: str = ""
    folded: bool = False
    stepped: bool = False
    placed: bool = False

    @property
    def whole(self) -> bool:
        """Whether the block has to hold its whole dimension."""
        return not self.stepped and not self.placed


@dataclass(frozen=True, slots=True)
class KernelUse:
    """The number of a kernel's operations by kind, and the use of its blocks by name."""

    blocks: Mapping[str, BlockUse]
    loads: int = 0
    stores: int = 0
    atomics: int = 0
    dots: int = 0
    reductions: int = 0
    scans: int = 0


def use_of(traits: Traits, lengths: Mapping[str, int]) -> KernelUse:
    """Returns a kernel's operations and the use of its blocks, from the traits of its code.

    ``lengths`` are the block sizes, by name, that the code was made with. The traits have no names of blocks, so a
    block is recognized by its size.
    """
    blocks: dict[str, BlockUse] = {}
    for name, length in lengths.items():
        block = None if role_of(name) == GROUP else traits.blocks.get(length)
        if block is None:
            blocks[name] = BlockUse()
            continue
        limit = block.limits[0] if block.limits else ""
        blocks[name] = BlockUse(limit, block.reduced or block.scanned, stepped=block.stepped, placed=block.placed)
    return KernelUse(
        blocks=blocks,
        loads=traits.loads,
        stores=traits.stores,
        atomics=traits.atomics,
        dots=traits.dots,
        reductions=traits.reductions,
        scans=traits.scans,
    )


def common_use(kernel_use: KernelUse, other: KernelUse) -> KernelUse:
    """Returns the facts on which two readings of one kernel's code agree.

    For the second reading, every block has another size. One reading is not enough, because a block size may equal a
    constant of the kernel by chance.
    """
    blocks = {
        name: BlockUse(
            first.limit if first.limit == second.limit else "",
            first.folded or second.folded,
            stepped=first.stepped and second.stepped,
            placed=first.placed and second.placed,
        )
        for (name, first), second in zip(kernel_use.blocks.items(), other.blocks.values(), strict=True)
    }
    return replace(kernel_use, blocks=blocks)


@dataclass(frozen=True)
class _Kernel:
    name: str
    use: KernelUse
    arguments: Sequence[str]  # scalar parameters, in order
    key: Sequence[str]  # the parameters that tuning may depend on

    def refuse(self, why: str) -> SpaceError:
        blocks = ", ".join(self.use.blocks)
        return SpaceError(
            f"{self.name}: the call leaves {blocks} open, and no heuristic can be guessed for them: {why}. Give the "
            f"values in the call, or the kernel a space: silo.kernel(space=[...]), or space=heuristics.space(kind, "
            f"sizes, names=...) of silo.heuristics"
        )

    def size(self, block: str) -> str:
        """Returns the argument that holds the number of elements in a block's dimension."""
        use = self.use.blocks[block]
        argument = use.limit or size_name(role_of(block) or "", self.key)
        if not argument:
            raise self.refuse(f"nothing says how far {block} goes (no mask compares it with an argument)")
        if argument not in self.key:
            raise self.refuse(f"{block} goes up to {argument}, which is not in the key: add key=[{argument!r}, ...]")
        return argument


def guess(name: str, use: KernelUse, arguments: Sequence[str], key: Sequence[str]) -> tuple[HeuristicSpace, str]:
    """Infers the space for a kernel; returns it with the reason.

    Args:
        name: the kernel's name, for messages.
        use: the kernel's operations; its blocks are those that the call leaves open.
        arguments: its scalar parameters.
        key: the parameters that tuning may depend on.

    Raises:
        SpaceError: the kernel's kind is unclear; the message has the reason, and the values to pass instead.
    """
    kernel = _Kernel(name, use, arguments, key)
    groups: dict[str, Value] = {block: _GROUP_ROWS for block in use.blocks if role_of(block) == GROUP}
    blocks = {block: role_of(block) or "" for block in use.blocks if block not in groups}
    if len(set(blocks.values())) < len(blocks):
        raise kernel.refuse("two of them have names that mean the same")
    facts = KernelFacts(
        loads=use.loads, stores=use.stores, reductions=use.reductions + use.scans, atomic_add=use.atomics > 0
    )
    if use.dots:
        return _product(kernel, blocks, groups, facts)
    if groups:
        raise kernel.refuse(f"{', '.join(groups)} is for products of matrices, and the kernel has no tl.dot")
    whole_blocks = [block for block in blocks if use.blocks[block].whole]
    looped = [block for block in blocks if use.blocks[block].folded and use.blocks[block].stepped]
    if whole_blocks or looped:
        return _rows(kernel, blocks, whole_blocks, looped, facts)
    parted = [block for block in blocks if use.blocks[block].folded]
    if parted and (use.scans or not use.atomics):
        raise kernel.refuse(f"each program reduces one {', '.join(parted)}, so its results depend on that size")
    return _pointwise(kernel, blocks, facts)


def _product(
    kernel: _Kernel, blocks: Mapping[str, str], groups: Mapping[str, Value], facts: KernelFacts
) -> tuple[HeuristicSpace, str]:
    by_role = {role: block for block, role in blocks.items()}
    if set(by_role) != {"m", "n", "k"} or kernel.use.reductions or kernel.use.scans:
        raise kernel.refuse("it has tl.dot and is not a plain product with blocks of M, N and K")
    m, n, k = (by_role[role] for role in ("m", "n", "k"))
    for block, good, how in (
        (m, kernel.use.blocks[m].placed, "programs do not start at multiples of it"),
        (n, kernel.use.blocks[n].placed, "programs do not start at multiples of it"),
        (k, kernel.use.blocks[k].stepped, "no loop goes over its dimension"),
    ):
        if not good:
            raise kernel.refuse(f"it looks like a product of matrices, but of {block} {how}")
    heuristic = space(
        "native_matmul",
        {"x": kernel.size(n), "y": kernel.size(m), "r": kernel.size(k)},
        names={"XBLOCK": n, "YBLOCK": m, "R0_BLOCK": k},
        facts=facts,
        constants=groups,
    )
    return heuristic, f"guessed: tl.dot with blocks {m}, {n}, {k} is a product of matrices"


def _rows(
    kernel: _Kernel, blocks: Mapping[str, str], whole_axes: Sequence[str], looped: Sequence[str], facts: KernelFacts
) -> tuple[HeuristicSpace, str]:
    along = [*whole_axes, *looped]
    rows = [block for block in blocks if block not in along]
    if len(along) > 1 or len(rows) > 1:
        raise kernel.refuse(
            f"rows lie along {', '.join(along)}, and there are several along {', '.join(rows) or 'none'}"
        )
    heuristic = space(
        "persistent_reduction" if whole_axes else "reduction",
        {"x": kernel.size(rows[0]) if rows else 1, "r": kernel.size(along[0])},
        names={"R0_BLOCK": along[0], "XBLOCK": rows[0] if rows else ""},
        facts=facts,
    )
    how = f"{along[0]} holds whole rows" if whole_axes else f"it reduces along {along[0]} in a loop"
    return heuristic, f"guessed: {how}, {f'several by {rows[0]}' if rows else 'one a program'}"


def _pointwise(kernel: _Kernel, blocks: Mapping[str, str], facts: KernelFacts) -> tuple[HeuristicSpace, str]:
    roles = set(blocks.values())
    dimensions = next((known_dimensions for known_dimensions in _POINTWISE if set(known_dimensions) == roles), None)
    if dimensions is None:
        raise kernel.refuse("they are no known set of dimensions")
    by_dimension = {dimensions[role]: block for block, role in blocks.items()}
    heuristic = space(
        "pointwise",
        {dimension: kernel.size(by_dimension[dimension]) for dimension in ("x", "y", "z") if dimension in by_dimension},
        names={f"{dimension.upper()}BLOCK": block for dimension, block in by_dimension.items()},
        facts=facts,
    )
    return heuristic, "guessed: neither tl.dot nor a reduction over a block, so it is pointwise"
