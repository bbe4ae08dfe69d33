"""What authors and callers of CuTe kernels get wrong: one line each, which says the cure. Needs the DSL, no GPU."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

import cutlass
import numpy as np
from cutlass import cute

import cute_bad_input as samples
import silo
import warm_python
from silo.building.compilation import Compilation
from silo.core.device import Target
from silo.errors import ArgumentError, CaseError, CompileError, SourceError, SpaceError, TargetError, ToolchainError
from silo.frozen import replace as frozen_replace
from silo.kinds.cute.cute_compiler import CuteCompiler
from silo.kinds.cute.cute_job import CuteJob
from silo.machine.device_plugins import devices_of_kind
from silo.machine.process_session import session
from silo.tuning.case_tuning import case_studies


@pytest.fixture(autouse=True)
def store(monkeypatch, tmp_path):
    monkeypatch.setenv("SILO_HOME", str(tmp_path))


def variant(kernel, target):
    (study,) = case_studies(kernel.kernel, None)
    found = kernel.kernel.resolver
    return replace(found.variant(study.situation, study.situation.candidates[0]), target=Target.parse(target))


def launch(kernel, target="cuda:sm_90a"):
    """Its launch info, compiled by a worker of the pool."""
    return Compilation(session(), kernel.kernel.source).artifact(variant(kernel, target)).launch


def said(errors, act):
    with pytest.raises(errors) as raised:
        act()
    text = str(raised.value)
    assert "\n" not in text
    assert "\x1b" not in text
    return text


def with_n(make):
    return (*samples.two(make), 100)


# -- archs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["sm_75", "sm_70"])
def test_an_arch_before_the_dsl(arch):
    kernel = samples.made(samples.plain, with_n)
    with pytest.raises(TargetError, match=f"the CuTe DSL compiles for sm_80 and later, not for {arch}"):
        launch(kernel, f"cuda:{arch}")


def test_an_arch_that_there_is_not():
    kernel = samples.made(samples.plain, with_n)
    text = said(CompileError, lambda: launch(kernel, "cuda:sm_99"))
    assert "knows no sm_99a; name an arch such as sm_80, sm_90a" in text
    launch(kernel, "cuda:sm_80")  # one lowering serves every arch, so the next is told by the back end
    text = said(CompileError, lambda: launch(kernel, "cuda:sm_98"))
    assert "sm_98a; name an arch such as sm_80, sm_90a" in text


def test_clusters_on_an_arch_without():
    kernel = samples.made(samples.plain, with_n, cluster=2)
    text = said(CompileError, lambda: launch(kernel, "cuda:sm_80"))
    assert "in clusters of 2 blocks, and sm_80 has none; leave cluster out, or build it for sm_90 and later" in text
    info = launch(kernel, "cuda:sm_90a")
    assert (info.cluster, info.counts_blocks) == ((2, 1, 1), True)


@pytest.mark.parametrize(("arch", "kib", "most"), [("sm_90a", 240, 232448), ("sm_86", 120, 101376)])
def test_more_shared_memory_than_the_arch_has(arch, kib, most):
    kernel = samples.made(samples.hungry, samples.two, space={"KIB": [kib]})
    text = said(CompileError, lambda: launch(kernel, f"cuda:{arch}"))
    assert f"a block takes {kib << 10} bytes of shared memory, and {arch} has {most}; take smaller tiles" in text


def test_less_shared_memory_than_the_kernel_allocates():
    kernel = samples.made(samples.hungry, samples.two, space={"KIB": [16]}, smem=1024)
    text = said(CompileError, lambda: launch(kernel))
    assert "smem=1024 was said, and the kernel allocates 16384 bytes; leave it out" in text
    more = samples.made(samples.hungry, samples.two, space={"KIB": [16]}, smem=20000)
    assert launch(more).shared_bytes == 20000


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"block": 2048}, "a block has 1 to 1024 threads"),
        ({"cluster": 32}, "a cluster has 1 to 16 blocks"),
        ({"smem": -5}, "smem is -5; it is a number of bytes"),
    ],
)
def test_launch_options_that_no_device_has(more, words):
    kernel = samples.made(samples.plain, with_n, **more)
    assert words in said(CompileError, lambda: launch(kernel))


# -- constants and values ---------------------------------------------------------------------------------------------


def test_an_array_where_a_constant_is_declared():
    kernel = samples.made(samples.constant, lambda make: (*samples.two(make), make.empty(3)))
    text = said((SourceError, ArgumentError, CaseError), lambda: launch(kernel))
    assert "STEP" in text
    assert "Constexpr" in text or "constexpr" in text


def test_a_launch_option_that_reads_what_a_call_passes():
    text = said(SourceError, lambda: samples.made(samples.plain, with_n, block="n"))
    assert "a launch option reads n, which each call passes, and it is part of the code: make it a Constexpr" in text


def test_a_value_of_the_call_where_the_kernel_needs_a_constant():
    kernel = samples.made(samples.dynamic_room, with_n)
    with pytest.raises(CompileError) as raised:
        launch(kernel)
    text = str(raised.value)
    assert "\x1b" not in text
    assert "cute_bad_input.py:" in text


def test_what_a_kernel_refuses_says_where():
    kernel = samples.made(samples.constant, samples.two, space={"STEP": [3]})
    text = said(CompileError, lambda: launch(kernel))
    lines = Path(samples.__file__).read_text(encoding="utf-8").splitlines()
    line = next(number for number, one in enumerate(lines, 1) if "a step of 3" in one)
    assert text.endswith(f"a step of 3 is not supported ({samples.__file__}:{line})")


def test_an_array_without_axes():
    kernel = samples.made(samples.plain, lambda make: (make.empty(()), make.empty(128), 3))
    text = said((SourceError, CaseError), lambda: launch(kernel))
    assert "x is an array without axes (rank 0), which no cute.Tensor can index: pass x.reshape(1)" in text


# -- functions --------------------------------------------------------------------------------------------------------


def test_a_kernel_without_source():
    scope = {"cute": cute}
    exec("@cute.kernel\ndef typed(x: cute.Tensor):\n    x[0] = 1.0\n", scope)
    text = said(SourceError, lambda: silo.cute(scope["typed"], block=1))
    assert "typed has no source (<string>)" in text
    assert "write it to a file and import it from there" in text


def test_a_kernel_typed_at_the_prompt():
    kernel = "@cute.kernel\ndef typed(x: cute.Tensor):\n    x[0] = 1.0\n"
    typed = f"import silo\nfrom cutlass import cute\n{kernel}\nsilo.cute(typed, block=1)\n"
    done = subprocess.run(
        [sys.executable, "-i", "-q", "-"], input=typed, capture_output=True, text=True, check=False, timeout=120
    )
    assert "has no source" in done.stderr, done.stderr[-2000:]
    assert "write it to a file and import it from there" in done.stderr


def test_a_function_that_is_no_kernel():
    text = said(SourceError, lambda: silo.cute(samples.two, block=1))
    assert "give silo.cute a function with @cute.kernel or @cute.jit" in text
    assert cutlass.__version__  # the DSL is here; the function is not its


def test_silo_kernel_leads_to_silo_cute():
    with pytest.raises(SourceError, match=r"silo\.cute\(function, signature=\.\.\., block=\.\.\., grid=\.\.\.\)"):
        silo.kernel(samples.plain)


# -- another DSL -------------------------------------------------------------------------------------------------------


def test_an_artifact_of_another_version():
    kernel = samples.made(samples.plain, with_n)
    compiler = CuteCompiler()
    job = compiler.lower(kernel.kernel.source, variant(kernel, "cuda:sm_90a")).job
    other = frozen_replace(CuteJob.from_job(job), dsl="4.7.0").to_job(job.kernel, job.target)
    text = said(ToolchainError, lambda: compiler.compile(other))
    assert re.search(r"was lowered by CuTe DSL 4\.7\.0 with CUDA .*an artifact is for its own version alone", text)


# -- a machine without its devices -------------------------------------------------------------------------------------


def test_a_config_that_does_not_compile_costs_itself_alone(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(
        "import cute_bad_input as samples\n"
        "step = samples.made(samples.constant, samples.two, space={'STEP': [1, 3, 5]}, name='step')\n"
    )
    bundle = tmp_path / "k.silo"
    done = command("build", str(file), "-o", str(bundle), "-t", "cuda:sm_90a", home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(command("inspect", str(bundle), "--json", home=tmp_path).stdout)
    assert {one["config"] for one in shown["variants"]} == {"STEP=1", "STEP=5"}


def test_arrays_of_the_cpu_lead_to_the_gpu():
    kernel = samples.made(samples.plain, with_n)
    array = np.zeros(256, "float32")
    text = said(TargetError, lambda: kernel(array, array, 100))
    assert "for cpu, where the arrays of this call are: give it arrays on cuda" in text


def test_an_array_of_the_cpu_whose_address_fits_no_element_is_refused():
    kernel = samples.made(samples.plain, with_n)
    packed = np.zeros(1025, "uint8")[1:].view("float32")
    text = said(ArgumentError, lambda: kernel(packed, packed, 100))
    assert "begins at an address that is not a multiple of the 4 bytes of its elements" in text


def test_a_config_names_what_the_kernel_has():
    text = said(SpaceError, lambda: samples.made(samples.constant, samples.two, space={"STRIDE": [1]}))
    assert "sets 'STRIDE', which is neither a constexpr of the kernel (STEP) nor a compile option" in text


def test_tuning_and_running_without_a_gpu_say_what_is_missing(tmp_path):
    if devices_of_kind("cuda"):
        pytest.skip("there is a GPU")
    file = tmp_path / "kernels.py"
    file.write_text(
        "import cute_bad_input as samples\n"
        "step = samples.made(samples.constant, samples.two, space={'STEP': [1, 5]}, name='step')\n"
    )
    for words in (("tune", str(file)), ("run", str(file)), ("tune", str(file), "--explain")):
        done = command(*words, home=tmp_path)
        assert done.returncode != 0
        assert "step has no device here to run on" in done.stderr
        assert "no cuda: " in done.stderr
        assert "hip" not in done.stderr, "the DSL compiles for NVIDIA's alone"


def command(*words, home):
    environment = {
        **os.environ,
        "SILO_HOME": str(home / "store"),
        "PYTHONPATH": os.pathsep.join([str(Path(samples.__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }
    return warm_python.run(
        [sys.executable, "-m", "silo", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment,
    )
