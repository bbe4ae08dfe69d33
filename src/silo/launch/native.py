"""Imports the native module (no other Python module does), and registers the functions that it calls back.

A GPU's driver is opened when it is first needed. An array library is connected, so that the native module can read its
arrays, when one of these first appears in a call; this module imports no array library. The settings for CPU threads
and reserved multiprocessors apply to all launches of the process.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from silo.core.device import EXTENSION_MEMORY, DriverDeclaration, driver_of, drivers
from silo.core.plugins import driver_kinds
from silo.errors import DeviceError, SettingsError, native_missing
from silo.forks import Mutex
from silo.settings import settings

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
    "apply_setting",
    "available_memory",
    "bucket",
    "connect_loaded",
    "connect_torch",
    "copy_kernels",
    "cpu_level",
    "cpu_pin_threads",
    "cpu_short_handed",
    "cpu_spin",
    "cpu_state",
    "cpu_threads",
    "cpu_use_pool",
    "disconnect_torch",
    "dtype_named",
    "evaluate",
    "flight_clear",
    "flight_keep",
    "flight_start",
    "flight_state",
    "flight_stop",
    "flight_write",
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
    "is_descriptor_type",
    "narrow",
    "new_generation",
    "notice",
    "open_driver",
    "open_drivers",
    "path",
    "probes",
    "read",
    "record",
    "record_end",
    "recording",
    "reserve_sms",
    "reserved_sms",
    "set_array_reader",
    "set_driver_opener",
    "set_hooks",
    "set_scratch_allocator",
    "set_stream_source",
    "set_type_hook",
    "stream_handle",
    "tabulate",
    "threads",
    "torch_close",
    "torch_open",
    "torch_open_stream",
    "torch_probe",
    "torch_probe_keys",
    "torch_with_gpu",
    "triton_compiled",
    "triton_methods",
    "triton_serve",
    "triton_situation",
    "triton_tuners",
    "xla_connect",
    "xla_handlers",
    "xla_keep",
]


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
        cpu_use_pool,
        dtype_named,
        evaluate,
        flight_clear,
        flight_keep,
        flight_probe,
        flight_start,
        flight_state,
        flight_stop,
        flight_write,
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
    from silo._native import cpu_threads as _pool_threads
except ImportError as error:
    raise native_missing(error) from error


RawExtents: TypeAlias = tuple[tuple[int, ...], tuple[int, ...] | None] | int | None
"""The extents of one array that the guard compares (``extents.h``).

The shape, and the strides if they are compared too; or the word of a dynamic layout, whose extents are parameters of
the code (``dynamic_layout.h``); or None if no extents are compared.
"""

RawFacts: TypeAlias = tuple[tuple[int, int, int, int, int, RawExtents], ...]
"""For each parameter: kind, DLPack code, bits, flags, ndim (or the block word of a descriptor), extents.

See ``miss.h``.
"""

RawCall: TypeAlias = tuple[RawFacts, tuple[object, ...], dict[str, object], tuple[int, int], object]
"""Facts, arguments (:data:`ABSENT` for parameters that the config sets), options, device as (type, index), and grid."""

RawChoiceArgument: TypeAlias = tuple[int, int, int, int, tuple[int, ...] | None, RawExtents, object]
"""One argument: kind, DLPack code, bits, flags, block shape of a descriptor, extents, value.

See ``bundle_choice.h``.
"""

RawChoiceCall: TypeAlias = (
    "tuple[tuple[RawChoiceArgument, ...], Mapping[str, object], tuple[int, int, int] | None, str]"
)
"""A call, as the choice among a bundle's variants takes it.

Arguments, options, grid, and the end of the error message for a call without a grid.
"""

RawPlace: TypeAlias = "tuple[str, Mapping[str, int], tuple[tuple[str, str, bool, str], ...]]"
"""Target, facts, and the device's decisions on code as (target, kind of blob, whether the device runs it, reason)."""

RawParameter: TypeAlias = tuple[str, int, int, int, int, tuple[object, ...]]
"""Name, kind, DLPack code, bits, flags, and a tuple that holds the default value or is empty.

See ``native/python/plan.h``.
"""


def path() -> str:
    """Returns the path of the file that the native module was loaded from."""
    return _file or ""


