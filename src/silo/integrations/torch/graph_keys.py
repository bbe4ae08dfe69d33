"""Hook point in the keys of Inductor's cache: compiled graphs depend on more than torch's key contains.

A graph on disk was compiled with the rules of its process: with or without :mod:`silo.integrations.torch.kept_copies`,
and with the operators' schemas at that time, which mark written arguments. torch's key has only the operators' names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from silo.core.decisions import Decision
from silo.integrations.torch.torch_patching import HookPoint

__all__ = ["connect", "state"]

_RULES = "silo.kept-copies/1"
_OWN = ("aten", "prims", "prim", "")
_hook_point = HookPoint(
    "FxGraphHashDetails.__init__",
    ["self", "gm", "example_inputs", "fx_kwargs", "inputs_to_check"],
    unused="torch's Inductor was not used in this process",
    connected="keys of compiled graphs have the schemas of their operators",
    changed="keys compiled graphs in another way than Silo knows: empty its cache when a kernel's effects change",
    level=logging.INFO,
)


def state() -> Decision:
    """Returns whether the keys of Inductor's cache contain operators' schemas, and why."""
    return _hook_point.state


def connect(module: Any) -> None:  # noqa: ANN401  # torch._inductor.codecache
    """Replaces the function that collects the values for the key of a cached graph."""
    _hook_point.connect(module, _with_schemas)


def _with_schemas(plain: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, gm: Any, example_inputs: Any, fx_kwargs: Any, inputs_to_check: Any) -> None:  # noqa: ANN401, N807
        plain(self, gm, example_inputs, fx_kwargs, inputs_to_check)
        # an attribute, because torch hashes all attributes of this object
        self.silo = (_RULES, *sorted({*_schemas(gm)}))

    return __init__


def _schemas(module: Any) -> Iterator[str]:  # noqa: ANN401  # a GraphModule or None
    """Yields the schemas of the operators in a graph, except torch's own."""
    for part in () if module is None else module.modules():
        for node in getattr(getattr(part, "graph", None), "nodes", ()):
            for value in (node.target, *node.args):  # auto_functionalized takes its operator as an argument
                yield from _schemas_of(value)


def _schemas_of(value: Any) -> Iterator[str]:  # noqa: ANN401
    if hasattr(value, "overloads"):  # an operator without its overload: torch.ops.namespace.name
        for name in value.overloads():
            yield from _schemas_of(getattr(value, name))
    elif getattr(value, "namespace", "") not in _OWN and hasattr(value, "_schema"):
        yield str(value._schema)  # noqa: SLF001  # torch has no public name for it
