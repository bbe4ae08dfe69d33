"""Streams and events with the Python interface of torch's CUDA, for tests on the stub: nothing waits for anything."""

import torch


class Event:
    """An event; ``done`` lists the operations that really ran (none while a function is recorded)."""

    def __init__(self, **options):
        self.done = []

    def record(self, stream=None):
        self.done.append(("record", stream))

    def wait(self, stream=None):
        self.done.append(("wait", stream))


class Stream:
    """A stream with torch's own methods of torch.cuda.Stream."""

    wait_event = torch.cuda.Stream.wait_event
    wait_stream = torch.cuda.Stream.wait_stream
    record_event = torch.cuda.Stream.record_event

    def __init__(self, handle, device_index=0):
        self.cuda_stream, self.device_index = handle, device_index


MAIN = Stream(0)


def replacements():
    """Yield (object, name, value) to set by ``setattr``, so that torch's current stream is ``MAIN``."""
    yield torch.cuda, "Event", Event
    yield torch.cuda.streams, "Event", Event
    yield torch.cuda, "current_stream", lambda device=None: MAIN
