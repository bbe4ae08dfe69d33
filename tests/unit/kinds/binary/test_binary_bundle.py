"""Compiled kernels in bundles: which of them, under which assumptions, and dispatch among them."""
# pyright: reportGeneralTypeIssues=false

import base64
import json
from pathlib import Path

import pytest

import silo
from binary_samples import ADD_SIGNATURE, SAXPY_SIGNATURE, add_by_triton, saxpy_ptx
from silo.building.compilation import Compilation
from silo.commands.build_bundle import build_bundle
from silo.commands.bundle_description import describe_bundle, verify_bundle
from silo.core.device import Target
from silo.core.specialization import Fact, Specialization
from silo.core.variant import CompileJob
from silo.errors import CompileError, NoVariantError, SourceError, TargetError
from silo.kinds.binary.binary_compiler import BinaryCompiler
from silo.kinds.binary.binary_source import choose_code
from silo.machine.process_session import session
from silo.settings import override

np = pytest.importorskip("numpy")

MODULE = f"""
import silo
from pathlib import Path

here = Path(__file__).parent
signature = {SAXPY_SIGNATURE!r}
saxpy = silo.binary(
    [here / "saxpy.ptx", silo.Binary(here / "hopper.ptx", facts={{"x": "aligned16", "n": "divisible16"}})],
    signature=signature,
    threads=256,
    grid=lambda a: (silo.cdiv(a.n, 256),),
)
exact = silo.binary(
    here / "saxpy.ptx", name="exact", signature=signature, threads=256, grid=(4,), facts={{"n": 1024}}
)
"""

CASES = """
@saxpy.cases(n=[100, 1024])
def _(n, make):
    x, y = make.normal(n), make.normal(n)
    return silo.Case(args=(x, y, n, 2.0), expected={"y": lambda: 2 * x.host + y.host})
"""


@pytest.fixture(autouse=True)
def store(tmp_path):
    with override(home=tmp_path / "home"):
        yield


@pytest.fixture
def module(tmp_path) -> Path:
    (tmp_path / "saxpy.ptx").write_text(saxpy_ptx())
    (tmp_path / "hopper.ptx").write_text(saxpy_ptx("sm_90"))
    path = tmp_path / "kernels.py"
    path.write_text(MODULE)
    return path


def built(module, name="k.silo", **options):
    output = module.parent / name
    return output, build_bundle([module], output, **options)


def test_a_bundle_holds_the_binaries_as_they_are(module):
    output, summary = built(module)
    assert verify_bundle(output) == []
    rows = {(row.kernel, row.target, row.facts) for row in describe_bundle(output).variants}
    assert rows == {
        ("saxpy", "cuda:sm_80", "nothing"),
        ("saxpy", "cuda:sm_90", "n divisible16, x aligned16"),
        ("exact", "cuda:sm_80", "n=1024"),
    }
    kernel = silo.load(output)["saxpy"]
    blobs = {kernel.bundle.blob(one.artifact.blob.sha256) for one in kernel.contents.variants}
    assert blobs == {saxpy_ptx().encode(), saxpy_ptx("sm_90").encode()}
    assert {one.artifact.blob.kind for one in kernel.contents.variants} == {"ptx"}
    assert [str(axis) for axis in kernel.contents.grid] == ["cdiv(n, 256)"]
    assert summary.variants == 3


def test_no_worker_process_is_started(module):
    built(module)
    assert session()._pool is None


def test_equal_inputs_give_equal_bytes(module, tmp_path):
    first, _ = built(module)
    with override(home=tmp_path / "another"):
        second, _ = built(module, "again.silo")
    assert first.read_bytes() == second.read_bytes()


def test_cases_go_with_the_kernel_and_need_no_device(module):
    module.write_text(MODULE + CASES)
    output, _ = built(module, kernels=["saxpy"])
    assert [recipe.label for recipe in silo.load(output)["saxpy"].recipes()] == ["n=100", "n=1024"]
    without, _ = built(module, "without.silo", kernels=["exact"])
    assert silo.load(without)["exact"].recipes() == []


