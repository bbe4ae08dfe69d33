"""Text of the DSL host function of a kernel whose launch needs more than a block and a cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from typing import Any

from silo.integrations.helion.launcher_call import Axes, LaunchMarks, name_of
from silo.integrations.helion.matmul_description import host_lines, read_plans
from silo.kinds.cute.front.cute_installation import FRONT_END, dsl_module
from silo.kinds.cute.front.wrapping import function_of_text

__all__ = ["STREAM", "HostParameter", "host_function", "host_text"]

STREAM = "stream_of_the_call"
"""The parameter for the stream; callers do not pass it."""

_MODULES = {
    "cutlass": "cutlass",
    "cute": "cutlass.cute",
    "blackwell": "cutlass.utils.blackwell_helpers",
    "tcgen05": "cutlass.cute.nvgpu.tcgen05",
}


@dataclass(frozen=True)
class HostParameter:
    """One argument of a launch: the kernel's name for it, its annotation in the DSL, and an array's number of axes."""

    name: str
    annotation: str
    rank: int | None = None


def host_text(kernel: str, parameters: Sequence[HostParameter], marks: LaunchMarks, grid: Axes, block: Axes) -> str:
    """Returns the text of a ``@cute.jit`` function that makes the plans' TMA atoms and launches ``kernel``. Pure.

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
    launch_arguments = [f"grid={grid}", f"block={block}"]
    if any(one.name == STREAM for one in parameters):
        launch_arguments.append(f"stream={STREAM}")
        given.remove(STREAM)
    if cluster is not None:
        launch_arguments.append(f"cluster={cluster}")
    if pdl:
        launch_arguments.append("use_pdl=True")
    if marks.min_blocks:
        launch_arguments.append(f"min_blocks_per_mp={marks.min_blocks}")
    carveout = marks.carveout
    if carveout is None and marks.min_blocks > 1:
        carveout = -1  # the driver's own choice; without a value the DSL queries the GPU of this machine for its memory
    if carveout is not None:
        launch_arguments.append(f"preferred_smem_carveout={carveout}")
    lines.append(f"device_function({', '.join(given)}).launch({', '.join(launch_arguments)})")
    head = ", ".join(f"{one.name}: {one.annotation}" for one in parameters)
    return "".join(["@cute.jit\n", f"def {kernel}({head}):\n", *(f"    {line}\n" for line in lines)])


def _tensor_layouts() -> Any:  # noqa: ANN401  # an enumeration of the DSL
    """Returns the DSL's enumeration of tensor layouts, whose module depends on the DSL's version."""
    if find_spec("cutlass.tensor_utils") is not None:
        return dsl_module("cutlass.tensor_utils").LayoutEnum
    return dsl_module("cutlass.utils.layout").LayoutEnum


def host_function(kernel: object, text: str, parameters: Sequence[HostParameter]) -> Any:  # noqa: ANN401
    """Returns the DSL function that a text of :func:`host_text` defines. Raises ToolchainError."""
    name = name_of(kernel)
    file = f"<launch of {name}, {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    space: dict[str, Any] = {word: dsl_module(module) for word, module in _MODULES.items()}
    space["tensor_layouts"] = _tensor_layouts()
    space["CUstream"] = dsl_module("cuda.bindings.driver").CUstream
    space["device_function"] = kernel
    with FRONT_END:
        annotations = {one.name: _annotation(one.annotation, space) for one in parameters}
        return function_of_text(file, text, name, annotations, space)


def _annotation(word: str, space: Mapping[str, Any]) -> Any:  # noqa: ANN401  # a class of the DSL
    """Returns the class of a dotted name such as ``cutlass.Int64``."""
    module, *members = word.split(".")
    return reduce(getattr, members, space[module])
