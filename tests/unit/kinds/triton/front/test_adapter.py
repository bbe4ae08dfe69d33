"""The adapter to Triton: lowering without a GPU, compiling for GPUs, wrapping."""
# pyright: reportAttributeAccessIssue=false, reportUndefinedVariable=false
# ruff: noqa: E402  # what follows needs Triton

import importlib.util
import os
import re
import subprocess
import sys
import threading
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed")
import triton.language as tl

from silo.core.argument_facts import ArgumentFacts as Facts
from silo.core.config import Config
from silo.core.device import Target
from silo.core.signature import Effect
from silo.core.specialization import Specialization
from silo.errors import CompileError, SourceError, TargetError, ToolchainError
from silo.kinds.triton.front import adapter
from silo.kinds.triton.front.adapter import triton_toolchain as installation
from silo.kinds.triton.front.adapter import triton_toolchain as toolchain
from silo.kinds.triton.front.ssa_facts import effects_of
from silo.kinds.triton.front.triton_source import TritonSource
from silo.kinds.triton.front.ttir import parse_ttir
from silo.kinds.triton.front.verifier import verify
from triton_samples import SAMPLES, add, matmul, printing, scaled

CPU = Target.parse("cpu:x86-64-v3")


def lowered(name, target=CPU, **options):
    kernel, arguments = SAMPLES[name]
    signature, facts = TritonSource.of(kernel).specialize(arguments)
    lower = adapter.lower_to_ttir if target.kind == "cpu" else adapter.lower_for_gpu
    return lower(kernel, signature, facts, Config(), target, **options), signature, facts


# -- versions --------------------------------------------------------------------------------------------------------


def test_the_installed_version_is_usable():
    assert adapter.require_triton() == adapter.triton_version() == triton.__version__


def installed(monkeypatch, version):
    """Let another Triton be installed, or none."""

    def found(name):
        assert name == "triton"
        if version is None:
            raise PackageNotFoundError
        return SimpleNamespace(version=version)

    monkeypatch.setattr(installation.metadata, "distribution", found)
    monkeypatch.setattr(installation, "_installation", installation._Installation)


@pytest.mark.parametrize("version", ["3.5.1", "3.10.0", "4.0"])
def test_other_versions_are_refused_unless_forced(monkeypatch, version):
    installed(monkeypatch, version)
    with pytest.raises(ToolchainError, match=rf"Triton {version}.*3\.6, 3\.7, 3\.8 and 3\.9 only"):
        adapter.require_triton()
    assert adapter.require_triton(force=True) == version


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1", "3.8.0", "3.9.0"])
def test_versions_that_were_tested_are_taken(monkeypatch, version):
    installed(monkeypatch, version)
    assert adapter.require_triton() == version


def test_absence_says_what_to_install(monkeypatch):
    installed(monkeypatch, None)
    assert adapter.triton_version() is None
    with pytest.raises(ToolchainError, match="pip install"):
        adapter.require_triton(force=True)


def test_importing_the_adapter_loads_no_framework():
    code = (
        "import sys, silo.kinds.triton.front.triton_source, silo.kinds.triton.front.adapter as a; a.triton_version();"
        "print(sorted(set(sys.modules) & {'triton', 'torch', 'numpy', 'jax'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def environment(**more):
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **more}


# -- lowering --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_kernels_lower_for_a_cpu(name):
    ttir, signature, facts = lowered(name)
    assert ttir.text.startswith('"builtin.module"() ({')
    assert ttir.text.endswith("}) : () -> ()\n\n") or ttir.text.endswith("}) : () -> ()\n")
    assert "loc(" not in ttir.text
    assert os.sep + "triton_samples" not in ttir.text
    module = parse_ttir(ttir.text)
    verify(module)
    located = parse_ttir(ttir.located)
    assert [operation.name for operation in located.walk()] == [operation.name for operation in module.walk()]
    assert any("triton_samples.py:" in operation.location for operation in located.walk())
    # The same kernel before the passes does the same to memory.
    for_gpu = lowered(name, Target("cuda", "sm_90"))[0]
    early = parse_ttir(for_gpu.text)
    verify(early)
    assert effects_of(early, signature, facts) == effects_of(module, signature, facts)


