"""Tensor descriptors against the stub of libcuda, which writes into the map what it was asked to encode."""
# pyright: reportAttributeAccessIssue=false

import copy
import gc
import pickle
import struct
import sys
import threading
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from gpu_launchers import SIZES, Array, aligned, encoded, module

import gpu_stub
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot, TensorMap
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.trace import trace_grid
from silo.core.values import dtype
from silo.errors import ArgumentError, DeviceError
from silo.launch import native
from silo.launch.runtime import bind, make_bound_launcher, make_launcher

BIT_21 = 1 << 21  # of the map's second word, which stands for the address here: cleared for small arrays


@dataclass
class Descriptor:
    """Like Triton's, without its checks and without Triton."""

    __tensor_descriptor__: ClassVar[bool] = True
    base: Any
    shape: Any
    strides: Any
    block_shape: Any
    padding: str = "zero"
    round_f32_to_tf32: bool = False


@dataclass(frozen=True)
class Frozen:
    __tensor_descriptor__: ClassVar[bool] = True
    base: Any
    shape: Any
    strides: Any
    block_shape: Any
    padding: str = "zero"


class Slotted:
    __tensor_descriptor__ = True
    __slots__ = ("base", "block_shape", "padding", "shape", "strides")

    def __init__(self, base, shape, strides, block_shape):
        self.base, self.shape, self.strides, self.block_shape = base, shape, strides, block_shape
        self.padding = "zero"


def matrix(rows=64, columns=128, kind="float16", **more):
    """A descriptor of a whole matrix, and its array."""
    base = Array(aligned(rows * columns, kind).reshape(rows, columns))
    return Descriptor(base, [rows, columns], [columns, 1], [16, 64], **more)


def layout_of(name, rank):
    return (
        LayoutSlot(name, AbiType.TENSORMAP),
        *(LayoutSlot(name, AbiType.I32, f"shape.{axis}") for axis in range(rank)),
        *(LayoutSlot(name, AbiType.I64, f"stride.{axis}") for axis in range(rank)),
    )


def parts_of(name, rank):
    return (
        LayoutSlot(name, AbiType.POINTER),
        *(LayoutSlot(name, AbiType.I64, f"{what}.{axis}") for what in ("shape", "stride") for axis in range(rank)),
        LayoutSlot(name, AbiType.I1, "nan"),
        LayoutSlot(name, AbiType.I1, "tf32"),
    )


FORM = TensorMap("d", swizzle=3, element_bytes=2, element_type=6, box=(16, 64))


@dataclass
class Asked:
    """Answers misses; ``signature`` is typed."""

    entry: str
    layout: tuple
    maps: tuple = (FORM,)
    element: str = "float16"
    config: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)

    @property
    def signature(self):
        names = dict.fromkeys(slot.name for slot in self.layout if slot.name)
        described = {slot.name for slot in self.layout if slot.part}
        return Signature(
            tuple(
                Parameter(name, ParameterKind.DESCRIPTOR, dtype(self.element), Effect.BOTH)
                if name in described
                else Parameter(name, ParameterKind.INTEGER, dtype("int32"))
                for name in names
            )
        )

    def __call__(self, call):
        self.calls.append(call)
        sizes = [SIZES.get(slot.type.value, 128 if slot.type is AbiType.TENSORMAP else 8) for slot in self.layout]
        loaded = native.LoadedKernel(module(self.entry, params=",".join(map(str, sizes))), self.entry)
        info = LaunchInfo(self.entry, self.layout, tensor_maps=self.maps)
        return bind(loaded, info, self.signature, Specialization(), self.config)


def launcher(entry, layout, **options):
    asked = Asked(entry, layout, **options)
    untyped = Signature(tuple(Parameter(name) for name in asked.signature.names))
    return make_launcher(entry, untyped, on_miss=asked), asked


def test_a_map_its_shape_and_its_strides(stub):
    launch, asked = launcher("mapped", (*layout_of("d", 2), LayoutSlot("n", AbiType.I32)))
    d = matrix(rows=1024)  # 256 KiB
    launch[1](d, 7)
    values = stub.last("mapped").parameters
    assert encoded(values[0]) == {
        "type": 6,
        "rank": 2,
        "modes": (0, 3, 2, 0),  # no interleave, 128-byte swizzle, L2 promotion of 128 bytes, zeros outside
        "address": d.base.data_ptr(),
        "sizes": (128, 1024),  # innermost first
        "strides": (256,),  # bytes
        "box": (64, 16),
        "steps": (1, 1),
    }
    assert values[1:] == tuple(
        struct.pack("<" + code, value) for code, value in zip("iiqqi", (1024, 128, 128, 1, 7), strict=True)
    )
    (call,) = asked.calls
    assert (call["d"].dtype, call["d"].block_shape, call["d"].ndim) == (dtype("float16"), (16, 64), 2)


