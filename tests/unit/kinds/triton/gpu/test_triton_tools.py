"""Triton's own tools for C, ``triton.tools.compile`` and ``triton.tools.link``, on a machine without a GPU."""

import re

import pytest

from triton_entry import SILO, answer

triton = pytest.importorskip("triton", reason="Triton is not installed")
VERSION = tuple(map(int, triton.__version__.split(".")[:2]))

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def scaled(x, out, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * by, mask=i < n)
"""

TOOLS = """
import json, runpy, sys, warnings
from pathlib import Path

warnings.simplefilter("ignore")

def tool(name, *arguments):
    sys.argv = [name, *arguments]
    runpy.run_module("triton.tools." + name, run_name="__main__")

for kernel, signature in (("copy", "*fp32:16,*fp32:16,i32,64"), ("scaled", "*fp32:16,*fp16:16,i64,fp32,64")):
    tool("compile", "kernels.py", "-n", kernel, "-t", TARGET, "-s", signature, "-g", "n/64,1,1", "-o", kernel)
    tool("link", *map(str, Path.cwd().glob(kernel + ".*.h")), "-o", "linked_" + kernel)
print(json.dumps({path.name: path.read_text() for path in Path.cwd().glob("*.[ch]")}))
"""

# The driver that is active where such a GPU is, with none of its libraries.
REAL_DRIVER = """
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

class RealDriver(DriverBase):
    is_active = staticmethod(lambda: True)
    get_current_target = staticmethod(lambda: GPUTarget({target}))

    def map_python_to_cpp_type(self, ty):
        from triton.backends.{name}.driver import ty_to_cpp
        return ty_to_cpp(ty)

RealDriver.__abstractmethods__ = frozenset()
"""
REAL_COMPILER = """
from triton.backends.compiler import BaseBackend

class RealBackend(BaseBackend):
    supports_target = staticmethod(lambda target: False)

RealBackend.__abstractmethods__ = frozenset()
"""

# Without lines, so that the code does not depend on the folder.
NO_GPU = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "ROCR_VISIBLE_DEVICES": "",
    "TRITON_DISABLE_LINE_INFO": "1",
}


def generated(folder, target, **options):
    folder.mkdir()
    (folder / "kernels.py").write_text(KERNELS)
    return answer(folder, TOOLS.replace("TARGET", repr(target)), **options, **NO_GPU)


@pytest.mark.parametrize(
    ("target", "driver", "real", "pointer"),
    [
        pytest.param(
            *("cuda:80:32", "nvidia", "'cuda', 80, 32", "CUdeviceptr"),
            marks=pytest.mark.skipif(VERSION < (3, 9), reason="this Triton's tool fails for every target cuda:..."),
        ),
        pytest.param(
            *("hip:gfx942:64", "amd", "'hip', 'gfx942', 64", "hipDeviceptr_t"),
            marks=pytest.mark.skipif(VERSION < (3, 7), reason="this Triton's tool does not link for hip"),
        ),
    ],
    ids=["cuda", "hip"],
)
def test_the_generated_functions_are_those_of_a_machine_with_the_gpu(tmp_path, target, driver, real, pointer):
    package = tmp_path / "packages" / "real_gpu"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "compiler.py").write_text(REAL_COMPILER)
    (package / "driver.py").write_text(REAL_DRIVER.format(name=driver, target=real))
    expected = generated(tmp_path / "real", target, entries={"real": "real_gpu"}, path=[package.parent])
    found = generated(tmp_path / "silo", target, entries=SILO)
    assert set(found) == set(expected)
    assert sum(name.startswith("linked_") for name in found) == 4
    for name, text in expected.items():
        if "copy" in name:
            assert found[name] == text, name
    declared = rf"copy_default\(\w+ stream, {pointer} x, {pointer} out, int32_t n\)"
    assert re.search(declared, found["linked_copy.h"])
    # Triton's own types say double for a parameter of four bytes, whose address the C text passes.
    declared = rf"scaled_default\(\w+ stream, {pointer} x, {pointer} out, int64_t n, float by\)"
    assert re.search(declared, found["linked_scaled.h"])
