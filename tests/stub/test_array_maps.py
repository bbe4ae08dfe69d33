"""Tensor maps that the launcher makes of plain arrays: what the stub of libcuda is asked to encode."""
# pyright: reportAttributeAccessIssue=false

import gc
import struct
import sys
import threading
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from gpu_launchers import SIZES, Array, aligned, encoded, module

from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot, TensorMap
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import dtype
from silo.errors import ArgumentError, DeviceError
from silo.launch import native
from silo.launch.runtime import bind, make_bound_launcher, make_launcher

BFLOAT16 = 9  # CUtensorMapDataType
FORM = TensorMap("a", swizzle=3, element_bytes=2, element_type=6, box=(128, 64), axes=(0, 1))


class View(Array):
    """An array whose strides are what its values have, of a device."""

    def __init__(self, values, **more):
        super().__init__(values, **more)
        self.values = values
        self._address = values.ctypes.data if more.get("address") is None else more["address"]


def matrix(*shape, kind="float16"):
    return View(aligned(int(np.prod(shape)), kind).reshape(shape))


@dataclass
class Asked:
    entry: str
    maps: tuple
    more: tuple = ()
    loads: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)

    @property
    def layout(self):
        return (*(LayoutSlot(one.name, AbiType.TENSORMAP) for one in self.maps), *self.more)

    @property
    def signature(self):
        arrays = dict.fromkeys(one.name for one in self.maps)
        rest = (slot.name for slot in self.more if slot.name not in arrays)
        return Signature(
            (
                *(Parameter(name, ParameterKind.POINTER, dtype("float16"), Effect.BOTH) for name in arrays),
                *(Parameter(name, ParameterKind.INTEGER, dtype("int32")) for name in rest),
            )
        )

    def __call__(self, call):
        self.calls.append(call)
        sizes = [SIZES.get(slot.type.value, 128 if slot.type is AbiType.TENSORMAP else 8) for slot in self.layout]
        loaded = native.LoadedKernel(module(self.entry, params=",".join(map(str, sizes))), self.entry)
        info = LaunchInfo(self.entry, self.layout, tensor_maps=self.maps)
        return bind(loaded, info, self.signature, Specialization(), {})


def launcher(entry, *maps, more=()):
    asked = Asked(entry, maps, more)
    untyped = Signature(tuple(Parameter(name) for name in asked.signature.names))
    return make_launcher(entry, untyped, on_miss=asked), asked


def test_a_gemm_of_three_arrays_as_the_dsl_has_it(stub):
    """A and B in boxes of 128 x 64 with a swizzle of 128 bytes, C in boxes of 64 x 32 with one of 64; a batch of 1."""
    form = TensorMap("a", 3, 2, BFLOAT16, (1, 128, 64), axes=(2, 0, 1))
    maps = (form, replace(form, name="b"), replace(form, name="c", swizzle=2, box=(1, 64, 32)))
    launch, asked = launcher("gemm", *maps, more=(LayoutSlot("n", AbiType.I32),))
    m, n, k = 4096, 2048, 1024
    a, b, c = (
        View(aligned(rows * columns, "float16").reshape(1, rows, columns).transpose(1, 2, 0))
        for rows, columns in ((m, k), (n, k), (m, n))
    )
    launch[1](a, b, c, 5)
    values = stub.last("gemm").parameters
    for value, array, box, swizzle in zip(values, (a, b, c), ((64, 128), (64, 128), (32, 64)), (3, 3, 2), strict=False):
        rows, columns = array.shape[:2]
        assert encoded(value) == {
            "type": BFLOAT16,
            "rank": 3,
            "modes": (0, swizzle, 2, 0),  # no interleave, L2 promotion of 128 bytes, zeros outside
            "address": array.data_ptr(),
            "sizes": (columns, rows, 1),  # innermost first
            "strides": (columns * 2, 0),  # bytes; nothing steps along an axis of 1
            "box": (*box, 1),
            "steps": (1, 1, 1),
        }
    assert values[3] == struct.pack("<i", 5)
    assert asked.calls[0]["a"].dtype == dtype("float16")


