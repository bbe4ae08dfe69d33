"""The C runtime under AddressSanitizer and UndefinedBehaviorSanitizer, over edge values of every type."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from sanitized_program import build_sanitized, run_sanitized
from silo.drivers.cpu.levels import LEVELS
from silo.kinds.triton.cpu import runtime
from silo.kinds.triton.cpu.runtime.pieces import PIECES

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

MAIN = Path(__file__).with_name("cpu_runtime_check.c").read_text()


@pytest.mark.parametrize("bits", [128, 512])
def test_no_undefined_behaviour_and_no_stray_access(tmp_path, bits):
    source = tmp_path / "check.c"
    source.write_text(runtime.text(set(PIECES), bits) + MAIN)
    # f64 to f32 of a value too large is defined for IEEE types; the sanitizer's float-cast-overflow covers integers.
    flags = [
        "-O1",
        "-g",
        "-w",
        "-fsanitize=address,undefined,float-cast-overflow",
        "-fno-sanitize-recover=all",
        "-fopenmp-simd",
    ]
    assert run_sanitized(build_sanitized(tmp_path / "check", "cc", *flags, source, "-lm")) == "done\n"


@pytest.mark.parametrize("compiler", ["cc", "clang-16"])
@pytest.mark.parametrize("level", sorted(LEVELS))
def test_the_runtime_compiles_without_a_warning(tmp_path, compiler, level):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    if level.startswith("x86-64") != (platform.machine() in ("x86_64", "AMD64")):
        pytest.skip(f"this machine's compilers do not make code for {level}")
    source = tmp_path / "runtime.c"
    source.write_text(runtime.text(set(PIECES), LEVELS[level].vector_bits))
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fopenmp-simd", "-O1", "-c"]
    command = [compiler, *flags, *LEVELS[level].flags, str(source), "-o", str(tmp_path / "o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
