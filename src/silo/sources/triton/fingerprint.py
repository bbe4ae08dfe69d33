"""The fingerprint of a Triton kernel: a hash of its source, the functions it calls and the globals it reads."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, cast

from silo.core.values import JSON, FunctionValue, digest, value_to_json
from silo.sources.functions import remember
from silo.sources.reached_code import ReachedCode
from silo.sources.triton.constants import to_value

__all__ = ["fingerprint", "function_value"]


def fingerprint(function: Any) -> str:  # noqa: ANN401
    """sha256 in hex of a ``JITFunction``, a ``constexpr_function`` or a plain Python function.

    Raises:
        SourceError: the source is not available, or the kernel reads a global that has no canonical form.
    """
    reached = _Reached()
    reached.refer(function)
    return digest("triton-source/1", cast("JSON", reached.parts))


def function_value(function: Any) -> FunctionValue:  # noqa: ANN401
    """The value that stands for a function passed as a constexpr; it is found again by ``functions.recall``."""
    return remember(
        FunctionValue(_plain(function).__qualname__.replace("<locals>.", ""), fingerprint(function)), function
    )


def _plain(function: Any) -> Any:  # noqa: ANN401
    while not inspect.isfunction(function) and hasattr(function, "fn"):
        function = function.fn
    return function


class _Reached(ReachedCode):
    """Functions that ``triton.jit`` wraps, and boxes of ``tl.constexpr``."""

    libraries = ("triton", *ReachedCode.libraries)

    def plain(self, function: Any) -> Any:  # noqa: ANN401
        return _plain(function)

    def is_constant(self, value: Any) -> bool:  # noqa: ANN401
        return type(value).__name__ == "constexpr" and hasattr(value, "value")

    def own_text(self, target: Any) -> str | None:  # noqa: ANN401
        text = getattr(target, "src", None)  # a JITFunction's own, which its author may have replaced
        return text if isinstance(text, str) else None

    def flags(self, target: Any) -> Sequence[bool]:  # noqa: ANN401
        return [bool(getattr(target, name, False)) for name in ("noinline", "debug")]

    def value_of(self, value: Any) -> JSON:  # noqa: ANN401
        return value_to_json(to_value(value, functions=None))
