"""Metal kernels on the CPU by Silo's own calls: compiled, kept, bundled, tuned."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import silo
from emulator_jobs import require_clang
from silo.core.decisions import Rejected
from silo.core.device import Target
from silo.drivers.cpu.levels import host_target
from silo.emulation.checked_runs import CHECKED_FLAGS
from silo.emulation.clang import choose_clang, find_clang, major_version, precompiled_header
from silo.emulation.runtime import FOLDER as SHARED
from silo.errors import CompilerMissingError
from silo.kinds.metal.clang import HEADER, code_flags
from silo.kinds.metal.metal_compiler import EmulatorCompiler
from silo.kinds.metal.runtime import FOLDER
from silo.settings import override

require_clang()

SCALE = """
#include <metal_stdlib>
using namespace metal;
constant int TIMES [[function_constant(0)]];
constant bool MINUS [[function_constant(1)]];
template <typename T>
[[kernel]] void scale(device const T *x [[buffer(0)]], device T *o [[buffer(2)]], constant uint &n [[buffer(1)]],
                      threadgroup T *s [[threadgroup(0)]], uint i [[thread_position_in_grid]],
                      uint t [[thread_index_in_threadgroup]]) {
  s[t] = i < n ? x[i] : T(0);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i < n) o[i] = (MINUS && is_function_constant_defined(MINUS) ? -s[t] : s[t]) * T(TIMES) + T(MORE);
}
template [[host_name("scale_float")]] [[kernel]] void scale<float>(
    device const float *, device float *, constant uint &, threadgroup float *, uint, uint);
