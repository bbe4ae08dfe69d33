from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias, final

MAX_PARAMETERS: int
MAX_OPTIONS: int
ABSENT: object

@final
class CpuModule:
    def __new__(cls, data: bytes | None = None, directory: str | None = None, *, address: int = 0) -> CpuModule: ...

@final
class GpuModule:
    def __new__(cls, kind: str, index: int, data: bytes | None = None, *, module: int = 0) -> GpuModule: ...
    @property
    def kind(self) -> str: ...
    @property
    def index(self) -> int: ...

class GpuBuffer:
    def __new__(cls, shape: Sequence[int], dtype: str, kind: str, index: int) -> Self: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def device(self) -> tuple[str, int]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def copy_from(self, data: object, stream: int = 0, at: int = -1) -> None: ...
    def copy_to(self, out: object, stream: int = 0, at: int = -1) -> None: ...
    def fill(self, byte: int, stream: int = 0) -> None: ...
    def __dlpack__(self, **options: object) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class PinnedMemory:
    def __new__(cls, nbytes: int, kind: str, index: int) -> PinnedMemory: ...
    @property
    def nbytes(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class GpuStream:
    def __new__(cls, kind: str, index: int) -> GpuStream: ...
    @property
    def handle(self) -> int: ...
    def synchronize(self) -> None: ...

@final
class GpuEvent:
    def __new__(cls, kind: str, index: int) -> GpuEvent: ...
    def record(self, stream: int = 0) -> None: ...
    def query(self) -> bool: ...
    def synchronize(self) -> None: ...
    def elapsed_ns(self, begin: GpuEvent) -> int: ...

def gpu_open(kind: str, library: str | None = None) -> int: ...
def gpu_attributes(kind: str, index: int) -> dict[str, int | str]: ...
def gpu_capturing(kind: str, index: int, stream: int) -> bool: ...
def gpu_locate(kind: str, address: int) -> tuple[int, int]: ...
def gpu_current(kind: str) -> int | None: ...
def gpu_within(kind: str, index: int, function: Callable[..., object], arguments: tuple[object, ...]) -> object: ...
def gpu_synchronize(kind: str, index: int) -> None: ...
def gpu_free_memory(kind: str, index: int) -> int: ...

@final
class LibraryCode:
    def __new__(
        cls,
        call: Callable[[tuple[object, ...], tuple[int, int, int], object], object],
        kind: str,
        index: int,
        memory: tuple[int, ...],  # DLPack device types
    ) -> LibraryCode: ...

@final
class LoadedKernel:
    def __new__(
        cls,
        module: CpuModule | GpuModule | LibraryCode,
        entry: str,
        name: str = ...,
        *,
        block: tuple[int, int, int] = (1, 1, 1),
        cluster: tuple[int, int, int] = (1, 1, 1),
        shared_bytes: int = 0,
        scratch_bytes: int = 0,
        scratch_align: int = 1,
        profile_bytes: int = 0,
        profile_align: int = 1,
        chunk: int = 0,
        threads: int = 0,
        work: int = 0,
        together: int = 1024,
        cooperative: bool = False,
        pdl: bool = False,
        counts_blocks: bool = False,
    ) -> LoadedKernel: ...
    @property
    def entry(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def driver(self) -> str: ...
    @property
    def parameters(self) -> tuple[tuple[int, int], ...] | None: ...

@final
class Binding:
    def __new__(
        cls,
        loaded: LoadedKernel,
        layout: tuple[tuple[Any, ...], ...],  # (slot, ABI type, written), and what is left of a descriptor's part
        config: dict[str, Any],
        grid: tuple[bytes, ...] | None = None,
        *,
        tag: object = None,
        effects: dict[str, str] = ...,  # what the kernel does through each pointer; hooks are told
    ) -> Binding: ...
    @property
    def loaded(self) -> LoadedKernel: ...
    @property
    def tag(self) -> Any: ...  # noqa: ANN401  # whatever was given
    @property
    def config(self) -> dict[str, Any]: ...

RawExtents: TypeAlias = tuple[tuple[int, ...], tuple[int, ...] | None] | int | None
RawFacts: TypeAlias = tuple[tuple[int, int, int, int, int, RawExtents], ...]
RawCall: TypeAlias = tuple[RawFacts, tuple[object, ...], dict[str, object], tuple[int, int], object]
RawParameter: TypeAlias = tuple[str, int, int, int, int, tuple[object, ...]]
RawChoiceArgument: TypeAlias = tuple[int, int, int, int, tuple[int, ...] | None, RawExtents, object]
RawChoiceCall: TypeAlias = tuple[
    tuple[RawChoiceArgument, ...], Mapping[str, object], tuple[int, int, int] | None, str
]
RawPlace: TypeAlias = tuple[str, Mapping[str, int], tuple[tuple[str, str, bool, str], ...]]

OnMiss: TypeAlias = Callable[[RawFacts, tuple[object, ...], dict[str, object], tuple[int, int], object], Binding]

@final
class Bound:
    def __call__(self, *args: object, **kwargs: object) -> None: ...

@final
class Launcher:
    def __new__(
        cls,
        name: str,
        parameters: tuple[RawParameter, ...],
        options: tuple[str, ...],
        on_miss: OnMiss | None,
        grid: object = None,
        *,
        release_gil: bool = True,
        fixed: Binding | None = None,
        extents: tuple[int, ...] = (),
        grid_held: bool = False,
        on_unread: Callable[[tuple[object, ...], dict[str, object], object], bool] | None = None,
        triton: bool = False,
    ) -> Launcher: ...
    @property
    def name(self) -> str: ...
    @property
    def misses(self) -> int: ...
    @property
    def bindings(self) -> list[Any]: ...  # a Binding each; of a Triton program's kernel also reasons
    def __call__(self, *args: object, **kwargs: object) -> None: ...
    def __getitem__(self, grid: object) -> Bound: ...
    def resolve(self, *args: object, **kwargs: object) -> Binding: ...
    def inspect(self, *args: object, **kwargs: object) -> RawCall: ...
    def forget(self) -> None: ...
    def watch(self, places: tuple[object, ...], on_change: Callable[[], None]) -> None: ...

@final
class OperatorCall:
    def __new__(
        cls,
        count: int,
        launch: Callable[..., object],
        otherwise: Callable[[tuple[Any, ...], dict[str, Any]], object],
        questions: tuple[Callable[[], object], ...],
        observed: Callable[[], object],
        grad_enabled: Callable[[], bool],
        count_writes: Callable[[list[Any]], object],
        count_some: Callable[[list[Any]], object],
        tensors: tuple[int, ...],
        watched: tuple[int, ...],
        written: tuple[int, ...],
        empty_like: Callable[[Any], Any] | None = None,
        like: int = -1,
        places: tuple[int, ...] = (),
    ) -> OperatorCall: ...
    def __call__(self, *args: object, **kwargs: object) -> object: ...
    def learn(self, args: tuple[object, ...], /) -> None: ...
    def asks(self, args: tuple[object, ...], /) -> bool: ...

@final
class TritonSituation:
    def __new__(
        cls,
        watched: tuple[tuple[Any, ...], ...],  # (dictionary, name, value), without a value where there is none
        sizes: tuple[list[Any] | dict[Any, Any], ...],
        get_device: Callable[[], int] | None,
        get_stream: Callable[[int], int] | None,
        memory_type: int,
        epoch: int,
        blocked: bool,
        torch_stream: bool,
        torch_device: bool,
    ) -> TritonSituation: ...
    @property
    def passed(self) -> int: ...

@final
class TritonKernel:
    def __new__(cls, function: object, launcher: Launcher | None) -> TritonKernel: ...
    @property
    def launches(self) -> int: ...
    @property
    def own_launches(self) -> int: ...
    @property
    def launcher(self) -> Launcher | None: ...
    def learned(
        self,
        hooks: list[Any],
        devices: dict[Any, Any],
        caches: dict[Any, Any],
        globals: dict[Any, Any],  # noqa: A002
        changed: Callable[[], object] = ...,
        /,
    ) -> None: ...

def triton_methods(kind: type, first_use: Callable[[Any], object], /) -> tuple[Any, Any]: ...
def triton_tuners(
    autotuner: type,
    autotuner_run: Callable[..., object],
    heuristics: type,
    heuristics_run: Callable[..., object],
    members: tuple[str, ...],
    decided: type[dict[Any, Any]],
    /,
) -> tuple[Any, Any, Any, Any]: ...
def triton_serve(run: Callable[..., object], notice: Callable[[], TritonSituation], /) -> None: ...
def triton_situation(situation: TritonSituation | None, /) -> None: ...

class HostBuffer:
    def __new__(cls, shape: Sequence[int], dtype: str) -> Self: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def raw(self) -> memoryview: ...
    def data_ptr(self) -> int: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def cpu_threads(count: int = ..., /) -> int: ...
def cpu_spin(microseconds: int, /) -> None: ...
def cpu_use_pool(kind: str, /) -> None: ...
def cpu_state() -> dict[str, int | str | None]: ...
def set_type_hook(hook: Callable[[type], object] | None, /) -> None: ...
def torch_probe_keys(pairs: tuple[tuple[object, int], ...], other_values: int, /) -> int: ...
def torch_probe(tensors: tuple[object, ...]) -> tuple[int, int, int]: ...
def torch_open_stream(library: str) -> bool: ...
def stream_handle(kernel: str, stream: object, array: object, type: int, index: int) -> int: ...  # noqa: A002
def set_array_reader(
    type: type,  # noqa: A002
    reader: Callable[[Any], tuple[int, int, str, bool] | None],
) -> None: ...
def set_stream_source(type: type, source: Callable[[int], int]) -> None: ...  # noqa: A002
def new_generation() -> None: ...
def set_driver_opener(opener: Callable[[], None]) -> None: ...
def set_scratch_allocator(
    allocate: Callable[[int, int, str, int, int], tuple[object, int]] | None,
) -> None: ...
def set_hooks(
    enter: Callable[
        [
            str,
            dict[str, Any],
            dict[str, Any],
            tuple[int, int, int],
            int,
            tuple[str, int],
            dict[str, str] | None,
            object,
        ],
        object,
    ]
    | None,
    exit: Callable[[Any], None] | None,  # noqa: A002
) -> None: ...
def torch_open(library: str, tensor: object, handle: object, rocm: bool, types: tuple[type, ...], /) -> int: ...
def torch_close() -> None: ...
def adapt_descriptor(kind: type, /) -> None: ...
def adapter(kind: type, /) -> str: ...
def read(array: object, /) -> tuple[int, int, int, bool, tuple[int, int], tuple[int, ...], tuple[int, ...]]: ...
def set_codec(decompress: Callable[[bytes, int], bytes] | None, /) -> None: ...
def rank_variants(
    bundle: OpenBundle, kernel: int, call: RawChoiceCall, device: RawPlace, most: int, /
) -> tuple[int, ...]: ...
def decide_variants(
    bundle: OpenBundle, kernel: int, call: RawChoiceCall, device: RawPlace, /
) -> tuple[tuple[bool, str, str], ...]: ...
def runs_on(built: str, device: str, blob_kind: str, /) -> tuple[bool, str]: ...
def bundle_check(
    data: bytes | memoryview,
    file_memory: int,
    blob_kinds: tuple[str, ...],
    launch_options: tuple[str, ...],
    checked_kinds: tuple[str, ...],
    target_kinds: tuple[str, ...],
    /,
) -> tuple[int, str, int, str] | None: ...
def bundle_digests(
    data: bytes | memoryview,
    file_memory: int,
    blob_kinds: tuple[str, ...],
    launch_options: tuple[str, ...],
    checked_kinds: tuple[str, ...],
    target_kinds: tuple[str, ...],
    /,
) -> dict[str, tuple[str, ...]]: ...
def evaluate(
    program: bytes,
    values: tuple[int, ...],
    arrays: Sequence[tuple[Sequence[int], Sequence[int], int] | None] | None = None,
    /,
) -> tuple[int, int]: ...
def tabulate(program: bytes, shape: tuple[int, ...], out: object, /) -> tuple[int, int]: ...
def bucket(value: int, /) -> int: ...
def generate(
    fill: int,
    code: int,
    bits: int,
    seed: int,
    first: int,
    count: int,
    a: float,
    b: float,
    low: int,
    span: int,
    out: object,
    /,
) -> None: ...
def narrow(value: float, name: str, /) -> int: ...
def dtype_named(name: str, /) -> tuple[int, int, str, str | None] | None: ...
def xla_keep(
    digest: str,
    device: int,
    binding: Binding,
    parameters: tuple[tuple[int, int, int, object], ...],
    operands: tuple[tuple[str, int, int, int, tuple[int, ...], bool, int], ...],
    results: tuple[tuple[str, int, int, int, tuple[int, ...], bool, int], ...],
    grid: tuple[int, int, int],
    /,
) -> None: ...
def xla_connect(resolver: Callable[[str, str, int], None], minor: int, /) -> None: ...
def xla_handlers(platform: str, /) -> dict[str, object]: ...
