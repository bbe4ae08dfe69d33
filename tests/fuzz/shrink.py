"""Makes a kernel that fails smaller, as long as it fails in the same way."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator
from functools import cache

from .functions import FUNCTIONS
from .judge import Verdict
from .kinds import KINDS
from .program import Kernel, Node

__all__ = ["shrink", "symptom"]

_GLOBAL = {"tl", "triton", "range", "float", "True", "False"}
_TRIES = 16  # kernels judged at once


def symptom(verdict: Verdict) -> str:
    """What kind of failure it is: two kernels with one symptom are taken to show one fault."""
    lines = [line for line in verdict.reason.splitlines() if line.strip()]
    first = lines[0] if lines else ""
    warning = re.search(r"\[-W[\w-]+\]", verdict.reason)
    if verdict.status == "differs":
        first = first.partition(":")[0]
    return f"{verdict.status} {warning.group() if warning else re.sub(r'[0-9]+', '#', first)[:100]}"


def shrink(
    kernel: Kernel,
    verdict: Verdict,
    judge: Callable[[list[Kernel]], list[Verdict]],
    rounds: int = 150,
    seconds: float = 1e9,
) -> Kernel:
    """The smallest kernel found, in about so many seconds, that has the symptom of ``verdict``."""
    wanted = symptom(verdict)
    best = kernel
    deadline = time.monotonic() + seconds
    for _ in range(rounds):
        found = None
        candidates = list(_smaller(best))
        for first in range(0, len(candidates), _TRIES):
            if time.monotonic() > deadline:
                return best
            tried = candidates[first : first + _TRIES]
            for candidate, result in zip(tried, judge(tried), strict=True):
                if symptom(result) == wanted and (found is None or _size(candidate) < _size(found)):
                    found = candidate
            if found is not None:
                break
        if found is None:
            return best
        best = found
    return best


def _size(kernel: Kernel) -> int:
    return len(kernel.text()) + 40 * kernel.programs


def _smaller(kernel: Kernel) -> Iterator[Kernel]:
    """Kernels with something taken away: large pieces first."""
    places = list(_places(kernel.nodes))
    count = len(places)
    if kernel.programs > 1:
        smaller = kernel.copy()
        smaller.grid = (1,)
        yield _pruned(smaller)
    width = count
    while width > 1:
        width //= 2
        if width > 1:
            for first in range(0, count, width):
                yield from _without(kernel, set(range(first, min(first + width, count))))
    for place in reversed(range(count)):
        yield from _without(kernel, {place})
    for place in reversed(range(count)):
        yield from _plainer(kernel, place)


def _places(nodes: list[Node]) -> Iterator[tuple[list[Node], int]]:
    """Every statement as the list it is in and its place there."""
    for index, node in enumerate(nodes):
        yield nodes, index
        for inner in (node.body, node.otherwise):
            if inner is not None:
                yield from _places(inner)


def _without(kernel: Kernel, taken: set[int]) -> Iterator[Kernel]:
    smaller = kernel.copy()
    places = list(_places(smaller.nodes))
    gone = {
        id(nodes[index]) for place, (nodes, index) in enumerate(places) if place in taken and not nodes[index].fixed
    }
    if not gone:
        return
    _drop(smaller.nodes, gone)
    smaller = _pruned(smaller)
    if len(smaller.text()) < len(kernel.text()):
        yield smaller


def _drop(nodes: list[Node], gone: set[int]) -> None:
    nodes[:] = [node for node in nodes if id(node) not in gone]
    for node in nodes:
        for inner in (node.body, node.otherwise):
            if inner is not None:
                _drop(inner, gone)


def _plainer(kernel: Kernel, place: int) -> Iterator[Kernel]:
    """The statement as a constant, or the block without its header."""
    smaller = kernel.copy()
    nodes, index = list(_places(smaller.nodes))[place]
    node = nodes[index]
    if node.body is not None:
        counter = re.match(r"for (\w+) in", node.lines[0])
        start = [Node([f"{counter.group(1)} = 0 * pid"])] if counter else []
        nodes[index : index + 1] = [*start, *node.body]
        yield _pruned(smaller)
    elif len(node.defines) == 1 and "tl.full" not in node.lines[0] and "arange" not in node.lines[0]:
        (var,) = node.defines
        if re.search(rf"tl\.({'|'.join(FUNCTIONS)})\((tl\.where\()?{var.name}\b", kernel.text()):
            return  # functions of constants are MLIR's, see elementwise
        one = "1.0" if var.floating else "True" if var.kind == "i1" else "1"
        shape = var.shape or "()"
        node.lines = [f"{var.name} = tl.full({shape}, {one}, tl.{KINDS[var.kind].tl})"]
        yield _pruned(smaller)


def _pruned(kernel: Kernel) -> Kernel:
    """Without statements whose operands are gone, and then without those that nothing comes of."""
    known = _GLOBAL | {p.name for p in kernel.parameters} | {name for h in kernel.helpers for name in _names(h)[1]}
    _keep_defined(kernel.nodes, known | {storage.placeholder for storage in kernel.storages.values()})
    while _drop_unused(kernel.nodes):
        pass
    used = _loads(kernel.nodes)
    fixed = {f"{p.name} += pid * {kernel.storages[p.storage].placeholder}" for p in kernel.parameters if p.pointer}
    used_pointers = _loads([node for node in kernel.nodes if node.lines[0] not in fixed])
    kernel.parameters = [p for p in kernel.parameters if p.name in (used_pointers if p.pointer else used)]
    names = {p.name for p in kernel.parameters}
    kernel.nodes = [node for node in kernel.nodes if node.lines[0] not in fixed or node.lines[0].split(" ")[0] in names]
    kernel.storages = {p.storage: kernel.storages[p.storage] for p in kernel.parameters if p.pointer}
    text = "\n".join(line for node in kernel.nodes for line in _all_lines(node))
    kernel.helpers = [helper for helper in kernel.helpers if _names(helper)[1] & set(re.findall(r"\w+", text))]
    return kernel


def _all_lines(node: Node) -> Iterator[str]:
    yield from node.lines
    for inner in (node.body, node.otherwise):
        for other in inner or ():
            yield from _all_lines(other)


@cache
def _names(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Names that a line of source reads, and names it gives a value."""
    source = text if not text.rstrip().endswith(":") else f"{text}\n    pass"
    loads: set[str] = set()
    stores: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            (loads if isinstance(node.ctx, ast.Load) else stores).add(node.id)
        elif isinstance(node, ast.FunctionDef):
            stores.add(node.name)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            loads.add(node.target.id)
    return frozenset(loads), frozenset(stores)


