"""torch's work between the launches of a plan: captured on NVIDIA's GPUs, refused elsewhere.

While a plan is recorded, each torch operation on GPU memory is captured into a graph instead of being run. The graph
becomes a node of the plan, so each replay runs it between the same launches, on the same memory. New memory of the
operations is allocated in a pool: the plan's own, which the plan keeps as ``torch.cuda.graph`` does, or one that
several plans share.
"""

# ruff: noqa: ANN401  # torch is optional: its objects have no types here
from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, NoReturn, cast

from silo.errors import ArgumentError
from silo.launch.plan_streams import StreamMark, stream_key, watched_events

__all__ = ["CudaCapture", "Pool", "TorchNode", "TorchWork", "offsets_of_generators", "pool_handle", "torch_work"]

Pool = tuple[int, int]
"""torch's handle of a pool of memory."""

# Operations that touch no memory: they allocate memory without writing to it, or return another view of existing
# memory.
_QUIET: Final = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "alias")
)


# The beginning of the names of operations that return numbers besides tensors. The numbers depend on shapes alone, and
# without dropout none is random.
_ATTENTION: Final = "aten::_scaled_dot_product_"
_RANDOM: Final = "it draws random numbers, which would be the same in each replay"


class TorchNode(NamedTuple):
    """One captured operation. ``at`` is the number of launches before it, ``graph`` the driver's graph."""

    at: int
    name: str
    graph: int
    device: int
    stream: int


# The streams on which captures with a shared pool run, one for each device and each stream that the program uses
# (captures do not run on the program's own streams). torch reuses memory freed on a stream only for work on the same
# stream, since work on another stream may run at the same time. All recordings with a shared pool use these streams, so
# that a recording can reuse the memory of another.
_streams_of_pools: dict[tuple[int, int], Any] = {}


class CudaCapture:
    """Captures torch operations on NVIDIA's GPUs, with one memory pool for all of them."""

    device_type = "cuda"

    def __init__(self, torch: Any, pool: Pool | None) -> None:
        self._torch = torch
        self._pool = torch.cuda.graph_pool_handle() if pool is None else pool
        self._streams: dict[tuple[int, int], Any] = {} if pool is None else _streams_of_pools

    @staticmethod
    def missing(torch: Any) -> str:
        """Returns why this torch cannot capture; "" if it can."""
        if torch.version.cuda is None or not torch.cuda.is_available():
            return "this torch has no CUDA"
        if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
            return f"torch {torch.__version__} does not hand out the graphs that it captures (2.8 and newer do)"
        return ""

    @staticmethod
    def offsets(torch: Any) -> tuple[int, ...]:
        """Returns how many random numbers torch's default generator of each GPU has produced so far."""
        if not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return ()
        return tuple(
            int(default_generator.get_offset())
            for default_generator in torch.cuda.default_generators
            if hasattr(default_generator, "get_offset")
        )

    def current(self, device: int) -> int:
        """Returns the driver's handle of torch's current stream."""
        return int(self._torch.cuda.current_stream(device).cuda_stream)

    def take(self, call: Callable[[], Any], device: int, stream: int) -> tuple[Any, Any, int]:
        """Captures ``call`` on a stream.

        Returns its results (not computed yet), the object that owns the graph, and the graph.
        """
        torch = self._torch
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.device(device):
            own = self._streams.get((device, stream))
            if own is None:
                own = self._streams[device, stream] = torch.cuda.Stream(device)
            with torch.cuda.stream(own):
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    result = call()
                except BaseException:
                    # capture_end fails after a call that broke the capture; the call's own error is the useful one
                    with suppress(RuntimeError):
                        graph.capture_end()
                    raise
                graph.capture_end()
        return result, graph, graph.raw_cuda_graph()

    def allocate(self, call: Callable[[], Any], device: int, stream: int) -> tuple[Any, Any]:
        """Calls ``call`` so that its new memory is in the pool.

        Returns its result, and an object that keeps the pool alive.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
            result, allocated, _ = self.take(call, device, stream)
        return result, allocated

    def run(self, plan: Any, device: int) -> None:
        """Runs a captured graph on torch's current stream. ``plan`` owns the graph."""
        with self._torch.cuda.device(device):
            plan.replay()


