"""Keeps the dimensions of Inductor's pointwise kernels for the CPU separate, as in the loops of Inductor's C++ code.

Inductor's Triton code for GPUs joins dimensions, and then computes the index along each from the joint index by
divisions. On a CPU these divisions are expensive, and they hide which elements of an array are adjacent in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any

__all__ = ["for_fusion", "in_dimensions", "long_enough"]

_MOST_DIMENSIONS = 3
# The smallest length of the last dimension for which a loop over it pays: in a kernel that transposes tiles (_LEAST),
# and in any other kernel (_LEAST_IN_ORDER). For a shorter last dimension, Inductor's own tiling stays.
_LEAST, _LEAST_IN_ORDER = 16, 4


def long_enough(tiling: Mapping[str, Any], *, transposes: bool) -> bool:
    """Whether a tiling has several dimensions, all of known size, with a last one long enough for a loop of its own.

    >>> [long_enough(one, transposes=True) for one in ({"y": 9, "x": 16}, {"y": 9, "x": 4}, {"y": "s0", "x": 64})]
    [True, False, False]
    >>> [long_enough({"y": 9, "x": size}, transposes=False) for size in (2, 4)]
    [False, True]
    """
    sizes = _dimensions(tiling)
    known = all(isinstance(size, int) or getattr(size, "is_Integer", False) for size in sizes)
    return known and len(sizes) > 1 and int(tiling["x"]) >= (_LEAST if transposes else _LEAST_IN_ORDER)


def _dimensions(tiling: Mapping[str, Any]) -> list[Any]:
    return [size for name, size in tiling.items() if name in "zyx"]


# Whether Inductor asks for a tiling only to decide whether it fuses nodes.
_for_fusion: ContextVar[bool] = ContextVar("_for_fusion", default=False)


def for_fusion(plain: Any) -> Any:  # noqa: ANN401  # a class method
    """Wraps ``SIMDScheduling.select_tiling``: to decide about fusion, Inductor still uses its own tilings.

    With a tiling of several dimensions (:func:`in_dimensions`), Inductor would not fuse a pointwise node with a
    reduction.
    """

    @wraps(plain.__func__)
    def select_tiling(cls: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        token = _for_fusion.set(True)
        try:
            return plain.__func__(cls, *arguments, **named)
        finally:
            _for_fusion.reset(token)

    return classmethod(select_tiling)


def in_dimensions(config: Any, plain: Any) -> Any:  # noqa: ANN401  # a class method
    """Wraps ``SIMDScheduling.get_tiling_and_scores``: pointwise Triton kernels for the CPU keep up to 3 dimensions."""

    @wraps(plain.__func__)
    def get_tiling_and_scores(
        cls: Any,  # noqa: ANN401
        node_schedule: Sequence[Any],
        numel: Any,  # noqa: ANN401
        reduction_numel: Any = 1,  # noqa: ANN401
        *rest: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        found: Any = plain.__func__(cls, node_schedule, numel, reduction_numel, *rest, **named)
        if _for_fusion.get() or reduction_numel != 1 or not _for_cpus(cls, node_schedule):
            return found
        # Inductor's own tiling has several dimensions only if accesses go along different ones, as in a transpose
        transposes = len(_dimensions(found[0])) > 1
        most_of_torch = config.triton.max_tiles
        config.triton.max_tiles = _MOST_DIMENSIONS
        try:
            tilings = cls.get_nd_tilings(node_schedule, numel, reduction_numel)
            chosen = cls.get_first_compatible_tiling(node_schedule, numel, reduction_numel, tilings)
        finally:
            config.triton.max_tiles = most_of_torch
        # If this tiling is rejected, no tiling with fewer dimensions is tried: it would still need divisions of the
        # index.
        return (chosen, None) if chosen is not None and long_enough(chosen, transposes=transposes) else found

    return classmethod(get_tiling_and_scores)


def _for_cpus(cls: Any, node_schedule: Sequence[Any]) -> bool:  # noqa: ANN401
    """Whether Inductor writes Triton code for these nodes, and they are on the CPU."""
    find: list[Callable[[], Any]] = [node.get_device for node in node_schedule if hasattr(node, "get_device")]
    devices = {getattr(device(), "type", None) for device in find}
    return devices == {"cpu"} and any(base.__name__ == "TritonScheduling" for base in cls.__mro__)