def _keep_defined(nodes: list[Node], known: set[str]) -> None:
    kept: list[Node] = []
    for node in nodes:
        loads: set[str] = set()
        stores: set[str] = set()
        for line in node.lines:
            if line == "return":
                continue
            read, written = _names(line)
            loads |= read
            stores |= written
        if not loads <= known:
            continue
        kept.append(node)
        if node.body is not None:
            _keep_defined(node.body, known | stores)
        if node.otherwise is not None:
            _keep_defined(node.otherwise, set(known))
        if node.body is None:
            known |= stores
    nodes[:] = kept


def _loads(nodes: list[Node]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        for line in _all_lines(node):
            if line != "return":
                found |= _names(line)[0]
    return found


def _drop_unused(nodes: list[Node]) -> bool:
    """Drop assignments of names that nothing reads, and empty blocks; whether there were any."""
    used = _loads(nodes)
    return _drop_unread(nodes, used)


def _drop_unread(nodes: list[Node], used: set[str]) -> bool:
    changed = False
    kept: list[Node] = []
    for node in nodes:
        for inner in (node.body, node.otherwise):
            if inner is not None:
                changed |= _drop_unread(inner, used)
        if node.body is not None:
            if node.otherwise == []:
                node.otherwise = None
            busy = any(not inner.fixed for inner in [*node.body, *(node.otherwise or [])])
            if not busy:
                changed = True
                continue
        elif not node.fixed and node.lines != ["return"]:
            stores = _names(node.lines[0])[1]
            if stores and not stores & used and "tl.store" not in node.lines[0] and "atomic" not in node.lines[0]:
                changed = True
                continue
        kept.append(node)
    nodes[:] = kept
    return changed
