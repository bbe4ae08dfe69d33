"""The CuTe kernels of ``examples``, built for every arch that they exist for. Needs the DSL, no GPU."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import importlib.util
import os
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

from cutlass import cute

import warm_python
from repetitions import repetitions
from silo.artifacts.binary_inspection import inspect_binary
from silo.bundle.reader import Bundle
from silo.compile.pool import WorkerPool
from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.device import Target
from silo.core.extents import Extents
from silo.core.variant import Variant
from silo.errors import CompileTimeoutError
from silo.frozen import replace
from silo.kinds.cute.cute_compiler import CuteCompiler
from silo.kinds.cute.front.cute_installation import FRONT_END

EXAMPLES = Path(__file__).parents[4] / "examples"
ARCHS = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
THREADS = 8
CALLS = repetitions("SILO_TEST_CUTE_CALLS", 8, 48)


def loaded(path):
    spec = importlib.util.spec_from_file_location(f"cute_example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kernels():
    return loaded(EXAMPLES / "cute_kernels.py")


CASES = {
    "add": {"x": (4096,), "y": (4096,), "out": (4096,), "n": 4096},
    "row_sum": {"x": (64, 777), "out": (64,)},
    "layer_norm": {"x": (64, 777), "weight": (777,), "bias": (777,), "out": (64, 777), "eps": 1e-5},
}


def variant_of(kernel, name, arch, threads=128):
    source, given = kernel.source, CASES[name]
    arrays = {one: Extents(shape, compact(shape)) for one, shape in given.items() if isinstance(shape, tuple)}
    facts = {one: ArgumentFacts(value) for one, value in given.items() if one not in arrays}
    for one, held in arrays.items():
        facts[one] = replace(ArgumentFacts.array("float32"), shape=held.shape, strides=held.strides)
    signature, found = source.specialize(facts)
    return Variant(
        kernel=source.name,
        source=source.fingerprint,
        signature=signature,
        specialization=replace(found, extents=tuple(arrays.items())),
        config=Config.of({"THREADS": threads}),
        target=Target.parse(f"cuda:{arch}"),
    )


def compact(shape):
    steps = (1,)
    for size in shape[:0:-1]:
        steps = (steps[0] * size, *steps)
    return steps


def job_of(kernels, name, arch, compiler=None, threads=128):
    kernel = getattr(kernels, name).kernel
    return (compiler or CuteCompiler()).lower(kernel.source, variant_of(kernel, name, arch, threads)).job


@pytest.mark.parametrize("name", CASES)
def test_the_code_and_the_launch_are_the_dsls(kernels, name, tmp_path):
    compiler, kernel = CuteCompiler(), getattr(kernels, name).kernel
    for arch in ARCHS:
        made = compiler.compile(job_of(kernels, name, arch, compiler))
        with FRONT_END:
            wrapper = kernel.source.wrapper(variant_of(kernel, name, arch))
            options = f"--gpu-arch {arch} --keep-cubin --dump-dir {tmp_path}"
            theirs = cute.compile(wrapper.function, *wrapper.arguments, options=options).__cubin__
        assert made.blob.data == theirs
        (table,) = inspect_binary(theirs, "cubin")
        assert [slot.name for slot in made.launch.layout] == list(CASES[name])
        assert made.launch.entry == table.entry
        assert made.launch.block == (128, 1, 1)


def test_many_threads_and_archs_at_once(kernels):
    """Each lowering and each compile has what it has alone."""
    asked = [(name, arch) for name in CASES for arch in ARCHS]
    with WorkerPool(2) as pool:
        alone = {one: pool.submit(job_of(kernels, *one)).result() for one in asked}

        def again(number):
            one = asked[number % len(asked)]
            return one, pool.submit(job_of(kernels, *one)).result()

        with ThreadPoolExecutor(THREADS) as threads:
            for one, made in threads.map(again, range(CALLS)):
                assert made.blob.data == alone[one].blob.data
                assert made.launch == alone[one].launch


def worker_of(pool):
    (process,) = pool._processes
    return process._process.pid


def test_a_worker_that_hangs_costs_one_config_and_one_that_is_killed_none(kernels):
    first, second, third = (job_of(kernels, "add", "sm_90a", threads=threads) for threads in (64, 128, 256))
    with WorkerPool(1) as pool:
        made = pool.submit(first).result()
        os.kill(worker_of(pool), signal.SIGSTOP)
        with pytest.raises(CompileTimeoutError, match="add"):
            pool.submit(second, timeout_s=0.5).result()
        assert pool.submit(third).result().launch.block == (256, 1, 1)
        os.kill(worker_of(pool), signal.SIGKILL)
        assert pool.submit(first).result().blob.data == made.blob.data


BUILDS = (
    ("cute_gemms.py", "sm_90a", {"BLOCK_M": [128], "BLOCK_N": [128], "STAGES": [4]}),
    ("cute_tcgen05.py", "sm_100a", {"BLOCK_N": [64], "STAGES": [3]}),
)


@pytest.mark.parametrize(
    ("file", "arch", "space"),
    [pytest.param(*BUILDS[0], id="wgmma"), pytest.param(*BUILDS[1], id="tcgen05", marks=pytest.mark.all)],
)
def test_gemms_are_the_same_in_two_folders(file, arch, space, tmp_path):
    made = []
    for name in ("one", "another"):
        folder = tmp_path / name
        folder.mkdir()
        text = (EXAMPLES / file).read_text("utf-8")
        for constant, values in space.items():  # one config of the many
            text = re.sub(rf'"{constant}": \[[^]]*\]', f'"{constant}": {values}', text)
        (folder / file).write_text(text)
        command = [sys.executable, "-m", "silo", "build", file, "-o", "gemm.silo", "--target", f"cuda:{arch}"]
        paths = os.pathsep.join(sys.path)
        environment = {**os.environ, "SILO_HOME": str(folder / "home"), "PYTHONPATH": paths}
        done = warm_python.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        made.append(bundle_blobs(folder / "gemm.silo"))
    assert made[0]
    assert made[0] == made[1]


def bundle_blobs(path):
    """Hashes of what the bundle holds: code and launch info, no times."""
    return sorted(blob.sha256 for blob in Bundle.from_bytes(path.read_bytes()).manifest.blobs)
