"""Streams and events of ``torch.cuda`` on the CPU, which does all work at once."""

from __future__ import annotations

import itertools
import threading
import time
from types import TracebackType
from typing import Any, Self

from silo.integrations.cuda_on_cpu.placement import index_of
from silo.integrations.cuda_on_cpu.replaced_names import put

__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "replace_streams", "set_stream"]

_numbers = itertools.count(1)
_current = threading.local()


class Stream:
    """A stream whose work is always complete. The default stream is number 0."""

    device_type = 1  # the number of CUDA in torch.Stream

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:  # noqa: ANN401
        """Accepts the arguments of ``torch.cuda.Stream`` and of ``torch.Stream``."""
        self.device_index = index_of(device)
        self.priority = priority
        given = kwargs.get("stream_id", kwargs.get("stream_ptr"))
        self.stream_id: int = next(_numbers) if given is None else int(given)

    @property
    def cuda_stream(self) -> int:
        """The stream's number, in the place of a driver's handle."""
        return self.stream_id

    @property
    def native_handle(self) -> int:
        """As :attr:`cuda_stream`."""
        return self.stream_id

    @property
    def device(self) -> Any:  # noqa: ANN401  # torch.device
        """``torch.device("cuda", 0)``."""
        import torch  # pyright: ignore[reportMissingImports]  # noqa: PLC0415  # the program has loaded it

        return torch.device("cuda", 0)

    def query(self) -> bool:
        """Return whether all work is done: always."""
        return True

    def synchronize(self) -> None:
        """Wait for nothing."""

    def wait_stream(self, stream: object) -> None:
        """Wait for nothing."""

    def wait_event(self, event: object) -> None:
        """Wait for nothing."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, a new one by default, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def is_capturing(self) -> bool:
        """Return whether a graph is captured: never."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.stream_id:#x}>"

    def __enter__(self) -> Self:
        self._before = current_stream()
        set_stream(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        set_stream(self._before)


_default = Stream(stream_id=0)


def default_stream(device: Any = None) -> Stream:  # noqa: ANN401
    """Return the stream 0."""
    index_of(device)
    return _default


def current_stream(device: Any = None) -> Stream:  # noqa: ANN401
    """Return this thread's current stream."""
    index_of(device)
    return getattr(_current, "stream", _default)


def set_stream(stream: Stream | None) -> None:
    """Make a stream this thread's current one; None changes nothing."""
    if stream is not None:
        _current.stream = stream


class StreamContext:
    """``torch.cuda.stream(s)``: a block in which ``s`` is this thread's current stream; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        """Take the stream of the block."""
        self.stream = stream

    def __enter__(self) -> None:
        self._before = current_stream()
        set_stream(self.stream)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        set_stream(self._before)


class Event:
    """An event: the moment at which it was recorded, by the clock."""

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
        """Note the time."""
        del stream
        self._at_s = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds from this event to another one, by the clock of the CPU.

        Raises:
            ValueError: one of the events was made without ``enable_timing=True``, or was not recorded.
        """
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at_s is None or end_event._at_s is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at_s - self._at_s) * 1e3

    def query(self) -> bool:
        """Return whether the work before it is done: always."""
        return True

    def wait(self, stream: object = None) -> None:
        """Wait for nothing."""

    def synchronize(self) -> None:
        """Wait for nothing."""

    def __repr__(self) -> str:
        return "<torch.cuda.Event>"


def replace_streams(torch: Any) -> None:  # noqa: ANN401
    """Replace the streams and events of ``torch.cuda``, and of ``torch`` for any device."""
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
