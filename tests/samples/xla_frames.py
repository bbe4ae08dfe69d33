"""Calls as XLA makes them (``native/python/xla_abi.h``), made by hand, to test the handlers without jax."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_size_t, c_void_p, cast
from typing import Any

from silo.integrations.jax import jax_programs as programs
from silo.launch import native
from silo.launch.jax_versions import load_jax

INSTANTIATE, INITIALIZE, EXECUTE = 0, 2, 3
FLOAT32 = 11


@contextmanager
def resolver(resolve: Callable[[str, str, int], None] = lambda *_: None) -> Iterator[None]:
    """In the block, handlers call ``resolve`` for an unknown digest; afterwards jax's programs are served as before."""
    native.xla_connect(resolve, 3)
    try:
        yield
    finally:
        if programs.connected.cache_info().currsize:
            native.xla_connect(programs._resolve, load_jax()[1])


class Version(Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p), ("major", c_int32), ("minor", c_int32))


class ErrorCreate(Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p), ("message", c_char_p), ("code", c_int32))


class ErrorOf(Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p), ("error", c_void_p), ("message", c_char_p))


class StreamGet(Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p), ("context", c_void_p), ("stream", c_void_p))


class OrdinalGet(Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p), ("context", c_void_p), ("ordinal", c_int32))


ERROR_CREATE = ctypes.CFUNCTYPE(c_void_p, POINTER(ErrorCreate))
STREAM_GET = ctypes.CFUNCTYPE(c_void_p, POINTER(StreamGet))
ORDINAL_GET = ctypes.CFUNCTYPE(c_void_p, POINTER(OrdinalGet))


class Api(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("extension", c_void_p),
        ("version", Version),
        ("internal", c_void_p),
        ("error_create", ERROR_CREATE),
        ("error_message", c_void_p),
        ("error_destroy", c_void_p),
        ("handler_register", c_void_p),
        ("stream_get", STREAM_GET),
        ("unused", c_void_p * 12),
        ("device_ordinal", ORDINAL_GET),
    )


class Span(Structure):
    _fields_ = (("text", c_char_p), ("length", c_size_t))


class Buffer(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("extension", c_void_p),
        ("dtype", c_int32),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    )


class Values(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("extension", c_void_p),
        ("count", c_int64),
        ("types", POINTER(c_int32)),
        ("values", POINTER(c_void_p)),
    )


class Attributes(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("extension", c_void_p),
        ("count", c_int64),
        ("types", POINTER(c_int32)),
        ("names", POINTER(POINTER(Span))),
        ("values", POINTER(c_void_p)),
    )


class Frame(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("extension", c_void_p),
        ("api", POINTER(Api)),
        ("context", c_void_p),
        ("stage", c_int32),
        ("args", Values),
        ("rets", Values),
        ("attributes", Attributes),
    )


class Metadata(Structure):
    _fields_ = (("size", c_size_t), ("version", Version), ("traits", ctypes.c_uint32))


class MetadataExtension(Structure):
    _fields_ = (("size", c_size_t), ("kind", c_int32), ("next", c_void_p), ("metadata", POINTER(Metadata)))


class Xla:
    """XLA as a handler sees it: one device and one stream; the last error is recorded."""

    def __init__(self, platform: str, *, device: int = 0, stream: int = 0) -> None:
        pointer: Any = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = c_void_p, (ctypes.py_object, c_char_p)
        self.stages = native.xla_handlers(platform)
        self._handler = ctypes.CFUNCTYPE(c_void_p, POINTER(Frame))(pointer(self.stages["execute"], None))
        self.device, self.stream, self.error = device, stream, ""
        self._kept: list[Any] = []
        self._api = Api(size=ctypes.sizeof(Api))
        self._api.error_create = ERROR_CREATE(self._raise)
        self._api.stream_get = STREAM_GET(self._stream)
        self._api.device_ordinal = ORDINAL_GET(self._ordinal)

    def _raise(self, given: Any) -> int:
        self.error = given.contents.message.decode()
        return 1

    def _stream(self, given: Any) -> None:
        given.contents.stream = self.stream

    def _ordinal(self, given: Any) -> None:
        given.contents.ordinal = self.device

    def metadata(self) -> Metadata:
        """Return the handler's metadata."""
        found = Metadata(ctypes.sizeof(Metadata))
        extension = MetadataExtension(ctypes.sizeof(MetadataExtension), 1, None, ctypes.pointer(found))
        frame = Frame(size=ctypes.sizeof(Frame), extension=ctypes.addressof(extension))
        assert not self._handler(byref(frame))
        return found

    def call(self, digest: str | None, args: Any, rets: Any, *, stage: int = EXECUTE) -> str:
        """Call the handler once; return its error's text, or "".

        Arrays are numpy arrays, or (address, shape, dtype).
        """
        self._kept.clear()
        frame = Frame(size=ctypes.sizeof(Frame), stage=stage, api=ctypes.pointer(self._api))
        frame.args, frame.rets = self._values(args), self._values(rets)
        if digest is not None:
            name, value = Span(b"digest", 6), Span(digest.encode(), len(digest))
            names, values = (POINTER(Span) * 1)(ctypes.pointer(name)), (c_void_p * 1)(ctypes.addressof(value))
            kinds = (c_int32 * 1)(4)
            self._kept += [name, value, names, values, kinds]
            frame.attributes = Attributes(ctypes.sizeof(Attributes), None, 1, kinds, names, values)
        self.error = ""
        failed = self._handler(byref(frame))
        assert bool(failed) == bool(self.error)
        return self.error

    def _values(self, arrays: Any) -> Values:
        made = []
        for one in arrays:
            address, shape, kind = one if isinstance(one, tuple) else (one.ctypes.data, one.shape, FLOAT32)
            dims = (c_int64 * max(len(shape), 1))(*shape)
            made.append(Buffer(ctypes.sizeof(Buffer), None, kind, address, len(shape), dims))
            self._kept.append(dims)
        places = (c_void_p * max(len(made), 1))(*[ctypes.addressof(one) for one in made])
        kinds = (c_int32 * max(len(made), 1))(*[1 for _ in made])
        self._kept += [made, places, kinds]
        return Values(ctypes.sizeof(Values), None, len(made), cast(kinds, POINTER(c_int32)), places)
