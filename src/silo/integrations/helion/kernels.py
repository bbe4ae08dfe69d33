"""Silo's kernels behind Helion's: made at a first launch, looked up at the others."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from silo.api.kernels.kernel import maker
from silo.forks import Mutex
from silo.integrations.helion.host_function import HostParameter, host_function, host_text
from silo.integrations.helion.launch_call import Axes, LaunchMarks, launch_marks, name_of

__all__ = ["KernelsOfHelion", "silo_kernel"]

_KEPT = 512  # a program that tunes Helion kernels makes thousands, each used for a moment
_SCALARS = {bool: "cutlass.Boolean", int: "cutlass.Int64", float: "cutlass.Float32"}
_TYPED = {bool: "i1", int: "i64", float: "fp32"}


class KernelsOfHelion:
    """The kernels that launches have needed so far, the last used last. Threads may ask at once."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], tuple[object, Any]] = {}
        self._lock = Mutex()

    def serving(self, kernel: object, arguments: Sequence[object], grid: Axes, block: Axes) -> Any:  # noqa: ANN401
        """The kernel that serves a launch. Raises UnsupportedError, SourceError."""
        marks = launch_marks(kernel)
        dynamic = marks.dynamic or _is_empty(arguments)
        # A host function of Silo's own has the grid in it.
        where = None if marks.plain else (grid, repr(marks.plans), marks)
        if marks.plain:
            where = marks.cluster
        key = (id(kernel), block, dynamic, where, tuple(map(type, arguments)))
        found = self._made.get(key)
        if found is not None and found[0] is kernel:
            return found[1]
        made = silo_kernel(kernel, arguments, grid, block, marks, dynamic=dynamic)
        with self._lock:
            self._made[key] = (kernel, made)  # it holds the kernel, so that nothing else gets its id
            while len(self._made) > _KEPT:
                del self._made[next(iter(self._made))]
        return made


def silo_kernel(
    kernel: object, arguments: Sequence[object], grid: Axes, block: Axes, marks: LaunchMarks, *, dynamic: bool
) -> Any:  # noqa: ANN401  # what silo.cute gives
    """A kernel of Silo for one of Helion's, as a call with such arguments launches it."""
    raise NotImplementedError


def _is_empty(arguments: Sequence[object]) -> bool:
    """Whether an array has no elements: the DSL folds no size of 0 into code."""
    return any(0 in getattr(one, "shape", ()) for one in arguments)
