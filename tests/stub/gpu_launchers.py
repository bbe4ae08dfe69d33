"""Launchers over code that the stub loads, and arrays that say they are on its devices."""

import struct

import numpy as np

import gpu_stub
from silo.core.signature import Parameter, Signature
from silo.launch import native
from silo.launch.native import open_driver
from silo.launch.runtime import make_launcher

SIZES = {"i1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "fp16": 2, "bf16": 2, "i32": 4, "u32": 4, "fp32": 4, "empty": 1}


class Array:
    """A duck-typed array of a GPU; its memory is the host's, as with the stub."""

    def __init__(self, values, device="cuda:0", *, address=None):
        self.values = np.ascontiguousarray(values)
        self.dtype = self.values.dtype
        self.shape = self.values.shape
        self.device = device
        self._address = self.values.ctypes.data if address is None else address

    def data_ptr(self):
        return self._address

    def stride(self):
        return tuple(step // self.values.itemsize for step in self.values.strides)


def aligned(count, kind):
    """Numbers on a multiple of 64 bytes."""
    element = np.dtype(kind)
    room = np.zeros(count * element.itemsize + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + count * element.itemsize].view(element)


def encoded(data):
    """What the stub was asked for, by the driver's names."""
    kind, rank, interleave, swizzle, promotion, fill = data[:6]
    return {
        "type": kind,
        "rank": rank,
        "modes": (interleave, swizzle, promotion, fill),
        "address": struct.unpack_from("<Q", data, 8)[0],
        "sizes": struct.unpack_from(f"<{rank}Q", data, 16),
        "strides": struct.unpack_from(f"<{rank - 1}Q", data, 56),
        "box": struct.unpack_from(f"<{rank}I", data, 88),
        "steps": struct.unpack_from(f"<{rank}I", data, 108),
    }


def module(*kernels, kind="cuda", index=0, **directives):
    open_driver(kind)
    return native.GpuModule(kind, index, gpu_stub.text(*kernels, **directives))


def binding(name, types, *, writes=(), grid=None, config=None, kind="cuda", index=0, **options):
    """A binding of a kernel whose parameters 0, 1, ... have these ABI types."""
    sizes = ",".join(str(SIZES.get(one, 8)) for one in types)
    loaded = native.LoadedKernel(module(name, kind=kind, index=index, params=sizes), name, **options)
    hidden = ("scratch", "profile", "empty")
    layout = tuple((0 if one in hidden else i, one, i in writes) for i, one in enumerate(types))
    return native.Binding(loaded, layout, config or {}, grid)


class Asked:
    """An on_miss that remembers its calls and answers with a binding for the device of the call."""

    def __init__(self, name, types, **options):
        self.calls, self._made, self._options = [], {}, (name, types, options)

    def __call__(self, call):
        self.calls.append(call)
        name, types, options = self._options
        index = call.device[1]
        if index not in self._made:
            self._made[index] = binding(name, types, index=index, **options)
        return self._made[index]


def launcher(name, types, parameters=None, **options):
    """A launcher of undeclared parameters p0, p1, ..., one a visible ABI type, and what it asked."""
    own = {key: options.pop(key) for key in ("release_gil", "key", "exact") if key in options}
    asked = Asked(name, types, **options)
    visible = [one for one in types if one not in ("scratch", "profile", "empty")]
    signature = Signature(tuple(parameters or [Parameter(f"p{i}") for i in range(len(visible))]))
    return make_launcher(name, signature, on_miss=asked, **own), asked