template [[host_name("scale_int")]] [[kernel]] void scale<int>(
    device const int *x [[buffer(0)]], device int *o [[buffer(2)]], constant uint &n [[buffer(1)]],
    threadgroup int *s [[threadgroup(0)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]);
"""


def scale(name):
    return silo.metal(
        SCALE,
        kernel=name,
        constants={"MINUS": True, "MORE": 1},
        group_size="G",
        threadgroup_bytes=lambda c: c.G * 4,
        space={"G": [32, 64], "TIMES": [3]},
        grid=lambda a: (silo.cdiv(a.n, a.G),),
        key=["n"],
        effects={"o": "out"},
    )


@pytest.mark.parametrize("name", ["scale_float", "scale_int"])
def test_templates_constants_and_given_memory(name):
    kernel = scale(name)
    x = np.arange(100, dtype=np.float32 if name == "scale_float" else np.int32)
    o = np.zeros_like(x)
    with override(tune="off"):
        kernel(x, 100, o)
    assert o.tolist() == (1 - 3 * x).tolist()


MODULE = """
import silo
TEXT = {text!r}
add = silo.metal(TEXT, group_size="G", space={{"G": [64, 128]}}, grid=lambda a: (silo.cdiv(a.n, a.G),), key=["n"],
                 effects={{"o": "out"}})

@add.cases(n=[1 << 10])
def _(n, make):
    x = make.normal(n)
    return silo.Case(args=(x, make.empty(n), n), expected={{"o": lambda: x.host + x.host}})
"""
ADD = """
kernel void add(device const float *x [[buffer(0)]], device float *o [[buffer(1)]], constant uint &n [[buffer(2)]],
                uint i [[thread_position_in_grid]]) {
  if (i < n) o[i] = x[i] + x[i];
}
"""


def silo_command(*words):
    done = subprocess.run(
        [sys.executable, "-m", "silo", *map(str, words)], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_bundle_holds_what_it_needs(tmp_path):
    module, bundle, script = tmp_path / "kernels.py", tmp_path / "k.silo", tmp_path / "run.py"
    module.write_text(MODULE.format(text=ADD))
    silo_command("build", module, "-o", bundle, "--target", "cpu", "--tune", "off")
    silo_command("run", bundle)
    assert "add" in silo_command("inspect", bundle)
    script.write_text(
        "import sys, numpy as np, silo\n"
        "k = silo.load(sys.argv[1], trust=True).add\n"
        "x = np.arange(100, dtype='f'); o = np.zeros_like(x); k(x, o, 100)\n"
        "assert (o == 2 * x).all()\n"
        "assert not any('metal' in name for name in sys.modules), sys.modules\n"
    )
    subprocess.run([sys.executable, str(script), str(bundle)], check=True, timeout=240)


def test_which_clang_is_taken():
    found = {"clang++-16": "/a", "clang++-19": "/b", "clang++": "/c"}
    assert choose_clang(None, found) == "/b"
    assert choose_clang("clang++-16", found) == "/a"
    with pytest.raises(CompilerMissingError, match="'clang-7' was not found: correct SILO_CLANG"):
        choose_clang("clang-7", found)
    with pytest.raises(CompilerMissingError, match="apt-get install clang-19"):
        choose_clang(None, {})
    assert major_version("gcc (Debian 12.2.0) 12.2.0") == 0
    with override(clang="gcc"), pytest.raises(CompilerMissingError, match=r"clang 16 or later, and .* is "):
        find_clang()


def test_without_a_clang_it_says_why():
    with override(clang="no-such-clang"):
        answer = EmulatorCompiler().accepts("metal", host_target())
    assert isinstance(answer, Rejected)
    assert "no-such-clang" in answer.reason
    assert not EmulatorCompiler().accepts("triton", host_target())
    assert not EmulatorCompiler().accepts("metal", Target("cpu", "x86-64-v9"))


def test_the_identity_names_clang_and_no_path():
    first = EmulatorCompiler().identity(host_target())
    assert first == EmulatorCompiler().identity(host_target())
    assert "clang version" in first
    assert "/" not in first
    assert first != EmulatorCompiler().identity(Target("cpu", "x86-64-v2"))


def test_headers_are_compiled_once_and_kept_in_the_store(tmp_path, caplog):
    clang, flags = find_clang(), ("-std=gnu++20", "-nostdinc", "-nostdinc++", "-fdeclspec", "-w")
    flags = (*flags, "-Wno-reserved-user-defined-literal", "-Xclang", "-fconvergent-functions", "-isystem", str(SHARED))
    with override(home=tmp_path / "store"):
        made = precompiled_header(clang, flags, HEADER)
        assert made is not None
        before = made.stat().st_mtime_ns
        assert precompiled_header(clang, flags, HEADER) == made
        assert made.stat().st_mtime_ns == before
        assert precompiled_header(clang, (*flags, "-O1"), HEADER) != made
        made.parent.chmod(0o777)
        assert precompiled_header(clang, flags, HEADER) is None
    assert "cannot be kept compiled" in caplog.text


@pytest.mark.parametrize("hooks", [False, True], ids=["alone", "beside another folder of headers"])
def test_headers_kept_by_another_installation_serve_this_one(hooks, tmp_path):
    """The same text at the same place, written at another time: as after installing the package again."""
    runtime = tmp_path / "runtime"
    shutil.copytree(FOLDER, runtime)
    flags = tuple(str(runtime) if flag == str(FOLDER) else flag for flag in code_flags(host_target()))
    clang, flags = find_clang(), (*flags, *(CHECKED_FLAGS if hooks else ()))
    with override(home=tmp_path / "store"):
        header = precompiled_header(clang, flags, runtime / "metal_stdlib")
    assert header is not None
    for number, path in enumerate(sorted(runtime.rglob("*"))):
        os.utime(path, (number, number))
    use = ("-include-pch", str(header), "-Xclang", "-fno-validate-pch", "-fsyntax-only", "-x", "c++", "-")
    text = b"#include <metal_stdlib>\n#include <metal_array>\nmetal::array<half, 2> one;\n"
    done = subprocess.run([*clang.command, *flags, *use], input=text, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
