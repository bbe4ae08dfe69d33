import numpy as np
import pytest

import launch_kernels as kernels
import silo
from silo.core.config import Config
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.trace import trace_grid
from silo.errors import ArgumentError, ExpressionError
from silo.launch.hooks import launch_hook
from silo.launch.runtime import bind, make_launcher


def ids(grid=None, **options):
    return make_launcher(
        "ids", kernels.any_parameters("out"), on_miss=kernels.Asked("ids", ((0, "ptr", True),)), grid=grid, **options
    )


def ran(launch, grid, size=4096):
    out = np.full(size, -1, np.int64)
    launch[grid](out)
    count = int((out != -1).sum())
    assert (out[:count] != -1).all(), "program ids are dense"
    return [(int(p) & 0xFFFF, int(p) >> 16 & 0xFFFF, int(p) >> 32) for p in out[:count]]


@pytest.mark.parametrize("grid", [(5,), (3, 4), (2, 3, 4), (1, 1, 7), (1, 300)])
def test_every_program_runs_once_with_its_ids(grid):
    gx, gy, gz = (*grid, 1, 1)[:3]
    assert ran(ids(), grid) == [(x, y, z) for z in range(gz) for y in range(gy) for x in range(gx)]


@pytest.mark.parametrize("grid", [0, (0,), (4, 0), (0, 5, 5), (5, 5, 0), lambda meta: (0,), (2**40, 2**40, 0)])
def test_an_empty_grid_is_no_error_and_runs_nothing(grid):
    assert ran(ids(), grid) == []


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ((), "1 to 3 dimensions, got 0"),
        ((1, 2, 3, 4), "1 to 3 dimensions, got 4"),
        ((3, -1), "grid dimension y is -1, which is negative"),
        (-(2**70), "grid dimension x is -\\d+, which is negative"),
        ((1, 1, 2**63), "grid dimension z is 9223372036854775808, which is larger"),
        ((2**32,), r"grid \(4294967296, 1, 1\): dimension x is limited to 4294967295"),
        ((1, 2**32), "dimension y is limited to 4294967295"),
        ((2**31, 2**31, 2**31), "more than 2\\^53 programs"),
        ((1.5,), "grid dimension x needs an integer, got the float 1.5"),
        (("3",), "grid dimension x needs an integer, got the str '3'"),
        ((None,), "grid dimension x needs an integer"),
        ("3", "grid dimension x needs an integer"),
    ],
)
def test_bad_grids_say_what_is_wrong(grid, said):
    launch = ids()
    out = np.zeros(4, np.int64)
    for call in (
        lambda: launch[grid](out),
        lambda: launch(out, grid=grid),
        lambda: launch[lambda meta: grid](out),
        lambda: ids(grid=grid)(out),
    ):
        with pytest.raises(ArgumentError, match=f"ids: .*{said}|ids: {said}"):
            call()


def test_numbers_of_other_libraries_are_dimensions():
    assert len(ran(ids(), (np.int32(3), np.uint8(2)))) == 6
    assert len(ran(ids(), [True, 3])) == 3


def test_a_grid_that_raises():
    launch = ids()
    with pytest.raises(KeyError, match="BLOCK"):
        launch[lambda meta: meta["BLOCK"]](np.zeros(3, np.int64))


def test_which_grid_counts():
    launch = ids(grid=3)
    out = np.full(16, -1, np.int64)
    launch(out)
    assert (out != -1).sum() == 3
    launch[5](out)
    assert (out != -1).sum() == 5
    launch[5](out, grid=7)
    assert (out != -1).sum() == 7


# ---- declared grids ----

LAYOUT = (LayoutSlot("out", AbiType.POINTER),)
SIGNATURE = Signature(
    (
        Parameter("out"),
        Parameter("n"),
        Parameter("x"),
        Parameter("FLAG", ParameterKind.CONSTEXPR),
        Parameter("BLOCK", ParameterKind.CONSTEXPR),
    )
)


def declared(function, config=("BLOCK",), constants=(), facts=None, names=("out", "n", "x", "FLAG"), **values):
    grid = trace_grid(function, names, config)

    def on_miss(call):
        return bind(
            kernels.loaded("ids"),
            LaunchInfo("ids", LAYOUT),
            SIGNATURE,
            Specialization(constants=tuple(constants)),
            Config.of(**{"BLOCK": 64, **values}),
            grid=grid,
            facts=facts or {"sm_count": 3},
        )

    return make_launcher("ids", SIGNATURE, on_miss=on_miss, config_names=("BLOCK",))


def count(launch, *arguments, **keywords):
    out = np.full(4096, -1, np.int64)
    launch(out, *arguments, **keywords)
    return int((out != -1).sum())


