"""Arrays that a kernel declares contiguous: the guard refuses views of another layout, for every library's arrays."""
# pyright: reportCallIssue=false

import numpy as np
import pytest

import launch_kernels as kernels
from silo.core.extents import HeldExtents
from silo.errors import ArgumentError
from silo.launch.arguments import ValueKind
from silo.launch.buffers import Buffer

BASE = np.arange(64, dtype=np.float32).reshape(4, 16)
BUFFER = Buffer((4, 16), "float32", "cpu")
RIGHT = [
    *(BASE, BASE[1:3], BASE[2], BASE.reshape(2, 2, 16), BASE[:, :1][:1], BASE[1:2, :5], np.float32(1).reshape(())),
    *(np.zeros((0, 3), np.float32).T, np.zeros((1,) * 32, np.float32), BASE.T[:, :1].T),
]
WRONG = [
    *(BASE.T, BASE[:, :4], BASE[:, ::2], BASE[:, 3], BASE[::-1], BASE.ravel()[::3]),
    np.lib.stride_tricks.as_strided(BASE, (4, 4), (0, 4)),
    np.zeros(40, np.uint8)[:36].view([("a", "<f4"), ("b", "u1"), ("c", "<f4")])["a"],  # strides of parts of elements
]


def launcher(**options):
    return kernels.nothing("x", "y", contiguous=("x",), **options)


def refused(launch, *arguments, grid=1):
    with pytest.raises(ArgumentError, match=r"argument 'x' needs a contiguous array, as the kernel declares"):
        launch[grid](*arguments)


@pytest.mark.parametrize("number", range(len(RIGHT)))
def test_arrays_whose_elements_lie_in_order(number):
    launch, _ = launcher()
    launch[1](RIGHT[number], BASE.T)


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_views_with_gaps_or_in_another_order_are_refused(number):
    launch, _ = launcher()
    launch[1](BASE, WRONG[number])  # y is free
    for _ in range(2):  # beside a binding that would serve it
        refused(launch, WRONG[number], BASE)
    launch[1](BASE, BASE)


def test_it_is_no_part_of_the_key():
    """Any shape goes to the same code."""
    launch, asked = launcher()
    for _ in range(2):
        launch[1](BASE, BASE)
        launch[1](BASE[1:3], BASE[:, :5])
        launch[1](BASE[0], BASE)
    assert launch.misses == 1
    assert asked.calls[0]["x"].shape is None


def test_what_has_no_layout_passes():
    launch, asked = launcher()
    launch[1](BASE.ctypes.data, BASE)
    launch[1](None, BASE)
    launch[1](y=BASE, x=5.5)
    assert [call["x"].kind for call in asked.calls] == [ValueKind.INT, ValueKind.NONE, ValueKind.FLOAT]


def test_beside_extents_that_are_held():
    launch, asked = kernels.nothing(
        "x", "y", "z", extents=HeldExtents.of({"y": "layout"}, grid=True), contiguous=("x",)
    )
    launch[1](BASE, BASE.T, BASE)
    launch[1](BASE[1:3], BASE.T, BASE)
    assert launch.misses == 1
    launch[1](BASE, BASE, BASE)
    launch[2](BASE, BASE, BASE)
    assert launch.misses == 3
    assert [call["y"].strides for call in asked.calls] == [(1, 16), (16, 1), (16, 1)]
    refused(launch, BASE.T, BASE, BASE)


def test_arrays_of_other_libraries():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    launch, _ = launcher()
    x = torch.zeros(4, 6)
    for right in (x, torch.nn.Parameter(x), x[1:3], torch.zeros((1,) * 6), memoryview(BASE), BUFFER):
        launch[1](right, BASE)
    for wrong in (
        *(x.T, torch.nn.Parameter(x.T), x[:, ::2], x.expand(3, 4, 6), torch.zeros(2, 2, 2, 2, 2, 2).transpose(0, 5)),
        memoryview(BASE)[::2],
    ):
        refused(launch, wrong, BASE)


def test_an_array_that_changes_its_layout_during_the_call():
    """While the first call is compiled."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.zeros(4, 6)
    launch, asked = launcher()
    asked_before = asked.__call__

    def turning(call):
        x.t_()
        return asked_before(call)

    from silo.launch.runtime import make_launcher

    launch = make_launcher("nothing", kernels.any_parameters("x", "y"), on_miss=turning, contiguous=("x",))
    refused(launch, x, BASE)
