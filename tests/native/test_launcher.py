import gc
import sys
import threading
import weakref
from functools import partial

import numpy as np
import pytest

import launch_kernels as kernels
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.errors import ArgumentError, LaunchError
from silo.launch import native
from silo.launch.arguments import ValueKind
from silo.launch.runtime import inspect_call, make_launcher

CONSTEXPR = ParameterKind.CONSTEXPR


@pytest.fixture
def arrays():
    x = np.arange(200, dtype=np.float32)
    return x, x * 3, np.zeros_like(x)


@pytest.mark.parametrize("form", range(12))
def test_every_form_of_a_call(arrays, form):
    launch, _ = kernels.add(grid=4 if form >= 10 else None)
    x, y, out = arrays
    forms = [
        lambda: launch[(4,)](x, y, out, 200),
        lambda: launch[4](x, y, out, 200),
        lambda: launch[[2, 2]](x, y, out, 200),
        lambda: launch[4, 1, 1](x, y, out, 200),
        lambda: launch[4](x, y, n=200, out=out),
        lambda: launch[4](n=200, out=out, y=y, x=x, BLOCK=64),
        lambda: launch(x, y, out, 200, grid=(4,)),
        lambda: launch(x, y, out, 200, 64, grid=lambda meta: (-(-meta["n"] // meta["BLOCK"]),)),
        lambda: launch[lambda meta: -(-meta["n"] // meta["BLOCK"])](x, y, out, 200),
        lambda: launch[4](x, y, out, 200, BLOCK=64, num_warps=8, stream=None),
        lambda: launch(x, y, out, 200),
        lambda: launch(*[x, y], out=out, n=200),
    ]
    for _ in range(3):
        out[:] = -1
        assert forms[form]() is None
        np.testing.assert_array_equal(out, x + y)
    assert launch.misses == 1


def test_a_call_by_the_slot_with_a_tuple_and_a_dict(arrays):
    launch, _ = kernels.add(grid=4)
    x, y, out = arrays
    for call in (launch.__call__, launch[4].__call__):
        for args, kwargs in (
            ((x, y, out, 200), {}),
            ((x, y), {"n": 200, "out": out}),
            ((), {"n": 200, "out": out, "y": y, "x": x}),
        ):
            out[:] = -1
            assert call(*args, **kwargs) is None
            np.testing.assert_array_equal(out, x + y)
        with pytest.raises(ArgumentError, match="nowhere"):
            call(x, y, out, 200, nowhere=1)
        held = [sys.getrefcount(one) for one in arrays]
        for _ in range(50):
            call(x, y, out=out, n=200)
        assert [sys.getrefcount(one) for one in arrays] == held


def test_a_callable_grid_sees_config_arguments_and_options(arrays):
    launch, _ = kernels.add()
    x, y, out = arrays
    seen = []
    launch[lambda meta: seen.append(meta) or 4](x, y, out, n=200, num_stages=3)
    assert seen[0].pop("x") is x
    assert {name: seen[0][name] for name in ("n", "BLOCK", "num_warps", "num_stages")} == {
        "n": 200,
        "BLOCK": 64,
        "num_warps": 4,
        "num_stages": 3,
    }
    launch[lambda meta: seen.append(meta) or 4](x, y, out, 200, BLOCK=32)
    assert seen[1]["BLOCK"] == 32, "what the caller gives counts"


def test_defaults_and_what_is_left_to_the_config():
    signature = [
        Parameter("x"),
        Parameter("scale", default=2.5),
        Parameter("flag", CONSTEXPR, default=True),
        Parameter("BLOCK", CONSTEXPR, default=16),
    ]
    launch, asked = kernels.nothing(parameters=signature, config_names=("BLOCK",))
    launch[1](3)
    call = asked.calls[0]
    assert call.values == {"x": 3, "scale": 2.5, "flag": True}
    assert call["BLOCK"].kind is ValueKind.ABSENT
    launch[1](3, flag=False)
    assert asked.calls[1].values["flag"] is False
    launch[1](3, BLOCK=16)
    assert asked.calls[2].values["BLOCK"] == 16
    assert call.facts().keys() == {"x", "scale", "flag"}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda k, a: k[1](), "add is called without x, y, out, n; its parameters: x, y, out, n, BLOCK"),
        (lambda k, a: k[1](*a), "add is called without n"),
        (lambda k, a: k[1](*a, 1, 2, 3), "add takes 5 arguments, 6 were given"),
        (lambda k, a: k[1](*a, 1, m=2), "add has no parameter 'm'"),
        (lambda k, a: k[1](*a, 1, x=2), "add: argument 'x' is given twice, by position and by name"),
        (lambda k, a: k[1](*a, n=1, BLOC=2), "add has no parameter 'BLOC'"),
        (lambda k, a: k(*a, 1), r"add has no declared grid: call it as add\[grid\]\(...\), or declare silo.kernel"),
        (lambda k, a: k[1](*a, 1, stream="x"), "argument 'stream' needs a stream: an integer handle"),
        (lambda k, a: k[1](*a, 1, num_warps={}), None),
        (lambda k, a: k[1](*a, 1, ({},)), "argument 'BLOCK' needs a hashable constexpr value"),
    ],
)
def test_wrong_calls_say_what_is_wrong(arrays, call, said):
    launch, _ = kernels.add()
    if said is None:
        call(launch, arrays)  # an option's value is for the compiler to judge
        return
    with pytest.raises(ArgumentError, match=said):
        call(launch, arrays)


def test_an_option_that_is_also_a_parameter_is_the_parameter():
    launch, asked = kernels.nothing(parameters=[Parameter("num_warps", CONSTEXPR)])
    launch[1](num_warps=8)
    assert asked.calls[0].values == {"num_warps": 8}
    assert asked.calls[0].options == {}


def test_many_call_sites_are_all_right():
    names = [f"p{i}" for i in range(40)]
    launch, asked = kernels.nothing(*names)
    for cut in range(41):
        launch[1](*range(cut), **{name: int(name[1:]) for name in names[cut:]})
    assert launch.misses == 1
    assert list(asked.calls[0].values.values()) == list(range(40))


def test_an_error_of_the_kernel_is_raised():
    asked = kernels.Asked("fail_at_3", config={"BLOCK": 8})
    launch = make_launcher("broken", Signature(()), on_miss=asked)
    launch[3]()
    with pytest.raises(LaunchError, match=r"broken: .*code 7.* 'fail_at_3' on cpu; grid=\(4, 1, 1\), .*'BLOCK': 8"):
        launch[4]()
    launch[3]()


def test_an_error_of_on_miss_is_raised_and_nothing_kept():
    def refuse(call):
        raise ZeroDivisionError("not today")

    launch = make_launcher("k", kernels.any_parameters("x"), on_miss=refuse)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="not today"):
            launch[1](1)
    assert launch.misses == 2
    assert launch.bindings == []


def test_on_miss_has_to_give_a_binding():
    launch = make_launcher("k", kernels.any_parameters("x"), on_miss=lambda call: 3)
    with pytest.raises(TypeError, match="on_miss gives a Binding"):
        launch[1](1)


def test_a_binding_that_cannot_take_the_arguments_is_refused(arrays):
    launch, asked = kernels.add()
    x, y, out = arrays
    with pytest.raises(ArgumentError, match="add: argument 'n' needs an int32, got the int 4294967296"):
        launch[1](x, y, out, 2**32)
    with pytest.raises(ArgumentError, match=r"add: argument 'n' needs an int32, got the float 2\.0"):
        launch[1](x, y, out, 2.0)
    with pytest.raises(ArgumentError, match="add: argument 'x' needs an array, got the int 5"):
        launch[1](5, y, out, 2)
    assert launch.bindings == []
    launch[1](x, y, out, 2)
    assert launch.bindings == [asked.binding]


def test_launching_inside_on_miss_and_inside_a_grid(arrays):
    inner, _ = kernels.add()
    x, y, out = arrays

    def on_miss(call):
        inner[4](x, y, out, 200)
        return native.Binding(kernels.loaded("nothing"), (), {})

    outer = make_launcher("outer", kernels.any_parameters("a"), on_miss=on_miss)
    outer[lambda meta: inner[4](x, y, out, 200) or outer[1](2) or 1](1)
    np.testing.assert_array_equal(out, x + y)


def test_warming_up_and_looking_launch_nothing(arrays):
    launch, asked = kernels.add()
    x, y, out = arrays
    call = inspect_call(
        launch, Signature(tuple(Parameter(n) for n in ("x", "y", "out", "n", "BLOCK"))), x, y, out, n=200
    )
    assert list(call.values) == ["x", "y", "out", "n"]
    assert call.values["out"] is out
    assert not asked.calls
    assert launch.resolve(x, y, out, 200) is asked.binding
    assert launch.resolve(x, y, out=out, n=200) is asked.binding
    assert not out.any()
    assert launch.misses == 1
    launch[4](x, y, out, 200)
    assert launch.misses == 1
    with pytest.raises(ArgumentError, match="without"):
        launch.resolve(x)


def test_forgetting():
    launch, _ = kernels.nothing("x")
    launch[1](1)
    launch.forget()
    assert launch.bindings == []
    launch[1](1)
    assert launch.misses == 2


def test_a_fixed_binding_is_used_without_asking(arrays):
    from silo.core.values import dtype

    x, y, out = arrays
    binding = native.Binding(kernels.loaded("add"), kernels.ADD_LAYOUT, {})
    pointer, writes = (2, 32), 16
    plan = (
        ("x", 1, *pointer, 3, ()),
        ("y", 1, *pointer, 3, ()),
        ("out", 1, *pointer, 3 | writes, ()),
        ("n", 2, 0, 32, 3, (200,)),
    )
    assert dtype("float32").code == 2
    launch = native.Launcher("add", plan, ("num_warps",), None, (4,), fixed=binding)
    launch(x, y, out)
    np.testing.assert_array_equal(out, x + y)
    assert launch.misses == 0
    with pytest.raises(ArgumentError, match="'x' needs a float32 array"):
        launch(x.astype(np.float64), y, out)
    with pytest.raises(ArgumentError, match="one fixed config and takes no 'num_warps'"):
        launch(x, y, out, num_warps=4)
    out.flags.writeable = False
    with pytest.raises(ArgumentError, match="'out' needs a writable"):
        launch(x, y, out)
    loose = (*plan[:3], ("n", 0, 0, 0, 3, ()))
    with pytest.raises(ValueError, match="parameter 3 is not declared"):
        native.Launcher("add", loose, (), None, fixed=binding)


# ---- lifetimes ----


def test_a_bound_grid_outlives_every_name_of_its_launcher(arrays):
    x, y, out = arrays
    bound = kernels.add()[0][4]
    gc.collect()
    again = kernels.add()[0][4]
    bound(x, y, out, 200)
    np.testing.assert_array_equal(out, x + y)
    again(x, y, out, 200)
    assert "add[4]" in repr(bound)


def test_several_bound_grids_of_one_launcher_keep_their_own():
    launch = make_launcher("ids", kernels.any_parameters("out"), on_miss=kernels.Asked("ids", ((0, "ptr", True),)))
    out = np.zeros(64, np.int64)
    bounds = [launch[n] for n in range(1, 9)]
    for n, bound in enumerate(bounds, 1):
        out[:] = -1
        bound(out)
        assert (out != -1).sum() == n


def test_launchers_in_cycles_are_collected():
    class Owner:
        def __init__(self):
            self.launch = make_launcher("k", kernels.any_parameters("x"), on_miss=self.miss)
            self.bound = self.launch[1]

        def miss(self, call):
            return native.Binding(kernels.loaded("nothing"), (), {}, tag=self)

    owner = Owner()
    owner.bound(3)
    assert owner.launch.bindings[0].tag is owner
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_a_thousand_launches_leak_no_reference(arrays):
    x, y, out = arrays
    launch, asked = kernels.add()
    grid, tuple_constant, name = (4,), (1, 2), str(b"name", "ascii")
    meta = lambda values: 4  # noqa: E731
    watched = [x, y, out, grid, launch, asked.binding, meta, tuple_constant, name]

    def everything():
        launch[grid](x, y, out, 200)
        launch[4](x, y, out, n=200)
        launch[meta](x, y, out, 200, BLOCK=tuple_constant)
        launch[4](x, y, out, 200, BLOCK=name, num_warps=4)
        launch(x, y, out, 200, grid=grid)
        launch[(0,)](x, y, out, 200)
        for bad in ((x, y, "s", 1), (x, y, out), (x, y, out, 2**70), (x, y, out, 1.5)):
            with pytest.raises(ArgumentError):
                launch[4](*bad)
        with pytest.raises(ArgumentError):
            launch[-1](x, y, out, 200)
        asked.calls.clear()

    everything()
    gc.collect()
    before = [sys.getrefcount(one) for one in watched]
    blocks = sys.getallocatedblocks()
    for _ in range(1000):
        everything()
    gc.collect()
    assert [sys.getrefcount(one) for one in watched] == before
    assert sys.getallocatedblocks() - blocks < 500


def test_hits_allocate_nothing_that_stays():
    launch, _ = kernels.nothing("x", "n")
    x, grid = np.zeros(4), (1,)
    launch[grid](x, 5)
    blocks = sys.getallocatedblocks()
    for _ in range(10_000):
        launch[grid](x, 5)
    assert sys.getallocatedblocks() - blocks < 50


def test_a_module_stays_mapped_while_a_binding_lives(arrays):
    x, y, out = arrays

    def on_miss(call):
        # Nothing but the binding holds the module after this.
        loaded = native.LoadedKernel(native.CpuModule(kernels.blob()), "add")
        return native.Binding(loaded, kernels.ADD_LAYOUT, {})

    launch = make_launcher("add", kernels.any_parameters("x", "y", "out", "n"), on_miss=on_miss)
    launch[4](x, y, out, 200)
    gc.collect()
    launch[4](x, y, out, 200)
    np.testing.assert_array_equal(out, x + y)


# ---- threads ----


@pytest.mark.parametrize("release", [True, False])
def test_many_python_threads_launch_one_kernel(release):
    launch, asked = kernels.add(release_gil=release)
    failures = []

    def body(seed):
        rng = np.random.default_rng(seed)
        try:
            for turn in range(150):
                n = int(rng.integers(1, 400))
                x = rng.random(n, dtype=np.float32)
                out = np.full(n, -1, np.float32)
                launch[(-(-n // 64),)](x, x, out, n, BLOCK=int(rng.integers(1, 9)), num_warps=turn % 3 + 1)
                if not np.array_equal(out, x + x):
                    failures.append((seed, turn))
        except Exception as error:  # noqa: BLE001  # reported by the main thread
            failures.append(error)

    workers = [threading.Thread(target=body, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    # 8 blocks, 3 warps, n divisible or not or one, alignments: few situations, however many launches.
    assert len(asked.calls) < 400


# ---- places that a kernel's code was made from ----


class Box:
    value: object = None
    launch: object = None


def test_a_launcher_calls_on_change_when_a_watched_value_is_another_and_only_then(arrays):
    """By identity: of a dictionary's member, an object's attribute, a closure's cell; by content: of a container."""
    launch, _ = kernels.add()
    x, y, out = arrays
    members, box, table = {"G": object()}, Box(), [1]
    box.value = object()
    cell = (lambda: members).__closure__[0]
    changes = []

    def watch():
        changes.append(1)
        launch.watch(
            (
                members,
                "G",
                members["G"],
                box,
                "value",
                box.value,
                cell,
                "cell_contents",
                members,
                table,
                None,
                [*table],
            ),
            watch,
        )

    watch()
    for change in (
        lambda: members.update(G=object()),
        lambda: setattr(box, "value", object()),
        lambda: table.append(2),
        members.clear,
    ):
        before = len(changes)
        launch[(4,)](x, y, out, 200)
        launch[(4,)](x, y, out, 200)
        assert len(changes) == before
        change()
        if "G" not in members:
            members["G"] = 1
        launch[(4,)](x, y, out, 200)
        assert len(changes) == before + 1
    np.testing.assert_array_equal(out, x + y)
    inspected = len(changes)
    members["G"] = object()
    launch.inspect(x, y, out, 200)
    assert len(changes) == inspected + 1
    launch.watch((), watch)
    members["G"] = object()
    launch[(4,)](x, y, out, 200)
    assert len(changes) == inspected + 1


def test_an_error_of_on_change_is_raised_and_the_next_call_asks_again(arrays):
    launch, _ = kernels.add()
    x, y, out = arrays
    members = {"G": 1}
    failing = [True]

    def changed():
        if failing:
            raise ValueError("it cannot be read")
        launch.watch((members, "G", members["G"]), changed)

    launch.watch((members, "G", members["G"]), changed)
    launch[(4,)](x, y, out, 200)
    members["G"] = object()
    out[:] = -1
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot be read"):
            launch[(4,)](x, y, out, 200)
    assert (out == -1).all()
    failing.clear()
    launch[(4,)](x, y, out, 200)
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("places", [(1,), ({}, "x"), ({}, 1, 2), [{}, "x", 1]])
def test_places_that_cannot_be_looked_at_are_refused(places):
    launch, _ = kernels.add()
    with pytest.raises(TypeError):
        launch.watch(places, print)


def test_a_launcher_that_watches_itself_is_freed():
    launch, _ = kernels.add()
    box = Box()
    box.value, box.launch = 1, launch
    gone = weakref.ref(box)
    launch.watch((box, "value", box.value), partial(id, box))
    del launch, box
    gc.collect()
    assert gone() is None
