"""Work of torch between the launches of a plan: captured on NVIDIA's GPUs, refused elsewhere.

While a plan is recorded, each operation of torch on a GPU's memory is captured into a graph instead of being run. The
graph becomes a node of the plan, which runs it between the same launches in each replay, on the same memory. Its
allocations lie in a pool that the plan keeps, as with ``torch.cuda.graph``; or in one that several plans share.
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

# New memory that nothing is written to, and other names of the same memory.
_QUIET: Final = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "alias")
)


# Its numbers that are no tensors follow from shapes, and without dropout it draws nothing.
_ATTENTION: Final = "aten::_scaled_dot_product_"
_RANDOM: Final = "it draws random numbers, which would be the same in each replay"


class TorchNode(NamedTuple):
    """One captured operation: after so many launches, its name, the driver's graph, its device and stream."""

    at: int
    name: str
    graph: int
    device: int
    stream: int


# The stream of captures for each device and stream of the program, which is not captured itself: torch gives memory
# that was freed on a stream to work on the same one alone, since work on another one may run at the same time. All
# recordings that are given a pool have these streams, so that one may use the memory of another.
_streams_of_pools: dict[tuple[int, int], Any] = {}


class CudaCapture:
    """Captures work of torch on NVIDIA's GPUs, with one pool of memory for all of it."""

    device_type = "cuda"

    def __init__(self, torch: Any, pool: Pool | None) -> None:
        self._torch = torch
        self._pool = torch.cuda.graph_pool_handle() if pool is None else pool
        self._streams: dict[tuple[int, int], Any] = {} if pool is None else _streams_of_pools

    @staticmethod
    def missing(torch: Any) -> str:
        """Why nothing can be captured; empty: it can."""
        if torch.version.cuda is None or not torch.cuda.is_available():
            return "this torch has no CUDA"
        if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
            return f"torch {torch.__version__} does not hand out the graphs that it captures (2.8 and newer do)"
        return ""

    @staticmethod
    def offsets(torch: Any) -> tuple[int, ...]:
        """How many random numbers torch's own generators of the GPUs have given so far."""
        if not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return ()
        return tuple(int(one.get_offset()) for one in torch.cuda.default_generators if hasattr(one, "get_offset"))

    def current(self, device: int) -> int:
        """The driver's handle of the stream that torch uses now."""
        return int(self._torch.cuda.current_stream(device).cuda_stream)

    def take(self, call: Callable[[], Any], device: int, stream: int) -> tuple[Any, Any, int]:
        """Captures ``call`` on a stream. Returns its results (not computed yet), the graph's owner, and the graph."""
        torch = self._torch
        made = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.device(device):
            own = self._streams.get((device, stream))
            if own is None:
                own = self._streams[device, stream] = torch.cuda.Stream(device)
            with torch.cuda.stream(own):
                made.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    result = call()
                except BaseException:
                    with suppress(RuntimeError):  # of a capture that the call broke: its own error says why
                        made.capture_end()
                    raise
                made.capture_end()
        return result, made, made.raw_cuda_graph()

    def allocate(self, call: Callable[[], Any], device: int, stream: int) -> tuple[Any, Any]:
        """The new memory that ``call`` gives, in the pool, and an object that keeps the pool."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
            result, made, _ = self.take(call, device, stream)
        return result, made

    def run(self, made: Any, device: int) -> None:
        """Run a captured graph on torch's current stream."""
        with self._torch.cuda.device(device):
            made.replay()


# Makes a capture; tests without a GPU put their own here.
_capture: type[CudaCapture] = CudaCapture


def offsets_of_generators() -> tuple[int, ...]:
    """How many random numbers torch's generators of GPUs have given so far; empty without torch on a GPU."""
    torch: Any = sys.modules.get("torch")
    return _capture.offsets(torch) if torch is not None and hasattr(torch, "cuda") else ()


def _argument(function: Any, args: Sequence[Any], kwargs: dict[str, Any], name: str) -> Any:
    for index, one in enumerate(function._schema.arguments):  # noqa: SLF001  # as above
        if one.name == name:
            return args[index] if index < len(args) else kwargs.get(name, one.default_value)
    return None


