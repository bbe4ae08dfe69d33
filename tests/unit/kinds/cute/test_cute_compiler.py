"""Compiles of CuTe DSL kernels for GPUs that are not here. Needs the DSL, no GPU."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

import cutlass
from cutlass import cute

import cute_launches as samples
from silo.artifacts.binary_inspection import inspect_binary
from silo.core.device import Target
from silo.core.launch_info import AbiType, LayoutSlot
from silo.core.variant import CompileJob
from silo.errors import CompileError, SiloError, SourceError, ToolchainError, UnsupportedError
from silo.kinds.cute import cute_toolchain as toolchain
from silo.kinds.cute.cute_compiler import CuteCompiler
from silo.kinds.cute.cute_job import CuteJob

ARCHS = ("sm_80", "sm_90a", "sm_100a", "sm_120a")


@pytest.fixture(scope="module")
def compiler():
    return CuteCompiler()


NUMBERS = itertools.count()


def lowered(compiler, make, arch, name=None):
    name = name or f"k{next(NUMBERS)}"  # a compiler remembers what it lowered, by name here
    source = samples.source(make, name)
    return compiler.lower(source, samples.variant(source, arch)).job


def built(compiler, make, arch, name=None):
    return compiler.compile(CompileJob.from_json(lowered(compiler, make, arch, name).to_json()))


def theirs(wrapper, arch, folder):
    options = f"--gpu-arch {arch} --keep-cubin --dump-dir {folder}"
    return cute.compile(wrapper.function, *wrapper.arguments, options=options).__cubin__


# -- the code --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("make", [samples.static, samples.sums], ids=["static", "sums"])
def test_the_cubin_is_byte_for_byte_the_dsls(compiler, make, arch, tmp_path):
    made = built(compiler, make, arch, make.__name__)
    assert made.blob.kind == "cubin"
    assert made.blob.data == theirs(make(), arch, tmp_path)


def test_the_versions_are_kept_with_the_artifact(compiler):
    toolkit = f"{cutlass.CUDA_VERSION.major}.{cutlass.CUDA_VERSION.minor}"
    assert built(compiler, samples.static, "sm_90a").log == f"CuTe DSL {cutlass.__version__}, CUDA {toolkit}\n"


def test_one_lowering_serves_every_arch_where_the_kernel_does_not_ask_for_it():
    compiler, source = CuteCompiler(), samples.source(samples.static)
    jobs = [compiler.lower(source, samples.variant(source, arch)).job for arch in ARCHS]
    assert len(source.calls) == 1
    assert len({job.text for job in jobs}) == 1
    # Whichever arch comes first, the text is the same.
    other = samples.source(samples.static)
    assert CuteCompiler().lower(other, samples.variant(other, "sm_120a")).job.text == jobs[0].text


def test_a_kernel_that_asks_for_the_arch_is_lowered_for_each():
    compiler, source = CuteCompiler(), samples.source(lambda: samples.one(samples.which_arch_host))
    jobs = [compiler.lower(source, samples.variant(source, arch)).job for arch in ARCHS]
    assert len(source.calls) == len(ARCHS)
    assert len({job.text for job in jobs}) == len(ARCHS)


def test_eight_threads_for_four_archs_at_once():
    compiler, found, failed = CuteCompiler(), {}, []

    def build(number):
        for arch in (*ARCHS[number % 4 :], *ARCHS[: number % 4]):
            make = (samples.static, lambda: samples.one(samples.which_arch_host))[number % 2]
            try:
                data = built(compiler, make, arch, f"k{number % 2}").blob.data
            except SiloError as error:
                failed.append(error)
                return
            found.setdefault((arch, number % 2), set()).add(data)

    threads = [threading.Thread(target=build, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(map(len, found.values())) == [1] * 8


TWICE = """
import hashlib, sys
import cute_launches as samples
from silo.kinds.cute.cute_compiler import CuteCompiler

compiler = CuteCompiler()
for make in (samples.static, samples.sums):
    source = samples.source(make, make.__name__)
    job = compiler.lower(source, samples.variant(source, "sm_90a")).job
    print(hashlib.sha256(job.text.encode()).hexdigest(), hashlib.sha256(compiler.compile(job).blob.data).hexdigest())
