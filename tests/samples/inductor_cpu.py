"""Finds out whether torch compiles for the CPU by Triton."""

import inspect


def finds_triton():
    """Return whether torch finds Triton for the CPU, which newer versions check only if asked to."""
    from torch.utils import _triton

    words = inspect.signature(_triton.has_triton).parameters
    return _triton.has_triton(include_cpu=True) if "include_cpu" in words else _triton.has_triton()
