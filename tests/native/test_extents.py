"""Extents in the guard: of kernels whose code is made for one shape, one layout or one grid."""
# pyright: reportCallIssue=false

import gc

import numpy as np
import pytest

import launch_kernels as kernels
from silo.core.expressions import Const, encode
from silo.core.extents import HeldExtents
from silo.core.signature import Parameter, ParameterKind
from silo.errors import ArgumentError, SourceError
from silo.launch import native
from silo.launch.arguments import ValueKind
from silo.launch.buffers import Buffer
from silo.launch.runtime import inspect_call, make_launcher

SHAPE = HeldExtents.of({"x": "shape"})
LAYOUT = HeldExtents.of({"x": "layout"})
GRID = HeldExtents.of(grid=True)


def aligned(*shape, dtype=np.float32):
    """An array at a multiple of 64 bytes: alignment tells no two of these apart."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    storage = np.zeros(size + 64, np.uint8)
    start = -storage.ctypes.data % 64
    return storage[start : start + size].view(dtype).reshape(shape)


def misses(launch, *arrays):
    """How many of these calls were new."""
    before = launch.misses
    for array in arrays:
        launch[1](array)
    return launch.misses - before


def test_a_kernel_that_asks_for_nothing_takes_every_shape():
    launch, asked = kernels.nothing("x")
    assert misses(launch, aligned(4), aligned(8), aligned(4, 4), aligned(4, 4).T) == 1
    assert asked.calls[0]["x"].shape is None


def test_shapes_are_told_apart_number_by_number():
    launch, asked = kernels.nothing("x", extents=SHAPE)
    shapes = [(), (0,), (4,), (8,), (4, 8), (8, 4), (4, 1, 8), (4, 8, 1), (1,) * 32]
    assert misses(launch, *[aligned(*shape) for shape in shapes]) == len(shapes)
    assert misses(launch, *[aligned(*shape) for shape in shapes]) == 0
    assert [call["x"].shape for call in asked.calls] == shapes
    assert misses(launch, aligned(8, 4).T) == 0, "its strides are free"
    assert asked.calls[0]["x"].strides is None


def test_layouts_are_told_apart_by_strides_too():
    launch, asked = kernels.nothing("x", extents=LAYOUT)
    assert misses(launch, aligned(4, 8), aligned(8, 4).T, aligned(4, 16)[:, ::2], aligned(4, 8)) == 3
    assert [call["x"].strides for call in asked.calls] == [(8, 1), (1, 4), (16, 2)]
    assert misses(launch, np.broadcast_to(aligned(1, 8), (4, 8)), aligned(4, 8)[::-1]) == 2


def test_a_layout_of_parts_of_elements_is_refused_and_not_rounded():
    launch, _ = kernels.nothing("x", extents=LAYOUT)
    records = aligned(9, dtype=np.dtype([("a", "<f4"), ("b", "<u2")]))
    with pytest.raises(ArgumentError, match="'x' needs an array whose strides are whole elements"):
        launch[1](records["a"])
    shaped, _ = kernels.nothing("x", extents=SHAPE)
    assert misses(shaped, records["a"], aligned(9)) <= 2


def test_extents_of_several_arguments_are_not_taken_for_one_another():
    """The words of two arguments follow each other; ranks tell (4,) beside (8, 2) from (4, 8) beside (2,)."""
    launch, _ = kernels.nothing("x", "y", extents=HeldExtents.of({"x": "shape", "y": "layout"}))
    pairs = [
        ((4,), (8, 2)),
        ((4, 8), (2,)),
        ((), (4, 8, 2)),
        ((4, 8, 2), ()),
        ((1, 4), (8,)),
        ((4,), (8,)),
        ((8,), (4,)),
    ]
    for left, right in pairs * 2:
        launch[1](aligned(*left), aligned(*right))
    assert launch.misses == len(pairs)


def test_options_and_keys_beside_extents():
    parameters = [Parameter("x"), Parameter("n", specialize=False), Parameter("c", ParameterKind.CONSTEXPR)]
    launch, asked = kernels.nothing(parameters=parameters, key=("n",), extents=SHAPE)
    for shape in ((4,), (4, 4)):
        for number, constant, warps in ((20, "a", 4), (40, "a", 4), (20, "b", 4), (20, "a", 8)):
            for _ in range(2):
                launch[1](aligned(*shape), number, constant, num_warps=warps)
    assert launch.misses == len(asked.calls) == 8
    gc.collect()
    launch[1](aligned(4), 20, "a", num_warps=4)
    assert launch.misses == 8


def test_what_is_no_array_has_no_extents():
    held = aligned(4)  # a call without arrays goes to a GPU where there is one
    launch, asked = kernels.nothing("x", "held", extents=LAYOUT)
    for value in (None, None, 3, 3, 2.5, True):
        launch[1](value, held)
    assert [call["x"].kind for call in asked.calls] == [ValueKind.NONE, ValueKind.INT, ValueKind.FLOAT, ValueKind.BOOL]
    assert {call["x"].shape for call in asked.calls} == {None}
    optional, asked = kernels.nothing("x", "y", config_names=("y",), extents=HeldExtents.of({"y": "shape"}))
    optional[1](held)
    assert asked.calls[0]["y"].kind is ValueKind.ABSENT


def test_an_address_has_no_shape_and_is_refused():
    launch, _ = kernels.nothing(parameters=[Parameter("x", ParameterKind.POINTER)], extents=SHAPE)
    with pytest.raises(ArgumentError, match="'x' needs an array, whose shape decides the code of this kernel"):
        launch[1](aligned(4).ctypes.data)


class Shapeless:
    """A duck type with an address and nothing else."""

    def __init__(self):
        self.array = aligned(4)
        self.dtype = self.array.dtype

    def data_ptr(self):
        return self.array.ctypes.data


def test_an_array_without_a_shape_is_refused():
    launch, _ = kernels.nothing("x", extents=SHAPE)
    with pytest.raises(ArgumentError, match="'x' needs an array with a shape, which decides the code"):
        launch[1](Shapeless())
    free, _ = kernels.nothing("x")
    free[1](Shapeless())


class Capsules:
    """An array that is read by capsule, of another shape each time."""

    def __init__(self):
        self.made = []

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        self.made.append(aligned(4 + len(self.made)))
        return self.made[-1].__dlpack__()


def test_the_shape_is_that_of_the_memory_that_was_read():
    launch, asked = kernels.nothing("x", extents=LAYOUT)
    array = Capsules()
    launch[1](array)
    assert len(asked.calls) == 1
    assert asked.calls[0]["x"].shape == (4,)


@pytest.mark.parametrize("library", ["numpy", "buffer", "torch"])
def test_every_library_says_its_shape(library):
    launch, asked = kernels.nothing("x", extents=LAYOUT)
    if library == "torch":
        torch = pytest.importorskip("torch")
        arrays = [torch.zeros(4, 6), torch.zeros(6, 4).t(), torch.zeros(4, 6)]
    elif library == "buffer":
        arrays = [Buffer((4, 6), "float32"), Buffer((6, 4), "float32"), Buffer((4, 6), "float32")]
    else:
        arrays = [aligned(4, 6), aligned(6, 4).T, aligned(4, 6)]
    assert misses(launch, *arrays) in (2, 3)  # the third may lie elsewhere
    transposed = ((6, 4), (4, 1)) if library == "buffer" else ((4, 6), (1, 4))
    assert [(call["x"].shape, call["x"].strides) for call in asked.calls][:2] == [((4, 6), (6, 1)), transposed]


def tensors_of(torch):
    """Of 0 to 8 axes, plain, permuted, cut, spread and empty; all in one piece of memory, which tells none apart."""
    memory = torch.zeros(1 << 16)
    found = [memory[0], memory[:0], memory[:24:3], memory[:16].reshape(4, 4).t(), memory[:5].expand(3, 5)]
    for axes in range(1, 9):
        sizes = [2 + axis % 3 for axis in range(axes)]
        array = memory.as_strided(sizes, [7 * axis + 1 for axis in range(axes)])
        found += [array, array.permute(tuple(reversed(range(axes)))), array[..., :1]]
    return found


@pytest.fixture(params=["read where they lie", "read by torch's functions"])
def torch(request):
    library = pytest.importorskip("torch")
    if not native.connect_torch():
        pytest.skip("this torch is read through DLPack")
    probes = native.probes(library)
    if request.param == "read where they lie":
        assert native.torch_probe(probes)[2] > 0, "this torch keeps extents elsewhere: calls that hold them are slower"
    else:
        assert native.torch_probe(probes[:-1])[2] == 0  # nothing is known of tensors with many axes
    yield library
    native.torch_probe(probes)


@pytest.mark.parametrize("kind", ["shape", "layout"])
def test_torch_tensors_have_the_extents_that_torch_says(torch, kind):
    launch, asked = kernels.nothing("x", extents=HeldExtents.of({"x": kind}))
    known = set()
    for tensor in tensors_of(torch) * 2:
        said = (tuple(tensor.shape), tensor.stride() if kind == "layout" else None)
        new = said not in known
        assert misses(launch, tensor) == new
        if new:
            assert (asked.calls[-1]["x"].shape, asked.calls[-1]["x"].strides) == said
        known.add(said)


def test_dynamic_layouts_of_torch_tensors_are_those_of_other_arrays(torch):
    launch, asked = kernels.nothing("x", extents=HeldExtents.of({"x": "dynamic"}))
    for tensor in tensors_of(torch):
        if tensor.ndim > 5:
            with pytest.raises(ArgumentError, match="up to 5 dimensions"):
                launch[1](tensor)
            continue
        assert misses(launch, tensor, tensor.numpy()) <= 1
    assert len(asked.calls) > 8


def test_a_torch_tensor_that_gets_another_shape_is_another_call(torch):
    launch, asked = kernels.nothing("x", extents=LAYOUT)
    tensor = torch.zeros(4, 6)
    for change in (
        lambda: tensor,
        tensor.t_,
        lambda: tensor.resize_(3, 5),
        *[lambda: tensor.unsqueeze_(0)] * 5,  # past the axes that lie in the tensor itself, and back
        *[lambda: tensor.squeeze_(0)] * 5,
        lambda: tensor.as_strided_((2, 2), (3, 1)),
    ):
        change()
        launch[1](tensor)
        if len(asked.calls) == launch.misses:
            shape, strides = asked.calls[-1]["x"].shape, asked.calls[-1]["x"].strides
    assert (shape, strides) == ((2, 2), (3, 1))
    assert launch.misses == 9
    assert sorted(len(call["x"].shape) for call in asked.calls) == [2, 2, 2, 2, 3, 4, 5, 6, 7]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_torch_tensors_of_other_classes_are_asked_by_their_own_functions(torch):
    """They share the Python class; what lies where a plain tensor has its extents is nothing to go by."""
    launch, asked = kernels.nothing("x", extents=LAYOUT)
    nested = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)])
    assert type(nested) is torch.Tensor
    for tensor in (nested, torch.zeros(4, 4).to_sparse()):
        with pytest.raises(ArgumentError):
            launch[1](tensor)
    assert asked.calls == []


def test_a_torch_tensor_that_changes_its_shape_during_the_call_is_found():
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(4, 6)
    launch, asked = kernels.nothing("x", extents=LAYOUT)

    def grid(_meta):
        tensor.t_()  # the same memory
        return 1

    launch[1](tensor)
    with pytest.raises(ArgumentError, match="'x' needs an array that keeps its shape during the call"):
        launch[grid](tensor)
    assert len(asked.calls) == 1
    free, _ = kernels.nothing("x")
    free[grid](tensor)


def test_a_miss_that_changes_the_shape_of_a_torch_tensor_is_found():
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(4, 6)
    asked = kernels.Asked("nothing")

    def on_miss(call):
        tensor.t_()
        return asked(call)

    launch = make_launcher("nothing", kernels.any_parameters("x"), on_miss=on_miss, extents=LAYOUT)
    with pytest.raises(ArgumentError, match="keeps its shape"):
        launch[1](tensor)


def test_grids_are_told_apart_where_they_decide_the_code():
    held = aligned(4)
    launch, asked = kernels.nothing("x", extents=GRID)
    for grid in (4, (4,), (4, 1), [4, 1, 1], (1, 4), (4, 2), 5):
        launch[grid](held)
        launch(held, grid=grid)
    assert [call.grid for call in asked.calls] == [(4, 1, 1), (1, 4, 1), (4, 2, 1), (5, 1, 1)]
    free, _ = kernels.nothing("x")
    for grid in (4, 5, (1, 4)):
        free[grid](held)
    assert free.misses == 1


def test_a_grid_and_shapes_are_held_together():
    launch, asked = kernels.nothing("x", extents=HeldExtents.of({"x": "shape"}, grid=True))
    for grid, shape in ((1, (4,)), (4, (1,)), (1, (4,)), ((1, 4), ()), (4, (1,))):
        launch[grid](aligned(*shape))
    assert [(call.grid, call["x"].shape) for call in asked.calls] == [
        ((1, 1, 1), (4,)),
        ((4, 1, 1), (1,)),
        ((1, 4, 1), ()),
    ]


def test_a_grid_that_decides_the_code_is_given_as_integers():
    launch, _ = kernels.nothing("n", extents=GRID)
    for call in (lambda: launch[lambda meta: 4](7), lambda: launch(7, grid=lambda meta: 4)):
        with pytest.raises(
            ArgumentError, match="nothing: its code is made for one grid, so a call gives it as integers"
        ):
            call()
    with pytest.raises(SourceError, match="made for one grid"):
        kernels.nothing("n", extents=GRID, grid=lambda meta: 4)


def test_inspecting_and_resolving_see_the_same_extents():
    launch, asked = kernels.nothing("x", extents=HeldExtents.of({"x": "layout"}, grid=True))
    call = inspect_call(launch, kernels.any_parameters("x"), aligned(3, 5), grid=(2, 3))
    assert (call["x"].shape, call["x"].strides, call.grid) == ((3, 5), (5, 1), (2, 3, 1))
    assert launch.misses == 0
    launch.resolve(aligned(3, 5), grid=(2, 3))
    launch[2, 3](aligned(3, 5))
    assert launch.misses == len(asked.calls) == 1


def test_unknown_names_are_refused():
    with pytest.raises(SourceError, match="the extents of y decide its code, and it has x"):
        kernels.nothing("x", extents=HeldExtents.of({"y": "shape"}))


def test_a_launch_goes_to_the_code_of_its_shape():
    asked = []

    def on_miss(call):
        (size,) = call["out"].shape
        asked.append(size)
        program = encode(Const(size), {"out": 0}).to_bytes()  # code of this kernel counts as many programs as its shape
        return native.Binding(kernels.loaded("ids"), ((0, "ptr", True),), {"SIZE": size}, (program,))

    held = HeldExtents.of({"out": "shape"})
    launch = make_launcher("ids", kernels.any_parameters("out"), on_miss=on_miss, extents=held)
    for size in (3, 5, 3, 5):
        out = aligned(size, dtype=np.uint64)
        launch(out)
        assert out.tolist() == list(range(size))
    assert asked == [3, 5]
