"""Recognising Triton's objects by the names of their classes, without importing Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

__all__ = ["code_of_functions", "dtype_name", "is_constexpr", "is_function", "is_settled"]

_DTYPE = "triton.language.core.dtype"
_MOCK_TENSOR = "triton.runtime.jit.MockTensor"


def is_function(candidate: object) -> bool:
    """Whether this is a Triton function (``@triton.jit`` or ``constexpr_function``)."""
    return any(
        base.__module__ in ("triton.runtime.jit", "triton.runtime.interpreter")
        and base.__name__ in ("JITCallable", "JITFunction", "InterpretedFunction")
        for base in type(candidate).__mro__
    )


def is_constexpr(candidate: object) -> bool:
    """Whether this is a ``tl.constexpr``."""
    kind = candidate.__class__
    return kind.__module__.startswith("triton.") and kind.__name__ == "constexpr"


def is_settled(candidate: object) -> bool:
    """Whether this is one of the language's objects that nothing changes: a dtype, a function."""
    kind = type(candidate)
    return f"{kind.__module__}.{kind.__qualname__}" == _DTYPE or is_function(candidate)


def code_of_functions(
    value: object, reached: Callable[[Any], Iterable[object]]
) -> dict[tuple[str, int], tuple[object, dict[str, Any]]]:
    """What of the functions in a constexpr's value says which code they have: by member and dictionary, as globals are.

    Triton takes a function whose source is replaced in place (``_unsafe_update_src``) for another one. Who replaces a
    source unsets the hashes of all its callers: where Triton has set none, the sources of all that is ``reached`` from
    the function tell.
    """
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        return {place: found for one in items for place, found in code_of_functions(one, reached).items()}
    if is_constexpr(value):
        return code_of_functions(getattr(value, "value", None), reached)
    if not is_function(value):
        return {}
    found = _code_of(value, ("_src", "src", "hash"))
    if vars(value).get("hash") is None:
        for one in reached(value):
            found.update(_code_of(one, ("_src", "src")) if is_function(one) else {})
    return found


def _code_of(function: object, names: tuple[str, ...]) -> dict[tuple[str, int], tuple[object, dict[str, Any]]]:
    members = vars(function)
    return {(name, id(members)): (members[name], members) for name in names if name in members}


def dtype_name(value: object) -> str | None:
    """The name of ``tl.float32``, and of the dtype of a stand-in that Triton's own ``warmup`` takes; else None."""
    kind = type(value)
    place = f"{kind.__module__}.{kind.__qualname__}"
    if place == _MOCK_TENSOR:
        value = getattr(value, "dtype", None)
    elif place != _DTYPE:
        return None
    return str(value).rpartition(".")[2]