def test_facts_and_constants_reach_the_module():
    ttir, _, _ = lowered("add")
    entry = parse_ttir(ttir.text).entry
    assert [entry.argument_attributes(index).get("tt.divisibility") for index in range(4)] == [16, None, 16, None]
    assert "end = 256 : i32" in ttir.text
    kernel, arguments = SAMPLES["add"]
    signature, facts = TritonSource.of(kernel).specialize({**arguments, "n": Facts(1)})
    folded = parse_ttir(adapter.lower_to_ttir(kernel, signature, facts, Config(), CPU).text)
    assert len(folded.entry.regions[0].blocks[0].arguments) == 3


def test_a_config_gives_constants_and_options_do_not_change_cpu_code():
    kernel, arguments = SAMPLES["add"]
    open_arguments = {name: value for name, value in arguments.items() if name != "BLOCK"}
    signature, facts = TritonSource.of(kernel).specialize(open_arguments)
    with pytest.raises(CompileError, match="BLOCK has no value"):
        adapter.lower_to_ttir(kernel, signature, facts, Config(), CPU)
    texts = {
        adapter.lower_to_ttir(kernel, signature, facts, Config.of(BLOCK=256, num_warps=warps), CPU).text
        for warps in (1, 8)
    }
    assert texts == {lowered("add")[0].text}


def test_dots_of_any_size_lower_for_a_cpu_only():
    kernel, arguments = SAMPLES["matmul"]
    small = {**arguments, "BM": Facts(2), "BN": Facts(4), "BK": Facts(1)}
    signature, facts = TritonSource.of(kernel).specialize(small)
    assert "tt.dot" in adapter.lower_to_ttir(kernel, signature, facts, Config(), CPU).text
    with pytest.raises(CompileError, match=r"matmul .* cannot be lowered"):
        adapter.lower_for_gpu(kernel, signature, facts, Config(), Target("cuda", "sm_90"))


@pytest.mark.parametrize(
    ("target", "arch", "warp"),
    [
        ("cuda:sm_86", 86, 32),
        ("cuda:sm_120a", 120, 32),
        ("hip:gfx90a", "gfx90a", 64),
        ("hip:gfx942", "gfx942", 64),
        ("hip:gfx1100", "gfx1100", 32),
    ],
)
def test_targets_in_tritons_words(target, arch, warp):
    found = toolchain.gpu_target(Target.parse(target))
    assert (found.arch, found.warp_size) == (arch, warp)


@triton.jit
def wrong(x):
    tl.store(x, undefined_name)  # noqa: F821


def one_pointer(kernel):
    return TritonSource.of(kernel).specialize({"x": Facts.array("fp32")})


def test_errors_of_the_front_end_name_the_kernel_and_the_reason():
    signature, facts = one_pointer(wrong)
    with pytest.raises(CompileError) as caught:
        adapter.lower_to_ttir(wrong, signature, facts, Config(), CPU)
    first = str(caught.value).splitlines()[0]
    assert re.fullmatch(r"wrong \(.*test_adapter\.py:[0-9]+\) cannot be lowered: .*undefined_name.*", first)
    line = int(first.partition(")")[0].rpartition(":")[2])
    assert "tl.store(x, undefined_name)" in Path(__file__).read_text().splitlines()[line - 1]


def test_wrong_signatures_and_targets_are_refused():
    signature, facts = one_pointer(wrong)
    with pytest.raises(SourceError, match="the signature names x"):
        adapter.lower_to_ttir(add, signature, facts, Config(), CPU)
    with pytest.raises(SourceError, match="has no type yet"):
        adapter.lower_to_ttir(add, TritonSource.of(add).signature, Specialization((), (("BLOCK", 8),)), Config(), CPU)
    with pytest.raises(SourceError, match="for cpu targets"):
        adapter.lower_to_ttir(wrong, signature, facts, Config(), Target("cuda", "sm_90"))
    for target in (Target("cuda"), Target("metal", "3.1")):
        with pytest.raises(TargetError):
            adapter.lower_for_gpu(wrong, signature, facts, Config(), target)


def test_the_active_driver_is_left_alone():
    config = toolchain.module("triton.runtime.driver").driver
    before = config._active
    seen = []
    with toolchain.lowering_for("a target"):
        assert config.active.get_current_target() == "a target"
        config.active._real = type("Driver", (), {"get_current_target": staticmethod(lambda: "the real one")})
        other = threading.Thread(target=lambda: seen.append(config.active.get_current_target()))
        other.start()
        other.join()
    assert seen == ["the real one"]
    assert config._active is before


