"""A kernel that the CuTe DSL's own host code launches, out of a bundle, where the DSL's Python cannot be imported.

Needs the DSL for building (``SILO_TEST_CUTE_HOST_BUNDLE`` names a bundle that was built elsewhere), and in any case its
runtime library and tvm-ffi.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[1] / "samples"
ROOT = SAMPLES.parents[1]

if find_spec("tvm_ffi") is None or find_spec("nvidia_cutlass_dsl") is None:
    pytest.skip("the CuTe DSL's runtime library and tvm-ffi are not installed", allow_module_level=True)

PRELUDE = """
import sys
import torch

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "cutlass":
            raise ImportError("the DSL is not to be imported")

sys.meta_path.insert(0, Absent())
import silo
from silo.errors import ArgumentError, NoVariantError

N = 1000
kernel = silo.load(sys.argv[1], trust=True)["add"]
a, b = (torch.randn(N, device="cuda") for _ in range(2))
c = torch.zeros(N, device="cuda")
expected = a + 2 * b
def right():
    torch.cuda.synchronize()
    return torch.equal(c, expected)
kernel(a, b, c, 2.0, N)
assert right()
c.zero_()
torch.cuda.synchronize()
"""

STREAMS = """
side = torch.cuda.Stream()
for given in (None, side, side.cuda_stream):
    c.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        if given is None:
            kernel(a, b, c, 2.0, N)
    if given is not None:
        kernel(a, b, c, 2.0, N, stream=given)
    assert torch.cuda.default_stream().query()
    assert not side.query()
    assert not torch.equal(c, expected), "it ran before what its stream had to do first"
    assert right()
"""

GRAPH = """
kernel(a, b, c, 2.0, N)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    kernel(a, b, c, 2.0, N)
c.zero_()
graph.replay()
assert right()
a += 1
expected = a + 2 * b
graph.replay()
assert right()
"""

REFUSED = """
wide = torch.randn(2 * N, device="cuda")
for other in (wide[::2], wide[:N - 1], wide[1:N + 1], wide.to(torch.float16)[:N], torch.zeros(N), wide[:N].view(N, 1)):
    try:
        kernel(a, other, c, 2.0, N)
    except (ArgumentError, NoVariantError):
        continue
    raise AssertionError(f"{other.shape}, {other.stride()}, {other.dtype} on {other.device} was taken")
try:
    import numpy
    kernel(*(numpy.zeros(N, "f4") for _ in range(3)), 2.0, N)
except (ArgumentError, NoVariantError):
    pass
else:
    raise AssertionError("memory of the host was taken")
"""

OTHER_LIBRARIES = """
arrays = [silo.Buffer((N,), "float32", device="cuda") for _ in range(3)]
for array, data in zip(arrays, (a, b, c)):
    array.copy_from(data.cpu().numpy())
kernel(*arrays, 2.0, N)
torch.cuda.synchronize()
assert torch.equal(torch.from_dlpack(arrays[2]), expected)
try:
    import cupy
except ImportError:
    cupy = None
if cupy is not None:
    given = [cupy.asarray(one) for one in (a, b, c)]
    kernel(*given, 2.0, N)
    assert right()
"""

THREAD = """
import threading
raised = []
def work():
    try:
        kernel(a, b, c, 2.0, N)
    except Exception as error:
        raised.append(error)
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert raised == [] and right()
"""

TENSOR_MAPS = """
copy = silo.load(sys.argv[1], trust=True)["copy"]
x = torch.randn(256, 32, device="cuda")
out = torch.zeros_like(x)
copy(x, out)
torch.cuda.synchronize()
assert torch.equal(out, x)
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    if made := os.environ.get("SILO_TEST_CUTE_HOST_BUNDLE"):
        return Path(made)
    folder = tmp_path_factory.mktemp("bundle")
    path = folder / "k.silo"
    source = SAMPLES / "cute_host_kernels.py"
    done = subprocess.run(
        [sys.executable, "-m", "silo", "build", str(source), "-o", str(path), "-t", "cuda:sm_90a"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SILO_HOME": str(folder / "store")},
    )
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize(
    "code",
    [STREAMS, GRAPH, REFUSED, OTHER_LIBRARIES, THREAD, TENSOR_MAPS],
    ids=["streams", "graph", "refused", "other_libraries", "thread", "tensor_maps"],
)
def test_host_code_of_the_dsl_in_a_process_without_the_dsl(bundle, tmp_path, code):
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code, str(bundle)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "SILO_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