def pool_handle(pool: Any) -> Pool | None:
    """The handle of what a program gives as a pool; None: nothing is given.

    Raises:
        ArgumentError: it is no pool of torch.

    >>> pool_handle((0, 3))
    (0, 3)
    """
    if pool is None:
        return None
    found = pool.pool() if callable(getattr(pool, "pool", None)) else getattr(pool, "id", pool)
    if isinstance(found, tuple) and [type(one) for one in cast("tuple[object, ...]", found)] == [int, int]:
        return cast("Pool", found)
    raise ArgumentError(
        "pool= takes torch.cuda.graph_pool_handle(), a torch.cuda.CUDAGraph or a torch.cuda.MemPool, not"
        f" {type(pool).__name__}"
    )


class TorchWork:
    """The work of torch during one recording of a plan.

    Attributes:
        nodes: captured operations in order.
        memory: addresses, from the first to behind the last, of every tensor that they use, each with an operation.
        outside: addresses of the tensors that were there before the recording, in order of use.
        marks: events that torch's streams recorded and waited for.
        keeps: objects that the nodes need.
        pool: a pool that other plans may use, too. All new memory lies there, and nothing of it is kept but the pool.
        temporaries: bytes of new memory in the pool, by the first address.
    """

    def __init__(self, plan: str, launches: Sequence[Any], *, run: bool, pool: Pool | None = None) -> None:
        self.pool = pool
        self._plan = plan
        self._launches = launches
        self._run = run
        self._refused: ArgumentError | None = None
        self._capture: CudaCapture | None = None
        self._fresh: set[int] = set()  # memory that this recording made
        self.temporaries: dict[int, int] = {}
        self.nodes: list[TorchNode] = []
        self.memory: list[tuple[int, int, str]] = []
        self.outside: list[int] = []
        self._used: dict[str, tuple[int, int, str]] = {}
        self._events: dict[int, tuple[int, Any]] = {}  # numbers by identity, and the events, so that these stay theirs
        self._capturing = False
        self._foreign = ""  # the first operation that is not torch's own
        self.marks: list[StreamMark] = []
        self.keeps: list[Any] = []

    def check(self) -> None:
        """Raise the refusal of an operation again: the program may have caught it."""
        if self._refused is not None:
            raise self._refused

    def tensors_outside(self, places: Sequence[tuple[int, int]]) -> dict[str, str]:
        """Tensors that no capture made, but those in some memory, described, with an operation each."""
        return {
            text: use
            for text, (low, high, use) in self._used.items()
            if not any(low < last and first < high for first, last in places)
        }

    def is_shared(self, address: int) -> bool:
        """Whether an address is one of new memory in a pool of other plans."""
        return self.pool is not None and any(low <= address < low + size for low, size in self.temporaries.items())

    def note(self, event: Any, stream: Any, waits: bool) -> bool:  # noqa: FBT001  # of silo.launch.plan_streams
        """An event that a stream records or waits for; whether to do so: within a capture, or as the work is done."""
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
        place = stream_key(int(stream.device_index), int(handle))
        self.marks.append(StreamMark(len(self._launches) + len(self.nodes), number, place, waits))
        return self._run

    def compare(self, again: TorchWork) -> None:
        """Refuse a function that had torch do something else the second time."""
        mine, other = ([(one.at, one.name) for one in work.nodes] for work in (self, again))
        if mine != other or self.outside != again.outside:
            raise ArgumentError(
                f"{self._plan}: torch did other work the second time that the function ran, or on other tensors: it"
                " depends on more than the arguments"
            )

    def operation(self, torch: Any, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """One operation that torch is about to run."""
        name = function._schema.name  # noqa: SLF001  # the one name that all versions have
        if function.is_view or name in _QUIET:
            if "empty" not in name:
                return function(*args, **kwargs)
            result, pooled = self._allocate(torch, name, function, args, kwargs)
            for one in _tensors(torch, result):
                self._new(*_place(one), pooled=pooled)
            return result
        self.check()
        shown = name.replace("aten::", "torch.")
        inputs = _tensors(torch, (args, kwargs))
        if name == "aten::record_stream":  # torch could reuse this memory during a replay: keep it
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
        """Refuse operations of other libraries, which do not state it, if torch's generators have given numbers."""
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
        """The GPU that an operation runs on; raises if the operation cannot be a node."""
        given = kwargs.get("device")
        devices: set[Any] = {one.device for one in inputs} | ({torch.device(given)} if given is not None else set())
        kinds: set[str] = {one.type for one in devices} or {"cpu"}
        if kinds != {_capture.device_type}:
            self._refuse(shown, "" if kinds == {"cpu"} else f"it uses memory of {' and '.join(sorted(kinds))}")
        self._begin(torch, shown)
        if len(devices) > 1:
            self._refuse(shown, "it uses memory of several GPUs")
        attention = function._schema.name.startswith(_ATTENTION)  # noqa: SLF001  # as above
        if not attention and not all("Tensor" in str(one.type) for one in function._schema.returns):  # noqa: SLF001
            self._refuse(shown, "it gives the program a value that the GPU has computed")
        if torch.Tag.dynamic_output_shape in function.tags:
            self._refuse(shown, "it makes tensors of sizes that the GPU has computed")
        if torch.Tag.nondeterministic_seeded in function.tags and not (
            attention and _argument(function, args, kwargs, "dropout_p") == 0
        ):
            self._refuse(shown, _RANDOM)
        if not shown.startswith("torch.") and not shown.startswith("prims::"):
            self._foreign = self._foreign or shown
        if any(one.layout is not torch.strided for one in inputs):
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
        """New memory, and whether it lies in a pool of other plans: on a GPU, where one is given."""

        def call() -> Any:
            return function(*args, **kwargs)

        given = kwargs.get("device")
        devices = {torch.device(given)} if given is not None else {one.device for one in _tensors(torch, args)}
        if self.pool is None or [one.type for one in devices] != [_capture.device_type]:
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
        places = {id(one): _place(one) for one in inputs}
        for one in inputs:
            low, high = places[id(one)]
            self.memory.append((low, high, shown))
            if low in self.temporaries or low == high:
                continue
            self.keeps.append(one)
            text = f"{str(one.dtype).removeprefix('torch.')}{list(one.shape)} at {low:#x}"
            self._used.setdefault(text, (low, high, shown))
            if low not in self._fresh:
                self.outside.append(low)
        known = {low for low, _ in places.values()}
        for one in results:
            low, high = _place(one)
            self.memory.append((low, high, shown))
            if low not in known:
                self._new(low, high, pooled=True)

    def _refuse(self, shown: str, reason: str, cause: BaseException | None = None) -> NoReturn:
        self._refused = ArgumentError(
            f"{self._plan}: {shown} runs between launches, which a plan does not record{reason and f' ({reason})'}:"
            " make it a kernel, or a plan for the launches before and one for those after"
        )
        raise self._refused from cause


def _place(tensor: Any) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    low = int(storage.data_ptr())
    return low, low + int(storage.nbytes())


def _tensors(torch: Any, values: Any) -> list[Any]:
    """The tensors within lists, tuples and dicts."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = tuple(cast("dict[str, Any]", values).values())
    if not isinstance(values, list | tuple):
        return []
    return [one for value in cast("Sequence[Any]", values) for one in _tensors(torch, value)]


@contextmanager
def torch_work(
    plan: str, launches: Sequence[Any], *, run: bool = False, pool: Pool | None = None
) -> Generator[TorchWork]:
    """The work of torch on memory in this block, and after which launches; nothing where torch is not loaded.

    Operations on a GPU are captured, and with ``run`` also run. Views, and new memory
    that nothing is written to, are left out. New memory lies in ``pool``, if one is given.

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
        work.check()  # torch's operators turn a TypeError, as which an operation is refused, into one of their own
        raise
    work.check()
