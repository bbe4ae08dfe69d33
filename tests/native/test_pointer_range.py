"""Whether the memory behind a ROCm array has less than 2 GiB, which code for AMD GPUs may assume."""

import ctypes

import pytest

from silo.core.signature import Parameter, ParameterKind, Signature
from silo.launch.runtime import inspect_call, make_launcher

ROCM, CUDA = 10, 2

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Tensor(ctypes.Structure):
    """DLManagedTensor, flat."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class Exporter:
    """An array of float16 that nobody looks into."""

    def __init__(self, shape, strides, device=ROCM):
        rank = len(shape)
        self._shape, self._strides = (ctypes.c_int64 * rank)(*shape), (ctypes.c_int64 * rank)(*strides)
        self._tensor = Tensor(1 << 20, device, 0, rank, 2, 16, 1, self._shape, self._strides, 0, None, None)

    def __dlpack__(self, **_):
        return new_capsule(ctypes.addressof(self._tensor), b"dltensor", None)

    def __dlpack_device__(self):
        return self._tensor.device_type, 0


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
