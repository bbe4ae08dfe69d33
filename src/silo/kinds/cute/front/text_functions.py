"""Functions of the DSL made of text that Silo writes: the host functions of wrappers and of launches."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import Any

from silo.kinds.cute.front.cute_installation import dsl_module

__all__ = ["function_of_text"]


def function_of_text(file: str, text: str, name: str, annotations: Mapping[str, Any], namespace: dict[str, Any]) -> Any:  # noqa: ANN401  # a function of the DSL
    """The function ``name`` that a text defines, as ``@cute.jit`` decorates it; nothing else of the text is run.

    ``file`` stands for the text in tracebacks and has no path: the DSL reads its source again, which it finds there.
    Called while ``silo.kinds.cute.front.cute_installation.FRONT_END`` is held. Raises ToolchainError.
    """
    # Without a time of its own the entry is never looked for on the disk.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    defined = (one for one in compile(text, file, "exec").co_consts if isinstance(one, CodeType))
    (code,) = (one for one in defined if one.co_name == name)
    function = FunctionType(code, namespace)
    function.__annotations__ = dict(annotations)
    return dsl_module().jit(function)
