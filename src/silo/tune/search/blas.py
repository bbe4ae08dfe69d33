"""How many threads the linear algebra of a search may take: one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["one_thread"]


@cache
def _controller() -> Any:  # noqa: ANN401  # of a package without types; None where it is not installed
    import_module("numpy")  # the controller knows what is loaded when it is made
    try:
        found: Any = import_module("threadpoolctl")
    except ImportError:
        return None
    return found.ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Within it numpy's linear algebra stays on the caller's thread, where threadpoolctl is installed.

    The matrices of a search have some hundred rows. More threads save nothing, and they wait for one another by
    spinning, on cores that compile workers and kernels under measurement need.
    """
    found = _controller()
    return nullcontext() if found is None else found.limit(limits=1, user_api="blas")
