"""Tensor maps among the parameters: calls pass descriptors, and the driver gets 128 bytes that it encoded."""

import subprocess
import sys

import pytest

import gpu_stub
import silo
from cuda_samples import need_nvrtc
from silo.core.argument_facts import ArgumentFacts
from silo.errors import ArgumentError, SourceError
from silo.kinds.binary.binary_source import parse_signature
from silo.settings import override

need_nvrtc()

TEXT = """
struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; };
typedef CUtensorMap_st CUtensorMap;
extern "C" __global__ void k(const __grid_constant__ CUtensorMap m, float *out, int n) {
  out[n] = (float)((unsigned long long)&m & 63);
}
"""

KERNELS = f"""
import silo

k = silo.cuda('''{TEXT}''', threads=32, grid=(1,),
    signature={{"m": "in tensormap fp16 16x64 swizzle128", "out": "out"}})


@k.cases(n=[4])
def _(n, make):
    x, out = make.normal(64, 128, dtype="float16"), make.empty(8)
    return silo.Case(args=(make.descriptor(x, (16, 64)), out, n))
"""

CALLS = """
import silo
from gpu_stub import stub

kernel = silo.load("k.silo").k
x, out = silo.Buffer((64, 128), "float16", "cuda:0"), silo.Buffer((8,), "float32", "cuda:0")
for _ in range(2):
    kernel(silo.TensorDescriptor(x, (64, 128), (128, 1), [16, 64]), out, 3)
    found = stub.last("k").parameters
    assert [len(one) for one in found] == [128, 8, 4], [len(one) for one in found]
try:
    kernel(silo.TensorDescriptor(x, (64, 128), (128, 1), [8, 64]), out, 3)
except silo.SiloError as error:
    assert "16" in str(error), error
else:
    raise AssertionError("another block was launched")
print("called")
"""


def run(folder, *command, **more):
    environment = gpu_stub.environment(SILO_HOME=str(folder / "store"), **more)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_descriptor_becomes_a_tensor_map(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS, encoding="utf-8")
    silo_command = (sys.executable, "-m", "silo")
    run(tmp_path, *silo_command, "build", "kernels.py", "-o", "k.silo", "-t", "cuda:sm_90a", "--tune", "off")
    assert run(tmp_path, sys.executable, "-c", CALLS, SILO_NVRTC=str(tmp_path / "absent.so")) == "called\n"


def test_a_map_needs_its_encoding_and_fitting_blocks(tmp_path):
    with override(home=tmp_path):
        with pytest.raises(SourceError, match="only signature= says how it is encoded"):
            assert silo.cuda(TEXT, threads=32).kernel.source.passed
        with pytest.raises(SourceError, match="its element, its box"):
            silo.cuda(TEXT, threads=32, signature={"m": "in tensormap fp16"})
        source = silo.cuda(TEXT, threads=32, signature={"m": "in tensormap fp16 16x64"}).kernel.source
        rest = {"out": ArgumentFacts.array("float32"), "n": ArgumentFacts(1)}
        with pytest.raises(ArgumentError, match=r"takes a silo\.TensorDescriptor"):
            source.specialize({"m": ArgumentFacts.array("float16"), **rest})


def test_a_binary_declares_a_map():
    declared = parse_signature("k", "m: in tensormap bf16 64x32 swizzle64, n: i32")
    (encoding,) = declared.maps
    assert (encoding.name, encoding.box, encoding.swizzle, encoding.element_type) == ("m", (64, 32), 2, 9)
    assert [slot.type.value for slot in declared.layout] == ["tensormap", "i32"]
    assert declared.signature["m"].kind.value == "descriptor"
