"""The code of kernels and bundles as text: each form where it exists, and what is missing said where it does not."""

import json
import shutil

import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

from click.testing import CliRunner

from silo.artifacts.disassembly import disassemble
from silo.building.code_forms import CODE_FORMS
from silo.cli.inspect import _NAMES
from silo.cli.main import app
from silo.commands.build_bundle import build_bundle
from silo.commands.show_code import code_of
from silo.errors import BundleError, CaseError, SourceError, SpaceError, TargetError, ToolchainError
from silo.kinds.triton.cpu.object_build import llvm_of
from silo.settings import override
from silo.sources.kinds import brought_tools

KERNELS = """
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": [128, 512], "num_warps": [4]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@doubled.cases(n=[1024, 1001])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n))
"""

# What only such a text has.
MARKS = {
    "ttir": "tt.store",
    "ttgir": "ttg.num-warps",
    "c": "int32_t silo_doubled_",
    "ptx": ".visible .entry doubled",
    "sass": "STG",
    "amdgcn": "s_endpgm",
    "asm": "ret",
}
FROM_FILE = [
    ("ttir", None),
    ("c", None),
    ("asm", None),
    ("ttir", "cuda:sm_90"),
    ("ttgir", "cuda:sm_90"),
    ("llvm", "cuda:sm_90"),
    ("ptx", "cuda:sm_90"),
    ("sass", "cuda:sm_90"),
    ("ttgir", "hip:gfx942"),
    ("llvm", "hip:gfx942"),
    ("amdgcn", "hip:gfx942"),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("code")
    made = folder / "kernels.py"
    made.write_text(KERNELS)
    with override(home=folder / "store", tune="off"):
        yield made


@pytest.fixture(scope="module")
def bundle(file):
    build_bundle([file], file.parent / "k.silo", targets=["cpu", "cuda:sm_90", "hip:gfx942"], tune="off", configs="all")
    return file.parent / "k.silo"


@pytest.mark.parametrize(("form", "target"), FROM_FILE)
def test_forms_of_a_file(file, form, target):
    if form == "asm" and shutil.which("objdump") is None:
        pytest.skip("no objdump here")
    (found,) = code_of(file, form, target=target)
    assert found.kernel == "doubled"
    assert found.config == "BLOCK=128, num_warps=4"
    assert MARKS.get(form, "define") in found.text
    assert str(file.parent) not in found.text


def test_forms_of_a_bundle(bundle):
    for form, target in (("c", None), ("ttir", None), ("sass", None), ("sass", "cuda"), ("sass", "cuda:sm_90a")):
        (found,) = code_of(bundle, form, target=target)
        assert MARKS[form] in found.text
        assert found.target.startswith(target or {"sass": "cuda"}.get(form, "cpu"))
    with pytest.raises(
        BundleError, match=r"the bundle keeps no ptx.*it has sass.*FILE\.py --code ptx --target cuda:sm_90a"
    ):
        code_of(bundle, "ptx", target="cuda")
    with pytest.raises(SourceError, match="code for cuda:sm_90a has no c; code for cpu has"):
        code_of(bundle, "c", target="cuda")
    with pytest.raises(BundleError, match="no variant of doubled is for cuda:sm_80; it has code for cpu"):
        code_of(bundle, "sass", target="cuda:sm_80")


def test_the_config_and_the_case_choose_the_variant(file, bundle):
    (small,), (large,) = (code_of(file, "ttir", config=f"BLOCK={size}") for size in (128, 512))
    assert "128" in small.text
    assert large.config == "BLOCK=512, num_warps=4"
    assert "512xf32" in large.text
    assert code_of(bundle, "ttir", config="BLOCK=512, num_warps=4")[0].text == large.text
    aligned, odd = (code_of(file, "ttir", case=f"n={n}")[0].text for n in (1024, 1001))
    assert aligned.count("tt.divisibility") == odd.count("tt.divisibility") + 1
    with pytest.raises(SpaceError, match=r"no config of its space has BLOCK=64; the first is BLOCK=128"):
        code_of(file, "ttir", config="BLOCK=64")
    with pytest.raises(SpaceError, match=r"--config 64: write what silo inspect prints"):
        code_of(file, "ttir", config="64")
    with pytest.raises(CaseError, match="doubled has no case n=7; it has n=1024, n=1001"):
        code_of(file, "ttir", case="n=7")


def test_a_form_of_gpus_needs_their_target_where_none_is_here(file, monkeypatch):
    monkeypatch.setattr("silo.commands.show_code.devices_of_kind", lambda kind: ())
    with pytest.raises(TargetError, match=r"--code ptx is of code for cuda; name its target: --target cuda:sm_90"):
        code_of(file, "ptx")


def test_what_is_missing_is_said_with_what_to_do(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *given, **more: None)
    with pytest.raises(ToolchainError, match=r"nvdisasm is not on PATH: .*pip install triton"):
        disassemble(b"\x7fELF", "cubin", brought_tools())
    with pytest.raises(ToolchainError, match=r"llvm-objdump is not on PATH: .*LLVM"):
        disassemble(b"\x7fELF", "hsaco")
    with pytest.raises(ToolchainError, match=r"clang, which is not on PATH: .*--code c and --code asm"):
        llvm_of("int x;", ())


def test_a_tool_that_refuses_is_quoted_and_the_next_one_asked(tmp_path, monkeypatch):
    for name, line in (("nvdisasm", "echo no such thing >&2; exit 1"), ("cuobjdump", "echo the code")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=None)
    assert disassemble(b"data", "cubin") == "the code\n"
    (tmp_path / "cuobjdump").unlink()
    with pytest.raises(ToolchainError, match=r"nvdisasm refuses it \(no such thing\).*cuobjdump is not on PATH"):
        disassemble(b"data", "cubin")


def test_the_command(file, bundle):
    assert _NAMES == CODE_FORMS
    run = CliRunner().invoke
    plain = run(app, ["inspect", str(file), "--code", "c"])
    assert MARKS["c"] in plain.output
    (listing,) = json.loads(run(app, ["inspect", str(bundle), "--code", "sass", "--json"]).output)
    assert listing["target"] == "cuda:sm_90a"
    assert run(app, ["inspect", str(bundle), "--code", "java"]).exit_code == 2
