"""A bundle of CUDA C++ kernels called in a process without NVRTC, on a stub of the driver: what the driver gets."""

import hashlib
import subprocess
import sys

import gpu_stub
from cuda_samples import need_nvrtc

need_nvrtc()

KERNELS = '''
import silo

step = silo.cuda(
    """
    extern __shared__ float buffer[];
    template <class T> __global__ void __cluster_dims__(2) step(const T *x, T *out, bool on, float a, long long n) {
      buffer[threadIdx.x] = x[0];
      out[n] = on ? a * buffer[0] : X;
    }
    """,
    entry="step<float>", threads=(8, "Y"), shared=lambda c: 4 * 8 * c.Y, space={"Y": [4, 8]}, constants={"X": 3},
    signature={"out": "out"}, grid=lambda a: (a.n,),
)


@step.cases(n=[4])
def _(n, make):
    x, out = make.normal(64), make.empty(64)
    return silo.Case(args=(x, out, True, 1.5, n))
'''

CALLS = """
import struct
import silo
from gpu_stub import stub

kernels = silo.load("k.silo", trust=False)
x, out = (silo.Buffer((64,), "float32", "cuda:0") for _ in range(2))
kernels.step(x, out, True, 1.5, 7)
entry = kernels["step"].contents.variants[0].artifact.launch.entry
assert entry == "_Z4stepIfEvPKT_PS0_bfx", entry
found = stub.last(entry)
assert (found.grid, found.block, found.shared) == ((14, 1, 1), (8, 4, 1), 128), found
assert found.attributes[4] == (2, 1, 1), found.attributes
assert [len(one) for one in found.parameters] == [8, 8, 1, 4, 8], found.parameters
assert found.parameters[0] == x.address.to_bytes(8, "little")
assert list(found.parameters[2:]) == [b"\\1", struct.pack("<f", 1.5), (7).to_bytes(8, "little")], found.parameters
for arguments, words in (((x, out, True, 1.5), "without n"), ((x, out, True, 1.5, 2.5), "int")):
    try:
        kernels.step(*arguments)
    except silo.SiloError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
print("called")
"""


def run(folder, *command, **more):
    environment = gpu_stub.environment(SILO_HOME=str(folder / "store"), **more)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_bundle_is_launched_without_nvrtc(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS, encoding="utf-8")
    silo = (sys.executable, "-m", "silo")
    run(tmp_path, *silo, "build", "kernels.py", "-o", "k.silo", "-t", "cuda:sm_90a", "--tune", "off")
    assert run(tmp_path, sys.executable, "-c", CALLS, SILO_NVRTC=str(tmp_path / "absent.so")) == "called\n"
    shown = run(tmp_path, *silo, "inspect", "k.silo", "--verify")
    assert "*fp32, *fp32, bool, fp32, i64" in shown or "*fp32, *fp32, i1, fp32, i64" in shown
    first = hashlib.sha256((tmp_path / "k.silo").read_bytes()).digest()
    other = tmp_path / "other"
    other.mkdir()
    (other / "kernels.py").write_text(KERNELS, encoding="utf-8")
    run(other, *silo, "build", "kernels.py", "-o", "k.silo", "-t", "cuda:sm_90a", "--tune", "off")
    assert hashlib.sha256((other / "k.silo").read_bytes()).digest() == first


def test_the_bundle_is_exported_and_its_code_is_shown(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS, encoding="utf-8")
    silo = (sys.executable, "-m", "silo")
    run(tmp_path, *silo, "build", "kernels.py", "-o", "k.silo", "-t", "cuda:sm_90a", "--tune", "off")
    run(tmp_path, *silo, "export", "k.silo", "--cpp", "engine")
    header = "".join(path.read_text() for path in (tmp_path / "engine").glob("*.hpp"))
    assert "step" in header
    ptx = run(tmp_path, *silo, "inspect", "kernels.py", "--code", "ptx", "--kernel", "step", "-t", "cuda:sm_90a")
    assert ".entry _Z4stepIfEvPKT_PS0_bfx" in ptx
