"""Common names of block sizes and sizes, and the meaning that each is given.

====================  ==========================================================================
role                  names (any case; with or without the underscores; TILE and BLK for BLOCK)
====================  ==========================================================================
x, y, z, r            XBLOCK, BLOCK_X, BLOCK_SIZE_X; the same with Y, Z, R and R0
m, n, k               BLOCK_M, BLOCK_SIZE_M, M_BLOCK; the same with N and K
any                   BLOCK, BLOCK_SIZE, BLOCKSIZE, TILE, TILE_SIZE, BLK
group                 GROUP_M, GROUP_SIZE_M, GROUP_SIZE
====================  ==========================================================================
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from silo.core.signature import NoDefault, ParameterKind, Signature

__all__ = ["GROUP", "SIZE_NAMES", "open_blocks", "open_sizes", "role_of", "size_name"]

# Rows of blocks that are handled together, so that neighbours share what they read.
GROUP = "group"
_BLOCK = "(?:BLOCK|TILE|BLK)"
_FORMS = (
    re.compile(rf"{_BLOCK}(?:SIZE)?(?P<role>X|Y|Z|R0?|M|N|K)?"),
    re.compile(rf"(?P<role>X|Y|Z|R0?|M|N|K){_BLOCK}(?:SIZE)?"),
)
_GROUP = re.compile(r"GROUP(?:SIZE)?M?")

# Names of arguments that are sizes, by the role of the block, in lower case; the first that a kernel has counts.
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
    """What a constexpr of this name is taken for, or None.

    >>> [role_of(name) for name in ("BLOCK_SIZE", "BLOCK_M", "XBLOCK", "GROUP_SIZE_M", "HEAD_DIM")]
    ['any', 'm', 'x', 'group', None]
    """
    plain = name.upper().replace("_", "")
    if _GROUP.fullmatch(plain):
        return GROUP
    for form in _FORMS:
        found = form.fullmatch(plain)
        if found:
            role = (found["role"] or "any").lower()
            return "r" if role == "r0" else role
    return None


def open_blocks(signature: Signature, computed: Collection[str] = ()) -> tuple[str, ...]:
    """Constexprs of a kernel that a call may leave to a heuristic: those with such names, without a default.

    ``computed`` are set by ``triton.heuristics``. None where no block is among them.
    """
    found = tuple(
        parameter.name
        for parameter in signature.parameters
        if parameter.kind is ParameterKind.CONSTEXPR
        and isinstance(parameter.default, NoDefault)
        and parameter.name not in computed
        and role_of(parameter.name) is not None
    )
    return found if any(role_of(name) != GROUP for name in found) else ()


def open_sizes(signature: Signature) -> tuple[str, ...]:
    """Parameters whose names say that they are sizes."""
    scalars = (ParameterKind.ANY, ParameterKind.INTEGER)
    return tuple(p.name for p in signature.parameters if p.kind in scalars and p.name.lower() in _ALL_SIZES)


def size_name(role: str, arguments: Sequence[str]) -> str | None:
    """The argument that is named as the size of a block with this role, or None."""
    lowered = {argument.lower(): argument for argument in reversed(arguments)}
    return next((lowered[name] for name in SIZE_NAMES.get(role, ()) if name in lowered), None)
