"""Whether torch compiles for the CPU by Triton."""

import inspect


def finds_triton():
    """Whether torch finds a Triton: newer ones count those for GPUs alone, unless asked for the CPU too."""
    from torch.utils import _triton

    words = inspect.signature(_triton.has_triton).parameters
    return _triton.has_triton(include_cpu=True) if "include_cpu" in words else _triton.has_triton()
