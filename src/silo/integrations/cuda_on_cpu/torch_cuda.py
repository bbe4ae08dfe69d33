"""Python's ``torch.cuda`` and ``torch.accelerator`` with one device that is the CPU: properties, memory, seeds."""

from __future__ import annotations

import collections
import itertools
import os
import threading
import time
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace, TracebackType
from typing import Any, Self, cast

from silo.integrations.cuda_on_cpu.placement import index_of, names_cuda, put
from silo.integrations.cuda_on_cpu.pretended_devices import PretendedDevice
from silo.settings import available_cpus, available_memory

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "replace_autocast",
    "replace_devices",
    "replace_generator",
    "replace_loading",
    "replace_parallel",
    "replace_streams",
    "set_stream",
]


# ---- Python's torch.cuda and torch.accelerator with one device that is the CPU ----


_COUNTED = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_cached",
    "max_memory_cached",
)
_RESET = (
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_accumulated_memory_stats",
    "reset_accumulated_host_memory_stats",
    "reset_peak_host_memory_stats",
    "set_per_process_memory_fraction",
)
_CUDA_VERSION = "12.8"  # of the form major.minor, because programs parse it


class _DeviceBlock:
    """Implements ``torch.cuda.device(0)`` and similar context managers.

    As a decorator it returns the function unchanged.
    """

    def __init__(self, device: Any = None) -> None:  # noqa: ANN401
        self.idx = -1 if _is_tensor(device) else index_of(device)
        self.prev_idx = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        return None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function


def _is_tensor(value: object) -> bool:
    return hasattr(value, "data_ptr")


def properties_of(device: PretendedDevice) -> SimpleNamespace:
    """Returns the properties with the names that ``torch.cuda.get_device_properties`` uses; sizes are in bytes."""
    major, minor = device.capability
    return SimpleNamespace(
        name=device.name,
        major=major,
        minor=minor,
        multi_processor_count=device.processors or available_cpus(),
        total_memory=device.memory_bytes or available_memory(),
        max_threads_per_multi_processor=device.processor_threads,
        max_threads_per_block=1024,
        warp_size=32,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=device.shared_bytes,
        shared_memory_per_multiprocessor=device.processor_shared_bytes,
        L2_cache_size=device.l2_bytes,
        clock_rate=1_000_000,
        memory_clock_rate=1_000_000,
        memory_bus_width=512,
        is_multi_gpu_board=0,
        is_integrated=0,
        gcnArchName="",
        uuid="00000000-0000-0000-0000-000000000000",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )


