"""Kernels in Helion's form: built and bundled without a GPU, launched on a stub of the driver."""

from importlib.util import find_spec

import pytest

import gpu_stub
from silo.bundle.reader import open_bundle
from silo.commands.build_bundle import build_bundle
from silo.settings import override

pytestmark = pytest.mark.skipif(find_spec("cutlass") is None, reason="CuTe kernels are compiled by the CuTe DSL")

MODULE = """
import helion_form, numpy as np
from silo.integrations.helion import CallNotes

def noted(host, *arrays, expected):
    notes = CallNotes()
    host(*arrays, _launcher=notes)
    return notes.calls[0].silo_kernel({"out": expected})

f32 = np.float32
scale = noted(helion_form.scale, np.ones((64, 64), f32), np.ones((64, 64), f32), expected=lambda x, **_: 2.5 * x + 3)
total = noted(helion_form.total, np.ones((64, 256), f32), np.ones(64, f32), expected=lambda x, **_: x.sum(axis=1))
marked = noted(helion_form.marked, np.ones(128, f32), np.ones(128, f32), expected=lambda x, **_: 2 * x)
clustered = noted(helion_form.clustered, np.ones(256, f32), np.ones(256, f32), expected=lambda x, **_: x)
"""

OPERANDS = """
import ml_dtypes, helion_form, numpy as np
from silo.integrations.helion import CallNotes

def noted(host, *arrays):
    notes = CallNotes()
    host(*arrays, _launcher=notes)
    return notes.calls[0].silo_kernel()

bf16 = ml_dtypes.bfloat16
operands = noted(helion_form.operands, np.ones((512, 256), bf16), np.ones((256, 512), bf16), np.ones((512, 512), bf16))
"""


def built(folder, text, target, name="k"):
    folder.mkdir()
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    with override(home=folder / "store"):
        build_bundle([folder / f"{name}.py"], folder / f"{name}.silo", targets=[target], tune="off")
    return folder / f"{name}.silo"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """The same kernels, built in two folders with a store each."""
    home = tmp_path_factory.mktemp("built")
    return [built(home / word, MODULE, "cuda:sm_90a") for word in ("here", "there")]


def test_they_are_built_without_a_gpu_the_same_in_two_folders(bundles):
    one, other = bundles
    assert one.read_bytes() == other.read_bytes()


def test_what_a_launch_needs_is_in_the_bundle(bundles):
    bundle = open_bundle(bundles[0])
    launches = {name: bundle.open_kernel(name)[0].artifact.launch for name in bundle.kernel_names}
    assert {name: (one.block, one.cluster, one.pdl) for name, one in launches.items()} == {
        "_helion_scale": ((64, 16, 1), (1, 1, 1), False),
        "_helion_total": ((32, 4, 1), (1, 1, 1), False),
        "_helion_marked": ((128, 1, 1), (1, 1, 1), True),
        "_helion_clustered": ((128, 1, 1), (1, 2, 1), False),
    }
    assert [slot.type.value for slot in launches["_helion_scale"].layout] == ["ptr", "ptr", "fp32", "i64"]
    assert [slot.type.value for slot in launches["_helion_total"].layout] == ["ptr", "ptr"]


def test_the_maps_of_a_matmul_are_made_by_the_launcher(tmp_path):
    bundle = open_bundle(built(tmp_path / "here", OPERANDS, "cuda:sm_100a"))
    launch = bundle.open_kernel("_helion_operands")[0].artifact.launch
    assert [slot.type.value for slot in launch.layout] == ["ptr"] * 3 + ["tensormap"] * 3
    assert [(one.name, one.box) for one in launch.tensor_maps] == [
        ("x", (128, 64)),
        ("y", (64, 64)),
        ("out", (128, 32)),
    ]


def test_launches_reach_the_driver_as_helion_means_them():
    gpu_stub.run(LAUNCHES, timeout=240)


LAUNCHES = """
import struct
import numpy as np
import helion_form
from gpu_stub import stub
from silo.errors import SiloError
from silo.integrations.helion import default_cute_launcher, helion_kernels


class Array:
    device = "cuda:0"

    def __init__(self, *shape):
        self.values = np.ones(shape, np.float32)
        self.dtype, self.shape = self.values.dtype, self.values.shape

    def data_ptr(self):
        return self.values.ctypes.data

    def stride(self):
        return tuple(step // 4 for step in self.values.strides)

    def reshape(self, *shape):
        view = Array(*shape)
        view.values = self.values.reshape(shape)
        return view


def address(array):
    return struct.pack("<Q", array.data_ptr())


def entry(array, *others, grid):
    made = list(helion_kernels._kernels._cached_kernels.values())[-1].made
    return made.compiled(array, *others, grid=grid).metadata.name


x, out = Array(64, 64), Array(64, 64)
for _ in range(3):
    helion_form.scale(x, out, _launcher=default_cute_launcher)
last = stub.last(entry(x, out, 2.5, 3, grid=(4, 1, 1)))
assert (last.count, last.grid, last.block) == (3, (4, 1, 1), (64, 16, 1)), last
assert last.parameters == (address(x), address(out), struct.pack("<f", 2.5), struct.pack("<q", 3)), last
assert len(helion_kernels._kernels._cached_kernels) == 1

x, out = Array(32, 256), Array(32)
helion_form.total(x, out, _launcher=default_cute_launcher)
last = stub.last(entry(x, out, 32, grid=(8, 1, 1)))
assert (last.grid, last.block, last.parameters) == ((8, 1, 1), (32, 4, 1), (address(x), address(out))), last
helion_form.total(Array(0, 256), out, _launcher=default_cute_launcher)  # a grid without programs
assert stub.last(entry(x, out, 32, grid=(8, 1, 1))).count == last.count

x, out = Array(256), Array(256)
helion_form.clustered(x, out, _launcher=default_cute_launcher)
last = stub.last(entry(x, out, grid=(1, 2, 1)))
assert (last.grid, last.block, last.attributes[4]) == ((1, 2, 1), (128, 1, 1), (1, 2, 1)), last

x, out = Array(128), Array(128)
helion_form.marked(x, out, _launcher=default_cute_launcher)
last = stub.last(entry(x, out, grid=(1, 1, 1)))
assert (last.grid, last.block) == ((1, 1, 1), (128, 1, 1)) and last.attributes[6][0] == 1, last

try:
    default_cute_launcher(helion_form._helion_operands, (16,), x, x, block=(32, 6, 1))
except SiloError as error:
    assert "name argument 2, and the call has 2" in str(error), error
else:
    raise AssertionError("a plan of three operands took two")
"""
