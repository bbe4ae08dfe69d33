"""``silo diff``: code, results and times of two bundles, and the gates."""

import json

import pytest

from silo.cli.main import app
from silo.commands.compare_bundles import compare_bundles, failures
from silo.errors import SourceError, ToolchainError, TrustError
from silo.settings import override

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import silo

HEAD = """
import silo
import triton
import triton.language as tl
"""
KERNEL = """

@silo.kernel(grid=lambda a: (silo.cdiv(a.n, 128),))
@triton.jit
def {name}(x, out, n):
    i = tl.program_id(0) * 128 + tl.arange(0, 128)
    tl.store(out + i, {value}, mask=i < n)


@{name}.cases(n={sizes})
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n){expected})
"""
LOADED = "tl.load(x + i, mask=i < n)"
TWICE = ', expected={"out": lambda: x.host * 2}'


def kernel(name, value, sizes="[500]", expected=TWICE):
    return KERNEL.format(name=name, value=value, sizes=sizes, expected=expected)


OLD = HEAD + kernel("kept", f"{LOADED} * 2.0") + kernel("moved", f"{LOADED} * 2.0") + kernel("gone", f"{LOADED} * 2.0")
OLD += kernel("bare", f"{LOADED} * 2.0", expected="") + kernel("sized", f"{LOADED} * 2.0", "[500, 600]")
NEW = HEAD + kernel("kept", f"{LOADED} * 2.0") + kernel("moved", f"{LOADED} * 2.5") + kernel("fresh", f"{LOADED} * 2.0")
NEW += kernel("bare", f"{LOADED} * 2.0000002", expected="") + kernel("sized", f"{LOADED} * 2.0", "[500]")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diff")
    with override(home=str(folder / "store")):
        made = []
        for name, text in (("old", OLD), ("new", NEW)):
            file = folder / f"{name}_kernels.py"
            file.write_text(text)
            silo.build(file, output=folder / f"{name}.silo", tune="off")
            made.append(folder / f"{name}.silo")
        yield made


@pytest.fixture(scope="module")
def found(bundles):
    return compare_bundles(*bundles)


def case(found, kernel, label="n=500"):
    (one,) = [row for row in found.cases if (row.kernel, row.case) == (kernel, label)]
    return one


def test_the_same_bundle_twice_is_the_same(bundles):
    found = compare_bundles(bundles[0], bundles[0])
    assert found.code == ()
    assert found.same_code == 10
    assert {one.reason for one in found.cases} == {"the same code"}
    assert all(one.numbers.equal and one.same_code for one in found.cases)
    assert failures(found, 2.0, "bits") == []


def test_equal_code_is_timed_if_asked(bundles):
    found = compare_bundles(bundles[0], bundles[0], kernels=["kept"], time_same=True, limit_s=0.01)
    (one,) = found.cases
    assert one.ratio.rounds > 0
    assert one.ratio.low_ppm <= one.ratio.median_ppm <= one.ratio.high_ppm


def test_kernels_and_code_that_differ_are_listed(found):
    assert (found.kernels_added, found.kernels_removed) == (("fresh",), ("gone",))
    assert {one.kernel for one in found.code if one.status == "changed"} == {"bare", "moved"}
    assert case(found, "kept").same_code


def test_results_are_compared_with_each_other_and_with_the_expected(found):
    moved = case(found, "moved").numbers
    assert (moved.equal, moved.array, moved.old_ok, moved.new_ok) == (False, "out", True, False)
    assert moved.between == pytest.approx(moved.new_error)
    assert moved.new_error > 0.5 > moved.old_error
    bare = case(found, "bare").numbers
    assert (bare.equal, bare.new_ok) == (False, None)
    assert 0 < bare.between < 1e-5
    assert case(found, "moved").ratio is not None


def test_gates_name_each_reason(found):
    by_tolerance, by_bits = failures(found, None, "tolerance"), failures(found, None, "bits")
    assert [one.partition(":")[0] for one in by_tolerance] == ["bare n=500", "moved n=500", "sized n=600"]
    assert "nothing is expected" in by_tolerance[0]
    assert "the new result is wrong by" in by_tolerance[1]
    assert "removed" in by_tolerance[2]
    assert "out differs by" in by_bits[0]
    assert failures(found, None, None) == []