def test_lowering_from_several_threads():
    texts = []
    threads = [threading.Thread(target=lambda: texts.append(lowered("softmax")[0].text)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [lowered("softmax")[0].text] * 3


def test_helpers_that_stay_functions_lose_the_name_of_their_module():
    for target in (CPU, Target("cuda", "sm_80")):
        text = lowered("calls", target)[0].text
        assert 'sym_name = "helper_not_inlined.0"' in text
        assert "callee = @helper_not_inlined.0" in text
        assert "triton_samples" not in text
    binary = adapter.compile_gpu(text, target, {}).binary
    assert b"triton_samples" not in binary


def test_the_environment_cannot_change_what_a_target_means(monkeypatch):
    target = Target("cuda", "sm_80")
    text = lowered("add", target)[0].text
    plain = adapter.compile_gpu(text, target, {})
    monkeypatch.setenv("TRITON_OVERRIDE_ARCH", "sm75")
    assert lowered("add", target)[0].text == text
    assert adapter.compile_gpu(text, target, {}).binary == plain.binary


def test_assertions_are_kept_on_demand():
    assert "tt.assert" not in lowered("printing")[0].text
    assert "tt.assert" in lowered("printing", asserts=True)[0].text
    assert "overflow detected" not in lowered("add", asserts=True)[0].text
    signature, facts = TritonSource.of(add).specialize(SAMPLES["add"][1])
    assert "overflow detected" in adapter.lower_to_ttir(add, signature, facts, Config.of(debug=True), CPU).text
    kernel = triton.jit(printing.fn, debug=True)
    signature, facts = TritonSource.of(kernel).specialize(SAMPLES["printing"][1])
    assert "tt.assert" in adapter.lower_to_ttir(kernel, signature, facts, Config(), CPU).text


# -- Triton's own back end -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "gpu_name", "stages"),
    [
        ("cuda:sm_80", "sm_80", ["ttir", "ttgir", "llir", "ptx", "cubin"]),
        ("cuda:sm_90a", "sm_90a", ["ttir", "ttgir", "llir", "ptx", "cubin"]),
        ("cuda:sm_100", "sm_100a", ["ttir", "ttgir", "llir", "ptx", "cubin"]),
        ("hip:gfx942", "gfx942", ["ttir", "ttgir", "llir", "amdgcn", "hsaco"]),
    ],
)
def test_gpu_targets_compile_reproducibly(target, gpu_name, stages):
    parsed = Target.parse(target)
    ttir, _, _ = lowered("matmul", parsed)
    first = adapter.compile_gpu(ttir.text, parsed, {"num_warps": 2})
    assert list(first.stages) == stages
    assert first.binary.startswith(b"\x7fELF")
    assert first.metadata["gpu_name"] == gpu_name
    assert first.metadata["name"] == "matmul"
    assert first.metadata["num_warps"] == 2
    assert first.metadata["shared"] > 0
    assert b"triton_samples" not in first.binary
    assert adapter.compile_gpu(ttir.text, parsed, {"num_warps": 2}).binary == first.binary
    assert adapter.compile_gpu(ttir.text, parsed, {"num_warps": 4}).binary != first.binary


def test_no_path_of_this_machine_reaches_a_binary_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = dict(os.environ)
    kernel = triton.jit(printing.fn, debug=True)
    signature, facts = TritonSource.of(kernel).specialize(SAMPLES["printing"][1])
    ttir = adapter.lower_for_gpu(kernel, signature, facts, Config(), Target("cuda", "sm_80"))
    assert "tt.assert" in ttir.text
    done = adapter.compile_gpu(ttir.text, Target("cuda", "sm_80"), {})
    for output in done.stages.values():
        text = output.encode() if isinstance(output, str) else output
        assert b"silo-" not in text
        assert b"/tmp" not in text
    assert dict(os.environ) == before


def test_failing_stages_and_options_are_compile_errors():
    ttir, _, _ = lowered("matmul", Target("cuda", "sm_80"))
    with pytest.raises(CompileError, match="Triton refuses the options"):
        adapter.compile_gpu(ttir.text, Target("cuda", "sm_80"), {"num_warps": 3})
    with pytest.raises(CompileError, match="cannot read the module"):
        adapter.compile_gpu(ttir.text.replace("tt.load", "tt.lod"), Target("cuda", "sm_80"), {})


# -- wrapping --------------------------------------------------------------------------------------------------------


class Launcher:
    def __init__(self, twin):
        self.twin = twin

    def __call__(self, *args, **options):
        return ("call", args, options)

    def __getitem__(self, grid):
        return lambda *args, **options: ("grid", grid, args, options)


wrapped = adapter.wrap(scaled, Launcher, {"explain": "why", "tune": len})


@triton.jit
def calls_wrapped(x):
    tl.store(x, wrapped(tl.load(x)))


@triton.jit
def calls_plain(x):
    tl.store(x, scaled(tl.load(x)))


def test_a_wrapped_kernel_launches_outside_of_kernels():
    assert isinstance(wrapped, triton.JITFunction)
    assert wrapped(1, key=2) == ("call", (1,), {"key": 2})
    assert wrapped[4, 2](1, key=2) == ("grid", (4, 2), (1,), {"key": 2})
    assert wrapped.run(1, grid=(3,), key=2) == ("grid", (3,), (1,), {"key": 2})
    assert (wrapped.explain, wrapped.tune("abc")) == ("why", 3)
    assert (wrapped.fn, wrapped.__name__, wrapped.arg_names) == (scaled.fn, "scaled", ["v"])
    assert type(wrapped).__call__.twin is wrapped  # the launcher itself, not a function around it
    with pytest.raises(RuntimeError, match="outside of the scope"):
        scaled(1)


def test_a_wrapped_kernel_is_inlined_like_the_plain_one():
    signature, facts = one_pointer(calls_wrapped)
    texts = [
        adapter.lower_to_ttir(kernel, signature, facts, Config(), CPU).text.replace(kernel.__name__, "kernel")
        for kernel in (calls_wrapped, calls_plain)
    ]
    assert texts[0] == texts[1]
    assert "arith.mulf" in texts[0]


def test_a_wrapped_kernel_is_a_source_with_the_same_fingerprint():
    assert TritonSource.of(wrapped).fingerprint == TritonSource.of(scaled).fingerprint
    tuned = triton.autotune([triton.Config({})], key=[])(wrapped)
    assert TritonSource.of(tuned).function is wrapped
    assert adapter.is_kernel(wrapped)
    assert adapter.is_kernel(tuned)
    assert not adapter.is_kernel(Launcher)


def test_launchers_that_are_functions_do_not_get_the_kernel_as_argument():
    class Odd:
        def __getitem__(self, grid):
            return grid

        def __call__(self):
            return "called"

        def __get__(self, instance, owner):
            raise AssertionError("bound")

    twin = adapter.wrap(scaled, lambda _: Odd())
    assert twin() == "called"
    assert twin[3] == 3


def test_the_effects_of_a_sample():
    ttir, signature, facts = lowered("matmul", Target("cuda", "sm_90"))
    effects = effects_of(parse_ttir(ttir.text), signature, facts)
    assert signature.with_effects(effects)["c"].effect is Effect.WRITE
    assert matmul.arg_names[2] == "c"


INTERPRETED = """
import torch, triton, triton.language as tl
from silo.kinds.triton.front import adapter
from silo.kinds.triton.front.triton_source import TritonSource

class Launcher:
    def __call__(self, *args): return ("launched", args)
    def __getitem__(self, grid): raise AssertionError("the interpreter runs this")

@triton.jit
def helper(v):
    return v * 3
helper = adapter.wrap(helper, lambda twin: Launcher())

@triton.jit
def kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, helper(tl.load(x + i)))
kernel = adapter.wrap(kernel, lambda twin: Launcher())

assert adapter.is_interpreted(kernel) and adapter.is_kernel(kernel)
x, out = torch.arange(8.0), torch.zeros(8)
kernel[(1,)](x, out, BLOCK=8)
assert torch.equal(out, x * 3), out
assert kernel(1, 2) == ("launched", (1, 2))
assert helper(5) == ("launched", (5,))
assert TritonSource.of(kernel).signature["BLOCK"].kind.value == "constexpr"
assert len(TritonSource.of(kernel).fingerprint) == 64
print("fine")
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="Triton's interpreter needs torch")
def test_under_the_interpreter_a_wrapped_kernel_is_interpreted(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INTERPRETED)
    more = environment(TRITON_INTERPRET="1")
    done = subprocess.run([sys.executable, str(script)], env=more, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "fine", done.stderr
