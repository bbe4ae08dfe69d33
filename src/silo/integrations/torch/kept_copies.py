"""Hook points in Inductor that keep values which an operator's in-place write would otherwise destroy.

Two faults of torch 2.13 make a program read memory that it has overwritten. Both are avoided here by marking the tensor
as read later, so that torch makes a copy. The remedies apply to every operator of a graph, of Silo or not.

- ``y = x.clone(); op(y, x)``, where ``op`` reads ``y`` and writes to ``x``: Inductor removes copies from a graph that
  are only read (``clone``, ``x + zeros``, equal expressions), so ``y`` becomes ``x``. Later it lets ``op`` write in
  place if nothing *after* ``op`` reads the memory, and ignores that ``op`` itself reads the copy. The remedy: before
  copies are removed, the pairs of an operator's arguments that share memory are recorded. A pair that shares memory
  only after the removal had a copy.
- ``y = 3 * x; op(y, x); use(y)``, with the same ``op``: for an operator that requires strides of its arguments,
  Inductor computes ``y`` into separate memory, and computes ``3 * x`` again for ``use``, from the overwritten ``x``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import combinations
from typing import Any, cast

from silo.core.decisions import Decision
from silo.integrations.torch.torch_patching import HookPoint

__all__ = ["connect", "state"]

_UNUSED = "torch's Inductor was not used in this process"
_CHANGED = (
    "takes copies out of graphs in another way than Silo knows: where a kernel reads a copy of a tensor that it "
    "writes, compare with the program that is not compiled"
)
_recorded = HookPoint(
    "remove_noop_ops",
    ["graph"],
    unused=_UNUSED,
    connected="tensors in common memory are recorded before copies are taken out",
    changed=_CHANGED,
    level=logging.WARNING,
)
_kept = HookPoint(
    "reinplace_inplaceable_ops",
    ["fake_tensor_updater", "graph"],
    unused=_UNUSED,
    connected="values beside written tensors are kept",
    changed=_CHANGED,
    level=logging.WARNING,
)
_MARK = "silo_common_memory"  # a key of a node's meta, which torch copies with the node


def state() -> Decision:
    """Returns whether this module is connected to torch, so that no needed copy is removed, and why."""
    return _kept.state if _recorded.state else _recorded.state


def connect(module: Any) -> None:  # noqa: ANN401  # torch._inductor.fx_passes.post_grad
    """Replaces two functions of torch: one removes copies from a graph, the other makes operators write in place."""
    _recorded.connect(module, _recording)
    _kept.connect(module, _keeping)


def _recording(plain: Callable[..., None]) -> Callable[..., None]:
    def remove_noop_ops(graph: Any) -> None:  # noqa: ANN401
        for node in graph.nodes:
            if _MARK not in node.meta and (operands := _operands(node)):
                node.meta[_MARK] = frozenset(_pairs(operands))
        plain(graph)

    return remove_noop_ops


def _keeping(plain: Callable[..., None]) -> Callable[..., None]:
    def reinplace_inplaceable_ops(fake_tensor_updater: Any, graph: Any) -> None:  # noqa: ANN401
        clone: Any = import_module("torch").ops.aten.clone.default
        order = {node: number for number, node in enumerate(graph.nodes)}
        uses: list[Any] = []
        for node in order:
            for operand in _overwritten(node, order):
                # Insert a read after the operator, because torch does not write in place to memory that is read later.
                with graph.inserting_after(node):
                    uses.append(graph.call_function(clone, (operand,)))
        plain(fake_tensor_updater, graph)
        for use in uses:
            graph.erase_node(use)

    return reinplace_inplaceable_ops


def _overwritten(node: Any, order: Mapping[Any, int]) -> Iterator[Any]:  # noqa: ANN401
    """Yields the tensors whose memory an operator must not write in place."""
    operands = _operands(node)
    operands_by_name = dict(operands)
    before = node.meta.get(_MARK, frozenset())
    for name, _other in set(_pairs(operands)) - before:
        yield operands_by_name[name]
    storage: Any = import_module("torch._inductor.fx_utils").get_node_storage
    written = {storage(operand): operand for name, operand in operands if name.startswith(_WRITTEN)}
    for name, operand in operands:
        if not name.startswith(_WRITTEN) and any(order.get(user, 0) > order[node] for user in operand.users):
            yield from (written[root] for root in _computed_from(operand, storage) if root in written)


def _computed_from(node: Any, storage: Callable[[Any], int | None]) -> set[int | None]:  # noqa: ANN401
    """Returns the storages of the tensors from which torch may recompute a value where it is used.

    The value's own storage is not included.
    """
    storages: set[int | None] = set()
    visited: set[Any] = set()
    waiting = [node]
    while waiting:
        operand = waiting.pop()
        if operand in visited:
            continue
        visited.add(operand)
        storages.add(storage(operand))
        if operand.op == "call_function" and _namespace(operand.target) in ("aten", "prims"):
            waiting += operand.all_input_nodes
    return storages - {storage(node), None}


def _namespace(target: Any) -> str:  # noqa: ANN401
    """Returns an operator's namespace; "" for a Python function.

    torch recomputes only operators of its own namespaces.
    """
    return str(getattr(target, "namespace", ""))


def _pairs(operands: list[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yields the pairs of operands that share memory, if the operator writes to at least one of them."""
    storage: Any = import_module("torch._inductor.fx_utils").get_node_storage
    for (name, first_node), (other_name, other) in combinations(operands, 2):
        if not name.startswith(_WRITTEN) and not other_name.startswith(_WRITTEN):
            continue
        own = storage(first_node)
        if own is not None and own == storage(other):
            yield name, other_name


_WRITTEN = "written "


def _operands(node: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
    """Returns the tensors of an operator's call with their names; empty for nodes of other kinds.

    The name of a tensor that the operator writes to starts with ``_WRITTEN``.
    """
    if node.op != "call_function":
        return []
    torch: Any = import_module("torch")
    higher: Any = torch.ops.higher_order
    kwargs = node.kwargs
    if node.target is higher.auto_functionalized_v2:
        written = {f"{_WRITTEN}{index}": base for index, base in enumerate(kwargs["_all_bases"])}
        unwritten = {name: value for name, value in kwargs.items() if name != "_all_bases"}
    elif node.target is higher.auto_functionalized:
        changed = {
            argument.name
            for argument in node.args[0]._schema.arguments  # noqa: SLF001
            if argument.alias_info and argument.alias_info.is_write
        }
        written = {f"{_WRITTEN}{name}": kwargs[name] for name in kwargs if name in changed}
        unwritten = {name: value for name, value in kwargs.items() if name not in changed}
    elif node.target is higher.triton_kernel_wrapper_functional:
        cloned = kwargs["tensors_to_clone"]
        written = {f"{_WRITTEN}{name}": kwargs["kwargs"][name] for name in cloned}
        unwritten = {name: value for name, value in kwargs["kwargs"].items() if name not in cloned}
    else:
        return []
    operands: list[tuple[str, Any]] = []
    for name, value in {**unwritten, **written}.items():
        parts: Any = enumerate(cast("Any", value)) if isinstance(value, list | tuple) else [("", value)]
        operands += [(f"{name} {at}", part) for at, part in parts if isinstance(part, torch.fx.Node)]
    return operands
