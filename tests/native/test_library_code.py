"""Code that a library runs: a callable behind the guard, grid, hooks and errors of any kernel."""
# pyright: reportAttributeAccessIssue=false

import gc
import sys
import threading
import weakref

import numpy as np
import pytest

from silo.core.expressions import encode
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.trace import trace_value
from silo.errors import ArgumentError
from silo.launch import native
from silo.launch.hooks import launch_hook
from silo.launch.runtime import make_bound_launcher, make_launcher

HOST = (1, 3, 11, 13)
SIGNATURE = Signature(
    (
        Parameter("x", ParameterKind.POINTER, align=True),
        Parameter("out", ParameterKind.POINTER, align=True),
        Parameter("n", ParameterKind.INTEGER),
        Parameter("scale", ParameterKind.FLOAT, default=2.0),
        Parameter("BLOCK", ParameterKind.CONSTEXPR),
    )
)


def launcher(call, *, memory=HOST, index=0, layout=(), grid=None, config=None, **options):
    """A launcher whose every new situation leads to ``call``, and the bindings that were made."""
    made = []

    def on_miss(_):
        loaded = native.LoadedKernel(native.LibraryCode(call, "fake", index, memory), "entry", "scaled")
        made.append(native.Binding(loaded, layout, config or {"BLOCK": 64}, grid, effects={"out": "write"}))
        return made[-1]

    made_launcher = make_launcher("scaled", SIGNATURE, on_miss=on_miss, config_names=["BLOCK"], **options)
    return made_launcher, made


@pytest.fixture
def arrays():
    x = np.arange(100, dtype=np.float32)
    return x, np.zeros_like(x)


def scaled(arguments, grid, stream):
    x, out, n, scale, _ = arguments
    out[:n] = x[:n] * scale


def test_the_callable_gets_the_objects_the_grid_and_the_stream(arrays):
    seen = []
    launch, made = launcher(lambda *call: seen.append(call))
    x, out = arrays
    stream = object()
    for _ in range(3):
        assert launch[(2, 3)](x, out, 100, BLOCK=32, stream=stream) is None
        launch[4](n=7, out=out, x=x, scale=0.5)
    assert launch.misses == len(made) == 2  # one for each BLOCK; a hit asks nobody
    (arguments, grid, given), (named, short, none) = seen[-2:]
    assert arguments[0] is x
    assert arguments[1] is out
    assert arguments[2:] == (100, 2.0, 32)  # a default
    assert (grid, given) == ((2, 3, 1), stream)
    assert named[2:] == (7, 0.5, 64)  # what the config sets
    assert (short, none) == ((4, 1, 1), None)


def test_it_computes_and_a_new_situation_asks_again(arrays):
    launch, made = launcher(scaled)
    x, out = arrays
    for n in (96, 32, 96):
        launch[1](x, out, n)
    assert len(made) == 1
    launch[1](x, out, 97)  # no longer a multiple of 16
    launch[1](x.astype(np.float64), out, 96)
    assert len(made) == 3
    np.testing.assert_array_equal(out[:96], x[:96] * 2)