# The class that captures; tests without a GPU replace it.
_capture: type[CudaCapture] = CudaCapture


def offsets_of_generators() -> tuple[int, ...]:
    """Returns how many random numbers torch's generators of GPUs have produced so far; empty without torch or a GPU."""
    torch: Any = sys.modules.get("torch")
    return _capture.offsets(torch) if torch is not None and hasattr(torch, "cuda") else ()


def _argument(function: Any, args: Sequence[Any], kwargs: dict[str, Any], name: str) -> Any:
    for index, argument in enumerate(function._schema.arguments):  # noqa: SLF001  # as above
        if argument.name == name:
            return args[index] if index < len(args) else kwargs.get(name, argument.default_value)
    return None


def pool_handle(pool: Any) -> Pool | None:
    """Returns the handle of the memory pool that a program passes as ``pool=``; None for None.

    Raises:
        ArgumentError: the object is not a pool of torch.

    >>> pool_handle((0, 3))
    (0, 3)
    """
    if pool is None:
        return None
    handle = pool.pool() if callable(getattr(pool, "pool", None)) else getattr(pool, "id", pool)
    if isinstance(handle, tuple) and [type(part) for part in cast("tuple[object, ...]", handle)] == [int, int]:
        return cast("Pool", handle)
    raise ArgumentError(
        "pool= takes torch.cuda.graph_pool_handle(), a torch.cuda.CUDAGraph or a torch.cuda.MemPool, not"
        f" {type(pool).__name__}"
    )