def has_driver(kind: str) -> bool:
    """Returns whether the native module has a driver for devices of a kind, and so can allocate Buffers on them.

    The machine may lack such devices.
    """
    return driver_of(kind).library != ""


def open_driver(kind: str) -> int:
    """Opens the native module's driver for a kind of GPU and returns the number of devices.

    Raises:
        DeviceError: the driver cannot be opened; contains the reason.
    """
    return gpu_open(kind, getattr(settings(), driver_of(kind).library))


def open_drivers() -> None:
    """Opens the drivers of this machine.

    The native module calls this once, at the first call that may concern a GPU.
    """
    for kind in filter(has_driver, driver_kinds()):
        try:
            open_driver(kind)
        except DeviceError as error:
            _note(kind, error)


def _note(kind: str, error: DeviceError) -> None:
    # Without logging imported, nobody would see the message, and importing it takes milliseconds.
    if "logging" in sys.modules:
        import logging  # noqa: PLC0415  # see above

        logging.getLogger("silo").debug("no %s: %s", kind, error)


set_driver_opener(open_drivers)


# ---- Array libraries, connected when one of their arrays first appears in a call ----

# The attributes of a tensor descriptor.
_MEMBERS = frozenset(("base", "shape", "strides", "block_shape", "padding"))
_ALL_MEMBERS = _MEMBERS | {"round_f32_to_tf32", "layout"}

# types that are being connected: doing so makes the native module call notice() for the same type again
_connecting: set[type] = set()


def is_descriptor_type(kind: type) -> bool:
    """Returns whether objects of a type are tensor descriptors.

    A class of your own qualifies if it sets ``__tensor_descriptor__ = True`` and has ``base``, ``shape``, ``strides``
    (in elements), ``block_shape`` and ``padding`` (``zero`` or ``nan``). A dataclass named ``TensorDescriptor`` with
    these fields, and optionally ``round_f32_to_tf32`` and ``layout`` (Gluon's), qualifies without that attribute.
    """
    descriptor_bases = [base for base in kind.__mro__ if base.__name__ == "TensorDescriptor"]
    members = (frozenset[str](getattr(base, "__dataclass_fields__", ())) for base in descriptor_bases)
    says_so = getattr(kind, "__tensor_descriptor__", False) is True
    return says_so or any(_MEMBERS <= member <= _ALL_MEMBERS for member in members)


def notice(kind: type) -> None:
    """Connects the array library of an argument's type, so that the native module can read arrays of this type.

    The native module calls this once for every new type.
    """
    if kind in _connecting:
        return
    if is_descriptor_type(kind):
        adapt_descriptor(kind)
    elif kind.__name__ in ("Tensor", "Parameter") and kind.__module__ in ("torch", "torch.nn.parameter"):
        connect_torch()
    elif kind.__name__ in ("FakeTensor", "FunctionalTensor") and kind.__module__.startswith("torch._subclasses."):
        _connecting.add(kind)
        try:
            set_array_reader(kind, _refuse_traced)
        finally:
            _connecting.discard(kind)
    elif kind.__name__ == "ndarray" and kind.__module__.partition(".")[0] == "cupy":
        open_drivers()
        _connect_cupy(kind)
    elif kind.__name__ == "ArrayImpl" and kind.__module__.partition(".")[0] in ("jax", "jaxlib"):
        _connect_jax(kind)
    elif hasattr(kind, "__cuda_array_interface__") and not hasattr(kind, "__dlpack__"):
        # __cuda_array_interface__ does not name the device, so the drivers have to find the device by the address.
        open_drivers()


def _refuse_traced(array: object) -> None:
    """Raises TypeError for a tensor that torch traces with. Reading its address would make torch print a warning."""
    raise TypeError(f"a {type(array).__name__} has no memory")


def connect_loaded() -> None:
    """Connects torch if it is loaded, so that calls without arrays use its current stream."""
    global _torch_asked  # noqa: PLW0603  # once is enough: a torch tensor asks again
    if not _torch_asked and "torch" in sys.modules:
        _torch_asked = True
        connect_torch()


_torch_asked = False