def test_axes_in_another_order_and_dimensions_that_are_no_axes(stub):
    launch, _ = launcher("turned", replace(FORM, axes=(1, 0)))
    turned = View(aligned(64 * 2048, "float16").reshape(64, 2048).T)  # contiguous along its first axis
    launch[1](turned)
    found = encoded(stub.last("turned").parameters[0])
    assert (found["sizes"], found["strides"], found["box"]) == ((2048, 64), (4096,), (64, 128))

    form = replace(FORM, box=(1, 2, 4, 64), axes=((1, 0), 0, (4, 2048), (512, 1)))
    launch, _ = launcher("own", form)
    launch[1](matrix(8, 64))
    found = encoded(stub.last("own").parameters[0])
    assert (found["sizes"], found["strides"], found["box"]) == ((512, 4, 8, 1), (4096, 128, 0), (64, 4, 2, 1))


def test_a_map_of_constants_alone_needs_no_shape(stub):
    class Bare:
        """An address of a device, with a dtype and no shape."""

        def __init__(self, array):
            self.dtype, self.device, self._array = array.dtype, array.device, array

        def data_ptr(self):
            return self._array.data_ptr()

    array = matrix(256, 512)
    launch, _ = launcher("bare", replace(FORM, axes=((256, 512), (512, 1))))
    launch[1](Bare(array))
    found = encoded(stub.last("bare").parameters[0])
    assert (found["address"] | 1 << 21, found["sizes"]) == (array.data_ptr() | 1 << 21, (512, 256))
    launch, _ = launcher("shaped", FORM)
    with pytest.raises(ArgumentError, match="'a' needs an array with a shape, of which its tensor map is made"):
        launch[1](Bare(array))


def test_views_are_right_or_refused(stub):
    launch, asked = launcher("views", FORM)
    whole = aligned(1024 * 512, "float16").reshape(1024, 512)
    for view, sizes, strides in (
        (whole, (512, 1024), (1024,)),
        (whole[:1000], (512, 1000), (1024,)),
        (whole[8:, :264], (264, 1016), (1024,)),
        (whole[::2], (512, 512), (2048,)),
        (whole[:, 8:9], (1, 1024), (1024,)),  # one element a row: nothing steps along the axis
        (whole[4:5, 16:], (496, 1), (0,)),
    ):
        launch[1](View(view))
        found = encoded(stub.last("views").parameters[0])
        assert (found["sizes"], found["strides"]) == (sizes, strides)
        assert found["address"] | 1 << 21 == view.ctypes.data | 1 << 21
    count = stub.last("views").count
    for view, reason in (
        (whole[:, 1:], r"lies at 0x[0-9a-f]*2, which is not a multiple of 16 bytes"),
        (whole[:, ::2], r"has strides\[1\] = 2; the kernel's code takes an array that is contiguous \(1\) along this"),
        (whole.T, r"has strides\[1\] = 512; the kernel's code takes an array that is contiguous"),
        (whole[::-1], r"has strides\[0\] = -512; a stride of a tensor map is a multiple of 16 bytes"),
        (aligned(100 * 70, "float16").reshape(100, 70), r"has strides\[0\] = 70; a stride of a tensor map is"),
        (whole[:0], r"has shape\[0\] = 0; a tensor map's extents are 1 to 2\^31 - 1"),
        (whole.reshape(-1), "has 1 dimensions, and its tensor map is made of axis 1"),
    ):
        with pytest.raises(ArgumentError, match="views: argument 'a' " + reason):
            launch[1](View(view))
    with pytest.raises(ArgumentError, match="'a' needs an array"):
        launch[1](None)
    with pytest.raises(ArgumentError, match="'a' needs an array"):
        launch[1](3)
    assert stub.last("views").count == count
    assert len({call["a"].kind for call in asked.calls}) <= 3


def test_what_the_driver_refuses_is_said(stub):
    launch, _ = launcher("refused", FORM)
    array = matrix(512, 512)
    stub.fail("cuTensorMapEncodeTiled", 1)
    with pytest.raises(
        ArgumentError,
        match=r"refused: argument 'a' cannot be used: the driver refuses its tensor map \(error 1\): extents/box "
        "512/128, 512/64, elements of 2 bytes and type 6, swizzle 3",
    ) as caught:
        launch[1](array)
    assert "INVALID_VALUE" in str(caught.value.__cause__)
    launch[1](array)
    assert stub.last("refused").count == 1


