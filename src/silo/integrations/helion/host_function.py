"""The host function of a kernel whose launch says more than block and cluster, written as text for the DSL."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import FunctionType
from typing import Any

from silo.integrations.helion.launch_call import Axes, LaunchMarks, name_of
from silo.integrations.helion.matmul_plan import host_lines, read_plans
from silo.sources.cute.front_end import FRONT_END
from silo.sources.cute.installation import dsl_module

__all__ = ["STREAM", "HostParameter", "host_function", "host_text"]

STREAM = "stream_of_the_call"
"""The parameter that takes the stream, which no caller passes."""

_MODULES = {
    "cutlass": "cutlass",
    "cute": "cutlass.cute",
    "blackwell": "cutlass.utils.blackwell_helpers",
    "tcgen05": "cutlass.cute.nvgpu.tcgen05",
}


@dataclass(frozen=True)
class HostParameter:
    """One argument of a launch: the kernel's name of it, its annotation in the DSL, and how many axes an array has."""

    name: str
    annotation: str
    rank: int | None = None


def host_text(kernel: str, parameters: Sequence[HostParameter], marks: LaunchMarks, grid: Axes, block: Axes) -> str:
    """A ``@cute.jit`` function that prepares what the plans ask for and launches ``kernel`` once. Pure.

    Raises:
        UnsupportedError: a plan that Silo does not serve.
    """
    names = [one.name for one in parameters]
    given = list(names)
    lines: list[str] = []
    cluster, pdl = marks.cluster, marks.pdl
    if marks.plans:
        plan = read_plans(kernel, marks.plans, len(names))
        shapes = {place: (0,) * one.rank for place, one in enumerate(parameters) if one.rank is not None}
        lines += host_lines(plan, names, shapes)
        given += [*plan.operands.names, *(plan.store.names if plan.store else ())]
        pdl = pdl or plan.operands.pdl
        if cluster is None and plan.operands.cluster != (1, 1, 1):
            cluster = plan.operands.cluster
    said = [f"grid={grid}", f"block={block}"]
    if any(one.name == STREAM for one in parameters):
        said.append(f"stream={STREAM}")
        given.remove(STREAM)
    if cluster is not None:
        said.append(f"cluster={cluster}")
    if pdl:
        said.append("use_pdl=True")
    if marks.min_blocks:
        said.append(f"min_blocks_per_mp={marks.min_blocks}")
    carveout = marks.carveout
    if carveout is None and marks.min_blocks > 1:
        carveout = -1  # the driver's own choice; left unsaid, the DSL asks the GPU of this machine for its memory
    if carveout is not None:
        said.append(f"preferred_smem_carveout={carveout}")
    lines.append(f"device_function({', '.join(given)}).launch({', '.join(said)})")
    head = ", ".join(f"{one.name}: {one.annotation}" for one in parameters)
    return "".join(["@cute.jit\n", f"def {kernel}({head}):\n", *(f"    {line}\n" for line in lines)])


def _tensor_layouts() -> Any:  # noqa: ANN401  # an enumeration of the DSL
    """Where releases of the DSL have it."""
    if find_spec("cutlass.tensor_utils") is not None:
        return dsl_module("cutlass.tensor_utils").LayoutEnum
    return dsl_module("cutlass.utils.layout").LayoutEnum


def host_function(kernel: object, text: str) -> Any:  # noqa: ANN401  # a function of the DSL
    """The function of a text. The DSL reads the text again, under a name that has no path. Raises ToolchainError."""
    name = name_of(kernel)
    file = f"<launch of {name}, {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    # Without a time of its own the entry is never looked for on the disk.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {word: dsl_module(module) for word, module in _MODULES.items()}
    space["tensor_layouts"] = _tensor_layouts()
    space["CUstream"] = dsl_module("cuda.bindings.driver").CUstream
    space["device_function"] = kernel
    with FRONT_END:
        FunctionType(compile(text, file, "exec"), space)()  # names and numbers, each of which was checked
    return space[name]
