"""Gluon kernels launched on the stub driver: bundles, layouts made anew for each call, layouts of descriptors."""
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false

import struct
from importlib.util import find_spec

import pytest

import silo
from gpu_stub import stub
from silo.errors import ArgumentError

if find_spec("triton") is None or find_spec("triton.experimental.gluon") is None:
    pytest.skip("no Triton with Gluon is installed", allow_module_level=True)

from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

import gluon_kernels
from gluon_kernels import gl


class Base:
    """A buffer with the members that Gluon's descriptor looks at."""

    def __init__(self, *shape):
        self.buffer = silo.Buffer(shape, "float16", "cuda:0")
        self.shape, self.dtype = shape, "fp16"

    def data_ptr(self):
        return self.buffer.address


def descriptor(array, block, layout=None):
    return silo.TensorDescriptor(array, array.shape, array.strides, block, layout=layout)


def buffers(count, *shape, dtype="float32"):
    return [silo.Buffer(shape, dtype, "cuda:0") for _ in range(count)]


def test_equal_layouts_are_one_call():
    kernel = silo.kernel(gluon_kernels.add, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
    x, y, out = buffers(3, 1000)
    compiled = set()
    for size in (1, 2, 1, 1, 2):
        layout = gl.BlockedLayout([size], [32], [4], [0])
        kernel(x, y, out, 1000, BLOCK=128 * size, layout=layout)
        launch = stub.last("add")
        assert launch.grid == (-(-1000 // (128 * size)), 1, 1)
        assert struct.unpack("<3Q", b"".join(launch.parameters[:3])) == (x.address, y.address, out.address)
        compiled.add((size, launch.count))
    before = kernel.misses if hasattr(kernel, "misses") else None
    kernel(x, y, out, 1000, BLOCK=128, layout=gl.BlockedLayout([1], [32], [4], [0]))
    assert before is None or kernel.misses == before
    assert len(compiled) == 5


def test_layouts_of_descriptors_decide_the_code():
    kernel = silo.kernel(gluon_kernels.move, grid=(2,))
    x, out = buffers(2, 128, 64, dtype="float16")
    shared = set()
    seen = []
    for width in (128, 0, 64, 128, None):
        layout = None if width is None else gl.NVMMASharedLayout(width, 16, rank=2)
        kernel(descriptor(x, (64, 64), layout), descriptor(out, (64, 64), layout))
        launch = stub.last("move")
        shared.add(launch.shared)
        seen.append(launch.parameters[0][:64].hex())
    assert seen[0] == seen[3]
    assert len({seen[0], seen[1], seen[2]}) == 3
    assert seen[4] == seen[0]  # the default: 128 bytes along the innermost axis


def test_layouts_without_a_tensor_map_are_refused():
    kernel = silo.kernel(gluon_kernels.move, grid=(1,))
    x, out = buffers(2, 64, 64, dtype="float16")
    with pytest.raises(ArgumentError, match="a layout that is not one of a tensor map"):
        kernel(descriptor(x, (64, 64), gl.AutoLayout()), descriptor(out, (64, 64)))
    clusters = gl.NVMMASharedLayout(128, 16, rank=2, cga_layout=[[1, 0]])
    with pytest.raises(ArgumentError, match="a layout that is not one of a tensor map") as caught:
        kernel(descriptor(x, (64, 64), clusters), descriptor(out, (64, 64)))
    assert "cga_layout" in str(caught.value.__cause__)


def test_gluons_own_descriptors(tmp_path):
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    x, out = Base(64, 64), Base(64, 64)

    class Own(TensorDescriptor):
        def __post_init__(self):
            """Without the checks that ask a library's tensors."""

    kernel = silo.kernel(gluon_kernels.move, grid=(1,))
    kernel(*(Own(one.buffer, [64, 64], [64, 1], [64, 64], layout) for one in (x, out)))
    assert stub.last("move").grid == (1, 1, 1)


def test_a_bundle_launches_them(tmp_path):
    from silo.commands.build_bundle import build_bundle

    file = tmp_path / "bundled_gluon.py"
    file.write_text(
        "import silo, gluon_kernels\n"
        "from gluon_kernels import gl\n"
        "move = silo.kernel(gluon_kernels.move, grid=lambda a: (silo.cdiv(a.source.shape[0], 64),))\n"
        "@move.cases()\n"
        "def moves(make):\n"
        "    x, out = make.normal(128, 64, dtype='float16'), make.empty(128, 64, dtype='float16')\n"
        "    both = make.descriptor(x, (64, 64)), make.descriptor(out, (64, 64))\n"
        "    return silo.Case(args=both, expected={'target': lambda: x.host})\n"
    )
    build_bundle([file], tmp_path / "gluon.silo", targets=["cuda"])
    kernels = silo.load(tmp_path / "gluon.silo")
    x, out = buffers(2, 256, 64, dtype="float16")
    kernels.move(descriptor(x, (64, 64)), descriptor(out, (64, 64)))
    assert stub.last("move").grid == (4, 1, 1)
    other = gl.NVMMASharedLayout(64, 16, rank=2)  # the code brings the layout that it was built with
    kernels.move(descriptor(x, (64, 64), other), descriptor(out, (64, 64), other))


def test_an_option_that_is_a_parameter_too():
    kernel = silo.kernel(gluon_kernels.warps, grid=(1,))
    (out,) = buffers(1, 1024)
    for count in (4, 8):
        kernel(out, num_warps=count)
        assert stub.last("warps").block == (32 * count, 1, 1)