def test_a_map_is_encoded_again_when_the_array_is_another(stub):
    launch, _ = launcher("again", FORM)
    arrays = [matrix(512, 512) for _ in range(3)]
    for array in arrays:
        launch[1](array)
    stub.fail("cuTensorMapEncodeTiled", 1, times=-1)
    for array in arrays:  # all three are known
        launch[1](array)
        assert encoded(stub.last("again").parameters[0])["address"] | 1 << 21 == array.data_ptr() | 1 << 21
    with pytest.raises(ArgumentError, match="the driver refuses"):
        launch[1](View(arrays[0].values[:500]))
    stub.fail_no_more()
    for rows in range(1, 100):  # more than are kept
        launch[1](View(arrays[0].values[:rows]))
        assert encoded(stub.last("again").parameters[0])["sizes"] == (512, rows)


def test_an_array_may_have_two_maps(stub):
    store = replace(FORM, box=(64, 32), swizzle=2)
    launch, _ = launcher("both", FORM, store, replace(FORM, name="b"), more=(LayoutSlot("a", AbiType.POINTER),))
    array = matrix(512, 512)
    launch[1](array, array)
    values = stub.last("both").parameters
    assert [encoded(value)["box"] for value in values[:3]] == [(64, 128), (32, 64), (64, 128)]
    assert values[3] == struct.pack("<Q", array.data_ptr())
    launch, _ = launcher("three", FORM, FORM, FORM)
    with pytest.raises(ValueError, match="three tensor maps of one array"):
        launch[1](array)


def test_bindings_refuse_forms_that_no_array_has():
    loaded = native.LoadedKernel(module("odd", params="128"), "odd")
    signature = Signature((Parameter("a", ParameterKind.POINTER, dtype("float16"), Effect.READ),))
    for form, error, reason in (
        (replace(FORM, axes=(0,)), ValueError, "one axis for each extent"),
        (replace(FORM, axes=(0, 32)), ValueError, "not a tensor map"),
        (replace(FORM, axes=(-1, 0)), ValueError, "not a tensor map"),
        (replace(FORM, box=(257, 64)), DeviceError, "more than 256 elements along an axis"),
        (replace(FORM, name="b"), DeviceError, "a is a tensor map, and nothing says how to encode it"),
    ):
        info = LaunchInfo("odd", (LayoutSlot("a", AbiType.TENSORMAP),), tensor_maps=(form,))
        with pytest.raises(error, match=reason):
            bind(loaded, info, signature, Specialization(), {})


def test_a_bound_launcher_makes_maps_too(stub):
    launch, asked = launcher("bound", FORM, more=(LayoutSlot("n", AbiType.I32),))
    bound = make_bound_launcher(launch.name, launch.resolve(matrix(512, 512), 3), asked.signature, grid=(1,))
    array = matrix(256, 512)
    bound(array, 5)
    assert encoded(stub.last("bound").parameters[0])["sizes"] == (512, 256)
    with pytest.raises(ArgumentError, match=r"bound: argument 'a' has strides\[0\] = 70"):
        bound(matrix(64, 70), 5)
    with pytest.raises(ArgumentError, match="needs"):
        bound(4096, 5)


def test_threads_launch_with_arrays_of_their_own(stub):
    launch, _ = launcher("threads", FORM)
    wrong = []

    def work(rows):
        arrays = [matrix(rows + i, 128) for i in range(8)]
        for _ in range(60):
            for array in arrays:
                try:
                    launch[1](array)
                except Exception as error:  # noqa: BLE001  # reported below
                    wrong.append(error)

    threads = [threading.Thread(target=work, args=(100 * (i + 1),)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert stub.last("threads").count == 6 * 60 * 8


def test_nothing_is_kept_alive(stub):
    launch, _ = launcher("alive", FORM)
    array = matrix(512, 512)
    launch[1](array)
    gc.collect()
    before = sys.getrefcount(array)
    for _ in range(50):
        launch[1](array)
    assert sys.getrefcount(array) == before