def test_blocks_are_shown_and_come_back(module):
    module.write_text(MODULE.replace("threads=256, grid=(4,)", "threads=(16, 8, 2), grid=(4,)"))
    output, _ = built(module)
    assert [row.resources for row in describe_bundle(output).variants] == ["16 x 8 x 2 threads", *["256 threads"] * 2]
    (one,) = silo.load(output).exact.contents.variants
    assert (one.artifact.launch.block, one.artifact.launch.threads) == ((16, 8, 2), 256)


def test_only_what_runs_on_a_target_is_taken_in(module):
    output, _ = built(module, targets=["cuda:sm_86"], kernels=["saxpy"])
    assert [row.target for row in describe_bundle(output).variants] == ["cuda:sm_80"]
    with pytest.raises(NoVariantError) as error:
        built(module, targets=["cuda:sm_75"], kernels=["saxpy"])
    assert len(error.value.rejections) == 2
    assert "saxpy.ptx (ptx for cuda:sm_80): sm_80 PTX needs compute capability 8.0" in "".join(error.value.rejections)
    with pytest.raises(NoVariantError, match="built for cuda, the device is hip"):
        built(module, targets=["hip:gfx942"])


def test_kernels_of_triton_and_binaries_in_one_bundle(module):
    pytest.importorskip("triton", reason="a Triton kernel goes in as well")
    module.write_text(
        MODULE
        + CASES
        + """
import triton
import triton.language as tl

@silo.kernel(grid=lambda a: (silo.cdiv(a.n, 64),))
@triton.jit
def twice(x, y, n):
    i = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

@twice.cases(n=[64])
def _(n, make):
    x = make.normal(n)
    return silo.Case(args=(x, make.empty(n), n), expected={"y": lambda: x.host * 2})
"""
    )
    output, _ = built(module, tune="off")
    kinds = {row.kernel: row.target.split(":")[0] for row in describe_bundle(output).variants}
    assert kinds == {"saxpy": "cuda", "exact": "cuda", "twice": "cpu"}
    kernels = silo.load(output, trust=True)
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    kernels.twice(x, y, 64)
    assert (y == 2 * x).all()


def test_a_bundled_kernel_weighs_facts_values_and_the_rules_of_ptx(module):
    output, _ = built(module)
    kernels = silo.load(output)

    class Hopper:
        """Enough of a device to rank for it."""

        target = Target.parse("cuda:sm_90")

        def facts(self):
            return {}

        def runs(self, target, blob_kind=""):
            from silo.artifacts.runs_on import runs_on

            return runs_on(target, self.target, blob_kind)

    def ranked(kernel, x, n):
        from silo.launch.runtime import inspect_call

        call = inspect_call(kernel.launcher, kernel.contents.signature, x, x, n, 2.0)
        return [one.artifact.variant for one in kernel.rank(call, Hopper())]

    memory = np.zeros(4096, np.float32)
    both = ranked(kernels.saxpy, memory, 1024)
    assert [str(variant.target) for variant in both] == ["cuda:sm_90", "cuda:sm_80"]
    assert both[0].specialization.facts_of("x") == {Fact.ALIGNED_16}
    for x, n in ((memory[1:], 1024), (memory, 1023)):
        assert [str(variant.target) for variant in ranked(kernels.saxpy, x, n)] == ["cuda:sm_80"]
    assert len(ranked(kernels.exact, memory, 1024)) == 1
    assert len(ranked(kernels.exact, memory, np.int64(1024))) == 1
    assert ranked(kernels.exact, memory, 1040) == []


# ---- choosing ----


def codes(*several):
    return silo.binary(list(several), signature=SAXPY_SIGNATURE, threads=256).kernel.source.codes


def chosen(several, target, *facts):
    code, decisions = choose_code(several, Target.parse(target), Specialization(facts))
    assert len(decisions) == len(several)
    return None if code is None else several.index(code)