class TorchWork:
    """torch's work during one recording of a plan.

    Attributes:
        nodes: captured operations in order.
        memory: for each tensor that the operations use, its first address, the address after its last byte, and an
            operation.
        outside: addresses of the tensors that existed before the recording, in order of use.
        marks: events that torch's streams recorded and waited for.
        keeps: objects that must live as long as the nodes.
        pool: a memory pool that other plans may use too. All new memory is in it; the plan keeps the pool alive, not
            the tensors.
        temporaries: size in bytes of each piece of new memory in the pool, by its address.
    """

    def __init__(self, plan: str, launches: Sequence[Any], *, run: bool, pool: Pool | None = None) -> None:
        self.pool = pool
        self._plan = plan
        self._launches = launches
        self._run = run
        self._refused: ArgumentError | None = None
        self._capture: CudaCapture | None = None
        self._fresh: set[int] = set()  # addresses of memory that this recording allocated
        self.temporaries: dict[int, int] = {}
        self.nodes: list[TorchNode] = []
        self.memory: list[tuple[int, int, str]] = []
        self.outside: list[int] = []
        self._used: dict[str, tuple[int, int, str]] = {}
        # number and event by id(event); keeping the event keeps its id unique
        self._events: dict[int, tuple[int, Any]] = {}
        self._capturing = False
        # the name of the first operation that a library other than torch defines; "" without such an operation
        self._foreign = ""
        self.marks: list[StreamMark] = []
        self.keeps: list[Any] = []

    def check(self) -> None:
        """Raises the error of a refused operation once more, because the program may have caught it."""
        if self._refused is not None:
            raise self._refused

    def tensors_outside(self, memory_ranges: Sequence[tuple[int, int]]) -> dict[str, str]:
        """Describes the tensors that captured operations use and did not make, each with one of the operations.

        Tensors that overlap ``memory_ranges``, which are ranges of addresses, are left out.
        """
        return {
            text: use
            for text, (low, high, use) in self._used.items()
            if not any(low < last and first < high for first, last in memory_ranges)
        }

    def is_shared(self, address: int) -> bool:
        """Returns whether an address is in new memory that belongs to a shared pool."""
        return self.pool is not None and any(low <= address < low + size for low, size in self.temporaries.items())

    def note(self, event: Any, stream: Any, waits: bool) -> bool:  # noqa: FBT001  # of silo.launch.plan_streams
        """Notes that a stream is to record an event or, with ``waits``, to wait for it.

        Returns whether the caller must then really record the event or wait for it. It must while an operation is being
        captured (the graph then has the event), and if operations are run besides being captured.
        """
        if self._capturing:
            return True
        number, _ = self._events.setdefault(id(event), (len(self._events), event))
        handle = getattr(stream, "cuda_stream", None)
        if handle is None:
            self._refused = ArgumentError(
                f"{self._plan}: an event is used with a {type(stream).__name__} that does not give its driver's handle,"
                " so that a plan cannot keep the order: use torch.cuda.Stream"
            )
            raise self._refused
        stream_place = stream_key(int(stream.device_index), int(handle))
        self.marks.append(StreamMark(len(self._launches) + len(self.nodes), number, stream_place, waits))
        return self._run

    def compare(self, again: TorchWork) -> None:
        """Raises ArgumentError if torch did other work in the second recording, ``again``."""
        mine, other = ([(node.at, node.name) for node in work.nodes] for work in (self, again))
        if mine != other or self.outside != again.outside:
            raise ArgumentError(
                f"{self._plan}: torch did other work the second time that the function ran, or on other tensors: it"
                " depends on more than the arguments"
            )

    def operation(self, torch: Any, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Handles an operation that torch is about to run, and returns its result.

        The operation is captured as a node, or only run if it touches no memory.
        """
        name = function._schema.name  # noqa: SLF001  # the one name that all versions have
        if function.is_view or name in _QUIET:
            if "empty" not in name:
                return function(*args, **kwargs)
            result, pooled = self._allocate(torch, name, function, args, kwargs)
            for tensor in _tensors(torch, result):
                self._new(*_address_range(tensor), pooled=pooled)
            return result
        self.check()
        shown = name.replace("aten::", "torch.")
        inputs = _tensors(torch, (args, kwargs))
        if name == "aten::record_stream":  # torch could reuse this memory during a replay, so the plan keeps it
            self.keeps += inputs
            return None
        device = self._device(torch, shown, function, inputs, args, kwargs)
        capture = cast("CudaCapture", self._capture)
        stream = capture.current(device)
        count = len(self._launches)
        self._capturing = True
        try:
            result, owner, graph = capture.take(lambda: function(*args, **kwargs), device, stream)
        except RuntimeError as error:
            self._refuse(shown, f"it could not be captured: {str(error).partition(chr(10))[0]}", error)
        finally:
            self._capturing = False
        if len(self._launches) != count:
            self._refuse(shown, "it launches kernels itself, and its work between them is not known")
        self._note(shown, inputs, _tensors(torch, result))
        self.keeps.append(owner)
        self.nodes.append(TorchNode(count, shown, graph, device, stream))
        if self._run:
            before = capture.offsets(torch)
            capture.run(owner, device)
            if capture.offsets(torch) != before:
                self._refuse(shown, _RANDOM)
        return result

    def refuse_random(self) -> None:
        """Raises ArgumentError if the function ran an operation that a library other than torch defines.

        The caller has found that torch's generators advanced while the function ran. torch's own random operations are
        known, so the foreign operation may have drawn the numbers, and each replay would repeat them.
        """
        if self._foreign:
            self._refuse(
                self._foreign,
                "torch's generator moved on when the function ran, and the random numbers of a captured operation would"
                " be the same in each replay",
            )

    def _device(
        self,
        torch: Any,
        shown: str,
        function: Any,
        inputs: Sequence[Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> int:
        """Returns the index of the GPU that an operation runs on.

        Raises ArgumentError if the operation cannot be a node.
        """
        device_argument = kwargs.get("device")
        devices: set[Any] = {input_.device for input_ in inputs} | (
            {torch.device(device_argument)} if device_argument is not None else set()
        )
        kinds: set[str] = {device.type for device in devices} or {"cpu"}
        if kinds != {_capture.device_type}:
            self._refuse(shown, "" if kinds == {"cpu"} else f"it uses memory of {' and '.join(sorted(kinds))}")
        self._begin(torch, shown)
        if len(devices) > 1:
            self._refuse(shown, "it uses memory of several GPUs")
        attention = function._schema.name.startswith(_ATTENTION)  # noqa: SLF001  # as above
        if not attention and not all("Tensor" in str(return_type.type) for return_type in function._schema.returns):  # noqa: SLF001
            self._refuse(shown, "it gives the program a value that the GPU has computed")
        if torch.Tag.dynamic_output_shape in function.tags:
            self._refuse(shown, "it makes tensors of sizes that the GPU has computed")
        if torch.Tag.nondeterministic_seeded in function.tags and not (
            attention and _argument(function, args, kwargs, "dropout_p") == 0
        ):
            self._refuse(shown, _RANDOM)
        if not shown.startswith("torch.") and not shown.startswith("prims::"):
            self._foreign = self._foreign or shown
        if any(input_.layout is not torch.strided for input_ in inputs):
            self._refuse(shown, "it uses a tensor that is not one piece of memory")
        (device,) = devices
        return int(device.index or 0)

    def _begin(self, torch: Any, shown: str) -> CudaCapture:
        if self._capture is None:
            if missing := _capture.missing(torch):
                self._refuse(shown, missing)
            self._capture = _capture(torch, self.pool)
        return self._capture

    def _allocate(
        self, torch: Any, name: str, function: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Any, bool]:
        """Allocates new memory, in the shared pool if there is one and the memory is on a GPU.

        Returns the operation's result, and whether its memory is in the shared pool.
        """

        def call() -> Any:
            return function(*args, **kwargs)

        device_argument = kwargs.get("device")
        devices = (
            {torch.device(device_argument)}
            if device_argument is not None
            else {tensor.device for tensor in _tensors(torch, args)}
        )
        if self.pool is None or [device.type for device in devices] != [_capture.device_type]:
            return call(), False
        index = int(devices.pop().index or 0)
        capture = self._begin(torch, name.replace("aten::", "torch."))
        self._capturing = True
        try:
            result, owner = capture.allocate(call, index, capture.current(index))
        finally:
            self._capturing = False
        self.keeps.append(owner)
        return result, True

    def _new(self, low: int, high: int, *, pooled: bool) -> None:
        self._fresh.add(low)
        if pooled:
            self.temporaries[low] = max(high - low, self.temporaries.get(low, 0))

    def _note(self, shown: str, inputs: Iterable[Any], results: Iterable[Any]) -> None:
        places = {id(tensor): _address_range(tensor) for tensor in inputs}
        for tensor in inputs:
            low, high = places[id(tensor)]
            self.memory.append((low, high, shown))
            if low in self.temporaries or low == high:
                continue
            self.keeps.append(tensor)
            text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)} at {low:#x}"
            self._used.setdefault(text, (low, high, shown))
            if low not in self._fresh:
                self.outside.append(low)
        known_addresses = {low for low, _ in places.values()}
        for tensor in results:
            low, high = _address_range(tensor)
            self.memory.append((low, high, shown))
            if low not in known_addresses:
                self._new(low, high, pooled=True)

    def _refuse(self, shown: str, reason: str, cause: BaseException | None = None) -> NoReturn:
        self._refused = ArgumentError(
            f"{self._plan}: {shown} runs between launches, which a plan does not record{reason and f' ({reason})'}:"
            " make it a kernel, or a plan for the launches before and one for those after"
        )
        raise self._refused from cause


def _address_range(tensor: Any) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    low = int(storage.data_ptr())
    return low, low + int(storage.nbytes())


def _tensors(torch: Any, values: Any) -> list[Any]:
    """Returns the tensors within nested lists, tuples and dicts."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = tuple(cast("dict[str, Any]", values).values())
    if not isinstance(values, list | tuple):
        return []
    return [tensor for value in cast("Sequence[Any]", values) for tensor in _tensors(torch, value)]


@contextmanager
def torch_work(
    plan: str, launches: Sequence[Any], *, run: bool = False, pool: Pool | None = None
) -> Generator[TorchWork]:
    """Captures torch's operations until the block ends; yields the object that collects them.

    ``launches`` is the growing list of the plan's launches; if torch is not loaded, nothing is collected.

    Operations on a GPU are captured, and with ``run`` also run. Operations that only make views, or allocate memory
    without writing to it, are not captured. New memory is allocated in ``pool``, if one is passed.

    Raises:
        ArgumentError: an operation cannot be captured. It has not run.
    """
    work = TorchWork(plan, launches, run=run, pool=pool)
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "utils"):
        yield work
        return
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return work.operation(torch, function, args, kwargs or {})

    try:
        with watched_events(torch, work.note), Watch():
            yield work
    except Exception:
        work.check()  # torch may have turned the error of a refused operation into one of its own
        raise
    work.check()
