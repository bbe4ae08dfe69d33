"""Kernels in CUDA C++ on the CPU under AddressSanitizer and UndefinedBehaviorSanitizer: the emulator's own headers."""

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuda_cpu_samples import RIGHT, RightKernel, launcher_of, need_clang
from cuda_samples import variant_of
from sanitized_program import build_sanitized
from silo.core.launch_info import AbiType
from silo.drivers.cpu.levels import host_target
from silo.emulation.clang import find_clang, scratch_bytes
from silo.kinds.cuda_cpp.cpu.cpu_build import code_flags, group_memory
from silo.kinds.cuda_cpp.cpu.cpu_text import entry_text

pytestmark = pytest.mark.skipif(bool(need_clang()), reason=need_clang() or "clang is here")

CHECKS = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
ROOT = Path(__file__).parents[2]
STACK = 1 << 17  # instrumented frames are several times as large
VALUES = {AbiType.I32: np.int32, AbiType.U32: np.uint32, AbiType.FP32: np.float32, AbiType.I64: np.int64}

GRID = RightKernel(
    "a barrier of the grid",
    """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
struct Scale { float by; int add[2]; };
__global__ void k(const float *x, float *sums, float *o, Scale scale, int n) {
  cg::grid_group grid = cg::this_grid();
  extern __shared__ float s[];
  __shared__ int count;
  int t = threadIdx.x;
  if (t == 0) count = 0;
  float sum = 0;
  for (int i = grid.thread_rank(); i < n; i += grid.size()) sum += x[i];
  for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (t % 32 == 0) s[t / 32] = sum;
  __syncthreads();
  atomicAdd(&count, 1);
  __syncthreads();
  if (t == 0) sums[blockIdx.x] = (s[0] + s[1]) * scale.by + scale.add[1] + (count - 64);
  grid.sync();
  float all = 0;
  for (int b = 0; b < gridDim.x; b++) all += sums[b];
  cg::sync(grid);
  for (int i = grid.thread_rank(); i < n; i += grid.size()) o[i] = x[i] + all;
}""",
    lambda rng: {
        "x": rng.integers(0, 9, 300).astype(np.float32),
        "sums": np.zeros(5, np.float32),
        "o": np.zeros(300, np.float32),
        "scale": np.array([(2.0, (1, 3))], np.dtype([("by", np.float32), ("add", np.int32, 2)])).tobytes(),
        "n": 300,
    },
    lambda given: {"o": given["x"] + 2 * given["x"].sum() + 15},
    64,
    (5,),
    shared=8,
)
SAMPLES = (GRID, *RIGHT)
QUICK = {"a barrier of the grid", "cooperative groups"}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program that loads objects with sanitizers and runs their kernels."""
    made = tmp_path_factory.mktemp("emulator") / "emulator_check"
    flags = ("-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'native' / 'core'}", *CHECKS)
    clang = find_clang().command[0].replace("clang++", "clang")
    source = Path(__file__).with_name("emulator_check.c")
    return build_sanitized(made, clang, *flags, "-rdynamic", str(source), "-ldl", "-lpthread")


def run(program, folder, one, given):
    """Runs a kernel of an instrumented object; returns the finished process of the program."""
    made = launcher_of(one, cooperative=one is GRID)
    unit = replace(made.kernel.source.unit(variant_of(made, str(host_target()))), cooperative=one is GRID)
    memory = group_memory(unit)
    text = entry_text(unit, "entry", waits=one.waits, stack=STACK, memory=memory)
    source, built = folder / "kernel.cc", folder / "kernel.so"
    source.write_text(text)
    flags = [flag for flag in code_flags(host_target(), waits=one.waits) if flag not in ("-O2", "-g0")]
    more = ("-O1", "-g", "-DSILO_THREADS_SANITIZED", "-shared", *CHECKS, "-fno-sanitize=vptr,function")
    build_sanitized(built, *find_clang().command, *flags, *more, str(source))
    x, y, z = unit.block
    scratch = scratch_bytes(x * y * z, memory, STACK) if one.waits else 0
    grid = (*one.grid, 1, 1)[:3]
    lines = [f"{built} entry {int(one is GRID)} {grid[0]} {grid[1]} {grid[2]} {scratch} {len(given)}"]
    kinds = iter(unit.layout)
    for value in given.values():
        slot = next(kinds)
        if isinstance(value, np.ndarray):
            lines.append(f"array {value.nbytes} {value.tobytes().hex()}")
            continue
        if isinstance(value, bytes):  # a struct by value
            data = value
            for _ in range(2):
                next(kinds)
        else:
            data = VALUES[slot.type](value).tobytes()
        lines.append(f"value {len(data)} {data.hex()}")
    return subprocess.run(
        [str(program)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={"ASAN_OPTIONS": "detect_stack_use_after_return=0"},  # each thread of a block has its own stack
    )


@pytest.mark.parametrize(
    "one", [pytest.param(one, id=one.name, marks=() if one.name in QUICK else pytest.mark.all) for one in SAMPLES]
)
def test_no_undefined_behaviour_and_no_stray_access(program, tmp_path, one):
    given = one.arguments(np.random.default_rng(5))
    done = run(program, tmp_path, one, given)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = iter(done.stdout.splitlines())
    after = {
        name: np.frombuffer(bytes.fromhex(next(lines)), value.dtype)
        for name, value in given.items()
        if isinstance(value, np.ndarray)
    }
    for name, value in one.expected(given).items():
        wanted = np.asarray(value)
        error = np.abs(after[name].astype(np.float64) - wanted).max() / max(np.abs(wanted).max(), 1e-30)
        assert error <= one.tolerance, (name, error)


def test_the_sanitizers_see_a_kernel_that_leaves_its_array(program, tmp_path):
    given = GRID.arguments(np.random.default_rng(5))
    done = run(program, tmp_path, GRID, {**given, "sums": given["sums"][:4]})
    assert "heap-buffer-overflow" in done.stderr