def replace_devices(torch: Any, device: PretendedDevice) -> None:  # noqa: ANN401
    """Replaces the functions of ``torch.cuda`` and ``torch.accelerator`` that describe devices and memory."""
    cuda, accelerator, properties = torch.cuda, torch.accelerator, properties_of(device)

    def of_device(value: Any) -> Callable[..., Any]:  # noqa: ANN401
        def answer(device: Any = None) -> Any:  # noqa: ANN401
            index_of(device)
            return value

        return answer

    def nothing(*_args: Any, **_kwargs: Any) -> None:  # noqa: ANN401
        return None

    def constant(value: Any) -> Callable[..., Any]:  # noqa: ANN401
        return lambda *_args, **_kwargs: value  # pyright: ignore[reportUnknownLambdaType]

    def at_once(callable: Callable[[], object], **_seeds: object) -> None:  # noqa: A002
        callable()

    def accelerator_now(check_available: bool = False) -> Any:  # noqa: ANN401, ARG001, FBT001, FBT002
        return torch.device("cuda")

    def free_and_all(device: Any = None) -> tuple[int, int]:  # noqa: ANN401
        index_of(device)
        available_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        return min(available_bytes, properties.total_memory), properties.total_memory

    def statistics(device: Any = None) -> collections.defaultdict[str, int]:  # noqa: ANN401
        index_of(device)
        return collections.defaultdict(int)

    torch.version.cuda = torch.version.cuda or _CUDA_VERSION
    in_c = torch._C  # noqa: SLF001  # called by generated code and by Triton's other drivers
    for owners, name, value in (
        ((cuda,), "is_initialized", True),
        ((cuda, accelerator), "is_available", True),
        ((torch.backends.cuda,), "is_built", True),
        ((cuda, accelerator), "device_count", 1),
        ((cuda,), "_device_count_nvml", 1),
        ((cuda,), "current_device", 0),
        ((cuda,), "get_gencode_flags", ""),
        ((cuda,), "can_device_access_peer", False),
        ((cuda,), "is_current_stream_capturing", False),
        ((cuda,), "get_sync_debug_mode", 0),
        ((accelerator,), "current_device_index", 0),
        ((accelerator,), "current_device_idx", 0),
        ((in_c,), "_cuda_getCurrentRawStream", 0),
        ((in_c,), "_cuda_isCurrentStreamCapturing", False),
        ((in_c,), "_cuda_getDeviceCount", 1),
    ):
        put(owners, name, constant(value))
    put((cuda,), "_lazy_init", nothing)
    put((cuda,), "init", nothing)
    put((cuda,), "_lazy_call", at_once)
    put((cuda,), "set_device", of_device(None))
    for name in ("set_device_index", "set_device_idx"):
        put((accelerator,), name, of_device(None))
    put((accelerator,), "current_accelerator", accelerator_now)
    cuda.device = cuda.device_of = cuda._DeviceGuard = accelerator.device_index = _DeviceBlock  # noqa: SLF001
    # for ``torch.get_device_module(x.device).device``: the module is torch.cpu, because ``x.device`` is "cpu" here
    torch.cpu.device = _DeviceBlock

    def device_index(device: Any = None, optional: bool = False, allow_cpu: bool = False) -> int:  # noqa: ANN401, ARG001, FBT001, FBT002
        return index_of(device)

    put((cuda, cuda._utils), "_get_device_index", device_index)  # noqa: SLF001
    put((cuda, accelerator), "synchronize", of_device(None))
    put((cuda,), "get_device_properties", of_device(properties))
    put((cuda,), "get_device_capability", of_device(device.capability))
    put((cuda,), "get_device_name", of_device(device.name))
    put((cuda,), "get_arch_list", lambda: [f"sm_{properties.major}{properties.minor}"])
    put((cuda,), "set_sync_debug_mode", nothing)
    for name in ("utilization", "memory_usage", "temperature", "power_draw", "device_memory_used"):
        put((cuda,), name, of_device(0))
    put((cuda,), "clock_rate", of_device(properties.clock_rate // 1000))
    runtime = SimpleNamespace(
        cudaProfilerStart=constant(0), cudaProfilerStop=constant(0), cudaDeviceSynchronize=constant(0)
    )
    put((cuda,), "cudart", lambda: runtime)
    put((cuda,), "ipc_collect", nothing)
    memory = (cuda, cuda.memory)
    put(memory, "empty_cache", nothing)
    put(memory, "mem_get_info", free_and_all)
    for name in _COUNTED:
        put(memory, name, of_device(0))
    for name in _RESET:
        put(memory, name, nothing)
    for name in (
        "memory_stats",
        "memory_stats_as_nested_dict",
        "host_memory_stats",
        "host_memory_stats_as_nested_dict",
    ):
        put(memory, name, statistics)
    put(memory, "memory_snapshot", lambda *args, **kwargs: [])  # noqa: ARG005
    put(memory, "memory_summary", constant("memory is not counted: cuda is the CPU here"))
    put((cuda.memory,), "_record_memory_history", nothing)
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        put((cuda.nvtx,), name, constant(0))
    for name in ("init", "start", "stop"):
        put((cuda.profiler,), name, nothing)


def replace_parallel(torch: Any) -> None:  # noqa: ANN401
    """Makes ``DataParallel`` call its module directly.

    ``DistributedDataParallel`` accepts ``device_ids=[0]`` and ignores it, because the processes compute on CPUs.
    """

    def no_devices() -> None:
        return None

    put((import_module("torch.nn.parallel.data_parallel"),), "_get_available_device_type", no_devices)
    distributed = torch.nn.parallel.DistributedDataParallel
    begin = distributed.__init__

    def begun(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, **kwargs: Any) -> None:  # noqa: ANN401
        for device in (*(device_ids or ()), output_device):
            index_of(device)
        begin(self, module, **kwargs)

    distributed.__init__ = begun


def replace_generator(torch: Any) -> None:  # noqa: ANN401
    """Replaces seeds and generators: the device's default generator and all new ones are generators of the CPU."""
    cuda, default = torch.cuda, torch.default_generator
    made_in_c: Any = torch.Generator
    kind_in_c = cast("Any", type(made_in_c))

    class OfEveryDevice(kind_in_c):
        def __instancecheck__(self, instance: object) -> bool:
            return isinstance(instance, made_in_c)

        def __subclasscheck__(self, subclass: type) -> bool:
            return issubclass(subclass, made_in_c)

    class Generator(made_in_c, metaclass=OfEveryDevice):
        def __new__(cls, device: Any = "cpu") -> Self:  # noqa: ANN401
            return made_in_c.__new__(cls, "cpu" if names_cuda(device) else device)

    Generator.__qualname__, Generator.__module__ = "Generator", "torch"
    torch.Generator = Generator

    def seeded(seed: int) -> None:
        default.manual_seed(int(seed))

    def state(device: Any = None) -> Any:  # noqa: ANN401
        index_of(device)
        return torch.get_rng_state()

    def restore(new_state: Any, device: Any = None) -> None:  # noqa: ANN401
        index_of(device)
        torch.set_rng_state(new_state.cpu())

    def anew() -> None:
        default.seed()

    def all_states() -> list[Any]:
        return [torch.get_rng_state()]

    def restore_all(new_states: Any) -> None:  # noqa: ANN401
        torch.set_rng_state(new_states[0])

    seeds = (cuda, cuda.random)
    replaced: dict[str, Callable[..., Any]] = {
        "manual_seed": seeded,
        "manual_seed_all": seeded,
        "seed": anew,
        "seed_all": anew,
        "initial_seed": default.initial_seed,
        "get_rng_state": state,
        "set_rng_state": restore,
        "get_rng_state_all": all_states,
        "set_rng_state_all": restore_all,
    }
    for name, function in replaced.items():
        put(seeds, name, function)
    cuda.default_generators = (default,)


def replace_autocast(torch: Any) -> None:  # noqa: ANN401
    """Makes ``autocast("cuda")`` the CPU's autocast with CUDA's default dtype, float16."""
    autocast = torch.amp.autocast_mode.autocast
    begin = autocast.__init__
    dtypes = {"cuda": torch.float16}

    def begun(
        self: Any,  # noqa: ANN401
        device_type: str,
        dtype: Any = None,  # noqa: ANN401
        enabled: bool = True,  # noqa: FBT001, FBT002
        cache_enabled: bool | None = None,  # noqa: FBT001
    ) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtypes["cuda"] if dtype is None else dtype
        begin(self, device_type, dtype, enabled, cache_enabled)

    autocast.__init__ = begun

    def begun_on_cuda(
        self: Any,  # noqa: ANN401
        enabled: bool = True,  # noqa: FBT001, FBT002
        dtype: Any = None,  # noqa: ANN401
        cache_enabled: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        begun(self, "cuda", dtype, enabled, cache_enabled)

    torch.cuda.amp.autocast_mode.autocast.__init__ = begun_on_cuda

    def of_type(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(device_type: str = "cuda", *args: Any) -> Any:  # noqa: ANN401
            return function("cpu" if device_type == "cuda" else device_type, *args)

        return called

    is_enabled = torch.is_autocast_enabled
    get_dtype, set_dtype, enable = torch.get_autocast_dtype, torch.set_autocast_dtype, torch.set_autocast_enabled

    def dtype_of(device_type: str) -> Any:  # noqa: ANN401
        if device_type != "cuda":
            return get_dtype(device_type)
        return get_dtype("cpu") if is_enabled("cpu") else dtypes["cuda"]

    def choose_dtype(device_type: str, dtype: Any) -> None:  # noqa: ANN401
        if device_type == "cuda":
            dtypes["cuda"] = dtype
        else:
            set_dtype(device_type, dtype)

    def cuda_dtype() -> Any:  # noqa: ANN401
        return dtype_of("cuda")

    def choose_cuda_dtype(dtype: Any) -> None:  # noqa: ANN401
        choose_dtype("cuda", dtype)

    def switch(*args: Any) -> None:  # noqa: ANN401
        enable(*(("cpu", *args[1:]) if args[0] == "cuda" else args if len(args) > 1 else ("cpu", *args)))

    put((torch,), "is_autocast_enabled", of_type(is_enabled))
    put((torch,), "get_autocast_dtype", dtype_of)
    put((torch,), "set_autocast_dtype", choose_dtype)
    put((torch,), "set_autocast_enabled", switch)
    put((torch,), "get_autocast_gpu_dtype", cuda_dtype)
    put((torch,), "set_autocast_gpu_dtype", choose_cuda_dtype)


def replace_loading(torch: Any) -> None:  # noqa: ANN401
    """Makes ``torch.load`` put a storage on the CPU if it was saved on, or is mapped to, a CUDA device."""
    serialization = torch.serialization

    def restored(storage: Any, location: str) -> Any:  # noqa: ANN401
        if not location.startswith("cuda"):
            return None
        serialization.validate_cuda_device(location)
        return storage

    # 19 comes before torch's own entry for CUDA, which has priority 20.
    serialization.register_package(19, lambda storage: None, restored)  # noqa: ARG005  # pyright: ignore[reportUnknownLambdaType]


# ---- Streams and events of torch.cuda on the CPU, where each operation is finished when its call returns ----


_numbers = itertools.count(1)
_current = threading.local()


class Stream:
    """A stream whose work is always complete. The default stream is number 0."""

    device_type = 1  # the number of CUDA among torch's device types

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:  # noqa: ANN401
        """Accepts the arguments of ``torch.cuda.Stream`` and of ``torch.Stream``."""
        self.device_index = index_of(device)
        self.priority = priority
        stream_handle = kwargs.get("stream_id", kwargs.get("stream_ptr"))
        self.stream_id: int = next(_numbers) if stream_handle is None else int(stream_handle)

    @property
    def cuda_stream(self) -> int:
        """The stream's number, in place of a driver's handle."""
        return self.stream_id

    @property
    def native_handle(self) -> int:
        """The stream's number, like :attr:`cuda_stream`."""
        return self.stream_id

    @property
    def device(self) -> Any:  # noqa: ANN401  # torch.device
        """``torch.device("cuda", 0)``."""
        import torch  # pyright: ignore[reportMissingImports]  # noqa: PLC0415  # the program has loaded it

        return torch.device("cuda", 0)

    def query(self) -> bool:
        """Returns True: all earlier work has finished."""
        return True

    def synchronize(self) -> None:
        """Does nothing: all earlier work has finished."""

    def wait_stream(self, stream: object) -> None:
        """Does nothing: all earlier work has finished."""

    def wait_event(self, event: object) -> None:
        """Does nothing: all earlier work has finished."""

    def record_event(self, event: Event | None = None) -> Event:
        """Records ``event``, or a new event, and returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def is_capturing(self) -> bool:
        """Returns False: graphs cannot be captured."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.stream_id:#x}>"

    def __enter__(self) -> Self:
        self._previous = current_stream()
        set_stream(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        set_stream(self._previous)


_default = Stream(stream_id=0)


def default_stream(device: Any = None) -> Stream:  # noqa: ANN401
    """Returns stream 0."""
    index_of(device)
    return _default


def current_stream(device: Any = None) -> Stream:  # noqa: ANN401
    """Returns this thread's current stream."""
    index_of(device)
    return getattr(_current, "stream", _default)


def set_stream(stream: Stream | None) -> None:
    """Makes ``stream`` this thread's current stream; None changes nothing."""
    if stream is not None:
        _current.stream = stream


class StreamContext:
    """``torch.cuda.stream(s)``: makes ``s`` this thread's current stream within a block; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        """Keeps the stream, which the block makes current."""
        self.stream = stream

    def __enter__(self) -> None:
        self._previous = current_stream()
        set_stream(self.stream)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        set_stream(self._previous)


class Event:
    """An event of a stream: holds the time at which it was recorded."""

    cuda_event = 0
    event_id = 0

    def __init__(
        self,
        *args: Any,  # noqa: ANN401  # torch.Event's device
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        """Accepts the arguments of ``torch.cuda.Event`` and of ``torch.Event``."""
        del blocking, interprocess, external
        self._timed = bool(args[0]) if args and isinstance(args[0], bool | int) else enable_timing
        self._at_s: float | None = None

    @property
    def device(self) -> Any:  # noqa: ANN401
        """``torch.device("cuda", 0)``."""
        return _default.device

    def record(self, stream: object = None) -> None:
        """Records the current time."""
        del stream
        self._at_s = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
        """Returns the milliseconds from this event to another, by the CPU's clock.

        Raises:
            ValueError: one of the events was made without ``enable_timing=True``, or was not recorded.
        """
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at_s is None or end_event._at_s is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at_s - self._at_s) * 1e3

    def query(self) -> bool:
        """Returns True: all earlier work has finished."""
        return True

    def wait(self, stream: object = None) -> None:
        """Does nothing: all earlier work has finished."""

    def synchronize(self) -> None:
        """Does nothing: all earlier work has finished."""

    def __repr__(self) -> str:
        return "<torch.cuda.Event>"


def replace_streams(torch: Any) -> None:  # noqa: ANN401
    """Replaces the stream and event classes of ``torch.cuda``, and the classes of ``torch`` for any device."""
    cuda = torch.cuda

    def external(data_ptr: int, device: Any = None) -> Stream:  # noqa: ANN401
        return Stream(device, stream_id=data_ptr)

    for module in (cuda, cuda.streams):
        module.Stream, module.ExternalStream, module.Event = Stream, Stream, Event
    torch.Stream, torch.Event = Stream, Event
    put((cuda, torch.accelerator), "current_stream", current_stream)
    put((cuda, torch.accelerator), "set_stream", set_stream)
    put((cuda,), "default_stream", default_stream)
    put((cuda,), "get_stream_from_external", external)
    cuda.stream = cuda.StreamContext = StreamContext