def test_declared_grids_and_grids_of_nothing(arrays):
    seen = []
    blocks = trace_value(lambda a: (a.n + 63) // 64, SIGNATURE.names)
    program = encode(blocks, {name: i for i, name in enumerate(SIGNATURE.names)}).to_bytes()
    launch, _ = launcher(lambda arguments, grid, stream: seen.append(grid), grid=(program,))
    x, out = arrays
    launch(x, out, 100)
    launch(x, out, 64 * 5)
    launch(x, out, 0)
    assert seen == [(2, 1, 1), (5, 1, 1)]
    with pytest.raises(ArgumentError, match="scaled"):
        launch[1 << 40](x, out, 100)


@pytest.mark.parametrize("release", [True, False])
def test_what_the_callable_raises_passes_through_with_the_kernels_name(arrays, release):
    class OwnError(Exception):
        pass

    def fails(arguments, grid, stream):
        raise OwnError("the library says so")

    launch, _ = launcher(fails, release_gil=release)
    for _ in range(2):
        with pytest.raises(OwnError, match="the library says so") as caught:
            launch[3](*arrays, 100)
        (note,) = caught.value.__notes__
        assert note == "scaled: raised by 'entry' on fake; grid=(3, 1, 1), config {'BLOCK': 64}"
    assert launch.misses == 1


def test_arguments_are_checked_as_for_any_kernel(arrays):
    x, out = arrays
    launch, _ = launcher(scaled, layout=((0, "ptr", False), (1, "ptr", True), (2, "i32", False)))
    fixed = np.zeros_like(out)
    fixed.flags.writeable = False
    with pytest.raises(ArgumentError, match="'out' needs a writable array"):
        launch[1](x, fixed, 100)
    with pytest.raises(ArgumentError, match="'n' needs an int32"):
        launch[1](x, out, 1 << 40)
    with pytest.raises(ArgumentError, match="'x' needs"):
        launch[1]("text", out, 100)
    launch[1](x, out, 100)
    np.testing.assert_array_equal(out, x * 2)
    elsewhere, _ = launcher(scaled, memory=(8,))
    with pytest.raises(ArgumentError, match=r"memory of cpu \(DLPack device type 1\), which fake code cannot use"):
        elsewhere[1](x, out, 100)


def test_calls_that_skip_the_guard_are_on_the_right_device(arrays):
    typed = Signature(
        (Parameter("x", ParameterKind.POINTER), Parameter("out", ParameterKind.POINTER, effect=Effect.WRITE))
    )

    def bound(index):
        loaded = native.LoadedKernel(native.LibraryCode(copy, "fake", index, HOST), "entry", "copied")
        return make_bound_launcher("copied", native.Binding(loaded, (), {}), typed)

    def copy(arguments, grid, stream):
        arguments[1][:] = arguments[0]

    x, out = arrays
    bound(0)[1](x, out)
    np.testing.assert_array_equal(out, x)
    with pytest.raises(ArgumentError, match="'x' is on fake:0, and this code is loaded on fake:1"):
        bound(1)[1](x, out)


def test_hooks_see_it(arrays):
    seen = []

    def hook(event):
        seen.append((event.kernel, event.grid, event.device, event.config, event.stream, dict(event.effects)))
        return lambda: seen.append("after")

    launch, _ = launcher(lambda *_: seen.append("call"), index=0)
    with launch_hook(hook):
        launch[2](*arrays, 100)
        launch[2](*arrays, 100, stream=7)
        launch[2](*arrays, 100, stream=object())  # a library's own: it has no handle
    assert [event for event in seen if event in ("call", "after")] == ["call", "after"] * 3
    events = [event for event in seen if isinstance(event, tuple)]
    assert [event[4] for event in events] == [0, 7, 0]
    assert events[0][:4] == ("scaled", (2, 1, 1), "fake:0", {"BLOCK": 64})
    assert events[0][5] == {"out": Effect.WRITE}


def test_a_callable_may_call_kernels(arrays):
    depth = []

    def again(arguments, grid, stream):
        depth.append(grid)
        if grid[0] > 1:
            launch[grid[0] - 1](*arguments[:3])

    launch, _ = launcher(again)
    launch[20](*arrays, 100)
    assert depth == [(n, 1, 1) for n in range(20, 0, -1)]
    with pytest.raises(RecursionError):
        launch[100_000](*arrays, 100)


def test_threads(arrays):
    x, _ = arrays
    outs = [np.zeros_like(x) for _ in range(8)]
    launch, made = launcher(scaled)
    errors = []

    def work(out):
        try:
            for _ in range(300):
                launch[1](x, out, 100, 3.0)
        except Exception as error:  # noqa: BLE001  # told to the test below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(made) <= len(threads)
    for out in outs:
        np.testing.assert_array_equal(out, x * 3)


def test_many_launches_leak_nothing(arrays):
    x, out = arrays
    stream, config = object(), {"BLOCK": 64, "note": object()}
    calls = []

    def counts(arguments, grid, given):
        calls[0] += 1

    def fails(arguments, grid, given):
        raise failure

    failure = ValueError("no")
    calls.append(0)
    launch, _ = launcher(counts, config=config)
    failing, _ = launcher(fails, config=config)
    watched = (x, out, stream, config["note"], counts, fails, failure)

    def turns(count):
        for _ in range(count):
            launch[1](x, out, 100, stream=stream)
        for _ in range(count // 100):
            with pytest.raises(ValueError, match="no"):
                failing[1](x, out, 100, stream=stream)
            failure.__traceback__ = None
            del failure.__notes__

    def grown(count):
        """Blocks of memory that Python has more of after so many launches."""
        gc.collect()
        blocks = sys.getallocatedblocks()
        turns(count)
        gc.collect()
        return sys.getallocatedblocks() - blocks

    turns(200)
    gc.collect()
    counted = [sys.getrefcount(one) for one in watched]
    # What other tests of the process left behind comes and goes, in one round and not in both.
    least = min(grown(50_000), grown(50_000))
    assert calls == [100_200]
    assert [sys.getrefcount(one) for one in watched] == counted
    assert least < 200  # a block lost at each failing launch of a round would be 500


def test_a_callable_that_holds_its_launcher_is_collected(arrays):
    class Holder:
        def __call__(self, arguments, grid, stream):
            self.calls = getattr(self, "calls", 0) + 1

    holder = Holder()
    launch, made = launcher(holder)
    launch[1](*arrays, 100)
    assert holder.calls == 1
    holder.launch = launch
    seen = weakref.ref(holder)
    del launch, holder
    made.clear()
    gc.collect()
    assert seen() is None


def test_what_is_no_library_code():
    with pytest.raises(TypeError, match="a callable"):
        native.LibraryCode(3, "fake", 0, HOST)
    for memory in ((0,), (32,)):
        with pytest.raises(ValueError, match="no DLPack device type"):
            native.LibraryCode(print, "fake", 0, memory)
    with pytest.raises(TypeError, match="LibraryCode"):
        native.LoadedKernel(print, "entry")
    loaded = native.LoadedKernel(native.LibraryCode(print, "fake", 0, HOST), "k", "kernel")
    assert (loaded.driver, loaded.name, loaded.entry) == ("fake", "kernel", "k")


def test_what_it_makes_is_returned_by_the_launch(arrays):
    x, out = arrays
    made = object()
    launch, _ = launcher(lambda *_: made)
    found = [launch[1](x, out, 96), launch[1](x, out, 96)]
    assert all(one is made for one in found)
    del found
    counts = [sys.getrefcount(made)]
    for _ in range(50):
        launch[1](x, out, 96)
    counts.append(sys.getrefcount(made))

    class FailsError(Exception):
        pass

    def leave(*_):
        raise FailsError

    with launch_hook(lambda *_: leave), pytest.raises(FailsError):
        launch[1](x, out, 96)
    counts.append(sys.getrefcount(made))
    assert len(set(counts)) == 1


class Remote:
    """An array of a device whose memory has no addresses."""

    def __init__(self, shape=(4, 8), dtype="float32", place=0):
        self.shape, self.dtype, self.place = shape, dtype, place

    def __dlpack__(self, **_):
        raise BufferError("it has no address")

    def __dlpack_device__(self):
        raise BufferError("it has no address")


EXTENSION = 12


def test_arrays_without_an_address_are_read_by_a_function_of_their_library():
    given = []
    native.set_array_reader(Remote, lambda one: (EXTENSION, one.place, one.dtype, True))
    try:
        assert native.read(Remote())[5] == (4, 8)
        launch, made = launcher(lambda arguments, *_: given.append(arguments), memory=(EXTENSION,))
        x = Remote()
        for one in (x, Remote((2,)), Remote(dtype="float16")):
            launch[1](one, None, 3)
        assert given[0][0] is x
        assert len(made) == 2  # one for each dtype; the launcher holds no shapes
        with pytest.raises(ArgumentError, match=r"is on .*:0 and 'out' on .*:1"):
            launch[1](x, Remote(place=1), 3)
        with pytest.raises(ArgumentError, match="all arrays of one call are on one device"):
            launch[1](x, np.zeros(3, np.float32), 3)
    finally:
        native.set_array_reader(Remote, lambda _: None)
    with pytest.raises(ArgumentError):
        launch[1](x, None, 3)  # where it is asked for its address, it has none
