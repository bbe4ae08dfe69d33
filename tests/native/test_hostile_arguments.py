"""Arguments that lie about themselves, change within a call, or call kernels again."""

import gc
import os
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import hostile_arrays as hostile
import launch_kernels as kernels
from silo.errors import ArgumentError
from silo.launch import native
from silo.launch.arguments import ValueKind
from silo.launch.hooks import launch_hook
from timed_program import run_timed

PROGRAM = Path(__file__).parents[1] / "samples" / "recursion_program.py"


@pytest.mark.parametrize("make", [hostile.Capsule, lambda **said: hostile.Capsule(major=1, **said), hostile.exchanged])
@pytest.mark.parametrize(("said", "why"), hostile.WRONG)
def test_numbers_of_a_tensor_that_cannot_be_are_refused(make, said, why):
    array = make(**said)
    with pytest.raises(ValueError, match=why):
        native.read(array)
    launch, _ = kernels.nothing("x")
    with pytest.raises(ArgumentError, match="argument 'x' needs an array") as raised:
        launch[1](array)
    assert why in str(raised.value.__cause__)


@pytest.mark.parametrize("make", [hostile.Capsule, lambda **said: hostile.Capsule(major=1, **said), hostile.exchanged])
@pytest.mark.parametrize("said", hostile.RIGHT)
def test_odd_numbers_are_taken(make, said):
    launch, _ = kernels.nothing("x")
    launch[1](make(**said))


def test_a_capsule_of_another_generation_is_refused():
    with pytest.raises(ValueError, match=r"version 2\.0; 1 is known"):
        native.read(hostile.Capsule(major=2))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"shape": (-1,)}, "which is negative"),
        ({"shape": (1 << 40, 1 << 40)}, "beyond any memory"),
        ({"shape": (1 << 70,)}, "too big|too large"),
        ({"shape": (1,) * 33}, "33 dimensions"),
        ({"shape": (4, 4), "strides": (1 << 62, 4)}, "beyond any memory"),
        ({"shape": (4, 4), "strides": (4,)}, "2 extents and 1 strides"),
        ({"shape": (4,), "strides": (-(1 << 63),)}, "beyond any memory"),
    ],
)
def test_numbers_of_a_dictionary_that_cannot_be_are_refused(said, why):
    with pytest.raises((ValueError, OverflowError), match=why):
        native.read(hostile.CudaDict(**said))


def test_strides_of_a_dictionary_are_in_bytes():
    read = native.read(hostile.CudaDict(shape=(2, 3), strides=(64, 4)))
    assert read[-2:] == ((2, 3), (16, 1))


@pytest.mark.parametrize("shape", [(-1,), (1 << 40, 1 << 40), (1 << 70,)])
def test_shapes_of_a_duck_type_that_cannot_be_are_refused(shape):
    launch, _ = kernels.nothing("x")
    with pytest.raises(ArgumentError, match="argument 'x' needs an array with a shape"):
        launch[1](hostile.Duck(shape=shape))


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 40), (-1, 4)])
def test_a_grid_does_not_count_with_such_shapes(shape):
    array = hostile.Duck()
    launch, _ = kernels.nothing("x")
    launch[1](array)
    array.shape = shape
    with pytest.raises((ValueError, OverflowError, ArgumentError)):
        launch.inspect(array)


# ---- within a call


def test_an_argument_that_loses_its_memory_within_the_call_is_an_error():
    def grid(meta):
        meta["x"].address += 4096
        return (1,)

    launch, _ = kernels.nothing("n", "x")
    array = hostile.Duck()
    launch[1](1, array)
    with pytest.raises(ArgumentError, match="argument 'x' needs an array that keeps its memory during the call"):
        launch[grid](1, array)
    with launch_hook(lambda event: grid(event.arguments) and None), pytest.raises(ArgumentError, match="keeps its"):
        launch[1](1, array)
    launch[1](1, array)


def test_a_tensor_that_a_grid_function_frees_is_an_error():
    torch = pytest.importorskip("torch")

    def grid(meta):
        meta["x"].untyped_storage().resize_(0)
        return (1,)

    launch, _ = kernels.nothing("x")
    with pytest.raises(ArgumentError, match="keeps its memory"):
        launch[grid](torch.ones(1 << 16))


class Index:
    """An integer that runs ``then`` when it is asked for its value."""

    def __init__(self, then):
        self.then = then

    def __index__(self):
        self.then()
        return 1


def with_method(base, name, then):
    """An array of a class of its own, which runs ``then`` when it is read."""

    def method(self, *args, **kwargs):
        then()
        return getattr(base, name)(self, *args, **kwargs)

    return type("Own", (base,), {name: method})()


def capsule_that(then):
    return with_method(hostile.Capsule, "__dlpack__", then)


def duck_that(then):
    return with_method(hostile.Duck, "data_ptr", then)


def descriptor_that(then):
    class Own:
        __slots__ = ()
        base = property(lambda self: (then(), np.zeros((16, 16), np.float32))[1])
        shape, strides, block_shape, padding = (16, 16), (16, 1), (16, 16), "zero"

    native.adapt_descriptor(Own)
    return Own()


class Stream:
    def __init__(self, then):
        self.then = then

    def __cuda_stream__(self):
        self.then()
        return (0, 0)


