"""The functions of Inductor that Silo replaces, and a check that this torch has them in the expected form."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from silo.core.decisions import Rejected
from silo.frozen import frozen

__all__ = ["GRAPH_TAG", "HookPoint", "InductorHookPoints", "find_seams"]

_HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_COMPILING = "torch._inductor.async_compile"
_CONFIG = "torch._inductor.config"
_GRAPH = "torch._inductor.graph"
_GENERATING = "torch._inductor.codegen.triton"
_KEYS = "torch.compiler.config"


@frozen
class HookPoint:
    """One function that is replaced: the class that holds it, its name, and the parameters that Silo relies on."""

    holder: str
    name: str
    parameters: tuple[str, ...]


# Part of the key of each graph that torch keeps on disk: another number for each change of the code that Inductor
# generates with these hook points.
GRAPH_TAG = "silo-cpu/2"

# The parameters in order; a torch with further parameters after these still fits.
_PLACES = (
    HookPoint(
        "", "cached_autotune", ("size_hints", "configs", "triton_meta", "heuristic_type", "filename", "inductor_meta")
    ),
    HookPoint("TritonCompileResult", "make_launcher", ("self",)),
    HookPoint("CachingAutotuner", "_create_compile_options", ("self", "cfg", "compile_meta")),
    HookPoint("AsyncCompile", "triton", ("self", "kernel_name", "source_code", "device_str")),
    HookPoint("GraphLowering", "is_unspec_arg", ("self", "name")),
    HookPoint("TritonScheduling", "get_backend_features", ("cls", "device")),
)
_USED = {
    "TritonCompileResult": ("_gen_launcher_code", "_get_arg_lists"),
    "AsyncCompile": ("use_process_pool",),
    "GraphLowering": ("get_current_device_or_throw",),
}
_NAMES = ("Config", "HeuristicType", "get_constexprs", "triton_helpers")


@frozen
class InductorHookPoints:
    """Inductor's modules, and its original functions by hook point.

    ``keys`` is the module whose ``cache_key_tag`` is part of the key of every kept graph.
    """

    heuristics: Any
    config: Any
    keys: Any
    found: Mapping[HookPoint, tuple[Any, Any]]  # the object that holds the function, the function


def find_seams() -> InductorHookPoints | Rejected:
    """Returns the functions to replace, or Rejected with those missing. Imports Inductor, which takes 1 to 2 s."""
    heuristics: Any = import_module(_HEURISTICS)
    compiling: Any = import_module(_COMPILING)
    config: Any = import_module(_CONFIG)
    if getattr(config, "cpu_backend", None) is None:
        return Rejected("its Inductor has no setting cpu_backend")
    keys: Any = import_module(_KEYS)
    if not isinstance(getattr(keys, "cache_key_tag", None), str):
        return Rejected("its Inductor has no cache_key_tag, so graphs made with and without Silo would be confused")
    holders: dict[str, Any] = {
        "": heuristics,
        "TritonCompileResult": getattr(heuristics, "TritonCompileResult", None),
        "CachingAutotuner": getattr(heuristics, "CachingAutotuner", None),
        "AsyncCompile": getattr(compiling, "AsyncCompile", None),
        "GraphLowering": getattr(import_module(_GRAPH), "GraphLowering", None),
        "TritonScheduling": getattr(import_module(_GENERATING), "TritonScheduling", None),
    }
    missing = [name for name in _NAMES if not hasattr(heuristics, name)]
    missing += [f"{kind}.{name}" for kind, names in _USED.items() for name in names if not hasattr(holders[kind], name)]
    found: dict[HookPoint, tuple[Any, Any]] = {}
    for place in _PLACES:
        own: Mapping[str, Any] = getattr(holders[place.holder], "__dict__", {})
        function = own.get(place.name)
        if function is None or not _fits(place.parameters, function):
            missing.append(".".join(filter(None, (place.holder, place.name))))
        else:
            found[place] = (holders[place.holder], function)
    if missing:
        return Rejected(f"its Inductor has no {', '.join(missing)} of the form that Silo knows")
    return InductorHookPoints(heuristics, config, keys, found)


def _fits(wanted: Sequence[str], function: Any) -> bool:  # noqa: ANN401
    try:
        plain = getattr(function, "__func__", function)  # of a class method
        return tuple(inspect.signature(plain).parameters)[: len(wanted)] == tuple(wanted)
    except (TypeError, ValueError):
        return False
