"""Structs by value against the stub of libcuda, which keeps the bytes that it was given."""

import struct

import numpy as np
import pytest
from gpu_launchers import module

from silo.core.extents import DynamicAxis, DynamicLayout, HeldExtents
from silo.core.launch_info import LaunchInfo, LayoutSlot
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import dtype
from silo.errors import ArgumentError, DeviceError
from silo.launch import native
from silo.launch.runtime import bind, make_bound_launcher, make_launcher

FULL = LayoutSlot.struct("x", [("ptr", ""), ("i32", "shape.0"), ("i32", "shape.1"), ("i64", "stride.0")])
SHAPE = LayoutSlot.struct("x", [("i32", "shape.0"), ("i32", "shape.1")])
HELD = HeldExtents.of({"x": "dynamic"})
SIGNATURE = Signature((Parameter("x", ParameterKind.POINTER, dtype("float32"), Effect.READ),))


class Array:
    """A view in the memory of the device, as far as the stub is concerned."""

    device = "cuda:0"

    def __init__(self, data):
        self.data, self.shape, self.dtype = data, data.shape, data.dtype

    def data_ptr(self):
        return self.data.ctypes.data

    def stride(self):
        return tuple(step // self.data.itemsize for step in self.data.strides)


class Asked:
    """Answers misses with code that is passed what ``layout`` says."""

    def __init__(self, entry, layout):
        self.entry, self.layout, self.calls = entry, layout, []

    def binding(self, specialization):
        sizes = ",".join(str(slot.bytes) for slot in self.layout)
        loaded = native.LoadedKernel(module(self.entry, params=sizes), self.entry)
        return bind(loaded, LaunchInfo(self.entry, self.layout), SIGNATURE, specialization, {})

    def __call__(self, call):
        self.calls.append(call)
        return self.binding(Specialization(extents=call.extents(HELD)))


def launcher(entry, layout=(FULL, SHAPE), held=HELD):
    asked = Asked(entry, layout)
    return make_launcher(entry, Signature((Parameter("x"),)), on_miss=asked, extents=held), asked


def array(rows, columns, kind="float32"):
    room = np.zeros(rows * columns + 32, kind)
    start = -room.ctypes.data % 64 // room.itemsize
    return room[start : start + rows * columns].reshape(rows, columns)


def test_the_exact_bytes_of_each_call(stub):
    launch, asked = launcher("passed")
    base = array(64, 128)
    views = [base, base[:40], base[:, :100], base[4:, 8:]]
    for view in views:
        launch[1](Array(view))
        rows, columns = view.shape
        full = struct.pack("<QiiQ", view.ctypes.data, rows, columns, 128)
        assert stub.last("passed").parameters == (full, struct.pack("<ii", rows, columns))
    assert len(asked.calls) == launch.misses == 1, "one code serves them all, and one entry of the guard"
    (call,) = asked.calls
    assert call["x"].layout == DynamicLayout((DynamicAxis(4, None, 4), DynamicAxis(4, 1)))
    assert (call["x"].shape, call["x"].strides) == (None, None)
    launch[1](Array(base[:, :99]))
    assert launch.misses == 2, "its rows are no multiples of 16 bytes"
    launch[1](Array(base.T))
    assert asked.calls[-1]["x"].layout == DynamicLayout((DynamicAxis(4, 1), DynamicAxis(4, None, 4)))
    rows = struct.unpack("<QiiQ", stub.last("passed").parameters[0])
    assert rows == (base.ctypes.data, 128, 64, 1)


def test_five_axes_of_64_bits(stub):
    names = [f"{what}.{axis}" for what in ("shape", "stride") for axis in range(5)]
    launch, _ = launcher("five", (LayoutSlot.struct("x", [("ptr", ""), *(("i64", name) for name in names)]),))
    view = array(16, 512).reshape(2, 4, 8, 16, 8).transpose(4, 1, 2, 0, 3)
    launch[1](Array(view))
    steps = [step // 4 for step in view.strides]
    assert stub.last("five").parameters == (struct.pack("<11Q", view.ctypes.data, *view.shape, *steps),)
    with pytest.raises(ArgumentError, match="'x' needs an array of up to 5 dimensions"):
        launch[1](Array(view.reshape(2, 4, 8, 16, 4, 2)))


def test_a_layout_that_is_held_whole_is_passed_too(stub):
    """As where some code of a kernel is for one layout and other code for any."""
    launch, asked = launcher("whole", held=HeldExtents.of({"x": "layout"}))
    base = array(8, 16)
    launch[1](Array(base))
    launch[1](Array(base[:4]))
    assert stub.last("whole").parameters[1] == struct.pack("<ii", 4, 16)
    assert launch.misses == 2
    assert asked.calls[1].extents(HELD)[0][1] == DynamicLayout.of((4, 16), (16, 1), 32)


def test_a_bound_launcher_passes_what_each_call_has(stub):
    asked = Asked("bound", (FULL, SHAPE))
    binding = asked.binding(Specialization(extents=(("x", DynamicLayout.of((8, 16), (16, 1), 32)),)))
    launch = make_bound_launcher("bound", binding, SIGNATURE, grid=1, extents=HELD)
    base = array(8, 16)
    for view in (base, base[:3], base[:, :5]):
        launch(Array(view))
        assert stub.last("bound").parameters[1] == struct.pack("<ii", *view.shape)
    with pytest.raises(ArgumentError, match="the extents and strides of 'x' are passed to this code"):
        launch(Array(base.reshape(-1)))
    unread = make_bound_launcher("bound", binding, SIGNATURE, grid=1)
    with pytest.raises(ArgumentError, match="the extents and strides of 'x' are passed"):
        unread(Array(base))


def test_what_cannot_be_bound(stub):
    asked = Asked("unsaid", (FULL,))
    with pytest.raises(DeviceError, match="takes the extents and strides of 'x', and its variant says nothing"):
        asked.binding(Specialization())
    loaded = native.LoadedKernel(module("wrong", params="24"), "wrong")
    for leaves in ((("i16", "shape.0"),), (("ptr", ""), ("ptr", "")), (), (("i32", "shape.7"),)):
        with pytest.raises(ValueError, match=r"not a (member|struct) of an array"):
            native.Binding(loaded, ((0, "struct", False, leaves),), {})
