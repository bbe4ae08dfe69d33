"""Silo: the runtime for compute kernels.

Public names are resolved on first use, so that ``import silo`` stays light: it loads none of torch, triton, jax, numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from silo.api.kernels.agreement import Decisions, decisions, same_decisions
    from silo.api.kernels.bundle import Kernels, load
    from silo.api.kernels.check import check
    from silo.api.kernels.kernel import Kernel, KernelFunction, kernel
    from silo.api.machine.device_info import DeviceInfo, device, devices
    from silo.core.cases import Case
    from silo.core.config import Config
    from silo.core.descriptors import TensorDescriptor
    from silo.core.space import Space
    from silo.core.target import Target
    from silo.core.trace import cdiv, maximum, minimum, next_pow2, select
    from silo.errors import SiloError
    from silo.integrations.jax.call import jax_call
    from silo.integrations.metal.emulation import emulated_metal
    from silo.integrations.torch.operator import torch_op
    from silo.integrations.triton_programs.switch import Acceleration, accelerate
    from silo.launch.buffers import Buffer
    from silo.launch.hooks import LaunchEvent, launch_hook, nvtx_ranges, on_launch, torch_annotations
    from silo.launch.scratch import set_allocator
    from silo.sources.binary.definition import Binary, binary
    from silo.sources.cute.definition import cute
    from silo.sources.metal.definition import metal
    from silo.sources.pallas.argument_spec import ArgSpec, Scratch
    from silo.sources.pallas.definition import pallas
    from silo.version import __version__

__all__ = [
    "Acceleration",
    "ArgSpec",
    "Binary",
    "Buffer",
    "Case",
    "Config",
    "Decisions",
    "DeviceInfo",
    "Kernel",
    "KernelFunction",
    "Kernels",
    "LaunchEvent",
    "Scratch",
    "SiloError",
    "Space",
    "Target",
    "TensorDescriptor",
    "__version__",
    "accelerate",
    "binary",
    "cdiv",
    "check",
    "cute",
    "decisions",
    "device",
    "devices",
    "emulated_metal",
    "jax_call",
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
    "same_decisions",
    "select",
    "set_allocator",
    "torch_annotations",
    "torch_op",
]

_HOMES = {
    "__version__": "silo.version",
    "Acceleration": "silo.integrations.triton_programs.switch",
    "ArgSpec": "silo.sources.pallas.argument_spec",
    "Binary": "silo.sources.binary.definition",
    "Buffer": "silo.launch.buffers",
    "Case": "silo.core.cases",
    "Config": "silo.core.config",
    "Decisions": "silo.api.kernels.agreement",
    "DeviceInfo": "silo.api.machine.device_info",
    "Kernel": "silo.api.kernels.kernel",
    "KernelFunction": "silo.api.kernels.kernel",
    "Kernels": "silo.api.kernels.bundle",
    "LaunchEvent": "silo.launch.hooks",
    "Scratch": "silo.sources.pallas.argument_spec",
    "SiloError": "silo.errors",
    "Space": "silo.core.space",
    "Target": "silo.core.target",
    "TensorDescriptor": "silo.core.descriptors",
    "accelerate": "silo.integrations.triton_programs.switch",
    "cdiv": "silo.core.trace",
    "check": "silo.api.kernels.check",
    "decisions": "silo.api.kernels.agreement",
    "device": "silo.api.machine.device_info",
    "devices": "silo.api.machine.device_info",
    "emulated_metal": "silo.integrations.metal.emulation",
    "jax_call": "silo.integrations.jax.call",
    "kernel": "silo.api.kernels.kernel",
    "launch_hook": "silo.launch.hooks",
    "load": "silo.api.kernels.bundle",
    "maximum": "silo.core.trace",
    "minimum": "silo.core.trace",
    "next_pow2": "silo.core.trace",
    "nvtx_ranges": "silo.launch.hooks",
    "on_launch": "silo.launch.hooks",
    "same_decisions": "silo.api.kernels.agreement",
    "select": "silo.core.trace",
    "set_allocator": "silo.launch.scratch",
    "torch_annotations": "silo.launch.hooks",
    "torch_op": "silo.integrations.torch.operator",
}


def __getattr__(name: str) -> object:
    """Import the home of a public name the first time it is asked for (PEP 562).

    A kind of source whose kernels are made by a call has a name of its own: ``silo.binary``.
    """
    home = _HOMES.get(name)
    if name in ("kernel", "torch_op"):  # kernels are on the way, which torch may trace
        import_module("silo.integrations.torch.arrival").watch()
    value = _maker(name) if home is None else getattr(import_module(home), name)
    globals()[name] = value
    return value


def _maker(name: str) -> object:
    if name.startswith("_") or not import_module("silo.sources.kinds").defines(name):
        raise AttributeError(f"module 'silo' has no attribute {name!r}")
    return import_module("silo.api.kernels.kernel").maker(name)


def __dir__() -> list[str]:
    return sorted(__all__)