def test_five_axes_and_one(stub):
    shape, strides = [2, 3, 4, 5, 32], [1920, 640, 160, 32, 1]
    base = Array(aligned(3840, "float32"))
    form = TensorMap("d", swizzle=0, element_bytes=4, element_type=7, box=(1, 1, 2, 4, 16))
    launch, _ = launcher("five", layout_of("d", 5), maps=(form,), element="float32")
    launch[1](Descriptor(base, tuple(shape), tuple(strides), [1, 1, 2, 4, 16]))
    found = encoded(stub.last("five").parameters[0])
    assert (found["sizes"], found["box"]) == ((32, 5, 4, 3, 2), (16, 4, 2, 1, 1))
    assert found["strides"] == (128, 640, 2560, 7680)
    assert stub.last("five").parameters[6:] == tuple(struct.pack("<q", stride) for stride in strides)

    line = TensorMap("d", swizzle=0, element_bytes=4, element_type=7, box=(64,))
    launch, _ = launcher("one", layout_of("d", 1), maps=(line,), element="float32")
    launch[1](Descriptor(base, np.array([3840]), np.array([1]), [64]))
    found = encoded(stub.last("one").parameters[0])
    assert (found["rank"], found["sizes"], found["strides"], found["box"]) == (1, (3840,), (), (64,))


def test_padding_tf32_and_fp4(stub):
    form = TensorMap("d", swizzle=3, element_bytes=4, element_type=7, box=(16, 32))
    launch, asked = launcher("filled", layout_of("d", 2), maps=(form,), element="float32")
    for more, kind, fill in (
        ({}, 7, 0),
        ({"padding": "nan"}, 7, 1),
        ({"round_f32_to_tf32": True}, 11, 0),
        ({"padding": "na" + chr(110)}, 7, 1),
    ):
        launch[1](matrix(kind="float32", **more))
        found = encoded(stub.last("filled").parameters[0])
        assert (found["type"], found["modes"][3]) == (kind, fill)
    assert len(asked.calls) == 1  # neither is part of what the code assumes

    form = TensorMap("d", swizzle=3, element_bytes=1, element_type=14, box=(16, 128), fp4_padded=True)
    launch, _ = launcher("fp4", layout_of("d", 2), maps=(form,), element="uint8")
    launch[1](matrix(kind="uint8"))
    values = stub.last("fp4").parameters
    found = encoded(values[0])
    assert (found["sizes"], found["strides"]) == ((256, 64), (128,))
    assert struct.unpack("<i", values[2]) == (128,)  # the kernel sees the descriptor's own


def test_the_bit_that_older_drivers_set_for_small_arrays(stub):
    launch, _ = launcher("bit", layout_of("d", 2))
    low = 0x7F0000000000
    for rows, cleared in ((511, True), (512, True), (513, False)):  # 256 bytes a row; the last element decides
        stub.register(low | BIT_21, 1 << 20, kind=gpu_stub.DEVICE)
        base = Array(np.zeros((rows, 128), np.float16), address=low | BIT_21)
        launch[1](Descriptor(base, [rows, 128], [128, 1], [16, 64]))
        address = encoded(stub.last("bit").parameters[0])["address"]
        assert address == (low if cleared else low | BIT_21)


