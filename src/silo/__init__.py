"""Silo: the runtime for compute kernels.

Public names are resolved on first use, so that ``import silo`` stays light: it loads none of torch, triton, jax, numpy.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from silo.commands.judge_candidates import judge
    from silo.commands.python_commands import build, check, run, tune
    from silo.core.cases import Case, Make
    from silo.core.compound_arguments import TensorDescriptor
    from silo.core.config import Config
    from silo.core.device import Target
    from silo.core.space import Space
    from silo.core.trace import cdiv, maximum, minimum, next_pow2, select
    from silo.errors import SiloError
    from silo.integrations.jax.call import jax_call
    from silo.integrations.torch.operator import torch_op
    from silo.judging.task import Draw, Task, task
    from silo.judging.verdict import Verdict
    from silo.kernels.agreement import Decisions, decisions, same_decisions
    from silo.kernels.bundle_kernels import Kernels, load
    from silo.kernels.kernel import Kernel, KernelFunction, kernel
    from silo.kernels.plans import Plan, PlanReport, plan, planning
    from silo.kernels.recorded_steps import step
    from silo.kinds.binary.binary_definition import Binary, binary
    from silo.kinds.cuda_cpp.cuda_definition import cuda
    from silo.kinds.cute.front.cute_source import cute
    from silo.kinds.metal.front.metal_source import metal
    from silo.kinds.metal.programs.emulation import emulated_metal
    from silo.kinds.pallas.front.launch_spec import ArgSpec, Scratch
    from silo.kinds.pallas.front.pallas_definition import pallas
    from silo.kinds.triton.programs.triton_patching import Acceleration, accelerate
    from silo.launch.buffers import Buffer
    from silo.launch.flight import dump_launches
    from silo.launch.hooks import LaunchEvent, launch_hook, nvtx_ranges, on_launch, torch_annotations
    from silo.launch.scratch import set_allocator
    from silo.machine.device_info import DeviceInfo, device, devices
    from silo.tuning.store_query import DecisionRow, query
    from silo.version import __version__

__all__ = [
    "Acceleration",
    "ArgSpec",
    "Binary",
    "Buffer",
    "Case",
    "Config",
    "DecisionRow",
    "Decisions",
    "DeviceInfo",
    "Draw",
    "Kernel",
    "KernelFunction",
    "Kernels",
    "LaunchEvent",
    "Make",
    "Plan",
    "PlanReport",
    "Scratch",
    "SiloError",
    "Space",
    "Target",
    "Task",
    "TensorDescriptor",
    "Verdict",
    "__version__",
    "accelerate",
    "binary",
    "build",
    "cdiv",
    "check",
    "cuda",
    "cute",
    "decisions",
    "device",
    "devices",
    "dump_launches",
    "emulated_metal",
    "jax_call",
    "judge",
    "kernel",
    "launch_hook",
    "load",
    "maximum",
    "metal",
    "minimum",
    "next_pow2",
    "nvtx_ranges",
    "on_launch",
    "pallas",
    "plan",
    "planning",
    "query",
    "run",
    "same_decisions",
    "select",
    "set_allocator",
    "step",
    "task",
    "torch_annotations",
    "torch_op",
    "tune",
]

_HOMES = {
    "__version__": "silo.version",
    "Acceleration": "silo.kinds.triton.programs.triton_patching",
    "ArgSpec": "silo.kinds.pallas.front.launch_spec",
    "Binary": "silo.kinds.binary.binary_definition",
    "Buffer": "silo.launch.buffers",
    "Case": "silo.core.cases",
    "Config": "silo.core.config",
    "DecisionRow": "silo.tuning.store_query",
    "Decisions": "silo.kernels.agreement",
    "DeviceInfo": "silo.machine.device_info",
    "Draw": "silo.judging.task",
    "Kernel": "silo.kernels.kernel",
    "KernelFunction": "silo.kernels.kernel",
    "Kernels": "silo.kernels.bundle_kernels",
    "LaunchEvent": "silo.launch.hooks",
    "Make": "silo.core.cases",
    "Plan": "silo.kernels.plans",
    "PlanReport": "silo.kernels.plans",
    "Scratch": "silo.kinds.pallas.front.launch_spec",
    "SiloError": "silo.errors",
    "Space": "silo.core.space",
    "Target": "silo.core.device",
    "Task": "silo.judging.task",
    "TensorDescriptor": "silo.core.compound_arguments",
    "Verdict": "silo.judging.verdict",
    "accelerate": "silo.kinds.triton.programs.triton_patching",
    "cdiv": "silo.core.trace",
    "build": "silo.commands.python_commands",
    "check": "silo.commands.python_commands",
    "decisions": "silo.kernels.agreement",
    "device": "silo.machine.device_info",
    "devices": "silo.machine.device_info",
    "dump_launches": "silo.launch.flight",
    "emulated_metal": "silo.kinds.metal.programs.emulation",
    "jax_call": "silo.integrations.jax.call",
    "judge": "silo.commands.judge_candidates",
    "kernel": "silo.kernels.kernel",
    "launch_hook": "silo.launch.hooks",
    "load": "silo.kernels.bundle_kernels",
    "maximum": "silo.core.trace",
    "minimum": "silo.core.trace",
    "next_pow2": "silo.core.trace",
    "nvtx_ranges": "silo.launch.hooks",
    "on_launch": "silo.launch.hooks",
    "plan": "silo.kernels.plans",
    "planning": "silo.kernels.plans",
    "query": "silo.tuning.store_query",
    "run": "silo.commands.python_commands",
    "same_decisions": "silo.kernels.agreement",
    "select": "silo.core.trace",
    "set_allocator": "silo.launch.scratch",
    "step": "silo.kernels.recorded_steps",
    "task": "silo.judging.task",
    "torch_annotations": "silo.launch.hooks",
    "torch_op": "silo.integrations.torch.operator",
    "tune": "silo.commands.python_commands",
}


class _OldNames:
    """An import finder for renamed modules, placed last in ``sys.meta_path``.

    It imports :mod:`silo.old_names` only when all other finders have failed.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG004
        return import_module("silo.old_names").spec_of(name) if name.startswith("silo.") else None


sys.meta_path.append(_OldNames)


if not TYPE_CHECKING:  # hidden from type checkers, which would accept every misspelt name if they saw __getattr__

    def __getattr__(name: str) -> object:
        """Imports the module of a public name when the name is first used (PEP 562).

        Kernels of some kinds are made by a call instead of a decorator; such a kind's name, for example
        ``silo.binary``, is a public name too.
        """
        home = _HOMES.get(name)
        # watch() connects Silo to torch's compiler and imports silo.kernels. It is not called by ``import silo``,
        # because torch may be tracing a function at that time.
        if name in ("kernel", "torch_op"):
            import_module("silo.integrations.torch.import_hook").watch()
        value = _maker(name) if home is None else getattr(import_module(home), name)
        globals()[name] = value
        return value


def _maker(name: str) -> object:
    if name.startswith("_") or not import_module("silo.sources.kinds").defines(name):
        near: list[str] = []
        if not name.startswith("_"):
            from difflib import get_close_matches  # noqa: PLC0415  # only for the message

            near = get_close_matches(name, __all__, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise AttributeError(f"module 'silo' has no attribute {name!r}{hint}")
    return import_module("silo.kernels.kernel").maker(name)


def __dir__() -> list[str]:
    return sorted(__all__)
