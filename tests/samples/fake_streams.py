"""Streams and events as torch's CUDA has them for Python, for tests on the stub: nothing waits for anything."""

import torch


class Event:
    """``done`` has what was really done: nothing while a function is recorded."""

    def __init__(self, **options):
        self.done = []

    def record(self, stream=None):
        self.done.append(("record", stream))

    def wait(self, stream=None):
        self.done.append(("wait", stream))


class Stream:
    """A stream with the methods of torch.cuda.Stream, as torch has them."""

    wait_event = torch.cuda.Stream.wait_event
    wait_stream = torch.cuda.Stream.wait_stream
    record_event = torch.cuda.Stream.record_event

    def __init__(self, handle, device_index=0):
        self.cuda_stream, self.device_index = handle, device_index


MAIN = Stream(0)


def replacements():
    """Objects, names and values for ``setattr``: the current stream is ``MAIN``."""
    yield torch.cuda, "Event", Event
    yield torch.cuda.streams, "Event", Event
    yield torch.cuda, "current_stream", lambda device=None: MAIN
