import math

import numpy as np
import pytest

import launch_kernels as kernels
from hostile_arrays import Capsule, exchanged
from silo.core.dispatch import bucket_of
from silo.core.signature import Parameter, ParameterKind
from silo.errors import ArgumentError
from silo.launch import native

CONSTEXPR = ParameterKind.CONSTEXPR


def misses(launch, *calls):
    """How many of these calls were new."""
    before = launch.misses
    for arguments in calls:
        launch[1](*arguments)
    return launch.misses - before


@pytest.mark.parametrize(
    ("same", "other"),
    [
        ((17, 33, -5, 2**31 - 1), 16),
        ((16, 32, 0, -64), 17),
        ((1,), 2),
        ((2**31 + 1, -(2**40) + 1), 2**31 + 16),
        ((2**63 + 1, 2**64 - 1), 2**63),
        ((True, False), 1),
        ((0.5, 1.0, math.nan), 2),
        ((None,), 0),
    ],
)
def test_undeclared_scalars_are_told_apart_as_far_as_code_depends_on_them(same, other):
    launch, _ = kernels.nothing("x")
    assert misses(launch, *[(value,) for value in same]) == 1
    assert misses(launch, (other,)) == 1
    assert misses(launch, *[(value,) for value in (*same, other)]) == 0


def test_arrays_are_told_apart_by_dtype_alignment_and_writability():
    launch, _ = kernels.nothing("x")
    storage = np.zeros(256, np.uint8)
    start = -storage.ctypes.data % 16
    aligned = storage[start:]
    assert misses(launch, (aligned,), (aligned[16:],), (aligned[32:64],)) == 1
    assert misses(launch, (aligned[4:],), (aligned[8:],)) == 1
    assert misses(launch, (aligned.view(np.int8),)) == 1
    frozen = aligned.view()
    frozen.flags.writeable = False
    assert misses(launch, (frozen,), (frozen,)) == 1


def test_what_is_not_specialised_is_not_told_apart():
    launch, _ = kernels.nothing(parameters=[Parameter("x", specialize=False), Parameter("n", specialize=False)])
    storage = np.zeros(256, np.uint8)
    start = -storage.ctypes.data % 16
    assert misses(launch, *[(storage[start + i :], n) for i in (0, 4, 8) for n in (1, 16, 17)]) == 1


def test_constexprs_are_told_apart_by_type_and_value():
    launch, asked = kernels.nothing(parameters=[Parameter("c", CONSTEXPR)])
    values = [1, True, 1.0, -1, 0, False, 0.0, -0.0, 2**63 - 1, 2**63, 2**200, "a", "", None, (1,), (True,), (1.0,)]
    values += [(1, (2, "a")), (1, (2, "b")), (0.0,), (-0.0,), (), int, np.float32]
    assert misses(launch, *[(value,) for value in values]) == len(values)
    assert [call.values["c"] for call in asked.calls] == values
    copies = [
        1,
        -1,
        2**63 - 1,
        int("9" * 3) - 998,
        float("1.0"),
        -float("0"),
        str(b"a", "ascii"),
        (1,),
        (1, (2, "".join("a"))),
    ]
    copies += [tuple(iter((0.0,))), 2**200]
    assert misses(launch, *[(value,) for value in copies]) == 0


def test_constexpr_identities_are_not_reused():
    """A constant that is gone must not lend its address, and so its kernel, to another."""
    launch, asked = kernels.nothing(parameters=[Parameter("c", CONSTEXPR)])
    for turn in range(300):
        launch[1](lambda turn=turn: turn)
        launch[1](("t", turn))
        launch[1](f"text {turn}")
    assert launch.misses == 900
    assert len({id(call["c"].value) for call in asked.calls}) == 900


def test_options_are_part_of_the_guard():
    launch, asked = kernels.nothing("x")
    for _ in range(2):
        launch[1](1)
        launch[1](1, num_warps=4)
        launch[1](1, num_warps=8)
        launch[1](1, num_stages=4)
        launch[1](1, num_stages=8, num_warps=4)
        launch[1](1, num_warps=4, num_stages=8)  # the order is another call site, so it may be another entry
    assert 5 <= launch.misses <= 6
    assert [dict(call.options) for call in asked.calls[:4]] == [
        {},
        {"num_warps": 4},
        {"num_warps": 8},
        {"num_stages": 4},
    ]


def test_a_key_is_told_apart_by_bucket():
    launch, _ = kernels.nothing(parameters=[Parameter("n", specialize=False)], key=("n",))
    for value in range(17):
        assert misses(launch, (value,)) == 1
    assert misses(launch, (17,), (31,), (32,)) == 1
    assert misses(launch, (33,), (64,)) == 1
    assert misses(launch, (1000,), (1024,), (513,)) == 1
    assert misses(launch, (-5,)) == 1
    assert misses(launch, (0.5,), (0.5,)) == 1
    assert misses(launch, (0.25,)) == 1
    assert misses(launch, (True,)) == 1
    assert misses(launch, (False,)) == 1


