"""Structs by value: their members are values of a call, and the driver gets the struct's bytes."""

import subprocess
import sys

import pytest

import gpu_stub
import silo
from cuda_samples import need_nvrtc
from silo.bundle.encode import minor_version
from silo.core.argument_facts import ArgumentFacts
from silo.core.launch_info import AbiType, LayoutSlot, parameter_bytes
from silo.errors import SourceError
from silo.kinds.binary.binary_source import parse_signature
from silo.settings import override

need_nvrtc()

KERNELS = '''
import silo

TEXT = """
struct Inner { short s[2]; double d; };
struct P { const float *x; float *y; char c; Inner in; float a[2]; bool b; };
extern "C" __global__ void k(int before, P p, P q, float4 f, int after) {
  p.y[0] = p.x[0] + p.c + p.in.s[1] + p.in.d + p.a[1] + p.b + q.a[0] + f.w + before + after;
}
"""
k = silo.cuda(TEXT, threads=32, grid=(1,))


def struct(make, first):
    return (make.normal(4), make.empty(4), first, 1, 2, 2.5, 3.5, 4.5, True)


@k.cases(n=[4])
def _(n, make):
    return silo.Case(args=(7, *struct(make, 5), *struct(make, -6), 1.0, 2.0, 3.0, 4.0, 9))
'''

CALLS = """
import struct
import silo
from gpu_stub import stub

def check(kernel, x, y):
    def made(first):
        return (x, y, first, 1, 2, 2.5, 3.5, 4.5, True)

    for _ in range(2):  # the second call is a hit
        kernel(7, *made(5), *made(-6), 1.0, 2.0, 3.0, 4.0, 9)
        found = stub.last("k").parameters
        assert [len(one) for one in found] == [4, 56, 56, 16, 4], [len(one) for one in found]
        wanted = struct.pack("<QQb7xhh4xdff?7x", x.address, y.address, 5, 1, 2, 2.5, 3.5, 4.5, True)
        assert found[1] == wanted, (found[1], wanted)
        assert found[2] == wanted[:16] + b"\\xfa" + wanted[17:], found[2]
        assert found[3] == struct.pack("<4f", 1, 2, 3, 4)
        assert (found[0], found[4]) == ((7).to_bytes(4, "little"), (9).to_bytes(4, "little"))

x, y = (silo.Buffer((4,), "float32", "cuda:0") for _ in range(2))
check(silo.load("k.silo").k, x, y)
print("called")
"""


def run(folder, *command, **more):
    environment = gpu_stub.environment(SILO_HOME=str(folder / "store"), **more)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_struct_reaches_the_driver_as_c_lays_it_out(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS, encoding="utf-8")
    silo_command = (sys.executable, "-m", "silo")
    run(tmp_path, *silo_command, "build", "kernels.py", "-o", "k.silo", "-t", "cuda:sm_90a", "--tune", "off")
    assert run(tmp_path, sys.executable, "-c", CALLS, SILO_NVRTC=str(tmp_path / "absent.so")) == "called\n"


def test_members_are_parameters_of_a_call(tmp_path):
    text = "struct P { const float *x; float *z; int n; };\n__global__ void k(P p, float *y) {}"
    with override(home=tmp_path):
        source = silo.cuda(text, threads=1, signature={"p_z": "out"}).kernel.source
        assert source.signature.names == ("p_x", "p_z", "p_n", "y")
        array = ArgumentFacts.array("float32")
        signature, _ = source.specialize({"p_x": array, "p_z": array, "p_n": ArgumentFacts(3), "y": array})
        assert [one.effect.value for one in signature.parameters if one.kind.value == "pointer"] == [
            "read",
            "write",
            "both",
        ]
        assert source.layout(signature)[:3] == (
            LayoutSlot("p_x", AbiType.POINTER, "member.0.24"),
            LayoutSlot("p_z", AbiType.POINTER, "member.8.24"),
            LayoutSlot("p_n", AbiType.I32, "member.16.24"),
        )
        with pytest.raises(SourceError, match=r"p_x is const float \*, so it is not written"):
            assert silo.cuda(text, threads=1, signature={"p_x": "out"}).kernel.source.passed


@pytest.mark.parametrize(
    "text",
    [
        "#define N 2\nstruct P { int a[N]; };\n__global__ void k(P p) {}",
        "template <class T> struct P { T a; T b; };\nusing Q = P<int>;\n__global__ void k(Q q) {}",
        "struct Base { int a; }; struct P : Base { int b; };\n__global__ void k(P p) {}",
        "union P { int a; float b; };\n__global__ void k(P p) {}",
        "struct P { virtual __device__ int f() { return 1; } int a; };\n__global__ void k(P p) {}",
    ],
)
def test_a_struct_that_tokens_misread_is_refused(tmp_path, text):
    with override(home=tmp_path), pytest.raises(SourceError, match=r"a pointer to such a struct|struct of . bytes"):
        assert silo.cuda(text, threads=1).kernel.source.passed


def test_a_binary_declares_the_members_of_a_struct():
    declared = parse_signature("k", {"p": {"x": "in *fp32", "f": "i8", "n": "i32"}, "q": {"a": "fp64"}, "m": "i32"})
    assert declared.signature.names == ("p_x", "p_f", "p_n", "q_a", "m")
    assert [slot.part for slot in declared.layout] == ["member.0.16", "member.8.16", "member.12.16", "member.0.8", ""]
    assert parameter_bytes(declared.layout) == [16, 8, 4]


def test_two_structs_of_one_form_are_two_parameters():
    slots = [LayoutSlot(f"{name}.{at}", AbiType.I32, f"member.{4 * at}.8") for name in "pq" for at in range(2)]
    assert parameter_bytes(slots) == [8, 8]
    assert [LayoutSlot.from_json(one.to_json()) for one in slots] == slots
    assert [minor_version(one) for one in (slots[0], LayoutSlot("n", AbiType.I32))] == [8, 0]
    with pytest.raises(ValueError, match="layout"):
        LayoutSlot.from_json(["p", "i32", "member.4"])
