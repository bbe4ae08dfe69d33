"""A bundle of CuTe kernels called in a process without the DSL, on a stub of the driver: what the driver would get."""

import subprocess
import sys

import pytest

import gpu_stub

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

KERNELS = """
import cute_bad_input as samples

clustered = samples.made(samples.plain, lambda make: (*samples.two(make), 100), name="clustered", cluster=2)
dynamic = samples.made(samples.plain, lambda make: (*samples.two(make), 100), name="dynamic", layouts="dynamic")
"""

CALLS = """
import sys
import silo
from gpu_stub import stub

sys.modules["cutlass"] = None  # an import of it fails
kernels = silo.load("k.silo")
x, out = (silo.Buffer((128,), "float32", "cuda:0") for _ in range(2))

def last(name):
    return stub.last(kernels[name].contents.variants[0].artifact.launch.entry)

kernels.clustered[4](x, out, 100)
found = last("clustered")
assert (found.grid, found.block, found.attributes[4]) == ((4, 1, 1), (128, 1, 1), (2, 1, 1)), found
assert [len(one) for one in found.parameters] == [8, 8, 4] and found.parameters[2] == (100).to_bytes(4, "little")
for grid in (1, 3):
    try:
        kernels.clustered[grid](x, out, 100)
    except silo.SiloError as error:
        assert "whole clusters of 2; round the grid up to a multiple of 2" in str(error), error
    else:
        raise AssertionError("a broken cluster was launched")
assert last("clustered").count == found.count
kernels.dynamic[1](x, out, 100)
address, size = (int.from_bytes(last("dynamic").parameters[0][at], "little") for at in (slice(8), slice(8, 12)))
assert (address, size) == (x.address, 128)
assert "chosen: clustered for cuda:sm_90a" in kernels.clustered.explain(x, out, 100)
print("called")
"""


def test_a_bundle_is_launched_without_the_dsl(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS, encoding="utf-8")
    environment = gpu_stub.environment(SILO_HOME=str(tmp_path / "store"))
    words = ["build", "kernels.py", "-o", "k.silo", "-t", "cuda:sm_90a", "--tune", "off"]
    for command in ([sys.executable, "-m", "silo", *words], [sys.executable, "-c", CALLS]):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "called\n"
