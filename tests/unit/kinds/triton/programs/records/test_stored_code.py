"""Code of programs that tune, in the store: a later process with an empty cache of Triton's compiles nothing.

The programs run on the stub driver, and count what Triton compiles by the stages of its backend.
"""

import subprocess
import sys
import textwrap

import pytest
import triton_on_stub

from triton_programs import HEAD as PROGRAM
from triton_programs import TUNED, program

pytest.importorskip("torch", reason="Triton's driver for NVIDIA's GPUs asks torch for dtypes here")

COUNTED = """
import os, tempfile
from pathlib import Path
import triton.backends.nvidia.compiler as nvidia
staged = []
own_stages = nvidia.CUDABackend.add_stages
def add_stages(self, stages, options, *more):
    staged.append(options.num_warps)
    return own_stages(self, stages, options, *more)
nvidia.CUDABackend.add_stages = add_stages
if "KEPT_FOLDER" not in os.environ:
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
def digests():
    import hashlib
    folder = os.environ["TRITON_CACHE_DIR"]
    found = {str(one.relative_to(folder)): one.read_bytes() for one in Path(folder).glob("*/*") if one.is_file()}
    return {name: hashlib.sha256(data.replace(folder.encode(), b"")).hexdigest() for name, data in found.items()
            if not name.endswith(".so")}
"""
CALLS = """
with silo.accelerate():
    for n in (100, 256):
        t[(1,)](x, z, n)
    k[(1,)](x, y, z, 64, 2.0, BLOCK=64)
print("staged", len(staged), len(measured), t.best_config.kwargs["BLOCK"])
print("files", sorted(digests().items()))
"""
WHOLE = TUNED + COUNTED + CALLS


def line(said, begin="staged"):
    return next(one for one in said.splitlines() if one.startswith(f"{begin} "))


def files(said):
    return dict(eval_pairs(line(said, "files")))


def eval_pairs(text):
    import ast

    return ast.literal_eval(text.removeprefix("files "))


@pytest.fixture
def home(tmp_path):
    return str(tmp_path / "home")


def blobs(home):
    from pathlib import Path

    return [one for one in Path(home, "blobs").rglob("*") if one.is_file()]


def test_a_second_process_with_an_empty_cache_compiles_and_measures_nothing(home):
    first = program(WHOLE, SILO_HOME=home, SILO_COMPILE_AHEAD="0")
    assert line(first) == "staged 5 4 128"  # two configs for each of two variants, and a kernel that nobody tunes
    second = program(WHOLE, SILO_HOME=home)
    assert line(second) == "staged 0 0 128"
    made, found = files(first), files(second)
    assert found.items() <= made.items()
    # The winner's two variants and the other kernel, each with eight stages' files and the list of them.
    assert {name.partition("/")[2] for name in found} >= {"t.cubin", "__grp__t.json", "k.cubin", "t.source"}
    assert len({name.partition("/")[0] for name in found}) == 3


def test_what_workers_compiled_is_kept_as_well(home):
    two = TUNED + COUNTED.replace(
        "staged = []",
        "staged = []\nimport silo.kinds.triton.programs.searches.ahead_compiles as ahead_compiles\n"
        "ahead_compiles.available_cpus = lambda: 3",
    )
    first = program(two + CALLS, SILO_HOME=home)
    assert line(first).endswith(" 4 128")
    second = program(two + CALLS, SILO_HOME=home)
    assert line(second) == "staged 0 0 128"
    assert files(second).items() <= files(first).items()