def test_buckets_are_those_of_dispatch():
    values = [0, 1, 15, 16, 17, 2**31, 2**62, 2**62 + 1, 2**63 - 1, -(2**63), -(2**63) + 1, -17]
    values += [2**i + d for i in range(3, 62) for d in (-1, 0, 1)]
    for value in values:
        assert native.bucket(value) == bucket_of([value])[0] or value == -(2**63)


def test_a_keyed_constexpr_and_plain_parameters_keep_their_places():
    parameters = [Parameter("c", CONSTEXPR), Parameter("n"), Parameter("d", CONSTEXPR), Parameter("m")]
    launch, _ = kernels.nothing(parameters=parameters, key=("n", "c"), config_names=("d",))
    assert misses(launch, (1, 2, 3, 4), (1, 2, 3, 4)) == 1
    assert misses(launch, (2, 2, 3, 4), (1, 3, 3, 4), (1, 2, 4, 4)) == 3
    assert misses(launch, (1, 2, 3, 5)) == 0
    launch[1](1, 2, m=4)
    assert launch.misses == 5


def test_the_table_grows_and_stays_bounded():
    launch, asked = kernels.nothing(parameters=[Parameter("c", CONSTEXPR)])
    for value in range(3000):
        launch[1](value)
    assert len(launch.bindings) == launch.misses == 3000
    assert misses(launch, *[(value,) for value in range(3000)]) == 0
    asked.calls.clear()
    for value in range(3000, 10_000):
        launch[1](value)
    assert len(launch.bindings) <= 4096
    assert misses(launch, (9_999,)) == 0


def test_devices_of_duck_types_are_told_apart():
    class Anywhere:
        dtype = "float32"

        def __init__(self, device):
            self.device = device

        def data_ptr(self):
            return 64

    launch, asked = kernels.nothing("x")
    launch[1](Anywhere("cpu"))
    launch[1](Anywhere(None))
    assert [call.device for call in asked.calls] == [(1, 0), (0, 0)]
    named = {"cuda:1": (2, 1), "hip": (10, 0), "xpu:2": (14, 2), "mps:0": (8, 0), "npu:3": (12, 3), "meta": (12, 0)}
    for name, device in named.items():
        with pytest.raises(ArgumentError, match=rf"DLPack device type {device[0]}\)"):
            launch[1](Anywhere(name))
        assert asked.calls[-1].device == device


def test_memory_that_dlpack_names_is_never_taken_for_the_hosts():
    launch, asked = kernels.nothing("x")
    for said, taken in ((8, 8), (12, 12), (0, 12), (-1, 12), (1 + (1 << 16), 12)):
        for array in (Capsule(device=said), exchanged(device=said)):
            with pytest.raises(ArgumentError, match=rf"DLPack device type {taken}\)"):
                launch[1](array)
            assert asked.calls[-1].device == (taken, 0)
    launch[1](Capsule(device=1))


def test_tensors_of_torchs_other_devices_say_where_they_are():
    torch = pytest.importorskip("torch")
    launch, _ = kernels.nothing("x")
    for shim in (True, False):
        (native.connect_torch if shim else native.disconnect_torch)()
        try:
            with pytest.raises(ArgumentError):
                launch[1](torch.empty(0, device="meta"))  # one with elements has no memory to be read at all
        finally:
            native.connect_torch()


def test_an_exact_parameter_is_told_apart_by_value():
    launch, _ = kernels.nothing(parameters=[Parameter("n", specialize=False)], key=("n",), exact=("n",))
    assert misses(launch, (1000,), (1001,), (1024,), (-1,)) == 4
    assert misses(launch, (1000,), (1024,)) == 0
    assert misses(launch, (2**64 - 1,), (2**64 - 2,)) == 2
    assert misses(launch, (0.5,), (0.25,), (True,), (False,)) == 4


def test_a_miss_knows_the_grid_of_its_call():
    launch, asked = kernels.nothing("x", grid=(7,))

    def meta(values):
        return 1

    launch[3, 2](1)
    launch[meta](2)
    launch(16, grid=(5,))
    launch(2**40)
    assert [call.grid for call in asked.calls] == [(3, 2, 1), meta, (5,), (7, 1, 1)]
    undeclared, asked = kernels.nothing("x")
    undeclared.resolve(1)
    assert asked.calls[0].grid is None


def test_an_array_without_dimensions_is_a_scalar_where_a_key_is_wanted():
    torch = pytest.importorskip("torch")
    launch, asked = kernels.nothing("n", "x", key=("n",))
    launch[1](np.array(48), np.array(48))
    launch[1](torch.tensor(40), 0)
    launch[1](np.zeros(3), 0)
    kinds = [(call["n"].kind.name, call["x"].kind.name) for call in asked.calls]
    assert kinds == [("INT", "POINTER"), ("INT", "INT"), ("POINTER", "INT")]
    assert [asked.calls[i]["n"].number for i in range(2)] == [48, 40]
