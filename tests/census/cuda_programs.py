"""Programs of public repositories that say ``cuda``, unchanged, each in a process of ``silo exec --on cpu``.

``python -m tests.census.cuda_programs FOLDER [--few N] [--seconds N] [--packages DIR] [WORD...]`` runs those whose name
holds a word. FOLDER has a checkout of each repository under its name; one that is missing is named. Each program
compares its own results: they are the repositories' tests, of which ``--few`` are taken from each file (1), and
Triton's tutorials, whose benchmarks are not drawn. DIR is put on the import path after the rest, for packages that a
repository needs besides (Liger's tests: transformers; mamba: huggingface_hub; tutorial 04: tabulate).

Prints a line for each program: ``ok``, or its exit code, seconds, counts of pytest; exits with 1 unless all are ok.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Checkouts by name: the repository, and the folder of its package; None: the package is installed (fla-core 0.6.0).
REPOSITORIES = {
    "conch": ("stackav-oss/conch", "."),
    "flash-linear-attention": ("fla-org/flash-linear-attention", None),
    "Liger-Kernel": ("linkedin/Liger-Kernel", "src"),
    "mamba": ("state-spaces/mamba", "."),
    "triton": ("triton-lang/triton", None),
}
TESTS = {
    "conch": [
        f"tests/{name}_test.py"
        for name in (
            "rms_norm", "gemma_rms_norm", "silu_and_mul", "gelu_tanh_and_mul", "rotary_embedding", "copy_blocks",
            "int8_quant_kernels", "scaled_gemm", "quantize_blockwise", "dequantize_blockwise", "mixed_precision_gemm",
            "reshape_and_cache", "paged_attention", "nms", "voxelization", "bev_pool",
        )
    ],
    "flash-linear-attention": [
        f"tests/ops/test_{name}.py" for name in ("retention", "gla", "delta", "simple_gla", "linear_attn", "hgrn")
    ],
    "Liger-Kernel": [f"test/transformers/test_{name}.py" for name in ("swiglu", "geglu")],
    "mamba": [f"tests/ops/triton/test_{name}.py" for name in ("layernorm_gated", "selective_state_update")],
}  # fmt: skip
TUTORIALS = ("02-fused-softmax", "04-low-memory-dropout", "05-layer-norm", "08-grouped-gemm")


@dataclass(frozen=True)
class Program:
    """One file of a repository; ``is_test``: pytest runs it."""

    repository: str
    path: str
    is_test: bool

    @property
    def name(self):
        return f"{self.repository}: {self.path}"


PROGRAMS = [
    *(Program(repository, path, is_test=True) for repository, paths in TESTS.items() for path in paths),
    *(Program("triton", f"python/tutorials/{name}.py", is_test=False) for name in TUTORIALS),
]


def run(program, folder, *, few=1, seconds=600, packages=None):
    """The exit code (0: ok), seconds and last lines of a program that ran from its checkout in ``folder``."""
    root = folder / program.repository
    package = REPOSITORIES[program.repository][1]
    own = [] if package is None else [str(root / package)]
    path = [*own, os.environ.get("PYTHONPATH", ""), str(HERE), *([] if packages is None else [str(packages)])]
    pytest = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "few_items", "--few", str(few), "-q"]
    command = [*pytest, program.path] if program.is_test else [str(HERE / "undrawn.py"), program.path]
    if program.is_test and package is None:
        return run_beside(program, root, command, path, seconds)
    return execute(command, root, path, seconds, is_test=program.is_test)


def run_beside(program, root, command, path, seconds):
    """Run a test from a copy of its folder, where the checkout's package does not shadow the installed one."""
    tests = Path(program.path).parts[0]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(root / tests, Path(folder, tests))
        return execute(command, folder, path, seconds, is_test=True)


def execute(command, start, path, seconds, *, is_test):
    begun = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "silo", "exec", "--on", "cpu", *command],
            cwd=start,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(one for one in path if one)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return 124, seconds, f"stopped after {seconds} s"
    text = done.stdout
    code = done.returncode
    if is_test and code == 0 and not re.search(r"\b[1-9]\d* passed", text):
        code = 5  # every test that was taken skipped itself
    return code, time.monotonic() - begun, text


def main(words):
    reader = argparse.ArgumentParser(prog="cuda_programs", description=__doc__.splitlines()[0])
    reader.add_argument("folder", type=Path)
    reader.add_argument("words", nargs="*")
    reader.add_argument("--few", type=int, default=1)
    reader.add_argument("--seconds", type=int, default=600)
    reader.add_argument("--packages", type=Path)
    given = reader.parse_intermixed_args(words)
    chosen = [one for one in PROGRAMS if not given.words or any(word in one.name for word in given.words)]
    wrong, done, missing = [], 0, []
    for program in chosen:
        if not (given.folder / program.repository / program.path).exists():
            missing.append(program.name)
            continue
        code, seconds, text = run(
            program, given.folder.resolve(), few=given.few, seconds=given.seconds, packages=given.packages
        )
        counts = ", ".join(re.findall(r"\d+ (?:passed|failed|skipped|errors?)", text))
        print(f"{'ok' if code == 0 else f'exit {code}':8} {seconds:6.1f} s  {program.name}  {counts}", flush=True)
        done += code == 0
        if code:
            wrong.append(program.name)
            print("\n".join(f"    {line}" for line in text.splitlines()[-15:]), flush=True)
    for name in missing:
        print(f"missing            {name}")
    print(f"{done} ok, {len(wrong)} not, {len(missing)} not in {given.folder}")
    return 1 if wrong or not done else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
