"""Triton's key of a kernel in its cache of files, made to tell what Triton leaves out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from silo.kinds.triton.front.adapter.triton_toolchain import module

__all__ = ["complete_keys"]


def complete_keys(besides: Callable[[Any], str]) -> None:
    """Add what ``besides`` returns of a function to Triton's hash of its source; "" leaves the hash as it is.

    Once a process: a second call changes nothing.
    """
    kind = module("triton.compiler.compiler").ASTSource
    own: Any = kind.hash
    if getattr(own, "silo_completes", False):
        return

    def completed(self: Any) -> str:  # noqa: ANN401
        found, more = own(self), besides(self.fn)
        return hashlib.sha256(f"{found}-{more}".encode()).hexdigest() if more else found

    completed.silo_completes = True  # pyright: ignore[reportFunctionMemberAccess]  # how it is known again
    kind.hash = completed
