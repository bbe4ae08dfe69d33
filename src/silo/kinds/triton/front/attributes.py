"""Kernels that read constants as attributes of modules and objects, which Triton's own key of a kernel lacks."""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

from silo.errors import SourceError
from silo.kinds.triton.front.adapter import is_constexpr
from silo.kinds.triton.front.plain_functions import is_library, plain_function

__all__ = ["read_attributes"]

_PLAIN = (bool, int, float, str, tuple, type(None))


def read_attributes(function: Any) -> str:  # noqa: ANN401  # Triton's JITFunction
    """The kernel's fingerprint where it reads an attribute that is a value, such as ``helper.CONST``; "" otherwise.

    A kernel that Silo cannot read has none: Triton's key is all there is then.
    """
    if not _may_read(function, set()):
        return ""
    from silo.kinds.triton.front.triton_fingerprint import read_source  # noqa: PLC0415  # few kernels read attributes

    try:
        read = read_source(function)
    except SourceError:
        return ""
    return read.fingerprint if read.attributes else ""


def _may_read(function: Any, seen: set[int]) -> bool:  # noqa: ANN401
    """Whether a name in the function's code means a module or an object that is no library's. Parses no text."""
    plain = plain_function(function)
    if not isinstance(plain, FunctionType) or id(plain) in seen:
        return False
    seen.add(id(plain))
    cells = dict(zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=False))
    for name in (*plain.__code__.co_names, *cells):
        value: Any = plain.__globals__.get(name)
        if name in cells:
            try:
                value = cells[name].cell_contents
            except ValueError:  # not bound yet
                continue
        if isinstance(value, _PLAIN) or is_constexpr(value):
            continue
        if isinstance(value, ModuleType):
            if not is_library(value.__name__):
                return True
        elif isinstance(plain_function(value), FunctionType):
            if not is_library(plain_function(value).__module__) and _may_read(value, seen):
                return True
        elif not is_library(getattr(value, "__module__", None)):
            return True
    return False