def test_more_assumptions_win_then_the_newer_architecture_then_order():
    several = codes(
        saxpy_ptx("sm_80"),
        saxpy_ptx("sm_90"),
        silo.Binary(saxpy_ptx("sm_75"), facts={"x": "aligned16"}),
        saxpy_ptx("sm_90", ".maxntid 512"),
    )
    assert chosen(several, "cuda:sm_90") == 1
    assert chosen(several, "cuda:sm_86") == 0
    assert chosen(several, "cuda:sm_90", ("x", Fact.ALIGNED_16)) == 2
    assert chosen(several, "cuda:sm_75") is None
    assert chosen(several, "hip:gfx942", ("x", Fact.ALIGNED_16)) is None


def test_machine_code_wins_over_ptx_and_ptx_serves_what_comes_later():
    data, launch = add_by_triton("cuda:sm_80")
    parameters = ", ".join(f".param .{'u32' if i == 3 else 'u64'} p{i}" for i in range(6))
    text = saxpy_ptx(parameters=parameters, name="add", directives="")
    made = silo.binary([text, data], signature=ADD_SIGNATURE, threads=launch.threads)
    several = made.kernel.source.codes
    assert [code.kind for code in several] == ["ptx", "cubin"]
    assert chosen(several, "cuda:sm_86") == 1
    assert chosen(several, "cuda:sm_90") == 0
    # Both stay in a bundle, although they are for one target.
    planned = made.kernel.source.code_for([Target.parse("cuda:sm_80")])
    artifacts = [Compilation(session(), made.kernel.source).artifact(one.variant) for one in planned]
    assert [artifact.blob.kind for artifact in artifacts] == ["cubin", "ptx"]


# ---- the compiler plug-in ----


def job():
    made = silo.binary(saxpy_ptx(), signature=SAXPY_SIGNATURE, threads=256)
    (planned,) = made.kernel.source.code_for([Target.parse("cuda:sm_80")])
    return BinaryCompiler().lower(made.kernel.source, planned.variant).job


def test_the_job_is_text_and_comes_back_as_it_was():
    travelled = CompileJob.from_json(json.loads(json.dumps(job().to_json())))
    compiled = BinaryCompiler().compile(travelled)
    assert (compiled.blob.kind, compiled.blob.data) == ("ptx", saxpy_ptx().encode())
    assert compiled.launch.threads == 256


def changed(**members):
    return CompileJob.from_json({**job().to_json(), **members})


@pytest.mark.parametrize(
    ("members", "what"),
    [
        ({"text": "not base64!"}, "not that of a binary"),
        ({"parameters": {}}, "not that of a binary"),
        ({"text": base64.b64encode(b"garbage").decode()}, "no device code"),
        ({"text": base64.b64encode(saxpy_ptx(name="other").encode()).decode()}, "holds no kernel 'saxpy'"),
        (
            {"text": base64.b64encode(saxpy_ptx(parameters=".param .u64 x").encode()).decode()},
            "1 in the binary, 4 declared",
        ),
    ],
)
def test_jobs_whose_bytes_are_something_else(members, what):
    with pytest.raises(CompileError, match=what):
        BinaryCompiler().compile(changed(**members))


def test_a_job_of_another_kind_of_file():
    made = job()
    with pytest.raises(CompileError, match="says cubin, and its bytes are a ptx"):
        BinaryCompiler().compile(changed(parameters={**made.parameters, "kind": "cubin"}))


def test_it_takes_binaries_only():
    compiler, target = BinaryCompiler(), Target.parse("cuda:sm_80")
    assert compiler.accepts("binary", target)
    assert not compiler.accepts("triton", target)
    made = silo.binary(saxpy_ptx(), signature=SAXPY_SIGNATURE, threads=256)
    (planned,) = made.kernel.source.code_for([target])

    class Other:
        name = "other"

    with pytest.raises(SourceError, match="other is not a binary source"):
        compiler.lower(Other(), planned.variant)


def test_a_target_that_does_not_parse(module):
    with pytest.raises(TargetError):
        built(module, targets=["cuda:90"])