# Each runs ``then`` within the call of a launcher of two parameters, of which the first is ``array``.
RUNS = {
    "grid function": lambda launch, array, then: launch[lambda meta: (then(), (1,))[1]](array, 1),
    "extent": lambda launch, array, then: launch(array, 1, grid=(Index(then),)),
    "extent in a list": lambda launch, array, then: launch(array, 1, grid=[Index(then)]),
    "integer": lambda launch, array, then: launch[1](array, Index(then)),
    "duck type": lambda launch, array, then: launch[1](array, duck_that(then)),
    "capsule": lambda launch, array, then: launch[1](array, capsule_that(then)),
    "descriptor": lambda launch, array, then: launch[1](array, descriptor_that(then)),
    "stream": lambda launch, array, then: launch[1](array, 1, stream=Stream(then)),
}
MANY = 1 << 20


def call_with_hook(launch, array, then):
    with launch_hook(lambda event: then()):
        launch[1](array, 1)


@pytest.mark.parametrize("what", [*RUNS, "hook"])
@pytest.mark.parametrize("known", [False, True], ids=["first call", "later call"])
def test_an_array_that_code_within_the_call_cuts_is_an_error(what, known):
    """The memory of an array goes while its address stays: whatever runs within a call may do that."""
    launch, _ = kernels.nothing("x", "y")
    run = RUNS.get(what, call_with_hook)
    array = np.ones(MANY, np.float32)
    cut = []

    def then():
        array.resize(16, refcheck=False)
        cut.append(1)

    if known:
        run(launch, np.ones(MANY, np.float32), lambda: None)
    with pytest.raises(ArgumentError, match="argument 'x' needs an array that keeps its memory during the call"):
        run(launch, array, then)
    assert cut


def test_an_array_that_the_first_call_s_compiler_cuts_is_an_error():
    array = np.ones(MANY, np.float32)
    asked = kernels.Asked("nothing")

    def compile_and_cut(call):
        array.resize(16, refcheck=False)
        return asked(call)

    launch = kernels.make_launcher("nothing", kernels.any_parameters("x"), on_miss=compile_and_cut)
    with pytest.raises(ArgumentError, match="keeps its memory"):
        launch[1](array)
    launch[1](array)


@pytest.mark.parametrize("what", RUNS)
def test_an_array_that_code_within_the_call_leaves_alone_is_taken(what):
    launch, _ = kernels.nothing("x", "y")
    ran = []
    RUNS[what](launch, np.ones(MANY, np.float32), lambda: ran.append(1))
    assert ran


def test_an_array_that_grows_where_it_is_may_be_used():
    launch, _ = kernels.nothing("x")
    array = np.ones(MANY, np.float32)
    array.resize(16, refcheck=False)
    moved = []

    def grid(meta):
        address = meta["x"].ctypes.data
        meta["x"].resize(17, refcheck=False)
        moved.append(meta["x"].ctypes.data != address)  # always, under a sanitizer's allocator
        return (1,)

    try:
        launch[grid](array)
        assert moved == [False]
    except ArgumentError:
        assert moved == [True]


def test_an_array_that_a_grid_function_lets_go_is_held():
    held = [np.ones(1 << 16, np.float32)]
    seen = weakref.ref(held[0])

    def grid(meta):
        del meta["x"], meta
        held.clear()
        gc.collect()
        assert seen() is not None
        return (1,)

    launch, asked = kernels.nothing("x")
    launch[1](np.ones(1, np.float32))
    asked.calls.clear()
    launch[grid](held[0])
    gc.collect()
    assert seen() is None


def test_a_grid_function_calls_the_kernel():
    out = np.zeros(64, np.int64)
    launch = kernels.make_launcher(
        "ids", kernels.any_parameters("out"), on_miss=kernels.Asked("ids", ((0, "ptr", True),))
    )

    def grid(meta):
        launch[(2,)](meta["out"][32:])
        return (3,)

    launch[grid](out)
    assert out[:4].tolist() == [0, 1, 2, 0]
    assert out[32:35].tolist() == [0, 1, 0]


@pytest.mark.spread
@pytest.mark.parametrize("what", ["grid", "hook", "argument", "descriptor"])
@pytest.mark.parametrize("where", ["main", "thread"])
def test_calls_within_calls_end(what, where):
    kernels.blob()
    status, said, complained = run_timed([sys.executable, str(PROGRAM), what, where], dict(os.environ), 60)
    assert (status, said, complained) == (0, "", "")


# ---- types


def duck_class():
    return type("Own", (hostile.Duck,), {})()


def dtype_class():
    dtype = type("Dtype", (), {"name": "float32"})()
    return type("Own", (hostile.Duck,), {"kept": dtype})(dtype=dtype)


def number_class():
    return type("Own", (), {"__index__": lambda self: 7})()


def buffer_class():
    return type("Own", (bytearray,), {})(64)


def capsule_class():
    return type("Own", (hostile.Capsule,), {})()


def stranger_class():
    return type("Own", (), {})()


@pytest.mark.parametrize(
    "make", [duck_class, dtype_class, number_class, buffer_class, capsule_class, stranger_class, hostile.exchanged]
)
def test_the_class_of_an_argument_is_not_kept(make):
    launch, asked = kernels.nothing("x", "y")
    array = make()
    one = weakref.ref(type(array))
    try:
        launch[1](array, 1)
    except ArgumentError:
        assert make is stranger_class
    asked.calls.clear()
    del array
    gc.collect()
    assert one() is None


@pytest.mark.all
def test_a_class_at_the_place_of_another_is_read_as_what_it_is():
    launch, asked = kernels.nothing("x")
    places = set()
    for turn in range(600):
        made = duck_class() if turn % 2 else number_class()
        places.add(id(type(made)))
        launch.forget()
        launch[1](made)
        assert asked.calls.pop().arguments[0].kind is (ValueKind.POINTER if turn % 2 else ValueKind.INT)
        del made
        if turn % 10 == 0:
            gc.collect()
    assert len(places) < 600