def test_a_map_is_encoded_once_and_again_when_anything_changes(stub):
    launch, asked = launcher("cached", layout_of("d", 2))
    d = matrix(rows=1024)

    def encodes():
        """Whether the driver is asked: here it refuses once."""
        stub.fail("cuTensorMapEncodeTiled", 1)
        try:
            launch[1](d)
        except ArgumentError as error:
            refusal = error
        else:
            stub.fail_no_more()
            return False
        assert "the driver refuses its tensor map (error" in str(refusal)
        assert "INVALID_VALUE" in str(refusal.__cause__)
        launch[1](d)
        return True

    assert encodes()
    assert not encodes()
    first = d._silo_tensor_map
    d.shape = [1000, 128]
    assert encodes()
    assert encoded(stub.last("cached").parameters[0])["sizes"] == (128, 1000)
    d.shape[0] = 900  # in place
    assert encodes()
    assert encoded(stub.last("cached").parameters[0])["sizes"] == (128, 900)
    d.strides = (256, 1)
    assert encodes()
    other = matrix(rows=1024)
    d.base = other.base
    assert encodes()
    assert encoded(stub.last("cached").parameters[0])["address"] == other.base.data_ptr()
    d.padding = "nan"
    assert encodes()
    d.padding, d.strides, d.shape = "zero", [128, 1], [1024, 128]
    assert encodes()
    assert len(asked.calls) == 1
    assert d._silo_tensor_map is not first
    d.block_shape = [32, 64]  # other code may be needed; the map follows the code
    assert not encodes()
    assert len(asked.calls) == 2


def test_kernels_with_other_boxes_share_a_descriptor(stub):
    d = matrix(rows=1024)
    launchers = [
        launcher(f"shared{rows}", layout_of("d", 2), maps=(replace(FORM, box=(rows, 64)),))[0] for rows in (1, 2, 4, 8)
    ]
    for launch in launchers:
        launch[1](d)
    stub.fail("cuTensorMapEncodeTiled", 1, times=-1)
    for launch in launchers:
        launch[1](d)
    assert [encoded(stub.last(f"shared{rows}").parameters[0])["box"][1] for rows in (1, 2, 4, 8)] == [1, 2, 4, 8]


def test_many_maps_of_one_descriptor_do_not_pile_up(stub):
    launch, _ = launcher("pile", layout_of("d", 2))
    d = matrix(rows=1024)
    for rows in range(1, 200):
        d.shape = [rows, 128]
        launch[1](d)
        assert encoded(stub.last("pile").parameters[0])["sizes"] == (128, rows)


@pytest.mark.parametrize("kind", [Frozen, Slotted])
def test_objects_that_take_no_attributes(stub, kind):
    launch, _ = launcher(f"other_{kind.__name__}", layout_of("d", 2))
    d = kind(matrix(rows=1024).base, [1024, 128], [128, 1], [16, 64])
    for _ in range(3):
        launch[1](d)
        assert encoded(stub.last(f"other_{kind.__name__}").parameters[0])["address"] == d.base.data_ptr()


def test_copies_start_without_a_map(stub):
    launch, _ = launcher("copied", layout_of("d", 2))
    d = matrix(rows=1024)
    launch[1](d)
    for made in (pickle.loads(pickle.dumps(d._silo_tensor_map)), copy.deepcopy(d._silo_tensor_map)):
        assert made is None
    twin = copy.copy(d)
    twin._silo_tensor_map = None
    twin.base = matrix(rows=1024).base
    launch[1](twin)
    assert encoded(stub.last("copied").parameters[0])["address"] == twin.base.data_ptr()
    assert bytes(d._silo_tensor_map) != stub.last("copied").parameters[0]
    assert d == replace(d)
    with pytest.raises(TypeError):
        type(d._silo_tensor_map)()


def test_without_tensor_maps_a_descriptor_is_taken_apart(stub):
    launch, _ = launcher("apart", parts_of("d", 2), maps=(), element="float32")
    d = matrix(kind="float32", padding="nan", round_f32_to_tf32=True)
    launch[1](d)
    expected = [("Q", d.base.data_ptr()), ("q", 64), ("q", 128), ("q", 128), ("q", 1), ("b", 1), ("b", 1)]
    assert stub.last("apart").parameters == tuple(struct.pack("<" + code, value) for code, value in expected)
    launch[1](replace(d, padding="zero", round_f32_to_tf32=False))
    assert stub.last("apart").parameters[5:] == (b"\0", b"\0")


def test_the_block_shape_decides_the_code(stub):
    launch, asked = launcher("blocks", layout_of("d", 2))
    d = matrix()
    for block in ([16, 64], [32, 64], [16, 64], [1, 1], [1 << 20, 1], [16, 64]):
        d.block_shape = block
        launch[1](d)
    assert [call["d"].block_shape for call in asked.calls] == [(16, 64), (32, 64), (1, 1), (1 << 20, 1)]
    launch[1](Descriptor(d.base, d.shape, d.strides, [16, 64]))
    assert len(asked.calls) == 4


