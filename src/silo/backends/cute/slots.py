"""The slots of launch info, from the kernel's parameters as the host function passes them.

Where a parameter needs another kind of slot (a struct of leaves, a tensor map of an array), :func:`slot_of` is the
place that gives it.
"""

from __future__ import annotations

from silo.backends.cute.job import CuteJob
from silo.backends.cute.launch_call import PassedParameter
from silo.core.launch_info import LayoutSlot

__all__ = ["slot_of"]


def slot_of(parameter: PassedParameter, index: int, job: CuteJob) -> LayoutSlot:
    """The slot of the kernel's parameter ``index``.

    Raises:
        CompileError: it holds a value that the launcher cannot make; says which, and what the author can do.
    """
    raise NotImplementedError(f"{parameter} {index} {job}")
