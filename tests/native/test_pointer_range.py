"""Whether the memory behind a ROCm array has less than 2 GiB, which code for AMD GPUs may assume."""

import ctypes

import pytest

from dlpack_structs import DLManagedTensor, DLTensor, new_capsule
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.launch.runtime import inspect_call, make_launcher

ROCM, CUDA = 10, 2


class Exporter:
    """An array of float16 that nobody looks into."""

    def __init__(self, shape, strides, device=ROCM):
        rank = len(shape)
        self._shape, self._strides = (ctypes.c_int64 * rank)(*shape), (ctypes.c_int64 * rank)(*strides)
        lists = (ctypes.addressof(self._shape), ctypes.addressof(self._strides))
        self._device = device
        self._made = DLManagedTensor(DLTensor(1 << 20, device, 0, rank, 2, 16, 1, *lists, 0), None, None)

    def __dlpack__(self, **_):
        return new_capsule(ctypes.addressof(self._made), b"dltensor", None)

    def __dlpack_device__(self):
        return self._device, 0


def seen(array, **options):
    signature = Signature((Parameter("x", ParameterKind.POINTER, **options),))
    launch = make_launcher("k", signature, on_miss=lambda call: None)
    return inspect_call(launch, signature, array)["x"]


GIB = 1 << 30


@pytest.mark.parametrize(
    ("shape", "strides", "small"),
    [
        ([10], [1], True),
        ([], [], True),
        ([GIB - 1], [1], True),  # 2 GiB - 2 bytes
        ([GIB], [1], False),
        ([2, 3], [GIB, 1], False),
        ([2, 3], [GIB - 4, 1], True),
        ([2, 4], [GIB - 4, 1], False),
        ([0, GIB], [GIB, 1], True),
        ([1 << 30, 1 << 10], [1 << 30, 1], False),
        ([3], [-1], False),  # its first element is not its lowest
        ([1, 5], [1 << 50, 1], True),
    ],
)
def test_from_extents_and_strides(shape, strides, small):
    assert seen(Exporter(shape, strides)).range32 is small


def test_on_rocm_only_and_where_the_author_lets_it_be_assumed():
    assert not seen(Exporter([10], [1], CUDA)).range32
    assert not seen(Exporter([10], [1]), specialize=False).range32
    assert seen(Exporter([10], [1]), align=False).range32
    assert not seen(Exporter([10], [1]), align=False).aligned16


def test_it_is_part_of_what_code_is_chosen_by():
    asked = []

    def miss(call):
        asked.append(call["x"].range32)
        raise LookupError

    launch = make_launcher("k", Signature((Parameter("x"),)), on_miss=miss)
    for array in (Exporter([10], [1]), Exporter([GIB], [1])):
        with pytest.raises(LookupError):
            launch[1](array)
    assert asked == [True, False]