def test_a_bound_launcher_passes_maps_and_checks_rank_and_dtype(stub):
    layout = (*layout_of("d", 2), LayoutSlot("n", AbiType.I32))
    launch, asked = launcher("frozen", layout)
    d = matrix(rows=1024)
    bound = make_bound_launcher(launch.name, launch.resolve(d, 3), asked.signature, grid=(1,))
    bound(d, 5)
    assert encoded(stub.last("frozen").parameters[0])["address"] == d.base.data_ptr()
    with pytest.raises(ArgumentError, match="frozen: the tensor descriptor 'd' has 1 dimensions; this code takes one"):
        bound(Descriptor(d.base, [1024], [1], [64]), 5)
    with pytest.raises(ArgumentError, match="'d' has elements of type float32; float16 is declared"):
        bound(matrix(kind="float32"), 5)
    with pytest.raises(ArgumentError, match="'d' needs a tensor descriptor of float16"):
        bound(d.base, 5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"shape": [0, 128]}, r"has shape\[0\] = 0"),
        ({"shape": [1 << 31, 128]}, r"has shape\[0\] = 2147483648"),
        ({"shape": []}, "has no shape of 1 to 5 integers"),
        ({"shape": [1] * 6}, "has no shape of 1 to 5 integers"),
        ({"shape": "ab"}, "has no shape"),
        ({"shape": [64]}, "has another number of strides than extents"),
        ({"strides": [128, 2]}, r"has strides\[1\] = 2; the last axis is contiguous"),
        ({"strides": [127, 1]}, r"has strides\[0\] = 127 elements of 2 bytes; a stride is a multiple of 16 bytes"),
        ({"strides": [-128, 1]}, r"has strides\[0\] = -128"),
        ({"strides": [1 << 39, 1]}, r"has strides\[0\]"),
        ({"strides": [1.5, 1]}, "has no strides of 1 to 5 integers"),
        ({"block_shape": [16, 48]}, r"has block_shape\[1\] = 48, which is not a power of two"),
        ({"block_shape": [0, 64]}, r"has block_shape\[0\] = 0"),
        ({"block_shape": [16]}, "has a block shape of another rank"),
        ({"block_shape": None}, "has no block shape of integers"),
        ({"padding": "one"}, "has no padding of 'zero' or 'nan'"),
        ({"padding": None}, "has no padding"),
        ({"base": None}, "has a base that is not an array of numbers"),
        ({"base": 3}, "has a base that is not an array of numbers"),
    ],
)
def test_what_no_map_can_be_made_of(stub, change, reason):
    launch, asked = launcher("refused", layout_of("d", 2))
    with pytest.raises(ArgumentError, match="refused: the tensor descriptor 'd' " + reason):
        launch[1](replace(matrix(), **change))
    assert not asked.calls
    assert stub.last("refused").count == 0


def test_where_the_base_is(stub):
    launch, asked = launcher("placed", (*layout_of("d", 2), *layout_of("e", 2)), maps=(FORM, replace(FORM, name="e")))
    d, e = matrix(), matrix()
    e.base.device = "cuda:1"
    with pytest.raises(ArgumentError, match="placed: argument 'd' is on cuda:0 and 'e' on cuda:1"):
        launch[1](d, e)
    e.base.device = "cuda:0"
    e.base._address += 8
    with pytest.raises(ArgumentError, match=r"'e' has its base at 0x[0-9a-f]*8, which is not a multiple of 16 bytes"):
        launch[1](d, e)
    e.base._address -= 8
    launch[1](d, e)
    assert asked.calls[0].device == (2, 0)
    addresses = [encoded(stub.last("placed").parameters[at])["address"] for at in (0, 5)]
    assert addresses == [one.base.data_ptr() & ~BIT_21 for one in (d, e)]


def test_an_array_is_no_descriptor_and_the_other_way_round(stub):
    launch, asked = launcher("kinds", (*layout_of("d", 2), LayoutSlot("n", AbiType.I32)))
    d = matrix()
    with pytest.raises(ArgumentError, match="kinds: argument 'd' needs a tensor descriptor of 2 dimensions"):
        launch[1](d.base, 1)
    with pytest.raises(ArgumentError, match="kinds: argument 'n' needs an int32"):
        launch[1](d, d)
    pointer = make_launcher("pointer", Signature((Parameter("p", ParameterKind.POINTER),)), on_miss=asked)
    with pytest.raises(ArgumentError, match="pointer: argument 'p' needs a kernel's array"):
        pointer[1](d)


