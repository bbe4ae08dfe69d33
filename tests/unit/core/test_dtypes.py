import numpy as np
import pytest

from silo.core.host_arrays import numpy_dtype
from silo.core.values import DTYPES, dtype, from_dlpack


@pytest.mark.parametrize("element", DTYPES, ids=str)
def test_every_name_leads_to_it(element):
    assert dtype(element.name) is dtype(element.short) is from_dlpack(element.code, element.bits) is element
    assert str(element) == element.name


def test_names_and_codes_are_distinct():
    assert len({element.name for element in DTYPES}) == len({element.short for element in DTYPES}) == len(DTYPES)
    assert len({(element.code, element.bits) for element in DTYPES}) == len(DTYPES)


@pytest.mark.parametrize("element", DTYPES, ids=str)
def test_widths_are_those_of_numpy(element):
    if element.name.startswith(("bfloat", "float8")):
        pytest.importorskip("ml_dtypes")
    assert numpy_dtype(element).itemsize == element.itemsize


def test_dlpack_codes_are_those_of_numpy():
    """What numpy says of an array, read from the tensor inside its capsule."""
    import ctypes

    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    for element in DTYPES:
        if element.name.startswith(("bfloat", "float8")):
            continue
        array = np.zeros(3, element.name)
        capsule = array.__dlpack__()
        start = get_pointer(capsule, b"dltensor")
        # DLTensor: data (8 bytes), device (8), ndim (4), dtype {code: u8, bits: u8, lanes: u16}
        code, bits = (ctypes.c_uint8 * 2).from_address(start + 20)
        assert (code, bits) == (element.code, element.bits), element


def test_the_codes_of_8_bit_floats_are_those_of_dlpack():
    """dlpack.h 1.1, ``DLDataTypeCode``."""
    codes = {"e4m3b11fnuz": 9, "e4m3fn": 10, "e4m3fnuz": 11, "e5m2": 12, "e5m2fnuz": 13}
    assert {f"float8_{name}": code for name, code in codes.items()} == {
        element.name: element.code for element in DTYPES if element.name.startswith("float8")
    }


def test_alias_and_unknown():
    assert dtype("u1") is dtype("bool")
    assert dtype("i1").bits == 8
    with pytest.raises(KeyError, match="unknown dtype 'half'; known: bool, int8"):
        dtype("half")
    assert from_dlpack(2, 128) is None