def _connect_cupy(kind: type) -> None:
    cupy: Any = sys.modules["cupy"]

    def current_stream(index: int) -> int:
        if index == cupy.cuda.runtime.getDevice():
            return int(cupy.cuda.get_current_stream().ptr)
        with cupy.cuda.Device(index):
            return int(cupy.cuda.get_current_stream().ptr)

    _connecting.add(kind)
    try:
        set_stream_source(kind, current_stream)
    finally:
        _connecting.discard(kind)


def _connect_jax(kind: type) -> None:
    """Registers a reader for jax arrays on TPUs. These arrays have no address, so jax itself has to describe them."""
    jax: Any = sys.modules["jax"]
    places = {device: index for index, device in enumerate(jax.local_devices()) if device.platform == "tpu"}
    if not places:
        return  # without TPUs the type needs no reader: the devices of a process never change

    def read(array: Any) -> tuple[int, int, str, bool] | None:  # noqa: ANN401
        devices = array.devices()
        index = places.get(next(iter(devices))) if len(devices) == 1 else None
        return None if index is None else (EXTENSION_MEMORY, index, str(array.dtype), True)

    _connecting.add(kind)
    try:
        set_array_reader(kind, read)
    finally:
        _connecting.discard(kind)


def torch_with_gpu(kind: str) -> Any:  # noqa: ANN401  # the module, or None
    """Returns torch if it is loaded, built for GPUs of this kind, and finds one; else None."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_available():
        return None
    return torch if (build := _build_of(torch)) is not None and build.kind == kind else None


def _build_of(torch: Any) -> DriverDeclaration | None:  # noqa: ANN401  # the module
    """Returns the GPU driver that a build of torch is for; None for a build without GPUs."""
    builds = (driver for driver in drivers() if driver.torch_build)
    return next((build for build in builds if getattr(torch.version, build.torch_build, None) is not None), None)


def connect_torch() -> bool:
    """Makes the native module read torch tensors through torch's C functions: about 12 ns each, 75 ns through DLPack.

    The offset of the C++ tensor inside its Python object is found by comparison with a handle that torch returns.
    Returns False, and changes nothing, if torch is not loaded, ``SILO_TORCH_SHIM`` is 0, or this torch has another
    layout.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not settings().torch_shim:
        return False
    import logging  # noqa: PLC0415  # torch has imported them
    from pathlib import Path  # noqa: PLC0415

    log = logging.getLogger("silo")
    aoti: Any = getattr(getattr(torch, "_C", None), "_aoti", None)
    if aoti is None or not hasattr(aoti, "unsafe_alloc_void_ptr_from_tensor"):
        return False
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    tensor = torch.empty(1)
    handle = aoti.unsafe_alloc_void_ptr_from_tensor(tensor)
    try:
        build = _build_of(torch)
        name = "cuda" if build is None else build.torch_build
        rocm = name != "cuda"
        offset = torch_open(str(library), tensor, handle, rocm, (torch.Tensor, torch.nn.Parameter))
    finally:
        aoti.alloc_tensor_by_stealing_from_void_ptr(handle)  # releases the handle
    if offset:
        torch_probe(probes(torch))
        _probe_storages(torch)
        if not _refuse_other_values(torch):
            log.debug("torch %s: a kernel reads the memory of negated views as it is", torch.__version__)
    if offset and torch.cuda.is_available():
        gpu_library = Path(torch.__file__).parent / "lib" / f"libtorch_{name}.so"
        if not torch_open_stream(str(gpu_library)):
            log.debug("torch %s: its current stream is asked through DLPack", torch.__version__)
    if not offset:
        log.debug("torch %s: tensors are read through DLPack, for its C functions do not fit", torch.__version__)
    return offset != 0


def probes(torch: Any) -> tuple[object, ...]:  # noqa: ANN401  # the module
    """Returns tensors that differ in dtype, device, rank, extents and strides.

    By comparing their C++ objects, the native module finds the offsets of these fields.
    """
    names = ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool", "float16", "bfloat16")
    tensors = [torch.empty(2, dtype=getattr(torch, name)) for name in names]
    meta = [torch.empty(3, 5, dtype=getattr(torch, name), device="meta") for name in names[:4]]
    shaped = [torch.empty(tuple(range(2, 2 + rank))).permute(tuple(reversed(range(rank)))) for rank in range(7)]
    return (*tensors, *meta, *shaped)