def test_more_descriptors_than_a_call_may_have(stub):
    names = [f"d{i}" for i in range(33)]
    launch = make_launcher("many", Signature(tuple(Parameter(name) for name in names)), on_miss=lambda call: None)
    d = matrix()
    with pytest.raises(ArgumentError, match="the tensor descriptor 'd32' is one too many: a call has at most 32"):
        launch[1](*[d] * 33)


def test_a_grid_reads_the_shape_of_a_descriptor(stub):
    _, asked = launcher("grid", layout_of("d", 2))
    loaded = native.LoadedKernel(module("grid", params="128,4,4,8,8"), "grid")
    info = LaunchInfo("grid", layout_of("d", 2), tensor_maps=(FORM,))
    grid = trace_grid(lambda a: (a.d.shape[0], a.d.stride(0) // 64), ["d"], [])
    binding = bind(loaded, info, asked.signature, Specialization(), {}, grid=grid)
    launch = make_launcher("grid", Signature((Parameter("d"),)), on_miss=lambda call: binding)
    launch(matrix(rows=48))
    assert stub.last("grid").grid == (48, 2, 1)


def test_threads_share_a_descriptor_and_change_it(stub):
    d = matrix(rows=1024)
    seen, failures = [], []

    def body(record):
        found = encoded(record.parameters[0])
        seen.append((found["sizes"][1], struct.unpack("<i", record.parameters[1])[0]))

    def work(rows):
        try:
            launch, _ = launcher(f"thread{rows}", layout_of("d", 2))  # the stub keeps one record a function
            stub.run(f"thread{rows}", body)
            for _ in range(200):
                d.shape = [rows, 128]
                launch[1](d)
        except Exception as error:  # noqa: BLE001  # reported below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(600 + i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert {rows for rows, _ in seen} == set(range(600, 606))
    assert all(mapped == rows for mapped, rows in seen)  # a map and its shape are always of one moment


def test_a_capture_sees_only_the_launch(stub):
    launch, _ = launcher("captured", layout_of("d", 2))
    d = matrix(rows=1024)
    launch[1](d, stream=64)
    stub.capture(64)
    d.shape = [512, 128]
    launch[1](d, stream=64)
    assert stub.count("broken") == 0
    stub.capture(64, 0)
    assert encoded(stub.last("captured").parameters[0])["sizes"] == (128, 512)


def test_a_map_that_no_driver_encodes_is_refused_when_it_is_bound(stub):
    for form, reason in (
        (replace(FORM, box=(512, 64)), "more than 256 elements"),
        (replace(FORM, swizzle=1), "a swizzle of 32 bytes takes at most that"),
        (replace(FORM, swizzle=4), "no swizzle 4"),
        (replace(FORM, box=(16, 4)), "not a multiple of 16"),
    ):
        launch, _ = launcher("unbound", layout_of("d", 2), maps=(form,))
        with pytest.raises(DeviceError, match=f"unbound: the tensor map of 'd' cannot be encoded: .*{reason}"):
            launch[1](matrix())
    launch, _ = launcher("unbound", (*layout_of("d", 2), LayoutSlot("d", AbiType.TENSORMAP)))
    with pytest.raises(ValueError, match="two tensor maps of one parameter"):
        launch[1](matrix())
    launch, _ = launcher("unbound", (LayoutSlot("d", AbiType.TENSORMAP), LayoutSlot("d", AbiType.I32, "shape.4")))
    with pytest.raises(ValueError, match="not a part of a tensor descriptor"):
        launch[1](matrix())
    launch, _ = launcher("unbound", layout_of("d", 2), maps=())
    with pytest.raises(DeviceError, match="unbound: parameter d is a tensor map, and nothing says how to encode it"):
        launch[1](matrix())


def test_launches_keep_nothing(stub):
    launch, _ = launcher("kept", layout_of("d", 2))
    d, other = matrix(rows=1024), matrix(rows=1024)
    bad = replace(d, strides=[127, 1])

    def some():
        for rows in range(1, 200):
            d.shape = [rows, 128]
            launch[1](d)
            launch[1](other)
            with pytest.raises(ArgumentError):
                launch[1](bad)

    some()
    gc.collect()
    before, references = sys.getallocatedblocks(), sys.getrefcount(d.base)
    some()
    gc.collect()
    blocks, after = sys.getallocatedblocks() - before, sys.getrefcount(d.base)
    assert blocks < 100
    assert after == references