"""


def test_another_folder_gives_the_same_job_and_the_same_bytes(compiler, tmp_path):
    here = Path(samples.__file__)
    shutil.copy(here, tmp_path / here.name)
    program = tmp_path / "program.py"
    program.write_text(TWICE)
    given = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, env=given, cwd=tmp_path)
    mine = [(lowered(compiler, make, "sm_90a"), make) for make in (samples.static, samples.sums)]
    assert run.stdout.split() == [
        hashlib.sha256(data).hexdigest()
        for job, _ in mine
        for data in (job.text.encode(), compiler.compile(job).blob.data)
    ]
    for job, _ in mine:
        artifact = CuteJob.from_job(job).artifact
        assert not any(folder in artifact for folder in (str(here.parent).encode(), str(tmp_path).encode(), b".py"))


def test_the_worker_needs_no_source(compiler, tmp_path):
    job = lowered(compiler, samples.sums, "sm_90a")
    program = (
        "import json, sys, hashlib\n"
        "from silo.kinds.cute.cute_compiler import CuteCompiler\n"
        "from silo.core.variant import CompileJob\n"
        "made = CuteCompiler().compile(CompileJob.from_json(json.load(sys.stdin)))\n"
        "print(hashlib.sha256(made.blob.data).hexdigest())\n"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", program],
        input=json.dumps(job.to_json()),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert run.stdout.strip() == hashlib.sha256(compiler.compile(job).blob.data).hexdigest()


# -- launch info -----------------------------------------------------------------------------------------------------


def test_the_launch_of_a_wrapper(compiler):
    made = built(compiler, samples.static, "sm_90a")
    launch, (kernel,) = made.launch, inspect_binary(made.blob.data, "cubin")
    assert launch.layout == (
        LayoutSlot("a", AbiType.POINTER),
        LayoutSlot("b", AbiType.POINTER),
        LayoutSlot("c", AbiType.POINTER),
        LayoutSlot("n", AbiType.I32),
        LayoutSlot("s", AbiType.FP32),
    )
    assert launch.entry == kernel.entry
    assert [size for _, size in kernel.parameters] == [8, 8, 8, 4, 4]
    assert (launch.block, launch.threads, launch.num_warps, launch.cluster) == ((256, 1, 1), 256, 8, (1, 1, 1))
    assert (launch.shared_bytes, launch.cooperative, launch.pdl) == (0, False, False)
    assert (launch.registers, launch.spills) == (kernel.registers, kernel.spills)


def test_shared_memory_is_what_the_compiler_allocates(compiler):
    launch = built(compiler, samples.sums, "sm_90a", "sums").launch
    assert launch.shared_bytes == 256 * 4
    assert launch.block == (256, 1, 1)


def test_launch_attributes_and_dynamic_layouts(compiler):
    launch = built(compiler, samples.dynamic, "sm_90a", "dynamic").launch
    assert (launch.cluster, launch.cooperative, launch.pdl) == ((2, 1, 1), True, True)
    assert launch.counts_blocks
    assert launch.layout[1] == LayoutSlot.struct("b", [("ptr", ""), ("i32", "shape.0")])
    rows = built(compiler, samples.sums, "sm_90a", "sums").launch.layout[0]
    assert rows == LayoutSlot.struct("x", [("ptr", ""), ("i32", "shape.0"), ("i64", "stride.0")])


def refused(compiler, make, arch="sm_90a"):
    with pytest.raises(CompileError) as found:
        built(compiler, make, arch, repr(make))
    return found.value, str(found.value)


def test_a_value_that_is_no_constant_comes_from_the_author(compiler):
    given = (1, 1.0)
    error, text = refused(compiler, lambda: samples.one(samples.add_sized, *given))
    assert isinstance(error, UnsupportedError)
    assert "the bytes of shared memory are no constant of the kernel: they are worked out from n; say them" in text
    launch = built(compiler, lambda: samples.one(samples.add_sized, *given, smem=128), "sm_90a", "sized").launch
    assert (launch.block, launch.shared_bytes) == ((64, 1, 1), 128)


def test_what_the_author_says_and_the_kernel_does_agree(compiler):
    _, text = refused(compiler, lambda: samples.static(block=(128, 1, 1)))
    assert "block=(128, 1, 1) was said, and the host function launches with (256, 1, 1)" in text
    _, text = refused(compiler, lambda: samples.static(cluster=(2, 1, 1)))
    assert "cluster=(2, 1, 1) was said, and the host function launches with (1, 1, 1)" in text
    roomy = built(compiler, lambda: samples.static(smem=64), "sm_80", "roomy")  # more than it allocates
    assert roomy.launch.shared_bytes == 64
    assert built(compiler, lambda: samples.static(block=(256, 1, 1), cluster=(1, 1, 1), smem=0), "sm_80")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: samples.one(samples.add_computed, 1, 1.0),
            "parameter 3 (4 bytes) is made by the host function from n",
        ),
        (lambda: samples.one(samples.add_twice, 1, 1.0), "launches 2 kernels, and Silo one"),
        (lambda: samples.one(samples.add_maybe, 1, 1.0), "decides by its argument 1 how it launches"),
        (samples.elsewhere, "takes a stream and launches on another"),
    ],
    ids=["computed", "twice", "maybe", "elsewhere"],
)
def test_a_launch_that_silo_cannot_make_is_refused(compiler, make, words):
    error, text = refused(compiler, make)
    assert isinstance(error, UnsupportedError)
    assert words in text
    assert "\n" not in text


def test_a_parameter_without_members_is_a_byte_of_zero(compiler):
    """A TiledMma that the host function makes."""
    launch = built(compiler, samples.nothing, "sm_90a").launch
    assert launch.layout == (LayoutSlot("x", AbiType.POINTER), LayoutSlot("", AbiType.EMPTY))


# -- what goes wrong -------------------------------------------------------------------------------------------------


def test_too_much_shared_memory_for_the_arch(compiler):
    floats = 40_000  # 160 000 bytes: sm_80 has 163 KiB, sm_120 99
    assert built(compiler, lambda: samples.large(floats), "sm_80", "large").launch.shared_bytes == 160_000
    _, text = refused(compiler, lambda: samples.large(floats), "sm_120a")
    assert "a block takes 160000 bytes of shared memory, and sm_120a has 101376; take smaller tiles" in text


def test_code_for_a_device_is_of_its_own_form(compiler):
    """A device is sm_90, and what uses its tensor cores compiles for sm_90a alone."""
    plain, own = (lowered(compiler, samples.static, arch, "own") for arch in ("sm_90", "sm_90a"))
    assert plain == own
    assert compiler.compile(plain).blob.data == compiler.compile(own).blob.data
    assert str(compiler.artifact_target(Target.parse("cuda:sm_86"))) == "cuda:sm_86"


def test_the_archs_that_it_takes(compiler):
    assert compiler.accepts("cute", Target.parse("cuda:sm_90a"))
    old = compiler.accepts("cute", Target.parse("cuda:sm_75"))
    assert not old
    assert old.reason == "the CuTe DSL compiles for sm_80 and later, not for sm_75"
    assert not compiler.accepts("cute", Target.parse("cuda"))
    assert not compiler.accepts("triton", Target.parse("cuda:sm_90a"))
    with pytest.raises(CompileError, match="sm_99"):
        lowered(compiler, samples.static, "sm_99", "nowhere")


def test_the_dsls_diagnosis_is_kept_without_colours(compiler):
    with pytest.raises(CompileError) as found:
        lowered(compiler, lambda: samples.one(samples.wrong), "sm_90a", "wrong")
    assert "no_such_member" in str(found.value)
    assert "\x1b" not in str(found.value)


def test_an_artifact_of_another_version_is_refused(compiler, monkeypatch):
    job = lowered(compiler, samples.static, "sm_90a")
    older = CompileJob(job.compiler, job.kernel, job.target, job.text, {**job.parameters, "dsl": "4.7.0"})
    with pytest.raises(
        ToolchainError, match=r"lowered by CuTe DSL 4\.7\.0 .* an artifact is for its own version alone"
    ):
        compiler.compile(older)
    monkeypatch.setattr(toolchain, "dsl_version", lambda: "4.5.3")
    assert "4.6.3 and later" in compiler.accepts("cute", Target.parse("cuda:sm_90a")).reason
    with pytest.raises(ToolchainError, match=r"4\.5\.3 cannot compile in two steps, 4\.6\.3 and later can"):
        compiler.compile(job)


def test_damaged_jobs_are_compile_errors(compiler):
    job = lowered(compiler, samples.static, "sm_90a")
    for text in ("", "AAAA", "not base64!", job.text[: len(job.text) // 8 * 4]):
        with pytest.raises(CompileError):
            compiler.compile(CompileJob(job.compiler, job.kernel, job.target, text, job.parameters))
    for parameters in ({}, [], {**job.parameters, "smem": -1}, {**job.parameters, "arguments": [["nothing", "", []]]}):
        with pytest.raises(CompileError, match="the job is no CuTe job"):
            compiler.compile(CompileJob(job.compiler, job.kernel, job.target, job.text, parameters))


def test_a_source_of_another_kind(compiler):
    source = samples.source(samples.static)
    given = samples.variant(source, "sm_90a")
    del source.wrapper
    with pytest.raises(SourceError, match="brings no wrapper"):
        compiler.lower(source, given)


# -- identity --------------------------------------------------------------------------------------------------------


def test_the_identity_is_one_line_that_follows_the_dsl(compiler, monkeypatch):
    target = Target.parse("cuda:sm_90a")
    found = compiler.identity(target)
    assert found == compiler.identity(target)
    assert f"cute-dsl {cutlass.__version__} cu{cutlass.CUDA_VERSION.major} files " in found
    assert "/" not in found
    assert "\n" not in found
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", "/elsewhere")
    assert compiler.identity(target) == found
    monkeypatch.setenv("CUTE_DSL_ENABLE_ASSERTIONS", "1")
    assert compiler.identity(target) != found


def test_the_identity_imports_nothing_of_the_dsl():
    program = (
        "import sys\n"
        "from silo.kinds.cute.cute_compiler import CuteCompiler\n"
        "from silo.core.device import Target\n"
        "print(CuteCompiler().identity(Target.parse('cuda:sm_90a')))\n"
        "print('cutlass' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    line, imported = run.stdout.splitlines()
    assert imported == "False"
    assert line == CuteCompiler().identity(Target.parse("cuda:sm_90a"))
