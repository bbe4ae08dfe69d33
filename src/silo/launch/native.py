"""The one import of the native module."""

from __future__ import annotations

from typing import TypeAlias

from silo.errors import DeviceError

try:
    from silo import _native
    from silo._native import (
        ABSENT,
        MAX_PARAMETERS,
        Binding,
        Bound,
        CpuModule,
        GpuBuffer,
        GpuEvent,
        GpuModule,
        GpuStream,
        HostBuffer,
        Launcher,
        LoadedKernel,
        PinnedMemory,
        adapt_descriptor,
        adapter,
        bucket,
        cpu_affinity,
        cpu_threads,
        dtype_named,
        evaluate,
        generate,
        gpu_attributes,
        gpu_capturing,
        gpu_current,
        gpu_free_memory,
        gpu_locate,
        gpu_open,
        gpu_synchronize,
        narrow,
        new_generation,
        read,
        set_driver_opener,
        set_hooks,
        set_scratch_allocator,
        set_stream_source,
        set_type_hook,
        tabulate,
        torch_close,
        torch_open,
        torch_open_stream,
        torch_probe,
    )
except ImportError as error:
    raise DeviceError(
        f"Silo's native module cannot be loaded: {error}. It launches kernels, so nothing runs without it. "
        "In a checkout build it with `python setup.py build_ext --inplace` (needs a C compiler and Python's headers); "
        "elsewhere reinstall: `pip install --force-reinstall kernel-silo`."
    ) from error

__all__ = [
    "ABSENT",
    "MAX_PARAMETERS",
    "Binding",
    "Bound",
    "CpuModule",
    "GpuBuffer",
    "GpuEvent",
    "GpuModule",
    "GpuStream",
    "HostBuffer",
    "Launcher",
    "LoadedKernel",
    "PinnedMemory",
    "RawCall",
    "RawExtents",
    "RawFacts",
    "RawParameter",
    "adapt_descriptor",
    "adapter",
    "bucket",
    "cpu_affinity",
    "cpu_threads",
    "dtype_named",
    "evaluate",
    "generate",
    "gpu_attributes",
    "gpu_capturing",
    "gpu_current",
    "gpu_free_memory",
    "gpu_locate",
    "gpu_open",
    "gpu_synchronize",
    "narrow",
    "new_generation",
    "path",
    "read",
    "set_driver_opener",
    "set_hooks",
    "set_scratch_allocator",
    "set_stream_source",
    "set_type_hook",
    "tabulate",
    "torch_close",
    "torch_open",
    "torch_open_stream",
    "torch_probe",
]


RawExtents: TypeAlias = tuple[tuple[int, ...], tuple[int, ...] | None] | None
"""The shape of an array, and its strides where they are held; None where no extents are. ``native/extents.h``."""

RawFacts: TypeAlias = tuple[tuple[int, int, int, int, int, RawExtents], ...]
"""(kind, DLPack code, bits, flags, ndim or a descriptor's block word, extents) of each parameter; ``native/miss.h``."""

RawCall: TypeAlias = tuple[RawFacts, tuple[object, ...], dict[str, object], tuple[int, int], object]
"""Facts, arguments (:data:`ABSENT` for what is left to the config), options, (device type, index)."""

RawParameter: TypeAlias = tuple[str, int, int, int, int, tuple[object, ...]]
"""Name, kind, DLPack code, bits, flags, and a tuple of the default or of nothing; ``native/plan.h``."""


def path() -> str:
    """The file the native module was loaded from."""
    return _native.__file__ or ""