def cdiv(a, b):
    return -(-a // b)


def test_a_declared_grid_is_evaluated_at_every_call():
    launch = declared(lambda a: (cdiv(a.n, a.BLOCK),))
    for n in (0, 1, 63, 64, 65, 1000):
        assert count(launch, n, None, 0) == cdiv(n, 64)


def test_a_declared_grid_reads_shapes_strides_and_item_sizes():
    launch = declared(lambda a: (a.x.shape[0], a.x.stride(0) // a.x.shape[1]))
    array = np.zeros((5, 12), np.float32)
    assert count(launch, 0, array, 0) == 5
    assert count(launch, 0, array[:, ::2], 0) == 5 * 2
    torch = pytest.importorskip("torch")
    assert count(launch, 0, torch.zeros(4, 3), 0) == 4
    assert count(declared(lambda a: (a.x.shape[-1],)), 0, array, 0) == 12


def test_a_declared_grid_reads_device_facts_and_constants():
    from silo.core.expressions import Argument, DeviceFact, Op, OpKind

    node = (Op(OpKind.MUL, (DeviceFact("sm_count"), Argument("FLAG"))),)
    launch = make_launcher(
        "ids",
        SIGNATURE,
        config_names=("BLOCK",),
        on_miss=lambda call: bind(
            kernels.loaded("ids"),
            LaunchInfo("ids", LAYOUT),
            SIGNATURE,
            Specialization(constants=(("FLAG", call.values["FLAG"]),)),
            {"BLOCK": 64},
            grid=node,
            facts={"sm_count": 3},
        ),
    )
    assert count(launch, 0, None, 2) == 6
    assert count(launch, 0, None, 5) == 15


def test_a_grid_at_the_call_comes_before_the_declared_one():
    launch = declared(lambda a: (a.n,))
    out = np.full(64, -1, np.int64)
    launch[3](out, 9, None, 0)
    assert (out != -1).sum() == 3
    launch(out, 9, None, 0, grid=4)
    assert (out != -1).sum() == 4


@pytest.mark.parametrize(
    ("function", "arguments", "error", "said"),
    [
        (lambda a: (a.n,), (-3, None, 0), ArgumentError, "the declared grid gives -3 as dimension x"),
        (lambda a: (1, a.n), (2**40, None, 0), ArgumentError, "dimension y is limited"),
        (lambda a: (a.n * a.n,), (2**40, None, 0), ExpressionError, "dimension x .* does not fit 64 bits"),
        (lambda a: (8 // a.n,), (0, None, 0), ExpressionError, "divides by zero"),
        (lambda a: (a.n,), (None, None, 0), ArgumentError, "argument 'n' needs a signed 64-bit integer"),
        (lambda a: (a.n,), (2**63, None, 0), ArgumentError, "argument 'n' needs a signed 64-bit integer"),
        (lambda a: (a.n,), (1.5, None, 0), ArgumentError, "argument 'n' needs a signed 64-bit integer"),
        (lambda a: (a.x.shape[0],), (1, None, 0), ExpressionError, "not an array"),
        (lambda a: (a.x.shape[1],), (1, np.zeros(3), 0), ExpressionError, "an axis that the array does not have"),
    ],
)
def test_declared_grids_without_a_value(function, arguments, error, said):
    with pytest.raises(error, match=f"ids: .*{said}"):
        count(declared(function), *arguments)


def test_damaged_grid_programs_are_refused():
    from silo.launch import native

    loaded = kernels.loaded("nothing")
    for program in (b"", b"123", bytes(15), (99).to_bytes(4, "little", signed=True) + b"\xff" * 28):
        binding = None
        try:
            binding = native.Binding(loaded, (), {}, (program,))
        except ValueError:
            continue
        launch = make_launcher("k", Signature(()), on_miss=lambda call, b=binding: b)
        with pytest.raises(ExpressionError, match="not a program"):
            launch()
    with pytest.raises(ValueError, match="1 to 3 programs"):
        native.Binding(loaded, (), {}, ())


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 64, 100, 1 << 20])
def test_usual_grids(divisor):
    """A constant, or an argument divided by a constant and rounded up, is worked out without the evaluator."""
    grids = []
    launch = declared(lambda a: (silo.cdiv(a.n, a.BLOCK), 2), BLOCK=divisor)
    with launch_hook(lambda event: grids.append(event.grid)):
        for value in (1, divisor, divisor + 1, 3 * divisor, 0):
            launch(np.zeros(8, np.int64), value, None, 0)
    assert grids == [(-(-value // divisor), 2, 1) for value in (1, divisor, divisor + 1, 3 * divisor)]
    with pytest.raises(ArgumentError, match="the declared grid gives -1 as dimension x"):
        launch(np.zeros(8, np.int64), -divisor, None, 0)
    with pytest.raises(ArgumentError, match="needs a signed 64-bit integer, for the declared grid reads it"):
        launch(np.zeros(8, np.int64), 2.5, None, 0)