def test_a_result_that_is_not_finite_is_text_in_json(bundles, tmp_path):
    other = tmp_path / "infinite_kernels.py"
    other.write_text(HEAD + kernel("kept", f"{LOADED} / 0.0"))
    found = compare_bundles(bundles[0], other, kernels=["kept"], limit_s=0.01)
    printed = json.loads(json.dumps(found.to_json(), allow_nan=False))
    (numbers,) = [one["numbers"] for one in printed["cases"] if one["status"] == "compared"]
    assert (numbers["between"], numbers["new_ok"]) == ("inf", False)


def test_a_kernel_that_crashes_costs_its_case(bundles, tmp_path):
    other = tmp_path / "crashing_kernels.py"
    far = kernel("kept", f"{LOADED} * 2.0").replace("tl.store(out + i", "tl.store(out + i + (n.to(tl.int64) << 40)")
    other.write_text(HEAD + far + kernel("moved", f"{LOADED} * 2.0"))
    found = compare_bundles(bundles[0], other, kernels=["kept", "moved"])
    assert case(found, "kept").status == "failed"
    assert case(found, "kept").reason.startswith("the new bundle: LaunchError")
    assert case(found, "moved").numbers.equal
    assert failures(found, None, None)[0].startswith("kept n=500: failed: the new bundle")


def test_a_case_with_other_arguments_is_not_compared(bundles, tmp_path):
    other = tmp_path / "other_kernels.py"
    other.write_text(OLD.replace("make.normal(n)", "make.uniform(n)"))
    found = compare_bundles(bundles[0], other, kernels=["kept"])  # a file is built first
    assert case(found, "kept").status == "failed"
    assert "other arguments" in failures(found, None, None)[0]


def test_the_command_writes_every_form_and_refuses(bundles, tmp_path, capsys):
    page, text = tmp_path / "diff.html", tmp_path / "diff.md"
    words = ["diff", *map(str, bundles), "--fail-numbers", "tolerance", "--seconds", "1", "--json"]
    with pytest.raises(SystemExit) as ended:
        app([*words, "--html", str(page), "--markdown", str(text)])
    assert ended.value.code == 1
    printed = capsys.readouterr()
    shown = json.loads(printed.out)
    assert len(shown["refused"]) == 3
    assert {one["status"] for one in shown["cases"]} == {"compared", "removed"}
    assert "refused: moved n=500" in printed.err
    assert "| moved | n=500 |" in text.read_text()
    assert "<td" in page.read_text()


def test_native_code_needs_consent_and_files_alone_do_not(bundles, tmp_path):
    with override(home=str(tmp_path / "elsewhere")):
        with pytest.raises(TrustError):
            compare_bundles(*bundles)
        assert compare_bundles(*bundles, run=False).cases == ()


@pytest.mark.parametrize("percent", ["fast", "0", "-2%", "200%"])
def test_a_percentage_that_is_none_is_a_usage_error(bundles, percent, capsys):
    with pytest.raises(SystemExit) as ended:
        app(["diff", *map(str, bundles), "--fail-slower", percent])
    assert ended.value.code == 2
    assert "no percentage" in capsys.readouterr().err


def test_a_file_under_two_toolchains(tmp_path, monkeypatch):
    built = []

    def build(files, output, toolchains, **options):
        built.append((files, toolchains, options["download"]))
        return silo.build(files[0], output=output, tune="off")

    monkeypatch.setattr("silo.commands.build_with_toolchains.build_with_toolchains", build)
    file = tmp_path / "twice_kernels.py"
    file.write_text(HEAD + kernel("kept", f"{LOADED} * 2.0"))
    names = ["triton==1", "triton==2"]
    found = compare_bundles(file, file, toolchains=names)
    assert built == [([file], ["triton==1"], False), ([file], ["triton==2"], False)]
    assert found.same_code == 2
    with pytest.raises(ToolchainError, match="two toolchains"):
        compare_bundles(file, file, toolchains=names[:1])


def test_a_bundle_is_not_compiled_by_a_toolchain(bundles):
    with pytest.raises(ToolchainError, match="compiled already"):
        compare_bundles(*bundles, toolchains=["triton==1", "triton==2"])


def test_a_kernel_that_neither_has_is_an_error(bundles):
    with pytest.raises(SourceError, match=r"neither .* has a kernel gnoe"):
        compare_bundles(*bundles, kernels=["gnoe"])