def _probe_storages(torch: Any) -> bool:  # noqa: ANN401  # the module
    """Finds the offsets of the address and the size in torch's C++ storage objects.

    The flight recorder reads these fields. Returns whether the offsets were found.
    """
    views = [torch.empty(size, dtype=torch.uint8)[offset:] for size, offset in ((1000, 8), (3001, 16), (70, 1))]
    # these storages wrap memory that torch did not allocate
    views += [torch.frombuffer(bytearray(size), dtype=torch.uint8)[1:] for size in (999, 77)]
    try:
        storages = [view.untyped_storage() for view in views]
        words = [(storage._cdata, storage.data_ptr(), storage.nbytes()) for storage in storages]  # noqa: SLF001  # its StorageImpl
    except AttributeError:
        return False
    return bool(flight_probe(tuple((view, *word) for view, word in zip(views, words, strict=True))))


def _refuse_other_values(torch: Any) -> bool:  # noqa: ANN401  # the module
    """Makes the native module refuse tensors whose memory differs from their values (``z.conj().imag``).

    Returns False if this torch does not let that be detected.
    """
    native_torch: Any = torch._C  # noqa: SLF001  # what a view does to values is nowhere else
    try:
        keys = native_torch._dispatch_keys  # noqa: SLF001
        plain = torch.empty(2)
        complex_ = torch.empty(2, dtype=torch.complex64)
        tensors = [plain, torch._neg_view(plain), complex_, complex_.conj(), *probes(torch)]  # noqa: SLF001
        words = [keys(tensor).raw_repr() for tensor in tensors]
        other_values = (words[0] ^ words[1]) | (words[2] ^ words[3])
    except (AttributeError, TypeError, RuntimeError):
        return False
    if other_values.bit_count() != 2:
        return False
    return bool(torch_probe_keys(tuple(zip(tensors, words, strict=True)), other_values))


def disconnect_torch() -> None:
    """Reads torch tensors through DLPack from now on."""
    torch_close()


set_type_hook(notice)


# ---- The free memory of the host ----


def available_memory() -> int | None:
    """Returns the bytes that programs may allocate without swapping; None if the system does not report them."""
    try:
        with open("/proc/meminfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  # pathlib takes long
            text = file.read()
        return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


# ---- Resources that launches may use: threads of the CPU, and multiprocessors that are reserved for others ----

# The most threads of the native thread pool.
MAX_THREADS = 1024

_applied: tuple[int, int, str] | None = None

_lock = Mutex()
_reserved: dict[tuple[str, int], int] = {}


def apply_setting() -> None:
    """Applies ``SILO_THREADS`` and similar settings if they changed since the last call.

    Unchanged settings do not overwrite a later ``cpu_threads(n)``.
    """
    global _applied  # noqa: PLW0603  # the last values seen
    pool_settings = min(settings().threads, MAX_THREADS), settings().spin, settings().pool
    if pool_settings != _applied:
        if _applied is None or pool_settings[0] != _applied[0]:
            _pool_threads(pool_settings[0])
        cpu_spin(pool_settings[1])
        cpu_use_pool(pool_settings[2])
        _applied = pool_settings


def cpu_threads(count: int | None = None) -> int:
    """Returns the number of threads of a CPU launch, including the calling one.

    With ``count`` (1 to 1024), first sets this number for the whole process.
    """
    apply_setting()
    return _pool_threads() if count is None else _pool_threads(count)


@contextmanager
def threads(count: int) -> Generator[None]:
    """Runs launches on ``count`` threads until the block ends."""
    before = cpu_threads()
    _pool_threads(count)
    try:
        yield
    finally:
        _pool_threads(before)


def reserve_sms(kind: str, index: int, count: int) -> None:
    """Reserves ``count`` multiprocessors of a device for communication or another kernel.

    From now on ``a.reserved_sms`` and ``a.num_sms`` in the grids of persistent kernels use this number for the device,
    in this process. Each launcher resolves its next call again; launchers made by ``bind`` keep their grid.

    Raises:
        SettingsError: a negative count.
    """
    if count < 0:
        raise SettingsError(f"reserved_sms={count}: it is 0 or more")
    with _lock:
        _reserved[kind, index] = count
    new_generation()


def reserved_sms(kind: str, index: int) -> int:
    """Returns the number of reserved multiprocessors of a device; 0 by default."""
    return _reserved.get((kind, index), 0)
