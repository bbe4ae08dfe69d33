"""The one import of the native module, whose GPU drivers are opened when first needed, never before."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeAlias

from silo.core.plugins import driver_kinds, driver_of
from silo.errors import DeviceError, native_missing
from silo.settings import settings

try:
    from silo._native import (
        ABSENT,
        MAX_OPTIONS,
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
        LaunchPlan,
        LibraryCode,
        LoadedKernel,
        OperatorCall,
        PinnedMemory,
        StandIn,
        TritonKernel,
        TritonSituation,
        adapt_descriptor,
        adapter,
        bucket,
        copy_kernels,
        cpu_level,
        cpu_pin_threads,
        cpu_short_handed,
        cpu_spin,
        cpu_state,
        cpu_threads,
        cpu_use_pool,
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
        gpu_within,
        narrow,
        new_generation,
        read,
        record,
        record_end,
        recording,
        set_array_reader,
        set_driver_opener,
        set_hooks,
        set_scratch_allocator,
        set_stream_source,
        set_type_hook,
        stream_handle,
        tabulate,
        torch_close,
        torch_open,
        torch_open_stream,
        torch_probe,
        torch_probe_keys,
        triton_compiled,
        triton_methods,
        triton_serve,
        triton_situation,
        triton_tuners,
        xla_connect,
        xla_handlers,
        xla_keep,
    )
    from silo._native import __file__ as _file
except ImportError as error:
    raise native_missing(error) from error

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ABSENT",
    "MAX_OPTIONS",
    "MAX_PARAMETERS",
    "Binding",
    "Bound",
    "CpuModule",
    "GpuBuffer",
    "GpuEvent",
    "GpuModule",
    "GpuStream",
    "HostBuffer",
    "LaunchPlan",
    "Launcher",
    "LibraryCode",
    "LoadedKernel",
    "OperatorCall",
    "PinnedMemory",
    "RawCall",
    "RawChoiceArgument",
    "RawChoiceCall",
    "RawExtents",
    "RawFacts",
    "RawParameter",
    "RawPlace",
    "StandIn",
    "TritonKernel",
    "TritonSituation",
    "adapt_descriptor",
    "adapter",
    "bucket",
    "copy_kernels",
    "cpu_level",
    "cpu_pin_threads",
    "cpu_short_handed",
    "cpu_spin",
    "cpu_state",
    "cpu_threads",
    "cpu_use_pool",
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
    "gpu_within",
    "has_driver",
    "narrow",
    "new_generation",
    "open_driver",
    "open_drivers",
    "path",
    "read",
    "record",
    "record_end",
    "recording",
    "set_array_reader",
    "set_driver_opener",
    "set_hooks",
    "set_scratch_allocator",
    "set_stream_source",
    "set_type_hook",
    "stream_handle",
    "tabulate",
    "torch_close",
    "torch_open",
    "torch_open_stream",
    "torch_probe",
    "torch_probe_keys",
    "triton_compiled",
    "triton_methods",
    "triton_serve",
    "triton_situation",
    "triton_tuners",
    "xla_connect",
    "xla_handlers",
    "xla_keep",
]


RawExtents: TypeAlias = tuple[tuple[int, ...], tuple[int, ...] | None] | int | None
"""The shape of an array, and its strides where they are held; the word of a dynamic layout; None where nothing is.

``extents.h``.
"""

RawFacts: TypeAlias = tuple[tuple[int, int, int, int, int, RawExtents], ...]
"""(kind, DLPack code, bits, flags, ndim or a descriptor's block word, extents) of each parameter; ``miss.h``."""

RawCall: TypeAlias = tuple[RawFacts, tuple[object, ...], dict[str, object], tuple[int, int], object]
"""Facts, arguments (:data:`ABSENT` for what is left to the config), options, (device type, index)."""

RawChoiceArgument: TypeAlias = tuple[int, int, int, int, tuple[int, ...] | None, RawExtents, object]
"""(kind, DLPack code, bits, flags, a descriptor's block, extents, value) of an argument; ``bundle_choice.h``."""

RawChoiceCall: TypeAlias = (
    "tuple[tuple[RawChoiceArgument, ...], Mapping[str, object], tuple[int, int, int] | None, str]"
)
"""Arguments, options, grid, and the end of the sentence that a call has no grid, as the choice takes a call."""

RawPlace: TypeAlias = "tuple[str, Mapping[str, int], tuple[tuple[str, str, bool, str], ...]]"
"""Target, facts, and (target, kind of blob, whether it runs, why) of code that the device decided on."""

RawParameter: TypeAlias = tuple[str, int, int, int, int, tuple[object, ...]]
"""Name, kind, DLPack code, bits, flags, and a tuple of the default or of nothing; ``native/python/plan.h``."""


def path() -> str:
    """The file the native module was loaded from."""
    return _file or ""


def has_driver(kind: str) -> bool:
    """Whether the native module has a driver for devices of a kind, which may be missing here: Buffers lie there."""
    return driver_of(kind).library != ""


def open_driver(kind: str) -> int:
    """Open the native module's driver of a kind of GPUs; how many devices it has.

    Raises:
        DeviceError: why it is not here.
    """
    return gpu_open(kind, getattr(settings(), driver_of(kind).library))


def open_drivers() -> None:
    """Open what there is. The native module calls this once, at the first call that may concern a GPU."""
    for kind in filter(has_driver, driver_kinds()):
        try:
            open_driver(kind)
        except DeviceError as error:
            _note(kind, error)


def _note(kind: str, error: DeviceError) -> None:
    if "logging" in sys.modules:  # otherwise the message is off, and the import takes milliseconds
        import logging  # noqa: PLC0415  # see above

        logging.getLogger("silo").debug("no %s: %s", kind, error)


set_driver_opener(open_drivers)
