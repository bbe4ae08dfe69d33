"""A kernel that cannot be launched raises one error, with file and line, before any code runs."""

import pytest

import silo
from silo.errors import ArgumentError, CompileError, SourceError

TEXT = """
kernel void add(device const float* x [[buffer(0)]], device float* out [[buffer(1)]], constant uint& n [[buffer(2)]],
                uint i [[thread_position_in_grid]]) { if (i < n) out[i] = x[i]; }
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("buffer(1)", "buffer(0)", "add: out has the index 0 of x"),
        ("buffer(1)", "buffer(31)", "out has the index 31; Metal has buffers 0 to 30"),
        ("device const float*", "device const double*", "x is a double"),
        ("uint i", "texture2d<float> t [[texture(0)]], uint i", "without textures"),
        ("device float* out", "float* out", "of the address space device or constant"),
        (" [[thread_position_in_grid]]", "", "i has no attribute"),
        ("kernel void add", "void add", "no kernel is defined here"),
    ],
)
def test_texts(old, new, message):
    with pytest.raises(SourceError, match=message.replace("[", r"\[")):
        silo.metal(TEXT.replace(old, new), group_size=32)


def test_two_kernels_need_a_name():
    both = TEXT + TEXT.replace("void add", "void sub")
    with pytest.raises(SourceError, match="which kernel\\? Give kernel= one of add, sub"):
        silo.metal(both, group_size=32)
    assert silo.metal(both, kernel="sub", group_size=32).kernel.source.name == "sub"


def test_group_sizes():
    with pytest.raises(SourceError, match="how many threads has a threadgroup"):
        silo.metal(TEXT)
    with pytest.raises(SourceError, match="up to three of these"):
        silo.metal(TEXT, group_size=(1, 1, 1, 1))
    with pytest.raises(CompileError, match="it has 1 to 1024 threads"):
        silo.metal(TEXT, group_size=2048).kernel.source.group_size({})
    required = silo.metal("[[required_threads_per_threadgroup(64, 1, 1)]]" + TEXT, group_size=(8, 8))
    with pytest.raises(CompileError, match=r"requires a threadgroup of \(64, 1, 1\), not \(8, 8, 1\)"):
        required.kernel.source.group_size({})


def test_arguments_of_another_width():
    import numpy as np

    kernel = silo.metal(TEXT, group_size=32)
    x = np.zeros(4, np.float32)
    with pytest.raises(ArgumentError, match="uint32"):
        kernel[1,](x, x.copy(), 1 << 32)
    with pytest.raises(ArgumentError, match="the kernel reads float: pass float32"):
        kernel[1,](x.astype(np.int32), x, 4)
